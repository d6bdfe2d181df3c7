"""X times weights under dropout: sparse == dense storage, C++ core == NumPy == the definition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.engine import backend
from hoplite.engine.backend import use_backend, use_threads
from hoplite.engine.dropout import Dropout
from hoplite.engine.features import Features
from hoplite.engine.sparse import SparseMatrix

BACKENDS = ["numpy"] + ["native"] * backend.has_native()
needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")
STORAGES = {"sparse": sp.csr_array, "dense": np.asarray}
DROPOUTS = {
    "none": None,
    "entries": Dropout(0.5, 4, 6),
    "entries and nodes": Dropout(0.3, 4, 6, nodes=0.4),
}


def random_features(n, d, density=0.3, dtype=np.float64, seed=0):
    """Dense, with zeros, of both signs."""
    matrix = sp.random_array((n, d), density=density, rng=seed).toarray()
    return np.where(matrix, 2 * matrix - 1, 0).astype(dtype)


def dropped(X, dropout, numbers=None):
    """X~ by its definition, element by element of the masks, in float64."""
    n, d = X.shape
    numbers = np.arange(n) if numbers is None else numbers
    found = X.astype(np.float64)
    if dropout is not None and (mask := dropout.of_entries()) is not None:
        found = found * mask.keeps(numbers[:, None] * d + np.arange(d)) * mask.scale
    if dropout is not None and (mask := dropout.of_nodes) is not None:
        found = found * (mask.keeps(numbers) * mask.scale)[:, None]
    return found


def both_products(features, theta, signal, dropout):
    return features.times(theta, dropout), features.transposed_times(signal, dropout)


def assert_close(found, wanted):
    tolerance = 1e-5 if found.dtype == np.float32 else 1e-12
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_products_equal_the_definition(storage, dtype, dropout):
    X, chosen = random_features(31, 17, dtype=dtype), DROPOUTS[dropout]
    X[[0, 20]], X[:, [3, 16]] = 0, 0
    whole, rng = dropped(X, chosen), np.random.default_rng(1)
    features = Features.from_array(STORAGES[storage](X))
    for m in (1, 3, 7, 8, 70, 300):
        theta = rng.standard_normal((17, m)).astype(dtype)
        signal = rng.standard_normal((31, m)).astype(dtype)
        out, back = both_products(features, theta, signal, chosen)
        assert_close(out, whole @ theta)
        assert_close(back, whole.T @ signal)
        wide = np.full((31, 2 * m + 1), 9, dtype)  # both in columns of a wider array
        features.times(theta, chosen, wide[:, m : 2 * m], wide[:, :m])
        assert np.array_equal(wide[:, :m], features.times(theta))
        assert np.array_equal(wide[:, m : 2 * m], out)
        assert (wide[:, -1] == 9).all()
    assert_close(features.dense(chosen), whole)


@examples(60)
@given(
    n=st.integers(0, 10),
    d=st.integers(0, 10),
    m=st.integers(0, 11),
    density=st.floats(0, 1),
    rate=st.floats(0, 0.99),
    step=st.integers(0, 2**40),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**31),
)
def test_backends_and_storages_agree_on_anything(n, d, m, density, rate, step, dtype, seed):
    X, rng = random_features(n, d, density, dtype, seed), np.random.default_rng(seed)
    numbers = rng.integers(0, 2**40, n)
    theta = rng.standard_normal((d, m)).astype(dtype)
    signal = rng.standard_normal((n, m)).astype(dtype)
    dropout = Dropout(rate, seed, step, nodes=rate / 2)
    whole = dropped(X, dropout, numbers)
    for make in STORAGES.values():
        features = Features(Features.from_array(make(X))._storage, numbers)
        for name in BACKENDS:
            with use_backend(name):
                out, back = both_products(features, theta, signal, dropout)
            assert_close(out / 200, whole @ theta / 200)  # scales go up to 200
            assert_close(back / 200, whole.T @ signal / 200)


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("storage", STORAGES)
def test_selected_rows_are_dropped_as_in_the_whole(storage):
    whole = Features.from_array(STORAGES[storage](random_features(20, 9)))
    index, rng = np.array([3, 17, 0, 3, 11]), np.random.default_rng(0)
    theta, signal = rng.standard_normal((9, 4)), rng.standard_normal((5, 4))
    spread = np.zeros((20, 4))
    np.add.at(spread, index, signal)
    dropout = Dropout(0.5, 1, 3, nodes=0.2)
    out, back = both_products(whole.rows(index), theta, signal, dropout)
    everything, wanted = both_products(whole, theta, spread, dropout)
    assert_close(out, everything[index])
    assert_close(back, wanted)
    again = whole.rows(index).rows([4, 1])
    assert_close(again.times(theta, dropout), everything[[11, 17]])
    assert np.array_equal(again.dense(dropout), whole.dense(dropout)[[11, 17]])
    one, other = (f.drop_outputs(np.ones((len(f.dense()), 3)), Dropout(0, 1, outputs=0.5))
                  for f in (again, whole))  # fmt: skip
    assert np.array_equal(one, other[[11, 17]])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_bits_depend_neither_on_threads_nor_on_other_calls(monkeypatch, storage, dropout):
    """Slabs of columns, the last one narrow, over blocks and ranges of rows."""
    monkeypatch.setattr(backend, "RANGE_NUMBERS", 1 << 14)
    X = random_features(3000, 90, density=0.4, dtype=np.float32)
    numbers = np.random.default_rng(1).permutation(50_000)[:3000]
    features = Features(Features.from_array(STORAGES[storage](X))._storage, numbers)
    rng, chosen = np.random.default_rng(2), DROPOUTS[dropout]
    for m in (7, 387):
        theta = rng.standard_normal((90, m)).astype(np.float32)
        signal = rng.standard_normal((3000, m)).astype(np.float32)

        def work(threads, theta=theta, signal=signal):
            with use_threads(threads):
                return both_products(features, theta, signal, chosen)

        alone = work(1)
        with ThreadPoolExecutor(3) as pool:
            others = [work(2), work(8), *pool.map(work, (1, 2, 8, 2))]
        for other in others:
            assert np.array_equal(alone[0], other[0])
            assert np.array_equal(alone[1], other[1])
        np.testing.assert_allclose(alone[0], dropped(X, chosen, numbers) @ theta, atol=1e-3)


@needs_native
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_instruction_set(dtype, index):
    native, X = backend.native, random_features(150, 23, density=0.7, dtype=dtype)
    X[[0, 40, 149]], X[:, [0, 9, 22]] = 0, 0
    csr = sp.csr_array(X)
    csr.indices = csr.indices.astype(index)
    rng, dropout = np.random.default_rng(3), Dropout(0.4, 2, 4)
    before = native.architecture()
    try:
        for architecture in native.architectures():
            native.set_architecture(architecture)
            for factor in (1, 2_000_003):  # element numbers within and beyond 32 bits
                numbers = rng.permutation(150) * factor
                features = Features(SparseMatrix.from_scipy(csr), numbers)
                whole = dropped(X, dropout, numbers)
                for m in (1, 2, 3, 6, 7, 8, 16, 24, 70):
                    theta = rng.standard_normal((23, m)).astype(dtype)
                    signal = rng.standard_normal((150, m)).astype(dtype)
                    out, back = both_products(features, theta, signal, dropout)
                    assert_close(out, whole @ theta)
                    assert_close(back, whole.T @ signal)
    finally:
        native.set_architecture(before)
