"""CSV and Parquet tables a batch of rows at a time, with errors that name file, column and row."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from hoplite.datasets.table_files import (
    FAILURES,
    as_text,
    check_file,
    checked_names,
    checked_values,
    unreadable,
)
from hoplite.errors import DatasetError

# Bytes of a CSV file read at a time: a row must fit, and PyArrow reads 32 of them ahead.
LEAST_BLOCK, MOST_BLOCK, BLOCKS = 1 << 19, 16 << 20, 64
FORMS = 16  # a batch exists in so many forms at once: levels, values, text, keys, numbers
ROW_BYTES = 512  # of the text and the keys of a row that is short in the file
READ_AHEAD = 1 << 16  # bytes of a Parquet column buffered at a time
# A Parquet column is read page by page, whatever its row group: packed, raw, and its dictionary.
PAGE_BYTES, PAGES = 1 << 20, 4
PROBE = 1 << 10  # rows read to see how large they are in memory
_CELL = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\S+): invalid value (.*)"
)


class Batch(NamedTuple):
    """Some rows of a table; ``first`` is the number of rows before them."""

    first: int
    table: pa.Table

    def text(self, column: str, path: Path, *, fractions: bool = False) -> pa.Array:
        """The column as :func:`as_text` gives it, but errors name the row of the whole table."""
        values = self.table[column]
        if pa.types.is_floating(values.type) and not fractions:
            self._refuse_fractions(values, column, path)
        return as_text(values, column, path, fractions=fractions)

    def filled_text(self, column: str, path: Path) -> pa.Array:
        """The column as text; an empty cell is an error."""
        text = self.text(column, path)
        if text.null_count:
            row = int(np.flatnonzero(text.is_null().to_numpy(zero_copy_only=False))[0])
            raise DatasetError(
                f"column {column!r} of {path} is empty in data row {self.first + row + 1:,}; "
                "fill it or remove the row."
            )
        return text

    def _refuse_fractions(self, values: pa.ChunkedArray, column: str, path: Path) -> None:
        numbers = values.to_numpy().astype(np.float64)
        missing = np.isnan(numbers)
        whole = missing | ((numbers == np.round(numbers)) & (abs(numbers) < 2**53))
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            raise DatasetError(
                f"column {column!r} of {path} has {numbers[row]:g} in data row "
                f"{self.first + row + 1:,}; it must hold text or integers."
            )


class TableReader:
    """The table in ``path``; in CSV, the columns named in ``text`` stay as they are written.

    ``room`` is the memory that a batch may take, in all its forms together. The types of the other
    columns of a CSV file are guessed from its first block; whole numbers count as numbers. Of a
    Parquet file only as many columns should be read at once as :meth:`groups` says.
    """

    def __init__(self, path: Path, text: Collection[str], room: int) -> None:
        self.path, self._text, self.room = path, frozenset(text), room
        self.is_csv = path.suffix == ".csv"
        self._types: dict[str, pa.DataType] = {}
        self._all_names: list[str] = []
        self._buffers: dict[str, float] = {}
        self._row_bytes: dict[str, float] = {}
        check_file(path)
        try:
            schema = self._open_csv().schema if self.is_csv else self._parquet_schema()
            self._all_names = schema.names  # fails if a name is not UTF-8
        except FAILURES as error:
            raise unreadable(path, error) from error
        kept = set(checked_names(path, schema))
        self.schema = pa.schema([field for field in schema if field.name in kept])
        if self.is_csv:
            self._types = {
                field.name: pa.float64() if _may_grow(field.type) else field.type
                for field in self.schema
                if field.name not in self._text
            }
            fields = [(name, self._types.get(name, pa.large_string())) for name in self.names]
            self.schema = pa.schema(fields)

    @property
    def names(self) -> list[str]:
        return self.schema.names

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        """The rows of the table from the first to the last; only ``columns`` if given."""
        asked = None if columns is None else frozenset(columns)
        wanted = [name for name in self.names if asked is None or name in asked]
        first = 0
        pieces = self._csv_pieces(wanted) if self.is_csv else self._parquet_pieces(wanted)
        while True:
            try:
                piece = next(pieces, None)
            except FAILURES as error:
                raise self._unreadable(error) from error
            if piece is None:
                return
            if piece.num_rows:
                yield Batch(first, checked_values(self.path, pa.Table.from_batches([piece])))
            first += piece.num_rows
            del piece
            pa.default_memory_pool().release_unused()

    def _csv_pieces(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._open_csv(columns) as reader:
            yield from reader

    def groups(self, columns: Sequence[str]) -> list[list[str]]:
        """``columns`` in runs, in their order, whose buffers together fit into half of the room."""
        if self.is_csv:
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

    def _parquet_pieces(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._open_parquet() as file:
            row_bytes = sum(self._row_bytes[name] for name in columns)
            for piece in file.iter_batches(PROBE, columns=columns, use_threads=False):
                # text that repeats is small in the file
                row_bytes = max(row_bytes, piece.nbytes / max(piece.num_rows, 1))
                break
            rows = int(np.clip(self.room / 2 / (FORMS * row_bytes + ROW_BYTES), 16, 1 << 20))
            yield from file.iter_batches(rows, columns=columns, use_threads=False)

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

    def _open_csv(self, columns: list[str] | None = None) -> Any:
        block = int(np.clip(self.room // BLOCKS, LEAST_BLOCK, MOST_BLOCK))
        types = {name: pa.large_string() for name in self._text} | self._types
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=columns or []),
        )

    def _unreadable(self, error: Exception) -> DatasetError:
        cell = _CELL.match(str(error)) if self.is_csv else None
        if cell is None:
            return unreadable(self.path, error)
        # PyArrow counts the header as a row
        name, row = self._all_names[int(cell[1])], int(cell[2]) - 1
        return DatasetError(
            f"column {name!r} of {self.path} has {cell[4]} in data row {row:,} but values of "
            f"type {cell[3]} before; correct it."
        )


def _may_grow(kind: pa.DataType) -> bool:
    """Whether later rows may hold numbers that the guess of the first block would not."""
    return pa.types.is_integer(kind) or pa.types.is_null(kind)


def _leaves(kind: pa.DataType) -> int:
    """How many columns of a Parquet file a column of this type is."""
    children = range(kind.num_fields) if pa.types.is_nested(kind) else ()
    return sum(_leaves(kind.field(i).type) for i in children) or 1
