"""The feature columns of a node table: numbers and lists of them as they are, text one-hot.

Some columns need a look at all of their cells first: which values a text has decides how many
features it becomes, and text that only spells numbers (in CSV), dates or times is one number.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyarrow import csv

from hoplite.datasets.table_reader import (
    NO_TEXT,
    TableReader,
    as_number,
    as_text,
    is_text,
    pc,
)
from hoplite.errors import DatasetError, HopliteWarning

# Below this share of non-zero cells, CSR is smaller than dense and faster to multiply.
SPARSE_BELOW = 0.1
# A text column is suspicious when it has many values and hardly any repeats.
MANY_VALUES = 20
NEARLY_ALL = 0.9
SAMPLE = 8  # cells that rule most of the ways out to read a text
DAY = 86_400  # seconds
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second
_CSV = csv.ConvertOptions()
# What CSV files have in place of a number, a date or a time, such as NA; what is true, and false.
GAPS = pa.array(_CSV.null_values, pa.large_string())
TRUE, FALSE = (
    pa.array(words, pa.large_string()) for words in (_CSV.true_values, _CSV.false_values)
)
_NO_NUMBER = pa.scalar(None, pa.float64())
DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
DATE_ALONE, ZONE = r"^[^T ]+$", r"(Z|[+-]\d{2}:?\d{2})$"
TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"


@dataclass(frozen=True)
class Encoded:
    """The features that one column gives to some nodes.

    Numbers: values of shape (nodes, width). Text: the index of the feature that is 1, or -1.
    """

    width: int
    values: np.ndarray
    one_hot: bool = False

    def nonzeros(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and values of the entries that are not 0."""
        if self.one_hot:
            rows = np.flatnonzero(self.values >= 0)
            return rows, self.values[rows], np.ones(rows.size, np.float32)
        rows, columns = np.nonzero(self.values)
        return rows, columns, self.values[rows, columns]

    def fill(self, out: np.ndarray) -> None:
        """Write them to ``out``, which is all zeros."""
        if self.one_hot:
            rows, columns, ones = self.nonzeros()
            out[rows, columns] = ones
        else:
            out[:] = self.values

    def count(self) -> int:
        return int(np.count_nonzero(self.values >= 0 if self.one_hot else self.values))


class FeatureColumns:
    """The features of the ``columns`` of a table: their ``names``, and the rows of X of a batch.

    ``most_values`` is how many values a text may have, None for any number of them.
    """

    def __init__(
        self, reader: TableReader, columns: list[str], most_values: int | None = None
    ) -> None:
        self.columns, path = columns, reader.path
        if not columns:
            raise DatasetError(
                f"{path} has no feature column; add at least one besides id, label and split."
            )
        self._made = {
            name: _column(name, reader.kinds[name], path, most_values) for name in columns
        }
        _survey(reader, self._made)
        self._width: dict[str, int] = {}
        first: dict[str, str] = {}
        for name, column in self._made.items():
            own = column.names()
            self._width[name] = len(own)
            for feature in own:
                if first.setdefault(feature, name) != name:
                    raise DatasetError(
                        f"columns {first[feature]!r} and {name!r} of {path} both give the feature "
                        f"{feature!r}; rename one of them."
                    )
        self.names = tuple(first)
        self.width = len(self.names)
        if not self.width:
            raise DatasetError(f"{path} has only empty feature columns; fill at least one.")

    def width_of(self, columns: Iterable[str]) -> int:
        """How many features these columns are."""
        return sum(self._width[name] for name in columns)

    def dense(self, table: pa.Table, columns: Sequence[str], ids: pa.Array) -> np.ndarray:
        """The features of ``columns`` for some rows: (rows, width) in float32."""
        parts = (self._made[name].encode(table[name], ids) for name in columns)
        return _dense(parts, len(ids), self.width_of(columns))

    def smaller(self, table: pa.Table, ids: pa.Array) -> np.ndarray | sp.csr_array:
        """All features of some rows, dense or CSR, whichever is smaller."""
        parts = [self._made[name].encode(table[name], ids) for name in self.columns]
        shape = (len(ids), self.width)
        if sum(part.count() for part in parts) >= SPARSE_BELOW * math.prod(shape):
            return _dense(parts, *shape)
        starts = np.cumsum([0, *(part.width for part in parts)])
        entries = [part.nonzeros() for part in parts]
        rows = np.concatenate([rows for rows, _, _ in entries])
        where = np.concatenate(
            [start + where for start, (_, where, _) in zip(starts[:-1], entries, strict=True)]
        )
        values = np.concatenate([values for _, _, values in entries])
        return sp.csr_array(sp.coo_array((values, (rows, where)), shape=shape))


def _dense(parts: Iterable[Encoded], rows: int, width: int) -> np.ndarray:
    out, start = np.zeros((rows, width), np.float32), 0
    for part in parts:
        part.fill(out[:, start : start + part.width])
        start += part.width
    return out


def _survey(reader: TableReader, columns: dict[str, _Column]) -> None:
    """Show every column the cells that it needs to see: none, those of a first batch, or all."""
    for batch in reader.batches(["id", *(name for name in columns if columns[name].peeks)]):
        for column in columns.values():
            if column.peeks:
                column.look(batch.table[column.name], batch.filled_text("id"))
        break
    else:
        raise DatasetError(f"{reader.path} has no rows; give one row per node.")
    waiting = [name for name in columns if isinstance(columns[name], _Text)]
    while waiting:
        for group in reader.groups(waiting):
            for batch in reader.batches(["id", *group]):
                ids = batch.filled_text("id")
                for name in group:
                    columns[name].look(batch.table[name], ids)
        waiting = [name for name in waiting if columns[name].needs_another_look()]


def _column(name: str, kind: pa.DataType, path: Path, most_values: int | None) -> _Column:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        raise _empty(name, path)
    if _is_number(kind):
        return _Column(name, path)
    if _is_list(kind) and (_is_number(kind.value_type) or pa.types.is_null(kind.value_type)):
        return _Lists(name, path)
    if is_temporal(kind):
        return _Times(name, path)
    if is_text(kind):
        return _Text(name, path, most_values)
    raise DatasetError(
        f"column {name!r} of {path} has type {kind}; "
        "features are numbers, lists of numbers or text."
    )


def _empty(name: str, path: Path) -> DatasetError:
    return DatasetError(f"column {name!r} of {path} is empty; fill it or remove it.")


class _Column:
    """A column of numbers."""

    peeks = False  # whether it must see the cells of the first batch before it has names

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        """Note what the names depend on."""

    def needs_another_look(self) -> bool:
        return False

    def names(self) -> list[str]:
        """Of the features, once the column has seen what it needs."""
        return [self.name]

    def encode(self, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        """The features of the nodes ``ids``, of which ``column`` has the cells."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return self._encode(column, ids)

    def _encode(self, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        return Encoded(1, self._numbers(column, ids))

    def _numbers(self, column: pa.ChunkedArray, ids: pa.Array, width: int = 1) -> np.ndarray:
        """The column in float32, in rows of ``width``."""
        if pa.types.is_null(column.type) or pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        missing = column.is_null().to_numpy()
        values = pc.fill_null(column, _zero(column.type)).to_numpy()
        if values.dtype.kind in "iu":  # which float64 rounds first where they are spelled in text
            values = values.astype(np.float64)
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
            values = values.astype(np.float32)
        bad = missing | ~np.isfinite(values)
        if bad.any():
            cell = int(np.flatnonzero(bad)[0])
            what = "no number" if missing[cell] or np.isnan(values[cell]) else "no finite number"
            place = self.name if width == 1 else f"{self.name}[{cell % width}]"
            raise DatasetError(
                f"column {place!r} of {self.path} has {what} for node "
                f"{ids[cell // width].as_py()!r}; fill the gap or remove the column."
            )
        return values.reshape(-1, width)


class _Lists(_Column):
    """Lists of numbers: one feature per place in them; they are as long for each node."""

    peeks, _width, _first = True, 0, ""

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        self._refuse_gaps(column, ids)
        self._first, self._width = ids[0].as_py(), pc.list_value_length(column)[0].as_py()

    def names(self) -> list[str]:
        if not self._width:
            raise _empty(self.name, self.path)
        return [f"{self.name}[{i}]" for i in range(self._width)]

    def _refuse_gaps(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        missing = column.is_null().to_numpy()
        if missing.any():
            node = ids[int(np.flatnonzero(missing)[0])].as_py()
            raise DatasetError(
                f"column {self.name!r} of {self.path} has no list for node {node!r}; "
                "fill the gap or remove the column."
            )

    def _encode(self, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        self._refuse_gaps(column, ids)
        lengths = pc.list_value_length(column).to_numpy()
        if (lengths != self._width).any():
            row = int(np.flatnonzero(lengths != self._width)[0])
            raise DatasetError(
                f"column {self.name!r} of {self.path} has {lengths[row]:,} numbers for node "
                f"{ids[row].as_py()!r} but {self._width:,} for node {self._first!r}; "
                "give all nodes lists of the same length."
            )
        return Encoded(self._width, self._numbers(pc.list_flatten(column), ids, self._width))


class _Times(_Column):
    """Dates and times in a type of their own."""

    def names(self) -> list[str]:
        _warn_about_times(self.name, self.path)
        return [self.name]

    def _encode(self, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        return Encoded(1, self._numbers(as_elapsed(column), ids))


class _Text(_Column):
    """Text: one feature per value, in sorted order, unless all of it can be read as numbers."""

    def __init__(self, name: str, path: Path, most_values: int | None) -> None:
        super().__init__(name, path)
        self._is_csv = path.suffix == ".csv"
        self._ways: list[Way] = list(WAYS) if self._is_csv else [spelled_dates]
        self._most_values = most_values
        self._first: dict[str, str] = {}  # every value, and the id of the node that has it first
        self._filled, self._looks, self._missed = 0, 0, False
        self._odd: tuple[str, str] | None = None  # the value that is no number, and its node
        self._values = pa.array([], pa.large_string())

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        while self._ways and not self._missed:
            found = self._read(column)
            if found is not None:
                self._filled += len(found) - found.null_count
                self._looks += 1
                return
            if self._filled and self._odd is None:
                row = _first_odd(self._ways[0], self._without_gaps(column))
                self._odd = column[row].as_py().strip(), ids[row].as_py()
            del self._ways[0]
            self._missed = self._looks > 0  # what was read in this way is to be read in another
        if not self._missed:
            text = as_text(column, self.name, self.path)
            self._filled += len(text) - text.null_count
            self._note(text, ids)

    def needs_another_look(self) -> bool:
        again = self._missed
        if again:
            self._filled, self._looks, self._missed = 0, 0, False
        return again

    def names(self) -> list[str]:
        if self._is_csv and not self._filled:
            raise _empty(self.name, self.path)
        if self._ways and self._filled:
            if self._ways[0] in (spelled_dates, spelled_times):
                _warn_about_times(self.name, self.path)
            return [self.name]
        self._ways = []
        values = sorted(self._first)
        if len(values) >= MANY_VALUES and len(values) >= NEARLY_ALL * self._filled:
            warnings.warn(
                f"text column {self.name!r} of {self.path} has {len(values):,} different values in "
                f"{self._filled:,} rows; it becomes that many features, so remove it if it is a "
                "title or a key.",
                HopliteWarning,
                stacklevel=5,
            )
        if mistake := self._typing_error(values):
            warnings.warn(f"{mistake}.", HopliteWarning, stacklevel=5)
        self._values = pa.array(values, pa.large_string())
        return [f"{self.name}={value}" for value in values]

    def _encode(self, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        if self._ways:
            found = self._read(column)
            assert found is not None  # it was, when the column was looked at
            return Encoded(1, self._numbers(pa.chunked_array([found]), ids))
        text = as_text(column, self.name, self.path)
        codes = pc.fill_null(pc.index_in(text, value_set=self._values), -1).to_numpy()
        return Encoded(len(self._values), codes.astype(np.int64), one_hot=True)

    def _read(self, column: pa.ChunkedArray) -> pa.Array | None:
        """The numbers that all cells spell in the first of the ways that are left."""
        way = self._ways[0]
        if way is spelled_numbers:
            try:
                return _one(column.cast(pa.float64()))
            except pa.ArrowInvalid:  # a blank, or no number
                pass
        text = self._without_gaps(column)
        return None if way(text[:SAMPLE]) is None else way(text)

    def _without_gaps(self, column: pa.ChunkedArray) -> pa.Array:
        text = as_text(column, self.name, self.path)
        if not self._is_csv:
            return text
        return pc.if_else(pc.is_in(text, value_set=GAPS), NO_TEXT, text)

    def _note(self, text: pa.Array, ids: pa.Array) -> None:
        """Note the values that are new, each with the id of the node that has it first."""
        coded = text.dictionary_encode()
        codes = pc.fill_null(coded.indices, -1).to_numpy()
        rows = np.empty(len(coded.dictionary) + 1, np.int64)
        rows[codes[::-1]] = np.arange(len(codes))[::-1]  # the first row that has it is the last set
        for value, row in zip(coded.dictionary.to_pylist(), rows.tolist(), strict=False):
            if value not in self._first:
                self._first[value] = ids[row].as_py()
        if self._most_values is not None and len(self._first) > self._most_values:
            raise DatasetError(
                f"text column {self.name!r} of {self.path} has more than {self._most_values:,} "
                "different values; remove it, or replace it by numbers."
                if self._odd is None
                else f"column {self.name!r} of {self.path} is taken as text because of "
                f"{self._odd[0]!r} (node {self._odd[1]!r}) and has more than "
                f"{self._most_values:,} different values; correct that value or remove the column."
            )

    def _typing_error(self, values: list[str]) -> str | None:
        """One "1,5" makes a column of numbers a column of text; that must not pass in silence."""
        odd, meant = [value for value in values if math.isnan(as_number(value))], "numbers"
        if 2 * len(odd) >= len(values):
            dates = pc.match_substring_regex(pa.array(values, pa.large_string()), DATE)
            odd = [
                value for value, is_date in zip(values, dates, strict=True) if not is_date.as_py()
            ]
            meant = "dates"
        if not odd or 2 * len(odd) >= len(values):
            return None
        return (
            f"column {self.name!r} of {self.path} is taken as text because of {odd[0]!r} (node "
            f"{self._first[odd[0]]!r}) although most of its values are {meant}; correct that value "
            f"if {meant} are meant"
        )


def _is_number(kind: pa.DataType) -> bool:
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


@functools.cache  # PyArrow looks for pandas whenever it makes a scalar
def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0).cast(kind)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def is_temporal(kind: pa.DataType) -> bool:
    """Whether :func:`as_elapsed` makes numbers of it; intervals of months have no fixed length."""
    return pa.types.is_temporal(kind) and not pa.types.is_interval(kind)


def as_elapsed(column: Any) -> Any:
    """Days since 1970-01-01 (UTC) of dates and timestamps, seconds of times and durations.

    >>> as_elapsed(pa.array([36 * 3600], pa.timestamp("s"))).to_pylist()
    [1.5]
    >>> as_elapsed(pa.array([1500, None], pa.duration("ms"))).to_pylist()
    [1.5, None]
    """
    kind = column.type
    ticks: float = UNITS[getattr(kind, "unit", "ms")]  # date64 counts milliseconds
    if pa.types.is_date32(kind):
        ticks = 1
    elif pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        ticks *= DAY
    whole = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.divide(whole.cast(pa.float64(), safe=False), pa.scalar(float(ticks)))


def _warn_about_times(name: str, path: Path) -> None:
    warnings.warn(
        f"column {name!r} of {path} holds dates or times; it becomes one number (days since "
        "1970-01-01, or the seconds of a time or duration), so scale it as other large numbers.",
        HopliteWarning,
        stacklevel=5,
    )


# The ways to read text (large_string without surrounding white space, null for a gap) as numbers:
# float64, or None if a value cannot be read so. Whether a value can does not depend on the others.
Way = Callable[[pa.Array], "pa.Array | None"]


def spelled_numbers(text: pa.Array) -> pa.Array | None:
    """Numbers as Python spells them.

    >>> spelled_numbers(pa.array(["1e3", "+1", None])).to_pylist()
    [1000.0, 1.0, None]
    """
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        values = pc.unique(text).drop_null()
    numbers = []
    for value in values.to_pylist():
        numbers.append(as_number(value))
        if math.isnan(numbers[-1]) and value.lower().strip("+-") != "nan":
            return None
    return pa.array(numbers, pa.float64()).take(pc.index_in(text, value_set=values))


def spelled_truths(text: pa.Array) -> pa.Array | None:
    """True and false, in the spellings of Python, SQL and JSON, as 1 and 0."""
    true, false = (pc.is_in(text, value_set=words) for words in (TRUE, FALSE))
    if not pc.all(pc.or_(pc.or_(true, false), text.is_null()), min_count=0).as_py():
        return None
    return pc.if_else(text.is_null(), _NO_NUMBER, true.cast(pa.float64()))


def spelled_dates(text: pa.Array) -> pa.Array | None:
    """Days since 1970-01-01 of dates and timestamps, in UTC unless they name a zone.

    >>> spelled_dates(pa.array(["1970-01-02 12:00", None, "1970-01-01T01:00+01:00"])).to_pylist()
    [1.5, None, 0.0]
    """
    if not pc.all(pc.match_substring_regex(text, DATE), min_count=0).as_py():
        return None
    alone, zoned = (pc.match_substring_regex(text, part) for part in (DATE_ALONE, ZONE))
    stamps = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    end = pc.if_else(alone, "T00:00Z", pc.if_else(zoned, "", "Z"))
    try:
        whole = pc.binary_join_element_wise(stamps, end.cast(text.type), pa.scalar("", text.type))
        return as_elapsed(whole.cast(pa.timestamp("us", "UTC")))
    except pa.ArrowInvalid:  # such as the 30th of February
        return None


def spelled_times(text: pa.Array) -> pa.Array | None:
    """Seconds since midnight.

    >>> spelled_times(pa.array(["00:01:30", "12:00"])).to_pylist()
    [90.0, 43200.0]
    """
    if not pc.all(pc.match_substring_regex(text, TIME), min_count=0).as_py():
        return None
    days = pa.scalar("1970-01-01", text.type)
    stamps = pc.binary_join_element_wise(days, text, pa.scalar("T", text.type))
    return stamps.cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.float64())


def _first_odd(way: Way, text: pa.Array) -> int:
    """The first row of ``text`` that cannot be read in this way; there is one."""
    low, high = 0, len(text)  # all before low can be read, not all before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if way(text[low:middle]) is None else (middle, high)
    return low


WAYS: tuple[Way, ...] = (spelled_numbers, spelled_truths, spelled_dates, spelled_times)
