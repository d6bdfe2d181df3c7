"""SciPy matrices with damaged insides, and what becomes of them; a crash ends only its own case.

    python tests/damaged_matrices.py

prints one JSON object: how many cases ended well, in a GraphError, in another error, by a signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

N = 24
SECONDS = 120  # until a case counts as hanging
FORMATS = ("csr", "csc", "coo", "bsr", "dia")
ARRAYS = {
    "csr": ["indptr", "indices", "data"],
    "csc": ["indptr", "indices", "data"],
    "bsr": ["indptr", "indices", "data"],
    "coo": ["row", "col", "data"],
    "dia": ["offsets", "data"],
}
Damage = Callable[[np.ndarray, np.random.Generator], Any]


def _with(array: np.ndarray, rng: np.random.Generator, value: Any) -> np.ndarray:
    """A copy with some of its elements replaced."""
    array = array.copy()
    array.reshape(-1)[rng.integers(0, array.size, rng.integers(1, 4))] = value
    return array


def _pushed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array[len(array) // 2], array[-1] = 10**6, 0
    return array


DAMAGES: dict[str, Damage] = {
    "huge": lambda a, rng: _with(a, rng, 10**6),
    "all huge": lambda a, rng: np.full_like(a, 10**6),
    "negative": lambda a, rng: _with(a, rng, -int(rng.integers(1, 10**6))),
    "just outside": lambda a, rng: _with(a, rng, N),
    "largest": lambda a, rng: _with(a, rng, 2**31 - 1),
    "zeros": lambda a, rng: np.zeros_like(a),
    "last is zero, one is huge": lambda a, rng: _pushed(a),
    "descending": lambda a, rng: a[::-1].copy(),
    "shuffled": lambda a, rng: rng.permutation(a),
    "shorter": lambda a, rng: a[: -int(rng.integers(1, 5))],
    "longer": lambda a, rng: np.concatenate([a, a[: int(rng.integers(1, 5))]]),
    "empty": lambda a, rng: a[:0],
    "strided": lambda a, rng: np.repeat(a, 2, axis=0)[::2],
    "floats": lambda a, rng: a.astype(np.float64) + 0.5,
    "not a number": lambda a, rng: _with(a.astype(np.float64), rng, np.nan),
    "objects": lambda a, rng: np.array([None] * len(a), dtype=object),
    "texts": lambda a, rng: np.array(["x"] * len(a)),
    "complex": lambda a, rng: a.astype(np.complex128),
    "halves": lambda a, rng: a.astype(np.float16),
    "bytes": lambda a, rng: a.astype(np.uint8),
    "unsigned": lambda a, rng: a.astype(np.uint64),
    "other byte order": lambda a, rng: a.astype(a.dtype.newbyteorder()),
    "a column": lambda a, rng: a.reshape(-1, 1),
    "a scalar": lambda a, rng: np.array(7),
    "a list": lambda a, rng: a.tolist(),
    "nothing": lambda a, rng: None,
    "masked": lambda a, rng: np.ma.masked_array(_with(a, rng, 10**6), mask=True),
}
SHAPES: list[Any] = [
    (N, N + 5),
    (N + 5, N),
    (N - 5, N - 5),
    (N + 1, N + 1),
    (0, 0),
    (1, 1),
    (N,),
    (N, N, N),
    (-1, N),
    (N, -1),
    (10**12, 10**12),
    (2**62, 2**62),
    (2**70, N),
    (float(N), N),
    ("x", N),
    None,
    [N, N],
]


def sound(form: str, array: bool, dtype: Any, seed: int) -> Any:
    """A symmetric N x N matrix of positive numbers with some empty rows."""
    rng = np.random.default_rng(seed)
    half = np.triu(rng.random((N, N)) * (rng.random((N, N)) < 0.4), 1)
    half[:, -2:] = 0
    matrix = np.ceil((half + half.T) * 5).astype(dtype)
    return getattr(sp, f"{form}_{'array' if array else 'matrix'}")(matrix)


def damaged() -> Iterator[tuple[str, Any]]:
    """Every case: what was done, and the matrix."""
    for form in FORMATS:
        for array in (True, False):
            name = f"{form}_{'array' if array else 'matrix'}"
            seed = FORMATS.index(form)
            for shape in SHAPES:
                matrix = sound(form, array, np.float64, seed)
                matrix._shape = shape
                yield f"{name}: shape {shape}", matrix
            for part in ARRAYS[form]:
                matrix = sound(form, array, np.float32, seed)
                del matrix.__dict__["coords" if form == "coo" and part != "data" else part]
                yield f"{name}: without {part}", matrix
                for what, matrix in _damaged_part(form, array, part, seed):
                    yield f"{name}: {part}: {what}", matrix


def _damaged_part(form: str, array: bool, part: str, seed: int) -> Iterator[tuple[str, Any]]:
    for number, (what, damage) in enumerate(DAMAGES.items()):
        rng = np.random.default_rng([seed, number])
        matrix = sound(form, array, (np.float64, np.float32, np.int64)[number % 3], seed)
        if form == "coo" and part != "data":
            place = ["row", "col"].index(part)
            coords = list(matrix.coords)
            coords[place] = damage(coords[place], rng)
            matrix.coords = tuple(coords)
        else:
            matrix.__dict__[part] = damage(getattr(matrix, part), rng)
        yield what, matrix


def use(matrix: Any, where: str) -> None:
    """Hand the matrix to Hoplite and, where it is taken, compute with it."""
    from hoplite.engine.features import Features
    from hoplite.engine.sparse import SparseMatrix, spmm
    from hoplite.graph import Graph
    from hoplite.operators import find_operator

    if where == "adjacency":
        graph = Graph(matrix, np.eye(N))
        S = SparseMatrix.from_scipy(find_operator("renormalized").matrix(graph))
    elif where == "features":
        graph = Graph.from_edges([(0, 1), (1, 2)], matrix)
        S = Features.from_array(graph.features)._storage
    else:
        S = SparseMatrix.from_scipy(matrix)
    found = spmm(S, np.ones((S.shape[1], 3), S.dtype))
    wanted = S.to_scipy().toarray().sum(axis=1)
    np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-5)


def outcome(name: str, matrix: Any, where: str) -> str:
    """ "well", "refused", or "error", which is printed."""
    from hoplite.errors import GraphError

    try:
        use(matrix, where)
    except GraphError as error:
        text = str(error)
        if text.endswith(".") and "\n" not in text and len(text) < 300:
            return "refused"
        print(f"{where}: {name}: {text}", file=sys.stderr)
    except Exception:
        print(f"{where}: {name}\n{traceback.format_exc(limit=-2)}", file=sys.stderr)
    else:
        return "well"
    return "error"


def outcomes(cases: list[tuple[str, Any, str]]) -> list[str]:
    """Of every case in turn, in a child; what ends the child is the outcome of its last case."""
    found: list[str] = []
    while len(found) < len(cases):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            with os.fdopen(writing, "w", buffering=1) as results:
                for case in cases[len(found) :]:
                    signal.alarm(SECONDS)
                    print(outcome(*case), file=results)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as results:
            found += results.read().split()
        _, status = os.waitpid(child, 0)
        if status:
            found.append(f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "ended")
    return found


def main() -> None:
    warnings.simplefilter("error")
    import hoplite.engine.features
    import hoplite.operators  # noqa: F401 - before the fork, once for all children

    places = ("adjacency", "features", "matrix")
    cases = [(name, matrix, places[i % 3]) for i, (name, matrix) in enumerate(damaged())]
    found = outcomes(cases)
    good = ("well", "refused")
    bad = [
        f"{where}: {name}: {end}"
        for (name, _, where), end in zip(cases, found, strict=True)
        if end not in good
    ]
    print(json.dumps({"cases": len(cases), "counts": dict(Counter(found)), "bad": bad}))


if __name__ == "__main__":
    main()
