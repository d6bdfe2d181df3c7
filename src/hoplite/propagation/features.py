"""The feature matrix X, sparse or dense, times weights, with input dropout on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from hoplite.errors import ConfigError, GraphError
from hoplite.graph_checks import as_array
from hoplite.propagation.backend import get_num_threads, native, uses_native
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.spmm import SparseMatrix, as_tensor, csr_tensor, plain, torch_product
from hoplite.sparse_checks import NUMBERS, as_numbers

LARGE = 1 << 20  # entries from which it is worth counting zeros
FEW = 0.1  # share of other entries below which a product that skips the zeros is faster


def thinned(array: Any) -> Any:
    """``array``, as a CSR matrix if it is large, dense, and nearly all of it is 0.

    Words in papers come as a dense tensor from other libraries; 1 % of Cora's is not 0.

    >>> thinned(np.eye(1024, dtype=np.float32)).nnz, type(thinned(np.eye(3))).__name__
    (1024, 'ndarray')
    """
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.size < LARGE:
        return array
    return sp.csr_array(array) if np.count_nonzero(array) < FEW * array.size else array


class Features:
    """A constant n x d feature matrix; build it with :meth:`from_graph_array`.

    It may be a selection of rows of a larger matrix (:meth:`rows`); dropout still goes by the
    original row numbers, so that a node is treated alike in both.

    >>> X = Features.from_graph_array(np.eye(3, dtype=np.float32))
    >>> X.shape, X.is_sparse
    ((3, 3), False)
    >>> X.times(torch.ones(2, 3, 4)).shape
    torch.Size([3, 2, 4])
    """

    def __init__(self, storage: SparseMatrix | Tensor, row_numbers: Tensor | None = None) -> None:
        if isinstance(storage, Tensor):
            storage = plain(storage)
            if storage.dim() != 2:
                raise GraphError(
                    f"features has shape {tuple(storage.shape)}; pass one row per node."
                )
            if not storage.is_floating_point():
                raise GraphError(f"features is {storage.dtype}; pass a tensor of floats.")
        if row_numbers is not None:
            row_numbers = plain(row_numbers).to("cpu")
            if row_numbers.dtype != torch.int64 or row_numbers.shape != storage.shape[:1]:
                raise GraphError(
                    f"row_numbers is {row_numbers.dtype} of shape {tuple(row_numbers.shape)}; "
                    "pass one int64 number per row."
                )
        self._storage = storage
        self._row_numbers = row_numbers
        self._elements: dict[bool, Tensor] = {}
        self.shape: tuple[int, int] = (int(storage.shape[0]), int(storage.shape[1]))
        self.dtype = storage.dtype
        self.is_sparse = isinstance(storage, SparseMatrix)

    @classmethod
    def from_graph_array(cls, array: Any) -> Features:
        """From a NumPy array, tensor or SciPy sparse matrix; memory is shared where possible."""
        if sp.issparse(array):
            return cls(SparseMatrix.from_scipy(array))
        if isinstance(array, Tensor):
            return cls(array.detach())
        values = as_array(array, "features")
        if values.dtype.kind not in NUMBERS:
            raise GraphError(f"features has type {values.dtype}; pass numbers.")
        return cls(as_tensor(as_numbers(values if values.dtype != bool else values.astype("f4"))))

    @property
    def nnz(self) -> int:
        """Stored elements: the nonzeros if sparse, all of them if dense."""
        store = self._storage
        return store.nnz if isinstance(store, SparseMatrix) else store.numel()

    def largest(self) -> float:
        """The largest absolute value; 0 if there is none."""
        store = self._storage
        values = as_tensor(store.to_scipy().data) if isinstance(store, SparseMatrix) else store
        return max(abs(float(end)) for end in values.aminmax()) if values.numel() else 0.0

    def rows(self, index: Tensor | np.ndarray | Sequence[int]) -> Features:
        """The given rows, in that order; dropout treats each as in the whole matrix."""
        if not isinstance(index, Tensor):
            index = torch.from_numpy(np.array(index, dtype=np.int64))
        chosen = index.to("cpu", torch.int64).contiguous()
        if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < self.shape[0]:
            raise GraphError(
                f"row indices go from {int(chosen.min())} to {int(chosen.max())} but there are "
                f"{self.shape[0]:,} rows; count from 0."
            )
        numbers = chosen if self._row_numbers is None else self._row_numbers[chosen]
        store = self._storage
        if isinstance(store, SparseMatrix):
            part = sp.csr_array(store.to_scipy()[chosen.numpy()])
            return Features(SparseMatrix.from_scipy(part), numbers)
        return Features(store[chosen.to(store.device)], numbers)

    def times(self, theta: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Every run's drop(X) times its weights, differentiable in ``theta``.

            out[row, r, :] = sum_f  keep_r(row, f) / (1 - rate_r)  X[row, f]  theta[r, f, :]

        theta is [R, d, m], the result [n, R, m]. The dropped matrix is never stored; with the
        C++ core and sparse X, a run's bits do not depend on the runs beside it. Rows of nodes that
        are dropped are 0.
        """
        if theta.dim() != 3 or theta.shape[1] != self.shape[1]:
            raise GraphError(
                f"theta has shape {tuple(theta.shape)} but X has {self.shape[1]:,} columns; "
                "pass runs x columns x classes."
            )
        if theta.dtype != self.dtype:
            raise ConfigError(f"theta is {theta.dtype} but X is {self.dtype}; convert one of them.")
        if dropout is not None and dropout.runs != theta.shape[0]:
            raise ConfigError(
                f"dropout is for {dropout.runs} runs but theta holds {theta.shape[0]}; "
                "pass one rate and seed per run."
            )
        entries = dropout.layer(0) if dropout is not None and dropout.active else None
        found: Tensor = _Times.apply(theta, self, entries)  # pyright: ignore[reportAssignmentType]
        rows = None if dropout is None else dropout.of_nodes
        return found if rows is None else found * self._row_factors(rows).unsqueeze(2)

    def outputs(self, theta: Tensor, dropout: Dropout | None = None) -> Tensor:
        """As :meth:`times`, with each run's dropout of the result: what is propagated."""
        found = self.times(theta, dropout)
        dropped = None if dropout is None else dropout.of_outputs
        if dropped is None:
            return found
        signals = found.transpose(0, 1).contiguous()
        return drop_signals(signals, dropped, self._row_numbers).transpose(0, 1)

    def _row_factors(self, dropout: Dropout) -> Tensor:
        """What each run's rows are multiplied with, 0 or 1 / (1 - rate): [n, R]."""
        every = Features(torch.ones(self.shape[0], 1, dtype=self.dtype), self._row_numbers)
        return torch.cat([every.dense(dropout, run) for run in range(dropout.runs)], dim=1)

    def dense(self, dropout: Dropout | None = None, run: int = 0) -> Tensor:
        """X, or drop(X) of one run, as a dense n x d tensor (X itself if nothing is dropped)."""
        rows = None if dropout is None else dropout.of_nodes
        if dropout is not None and rows is not None:
            whole = self.dense(dropout.layer(0), run)
            return whole * self._row_factors(rows.of_run(run))
        store = self._storage
        if dropout is not None and int(dropout.rules[run, 2]) == 0:
            dropout = None
        if isinstance(store, SparseMatrix):
            values = as_tensor(store.to_scipy().data)
            if dropout is not None:
                values = values * dropout.mask(self.elements(), run) * dropout.scale(run)
            out = torch.zeros(self.shape, dtype=self.dtype)
            return out.index_put_(self._positions(), values)
        if dropout is None:
            return store
        if native is None or not uses_native(store):
            kept = dropout.mask(self.elements().to(store.device), run)
            return store * kept * dropout.scale(run)
        out = torch.empty_like(store)
        native.drop_dense(
            self.dtype == torch.float32,
            store.data_ptr(),
            out.data_ptr(),
            *self.shape,
            _address(self._row_numbers),
            *dropout.rules[run].tolist(),
            dropout.scale(run),
            get_num_threads(),
        )
        return out

    def dense_columns(self, start: int, stop: int) -> Tensor:
        """Columns [start, stop) of X as a dense, contiguous tensor; no dropout."""
        store = self._storage
        if isinstance(store, SparseMatrix):
            return torch.from_numpy(store.to_scipy()[:, start:stop].toarray())
        return store[:, start:stop].contiguous()

    def elements(self, transposed: bool = False) -> Tensor:
        """The numbers ``original row * d + column`` that dropout hashes.

        [nnz] in the order of the nonzeros of X (or of its transpose) if sparse, else [n, d].
        """
        if transposed not in self._elements:
            n, d = self.shape
            numbers = torch.arange(n) if self._row_numbers is None else self._row_numbers
            if isinstance(self._storage, SparseMatrix):
                row, column = self._positions(transposed)
                numbered = numbers[row] * d + column
            else:
                numbered = numbers[:, None] * d + torch.arange(d)
            if not self.is_sparse:
                return numbered  # eight bytes an element: too much to keep
            self._elements[transposed] = numbered
        return self._elements[transposed]

    def transposed_times(self, signal: Tensor, dropout: Dropout | None = None) -> Tensor:
        """Every run's drop(X)^T times its signal: (n, R, c) -> (R, d, c), without gradients."""
        rows = None if dropout is None else dropout.of_nodes
        if rows is not None:
            signal = signal * self._row_factors(rows).unsqueeze(2)
        entries = None if dropout is None else dropout.layer(0)
        return self._apply(signal, entries, transposed=True)

    def _positions(self, transposed: bool = False) -> tuple[Tensor, Tensor]:
        """Row and column of every nonzero of sparse X, in the order of X or of its transpose."""
        assert isinstance(self._storage, SparseMatrix)  # a caller's mistake, not an input's
        matrix = (self._storage.T if transposed else self._storage).to_scipy()
        outer = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        first, second = torch.from_numpy(outer), as_tensor(matrix.indices).to(torch.int64)
        return (second, first) if transposed else (first, second)

    def _apply(self, dense: Tensor, dropout: Dropout | None, transposed: bool) -> Tensor:
        """Forward [R, d, m] -> [n, R, m]; transposed [n, R, m] -> [R, d, m]."""
        store = self._storage
        if not isinstance(store, SparseMatrix):
            return self._dense_product(store, dense, dropout, transposed)
        oriented = store.T if transposed else store
        multiply = self._native_product if uses_native(dense) else self._torch_product
        return multiply(oriented, dense, dropout, transposed)

    def _native_product(
        self, matrix: SparseMatrix, dense: Tensor, dropout: Dropout | None, transposed: bool
    ) -> Tensor:
        n, d = self.shape
        runs, m = (dense.shape[1] if transposed else dense.shape[0]), dense.shape[2]
        if dropout is None:
            dropout = _nothing_dropped(runs)
        dense = plain(dense)
        across, along = dense.stride()[:2]
        out = dense.new_empty((runs, d, m) if transposed else (n, runs, m))
        rules, scales = dropout.rules, dropout.scales
        matrix.handle.dropout_spmm(
            transposed,
            dense.data_ptr(),
            *((across, along) if transposed else (along, across)),
            out.data_ptr(),
            runs,
            m,
            _address(self._row_numbers),
            rules.ctypes.data,
            scales.ctypes.data,
            get_num_threads(),
        )
        return out

    def _torch_product(
        self, matrix: SparseMatrix, dense: Tensor, dropout: Dropout | None, transposed: bool
    ) -> Tensor:
        sparse = matrix.to_torch(dense.device)
        if dropout is None:
            by_row = dense if transposed else dense.transpose(0, 1)
            product = torch_product(sparse, by_row.flatten(1).contiguous())
            out = product.view(len(product), *by_row.shape[1:])
            return out.transpose(0, 1).contiguous() if transposed else out
        elements = self.elements(transposed).to(dense.device)
        pieces = []
        for run in range(dropout.runs):
            values = sparse.values() * dropout.mask(elements, run) * dropout.scale(run)
            dropped = csr_tensor(sparse.crow_indices(), sparse.col_indices(), values, matrix.shape)
            pieces.append(torch_product(dropped, dense[:, run] if transposed else dense[run]))
        return torch.stack(pieces, dim=0 if transposed else 1)

    def _dense_product(
        self, store: Tensor, dense: Tensor, dropout: Dropout | None, transposed: bool
    ) -> Tensor:
        n, d = self.shape
        if dropout is None:
            if transposed:  # [d, n] times [n, R m]
                flat = store.T @ dense.reshape(n, dense.shape[1] * dense.shape[2])
                return flat.reshape(d, *dense.shape[1:]).transpose(0, 1).contiguous()
            flat = store @ dense.transpose(0, 1).reshape(d, dense.shape[0] * dense.shape[2])
            return flat.reshape(n, dense.shape[0], dense.shape[2])
        pieces = []
        for run in range(dropout.runs):
            dropped = self.dense(dropout, run)
            pieces.append(dropped.T @ dense[:, run] if transposed else dropped @ dense[run])
        return torch.stack(pieces, dim=0 if transposed else 1)


class _Times(torch.autograd.Function):
    """out[:, r] = drop_r(X) theta[r] and, backward, dtheta[r] = drop_r(X)^T dout[:, r].

    The masks of the forward pass are computed again, not stored.
    """

    @staticmethod
    def forward(ctx: Any, theta: Tensor, features: Features, dropout: Dropout | None) -> Tensor:
        ctx.features, ctx.dropout = features, dropout
        return features._apply(theta, dropout, transposed=False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.features._apply(gradients[0], ctx.dropout, transposed=True), None, None


@lru_cache(maxsize=64)
def _nothing_dropped(runs: int) -> Dropout:
    return Dropout((0.0,) * runs, (0,) * runs)


def _address(numbers: Tensor | None) -> int:
    return 0 if numbers is None else numbers.data_ptr()


def drop_signals(signals: Tensor, dropout: Dropout, numbers: Tensor | None = None) -> Tensor:
    """Each run's dropout of its own dense signal, (R, n, c), differentiable.

    ``numbers`` are those that the rows have among all, by which dropout goes.
    """
    return _DropSignals.apply(signals, dropout, numbers)


class _DropSignals(torch.autograd.Function):
    """Its own adjoint."""

    @staticmethod
    def forward(ctx: Any, signals: Tensor, dropout: Dropout, numbers: Tensor | None) -> Tensor:
        ctx.dropout, ctx.numbers = dropout, numbers
        return torch.stack(
            [Features(signal, numbers).dense(dropout, run) for run, signal in enumerate(signals)]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _DropSignals.apply(gradients[0].contiguous(), ctx.dropout, ctx.numbers), None, None
