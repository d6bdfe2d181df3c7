"""Arrays of odd layout, type or shape: the right result or a sentence, with either backend; and
the C++ core, which checks once more what reaches it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite.engine import backend
from hoplite.engine.dropout import Dropout
from hoplite.engine.features import Features
from hoplite.engine.polynomial import gather_hops, polynomial, polynomial_adjoint, scatter_hops
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import ConfigError, GraphError, HopliteError

N, WIDTH = 9, 4
needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def misaligned(x):
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:]
    odd = memory.view(x.dtype).reshape(x.shape)
    odd[...] = x
    return odd


# The same numbers in memory in another way.
LAYOUTS = {
    "Fortran": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "part of more": lambda x: np.concatenate([x, x, x])[len(x) : 2 * len(x)],
    "inner part": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "read-only": read_only,
    "misaligned": misaligned,
}


@pytest.fixture
def S(each_backend):
    half = sp.random_array((N, N), density=0.3, rng=1)
    return SparseMatrix.from_scipy(sp.csr_array(half + half.T), symmetric=True)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


ROWS, SOME = np.array([8, 0, 8]), Dropout(0.5, 3)
CALLS = {
    "spmm": (lambda S, x: spmm(S, x), (N, WIDTH)),
    "spmm W": (lambda S, x: spmm(S, random(N, WIDTH), W=x, w_scale=1.0), (N, WIDTH)),
    "polynomial": (lambda S, x: polynomial(S, "chebyshev", x, random(3, WIDTH)), (N, WIDTH)),
    "scales": (lambda S, x: polynomial(S, "monomial", random(N, WIDTH), x), (3, WIDTH)),
    "adjoint": (
        lambda S, x: polynomial_adjoint(S, "monomial", x, random(N, WIDTH), random(3, WIDTH))[0],
        (N, WIDTH),
    ),
    "gather_hops": (lambda S, x: gather_hops(S, "monomial", x, 2, ROWS), (N, 3)),
    "scatter_hops": (lambda S, x: scatter_hops(S, "chebyshev", x, ROWS), (4, 3, WIDTH)),
    "dense features": (lambda S, x: Features.from_array(x).dense(SOME), (N, WIDTH)),
    "features times": (lambda S, x: Features(random(N, 5)).times(x, SOME), (5, WIDTH)),
    "sparse features times": (lambda S, x: Features(S).times(x, SOME), (N, WIDTH)),
    "features transposed": (lambda S, x: Features(random(N, 5)).transposed_times(x), (N, WIDTH)),
    "sparse features transposed": (lambda S, x: Features(S).transposed_times(x, SOME), (N, WIDTH)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", CALLS)
def test_another_layout_gives_the_same_or_a_sentence(S, call, layout):
    function, shape = CALLS[call]
    x = random(*shape, seed=5)
    odd = LAYOUTS[layout](x)
    assert np.array_equal(odd, x)
    wanted = function(S, x)
    if odd.flags.c_contiguous and odd.flags.aligned:
        np.testing.assert_allclose(function(S, odd), wanted, rtol=1e-12, atol=1e-12)
        return
    with contextlib.suppress(HopliteError, ValueError):  # what is not copied is refused
        np.testing.assert_allclose(function(S, odd), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("call", CALLS)
def test_other_types_and_shapes_are_refused(S, call):
    function, shape = CALLS[call]
    x = random(*shape)
    if call == "dense features":
        return  # these may have any type and shape of their own
    for dtype in (np.float16, np.float32, np.int64, np.complex128, np.longdouble, ">f8", object):
        with pytest.raises(HopliteError):
            function(S, x.astype(dtype))
    own = {"scales": [x[:, :-1]], "scatter_hops": [x[:, :-1]]}
    for odd in [*own.get(call, [x[:-1], np.concatenate([x, x])]), x[0], x[None], x[:0]]:
        with pytest.raises(HopliteError):
            function(S, odd)


@pytest.mark.parametrize("call", CALLS)
def test_no_columns(S, call):
    function, shape = CALLS[call]
    if call not in ("scales", "adjoint", "polynomial", "spmm W"):
        assert function(S, np.empty((*shape[:-1], 0))).shape[-1] == 0


def test_rows_and_hops_and_names_are_checked(S):
    signal = random(N, 3)
    for rows in ([N], [-1], [0, 10**9]):
        with pytest.raises(GraphError, match="row indices go from"):
            gather_hops(S, "monomial", signal, 2, np.array(rows))
        with pytest.raises(GraphError, match="row indices go from"):
            scatter_hops(S, "monomial", random(3, len(rows), 2), np.array(rows))
    for rows in (np.array([1], np.int32), np.array([[1]]), np.arange(6)[::2], np.array([0.5])):
        with pytest.raises(GraphError, match="pass a list of int64 indices"):
            gather_hops(S, "monomial", signal, 2, rows)
    with pytest.raises(ConfigError, match="hops is -1"):
        gather_hops(S, "monomial", signal, -1)
    with pytest.raises(ConfigError, match="basis is 'monomials'"):
        polynomial(S, "monomials", signal, random(2, 3))
    with pytest.raises(GraphError, match="it must be square"):
        polynomial(SparseMatrix.from_scipy(sp.csr_array((N, 5))), "monomial", signal, random(2, 3))


def test_features_of_odd_types():
    for wrong in ([["a"], ["b"]], [[1j]], np.array([[None]]), [[1], [2, 3]]):
        with pytest.raises(GraphError):
            Features.from_array(wrong)
    for dtype in (np.float16, np.int8, np.bool_, np.longdouble, ">f4", ">i2"):
        assert Features.from_array(np.array([[1, 0], [0, 1]], dtype)).dtype == np.float32
    backwards = np.arange(6.0).reshape(3, 2)[::-1, ::-1]
    assert Features.from_array(backwards).dense().tolist() == backwards.tolist()


# ---- the C++ core itself


@needs_native
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"columns": 1}, "out of range"),
        ({"columns": -2}, "do not fit together"),
        ({"indptr": np.array([0, 3, 2])}, "never decrease"),
        ({"indptr": np.array([1, 1, 2])}, "do not fit together"),
        ({"indptr": np.array([], np.int64)}, "do not fit together"),
        ({"indptr": np.array([0, 1, 2], np.int32)}, "indptr must be int64"),
        ({"indices": np.array([0, -1])}, "out of range"),
        ({"indices": np.array([0, 1], np.int16)}, "indices must be"),
        ({"indices": np.array([0, 0, 1, 1])[::2]}, "indices must be C-contiguous"),
        ({"values": np.ones(3)}, "do not fit together"),
        ({"values": np.ones((2, 1))}, "values must have 1 dimensions"),
        ({"values": np.ones(2, np.float16)}, "values must be"),
        ({"values": np.ones(2, ">f8")}, "values must be"),
        ({"values": [1.0, 2.0]}, "values must be a NumPy array"),
        ({"values": np.array([None, None])}, "values must be"),
    ],
)
def test_the_core_refuses_damaged_matrices(change, message):
    sound = {"indptr": np.array([0, 1, 2]), "indices": np.array([0, 1]), "values": np.ones(2)}
    backend.native.Csr(**sound, columns=2)
    with pytest.raises(ValueError, match=message):
        backend.native.Csr(**{**sound, "columns": 2} | change)


def core_calls():
    """Every kernel with sound arguments, by name: (function, arguments)."""
    native = backend.native
    S = native.Csr(np.array([0, 1, 2]), np.array([1, 0]), np.ones(2), 2)
    basis = native.Basis(np.array([[1.0, 0, 0], [2.0, 0, 1]]))
    x, c = random(2, 3), random(3, 3)
    rows, rule = np.array([1, 0, 1]), {"key0": 1, "key1": 2, "threshold": 3, "scale": 1.0}
    weights = {name: random(5) ** 2 for name in ("gradient", "weight", "mean", "square")}
    return {
        "spmm": (S.spmm, {"x": x, "y": random(2, 3), "scale": 1.0, "z": random(2, 3),
                          "a": random(3), "w": random(2, 3), "b": 1.0, "u": x + 1, "c": 1.0}),
        "polynomial": (S.polynomial,
                       {"basis": basis, "signal": x, "scales": c, "out": random(2, 3)}),
        "adjoint": (S.polynomial_adjoint, {"basis": basis, "gradient": x, "signal": x, "scales": c,
                                           "out": random(2, 3), "dots": random(3, 3)}),
        "gather": (S.gather_hops,
                   {"basis": basis, "rows": rows, "signal": x, "out": random(3, 3, 3)}),
        "scatter": (S.scatter_hops,
                    {"basis": basis, "rows": rows, "hops": random(3, 3, 3), "out": random(2, 3)}),
        "times": (S.times, {"transposed": False, "dense": x, "out": random(2, 3),
                            "row_numbers": np.array([5, 9]), "whole": random(2, 3), **rule}),
        "drop_dense": (native.drop_dense,
                       {"x": x, "out": random(2, 3), "row_numbers": np.array([5, 9]), **rule}),
        "adam": (native.adam, weights | {"lr": 0.1, "decay": 0.0, "step": 1}),
    }  # fmt: skip


WRITTEN = {"y", "out", "whole", "dots", "weight", "mean", "square"}
CORE = ("spmm", "polynomial", "adjoint", "gather", "scatter", "times", "drop_dense", "adam")


@needs_native
@pytest.mark.parametrize("name", CORE)
def test_the_core_refuses_odd_arrays(name):
    function, sound = core_calls()[name]
    function(**sound, threads=2)
    for argument, array in sound.items():
        if not isinstance(array, np.ndarray):
            continue
        wrong = [array[:-1], array.astype(np.float16), array.astype(object), [[1.0]], "text",
                 array.astype(array.dtype.newbyteorder()), misaligned(array)]  # fmt: skip
        if name != "adam":  # which takes weights of any shape
            wrong.append(array[None])
        if argument == "rows":
            wrong += [array + 1, array - 1, array.astype(np.int32), np.repeat(array, 2)[::2]]
        elif array.dtype == np.float64:
            wrong += [array.astype(np.float32), np.repeat(array, 2, -1)[..., ::2]]
        if argument in WRITTEN:
            wrong.append(read_only(array))
        if array.ndim > 1 and name != "adam":
            wrong.append(np.concatenate([array, array], axis=-1))
        for odd in wrong:
            with pytest.raises((ValueError, TypeError)):
                function(**sound | {argument: odd}, threads=2)


@needs_native
def test_the_core_refuses_odd_numbers():
    calls = core_calls()
    for name, change in (
        ("times", {"scale": np.nan}),
        ("times", {"threshold": 2**32}),
        ("times", {"key0": -1}),
        ("drop_dense", {"scale": np.inf}),
        ("adam", {"step": 0}),
        ("spmm", {"z": None}),
        ("spmm", {"y": calls["spmm"][1]["x"]}),
        ("spmm", {"y": calls["spmm"][1]["u"]}),
        ("polynomial", {"basis": None}),
    ):
        function, sound = calls[name]
        with pytest.raises((ValueError, TypeError)):
            function(**sound | change, threads=1)
    for table in (
        np.ones((2, 2)),
        np.array([[1, 0, 1.0]]),
        np.array([[np.nan, 0, 0]]),
        [[1, 0, 0]],
    ):
        with pytest.raises((ValueError, TypeError)):
            backend.native.Basis(table)
    for threads in (0, -5, 10_000):  # fewer or more than there can be
        function, sound = calls["polynomial"]
        function(**sound, threads=threads)
