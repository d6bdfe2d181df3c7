"""CSR matrices: checked before any C++ code sees them, and read a range of rows at a time.

SciPy's C++ code and our own trust index arrays: a wrong one makes them read or write foreign
memory. So :func:`as_csr` looks at the arrays of a matrix that somebody gave, calls no compiled
method of it, and makes a new matrix of what it has checked.

A reader of rows is a matrix in memory (:class:`CsrMemory`) or in files
(:class:`hoplite.io.array_files.CsrFiles`). The digest of its rows does not depend on where and in
which pieces they are kept.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import psutil

from hoplite.errors import GraphError, first_line
from hoplite.machine import quiet

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.machine import sparse as sp

NUMBERS = "fiub"  # kinds of dtypes
CSR = ("indptr", "indices", "data")
MAX_INT32 = 2**31 - 1
PIECE = 1 << 20  # entries hashed at a time
MAX_ROWS = 1 << 20  # maximum number of rows in a range, however few entries they have
NEAR = 1 << 10  # rows between two wanted ones that are read rather than left out
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
_DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)


def as_csr(matrix: Any, argument: str, *, copy: bool = False) -> sp.csr_array:
    """Check a SciPy sparse matrix of any format and convert it to a CSR array of real numbers.

    Parameters
    ----------
    matrix : SciPy sparse matrix or array
        float64, float32 and bool are kept, other numbers become float32.
    argument : str
        What messages call the matrix.
    copy : bool, default False
        If False, the result shares the arrays of a CSR matrix where that is possible.

    Raises
    ------
    GraphError
        If its shape is not two numbers, its values are not real, or its arrays contradict
        each other.
    """
    shape = matrix.shape
    sizes = shape if isinstance(shape, tuple) and len(shape) == 2 else (-1,)
    if not all(isinstance(size, int | np.integer) and 0 <= size < 2**63 for size in sizes):
        raise GraphError(f"{argument} has shape {shape}; pass a two-dimensional matrix.")
    shape = (int(shape[0]), int(shape[1]))
    if getattr(getattr(matrix, "dtype", None), "kind", "") == "c":
        raise GraphError(
            f"{argument} has type {matrix.dtype}; complex values are not supported, pass real "
            "numbers."
        )
    if 8 * shape[0] > psutil.virtual_memory().total:  # some formats may declare any number
        raise GraphError(f"{argument} has {shape[0]:,} rows, too many for this machine's memory.")
    try:
        if matrix.format == "csr":
            arrays = _compressed(matrix, shape)
            return _build(sp.csr_array, tuple(a.copy() for a in arrays) if copy else arrays, shape)
        if matrix.format == "csc":
            return sp.csr_array(
                _build(sp.csc_array, _compressed(matrix, (shape[1], shape[0])), shape)
            )
        return _from_entries(*_entries(matrix, shape), shape)
    except _DAMAGE as error:
        raise GraphError(
            f"{argument} is damaged: {first_line(error)[:100]}; build the sparse matrix again from "
            "its entries."
        ) from error


def check_csr(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> None:
    """Raise ValueError unless the arrays are those of a CSR matrix of this shape.

    Row i has the entries indptr[i] to indptr[i + 1] (excluded) of ``indices`` and ``values``.

    >>> check_csr(np.array([0, 1]), np.array([5]), np.ones(1), (1, 5))
    Traceback (most recent call last):
    ValueError: an index is out of range
    """
    rows, columns = shape
    _check_integers("indptr", indptr)
    if rows < 0 or indptr.size != rows + 1 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise ValueError("indptr does not match the shape and the number of entries")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr decreases")
    _check_indices("indices", indices, values, columns)


def as_numbers(values: np.ndarray) -> np.ndarray:
    """Convert to this machine's byte order; keep float64, float32 and bool, else use float32."""
    kept = values.dtype.newbyteorder("=")
    if kept not in (np.float64, np.float32, np.bool_):
        kept = np.dtype(np.float32)
    with np.errstate(over="ignore"):  # infinity is refused where it is not wanted
        return np.ascontiguousarray(values, kept)


def without_torch(value: Any) -> Any:
    """A tensor of torch as an array, a sparse one as a CSR matrix; anything else as it is.

    bfloat16 and half become float32.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    tensor = value.detach().cpu()
    if tensor.layout != torch.strided:
        with quiet():  # sparse CSR is new
            tensor = tensor.to_sparse_coo().coalesce()
        entries = without_torch(tensor.values()), tuple(tensor.indices().numpy())
        return sp.csr_array(entries, shape=tuple(tensor.shape))
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.half) else tensor).numpy()


def as_array(value: Any, argument: str) -> np.ndarray:
    """Convert to an array of numbers or text; GraphError for lists of unequal lengths."""
    value = without_torch(value)
    if sp.issparse(value):
        raise GraphError(f"{argument} is sparse; pass a dense array.")
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object and hasattr(value, "dtype"):
        raise GraphError(f"{argument} has dtype object; convert it, e.g. {argument}.astype(float).")
    if array.dtype == object:
        raise GraphError(
            f"{argument} has type {type(value).__name__}, which cannot be converted to an array of "
            "numbers; pass rows of equal length."
        )
    return array


def frozen(value: Any) -> Any:
    """Make an array, or the arrays of a CSR matrix, read-only."""
    if sp.issparse(value):
        for part in CSR:
            setattr(value, part, frozen(getattr(value, part)))
        return value
    value = value.view()
    value.flags.writeable = False
    return value


def check_weights(values: np.ndarray) -> None:
    """Raise GraphError unless they are finite and not negative."""
    if values.dtype.kind not in NUMBERS:
        raise GraphError(f"edge weights have type {values.dtype}; pass numbers.")
    if not np.isfinite(values).all():
        raise GraphError("edge weights contain NaN or infinity; remove or replace those edges.")
    if (values < 0).any():
        raise GraphError(
            f"the smallest edge weight is {values.min():g}; weights must not be negative, because "
            "the operators take square roots of weighted degrees."
        )


def checked_arcs(adjacency: Any) -> sp.csr_array:
    """A square matrix of weights without its diagonal, float32 or float64."""
    adjacency = without_torch(adjacency)
    if sp.issparse(adjacency):
        matrix = as_csr(adjacency, "adjacency", copy=True)
    else:
        adjacency = as_array(adjacency, "adjacency")
        if adjacency.ndim != 2 or adjacency.dtype.kind not in NUMBERS:
            raise GraphError(
                f"adjacency has type {adjacency.dtype} and shape {adjacency.shape}; "
                "pass a square matrix of numbers."
            )
        matrix = sp.csr_array(as_numbers(adjacency))
    if matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency has shape {matrix.shape}; it must be square.")
    check_weights(matrix.data)
    matrix.sum_duplicates()  # before bool becomes a number: true and true are true
    if matrix.dtype != np.float64:
        matrix = matrix.astype(np.float32, copy=False)
    if matrix.diagonal().any():
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        matrix.data[rows == matrix.indices] = 0
    matrix.eliminate_zeros()
    return matrix


def _compressed(matrix: Any, shape: tuple[int, int]) -> Arrays:
    """indptr, indices and values, checked, without unused room at the end."""
    indptr, indices, values = (np.asarray(getattr(matrix, part)) for part in CSR)
    _check_integers("indptr", indptr)
    used = int(indptr[-1])
    if indices.ndim == values.ndim == 1 and 0 <= used < indices.size == values.size:
        indices, values = indices[:used], values[:used]
    check_csr(indptr, indices, values, shape)
    index = _index_type(shape, indices)
    return (
        np.ascontiguousarray(indptr, index),
        np.ascontiguousarray(indices, index),
        as_numbers(values),
    )


def _build(form: Any, arrays: tuple[np.ndarray, ...], shape: tuple[int, int]) -> Any:
    """A SciPy matrix on these arrays; its constructor would copy some of them."""
    matrix = form(shape, dtype=arrays[2].dtype)
    matrix.indptr, matrix.indices, matrix.data = arrays
    return matrix


def _from_entries(
    row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> sp.csr_array:
    """From entries; those at the same place are added."""
    row, column, values = (np.asarray(part) for part in (row, column, values))
    _check_indices("row", row, values, shape[0])
    _check_indices("col", column, values, shape[1])
    index = _index_type(shape, row)
    places = (row.astype(index), column.astype(index))
    return sp.coo_array((as_numbers(values), places), shape=shape).tocsr()


def _dia_entries(matrix: Any, shape: tuple[int, int]) -> Arrays:
    offsets, diagonals = np.asarray(matrix.offsets), np.asarray(matrix.data)
    _check_integers("offsets", offsets)
    if diagonals.ndim != 2 or len(diagonals) != offsets.size:
        raise ValueError(f"{offsets.size:,} offsets have diagonals of shape {diagonals.shape}")
    near = (offsets > -max(shape[0], 1)) & (offsets < max(shape[1], 1))  # the others are outside
    offsets, diagonals = offsets[near].astype(np.int64), diagonals[near]
    column = np.broadcast_to(np.arange(diagonals.shape[1]), diagonals.shape)
    row = column - offsets[:, None]
    stored = (row >= 0) & (row < shape[0]) & (column < shape[1]) & (diagonals != 0)
    return row[stored], column[stored], diagonals[stored]


def _entries(matrix: Any, shape: tuple[int, int]) -> Arrays:
    """Rows, columns and values, by NumPy alone: unchecked arrays never reach C++."""
    if matrix.format == "dia":
        return _dia_entries(matrix, shape)
    if matrix.format == "lil":  # whose own conversion trusts the lengths of its lists
        lengths = [len(row) for row in matrix.rows]
        if len(lengths) != shape[0] or lengths != [len(row) for row in matrix.data]:
            raise ValueError("its indices and values have different lengths")
        columns, values = (list(chain.from_iterable(part)) for part in (matrix.rows, matrix.data))
        columns = np.array(columns) if columns else np.empty(0, np.int64)
        return np.repeat(np.arange(shape[0]), lengths), columns, np.array(values, matrix.dtype)
    try:
        entries = matrix.tocoo()
    except Exception as error:  # whatever its arrays are
        raise ValueError(str(error)) from error
    return entries.row, entries.col, entries.data


def _check_integers(name: str, array: np.ndarray) -> None:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} has type {array.dtype} and shape {array.shape}")


def _check_indices(name: str, places: np.ndarray, values: np.ndarray, limit: int) -> None:
    """Raise ValueError unless there is one place from 0 to ``limit`` (excluded) per value."""
    _check_integers(name, places)
    if values.ndim != 1 or places.size != values.size:
        raise ValueError(f"{name} has {places.size:,} entries, values shape {values.shape}")
    # one pass: as a natural number, a negative one is larger than any size
    naturals = places.view(f"{places.dtype.byteorder}u{places.dtype.itemsize}")
    if places.size and int(naturals.max()) >= min(limit, np.iinfo(places.dtype).max + 1):
        raise ValueError("an index is out of range")
    if values.dtype.kind not in NUMBERS:
        raise ValueError(f"its values have type {values.dtype}")


def _index_type(shape: tuple[int, int], indices: np.ndarray) -> type[np.integer]:
    """int64 where it is needed or was given, otherwise int32."""
    wide = max(*shape, indices.size) > MAX_INT32 or indices.dtype == np.int64
    return np.int64 if wide else np.int32


def csr_of(
    values: np.ndarray, indices: np.ndarray, indptr: np.ndarray, columns: int
) -> sp.csr_array:
    """The rows on the same memory: SciPy copies ``indices`` if ``indptr`` has another type."""
    if len(indices) <= MAX_INT32:
        indptr = indptr.astype(indices.dtype, copy=False)
    return sp.csr_array((values, indices, indptr), shape=(len(indptr) - 1, columns))


class CsrRows(Protocol):
    """What a reader of rows offers."""

    @property
    def rows(self) -> int: ...
    @property
    def entries(self) -> int: ...
    def indptr(self, start: int, stop: int) -> np.ndarray: ...
    def read(self, start: int, stop: int) -> sp.csr_array: ...


class CsrMemory:
    """The rows of a SciPy matrix."""

    def __init__(self, matrix: sp.csr_array) -> None:
        self._matrix = matrix
        self.rows, self.entries = int(matrix.shape[0]), int(matrix.nnz)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start`` to ``stop`` (excluded) begin, and where the last of them ends."""
        return self._matrix.indptr[start : stop + 1].astype(np.int64)

    def read(self, start: int, stop: int) -> sp.csr_array:
        indptr = self.indptr(start, stop)
        part = slice(indptr[0], indptr[-1])
        values, indices = self._matrix.data[part], self._matrix.indices[part]
        return csr_of(values, indices, indptr - indptr[0], int(self._matrix.shape[1]))


def row_ranges(
    matrix: CsrRows, max_entries: int, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Cut the rows into ranges of at most ``max_entries`` entries (or a single row).

    >>> path = sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> list(row_ranges(CsrMemory(path), max_entries=3))
    [(0, 2), (2, 3)]
    """
    stop = matrix.rows if stop is None else stop
    while start < stop:
        ends = matrix.indptr(start, min(start + MAX_ROWS, stop))
        fitting = int(np.searchsorted(ends, ends[0] + max_entries, side="right")) - 1
        after = start + max(fitting, 1)
        yield start, after
        start = after


class PatchedRows:
    """The rows of ``base``, with those of ``nodes`` (sorted) replaced by the rows of ``patch``.

    ``patch`` has as many columns as there are rows now; if these are more than ``base`` has, all
    that are new are in ``nodes``.

    >>> path = CsrMemory(sp.csr_array([[0.0, 1.0], [1.0, 0.0]]))
    >>> patch = sp.csr_array([[1.0, 0.0, 2.0], [0.0, 2.0, 0.0]])
    >>> PatchedRows(path, np.array([1, 2]), patch).read(0, 3).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.0, 2.0, 0.0]]
    """

    def __init__(self, base: CsrRows, nodes: np.ndarray, patch: sp.csr_array) -> None:
        self._base, self._nodes, self._patch = base, nodes, patch
        self.rows = int(patch.shape[1])
        self._dtype = np.result_type(base.read(0, 0).dtype, patch.dtype)
        lengths = np.zeros(self.rows, np.int64)
        for start in range(0, base.rows, MAX_ROWS):
            stop = min(start + MAX_ROWS, base.rows)
            lengths[start:stop] = np.diff(base.indptr(start, stop))
        lengths[nodes] = np.diff(patch.indptr)
        self._indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.entries = int(self._indptr[-1])

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._indptr[start : stop + 1].copy()

    def read(self, start: int, stop: int) -> sp.csr_array:
        end = self._base.rows
        old = self._base.read(min(start, end), min(stop, end))
        low, high = np.searchsorted(self._nodes, [start, stop]).tolist()
        if low == high:
            values = old.data.astype(self._dtype, copy=False)
            return csr_of(values, old.indices, old.indptr, self.rows)
        indptr, part = self.indptr(start, stop), self._patch[low:high]
        patched = np.zeros(stop - start, bool)
        patched[self._nodes[low:high] - start] = True
        new = np.repeat(patched, np.diff(indptr))
        kept = np.repeat(~patched[: len(old.indptr) - 1], np.diff(old.indptr))
        indices, values = np.empty(len(new), index_type(self.rows)), np.empty(len(new), self._dtype)
        indices[new], values[new] = part.indices, part.data
        indices[~new], values[~new] = old.indices[kept], old.data[kept]
        return csr_of(values, indices, indptr - indptr[0], self.rows)


def rows_of(matrix: CsrRows, nodes: np.ndarray) -> Iterator[tuple[np.ndarray, sp.csr_array]]:
    """The rows of ``nodes``, which are sorted, some at a time: which nodes, and their rows.

    >>> path = CsrMemory(sp.csr_array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    >>> [(part.tolist(), rows.toarray().tolist()) for part, rows in rows_of(path, np.array([1]))]
    [([1], [[1, 0, 1]])]
    """
    runs = np.split(nodes, np.flatnonzero(np.diff(nodes) > NEAR) + 1) if len(nodes) else []
    for run in runs:
        for start, stop in row_ranges(matrix, PIECE, int(run[0]), int(run[-1]) + 1):
            low, high = np.searchsorted(run, [start, stop])
            if low < high:
                rows = matrix.read(start, stop)
                yield run[low:high], sp.csr_array(rows[run[low:high] - start])


def index_type(nodes: int) -> type[np.integer]:
    """The type of the node numbers of a graph of this size."""
    return np.int32 if nodes < 2**31 else np.int64


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of the adjacency and of X in float32, which identify a graph."""

    graph: str
    features: str
    longest_row: int  # entries of it


def adjacency_digest(matrix: CsrRows) -> tuple[str, int]:
    """SHA-256 of a square CSR matrix, and the entries of its longest row.

    >>> edge = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> adjacency_digest(CsrMemory(edge)) == adjacency_digest(CsrMemory(edge.copy()))
    True
    """
    digests = [hashlib.sha256() for _ in CSR]
    longest, value_type = 0, ""
    for start, stop in row_ranges(matrix, PIECE):
        rows = matrix.read(start, stop)
        lengths, value_type = np.diff(rows.indptr).astype(np.int64), rows.dtype.str
        longest = max(longest, int(lengths.max(initial=0)))
        indices = rows.indices.astype(index_type(matrix.rows), copy=False)
        for digest, array in zip(digests, (lengths, indices, rows.data), strict=True):
            digest.update(np.ascontiguousarray(array).data)
    text = " ".join([f"{matrix.rows} {value_type}", *(digest.hexdigest() for digest in digests)])
    return hashlib.sha256(text.encode()).hexdigest(), longest


def mean_weight(matrix: CsrRows) -> float:
    """The mean of the entries, 1 if there are none; whatever the pieces, the same bit for bit.

    >>> mean_weight(CsrMemory(sp.csr_array([[0.0, 1.5], [2.5, 0.0]])))
    2.0
    """
    sums = np.zeros(matrix.rows)
    for start, stop in row_ranges(matrix, PIECE // 4):
        rows = matrix.read(start, stop)
        filled = np.flatnonzero(np.diff(rows.indptr))
        if filled.size:
            sums[start + filled] = np.add.reduceat(rows.data, rows.indptr[filled], dtype=np.float64)
    return float(sums.sum() / matrix.entries) if matrix.entries else 1.0


def row_pieces(
    read: Callable[[int, int], np.ndarray], rows: int, columns: int
) -> Iterator[np.ndarray]:
    """The rows of a dense matrix, some at a time, as ``read(start, stop)`` gives them."""
    step = max(1, 4 * PIECE // max(columns, 1))
    for start in range(0, rows, step):
        yield read(start, min(start + step, rows))


def fingerprint(
    adjacency: CsrRows, features: Callable[[int, int], np.ndarray], columns: int
) -> Fingerprint:
    """The fingerprint of a graph whose X is read as ``features(start, stop)``."""
    digest, longest = adjacency_digest(adjacency)
    pieces = row_pieces(features, adjacency.rows, columns)
    return Fingerprint(digest, features_digest(pieces, columns), longest)


def features_digest(pieces: Iterable[np.ndarray], columns: int) -> str:
    """SHA-256 of dense float32 rows, whatever the pieces they come in."""
    digest = hashlib.sha256(f"{columns} float32 ".encode())
    for rows in pieces:
        digest.update(np.ascontiguousarray(rows, np.float32).data)
    return digest.hexdigest()
