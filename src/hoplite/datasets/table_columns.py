"""One column of a node table: its cells as numbers, or as text.

Some need a look at all of their cells first: text that only spells numbers (in CSV), dates or times
is numbers, and which values a text has decides how many features it becomes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hoplite.datasets.table_cells import (
    AS_ISO,
    DATE_TEXT,
    DOTTED,
    GAP_WORDS,
    LIKE_DATES,
    WAYS,
    Way,
    as_elapsed,
    first_odd,
    is_list,
    is_number,
    is_temporal,
    one_chunk,
    spelled_dates,
    spelled_numbers,
    spelled_times,
    spelled_truths,
    without_gaps,
    zero,
)
from hoplite.datasets.table_reader import as_number, as_text, is_text, pc
from hoplite.errors import DatasetError
from hoplite.preparation import DATE, LIST, NUMBER, TEXT, TIME, PreparedColumn

SAMPLE = 8  # cells that rule most of the ways out to read a text
# A text column is a key or a title when it has many values and hardly any repeats.
MANY_VALUES, NEARLY_ALL = 20, 0.9
MOST_COUNTED = 100_000  # values of a text
WAYS_OF: dict[str, tuple[Way, ...]] = {
    NUMBER: (spelled_numbers, spelled_truths),
    DATE: (spelled_dates,),
    TIME: (spelled_times,),
}


def new_column(name: str, kind: pa.DataType, path: Path, most_values: int | None) -> Column:
    """The column ``name``, whose cells have the type ``kind``, before anything is known of it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        raise empty(name, path)
    if is_number(kind):
        column = Column(name, path)
        column.truth = pa.types.is_boolean(kind)
        return column
    if is_list(kind) and (is_number(kind.value_type) or pa.types.is_null(kind.value_type)):
        return Lists(name, path)
    if is_temporal(kind):
        return Times(name, path, kind)
    if is_text(kind):
        return Text(name, path, most_values)
    raise DatasetError(
        f"column {name!r} of {path} has type {kind}; "
        "features are numbers, lists of numbers or text."
    )


def known_column(wanted: PreparedColumn, kind: pa.DataType, path: Path) -> Column:
    """The column of a model's preparation, in a table in which its cells have the type ``kind``."""
    name = wanted.name
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if wanted.kind == TEXT:
        return Words(name, path)
    if is_text(kind) and wanted.kind in WAYS_OF:
        return Spelled(name, path, wanted.kind)
    if pa.types.is_null(kind) and wanted.kind != LIST:
        return Column(name, path)
    found = None if pa.types.is_null(kind) else new_column(name, kind, path, None)
    if found is None or found.kind != wanted.kind:
        raise DatasetError(
            f"column {name!r} of {path} has type {kind} but the model was trained with a "
            f"{wanted.kind}; give it as in training."
        )
    if isinstance(found, Lists):
        found.width, found.first = wanted.width, "of the training"
    return found


def empty(name: str, path: Path) -> DatasetError:
    return DatasetError(
        f"column {name!r} of {path} is empty; fill it or leave it out (--drop {name}, drop= in "
        "Python)."
    )


class Column:
    """A column of numbers."""

    kind, width, gap = NUMBER, 1, "number"
    truth = False  # whether its numbers stand for true and false
    peeks = False  # whether it must see the cells of the first batch
    looks = False  # whether it must see all cells

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        """Note what it becomes."""

    def needs_another_look(self) -> bool:
        return False

    def cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        """The cells of the nodes ``ids`` in float64 (rows, width), NaN where there is none."""
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return self._cells(column, ids)

    def _cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        return self.checked(self._numbers(column), ids)

    def _numbers(self, column: pa.ChunkedArray) -> np.ndarray:
        if pa.types.is_null(column.type) or pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        values = pc.fill_null(column, zero(column.type)).to_numpy().astype(np.float64)
        if column.null_count:
            values[column.is_null().to_numpy()] = np.nan
        return values.reshape(-1, 1)

    def checked(self, values: np.ndarray, ids: pa.Array) -> np.ndarray:
        """``values`` (rows, width), of which none is beyond float32."""
        with np.errstate(over="ignore"):
            bad = np.argwhere(np.isinf(values.astype(np.float32)))
        if len(bad):
            row, place = bad[0].tolist()
            shown = self.name if self.kind != LIST else f"{self.name}[{place}]"
            raise DatasetError(
                f"column {shown!r} of {self.path} has no finite number for node "
                f"{ids[row].as_py()!r}; correct it or remove the column."
            )
        return values


class Lists(Column):
    """Lists of numbers: one feature per place in them; they are as long for each node."""

    kind, gap, peeks, width = LIST, "list", True, 0

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self.first = ""

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        lengths = pc.list_value_length(column)
        if not self.width and lengths.null_count < len(lengths):
            row = int(np.flatnonzero(lengths.is_valid().to_numpy())[0])
            self.first, self.width = f"for node {ids[row].as_py()!r}", lengths[row].as_py()
            if not self.width:
                raise empty(self.name, self.path)

    def needs_another_look(self) -> bool:
        return not self.width

    def _cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        lengths = pc.list_value_length(column)
        known = lengths.is_valid().to_numpy()
        other = np.flatnonzero(known & (pc.fill_null(lengths, 0).to_numpy() != self.width))
        if other.size:
            row = int(other[0])
            raise DatasetError(
                f"column {self.name!r} of {self.path} has {lengths[row].as_py():,} numbers for "
                f"node {ids[row].as_py()!r} but {self.width:,} {self.first}; "
                "give all nodes lists of the same length."
            )
        found = np.full((len(ids), self.width), np.nan)
        cells = pc.list_flatten(column)  # which a fixed-size list has for its gaps, too
        if len(cells) == self.width * len(ids) > self.width * known.sum():
            cells = pc.list_flatten(column.filter(pa.array(known)))
        found[known] = self._numbers(cells).reshape(-1, self.width)
        return self.checked(found, ids)


class Times(Column):
    """Dates and times in a type of their own."""

    def __init__(self, name: str, path: Path, kind: pa.DataType) -> None:
        super().__init__(name, path)
        self.kind = DATE if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else TIME

    def _cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        return self.checked(self._numbers(as_elapsed(column)), ids)


class Words(Column):
    """Text whose values are known: :meth:`text` gives the cells."""

    kind = TEXT

    def text(self, column: pa.ChunkedArray) -> pa.Array:
        """The cells as text, null where there is none."""
        return as_text(column, self.name, self.path)


class _Readable(Words):
    """Text that may spell numbers, in one of several ways."""

    ways: list[Way]

    @property
    def _is_csv(self) -> bool:
        return self.path.suffix == ".csv"

    def read(self, column: pa.ChunkedArray) -> pa.Array | None:
        """The numbers that all cells spell in the first of the ways that are left."""
        way = self.ways[0]
        if way is spelled_numbers:
            try:
                return one_chunk(column.cast(pa.float64()))
            except pa.ArrowInvalid:  # a blank, or no number
                pass
        text = self.without_gaps(column)
        return None if way(text[:SAMPLE]) is None else way(text)

    def without_gaps(self, column: pa.ChunkedArray) -> pa.Array:
        text = self.text(column)
        if not self._is_csv:
            return text
        return without_gaps(text)


class Spelled(_Readable):
    """Text where numbers, dates or times are to be spelled, as they were in training."""

    def __init__(self, name: str, path: Path, kind: str) -> None:
        super().__init__(name, path)
        self.kind, self.ways = kind, list(WAYS_OF[kind])

    def _cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        for way in WAYS_OF[self.kind]:
            self.ways = [way]
            found = self.read(column)
            if found is not None:
                return self.checked(self._numbers(pa.chunked_array([found])), ids)
        row = first_odd(WAYS_OF[self.kind][0], self.without_gaps(column))
        raise DatasetError(
            f"column {self.name!r} of {self.path} has {column[row].as_py().strip()!r} for node "
            f"{ids[row].as_py()!r} but the model was trained with a {self.kind}; correct that "
            "value."
        )


class Text(_Readable):
    """Text of which nothing is known yet: values, unless all of it can be read as numbers.

    ``most_values`` is how many it may have; None if more than can be counted make it a key.
    """

    looks = True

    def __init__(self, name: str, path: Path, most_values: int | None) -> None:
        super().__init__(name, path)
        self.ways = list(WAYS) if self._is_csv else [spelled_dates]
        self._most_values = most_values
        self.values: dict[str, list[Any]] = {}  # the first node that has it, and how many do
        self.filled, self.gaps, self.uncounted = 0, 0, False
        self._looks, self._missed = 0, False
        self._odd: tuple[str, str] | None = None  # the value that is no number, and its node

    def look(self, column: pa.ChunkedArray, ids: pa.Array) -> None:
        while self.ways and not self._missed:
            found = self.read(column)
            if found is not None:
                self.filled += len(found) - found.null_count
                self._looks += 1
                return
            if self.filled and self._odd is None:
                row = first_odd(self.ways[0], self.without_gaps(column))
                self._odd = column[row].as_py().strip(), ids[row].as_py()
            del self.ways[0]
            self._missed = self._looks > 0  # what was read in this way is to be read in another
        if not self._missed:
            text = self.text(column)
            self.filled += len(text) - text.null_count
            self.gaps += text.null_count
            self._note(text, ids)

    def needs_another_look(self) -> bool:
        again = self._missed
        if again:
            self.filled, self._looks, self._missed = 0, 0, False
        return again

    def close(self) -> None:
        """Once all cells have been seen: it is numbers, or text from here on."""
        if self._is_csv and not self.filled:
            raise empty(self.name, self.path)
        if not self.filled:
            self.ways = []
        for kind, ways in WAYS_OF.items():
            if self.ways and self.ways[0] in ways:
                self.kind, self.truth = kind, self.ways[0] is spelled_truths

    def _cells(self, column: pa.ChunkedArray, ids: pa.Array) -> np.ndarray:
        found = self.read(column)
        assert found is not None  # it was, when the column was looked at
        return self.checked(self._numbers(pa.chunked_array([found])), ids)

    def _note(self, text: pa.Array, ids: pa.Array) -> None:
        """Count the values, each with the id of the node that has it first."""
        if self.uncounted:
            return
        coded = text.dictionary_encode()
        codes = pc.fill_null(coded.indices, -1).to_numpy()
        counts = np.bincount(codes + 1, minlength=len(coded.dictionary) + 1)[1:]
        rows = np.empty(len(coded.dictionary) + 1, np.int64)
        rows[codes[::-1]] = np.arange(len(codes))[::-1]  # the first row that has it is the last set
        found = zip(coded.dictionary.to_pylist(), rows.tolist(), counts.tolist(), strict=False)
        for value, row, count in found:
            if value in self.values:
                self.values[value][1] += count
            else:
                self.values[value] = [ids[row].as_py(), count]
        if self._most_values is None:
            self.uncounted = len(self.values) > MOST_COUNTED
            if self.uncounted:
                self.values = {}
        elif len(self.values) > self._most_values:
            raise DatasetError(
                f"text column {self.name!r} of {self.path} has more than {self._most_values:,} "
                "different values; remove it, or replace it by numbers."
                if self._odd is None
                else f"column {self.name!r} of {self.path} is taken as text because of "
                f"{self._odd[0]!r} (node {self._odd[1]!r}) and has more than "
                f"{self._most_values:,} different values; correct that value or remove the column."
            )

    @property
    def is_key(self) -> bool:
        """Whether hardly any value is repeated."""
        many = len(self.values)
        return self.uncounted or (many >= MANY_VALUES and many >= NEARLY_ALL * self.filled)

    @property
    def is_constant(self) -> bool:
        """Whether every row has the same value: a gap would be another one."""
        return len(self.values) == 1 and not self.gaps

    @property
    def shown_values(self) -> str:
        return f"{len(self.values):,}" if self.values else f"more than {MOST_COUNTED:,}"

    def frequent(self, most: int | None) -> tuple[tuple[str, ...], bool]:
        """Its values, sorted, and False; or the ``most`` - 1 most frequent ones, and True.

        Of values that are as frequent the last are taken, as scikit-learn's OneHotEncoder does.
        """
        values = sorted(self.values)
        if most is None or len(values) <= most:
            return tuple(values), False
        order = sorted(range(len(values)), key=lambda i: self.values[values[i]][1])
        return tuple(values[i] for i in sorted(order[-(most - 1) :])), True

    def typing_error(self) -> str | None:
        """One "1,5" makes a column of numbers a column of text; that must not pass in silence."""
        values = sorted(set(self.values) - (GAP_WORDS if self._is_csv else set()))
        odd, meant = [value for value in values if math.isnan(as_number(value))], "number"
        text = pa.array(values, pa.large_string())
        if 2 * len(odd) >= len(values):
            iso = pc.replace_substring_regex(text, DOTTED, AS_ISO)
            no_date = pc.invert(pc.match_substring_regex(iso, DATE_TEXT))
            odd, meant = text.filter(no_date).to_pylist(), "date"
        if 2 * len(odd) >= len(values):
            like = pc.sum(pc.match_substring_regex(text, LIKE_DATES)).as_py() or 0
            if 2 * like <= len(values):
                return None
            return (
                f"the values of column {self.name!r} of {self.path} look like dates, such as "
                f"{values[0]!r}, but are taken as text; write YYYY-MM-DD if dates are meant"
            )
        if not odd:
            return None
        count, total = (sum(self.values[value][1] for value in some) for some in (odd, values))
        return (
            f"column {self.name!r} of {self.path} is taken as text because {count:,} of "
            f"{total:,} values {'is' if count == 1 else 'are'} no {meant}: {odd[0]!r} (node "
            f"{self.values[odd[0]][0]!r}); correct {'it' if count == 1 else 'them'} if {meant}s "
            "are meant"
        )
