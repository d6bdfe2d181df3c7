"""S X and its fused forms: C++ core == torch == dense algebra, for every shape and type."""

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
from hoplite.propagation.spmm import SparseMatrix, matmul, spmm

BACKENDS = ["torch"] + ["native"] * backend.has_native()
needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-12}


def random_csr(n, m, density=0.2, dtype=np.float32, index=np.int32, seed=0):
    matrix = sp.random_array((n, m), density=density, format="csr", dtype=dtype, rng=seed)
    matrix.data[:] = np.random.default_rng(seed).standard_normal(matrix.nnz)
    return with_index_type(matrix, index)


def with_index_type(matrix, index):
    """SciPy narrows index arrays given to its constructor, but not assigned ones."""
    matrix.indices = matrix.indices.astype(index)
    matrix.indptr = matrix.indptr.astype(index)
    return matrix


def power_law(n, edges, dtype=np.float32, seed=0):
    """A few hubs hold most edges; some nodes have none."""
    rng = np.random.default_rng(seed)
    ends = np.minimum((n * rng.random((2, edges)) ** 4).astype(int), n - 1)
    matrix = sp.coo_array((np.ones(edges, dtype), tuple(ends)), shape=(n, n)).tocsr()
    matrix.sum_duplicates()
    return matrix


def operands(n, m, w, dtype, seed=0):
    g = torch.Generator().manual_seed(seed)
    X, Z, W = (torch.randn(rows, w, dtype=dtype, generator=g) for rows in (m, n, n))
    return X, Z, W, torch.randn(w, dtype=dtype, generator=g)


FORMS = {
    "plain": lambda X, Z, W, a: {},
    "scaled": lambda X, Z, W, a: {"scale": -0.5},
    "horner": lambda X, Z, W, a: {"Z": Z, "column_scale": a},
    "unit Z": lambda X, Z, W, a: {"Z": Z},
    "chebyshev": lambda X, Z, W, a: {"scale": 2.0, "W": W, "w_scale": -1.0},
    "clenshaw": lambda X, Z, W, a: (
        {"scale": 2.0, "Z": Z, "column_scale": a, "W": W, "w_scale": -1.0}
    ),
    "recurrence": lambda X, Z, W, a: (
        {"scale": 1.5, "Z": Z, "column_scale": a, "W": W, "w_scale": -0.5, "U": Z + W, "u_scale": 3}
    ),
}


def dense_answer(
    matrix, X, scale=1.0, Z=None, column_scale=None, W=None, w_scale=0.0, U=None, u_scale=0.0
):
    Y = scale * (torch.from_numpy(matrix.toarray()).to(X.dtype) @ X)
    if Z is not None:
        Y = Y + (Z if column_scale is None else Z * column_scale)
    if U is not None:
        Y = Y + u_scale * U
    return Y if W is None else Y + w_scale * W


def assert_close(got, wanted):
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_every_form_equals_dense_algebra(name, form, dtype, index):
    matrix = random_csr(37, 23, dtype=dtype, index=index)
    S = SparseMatrix.from_scipy(matrix)
    assert S.to_scipy().indices.dtype == index
    for w in (0, 1, 2, 3, 7, 8, 17, 64, 70, 130):
        X, Z, W, a = operands(37, 23, w, S.dtype)
        arguments = FORMS[form](X, Z, W, a)
        with use_backend(name):
            assert_close(spmm(S, X, **arguments), dense_answer(matrix, X, **arguments))


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_width_and_instruction_set(dtype):
    matrix = random_csr(19, 11, density=0.4, dtype=dtype)
    S = SparseMatrix.from_scipy(matrix)
    native = backend.native
    assert native is not None
    before = native.architecture()
    assert before == native.architectures()[-1]
    try:
        for architecture in native.architectures():
            native.set_architecture(architecture)
            for w in range(131):
                X, Z, W, a = operands(19, 11, w, S.dtype, seed=w)
                arguments = FORMS["recurrence"](X, Z, W, a)
                assert_close(spmm(S, X, **arguments), dense_answer(matrix, X, **arguments))
        with pytest.raises(ValueError, match="no kernels for 'abacus'"):
            native.set_architecture("abacus")
    finally:
        native.set_architecture(before)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_alone_has_the_same_bits_as_beside_others(dtype):
    S = SparseMatrix.from_scipy(power_law(300, 6000, dtype))
    for w in (2, 3, 7, 11, 16, 33, 63, 64, 65, 101, 130):
        X, Z, W, a = operands(300, 300, w, S.dtype)
        together = spmm(S, X, scale=2.0, Z=Z, column_scale=a, W=W, w_scale=-1.0)
        for j in range(w):
            one = slice(j, j + 1)
            x, z, v = (t[:, one].contiguous() for t in (X, Z, W))
            alone = spmm(S, x, scale=2.0, Z=z, column_scale=a[one], W=v, w_scale=-1.0)
            assert torch.equal(alone, together[:, one])


@needs_native
@pytest.mark.parametrize("degree", [5, 20])  # without and with packed tiles
def test_big_products_and_threads(degree):
    n, w = 20_000, 230
    matrix = power_law(n, degree * n)
    S = SparseMatrix.from_scipy(matrix)
    X, Z, W, a = operands(n, n, w, S.dtype)
    arguments = {"Z": Z, "column_scale": a, "W": W, "w_scale": 0.5}
    answers = []
    before = get_num_threads()
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            answers.append(spmm(S, X, **arguments))
    finally:
        set_num_threads(before)
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])
    exact = torch.from_numpy(matrix.astype(np.float64) @ X.double().numpy())
    wanted = exact + (Z * a).double() + 0.5 * W.double()
    torch.testing.assert_close(answers[0].double(), wanted, rtol=1e-4, atol=1e-3)
    some = [0, 63, 64, 229]
    assert torch.equal(spmm(S, X[:, some]), spmm(S, X)[:, some])


@pytest.mark.parametrize("name", BACKENDS)
def test_empty_things(name):
    with use_backend(name):
        for n, m in ((0, 0), (0, 5), (5, 0), (4, 3)):
            S = SparseMatrix.from_scipy(sp.csr_array((n, m), dtype=np.float32))
            for w in (0, 1, 9):
                Z = torch.ones(n, w)
                assert torch.equal(spmm(S, torch.ones(m, w)), torch.zeros(n, w))
                assert torch.equal(spmm(S, torch.ones(m, w), Z=Z), Z)
        isolated = sp.csr_array(([1.0], ([2], [0])), shape=(4, 4), dtype=np.float32)
        S = SparseMatrix.from_scipy(isolated)
        assert spmm(S, torch.full((4, 1), 3.0)).flatten().tolist() == [0, 0, 3, 0]


@pytest.mark.parametrize("name", BACKENDS)
def test_out_may_be_w_or_z_but_not_x(name):
    matrix = random_csr(50, 50)
    S = SparseMatrix.from_scipy(matrix)
    X, Z, W, a = operands(50, 50, 21, S.dtype)
    with use_backend(name):
        for target in (Z, W):
            target = target.clone()
            roles = {"Z": Z, "W": W}
            arguments = {
                key: target if torch.equal(value, target) else value for key, value in roles.items()
            }
            wanted = dense_answer(matrix, X, 2.0, Z, a, W, -1.0)
            got = spmm(S, X, scale=2.0, column_scale=a, w_scale=-1.0, out=target, **arguments)
            assert got is target
            assert_close(got, wanted)
        with pytest.raises(ConfigError, match="out is X itself"):
            spmm(S, X, out=X)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 12),
    m=st.integers(0, 12),
    w=st.integers(0, 20),
    density=st.floats(0, 1),
    dtype=st.sampled_from([np.float32, np.float64]),
    index=st.sampled_from([np.int32, np.int64]),
    form=st.sampled_from(sorted(FORMS)),
    seed=st.integers(0, 2**31),
)
def test_backends_agree_on_anything(n, m, w, density, dtype, index, form, seed):
    matrix = random_csr(n, m, density, dtype, index, seed)
    S = SparseMatrix.from_scipy(matrix)
    X, Z, W, a = operands(n, m, w, S.dtype, seed)
    arguments = FORMS[form](X, Z, W, a)
    wanted = dense_answer(matrix, X, **arguments)
    for name in ["torch"] + ["native"] * backend.has_native():
        with use_backend(name):
            assert_close(spmm(S, X, **arguments), wanted)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 1, 2)])
def test_matmul_is_differentiable(name, shape):
    S = SparseMatrix.from_scipy(random_csr(3, 4, density=0.6, dtype=np.float64))
    X = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    with use_backend(name):
        assert matmul(S, X).shape == (3, *shape[1:])
        assert torch.autograd.gradcheck(lambda x: matmul(S, x), X)
        assert torch.autograd.gradgradcheck(lambda x: matmul(S, x) ** 2, X)


def test_transpose():
    matrix = random_csr(6, 4)
    S = SparseMatrix.from_scipy(matrix)
    assert S.T.shape == (4, 6)
    assert S.T.T is S
    assert np.array_equal(S.T.to_scipy().toarray(), matrix.toarray().T)
    both = matrix @ matrix.T
    symmetric = SparseMatrix.from_scipy(both, symmetric=True)
    assert symmetric.T is symmetric
    assert repr(symmetric) == f"SparseMatrix(6 x 6, nnz={both.nnz}, float32, symmetric)"


def test_duplicates_are_summed_and_other_numbers_converted():
    twice = sp.csr_array((np.array([1, 2]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    S = SparseMatrix.from_scipy(twice)
    assert (S.nnz, S.dtype) == (1, torch.float32)
    assert spmm(S, torch.ones(1, 1)).item() == 3
    assert twice.nnz == 2  # the caller's matrix is as it was


def test_read_only_arrays_are_taken_without_a_copy():
    matrix = random_csr(5, 5)
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.setflags(write=False)
    S = SparseMatrix.from_scipy(matrix)
    assert np.shares_memory(S.to_scipy().data, matrix.data)
    X = torch.ones(5, 2)
    assert_close(spmm(S, X), dense_answer(matrix, X))
    assert_close(S.to_torch() @ X, dense_answer(matrix, X))


def test_errors_say_what_is_wrong():
    S = SparseMatrix.from_scipy(random_csr(4, 3))
    X = torch.ones(3, 2)
    with pytest.raises(GraphError, match=r"X has shape \(4, 2\); it must be 3 x 2"):
        spmm(S, torch.ones(4, 2))
    with pytest.raises(GraphError, match="X has shape"):
        spmm(S, torch.ones(3))
    with pytest.raises(ConfigError, match=r"X is torch.float64 but the matrix is torch.float32"):
        spmm(S, X.double())
    with pytest.raises(GraphError, match="Z has shape"):
        spmm(S, X, Z=X)
    with pytest.raises(ConfigError, match="Z is not contiguous"):
        spmm(S, X, Z=torch.ones(2, 4).T)
    with pytest.raises(ConfigError, match="without Z"):
        spmm(S, X, column_scale=torch.ones(2))
    with pytest.raises(GraphError, match="column_scale has shape"):
        spmm(S, X, Z=torch.ones(4, 2), column_scale=torch.ones(3))
    with pytest.raises(GraphError, match="cannot be symmetric"):
        SparseMatrix.from_scipy(random_csr(4, 3), symmetric=True)
    with pytest.raises(GraphError, match="pass a two-dimensional SciPy sparse one"):
        SparseMatrix.from_scipy(np.eye(3))
    with pytest.raises(GraphError, match="one row of X per column"):
        matmul(S, torch.ones(4, 2))


def test_damaged_matrices_are_refused():
    for part, value in (("indices", 7), ("indices", -1), ("indptr", 99)):
        matrix = random_csr(4, 3, density=0.9)
        getattr(matrix, part)[2] = value
        with pytest.raises(GraphError, match="the sparse matrix is damaged"):
            SparseMatrix.from_scipy(matrix)


@needs_native
def test_the_core_itself_refuses_damaged_arrays():
    assert backend.native is not None
    indptr, indices, values = np.array([0, 1, 2]), np.array([0, 1]), np.ones(2)
    make = backend.native.Csr
    make(indptr, indices, values, 2)
    with pytest.raises(ValueError, match="out of range"):
        make(indptr, indices, values, 1)
    with pytest.raises(ValueError, match="never decrease"):
        make(np.array([0, 3, 2]), indices, values, 2)
    with pytest.raises(ValueError, match="do not fit together"):
        make(indptr, indices, np.ones(3), 2)
    with pytest.raises(ValueError, match="values must be"):
        make(indptr, indices, np.ones(2, np.float16), 2)
    with pytest.raises(ValueError, match="indices must be"):
        make(indptr, indices.astype(np.int16), values, 2)
