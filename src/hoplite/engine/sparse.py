"""Sparse matrix times dense matrix, the one operation that every propagation is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.csr import as_csr
from hoplite.engine.backend import get_num_threads, native, uses_native
from hoplite.errors import ConfigError, GraphError


class SparseMatrix:
    """An immutable n x m CSR matrix of float32 or float64 numbers.

    Build it with :meth:`from_scipy`. The arrays are shared with the SciPy matrix where possible:
    do not change that matrix afterwards.

    >>> S = SparseMatrix.from_scipy(sp.csr_array([[0.0, 1.0], [2.0, 0.0]]))
    >>> S.shape, S.nnz, S.dtype
    ((2, 2), 2, dtype('float64'))
    >>> spmm(S, np.array([[1.0], [10.0]])).ravel().tolist()
    [10.0, 2.0]
    """

    __slots__ = ("_matrix", "_native", "_transposed", "dtype", "nnz", "shape", "symmetric")

    def __init__(self, matrix: sp.csr_array, symmetric: bool) -> None:
        self._matrix = matrix
        self._native: Any = None
        self._transposed: SparseMatrix | None = None
        self.shape: tuple[int, int] = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.nnz = int(matrix.nnz)
        self.dtype = np.dtype(matrix.dtype)
        self.symmetric = symmetric

    @classmethod
    def from_scipy(cls, matrix: Any, *, symmetric: bool = False) -> SparseMatrix:
        """From any SciPy sparse matrix; numbers other than float32 and float64 become float32.

        ``symmetric=True`` is the caller's promise that the matrix equals its transpose.
        """
        if not sp.issparse(matrix):
            raise GraphError(
                f"the matrix has type {type(matrix).__name__}; pass a two-dimensional SciPy sparse "
                "matrix."
            )
        csr = as_csr(matrix, "the sparse matrix")
        if csr.dtype not in (np.float32, np.float64):
            csr = csr.astype(np.float32)
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        if max(*csr.shape, csr.nnz) <= np.iinfo(np.int32).max:  # half as much to read
            indices, indptr = csr.indices.astype(np.int32, copy=False), csr.indptr.astype(np.int32)
            csr = sp.csr_array((csr.data, indices, indptr), csr.shape)
        return cls(csr, symmetric)

    @property
    def T(self) -> SparseMatrix:
        """The transpose: itself if symmetric, otherwise built once."""
        if self.symmetric:
            return self
        if self._transposed is None:
            transposed = SparseMatrix(sp.csr_array(self._matrix.T.tocsr()), False)
            transposed._transposed = self
            self._transposed = transposed
        return self._transposed

    def among(self, nodes: np.ndarray) -> SparseMatrix:
        """The rows and columns of ``nodes`` alone, in that order."""
        part = sp.csr_array(self._matrix[nodes][:, nodes])
        return SparseMatrix.from_scipy(part, symmetric=self.symmetric)

    @property
    def handle(self) -> Any:
        """The matrix of the C++ core (made and checked at the first use)."""
        if self._native is None and native is not None:
            m = self._matrix
            indptr = np.ascontiguousarray(m.indptr, dtype=np.int64)
            self._native = native.Csr(indptr, m.indices, m.data, self.shape[1])
        return self._native

    def to_scipy(self) -> sp.csr_array:
        """The SciPy matrix itself, not a copy."""
        return self._matrix

    def __repr__(self) -> str:
        n, m = self.shape
        symmetric = ", symmetric" if self.symmetric else ""
        return f"SparseMatrix({n} x {m}, nnz={self.nnz}, {self.dtype}{symmetric})"


def spmm(
    S: SparseMatrix,
    X: np.ndarray,
    *,
    scale: float = 1.0,
    Z: np.ndarray | None = None,
    column_scale: np.ndarray | None = None,
    W: np.ndarray | None = None,
    w_scale: float = 0.0,
    U: np.ndarray | None = None,
    u_scale: float = 0.0,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """``Y = scale * S X + Z diag(column_scale) + w_scale * W + u_scale * U``.

    S is n x m, X is m x w, Y, Z, W and U are n x w, column_scale has w entries (ones if not given).
    Z covers a Horner step ``Y = c Z + S H``, W and U the step ``Y = (a S + b) H - g W``, U = H, of
    any basis. ``out`` may be W or Z, but never X or U. Arrays must be of S's dtype and contiguous
    (X is made so if it is not).

    Each column's bits do not depend on the other columns or on the number of threads (with
    the C++ core).
    """
    X = np.ascontiguousarray(X)
    shape = (S.shape[0], X.shape[1] if X.ndim == 2 else 0)
    if Z is None and column_scale is not None:
        raise ConfigError("column_scale requires Z; pass both.")
    if Z is not None and column_scale is None:
        column_scale = np.ones(shape[1], S.dtype)
    out = np.empty(shape, S.dtype) if out is None else out
    check_operand("X", X, S.dtype, (S.shape[1], shape[1]))
    if column_scale is not None:
        check_operand("column_scale", column_scale, S.dtype, shape[1:])
    for name, value in (("Z", Z), ("W", W), ("U", U), ("out", out)):
        if value is not None:
            check_operand(name, value, S.dtype, shape)
    if uses_native():
        S.handle.spmm(X, out, scale, Z, column_scale, W, w_scale, U, u_scale, get_num_threads())
        return out
    Y = S.to_scipy() @ X * S.dtype.type(scale)
    if Z is not None and column_scale is not None:
        Y += Z * column_scale
    for value, factor in ((W, w_scale), (U, u_scale)):
        if value is not None:
            Y += S.dtype.type(factor) * value
    out[...] = Y
    return out


def check_operand(
    name: str, operand: Any, dtype: np.dtype, shape: tuple[int, ...], contiguous: bool = True
) -> None:
    """Raise a clear error unless ``operand`` is a (contiguous) array of this type and shape."""
    if not isinstance(operand, np.ndarray):
        raise GraphError(f"{name} has type {type(operand).__name__}; pass a NumPy array.")
    if operand.shape != shape:
        expected = " x ".join(str(size) for size in shape)
        raise GraphError(f"{name} has shape {operand.shape}; it must be {expected}.")
    if operand.dtype != dtype:
        raise ConfigError(
            f"{name} is {operand.dtype} but the matrix is {dtype}; convert one of them first."
        )
    if contiguous and not operand.flags.c_contiguous:
        raise ConfigError(f"{name} is not contiguous; pass np.ascontiguousarray({name}).")
