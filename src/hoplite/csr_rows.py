"""A CSR matrix a range of rows at a time: from memory or from files, with the same four methods.

Its digest, and that of dense rows, do not depend on where and in which pieces they are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from hoplite.array_files import Closing, NpyRows, growing_npy
from hoplite.sparse_checks import check_csr

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.optional_deps import sparse as sp

TYPES = {
    "indptr": (np.int64,),
    "indices": (np.int32, np.int64),
    "values": (np.float32, np.float64),
}
CSR_ARRAYS = tuple(TYPES)
MOST_ENTRIES = 2**31 - 1  # that 32 bits can count
PIECE = 1 << 20  # entries hashed at a time
MOST_ROWS = 1 << 20  # in a range of rows, however few entries they have
NEAR = 1 << 10  # rows between two wanted ones that are read rather than left out


class CsrPiece(NamedTuple):
    """Some rows of a CSR matrix; ``indptr`` starts at 0."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    def to_scipy(self, columns: int) -> sp.csr_array:
        """As a SciPy matrix on the same memory, as long as there are fewer than 2^31 entries."""
        shape, indptr = (len(self.indptr) - 1, columns), self.indptr
        if len(self.indices) < MOST_ENTRIES:  # SciPy has one type for both, and copies otherwise
            indptr = indptr.astype(self.indices.dtype, copy=False)
        return sp.csr_array((self.values, self.indices, indptr), shape=shape)


class CsrRows(Protocol):
    """What a reader of rows offers."""

    @property
    def rows(self) -> int: ...
    @property
    def entries(self) -> int: ...
    def indptr(self, start: int, stop: int) -> np.ndarray: ...
    def read(self, start: int, stop: int) -> CsrPiece: ...


class CsrMemory:
    """The rows of a SciPy matrix."""

    def __init__(self, matrix: sp.csr_array) -> None:
        self._matrix = matrix
        self.rows, self.entries = int(matrix.shape[0]), int(matrix.nnz)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start`` to ``stop`` (excluded) begin, and where the last of them ends."""
        return self._matrix.indptr[start : stop + 1].astype(np.int64)

    def read(self, start: int, stop: int) -> CsrPiece:
        indptr = self.indptr(start, stop)
        part = slice(indptr[0], indptr[-1])
        return CsrPiece(indptr - indptr[0], self._matrix.indices[part], self._matrix.data[part])


class CsrFiles(Closing):
    """The rows of a square matrix in ``indptr.npy``, ``indices.npy`` and ``values.npy``.

    ``ValueError`` or ``OSError`` if they are not there or do not fit together. Every range of rows
    is checked when it is read, since what computes with it trusts it; if it is damaged, or cannot
    be read, ``damaged`` turns what was wrong into the error that is raised.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        damaged: Callable[[Exception], Exception] = lambda error: ValueError(str(error)),
    ) -> None:
        self._damaged = damaged
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(NpyRows(Path(folder) / f"{part}.npy")) for part in CSR_ARRAYS
            ]
            self._indptr, self._indices, self._values = files
            for part, file in zip(CSR_ARRAYS, files, strict=True):
                if len(file.shape) != 1 or file.dtype not in TYPES[part]:
                    raise ValueError(f"{part}.npy has type {file.dtype} and shape {file.shape}")
            self.rows, self.entries = len(self._indptr) - 1, len(self._indices)
            last = self._indptr.read(self.rows, self.rows + 1) if self.rows >= 0 else [-1]
            if last[0] != self.entries or len(self._values) != self.entries:
                raise ValueError("indptr, indices and values do not fit together")
            self._open = stack.pop_all()
        weakref.finalize(self, self._open.close)  # of a reader that nobody closed

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start`` to ``stop`` (excluded) begin, and where the last of them ends."""
        try:
            found = self._indptr.read(start, stop + 1)
            if found[0] < 0 or found[-1] > self.entries or (found[1:] < found[:-1]).any():
                raise ValueError("indptr decreases or goes beyond the entries")
            if start == 0 and found[0] != 0:
                raise ValueError("indptr does not start at 0")
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        return found

    def read(self, start: int, stop: int) -> CsrPiece:
        indptr = self.indptr(start, stop)
        first, last = int(indptr[0]), int(indptr[-1])
        indptr -= first
        try:
            rows = CsrPiece(indptr, self._indices.read(first, last), self._values.read(first, last))
            check_csr(*rows, (stop - start, self.rows))
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        return rows

    def close(self) -> None:
        self._open.close()


def row_ranges(
    matrix: CsrRows, most_entries: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cut the rows into ranges of at most ``most_entries`` entries (or a single row).

    >>> path = sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> list(row_ranges(CsrMemory(path), most_entries=3))
    [(0, 2), (2, 3)]
    """
    stop = matrix.rows if stop is None else stop
    while start < stop:
        ends = matrix.indptr(start, min(start + MOST_ROWS, stop))
        fitting = int(np.searchsorted(ends, ends[0] + most_entries, side="right")) - 1
        after = start + max(fitting, 1)
        yield start, after
        start = after


class PatchedRows:
    """The rows of ``base``, of which those of ``nodes`` (sorted) are the rows of ``patch`` instead.

    ``patch`` has as many columns as there are rows now; if these are more than ``base`` has, all
    that are new are in ``nodes``.

    >>> path = CsrMemory(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]))
    >>> patch = sp.csr_array([[1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    >>> PatchedRows(path, np.array([1, 2]), patch).read(0, 3).to_scipy(3).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, base: CsrRows, nodes: np.ndarray, patch: sp.csr_array) -> None:
        self._base, self._nodes, self._patch = base, nodes, patch
        self.rows = int(patch.shape[1])
        self._kind = np.result_type(base.read(0, 0).values.dtype, patch.dtype)
        lengths = np.zeros(self.rows, np.int64)
        for start in range(0, base.rows, MOST_ROWS):
            stop = min(start + MOST_ROWS, base.rows)
            lengths[start:stop] = np.diff(base.indptr(start, stop))
        lengths[nodes] = np.diff(patch.indptr)
        self._indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.entries = int(self._indptr[-1])

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._indptr[start : stop + 1].copy()

    def read(self, start: int, stop: int) -> CsrPiece:
        end = self._base.rows
        old = self._base.read(min(start, end), min(stop, end))
        low, high = np.searchsorted(self._nodes, [start, stop]).tolist()
        if low == high:
            return CsrPiece(old.indptr, old.indices, old.values.astype(self._kind, copy=False))
        indptr, part = self.indptr(start, stop), self._patch[low:high]
        patched = np.zeros(stop - start, bool)
        patched[self._nodes[low:high] - start] = True
        new = np.repeat(patched, np.diff(indptr))
        kept = np.repeat(~patched[: len(old.indptr) - 1], np.diff(old.indptr))
        indices, values = np.empty(len(new), index_type(self.rows)), np.empty(len(new), self._kind)
        indices[new], values[new] = part.indices, part.data
        indices[~new], values[~new] = old.indices[kept], old.values[kept]
        return CsrPiece(indptr - indptr[0], indices, values)


def rows_of(
    matrix: CsrRows, nodes: np.ndarray, most_entries: int = PIECE
) -> Iterator[tuple[np.ndarray, sp.csr_array]]:
    """The rows of ``nodes``, which are sorted, some at a time: which nodes, and their rows.

    >>> path = CsrMemory(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> [(part.tolist(), rows.toarray().tolist()) for part, rows in rows_of(path, np.array([1]))]
    [([1], [[1, 0, 1]])]
    """
    runs = np.split(nodes, np.flatnonzero(np.diff(nodes) > NEAR) + 1) if len(nodes) else []
    for run in runs:
        for start, stop in row_ranges(matrix, most_entries, int(run[0]), int(run[-1]) + 1):
            low, high = np.searchsorted(run, [start, stop])
            if low < high:
                rows = matrix.read(start, stop).to_scipy(matrix.rows)
                yield run[low:high], sp.csr_array(rows[run[low:high] - start])


@contextlib.contextmanager
def growing_csr(
    folder: Path, index_type: type[np.integer], value_type: type[np.floating]
) -> Iterator[Callable[[sp.csr_array], None]]:
    """Yield a function that appends rows (sorted CSR); the three files appear at the end."""
    with (
        growing_npy(folder / "indptr.npy", np.int64) as ends,
        growing_npy(folder / "indices.npy", index_type) as indices,
        growing_npy(folder / "values.npy", value_type) as values,
    ):
        entries = 0
        ends(np.zeros(1, np.int64))

        def append(rows: sp.csr_array) -> None:
            nonlocal entries
            ends(rows.indptr[1:].astype(np.int64) + entries)
            entries += int(rows.indptr[-1])
            indices(rows.indices)
            values(rows.data)

        yield append


def index_type(nodes: int) -> type[np.integer]:
    """The type of the node numbers of a graph of this size."""
    return np.int32 if nodes < 2**31 else np.int64


@dataclass(frozen=True)
class Fingerprint:
    """By which a graph is known again: SHA-256 of the adjacency and of X in float32."""

    graph: str
    features: str
    longest_row: int  # entries of it


class AdjacencyDigest:
    """SHA-256 of a square CSR matrix of ``nodes`` rows that come in pieces, in order."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._kind = nodes, ""
        self._parts = [hashlib.sha256() for _ in range(3)]
        self.longest_row = 0

    def add(self, rows: CsrPiece) -> None:
        lengths = np.diff(rows.indptr)
        self.longest_row = max(self.longest_row, int(lengths.max(initial=0)))
        self._kind = rows.values.dtype.str
        indices = rows.indices.astype(index_type(self._nodes), copy=False)
        for part, array in zip(self._parts, (lengths, indices, rows.values), strict=True):
            part.update(np.ascontiguousarray(array).data)

    def digest(self) -> str:
        text = f"{self._nodes} {self._kind} " + " ".join(part.hexdigest() for part in self._parts)
        return hashlib.sha256(text.encode()).hexdigest()


def adjacency_digest(matrix: CsrRows) -> tuple[str, int]:
    """SHA-256 of a square CSR matrix, and the entries of its longest row.

    >>> edge = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> adjacency_digest(CsrMemory(edge)) == adjacency_digest(CsrMemory(edge.copy()))
    True
    """
    found = AdjacencyDigest(matrix.rows)
    for start, stop in row_ranges(matrix, PIECE):
        found.add(matrix.read(start, stop))
    return found.digest(), found.longest_row


def mean_weight(matrix: CsrRows) -> float:
    """The mean of the entries, 1 if there are none; whatever the pieces, the same to the bit.

    >>> mean_weight(CsrMemory(sp.csr_array([[0.0, 1.5], [2.5, 0.0]])))
    2.0
    """
    sums = np.zeros(matrix.rows)
    for start, stop in row_ranges(matrix, PIECE // 4):
        rows = matrix.read(start, stop)
        filled = np.flatnonzero(np.diff(rows.indptr))
        if filled.size:
            sums[start + filled] = np.add.reduceat(
                rows.values, rows.indptr[filled], dtype=np.float64
            )
    return float(sums.sum() / matrix.entries) if matrix.entries else 1.0


class FeaturesDigest:
    """SHA-256 of dense float32 rows that come in pieces, in order."""

    def __init__(self, columns: int) -> None:
        self._sum = hashlib.sha256(f"{columns} float32 ".encode())

    def add(self, rows: np.ndarray) -> None:
        self._sum.update(np.ascontiguousarray(rows, np.float32).data)

    def digest(self) -> str:
        return self._sum.hexdigest()


def features_digest(pieces: Iterable[np.ndarray], columns: int) -> str:
    """SHA-256 of dense float32 rows, whatever the pieces they come in."""
    found = FeaturesDigest(columns)
    for piece in pieces:
        found.add(piece)
    return found.digest()
