"""The feature matrix X, sparse or dense, times weights, with dropout on the fly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.csr import NUMBERS, as_array, as_numbers
from hoplite.engine.backend import each_range, get_num_threads, native, uses_native
from hoplite.engine.dropout import Dropout, Mask
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import ConfigError, GraphError

LARGE = 1 << 20  # entries from which on it is worth counting zeros
FEW = 0.1  # share of nonzeros below which a product that skips the zeros is faster
BLOCK_COLUMNS = 256  # propagated at a time, so that a wide sparse X is never densified whole
NOTHING_DROPPED = (0, 0, 0, 1.0)  # a rule of the C++ core


def as_sparse_if_few(array: Any) -> Any:
    """``array``, as a CSR matrix if it is large, dense, and nearly all of it is 0.

    Bags of words come as dense arrays from other libraries; 1 % of Cora's is not 0.

    >>> as_sparse_if_few(np.eye(1024, dtype=np.float32)).nnz
    1024
    """
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.size < LARGE:
        return array
    return sp.csr_array(array) if np.count_nonzero(array) < FEW * array.size else array


class Features:
    """A constant n x d feature matrix; build it with :meth:`from_array`.

    It may be a selection of rows of a larger matrix (:meth:`rows`); dropout still goes by the
    original row numbers, so that a node is treated alike in both.

    >>> X = Features.from_array(np.eye(3, dtype=np.float32))
    >>> X.shape, X.is_sparse
    ((3, 3), False)
    >>> X.times(np.ones((3, 4), np.float32)).shape
    (3, 4)
    """

    def __init__(
        self, storage: SparseMatrix | np.ndarray, row_numbers: np.ndarray | None = None
    ) -> None:
        self._storage, self._row_numbers = storage, row_numbers
        self.shape: tuple[int, int] = (int(storage.shape[0]), int(storage.shape[1]))
        self.dtype = storage.dtype
        self.is_sparse = isinstance(storage, SparseMatrix)

    @classmethod
    def from_array(cls, array: Any) -> Features:
        """From a NumPy array or SciPy sparse matrix; memory is shared where possible."""
        if sp.issparse(array):
            return cls(SparseMatrix.from_scipy(array))
        values = as_array(array, "features")
        if values.ndim != 2:
            raise GraphError(f"features has shape {values.shape}; pass one row per node.")
        if values.dtype.kind not in NUMBERS:
            raise GraphError(f"features has type {values.dtype}; pass numbers.")
        numbers = as_numbers(values if values.dtype != bool else values.astype("f4"))
        return cls(np.ascontiguousarray(numbers))

    @property
    def nnz(self) -> int:
        """Stored elements: the nonzeros if sparse, all of them if dense."""
        store = self._storage
        return store.nnz if isinstance(store, SparseMatrix) else store.size

    def rows(self, index: np.ndarray | Sequence[int]) -> Features:
        """The given rows, in that order; dropout treats each as in the whole matrix."""
        chosen = np.array(index, np.int64)
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < self.shape[0]:
            raise GraphError(
                f"row indices go from {chosen.min()} to {chosen.max()} but must be between 0 and "
                f"{self.shape[0] - 1:,}."
            )
        numbers = chosen if self._row_numbers is None else self._row_numbers[chosen]
        store = self._storage
        if isinstance(store, SparseMatrix):
            part = sp.csr_array(store.to_scipy()[chosen])
            return Features(SparseMatrix.from_scipy(part), numbers)
        return Features(store[chosen], numbers)

    def times(
        self,
        theta: np.ndarray,
        dropout: Dropout | None = None,
        out: np.ndarray | None = None,
        whole: np.ndarray | None = None,
    ) -> np.ndarray:
        """X~ Theta: (d, m) -> (n, m), X~ with the entries and the nodes of ``dropout`` dropped.

            out[v, :] = sum_f  keep(v, f) / (1 - rate)  X[v, f]  Theta[f, :]

        The dropped matrix is never stored as a whole. ``whole`` receives X Theta, too: a sparse X
        is read once for both. Both may be some columns of a wider array.
        """
        self._check("theta", theta, self.shape[1])
        result = np.empty((self.shape[0], theta.shape[1]), self.dtype) if out is None else out
        mask = None if dropout is None else dropout.of_entries()
        if not self._multiply(False, theta, result, mask, whole):
            if whole is not None:
                self.times(theta, None, whole)

            def work(part: slice) -> None:
                result[part] = self._rows(part, mask) @ theta

            for _ in each_range(work, self.shape[0], self._per_row):
                pass
        if dropout is not None and dropout.of_nodes is not None:
            result *= self._row_factors(dropout.of_nodes)
        return result

    def transposed_times(self, signal: np.ndarray, dropout: Dropout | None = None) -> np.ndarray:
        """X~' times a signal: (n, m) -> (d, m), with what :meth:`times` drops."""
        self._check("signal", signal, self.shape[0])
        if dropout is not None and dropout.of_nodes is not None:
            signal = signal * self._row_factors(dropout.of_nodes)
        out = np.empty((self.shape[1], signal.shape[1]), self.dtype)
        mask = None if dropout is None else dropout.of_entries()
        if not self._multiply(True, signal, out, mask):
            out[...] = 0

            def work(part: slice) -> np.ndarray:
                return self._rows(part, mask).T @ signal[part]

            for total in each_range(work, self.shape[0], self._per_row):
                out += total
        return out

    def drop_outputs(self, signal: np.ndarray, dropout: Dropout | None) -> np.ndarray:
        """A signal (n, m) with its own entries dropped, in place; this is its own adjoint."""
        if dropout is not None and dropout.of_outputs is not None:
            whole = Features(np.ascontiguousarray(signal), self._row_numbers)
            signal[...] = whole._rows(slice(None), dropout.of_outputs)
        return signal

    def dense(self, dropout: Dropout | None = None) -> np.ndarray:
        """X~ as a dense n x d array (X itself if it is dense and nothing is dropped)."""
        rows = self._rows(slice(None), None if dropout is None else dropout.of_entries())
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        if dropout is None or dropout.of_nodes is None:
            return dense
        return dense * self._row_factors(dropout.of_nodes)

    def dense_columns(self, start: int, stop: int) -> np.ndarray:
        """Columns [start, stop) of X as a dense, contiguous array; nothing is dropped."""
        store = self._storage
        if isinstance(store, SparseMatrix):
            return store.to_scipy()[:, start:stop].toarray()
        return np.ascontiguousarray(store[:, start:stop])

    def column_blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """X a block of columns at a time, dense."""
        for start in range(0, self.shape[1], BLOCK_COLUMNS):
            stop = min(start + BLOCK_COLUMNS, self.shape[1])
            yield slice(start, stop), self.dense_columns(start, stop)

    def matrix(self) -> sp.csr_array | np.ndarray:
        """X as SciPy's or NumPy's matrix, not a copy."""
        store = self._storage
        return store.to_scipy() if isinstance(store, SparseMatrix) else store

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.arange(self.shape[0]) if self._row_numbers is None else self._row_numbers

    def _row_factors(self, mask: Mask) -> np.ndarray:
        """What each row is multiplied with, 0 or 1 / (1 - rate): (n, 1)."""
        return (mask.keeps(self._numbers) * mask.scale).astype(self.dtype)[:, None]

    def _multiply(
        self,
        transposed: bool,
        dense: np.ndarray,
        out: np.ndarray,
        mask: Mask | None,
        whole: np.ndarray | None = None,
    ) -> bool:
        """out = X~ dense, or X~' dense, by the C++ core; False if that does not compute it."""
        if not isinstance(self._storage, SparseMatrix) or not uses_native():
            return False
        rule = NOTHING_DROPPED if mask is None else mask.rule
        self._storage.handle.times(
            transposed, dense, out, self._row_numbers, *rule, whole, get_num_threads()
        )
        return True

    @property
    def _per_row(self) -> int:
        """Stored elements of a row, on average."""
        return self.nnz // max(self.shape[0], 1)

    def _rows(self, part: slice, mask: Mask | None) -> Any:
        """Some rows of X~, as they are stored."""
        rows: Any = self.matrix()[part]
        if mask is None:
            return rows
        numbers, d = self._numbers[part], self.shape[1]
        if self.is_sparse:
            elements = np.repeat(numbers, np.diff(rows.indptr)) * d + rows.indices
            values = rows.data * (mask.keeps(elements) * mask.scale).astype(self.dtype)
            return sp.csr_array((values, rows.indices, rows.indptr), rows.shape)
        if uses_native() and native is not None:
            out = np.empty_like(rows)
            native.drop_dense(rows, out, numbers, *mask.rule, get_num_threads())
            return out
        elements = numbers[:, None] * d + np.arange(d)
        return rows * (mask.keeps(elements) * mask.scale).astype(self.dtype)

    def _check(self, name: str, operand: np.ndarray, rows: int) -> None:
        if operand.ndim != 2 or operand.shape[0] != rows:
            raise GraphError(f"{name} has shape {operand.shape}; pass {rows:,} rows.")
        if operand.dtype != self.dtype:
            raise ConfigError(
                f"{name} is {operand.dtype} but X is {self.dtype}; convert one of them."
            )
