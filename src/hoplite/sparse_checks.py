"""The one check that sparse matrices pass before SciPy's or our own C++ code sees them.

Both trust index arrays: a wrong one makes them read or write foreign memory. So nothing here calls
a method of a matrix that somebody gave; its arrays are looked at, and a new matrix is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from hoplite.errors import GraphError

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.optional_deps import sparse as sp

NUMBERS = "fiub"  # kinds of dtypes
Shape = tuple[int, int]


def check_csr(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> None:
    """``ValueError``, which says why, unless the arrays are those of a CSR matrix of this shape.

    Row i has the entries indptr[i] to indptr[i + 1] (excluded) of ``indices`` and ``values``.

    >>> check_csr(np.array([0, 1]), np.array([5]), np.ones(1), (1, 5))
    Traceback (most recent call last):
    ValueError: an index is out of range
    """
    rows, columns = shape
    _check_integers("indptr", indptr)
    _check_integers("indices", indices)
    if values.ndim != 1 or indices.size != values.size:
        raise ValueError(f"there are {indices.size:,} indices for values of shape {values.shape}")
    if rows < 0 or indptr.size != rows + 1 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise ValueError("indptr does not fit the shape and the number of entries")
    if (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr decreases")
    _check_range(indices, columns)


def as_csr(matrix: Any, argument: str, *, copy: bool = False) -> sp.csr_array:
    """A SciPy sparse matrix of any format as a CSR array of real numbers that can be trusted.

    float64, float32 and bool are kept, other numbers become float32. Arrays are shared with a CSR
    matrix where that is possible, unless ``copy``. GraphError, which names ``argument``, if the
    matrix has another shape than two numbers or contradicts itself.
    """
    inside = vars(matrix)
    shape = inside.get("_shape")
    sizes = shape if isinstance(shape, tuple) else ()
    if len(sizes) != 2 or not all(
        isinstance(s, int | np.integer) and 0 <= s < 2**63 for s in sizes
    ):
        raise GraphError(f"{argument} has shape {shape}; pass a matrix of rows and columns.")
    shape = (int(sizes[0]), int(sizes[1]))
    if 8 * shape[0] > psutil.virtual_memory().total:  # some formats may say any number
        raise GraphError(f"{argument} has {shape[0]:,} rows, too many for this machine's memory.")
    convert = _FORMATS.get(matrix.format)
    if convert is None:
        raise GraphError(f"{argument} is in the unknown format {matrix.format!r}; pass a CSR one.")
    try:
        return convert(inside, shape, copy)
    except _ComplexError as error:
        raise GraphError(
            f"{argument} has type {error}; complex values are not supported, pass real numbers."
        ) from None
    except ValueError as error:
        raise GraphError(
            f"{argument} is damaged: {error}; build the sparse matrix again from its entries."
        ) from error


def as_numbers(values: np.ndarray) -> np.ndarray:
    """float64, float32 and bool as they are, in this machine's byte order; the rest as float32."""
    kept = values.dtype.newbyteorder("=")
    if kept not in (np.float64, np.float32, np.bool_):
        kept = np.dtype(np.float32)
    with np.errstate(over="ignore"):  # infinity is refused where it is not wanted
        return np.ascontiguousarray(values, kept)


def _from_csr(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    arrays = _compressed(inside, shape)
    return _built(sp.csr_array, tuple(a.copy() for a in arrays) if copy else arrays, shape)


def _from_csc(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    arrays = _compressed(inside, (shape[1], shape[0]))
    return sp.csr_array(_built(sp.csc_array, arrays, shape))


def _from_bsr(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    blocks = _array(inside, "data")
    if blocks.ndim != 3 or 0 in blocks.shape[1:]:
        raise ValueError(f"its blocks have shape {blocks.shape}")
    _check_kind(blocks)
    high, wide = blocks.shape[1:]
    if shape[0] % high or shape[1] % wide:
        raise ValueError(f"blocks of {high} x {wide} do not fit the shape {shape}")
    indptr, indices = _array(inside, "indptr"), _array(inside, "indices")
    check_csr(indptr, indices, blocks[:, 0, 0], (shape[0] // high, shape[1] // wide))
    kind = _index_type(shape, indices.size, indices.dtype)
    arrays = (as_numbers(blocks), indices.astype(kind), indptr.astype(kind))
    return sp.csr_array(sp.bsr_array(arrays, shape=shape))


def _from_coo(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    places = inside.get("coords", (inside.get("row"), inside.get("col")))  # SciPy 1.12 has two
    if not isinstance(places, tuple) or len(places) != 2:
        raise ValueError("it has no rows and columns")
    named = {"row": places[0], "col": places[1]}
    return _of_places(_array(named, "row"), _array(named, "col"), _array(inside, "data"), shape)


def _from_dia(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    offsets, diagonals = _array(inside, "offsets"), _array(inside, "data")
    _check_integers("offsets", offsets)
    if diagonals.ndim != 2 or len(diagonals) != offsets.size:
        raise ValueError(f"{offsets.size:,} offsets have diagonals of shape {diagonals.shape}")
    near = (offsets > -max(shape[0], 1)) & (offsets < max(shape[1], 1))  # the others are outside
    offsets, diagonals = offsets[near].astype(np.int64), diagonals[near]
    _check_kind(diagonals)
    column = np.arange(diagonals.shape[1])
    row = column - offsets[:, None]
    stored = (row >= 0) & (row < shape[0]) & (column < shape[1]) & (diagonals != 0)
    columns = np.broadcast_to(column, stored.shape)
    return _of_places(row[stored], columns[stored], diagonals[stored], shape)


def _from_lil(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    lists = _array(inside, "rows"), _array(inside, "data")
    if any(a.shape != shape[:1] or not all(isinstance(row, list) for row in a) for a in lists):
        raise ValueError("its rows are not one list each")
    lengths, others = ([len(row) for row in a] for a in lists)
    if lengths != others:
        raise ValueError("its rows have other lengths than their values")
    columns, values = (_flat(chain.from_iterable(a)) for a in lists)
    row = np.repeat(np.arange(shape[0]), lengths)
    return _of_places(row, columns if row.size else row, _typed(values, inside), shape)


def _from_dok(inside: dict[str, Any], shape: Shape, copy: bool) -> sp.csr_array:
    entries = inside.get("_dict")
    if not isinstance(entries, dict):
        raise ValueError("it has no entries")
    if not all(isinstance(place, tuple) and len(place) == 2 for place in entries):
        raise ValueError("its entries are not at a row and a column")
    places = _flat(chain.from_iterable(entries)).reshape(-1, 2)
    places = places if entries else places.astype(np.int64)
    values = _typed(_flat(entries.values()), inside)
    return _of_places(places[:, 0], places[:, 1], values, shape)


_FORMATS: dict[str, Callable[[dict[str, Any], Shape, bool], sp.csr_array]] = {
    "csr": _from_csr,
    "csc": _from_csc,
    "bsr": _from_bsr,
    "coo": _from_coo,
    "dia": _from_dia,
    "lil": _from_lil,
    "dok": _from_dok,
}


def _compressed(inside: dict[str, Any], shape: Shape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices and values, checked, without room for more entries at the end."""
    indptr, indices, values = (_array(inside, name) for name in ("indptr", "indices", "data"))
    if (
        indptr.ndim == indices.ndim == values.ndim == 1
        and indptr.size
        and indptr.dtype.kind in "iu"
    ):
        used = int(indptr[-1])
        if 0 <= used < indices.size == values.size:
            indices, values = indices[:used], values[:used]
    _check_kind(values)
    check_csr(indptr, indices, values, shape)
    kind = _index_type(shape, indices.size, indices.dtype)
    return (
        np.ascontiguousarray(indptr, kind),
        np.ascontiguousarray(indices, kind),
        as_numbers(values),
    )


def _built(form: Any, arrays: tuple[np.ndarray, ...], shape: Shape) -> Any:
    """A SciPy matrix on these arrays; its constructor would copy some of them."""
    matrix = form(shape, dtype=arrays[2].dtype)
    matrix.indptr, matrix.indices, matrix.data = arrays
    return matrix


def _of_places(
    row: np.ndarray, column: np.ndarray, values: np.ndarray, shape: Shape
) -> sp.csr_array:
    """From entries; those at the same place are added."""
    for name, place, limit in (("row", row, shape[0]), ("col", column, shape[1])):
        _check_integers(name, place)
        if values.ndim != 1 or place.size != values.size:
            raise ValueError(f"{name} has {place.size:,} entries, values shape {values.shape}")
        _check_range(place, limit)
    _check_kind(values)
    kind = _index_type(shape, row.size, row.dtype)
    places = (row.astype(kind), column.astype(kind))
    return sp.coo_array((as_numbers(values), places), shape=shape).tocsr()


def _array(inside: dict[str, Any], name: str) -> np.ndarray:
    if not isinstance(inside.get(name), np.ndarray):
        raise ValueError(f"it has no array {name}")
    return np.asarray(inside[name])  # of a subclass, such as masked arrays, the plain numbers


def _flat(values: Any) -> np.ndarray:
    found = list(values)
    if any(isinstance(value, list | tuple | np.ndarray) for value in found):
        raise ValueError("it holds lists in place of numbers")
    return np.array(found)


def _typed(values: np.ndarray, inside: dict[str, Any]) -> np.ndarray:
    """Numbers of a list in the type that the matrix says it has."""
    kind = inside.get("dtype")
    known = isinstance(kind, np.dtype) and kind.kind in NUMBERS and values.dtype.kind in NUMBERS
    return values.astype(kind) if known else values


def _check_integers(name: str, array: np.ndarray) -> None:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} has type {array.dtype} and shape {array.shape}")


def _check_range(places: np.ndarray, limit: int) -> None:
    # one pass: as a natural number, a negative one is larger than any size
    naturals = places.view(f"{places.dtype.byteorder}u{places.dtype.itemsize}")
    if places.size and int(naturals.max()) >= min(limit, np.iinfo(places.dtype).max + 1):
        raise ValueError("an index is out of range")


class _ComplexError(Exception):
    """A sound matrix, but not of real numbers; its text is the type."""


def _check_kind(values: np.ndarray) -> None:
    if values.dtype.kind == "c":
        raise _ComplexError(values.dtype)
    if values.dtype.kind not in NUMBERS:
        raise ValueError(f"its values have type {values.dtype}")


def _index_type(shape: Shape, entries: int, given: np.dtype) -> type[np.integer]:
    """int64 where it is needed or was given, otherwise int32."""
    wide = max(*shape, entries) > np.iinfo(np.int32).max or given == np.int64
    return np.int64 if wide else np.int32
