"""The feature columns of a node table larger than memory, as dense float32 rows.

Numbers and lists of numbers are as wide in every batch. A text column needs a first pass: which
values it has decides how many features it becomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from hoplite.datasets.table_batches import TableReader
from hoplite.datasets.table_features import (
    _is_list,
    _is_number,
    _lists,
    _numbers,
    _warn_about_keys,
    _warn_about_typing_errors,
)
from hoplite.datasets.table_files import as_number, as_text, is_text, pc
from hoplite.datasets.table_times import as_elapsed, is_temporal, spelled_dates, warn_about_times
from hoplite.errors import DatasetError

MOST_VALUES = 10_000  # of a text column: each is a dense feature of every node


class FeatureColumns:
    """The features of ``columns``: ``names`` of them, and a batch's rows of X."""

    def __init__(self, reader: TableReader, columns: list[str]) -> None:
        self._path, self.columns = reader.path, columns
        if not columns:
            raise DatasetError(
                f"{reader.path} has no feature column; add at least one besides id, label and "
                "split."
            )
        kinds = {name: _plain(reader.schema.field(name).type) for name in columns}
        texts = [name for name in columns if is_text(kinds[name])]
        for name in columns:
            if is_temporal(kinds[name]):
                warn_about_times(name, reader.path)
        self._values = _distinct(reader, texts) if texts else {}
        self._lists = {name for name in columns if _is_list(kinds[name])}
        widths = self._first_widths(reader)
        self._width, self.names = {}, ()
        for name in columns:
            own = self._own_names(name, kinds[name], reader, widths)
            self._width[name] = len(own)
            self.names += own
        if len(set(self.names)) < len(self.names):
            raise DatasetError(
                f"{reader.path} has columns that become features of the same name; rename one."
            )
        self.width = len(self.names)
        if not self.width:
            raise DatasetError(f"{reader.path} has only empty feature columns; fill at least one.")

    def width_of(self, columns: Iterable[str]) -> int:
        """How many features these columns are."""
        return sum(self._width[name] for name in columns)

    def dense(self, table: pa.Table, columns: Sequence[str], ids: pa.Array) -> np.ndarray:
        """The features of ``columns`` for some rows: (rows, width) in float32."""
        out = np.zeros((len(ids), self.width_of(columns)), np.float32)
        start = 0
        for name in columns:
            part = out[:, start : start + self._width[name]]
            self._fill(part, table[name], name, ids)
            start += self._width[name]
        return out

    def _fill(self, out: np.ndarray, column: pa.ChunkedArray, name: str, ids: pa.Array) -> None:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name in self._lists:
            values = _lists(column, name, ids, self._path).values
            if values.shape[1] != out.shape[1]:
                raise DatasetError(
                    f"column {name!r} of {self._path} has {values.shape[1]:,} numbers for node "
                    f"{ids[0].as_py()!r} but {out.shape[1]:,} for the first node; "
                    "give all nodes lists of the same length."
                )
            out[:] = values
        elif is_temporal(column.type):
            out[:] = _numbers(as_elapsed(column), name, ids, self._path)
        elif name not in self._values:
            out[:] = _numbers(column, name, ids, self._path)
        else:
            text = _text(column, name, self._path)
            values, numbers = self._values[name]
            codes = pc.index_in(text, value_set=pa.array(values, pa.large_string()))
            if numbers is not None:
                found = pa.chunked_array([pa.array(numbers).take(codes)])
                out[:] = _numbers(found, name, ids, self._path)
                return
            places = pc.fill_null(codes, -1).to_numpy()
            rows = np.flatnonzero(places >= 0)
            out[rows, places[rows]] = 1

    def _own_names(
        self, name: str, kind: pa.DataType, reader: TableReader, widths: dict[str, int]
    ) -> tuple[str, ...]:
        if name in self._values:
            values, numbers = self._values[name]
            return (name,) if numbers is not None else tuple(f"{name}={v}" for v in values)
        if name in self._lists:
            return tuple(f"{name}[{i}]" for i in range(widths[name]))
        if not (_is_number(kind) or is_temporal(kind)):
            raise DatasetError(
                f"column {name!r} of {reader.path} has type {kind}; "
                "features are numbers, lists of numbers or text."
            )
        return (name,)

    def _first_widths(self, reader: TableReader) -> dict[str, int]:
        """How long the lists of the first row are."""
        if not self._lists:
            return {}
        batch = next(reader.batches(sorted(self._lists)), None)
        if batch is None:
            return dict.fromkeys(self._lists, 0)
        lengths = {name: pc.list_value_length(batch.table[name])[0] for name in self._lists}
        return {name: length.as_py() or 0 for name, length in lengths.items()}


def _distinct(
    reader: TableReader, columns: list[str]
) -> dict[str, tuple[list[str], np.ndarray | None]]:
    """The values of each text column, sorted; if all are numbers (in CSV) or dates, those too."""
    first: dict[str, dict[str, str]] = {name: {} for name in columns}
    filled = dict.fromkeys(columns, 0)
    for group in reader.groups(columns):
        for batch in reader.batches([*group, "id"]):
            ids = batch.filled_text("id", reader.path)
            for name in group:
                text = _text(batch.table[name], name, reader.path)
                filled[name] += len(text) - text.null_count
                _add(first[name], text, ids)
                if len(first[name]) > MOST_VALUES:
                    raise DatasetError(
                        f"text column {name!r} of {reader.path} has more than {MOST_VALUES:,} "
                        "different values; remove it, or replace it by numbers."
                    )
    found: dict[str, tuple[list[str], np.ndarray | None]] = {}
    for name in columns:
        values = sorted(first[name])
        numbers = np.array([as_number(value) for value in values], np.float64)
        if reader.is_csv and values and not np.isnan(numbers).any():
            found[name] = (values, numbers)
            continue
        text = pa.array(values, pa.large_string())
        dates = spelled_dates(text)
        if dates is not None:
            warn_about_times(name, reader.path)
            found[name] = (values, dates.to_numpy())
            continue
        ids = pa.array([first[name][value] for value in values], pa.large_string())
        _warn_about_keys(name, len(values), filled[name], reader.path)
        _warn_about_typing_errors(name, values, text, ids, reader.path)
        found[name] = (values, None)
    return found


def _add(first: dict[str, str], text: pa.Array, ids: pa.Array) -> None:
    """Note the values that are new, each with the id of the node that has it first."""
    coded = text.dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy()
    rows = dict(zip(*np.unique(codes, return_index=True), strict=True))
    for code, value in enumerate(coded.dictionary.to_pylist()):
        if value not in first:
            first[value] = ids[int(rows[code])].as_py()


def _text(column: pa.ChunkedArray, name: str, path: object) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return as_text(column, name, path)  # pyright: ignore[reportArgumentType]


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
