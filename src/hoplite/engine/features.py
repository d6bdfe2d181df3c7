"""The feature matrix X, sparse or dense, times weights, with dropout on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.csr import NUMBERS, as_array, as_numbers
from hoplite.engine.backend import get_num_threads, native, uses_native
from hoplite.engine.dense import each_range
from hoplite.engine.dropout import Dropout, Mask
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import ConfigError, GraphError

LARGE = 1 << 20  # entries from which on it is worth counting zeros
FEW = 0.1  # share of nonzeros below which a product that skips the zeros is faster
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
                f"row indices go from {chosen.min()} to {chosen.max()} but there are "
                f"{self.shape[0]:,} rows; count from 0."
            )
        numbers = chosen if self._row_numbers is None else self._row_numbers[chosen]
        store = self._storage
        if isinstance(store, SparseMatrix):
            part = sp.csr_array(store.to_scipy()[chosen])
            return Features(SparseMatrix.from_scipy(part), numbers)
        return Features(store[chosen], numbers)

    def times(
        self, theta: np.ndarray, dropout: Dropout | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """X~ Theta: (d, m) -> (n, m), X~ with the entries and the nodes of ``dropout`` dropped.

            out[v, :] = sum_f  keep(v, f) / (1 - rate)  X[v, f]  Theta[f, :]

        The dropped matrix is never stored as a whole. ``out`` may be some columns of a wider array.
        """
        self._check("theta", theta, (self.shape[1],))
        if out is None:
            out = np.empty((self.shape[0], theta.shape[1]), self.dtype)
        self._multiply(theta, None if dropout is None else dropout.of_entries(), out, False)
        if dropout is not None and dropout.of_nodes is not None:
            out *= self._row_factors(dropout.of_nodes)
        return out

    def times_twice(self, theta: np.ndarray, dropout: Dropout, out: np.ndarray) -> np.ndarray:
        """[X~ Theta | X Theta] into ``out``, (n, 2 m); a sparse X is read once for both."""
        m = theta.shape[1]
        entries, store = dropout.of_entries(), self._storage
        if entries is None or not isinstance(store, SparseMatrix) or not uses_native():
            self.times(theta, dropout, out[:, :m])
            self.times(theta, None, out[:, m:])
            return out
        store.handle.times(
            False, theta, out[:, :m], self._row_numbers, *entries.rule, out[:, m:],
            get_num_threads(),
        )  # fmt: skip
        if dropout.of_nodes is not None:
            out[:, :m] *= self._row_factors(dropout.of_nodes)
        return out

    def transposed_times(self, signal: np.ndarray, dropout: Dropout | None = None) -> np.ndarray:
        """X~' times a signal: (n, m) -> (d, m), with what :meth:`times` drops."""
        self._check("signal", signal, (self.shape[0],))
        if dropout is not None and dropout.of_nodes is not None:
            signal = signal * self._row_factors(dropout.of_nodes)
        out = np.empty((self.shape[1], signal.shape[1]), self.dtype)
        self._multiply(signal, None if dropout is None else dropout.of_entries(), out, True)
        return out

    def drop_outputs(self, signal: np.ndarray, dropout: Dropout | None) -> np.ndarray:
        """A signal (n, m) with its own entries dropped, in place; this is its own adjoint."""
        if dropout is not None and dropout.of_outputs is not None:
            whole = Features(np.ascontiguousarray(signal), self._row_numbers)
            signal[...] = whole._dropped(dropout.of_outputs)
        return signal

    def dense(self, dropout: Dropout | None = None) -> np.ndarray:
        """X~ as a dense n x d array (X itself if it is dense and nothing is dropped)."""
        found = self._dropped(None if dropout is None else dropout.of_entries())
        if dropout is None or dropout.of_nodes is None:
            return found
        return found * self._row_factors(dropout.of_nodes)

    def dense_columns(self, start: int, stop: int) -> np.ndarray:
        """Columns [start, stop) of X as a dense, contiguous array; nothing is dropped."""
        store = self._storage
        if isinstance(store, SparseMatrix):
            return store.to_scipy()[:, start:stop].toarray()
        return np.ascontiguousarray(store[:, start:stop])

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

    def _dropped(self, mask: Mask | None) -> np.ndarray:
        store = self._storage
        if isinstance(store, SparseMatrix):
            matrix = store.to_scipy()
            if mask is not None:
                matrix = sp.csr_array(
                    (self._dropped_values(mask), matrix.indices, matrix.indptr), matrix.shape
                )
            return matrix.toarray()
        return store if mask is None else self._dropped_rows(mask, slice(0, self.shape[0]))

    def _dropped_rows(self, mask: Mask, rows: slice) -> np.ndarray:
        """Some rows of a dense X with entries dropped."""
        assert isinstance(self._storage, np.ndarray)
        part, numbers = self._storage[rows], self._row_numbers
        if numbers is None:
            numbers = np.arange(rows.start, rows.stop) if rows.start else None
        else:
            numbers = numbers[rows]
        if uses_native() and native is not None:
            out = np.empty_like(part)
            native.drop_dense(part, out, numbers, *mask.rule, get_num_threads())
            return out
        numbers = np.arange(len(part)) if numbers is None else numbers
        elements = numbers[:, None] * self.shape[1] + np.arange(self.shape[1])
        return part * (mask.keeps(elements) * mask.scale).astype(self.dtype)

    def _dropped_values(self, mask: Mask) -> np.ndarray:
        """The stored values of a sparse X with entries dropped, in stored order."""
        assert isinstance(self._storage, SparseMatrix)
        matrix = self._storage.to_scipy()
        rows = np.repeat(self._numbers, np.diff(matrix.indptr))
        kept = mask.keeps(rows * self.shape[1] + matrix.indices)
        return matrix.data * (kept * mask.scale).astype(self.dtype)

    def _multiply(
        self, dense: np.ndarray, mask: Mask | None, out: np.ndarray, transposed: bool
    ) -> None:
        """out = X~ dense, or X~' dense."""
        store = self._storage
        if not isinstance(store, SparseMatrix):
            self._multiply_dense(store, dense, mask, out, transposed)
        elif uses_native():
            rule = NOTHING_DROPPED if mask is None else mask.rule
            store.handle.times(
                transposed, dense, out, self._row_numbers, *rule, None, get_num_threads()
            )
        else:
            matrix = store.to_scipy()
            if mask is not None:
                values = self._dropped_values(mask)
                matrix = sp.csr_array((values, matrix.indices, matrix.indptr), matrix.shape)
            out[...] = (matrix.T if transposed else matrix) @ dense

    def _multiply_dense(
        self,
        store: np.ndarray,
        dense: np.ndarray,
        mask: Mask | None,
        out: np.ndarray,
        transposed: bool,
    ) -> None:
        def rows(part: slice) -> np.ndarray:
            return store[part] if mask is None else self._dropped_rows(mask, part)

        if transposed:
            out[...] = 0
            for total in each_range(lambda part: rows(part).T @ dense[part], *self.shape):
                out += total
            return

        def work(part: slice) -> None:
            np.matmul(rows(part), dense, out=out[part])

        for _ in each_range(work, *self.shape):
            pass

    def _check(self, name: str, given: np.ndarray, first: tuple[int]) -> None:
        if given.ndim != 2 or given.shape[:1] != first:
            raise GraphError(f"{name} has shape {given.shape}; pass {first[0]:,} rows.")
        if given.dtype != self.dtype:
            raise ConfigError(
                f"{name} is {given.dtype} but X is {self.dtype}; convert one of them."
            )
