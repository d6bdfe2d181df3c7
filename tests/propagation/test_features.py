"""X times weights under dropout: sparse == dense storage, C++ core == torch, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hoplite.errors import ConfigError, GraphError
from hoplite.propagation import backend
from hoplite.propagation.backend import get_num_threads, set_num_threads, use_backend
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation
from hoplite.propagation.features import Features
from hoplite.propagation.spmm import SparseMatrix

NAMES = ["torch"] + ["native"] * backend.has_native()
ARCHITECTURES = backend.native.architectures() if backend.native is not None else []
needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")


def random_features(n, d, density=0.3, dtype=np.float64, seed=0):
    return sp.random_array((n, d), density=density, format="csr", dtype=dtype, rng=seed)


def dense_answer(X, theta, dropout, numbers=None):
    """The definition, element by element of the mask."""
    X = torch.from_numpy(X.toarray())
    n, d = X.shape
    numbers = torch.arange(n) if numbers is None else torch.as_tensor(numbers)
    elements = numbers[:, None] * d + torch.arange(d)
    outputs = []
    for run in range(len(theta)):
        kept = X
        if dropout is not None:
            kept = X * dropout.mask(elements, run) * dropout.scale(run)
        outputs.append(kept.to(theta.dtype) @ theta[run])
    return torch.stack(outputs, dim=1)


def both_passes(features, theta, dropout, gradient):
    theta = theta.clone().requires_grad_()
    out = features.times(theta, dropout)
    out.backward(gradient)
    return out.detach(), theta.grad


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("storage", ["sparse", "dense"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rates", [None, (0.0, 0.0), (0.5, 0.0), (0.3, 0.8)])
def test_both_passes_equal_the_definition(name, storage, dtype, rates):
    X = random_features(31, 17, dtype=dtype)
    features = Features.from_graph_array(X if storage == "sparse" else X.toarray())
    dropout = None if rates is None else Dropout(rates, (4, 5), epoch=6)
    for m in (1, 3, 7, 8, 70, 300):
        theta = torch.randn(2, 17, m, dtype=features.dtype, requires_grad=True)
        gradient = torch.randn(31, 2, m, dtype=features.dtype)
        wanted = dense_answer(X, theta, dropout)
        wanted.backward(gradient)
        with use_backend(name):
            out, grad = both_passes(features, theta.detach(), dropout, gradient)
        tolerance = 1e-4 if dtype == np.float32 else 1e-12
        assert out.shape == (31, 2, m)
        torch.testing.assert_close(out, wanted.detach(), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(grad, theta.grad, rtol=tolerance, atol=tolerance)


@needs_native
def test_wide_products_in_several_blocks_and_threads():
    """Slabs of columns, the last one narrow, over blocks of rows that one thread or two take."""
    X = random_features(700, 90, density=0.4, seed=5)
    numbers = np.random.default_rng(1).permutation(5000)[:700]
    features = Features(SparseMatrix.from_scipy(X), torch.from_numpy(numbers))
    generator = torch.Generator().manual_seed(2)
    dropout = Dropout((0.7, 0.0), (4, 5), epoch=6)
    for m in (256, 387):
        theta = torch.randn(2, 90, m, dtype=torch.float64, generator=generator)
        gradient = torch.randn(700, 2, m, dtype=torch.float64, generator=generator)
        theta.requires_grad_()
        wanted = dense_answer(X, theta, dropout, numbers)
        wanted.backward(gradient)
        before, found = get_num_threads(), []
        for threads in (1, 2):
            set_num_threads(threads)
            try:
                found.append(both_passes(features, theta.detach(), dropout, gradient))
            finally:
                set_num_threads(before)
        for one, two in zip(*found, strict=True):
            assert torch.equal(one, two)
        torch.testing.assert_close(found[0][0], wanted.detach())
        torch.testing.assert_close(found[0][1], theta.grad)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 10),
    d=st.integers(0, 10),
    m=st.integers(0, 11),
    runs=st.integers(0, 9),
    density=st.floats(0, 1),
    rate=st.floats(0, 0.99),
    epoch=st.integers(0, 2**40),
    seed=st.integers(0, 2**31),
)
def test_backends_agree_on_anything(n, d, m, runs, density, rate, epoch, seed):
    X = random_features(n, d, density, seed=seed)
    g = torch.Generator().manual_seed(seed)
    theta = torch.randn(runs, d, m, dtype=torch.float64, generator=g)
    gradient = torch.randn(n, runs, m, dtype=torch.float64, generator=g)
    rates = tuple(rate if run % 2 == 0 else 0.0 for run in range(runs))
    dropout = Dropout(rates, tuple(range(runs)), epoch)
    answers = []
    for array in (X, X.toarray()):
        for name in NAMES:
            with use_backend(name):
                features = Features.from_graph_array(array)
                answers.append(both_passes(features, theta, dropout, gradient))
    for out, grad in answers[1:]:
        torch.testing.assert_close(out, answers[0][0], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(grad, answers[0][1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("storage", ["sparse", "dense"])
def test_gradcheck(name, storage):
    X = random_features(4, 3, density=0.6)
    features = Features.from_graph_array(X if storage == "sparse" else X.toarray())
    theta = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    with use_backend(name):
        for dropout in (None, Dropout((0.5, 0.2), (1, 2), 3)):
            assert torch.autograd.gradcheck(lambda t, d=dropout: features.times(t, d), theta)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("storage", ["sparse", "dense"])
def test_native_masks_are_exactly_the_torch_masks(dtype, storage):
    """With X of ones and identity weights the output shows the mask itself."""
    n, d = 60, 40
    ones = np.ones((n, d), dtype)
    features = Features.from_graph_array(sp.csr_array(ones) if storage == "sparse" else ones)
    # large row numbers: elements on both sides of 2^32 and far beyond
    features = Features(features._storage, torch.arange(n) * 7_000_001 + 2**26)
    dropout = Dropout((0.5, 0.1), (1, 2), 3)
    eye = torch.eye(d, dtype=features.dtype).expand(2, d, d).contiguous()
    elements = (torch.arange(n) * 7_000_001 + 2**26)[:, None] * d + torch.arange(d)
    assert int(elements.min()) < 2**32 < int(elements.max())
    with use_backend("native"):
        out = features.times(eye, dropout)
        for run in range(2):
            kept = dropout.mask(elements, run)
            assert torch.equal(out[:, run] != 0, kept)
            assert torch.equal(features.dense(dropout, run) != 0, kept)


@needs_native
def test_bits_depend_neither_on_batch_mates_nor_on_threads():
    X = random_features(3000, 500, density=0.05, dtype=np.float32)
    features = Features.from_graph_array(X)
    runs = 21
    theta, gradient = torch.randn(runs, 500, 7), torch.randn(3000, runs, 7)
    dropout = Dropout((0.5, 0.0, 0.3) * 7, tuple(range(runs)), 4)
    answers = []
    before = get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            answers.append(both_passes(features, theta, dropout, gradient))
    finally:
        set_num_threads(before)
    out, grad = answers[0]
    for others in answers[1:]:
        assert torch.equal(out, others[0])
        assert torch.equal(grad, others[1])
    for run in range(runs):
        alone = Dropout((dropout.rates[run],), (run,), 4)
        one = both_passes(features, theta[run : run + 1], alone, gradient[:, run : run + 1])
        assert torch.equal(one[0], out[:, run : run + 1])
        assert torch.equal(one[1], grad[run : run + 1])


def with_indices(features, index_dtype):
    """The same sparse features with indices of that type."""
    csr = features._storage.to_scipy()
    csr.indices = csr.indices.astype(index_dtype)
    return Features(SparseMatrix.from_scipy(csr), features._row_numbers)


@needs_native
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_run_alone_and_among_any_number_of_others(architecture, dtype, index_dtype):
    """Runs are computed in vectors if there are enough of them, else one by one: the same bits."""
    native = backend.native
    assert native is not None
    X = random_features(150, 23, density=0.7, dtype=dtype).toarray()
    X[[0, 40, 149]] = 0  # no nonzeros, nor in some columns
    X[:, [0, 9, 22]] = 0
    X[X > 0] -= 0.5
    whole = Features.from_graph_array(sp.csr_array(X))
    # element numbers within and, some of them, beyond 32 bits
    numberings = (None, torch.randperm(150), torch.randperm(150) * 2_000_003)
    rates = tuple((0.5, 0.0, 0.3, 0.9)[run % 4] for run in range(45))
    for case, m in enumerate((1, 2, 3, 6, 7, 8, 16, 24, 70)):
        numbers = numberings[case % 3]
        features = with_indices(Features(whole._storage, numbers), index_dtype)
        assert features._storage.to_scipy().indices.dtype == index_dtype
        theta = torch.randn(45, 23, m, dtype=features.dtype)
        gradient = torch.randn(150, 45, m, dtype=features.dtype)
        before = native.architecture()
        try:
            native.set_architecture(architecture)
            alone = [
                both_passes(
                    features,
                    theta[run : run + 1],
                    Dropout(rates[run : run + 1], (run,), 4),
                    gradient[:, run : run + 1],
                )
                for run in range(45)
            ]
            for runs in (2, 7, 8, 9, 16, 17, 45):
                dropout = Dropout(rates[:runs], tuple(range(runs)), 4)
                out, grad = both_passes(features, theta[:runs], dropout, gradient[:, :runs])
                assert torch.equal(out, torch.cat([one[0] for one in alone[:runs]], dim=1))
                assert torch.equal(grad, torch.cat([one[1] for one in alone[:runs]]))
        finally:
            native.set_architecture(before)
        tolerance = 1e-4 if dtype == np.float32 else 1e-12
        wanted = dense_answer(sp.csr_array(X), theta, Dropout(rates, tuple(range(45)), 4), numbers)
        torch.testing.assert_close(out, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("storage", ["sparse", "dense"])
def test_selected_rows_are_dropped_as_in_the_whole(name, storage):
    X = random_features(20, 9)
    whole = Features.from_graph_array(X if storage == "sparse" else X.toarray())
    index = np.array([3, 17, 0, 3, 11])
    theta = torch.randn(2, 9, 4, dtype=torch.float64)
    dropout = Dropout((0.5, 0.3), (1, 2), 3)
    gradient = torch.randn(5, 2, 4, dtype=torch.float64)
    spread = torch.zeros(20, 2, 4, dtype=torch.float64).index_add_(
        0, torch.from_numpy(index), gradient
    )
    with use_backend(name):
        out, grad = both_passes(whole.rows(index), theta, dropout, gradient)
        everything, wanted_grad = both_passes(whole, theta, dropout, spread)
        torch.testing.assert_close(out, everything[index])
        torch.testing.assert_close(grad, wanted_grad)
        again = whole.rows(index).rows(torch.tensor([4, 1]))
        torch.testing.assert_close(again.times(theta, dropout), everything[[11, 17]])
        assert torch.equal(again.dense(dropout, 1), whole.dense(dropout, 1)[[11, 17]])


@pytest.mark.parametrize("name", NAMES)
def test_dense_forms_are_the_same_for_both_storages(name):
    X = random_features(12, 8, dtype=np.float32)
    sparse, dense = Features.from_graph_array(X), Features.from_graph_array(X.toarray())
    dropout = Dropout((0.5,), (1,), 2)
    with use_backend(name):
        assert torch.equal(sparse.dense(), torch.from_numpy(X.toarray()))
        assert torch.equal(sparse.dense(), dense.dense())
        assert torch.equal(sparse.dense(dropout, 0), dense.dense(dropout, 0))
        assert torch.equal(sparse.dense_columns(2, 5), dense.dense_columns(2, 5))


def test_attributes_and_shared_memory():
    X = random_features(12, 8, dtype=np.float32)
    sparse = Features.from_graph_array(X)
    assert (sparse.shape, sparse.nnz, sparse.is_sparse) == ((12, 8), X.nnz, True)
    assert sparse.dtype == torch.float32
    array = X.toarray()
    array.setflags(write=False)
    dense = Features.from_graph_array(array)
    assert (dense.nnz, dense.is_sparse) == (96, False)
    assert np.shares_memory(dense.dense().numpy(), array)
    assert Features.from_graph_array(np.ones((2, 2), int)).dtype == torch.float32


def test_large_dense_features_of_zeros_are_multiplied_as_sparse_ones(cora):
    """As PyTorch Geometric gives them: the same storage, so the same bits; zeros are skipped."""
    dense = cora.with_features(cora.features.toarray())
    found, own = Propagation(dense, hops=1).features, Propagation(cora, hops=1).features
    assert found.nnz == own.nnz < 0.02 * found.shape[0] * found.shape[1]
    theta, dropout = torch.randn(2, cora.num_features, 3), Dropout((0.5, 0.2), (1, 2))
    assert torch.equal(found.times(theta, dropout), own.times(theta, dropout))
    full = cora.with_features(cora.features.toarray() + np.float32(1))
    assert not Propagation(full, hops=1).features.is_sparse
    few = cora.with_features(cora.features.toarray()[:, :300])  # not worth it
    assert not Propagation(few, hops=1).features.is_sparse


def test_errors_say_what_is_wrong():
    X = Features.from_graph_array(random_features(4, 3))
    theta = torch.ones(1, 3, 2, dtype=torch.float64)
    with pytest.raises(GraphError, match="X has 3 columns"):
        X.times(torch.ones(1, 4, 2, dtype=torch.float64))
    with pytest.raises(ConfigError, match=r"theta is torch\.float32"):
        X.times(theta.float())
    with pytest.raises(ConfigError, match="dropout is for 2 runs but theta holds 1"):
        X.times(theta, Dropout((0.5, 0.5), (1, 2)))
    with pytest.raises(GraphError, match="row indices go from 0 to 4"):
        X.rows([0, 4])
    with pytest.raises(GraphError, match="one row per node"):
        Features.from_graph_array(np.ones(3))
