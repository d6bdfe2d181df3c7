"""All hops in tiles (the C++ core) against the same polynomial hop by hop."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hoplite.bases import EXAMPLES as BASES
from hoplite.propagation import backend
from hoplite.propagation.backend import get_num_threads, set_num_threads, use_backend
from hoplite.propagation.polynomial import (
    accumulate,
    gather_hops,
    scatter_hops,
    weighted_sum,
    weighted_sum_adjoint,
)
from hoplite.propagation.spmm import SparseMatrix

pytestmark = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")


def symmetric(n, density, dtype, index=np.int32, seed=0):
    rng = np.random.default_rng(seed)
    half = sp.random_array((n, n), density=density, rng=rng, dtype=np.float64)
    matrix = sp.csr_array((half + half.T) / max(1, n * density), dtype=dtype)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return SparseMatrix.from_scipy(matrix, symmetric=True)


def tensors(n, width, hops, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    kind = torch.float32 if dtype == np.float32 else torch.float64
    return (
        torch.randn(n, width, generator=generator, dtype=kind),
        torch.randn(n, width, generator=generator, dtype=kind),
        torch.randn(hops + 1, width, generator=generator, dtype=kind),
    )


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(0, 40),
    width=st.integers(0, 70),
    hops=st.integers(0, 6),
    density=st.floats(0, 0.5),
    basis=st.sampled_from(BASES),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    seed=st.integers(0, 1000),
)
def test_tiles_equal_hop_by_hop(n, width, hops, density, basis, dtype, index, seed):
    matrix = symmetric(n, density, dtype, index, seed)
    signal, other, scales = tensors(n, width, hops, dtype, seed)
    rows = torch.randint(0, n, (5,)) if n else None
    gathered = torch.randn(hops + 1, n if rows is None else 5, width, dtype=signal.dtype)

    def everything():
        return (
            weighted_sum(matrix, basis, signal, scales),
            *weighted_sum_adjoint(matrix, basis, signal, other, scales),
            gather_hops(matrix, basis, signal, hops, rows),
            scatter_hops(matrix, basis, gathered, rows),
        )

    tiled = everything()
    with use_backend("torch"):
        plain = everything()
    for mine, twin in zip(tiled, plain, strict=True):
        torch.testing.assert_close(mine, twin, **tolerance(dtype))


@pytest.mark.parametrize("basis", BASES)
def test_rows_of_a_single_tile_that_threads_share_have_the_same_bits(basis):
    n, width, hops = 9_000, 3, 24  # enough work for a second thread, in one tile
    matrix = symmetric(n, 4 / n, np.float32)
    signal, _, scales = tensors(n, width, hops, np.float32)
    rows = torch.tensor([8_999, 7, 7, 4_321])  # 7 twice
    before = get_num_threads()
    try:
        answers = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            hops_there = gather_hops(matrix, basis, signal, hops, rows)
            back = scatter_hops(matrix, basis, hops_there, rows)
            answers.append((weighted_sum(matrix, basis, signal, scales), hops_there, back))
    finally:
        set_num_threads(before)
    for answer in answers[1:]:
        for first, later in zip(answers[0], answer, strict=True):
            assert torch.equal(first, later)
    with use_backend("torch"):
        expected = gather_hops(matrix, basis, signal, hops, rows)
    torch.testing.assert_close(answers[0][1], expected, **tolerance(np.float32))


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_depend_neither_on_neighbours_nor_on_threads(basis, dtype):
    matrix = symmetric(900, 0.01, dtype)
    signal, other, scales = tensors(900, 75, 12, dtype)
    before = get_num_threads()
    try:
        answers = []
        for threads in (1, 2, 3):
            set_num_threads(threads)
            total = weighted_sum(matrix, basis, signal, scales)
            answers.append((total, *weighted_sum_adjoint(matrix, basis, signal, other, scales)))
    finally:
        set_num_threads(before)
    for answer in answers[1:]:
        for first, later in zip(answers[0], answer, strict=True):
            assert torch.equal(first, later)
    for column in (0, 33, 74):
        pick = slice(column, column + 1)
        alone = [value[:, pick].contiguous() for value in (signal, other, scales)]
        assert torch.equal(weighted_sum(matrix, basis, alone[0], alone[2]), answers[0][0][:, pick])
        to_signal, to_scales = weighted_sum_adjoint(matrix, basis, alone[0], alone[1], alone[2])
        assert torch.equal(to_signal, answers[0][1][:, pick])
        assert torch.equal(to_scales, answers[0][2][:, pick])


@pytest.mark.parametrize("basis", BASES)
def test_tiles_are_bitwise_the_single_products(basis):
    matrix = symmetric(200, 0.05, np.float32)
    signal, _, scales = tensors(200, 21, 7, np.float32)
    by_hops = accumulate(matrix, basis, lambda i: (signal, scales[i]), 7)
    assert torch.equal(weighted_sum(matrix, basis, signal, scales), by_hops)


def test_long_sums_are_precise():
    n = 50_000
    matrix = SparseMatrix.from_scipy(sp.eye_array(n, dtype=np.float32, format="csr"))
    ones = torch.full((n, 1), 0.1)
    _, dots = weighted_sum_adjoint(matrix, "monomial", ones, ones, torch.ones(3, 1))
    exact = n * float(np.float32(0.1)) ** 2
    np.testing.assert_allclose(dots.numpy(), exact, rtol=1e-5)
