"""S X and its fused forms: C++ core == NumPy == dense algebra, for every shape and type."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.engine import backend
from hoplite.engine.backend import use_backend, use_threads
from hoplite.engine.sparse import SparseMatrix, spmm

BACKENDS = ["numpy"] + ["native"] * backend.has_native()
needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")
TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}


def random_csr(n, m, density=0.2, dtype=np.float32, index=np.int32, seed=0):
    matrix = sp.random_array((n, m), density=density, format="csr", dtype=dtype, rng=seed)
    matrix.data[:] = np.random.default_rng(seed).standard_normal(matrix.nnz)
    # SciPy narrows index arrays given to its constructor, but not assigned ones
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    return matrix


def power_law(n, edges, dtype=np.float32, seed=0):
    """A few hubs hold most edges; some nodes have none."""
    rng = np.random.default_rng(seed)
    ends = np.minimum((n * rng.random((2, edges)) ** 4).astype(int), n - 1)
    matrix = sp.coo_array((np.ones(edges, dtype), tuple(ends)), shape=(n, n)).tocsr()
    matrix.sum_duplicates()
    return matrix


def operands(n, m, w, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X, Z, W = (rng.standard_normal((rows, w)).astype(dtype) for rows in (m, n, n))
    return X, Z, W, rng.standard_normal(w).astype(dtype)


FORMS = {
    "plain": lambda Z, W, a: {},
    "scaled": lambda Z, W, a: {"scale": -0.5},
    "horner": lambda Z, W, a: {"Z": Z, "column_scale": a},
    "unit Z": lambda Z, W, a: {"Z": Z},
    "W without a factor": lambda Z, W, a: {"W": W},
    "chebyshev": lambda Z, W, a: {"scale": 2.0, "W": W, "w_scale": -1.0},
    "clenshaw": lambda Z, W, a: (
        {"scale": 2.0, "Z": Z, "column_scale": a, "W": W, "w_scale": -1.0}
    ),
    "recurrence": lambda Z, W, a: (
        {"scale": 1.5, "Z": Z, "column_scale": a, "W": W, "w_scale": -0.5, "U": Z + W, "u_scale": 3}
    ),
}


def dense_answer(
    matrix, X, scale=1.0, Z=None, column_scale=None, W=None, w_scale=0.0, U=None, u_scale=0.0
):
    """In float64."""
    Y = scale * (matrix.toarray().astype(np.float64) @ X)
    if Z is not None:
        Y += Z if column_scale is None else Z * column_scale
    if U is not None:
        Y += u_scale * U
    return Y if W is None else Y + w_scale * W


def assert_close(found, wanted):
    tolerance = TOLERANCE[found.dtype]
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@examples(60)
@given(
    n=st.integers(0, 12),
    m=st.integers(0, 12),
    w=st.integers(0, 20) | st.sampled_from([64, 70, 130]),
    density=st.floats(0, 1),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    form=st.sampled_from(sorted(FORMS)),
    seed=st.integers(0, 2**31),
)
def test_backends_agree_on_anything(n, m, w, density, dtype, index, form, seed):
    matrix = random_csr(n, m, density, dtype, index, seed)
    S = SparseMatrix(matrix, symmetric=False)
    X, *others = operands(n, m, w, dtype, seed)
    arguments = FORMS[form](*others)
    wanted = dense_answer(matrix, X, **arguments)
    for name in BACKENDS:
        with use_backend(name):
            assert_close(spmm(S, X, **arguments), wanted)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_width_and_instruction_set(dtype):
    matrix = random_csr(19, 11, density=0.4, dtype=dtype)
    S, native = SparseMatrix.from_scipy(matrix), backend.native
    before = native.architecture()
    assert before == native.architectures()[-1]
    try:
        for architecture in native.architectures():
            native.set_architecture(architecture)
            for w in range(131):
                X, *others = operands(19, 11, w, dtype, seed=w)
                arguments = FORMS["recurrence"](*others)
                assert_close(spmm(S, X, **arguments), dense_answer(matrix, X, **arguments))
        with pytest.raises(ValueError, match="no kernels for 'abacus'"):
            native.set_architecture("abacus")
    finally:
        native.set_architecture(before)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_alone_has_the_same_bits_as_beside_others(dtype):
    S = SparseMatrix.from_scipy(power_law(300, 6000, dtype))
    for w in (2, 3, 7, 16, 33, 65, 130):
        X, Z, W, a = operands(300, 300, w, dtype)
        together = spmm(S, X, scale=2.0, Z=Z, column_scale=a, W=W, w_scale=-1.0)
        for j in range(w):
            x, z, v = (np.ascontiguousarray(array[:, j : j + 1]) for array in (X, Z, W))
            alone = spmm(S, x, scale=2.0, Z=z, column_scale=a[j : j + 1], W=v, w_scale=-1.0)
            assert np.array_equal(alone[:, 0], together[:, j])


@needs_native
@pytest.mark.parametrize("degree", [5, 20])  # without and with packed tiles
def test_large_products_have_the_same_bits_on_any_number_of_threads(degree):
    n, w = 20_000, 230
    matrix = power_law(n, degree * n)
    S = SparseMatrix.from_scipy(matrix)
    X, Z, W, a = operands(n, n, w, S.dtype)
    answers = []
    for threads in (1, 2, 8):
        with use_threads(threads):
            answers.append(spmm(S, X, Z=Z, column_scale=a, W=W, w_scale=0.5))
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])
    wanted = matrix.astype(np.float64) @ X.astype(np.float64) + Z * a + 0.5 * W
    np.testing.assert_allclose(answers[0], wanted, rtol=1e-4, atol=1e-3)
    some = [0, 63, 64, 229]
    assert np.array_equal(spmm(S, X[:, some]), spmm(S, X)[:, some])


@pytest.mark.usefixtures("each_backend")
def test_out_may_be_w_or_z():
    matrix = random_csr(50, 50)
    S = SparseMatrix.from_scipy(matrix)
    X, Z, W, a = operands(50, 50, 21, S.dtype)
    wanted = dense_answer(matrix, X, 2.0, Z, a, W, -1.0)
    memory = np.zeros(3 * 50 * 21, np.float32)

    def at(start):
        return memory[start : start + 50 * 21].reshape(50, 21)

    for role in ("Z", "W"):
        arrays = {"Z": Z, "W": W} | {role: {"Z": Z, "W": W}[role].copy()}
        out = arrays[role]
        found = spmm(S, X, scale=2.0, column_scale=a, w_scale=-1.0, out=out, **arrays)
        assert found is out
        assert_close(found, wanted)
    memory[: 50 * 21] = X.ravel()
    assert np.array_equal(spmm(S, at(0), out=at(50 * 21)), spmm(S, X))  # side by side
