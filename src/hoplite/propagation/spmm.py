"""Sparse matrix times dense matrix, the one operation that every propagation is made of."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.errors import ConfigError, GraphError
from hoplite.propagation.backend import get_num_threads, native, uses_native
from hoplite.sparse_checks import as_csr


def as_tensor(array: np.ndarray) -> Tensor:
    """A tensor on the array's own memory; Hoplite only reads from it.

    A graph's arrays are read-only, of which torch warns, since its tensors could be written to.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A torch CSR tensor without torch's notice that these are in beta state."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape)


class SparseMatrix:
    """An immutable n x m CSR matrix of float32 or float64 numbers.

    Build it with :meth:`from_scipy`. The arrays are shared with the SciPy matrix where possible:
    do not change that matrix afterwards.

    >>> S = SparseMatrix.from_scipy(sp.csr_array([[0.0, 1.0], [2.0, 0.0]]))
    >>> S.shape, S.nnz, S.dtype
    ((2, 2), 2, torch.float64)
    >>> spmm(S, torch.tensor([[1.0], [10.0]], dtype=torch.float64)).flatten().tolist()
    [10.0, 2.0]
    """

    __slots__ = (
        "_indptr",
        "_matrix",
        "_native",
        "_torch",
        "_transposed",
        "dtype",
        "nnz",
        "shape",
        "symmetric",
    )

    def __init__(self, matrix: sp.csr_array, symmetric: bool) -> None:
        self._matrix = matrix
        self._indptr = np.ascontiguousarray(matrix.indptr, dtype=np.int64)
        self._native: Any = None
        self._torch: dict[torch.device, Tensor] = {}
        self._transposed: SparseMatrix | None = None
        self.shape: tuple[int, int] = (int(matrix.shape[0]), int(matrix.shape[1]))
        self.nnz = int(matrix.nnz)
        self.dtype = torch.float32 if matrix.dtype == np.float32 else torch.float64
        self.symmetric = symmetric

    @classmethod
    def from_scipy(cls, matrix: Any, *, symmetric: bool = False) -> SparseMatrix:
        """From any SciPy sparse matrix; numbers other than float32 and float64 become float32.

        ``symmetric=True`` is the caller's word that the matrix equals its transpose.
        """
        if not sp.issparse(matrix):
            raise GraphError(
                f"the matrix is a {type(matrix).__name__}; pass a two-dimensional SciPy sparse one."
            )
        csr = as_csr(matrix, "the sparse matrix")
        if symmetric and csr.shape[0] != csr.shape[1]:
            raise GraphError(
                f"the matrix has shape {csr.shape}, so it cannot be symmetric; "
                "leave symmetric=False."
            )
        if csr.dtype not in (np.float32, np.float64):
            csr = csr.astype(np.float32)
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        return cls(csr, symmetric)

    @property
    def T(self) -> SparseMatrix:
        """The transpose: itself if symmetric, otherwise built once."""
        if self.symmetric:
            return self
        if self._transposed is None:
            self._transposed = SparseMatrix(sp.csr_array(self._matrix.T.tocsr()), False)
            self._transposed._transposed = self
        return self._transposed

    def among(self, nodes: np.ndarray) -> SparseMatrix:
        """The rows and columns of ``nodes`` alone, in that order."""
        some = sp.csr_array(self._matrix[nodes][:, nodes])
        return SparseMatrix.from_scipy(some, symmetric=self.symmetric)

    @property
    def handle(self) -> Any:
        """The matrix of the C++ core (made and checked at the first use)."""
        if self._native is None and native is not None:
            m = self._matrix
            self._native = native.Csr(self._indptr, m.indices, m.data, self.shape[1])
        return self._native

    def to_scipy(self) -> sp.csr_array:
        """The SciPy matrix itself, not a copy."""
        return self._matrix

    def to_torch(self, device: torch.device | str = "cpu") -> Tensor:
        """As a torch CSR tensor (made once per device)."""
        device = torch.device(device)
        if device not in self._torch:
            indices = as_tensor(self._matrix.indices)
            # torch wants both index arrays of one type; the short one gives way if it can
            if self.nnz > torch.iinfo(indices.dtype).max:
                indices = indices.to(torch.int64)
            indptr = as_tensor(self._indptr).to(indices.dtype)
            values = as_tensor(self._matrix.data)
            self._torch[device] = csr_tensor(indptr, indices, values, self.shape).to(device)
        return self._torch[device]

    def __repr__(self) -> str:
        n, m = self.shape
        kind = ", symmetric" if self.symmetric else ""
        return f"SparseMatrix({n} x {m}, nnz={self.nnz}, {str(self.dtype)[6:]}{kind})"


def spmm(
    S: SparseMatrix,
    X: Tensor,
    *,
    scale: float = 1.0,
    Z: Tensor | None = None,
    column_scale: Tensor | None = None,
    W: Tensor | None = None,
    w_scale: float = 0.0,
    U: Tensor | None = None,
    u_scale: float = 0.0,
    out: Tensor | None = None,
) -> Tensor:
    """``Y = scale * S X + Z diag(column_scale) + w_scale * W + u_scale * U``, without gradients.

    S is n x m, X is m x w, Y, Z, W and U are n x w, column_scale has w entries (ones if not given).
    Z covers a Horner step ``Y = c Z + S H``, W and U the step ``Y = (a S + b) H - g W``, U = H, of
    any basis. ``out`` may be W or Z, but never X or U. Tensors must be of S's dtype and on one
    device, dense and contiguous (X is made so if it is not).

    Each column's bits do not depend on the columns beside it or on the number of threads (with
    the C++ core).
    """
    X = plain(X)
    rows = (S.shape[0], X.shape[1] if X.dim() == 2 else 0)
    check_operand("X", X, X, S.dtype, (S.shape[1], rows[1]))
    if Z is not None:
        check_operand("Z", Z, X, S.dtype, rows)
        if column_scale is None:
            column_scale = X.new_ones(rows[1])
        check_operand("column_scale", column_scale, X, S.dtype, rows[1:])
    elif column_scale is not None:
        raise ConfigError("column_scale was given without Z, which it multiplies; pass both.")
    if W is not None:
        check_operand("W", W, X, S.dtype, rows)
    if U is not None:
        check_operand("U", U, X, S.dtype, rows)
    if out is None:
        out = torch.empty(rows, dtype=S.dtype, device=X.device)
    else:
        check_operand("out", out, X, S.dtype, rows)
        _check_apart(out, {"X": X, "column_scale": column_scale, "U": U}, {"Z": Z, "W": W})
    if uses_native(X):
        S.handle.spmm(
            X.data_ptr(),
            out.data_ptr(),
            rows[1],
            scale,
            0 if Z is None else Z.data_ptr(),
            0 if column_scale is None else column_scale.data_ptr(),
            0 if W is None else W.data_ptr(),
            w_scale,
            0 if U is None else U.data_ptr(),
            u_scale,
            get_num_threads(),
        )
        return out
    with torch.no_grad():
        Y = torch_product(S.to_torch(X.device), X)
        if scale != 1.0:
            Y *= scale
        if Z is not None and column_scale is not None:
            Y.addcmul_(Z, column_scale)
        if W is not None:
            Y.add_(W, alpha=w_scale)
        if U is not None:
            Y.add_(U, alpha=u_scale)
        return out.copy_(Y)


def torch_product(sparse: Tensor, dense: Tensor) -> Tensor:
    """``sparse @ dense`` in torch, which refuses some empty operands."""
    if min(*sparse.shape, *dense.shape) == 0 or sparse.values().numel() == 0:
        return dense.new_zeros(sparse.shape[0], dense.shape[1])
    return sparse @ dense


class _Product(torch.autograd.Function):
    """Y = S X with dX = S^T dY."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        return spmm(matrix, signal)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _Product.apply(gradients[0], ctx.matrix.T), None


def matmul(S: SparseMatrix, X: Tensor) -> Tensor:
    """``S @ X`` for X of shape (m,), (m, w) or (m, ...), differentiable in X (repeatedly)."""
    if X.dim() == 0 or X.shape[0] != S.shape[1]:
        raise GraphError(
            f"X has shape {tuple(X.shape)} but S has {S.shape[1]:,} columns; "
            "pass one row of X per column of S."
        )
    flat = _Product.apply(X.reshape(X.shape[0], math.prod(X.shape[1:])), S)
    return flat.reshape(S.shape[0], *X.shape[1:])  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def plain(given: Tensor) -> Tensor:
    """The numbers of a tensor one after the other in memory, as the C++ core reads them."""
    if given.layout != torch.strided:
        raise ConfigError(f"a tensor is stored as {given.layout}; pass it dense, .to_dense().")
    return given.contiguous().resolve_neg()


def check_operand(
    name: str, given: Tensor, X: Tensor, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """Raise a clear error unless ``given`` is a plain tensor of this kind and shape."""
    if tuple(given.shape) != shape:
        wanted = " x ".join(str(size) for size in shape)
        raise GraphError(f"{name} has shape {tuple(given.shape)}; it must be {wanted}.")
    if given.dtype != dtype:
        raise ConfigError(
            f"{name} is {given.dtype} but the matrix is {dtype}; convert one of them first."
        )
    if given.device != X.device:
        raise ConfigError(f"{name} is on {given.device} but X is on {X.device}; move one of them.")
    if given.layout != torch.strided or not given.is_contiguous() or given.is_neg():
        raise ConfigError(f"{name} is not contiguous; pass {name}.contiguous().")


def _check_apart(
    out: Tensor, others: dict[str, Tensor | None], same: dict[str, Tensor | None]
) -> None:
    """``out`` shares no memory with ``others``, and with ``same`` none or all of it."""
    start, stop = _span(out)
    for name, tensor in (others | same).items():
        if tensor is None:
            continue
        first, last = _span(tensor)
        if (first, last) == (start, stop) and name in same:
            continue
        if max(first, start) < min(last, stop):
            what = f"{name} itself" if first == start else f"a part of the memory of {name}"
            raise ConfigError(
                f"out is {what}, which is still read while out is written; pass another out."
            )


def _span(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()
