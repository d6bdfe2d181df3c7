"""The limit of an epoch: rows gathered by sparse products, and what a plain loop takes for them.

A product of a sparse matrix with a dense signal gathers one row of the signal for each entry of the
matrix, and the rows are scattered, so gathering them is what a fast product spends its time on. The
engine's products are counted in one epoch of a real training. The roofline is a plain C loop that
adds up as many rows of the same width, at the same places, without the matrix's values, dropout,
loss and optimizer:

    y[v, :] = sum over the entries (v, u) of x[u, :]

Rows are padded to 4, 8 or 16 numbers, so that each is in one cache line.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.training import Trainer
from hoplite.engine.backend import uses_native
from hoplite.engine.sparse import SparseMatrix

Shape = tuple[int, int, int]  # rows, columns and entries, by which a matrix is known
WIDTHS = (4, 8, 16)  # numbers in a row that the loop is compiled for
ROUNDS, ROUND_SECONDS = 7, 0.02
LOOP = """
#include <stdint.h>
#define LOOP(W) \\
void gather_##W(const int64_t *starts, const int32_t *places, int64_t first, int64_t last, \\
                const float *x, float *y, int64_t passes) { \\
  for (int64_t pass = 0; pass < passes; ++pass) \\
    for (int64_t v = first; v < last; ++v) { \\
      float sum[W] = {0}; \\
      for (int64_t e = starts[v]; e < starts[v + 1]; ++e) { \\
        const float *row = x + (int64_t)places[e] * W; \\
        for (int j = 0; j < W; ++j) sum[j] += row[j]; \\
      } \\
      for (int j = 0; j < W; ++j) y[v * W + j] = sum[j]; \\
    } \\
}
"""


@dataclass
class Tally:
    """The products of an epoch: how often each matrix was passed over, by the signal's width.

    A pass over X under dropout counts by the share of its entries that is kept.
    """

    passes: dict[tuple[Shape, int], float] = field(default_factory=dict)
    matrices: dict[Shape, SparseMatrix] = field(default_factory=dict)

    def add(self, matrix: SparseMatrix, width: int, passes: float) -> None:
        """Count products of ``matrix`` with signals of ``width`` columns."""
        shape = *matrix.shape, matrix.nnz
        self.matrices[shape] = matrix
        self.passes[shape, width] = self.passes.get((shape, width), 0.0) + passes

    def without(self, other: Tally) -> Tally:
        """What this one has more than another."""
        left = {key: count - other.passes.get(key, 0.0) for key, count in self.passes.items()}
        return Tally({key: count for key, count in left.items() if count > 0}, self.matrices)

    @property
    def gathers(self) -> int:
        """Gathered rows."""
        return round(sum(passes * shape[2] for (shape, _), passes in self.passes.items()))

    def seconds(self, threads: int) -> float | None:
        """What the plain loop takes for them; None without a C compiler."""
        if plain_loops() is None:
            return None
        return sum(
            passes * gather_seconds(self.matrices[shape], width, threads)
            for (shape, width), passes in self.passes.items()
        )


class _Counted:
    """The matrix of the C++ core; its products are counted."""

    def __init__(self, matrix: SparseMatrix, handle: Any, tally: Tally) -> None:
        self._matrix, self._handle, self._tally = matrix, handle, tally

    def __getattr__(self, name: str) -> Any:
        kernel, count = getattr(self._handle, name), COUNTS[name]

        def counted(*arguments: Any) -> Any:
            plain = [one._handle if isinstance(one, _Counted) else one for one in arguments]
            width, passes = count(*arguments)
            self._tally.add(self._matrix, width, passes)
            return kernel(*plain)

        return counted


# Width of the gathered rows, and passes over the matrix, from the arguments of each kernel.
COUNTS: dict[str, Callable[..., tuple[int, float]]] = {
    "spmm": lambda signal, *_: (signal.shape[1], 1.0),
    # with a second output, of what is not dropped, every entry of X is gathered once for both
    "times": lambda transposed, dense, out, numbers, key0, key1, threshold, scale, whole, *_: (
        dense.shape[1],
        1 / scale if whole is None else 1.0,
    ),
    "polynomial": lambda table, signal, scales, *_: (signal.shape[1], len(scales) - 1.0),
    "polynomial_adjoint": lambda table, gradient, signal, scales, *_: (
        signal.shape[1],
        len(scales) - 1.0,
    ),
    "gather_hops": lambda table, rows, signal, out, *_: (signal.shape[1], len(out) - 1.0),
    "scatter_hops": lambda table, rows, gathered, *_: (gathered.shape[2], len(gathered) - 1.0),
}


@contextmanager
def counting() -> Iterator[Tally]:
    """Count the products of the C++ core within the block."""
    tally, handle = Tally(), SparseMatrix.handle.fget
    assert handle is not None
    counted = property(lambda matrix: _Counted(matrix, handle(matrix), tally))
    with patch.object(SparseMatrix, "handle", counted):
        yield tally


def epoch_tally(trainer: Trainer) -> Tally | None:
    """The products of one epoch amid others; None where NumPy computes, or torch."""
    if not uses_native():
        return None
    tallies = []
    for epochs in (3, 4):  # what only the first and the last do is in both
        with counting() as tally:
            trainer.train(epochs)
        tallies.append(tally)
    found = tallies[1].without(tallies[0])
    return found if found.passes else None


@lru_cache(maxsize=1)
def plain_loops() -> ctypes.CDLL | None:
    """The compiled loops, or None without a C compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "gather.c", Path(folder) / "gather.so"
        source.write_text(LOOP + "\n".join(f"LOOP({width})" for width in WIDTHS), encoding="ascii")
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", str(source)]
        if subprocess.run([*command, "-o", str(library)], capture_output=True).returncode:
            return None
        return ctypes.CDLL(str(library))  # it stays when its file goes


def gather_seconds(matrix: SparseMatrix, width: int, threads: int) -> float:
    """Seconds of the plain loop for one pass over a matrix; wide rows are several of 16 numbers.

    The best of several rounds: interruptions only ever make it slower.
    """
    loops, csr = plain_loops(), matrix.to_scipy()
    assert loops is not None
    padded = next((one for one in WIDTHS if one >= width), WIDTHS[-1])
    tiles = -(-width // padded)
    loop = getattr(loops, f"gather_{padded}")
    starts = np.ascontiguousarray(csr.indptr, np.int64)
    places = np.ascontiguousarray(csr.indices, np.int32)
    x = aligned_zeros(csr.shape[1] * padded)
    y = aligned_zeros(csr.shape[0] * padded)
    ends = np.searchsorted(starts, np.linspace(0, csr.nnz, threads + 1)[1:-1])
    bounds = [0, *ends.tolist(), csr.shape[0]]

    def part(index: int, passes: int) -> None:
        loop(
            *(ctypes.c_void_p(array.ctypes.data) for array in (starts, places)),
            *(ctypes.c_int64(bound) for bound in bounds[index : index + 2]),
            *(ctypes.c_void_p(array.ctypes.data) for array in (x, y)),
            ctypes.c_int64(passes),
        )

    with ThreadPoolExecutor(threads) as pool:

        def seconds(passes: int) -> float:
            started = time.perf_counter()
            list(pool.map(part, range(threads), [passes] * threads))
            return time.perf_counter() - started

        passes = max(1, round(ROUND_SECONDS / max(seconds(1), 1e-6)))
        return tiles * min(seconds(passes) for _ in range(ROUNDS)) / passes


def aligned_zeros(count: int) -> np.ndarray:
    """float32 zeros that begin at a cache line."""
    whole = np.zeros(count + 16, np.float32)
    first = -whole.ctypes.data % 64 // 4
    return whole[first : first + count]
