"""Polynomials of an operator and their adjoints: C++ core == NumPy == dense algebra, to the bit on
any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.bases import EXAMPLES as BASES
from hoplite.engine import backend
from hoplite.engine import polynomial as module
from hoplite.engine.backend import use_backend, use_threads
from hoplite.engine.polynomial import (
    accumulate,
    gather_hops,
    polynomial,
    polynomial_adjoint,
    scatter_hops,
)
from hoplite.engine.sparse import SparseMatrix
from hoplite.operators import OPERATORS, find_operator

needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")


def square(n, density, dtype, index=np.int32, seed=0):
    """Not symmetric, with empty rows, of norm about 1."""
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((n, n), density=density, format="csr", rng=rng)
    matrix = (matrix.multiply(rng.random((n, 1)) < 0.9) / max(1, n * density / 2)).tocsr()
    matrix = matrix.astype(dtype)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return SparseMatrix.from_scipy(matrix)


def every_kernel(matrix, basis, width, hops, seed=0, rows=None):
    """What every kernel makes of the same random operands."""
    rng, n = np.random.default_rng(seed), matrix.shape[0]
    draw = lambda *shape: rng.standard_normal(shape).astype(matrix.dtype)  # noqa: E731
    signal, gradient, scales = draw(n, width), draw(n, width), draw(hops + 1, width)
    gathered = draw(hops + 1, n if rows is None else len(rows), width)
    return [
        polynomial(matrix, basis, signal, scales),
        *polynomial_adjoint(matrix, basis, gradient, signal, scales),
        gather_hops(matrix, basis, signal, hops, rows),
        scatter_hops(matrix, basis, gathered, rows),
    ]


def assert_close(found, wanted, dtype):
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    for one, other in zip(found, wanted, strict=True):
        scale = max(1.0, np.abs(other).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("hops", [0, 1, 7])
def test_all_are_dense_algebra(graphs, dense, operator, basis, hops):
    graph, chosen = graphs(), find_operator(operator)
    matrix = SparseMatrix.from_scipy(chosen.matrix(graph, basis=basis), symmetric=chosen.symmetric)
    powers = np.stack(dense.basis(graph, operator, basis, hops))
    rng, rows = np.random.default_rng(hops), np.array([4, 0, 11, 4])
    signal, gradient = rng.normal(size=(2, 12, 3))
    scales, gathered = rng.normal(size=(hops + 1, 3)), rng.normal(size=(hops + 1, 4, 3))
    close = {"rtol": 1e-10, "atol": 1e-10}
    found = polynomial(matrix, basis, signal, scales)
    np.testing.assert_allclose(found, np.einsum("kuv,vw,kw->uw", powers, signal, scales), **close)
    to_signal, to_scales = polynomial_adjoint(matrix.T, basis, gradient, signal, scales)
    back = np.einsum("kuv,uw->kvw", powers, gradient)
    np.testing.assert_allclose(to_signal, np.einsum("kvw,kw->vw", back, scales), **close)
    np.testing.assert_allclose(to_scales, np.einsum("kvw,vw->kw", back, signal), **close)
    each = gather_hops(matrix, basis, signal, hops)
    np.testing.assert_allclose(each, powers @ signal, **close)
    some = gather_hops(matrix, basis, signal, hops, rows)
    np.testing.assert_allclose(some, each[:, rows], **close)
    spread = scatter_hops(matrix, basis, gathered, rows)
    wanted = np.einsum("kur,krw->uw", powers[:, :, rows], gathered)
    np.testing.assert_allclose(spread, wanted, **close)


@needs_native
@examples(80)
@given(
    n=st.integers(0, 40),
    width=st.integers(0, 70),
    hops=st.integers(0, 6),
    density=st.floats(0, 0.5),
    basis=st.sampled_from(BASES),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    some=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_backends_agree_on_anything(n, width, hops, density, basis, dtype, index, some, seed):
    matrix = square(n, density, dtype, index, seed)
    rows = np.random.default_rng(seed).integers(0, n, 5) if n and some else None
    found = every_kernel(matrix, basis, width, hops, seed, rows)
    with use_backend("numpy"):
        assert_close(found, every_kernel(matrix, basis, width, hops, seed, rows), dtype)


@needs_native
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize(
    ("n", "width", "dtype"),
    [(9_000, 3, np.float32), (900, 75, np.float32), (900, 75, np.float64)],
    ids=["one tile", "tiles", "tiles of float64"],
)
def test_threads_and_other_calls_do_not_change_a_bit(basis, n, width, dtype):
    matrix = square(n, 4 / n, dtype)
    rows = np.array([n - 1, 7, 7, n // 2])

    def work(threads):
        with use_threads(threads):
            return every_kernel(matrix, basis, width, 12, rows=rows)

    alone = work(1)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(copy_context().run, work, threads) for threads in (1, 2, 8, 2)]
        others = [work(2), work(8), *(call.result() for call in calls)]
    for other in others:
        assert all(np.array_equal(one, two) for one, two in zip(alone, other, strict=True))
    with use_backend("numpy"):
        assert_close(alone, every_kernel(matrix, basis, width, 12, rows=rows), dtype)


@needs_native
@pytest.mark.parametrize("basis", BASES)
def test_bits_of_a_column_depend_neither_on_its_neighbours_nor_on_tiles(basis):
    matrix = square(200, 0.05, np.float32)
    rng = np.random.default_rng(1)
    signal, gradient = rng.standard_normal((2, 200, 75)).astype(np.float32)
    scales = rng.standard_normal((8, 75)).astype(np.float32)
    found = polynomial(matrix, basis, signal, scales)
    to_signal, to_scales = polynomial_adjoint(matrix, basis, gradient, signal, scales)
    assert np.array_equal(found, accumulate(matrix, basis, lambda i: (signal, scales[i]), 7))
    for column in (0, 33, 74):
        x, g, c = (
            np.ascontiguousarray(v[:, column : column + 1]) for v in (signal, gradient, scales)
        )
        assert np.array_equal(polynomial(matrix, basis, x, c)[:, 0], found[:, column])
        one, dots = polynomial_adjoint(matrix, basis, g, x, c)
        assert np.array_equal(one[:, 0], to_signal[:, column])
        assert np.array_equal(dots[:, 0], to_scales[:, column])


@pytest.mark.parametrize("rows", [None, np.array([16, 2, 7, 2])])
def test_large_graphs_go_hop_by_hop_with_the_same_numbers(monkeypatch, rows):
    matrix = square(17, 0.3, np.float64)
    tiled = every_kernel(matrix, "jacobi:1,0.5", 5, 4, rows=rows)
    monkeypatch.setattr(module, "TILE_ROWS", 16)
    assert not module._in_tiles(matrix)
    assert_close(every_kernel(matrix, "jacobi:1,0.5", 5, 4, rows=rows), tiled, np.float64)


@pytest.mark.usefixtures("each_backend")
def test_long_sums_are_precise():
    n = 50_000
    matrix = SparseMatrix.from_scipy(sp.eye_array(n, dtype=np.float32, format="csr"))
    tenths, ones = np.full((n, 1), 0.1, np.float32), np.ones((3, 1), np.float32)
    _, dots = polynomial_adjoint(matrix, "monomial", tenths, tenths, ones)
    assert dots.dtype == np.float64
    np.testing.assert_allclose(dots, n * float(np.float32(0.1)) ** 2, rtol=1e-6)
