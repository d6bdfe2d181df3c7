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
    _PANDAS_INDEX,
    _refuse_encoding,
    _refuse_separator,
    as_text,
)
from hoplite.errors import DatasetError

# Bytes of a CSV file read at a time: a row must fit, and PyArrow reads 32 of them ahead.
LEAST_BLOCK, MOST_BLOCK, BLOCKS = 1 << 19, 16 << 20, 64
FORMS = 16  # a batch exists in so many forms at once: levels, values, text, keys, numbers
ROW_BYTES = 512  # of the text and the keys of a row that is short in the file
READ_AHEAD = 1 << 20  # bytes of a Parquet column buffered at a time
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
    columns of a CSV file are guessed from its first block; whole numbers count as numbers.
    """

    def __init__(self, path: Path, text: Collection[str], room: int) -> None:
        self.path, self._text, self._room = path, frozenset(text), room
        self.is_csv = path.suffix == ".csv"
        self._types: dict[str, pa.DataType] = {}
        self._all_names: list[str] = []
        try:
            schema = self._open_csv().schema if self.is_csv else parquet.read_schema(path)
        except Exception as error:
            raise self._unreadable(error) from error
        self._all_names, self.schema = schema.names, self._checked(schema)
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
        wanted = [name for name in self.names if columns is None or name in columns]
        first = 0
        pieces = self._csv_pieces(wanted) if self.is_csv else self._parquet_pieces(wanted)
        while True:
            try:
                piece = next(pieces, None)
            except Exception as error:
                raise self._unreadable(error) from error
            if piece is None:
                return
            if piece.num_rows:
                yield Batch(first, pa.Table.from_batches([piece]))
            first += piece.num_rows
            del piece
            pa.default_memory_pool().release_unused()

    def _csv_pieces(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with self._open_csv(columns) as reader:
            yield from reader

    def _parquet_pieces(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(self.path, buffer_size=READ_AHEAD, pre_buffer=False) as file:
            meta = file.metadata
            groups = [meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)]
            row_bytes = sum(groups) / max(meta.num_rows, 1)
            rows = int(np.clip(self._room / (FORMS * row_bytes + ROW_BYTES), 16, 1 << 20))
            yield from file.iter_batches(rows, columns=columns, use_threads=False)

    def _open_csv(self, columns: list[str] | None = None) -> Any:
        block = int(np.clip(self._room // BLOCKS, LEAST_BLOCK, MOST_BLOCK))
        types = {name: pa.large_string() for name in self._text} | self._types
        return csv.open_csv(
            self.path,
            read_options=csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=columns or []),
        )

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        if self.is_csv and any(pa.types.is_binary(kind) for kind in schema.types):
            _refuse_encoding(self.path)
        if self.is_csv and len(schema) == 1:
            _refuse_separator(self.path)
        kept = [field for field in schema if not _PANDAS_INDEX.fullmatch(field.name)]
        names = [field.name for field in kept]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise DatasetError(
                f"{self.path} has several columns {repeated[0]!r}; rename all but one."
            )
        if any(not name.strip() for name in names):
            raise DatasetError(
                f"{self.path} has a column without a name; name it, or remove it if it only "
                "numbers rows."
            )
        return pa.schema(kept)

    def _unreadable(self, error: Exception) -> Exception:
        if isinstance(error, DatasetError) or not isinstance(
            error, pa.ArrowException | OSError | ValueError
        ):
            return error
        if self.is_csv and not isinstance(error, OSError):
            try:
                _refuse_encoding(self.path)
                _refuse_separator(self.path)
            except DatasetError as clearer:
                return clearer
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        cell = _CELL.match(reason)
        if cell:
            # PyArrow counts the header as a row
            name, row = self._all_names[int(cell[1])], int(cell[2]) - 1
            return DatasetError(
                f"column {name!r} of {self.path} has {cell[4]} in data row {row:,} but values of "
                f"type {cell[3]} before; correct it."
            )
        kind = "CSV" if self.is_csv else "Parquet"
        return DatasetError(f"{self.path} cannot be read as {kind}: {reason}.")


def _may_grow(kind: pa.DataType) -> bool:
    """Whether later rows may hold numbers that the guess of the first block would not."""
    return pa.types.is_integer(kind) or pa.types.is_null(kind)
