"""The feature columns of a node table: numbers and lists of them as they are, text one-hot."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hoplite.datasets.table_files import as_number, as_text, is_text, pc
from hoplite.datasets.table_times import (
    as_elapsed,
    is_date,
    is_temporal,
    spelled_dates,
    warn_about_times,
)
from hoplite.errors import DatasetError, HopliteWarning

# Below this share of non-zero cells, CSR is smaller than dense and faster to multiply.
SPARSE_BELOW = 0.1
# A text column is suspicious when it has many values and hardly any repeats.
MANY_VALUES = 20
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class _Block:
    """The features that one column gives.

    Numbers: values of shape (nodes, names). Text: a name per distinct value, and per node the
    index of the one that is 1, or -1.
    """

    names: list[str]
    values: np.ndarray
    one_hot: bool

    def nonzeros(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and values of the entries that are not 0."""
        if self.one_hot:
            rows = np.flatnonzero(self.values >= 0)
            return rows, self.values[rows], np.ones(rows.size, np.float32)
        rows, columns = np.nonzero(self.values)
        return rows, columns, self.values[rows, columns]

    def fill(self, out: np.ndarray) -> None:
        """Write the block to ``out``, which is all zeros."""
        if self.one_hot:
            rows, columns, ones = self.nonzeros()
            out[rows, columns] = ones
        else:
            out[:] = self.values

    def count(self) -> int:
        return int(np.count_nonzero(self.values >= 0 if self.one_hot else self.values))


def read_features(
    table: pa.Table, columns: list[str], ids: pa.Array, path: Path
) -> tuple[np.ndarray | sp.csr_array, tuple[str, ...]]:
    """Features of shape (rows, d) in float32, dense or CSR, whichever is smaller; d names."""
    if not columns:
        raise DatasetError(
            f"{path} has no feature column; add at least one besides id, label and split."
        )
    blocks = [_block(table[column], column, ids, path) for column in columns]
    names = tuple(name for block in blocks for name in block.names)
    if not names:
        raise DatasetError(f"{path} has only empty feature columns; fill at least one.")
    _refuse_same_names(columns, blocks, path)
    n, d = table.num_rows, len(names)
    starts = np.cumsum([0, *(len(block.names) for block in blocks)])
    placed = list(zip(starts[:-1], blocks, strict=True))
    if sum(block.count() for block in blocks) >= SPARSE_BELOW * n * d:
        dense = np.zeros((n, d), np.float32)
        for start, block in placed:
            block.fill(dense[:, start : start + len(block.names)])
        return dense, names
    entries = [(start, *block.nonzeros()) for start, block in placed]
    rows = np.concatenate([rows for _, rows, _, _ in entries])
    where = np.concatenate([start + where for start, _, where, _ in entries])
    values = np.concatenate([values for *_, values in entries])
    return sp.csr_array(sp.coo_array((values, (rows, where)), shape=(n, d))), names


def _block(column: pa.ChunkedArray, name: str, ids: pa.Array, path: Path) -> _Block:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_null(kind):
        raise DatasetError(f"column {name!r} of {path} is empty; fill it or remove it.")
    if _is_number(kind):
        return _Block([name], _numbers(column, name, ids, path), one_hot=False)
    if _is_list(kind) and (_is_number(kind.value_type) or pa.types.is_null(kind.value_type)):
        return _lists(column, name, ids, path)
    if is_temporal(kind):
        warn_about_times(name, path)
        return _Block([name], _numbers(as_elapsed(column), name, ids, path), one_hot=False)
    if is_text(kind):
        text = as_text(column, name, path)
        numbers = _spelled_numbers(text) if path.suffix == ".csv" else None
        if numbers is None:
            numbers = spelled_dates(text)
            if numbers is not None:
                warn_about_times(name, path)
        if numbers is not None:
            return _Block([name], _numbers(numbers, name, ids, path), one_hot=False)
        return _one_hot(text, name, ids, path)
    raise DatasetError(
        f"column {name!r} of {path} has type {kind}; "
        "features are numbers, lists of numbers or text."
    )


def _refuse_same_names(columns: list[str], blocks: list[_Block], path: Path) -> None:
    first: dict[str, str] = {}
    for column, block in zip(columns, blocks, strict=True):
        for name in block.names:
            if first.setdefault(name, column) != column:
                raise DatasetError(
                    f"columns {first[name]!r} and {column!r} of {path} both give the feature "
                    f"{name!r}; rename one of them."
                )


def _is_number(kind: pa.DataType) -> bool:
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _lists(column: pa.ChunkedArray, name: str, ids: pa.Array, path: Path) -> _Block:
    """One feature per place in the lists, which are as long for each node."""
    missing = column.is_null().to_numpy()
    if missing.any():
        node = ids[int(np.flatnonzero(missing)[0])].as_py()
        raise DatasetError(
            f"column {name!r} of {path} has no list for node {node!r}; "
            "fill the gap or remove the column."
        )
    lengths = pc.list_value_length(column).to_numpy()
    width = int(lengths[0])
    if (lengths != width).any():
        row = int(np.flatnonzero(lengths != width)[0])
        raise DatasetError(
            f"column {name!r} of {path} has {lengths[row]:,} numbers for node "
            f"{ids[row].as_py()!r} but {width:,} for node {ids[0].as_py()!r}; "
            "give all nodes lists of the same length."
        )
    if not width:
        raise DatasetError(f"column {name!r} of {path} is empty; fill it or remove it.")
    values = _numbers(pc.list_flatten(column), name, ids, path, width)
    return _Block([f"{name}[{i}]" for i in range(width)], values, one_hot=False)


def _numbers(
    column: pa.ChunkedArray, name: str, ids: pa.Array, path: Path, width: int = 1
) -> np.ndarray:
    """The column in float32, in rows of ``width``."""
    if pa.types.is_null(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    missing = column.is_null().to_numpy()
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is reported
        values = pc.fill_null(column, _zero(column.type)).to_numpy().astype(np.float32)
    bad = missing | ~np.isfinite(values)
    if bad.any():
        cell = int(np.flatnonzero(bad)[0])
        what = "no number" if missing[cell] or np.isnan(values[cell]) else "no finite number"
        place = name if width == 1 else f"{name}[{cell % width}]"
        raise DatasetError(
            f"column {place!r} of {path} has {what} for node {ids[cell // width].as_py()!r}; "
            "fill the gap or remove the column."
        )
    return values.reshape(-1, width)


def _spelled_numbers(text: pa.Array) -> pa.ChunkedArray | None:
    """The numbers of a CSV column that PyArrow takes as text because of a blank cell or a "+1"."""
    values = pc.unique(text).drop_null()
    numbers = np.array([as_number(value) for value in values.to_pylist()], np.float64)
    if not numbers.size or np.isnan(numbers).any():
        return None
    return pa.chunked_array([pa.array(numbers).take(pc.index_in(text, value_set=values))])


@functools.cache  # PyArrow looks for pandas whenever it makes a scalar
def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0).cast(kind)


def _one_hot(text: pa.Array, name: str, ids: pa.Array, path: Path) -> _Block:
    """One feature per distinct value, in sorted order; a missing value is a row of zeros."""
    values = sorted(pc.unique(text).drop_null().to_pylist())
    _warn_about_keys(name, len(values), len(text) - text.null_count, path)
    _warn_about_typing_errors(name, values, text, ids, path)
    codes = pc.index_in(text, value_set=pa.array(values, pa.large_string()))
    names = [f"{name}={value}" for value in values]
    return _Block(names, pc.fill_null(codes, -1).to_numpy().astype(np.int64), one_hot=True)


def _warn_about_keys(name: str, distinct: int, count: int, path: Path) -> None:
    if distinct >= MANY_VALUES and distinct >= NEARLY_ALL * count:
        warnings.warn(
            f"text column {name!r} of {path} has {distinct:,} different values in {count:,} rows; "
            "it becomes that many features, so remove it if it is a title or a key.",
            HopliteWarning,
            stacklevel=5,
        )


def _warn_about_typing_errors(
    name: str, values: list[str], text: pa.Array, ids: pa.Array, path: Path
) -> None:
    """One "1,5" makes a CSV column of numbers a column of text; that must not pass in silence."""
    odd, meant = [value for value in values if np.isnan(as_number(value))], "numbers"
    if 2 * len(odd) >= len(values):
        odd, meant = [value for value in values if not is_date(value)], "dates"
    if odd and 2 * len(odd) < len(values):
        node = ids[pc.index(text, pa.scalar(odd[0], pa.large_string())).as_py()].as_py()
        warnings.warn(
            f"column {name!r} of {path} is taken as text because of {odd[0]!r} (node {node!r}) "
            f"although most of its values are {meant}; correct that value if {meant} are meant.",
            HopliteWarning,
            stacklevel=5,
        )
