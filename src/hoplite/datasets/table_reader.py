"""CSV and Parquet tables a batch of rows at a time, with errors that name file, column and row.

A cell of a CSV file is text here, whatever it spells: what a column means is decided by all of its
cells (:mod:`hoplite.datasets.table_features`) and never by those that are read first.
"""

from __future__ import annotations

import difflib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
from pyarrow import csv, parquet

from hoplite.errors import DatasetError, HopliteWarning, nearest_hint, some_of
from hoplite.files import open_regular

# PyArrow makes these functions when it is imported, so type checkers cannot see them.
pc: Any = pyarrow.compute

SUFFIXES = (".csv", ".parquet")
NEAR_MISS = 0.8
CELL_BYTES = 3  # of a Parquet file, on average, that are as costly as so many of a CSV file
MOST_COLUMNS = 50_000  # of a table: each costs some memory and time of its own
HEADER_BYTES = 1 << 24  # of a CSV file, searched for the end of its header
# Bytes of a CSV file read at a time: a row must fit, and PyArrow reads 32 of them ahead.
LEAST_BLOCK, MOST_BLOCK, BLOCKS = 1 << 19, 16 << 20, 64
WHOLE_BLOCK = 64 << 20  # where the whole table is held
FORMS = 16  # a batch exists in so many forms at once: levels, values, text, keys, numbers
WORD_BYTES = 8  # of a cell that is empty
ROW_BYTES = 512  # of the text and the keys of a row that is short in the file
READ_AHEAD = 1 << 16  # bytes of a Parquet column buffered at a time
# A Parquet column is read page by page, whatever its row group: packed, raw, and its dictionary.
PAGE_BYTES, PAGES = 1 << 20, 4
PROBE = 1 << 10  # rows read to see how large they are in memory
_QUOTED, _LINE_END = re.compile(rb'"[^"]*"'), re.compile(rb"[\r\n]")
# What PyArrow raises when it reads a file that is damaged, or larger than memory.
FAILURES = (pa.ArrowException, OSError, ValueError)
# pandas stores a row index under this name; it is no column of the user's.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


@functools.cache
def text_scalar(value: str | None) -> pa.Scalar:
    """A text, made once and not at import: PyArrow imports pandas whenever it makes a scalar."""
    return pa.scalar(value, pa.large_string())


def has_table(folder: Path, stem: str) -> bool:
    return any((folder / f"{stem}{suffix}").is_file() for suffix in SUFFIXES)


def other_tables(folder: Path) -> list[str]:
    """The names of the tables that ``folder`` has and that nothing is read from."""
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    return [path.name for path in files if path.stem not in ("nodes", "edges")]


def find_table(folder: Path, stem: str) -> Path:
    """The one of ``stem.csv`` and ``stem.parquet`` that ``folder`` has; both is an error."""
    found = [folder / f"{stem}{suffix}" for suffix in SUFFIXES]
    found = [path for path in found if path.is_file()]
    if not found:
        others = other_tables(folder) if folder.is_dir() else []
        rename = f", or call {some_of(others)} so" if len(others) == 1 else ""
        raise DatasetError(
            f"{folder} has no {stem}.csv or {stem}.parquet; add one of them{rename}."
        )
    if len(found) > 1:
        raise DatasetError(
            f"{folder} has both {stem}.csv and {stem}.parquet; remove one, "
            "so that it is clear which counts."
        )
    return found[0]


def table_bytes(path: Path) -> int:
    """The bytes of the file, or of its cells: Parquet writes a text that repeats only once."""
    size = path.stat().st_size
    if path.suffix == ".csv":
        return size
    try:
        with parquet.ParquetFile(path) as file:
            return max(size, CELL_BYTES * file.metadata.num_rows * file.metadata.num_columns)
    except (pa.ArrowException, OSError, ValueError):  # whoever reads it will say what is wrong
        return size


class Batch(NamedTuple):
    """Some rows of the table in ``path``; ``first`` is the number of rows before them."""

    path: Path
    first: int
    table: pa.Table

    def text(self, column: str, *, fractions: bool = False) -> pa.Array:
        """The column as :func:`as_text` gives it."""
        values = self.table[column]
        return as_text(values, column, self.path, first=self.first, fractions=fractions)

    def filled_text(self, column: str) -> pa.Array:
        """The column as text; an empty cell is an error."""
        text = self.text(column)
        if text.null_count:
            row = int(np.flatnonzero(text.is_null().to_numpy(zero_copy_only=False))[0])
            raise DatasetError(
                f"column {column!r} of {self.path} is empty in data row {self.first + row + 1:,}; "
                "fill it or remove the row."
            )
        return text


class TableReader:
    """The table in ``path``, as often as it is asked for.

    ``room`` is the memory that a batch may take, in all its forms together; with None the table is
    read once, held, and one batch. Of a Parquet file only as many columns should be read at once
    as :meth:`groups` says. A ``table`` that is in memory already is held as well, and ``path`` is
    only what messages call it.
    """

    def __init__(self, path: Path, room: int | None, table: pa.Table | None = None) -> None:
        self.path, self._room = path, room
        self.id, self.label = "id", "label"  # of nodes: the columns that are ids and labels
        self.is_csv = path.suffix == ".csv"
        self._buffers: dict[str, float] = {}
        self._row_bytes: dict[str, float] = {}
        self._held: Batch | None = None
        self._added: pa.Array | None = None  # ids of rows that are behind the last of the file
        if table is None:
            check_file(path)
            try:
                schema = self._csv_schema() if self.is_csv else self._parquet_schema()
                _ = schema.names  # fails if one is not UTF-8
            except FAILURES as error:
                raise unreadable(path, error) from error
        else:
            schema, self._held = table.schema, Batch(path, 0, checked_values(path, table))
        names = checked_names(path, schema)
        kinds = [pa.large_string() if self.is_csv else schema.field(name).type for name in names]
        self.kinds: dict[str, pa.DataType] = dict(zip(names, kinds, strict=True))

    @property
    def names(self) -> list[str]:
        return list(self.kinds)

    @property
    def room(self) -> int:
        """The memory for a batch; all that one could ask for if the table is held."""
        return 2**62 if self._room is None else self._room

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows of the table from the first to the last; only ``columns`` if given."""
        if self._held is not None:
            if self._held.table.num_rows:
                yield self._held
            return
        hold = self._room is None
        asked = self.kinds if columns is None or hold else frozenset(columns)
        wanted = [name for name in self.kinds if name in asked]
        first = 0
        pieces = self._csv_pieces(wanted) if self.is_csv else self._parquet_pieces(wanted)
        while True:
            try:
                piece = next(pieces, None)
            except FAILURES as error:
                raise unreadable(self.path, error) from error
            if piece is None:
                break
            if piece.num_rows:
                batch = Batch(self.path, first, checked_values(self.path, piece))
                if hold:
                    self._held = batch
                yield batch
            first += piece.num_rows
            del piece
            pa.default_memory_pool().release_unused()
        if self._added is not None:
            step = int(np.clip(self.room // (FORMS * WORD_BYTES * len(wanted)), 16, 1 << 20))
            for start in range(0, len(self._added), step):
                ids = self._added.slice(start, step)
                yield Batch(self.path, first + start, self._empty(wanted, ids))

    def add_rows(self, ids: pa.Array) -> None:
        """Behind the last row one for each of ``ids`` (text), with no other value."""
        if self._room is None:
            next(self.batches(), None)  # it is held from now on, if it has a row
        held = self._held
        if held is None:
            self._added = ids
            return
        names = pa.concat_arrays([held.filled_text(self.id), ids])
        table = held.table.select(self.names)
        table = pa.concat_tables([table, empty_rows(table.schema, len(ids))])
        place = table.column_names.index(self.id)
        self._held = Batch(self.path, 0, table.set_column(place, self.id, names))

    def _empty(self, columns: list[str], ids: pa.Array) -> pa.Table:
        table = empty_rows(pa.schema([(name, self.kinds[name]) for name in columns]), len(ids))
        if self.id not in columns:
            return table
        return table.set_column(columns.index(self.id), self.id, ids)

    def groups(self, columns: Sequence[str]) -> list[list[str]]:
        """``columns`` in runs, in their order, whose buffers together fit into half of the room."""
        if self.is_csv or self._room is None:
            return [list(columns)]
        found: list[list[str]] = []
        left = 0.0
        for name in columns:
            buffers = self._buffers[name]
            if not found or buffers > left:
                found.append([])
                left = self.room / 2
            found[-1].append(name)
            left -= buffers
        return found

    def _csv_pieces(self, columns: list[str]) -> Iterator[pa.Table]:
        options = self._csv_options(dict.fromkeys(columns, pa.large_string()), self._block)
        if self._room is None:
            yield csv.read_csv(self.path, **options)
            return
        with csv.open_csv(self.path, **options) as reader:
            for piece in reader:
                yield pa.Table.from_batches([piece])

    def _csv_schema(self) -> pa.Schema:
        block = LEAST_BLOCK
        while True:
            try:
                with csv.open_csv(self.path, **self._csv_options({}, block)) as file:
                    return file.schema
            except pa.ArrowInvalid:  # the header or the first row may be longer
                if block == self._block:
                    raise
                block = self._block

    @property
    def _block(self) -> int:
        """Bytes of a CSV file that are read at a time."""
        if self._room is None:
            return WHOLE_BLOCK
        return int(np.clip(self._room // BLOCKS, LEAST_BLOCK, MOST_BLOCK))

    def _csv_options(self, types: dict[str, pa.DataType], block: int) -> dict[str, Any]:
        """To read the columns in ``types``; all of them, of guessed types, if there are none."""
        return {
            "read_options": csv.ReadOptions(block_size=block, use_threads=self._room is None),
            "parse_options": csv.ParseOptions(newlines_in_values=True),
            "convert_options": csv.ConvertOptions(column_types=types, include_columns=list(types)),
        }

    def _parquet_pieces(self, columns: list[str]) -> Iterator[pa.Table]:
        with self._open_parquet() as file:
            if self._room is None:
                yield file.read().select(columns)
                return
            row_bytes = sum(self._row_bytes[name] for name in columns)
            for piece in file.iter_batches(PROBE, columns=columns, use_threads=False):
                # text that repeats is small in the file
                row_bytes = max(row_bytes, piece.nbytes / max(piece.num_rows, 1))
                break
            rows = int(np.clip(self.room / 2 / (FORMS * row_bytes + ROW_BYTES), 16, 1 << 20))
            for piece in file.iter_batches(rows, columns=columns, use_threads=False):
                yield pa.Table.from_batches([piece])

    def _open_parquet(self) -> parquet.ParquetFile:
        return parquet.ParquetFile(self.path, buffer_size=READ_AHEAD, pre_buffer=False)

    def _parquet_schema(self) -> pa.Schema:
        """The schema; per column, what its buffers take and how many bytes a row has."""
        with self._open_parquet() as file:
            meta, schema = file.metadata, file.schema_arrow
            largest = np.zeros(meta.num_columns)
            total = np.zeros(meta.num_columns)
            for i in range(meta.num_row_groups):
                group = meta.row_group(i)
                sizes = [group.column(j).total_uncompressed_size for j in range(group.num_columns)]
                largest, total = np.maximum(largest, sizes), total + sizes
            buffers = PAGES * np.minimum(largest, PAGE_BYTES) + READ_AHEAD
            ends = np.cumsum([0, *(_leaves(field.type) for field in schema)])
            if ends[-1] != meta.num_columns:
                raise ValueError("its columns are not those of its schema")
            for name, start, stop in zip(schema.names, ends[:-1], ends[1:], strict=True):
                self._buffers[name] = float(buffers[start:stop].sum())
                self._row_bytes[name] = float(total[start:stop].sum()) / max(meta.num_rows, 1)
        return schema


def empty_rows(schema: pa.Schema, count: int) -> pa.Table:
    """A table of ``count`` rows without any value."""
    return pa.Table.from_arrays([pa.nulls(count, kind) for kind in schema.types], schema=schema)


def _leaves(kind: pa.DataType) -> int:
    """How many columns of a Parquet file a column of this type is."""
    children = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return sum(_leaves(kind.field(i).type) for i in children) or 1


def check_file(path: Path) -> None:
    """Refuse what is no regular file, and a CSV file of more columns than PyArrow reads well."""
    try:
        with open_regular(path) as file:
            head = file.read(HEADER_BYTES) if path.suffix == ".csv" else b""
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    header = _LINE_END.split(_QUOTED.sub(b"", head), maxsplit=1)[0]
    _refuse_width(path, header.count(b",") + 1)


def _refuse_width(path: Path, columns: int) -> None:
    if columns > MOST_COLUMNS:
        raise DatasetError(
            f"{path} has {columns:,} columns and at most {MOST_COLUMNS:,} are read; give so many "
            "numbers as one column of lists, in Parquet."
        )


def unreadable(path: Path, error: BaseException) -> DatasetError:
    """What to tell when PyArrow fails on the file with one of :data:`FAILURES`."""
    reason = (str(error).splitlines() or [""])[0].rstrip(".")
    if isinstance(error, MemoryError):
        return DatasetError(
            f"{path} needs more memory than there is ({reason}); write it in smaller row groups."
        )
    if path.suffix == ".csv" and not isinstance(error, OSError):
        try:
            _refuse_encoding(path)
            _refuse_separator(path)
        except DatasetError as clearer:
            return clearer
    kind = "CSV" if path.suffix == ".csv" else "Parquet"
    return DatasetError(f"{path} cannot be read as {kind}: {reason}.")


def checked_names(path: Path, schema: pa.Schema) -> list[str]:
    """The columns of the user, each with a name of its own."""
    _refuse_width(path, len(schema))
    if path.suffix == ".csv" and any(pa.types.is_binary(kind) for kind in schema.types):
        _refuse_encoding(path)
    if path.suffix == ".csv" and len(schema) == 1:
        _refuse_separator(path)
    names = [name for name in schema.names if not _PANDAS_INDEX.fullmatch(name)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DatasetError(f"{path} has several columns {min(repeated)!r}; rename all but one.")
    if any(not name.strip() for name in names):
        raise DatasetError(
            f"{path} has a column without a name; name it, or remove it if it only numbers rows."
        )
    return names


def checked_values(path: Path, table: pa.Table) -> pa.Table:
    """The table, of which every offset, index and letter is sound: a file may say anything."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except FAILURES as error:
            reason = (str(error).splitlines() or [""])[0].rstrip(".")
            raise DatasetError(
                f"column {name!r} of {path} is damaged ({reason}); write the file again."
            ) from error
    return table


def check_columns(
    names: Sequence[str],
    required: Sequence[str],
    optional: Sequence[str],
    path: Path,
    others: str,
    options: Mapping[str, str],
) -> None:
    """Refuse missing columns and 'Label' for 'label'; warn of 'lable' if there is no 'label'.

    ``others`` says what becomes of the columns that are neither required nor optional, ``options``
    by which option a required one is named.
    """
    for name in names:
        meant = name.strip().lower()
        if meant != name and meant in (*required, *optional):
            raise DatasetError(f"column {name!r} of {path} looks like {meant!r}; rename it.")
    missing = [column for column in required if column not in names]
    if missing:
        asked = [options[column] for column in missing]
        flags = f"--{' and --'.join(asked)}, {'= and '.join(asked)}= in Python"
        some = len(missing) > 1
        raise DatasetError(
            f"{path} has no column{'s' * some} {' and '.join(map(repr, missing))} (it starts with "
            f"{', '.join(map(repr, names[:10]))}); "
            f"{'add them or name others' if some else 'add it or name another'} ({flags})."
            f"{max((nearest_hint(column, names) for column in missing), key=len)}"
        )
    rest = {name.strip().lower(): name for name in names if name not in (*required, *optional)}
    for column in optional:
        near = [] if column in names else difflib.get_close_matches(column, rest, 1, NEAR_MISS)
        if near:
            warnings.warn(
                f"column {rest[near[0]]!r} of {path} is {others} although it looks like "
                f"{column!r}; rename it if {column!r} is meant.",
                HopliteWarning,
                stacklevel=3,
            )


def as_text(
    column: pa.ChunkedArray, name: str, path: Path, *, first: int = 0, fractions: bool = False
) -> pa.Array:
    """The column as text without surrounding white space, null where nothing is left.

    Whole numbers have no decimal point, so the id 7 is the same in a CSV file, in an integer
    column, and in the float column that pandas makes of integers with gaps. Other numbers are
    refused, or with ``fractions`` written as short as possible. ``first`` is the number of rows of
    the table before these.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_floating(kind):
        column = _floats(column, name, path, first, fractions)
    elif not (is_text(kind) or _is_plain(kind)):
        raise DatasetError(
            f"column {name!r} of {path} has type {kind}; it must hold text or integers."
        )
    text = column.cast(pa.large_string()).combine_chunks()
    if isinstance(text, pa.ChunkedArray):  # older PyArrow keeps an empty column chunked
        text = pa.concat_arrays(text.chunks) if text.chunks else pa.array([], pa.large_string())
    if is_text(kind):
        text = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.equal(text, text_scalar("")), text_scalar(None), text)


def is_text(kind: pa.DataType) -> bool:
    """Text in any of Arrow's forms, also as a dictionary (pandas calls that categorical)."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    view = getattr(pa.types, "is_string_view", None)  # PyArrow 16 and later
    string = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return string or (view is not None and view(kind))


def as_number(text: str | None) -> float:
    """The number that a text spells, NaN if it spells none.

    >>> as_number("2.5"), as_number("2,5")
    (2.5, nan)
    """
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _floats(
    column: pa.ChunkedArray, name: str, path: Path, first: int, fractions: bool
) -> pa.ChunkedArray:
    """The column as integers if all are whole, otherwise as text or an error."""
    given = column.to_numpy()
    values = given.astype(np.float64)
    missing = np.isnan(values)
    whole = missing | (np.isfinite(values) & (values == np.round(values)) & (abs(values) < 2**53))
    if not whole.all() and fractions:
        cells = zip(given, missing, whole, strict=True)  # str() of a float32 is shorter
        text = [None if gap else str(int(x) if exact else x) for x, gap, exact in cells]
        return pa.chunked_array([pa.array(text, pa.large_string())])
    if not whole.all():
        row = int(np.flatnonzero(~whole)[0])
        raise DatasetError(
            f"column {name!r} of {path} has {values[row]:g} in data row {first + row + 1:,}; "
            "it must hold text or integers."
        )
    return pa.chunked_array([pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)])


def _refuse_encoding(path: Path) -> None:
    good = 0
    try:
        with path.open("rb") as file:
            for line in file:
                line.decode()
                good += 1
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} is not UTF-8 (first in line {good + 1:,}); save it as UTF-8."
        ) from error


def _refuse_separator(path: Path) -> None:
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if separator in header and "," not in header:
            raise DatasetError(
                f"{path} seems to separate its columns by {name}; separate them by commas."
            )
