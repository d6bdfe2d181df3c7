"""The feature columns of a node table as X: prepared as a model wants it, or as they ask for."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from hoplite.datasets.column_statistics import Moments, Quantiles, Statistics
from hoplite.datasets.table_columns import Column, Lists, Text, empty, known_column, new_column
from hoplite.datasets.table_reader import TableReader, pc
from hoplite.errors import DatasetError, HopliteWarning, nearest_hint, plural
from hoplite.preparation import (
    DATE,
    NUMBER,
    OTHER,
    REFUSE,
    TEXT,
    TIME,
    Preparation,
    PreparedColumn,
    squeezed,
    stretched,
)

# Below this share of non-zero cells, CSR is smaller than dense and faster to multiply.
SPARSE_BELOW = 0.1
# Numbers that are held to find quartiles; rows of a column at least and at most.
SAMPLED, LEAST_ROWS, MOST_ROWS = 1 << 21, 256, 1 << 17
STILL = 1e308  # the scale of what never changed: whatever comes later is 0 in X
LARGE = 100  # a standard deviation from which numbers should be scaled
NAMED, LONGEST = 5, 60  # columns that a message names, letters of a value
ANY_NUMBER = 1 << 62


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

    ``prepare`` is fitted to the table, unless it is fitted already; then its columns are looked
    for, whatever their order. ``most_values`` is how many values a text may have that becomes
    one-hot without limit, None for any number of them.
    """

    def __init__(
        self,
        reader: TableReader,
        columns: list[str],
        prepare: Preparation,
        most_values: int | None = None,
    ) -> None:
        self._path, self._options = reader.path, prepare.options
        if prepare.columns is None:
            self._made = self._new(reader, columns, most_values)
            measured = self._measured(reader)
            self._prepared = {
                name: _text(column, self._options.categories)
                if isinstance(column, Text) and column.kind == TEXT
                else measured[name].prepared(column, self._options.scale)
                for name, column in self._made.items()
            }
            self._warn_about_scales(measured)
            fitted = tuple(self._prepared.values())
            left = [name for name in columns if name not in self._made]
            still = [
                name
                for name, one in self._prepared.items()
                if one.scale and not one.fill and all(by == STILL for by in one.scale)
            ]
            self.preparation = dataclasses.replace(
                prepare,
                options=prepare.options.without(left),
                columns=fitted,
                constant=tuple(name for name in columns if name in {*self._constant, *still}),
            )
        else:
            self.preparation, self._prepared = prepare, {one.name: one for one in prepare.columns}
            self._made = self._known(reader, columns)
            if self._options.gaps == REFUSE:
                self._measured(reader)
        self.columns = list(self._made)
        self._width = {name: len(one.names()) for name, one in self._prepared.items()}
        self._refuse_twins()
        self.names = self.preparation.names
        self.width = len(self.names)
        if not self.width:
            raise DatasetError(f"{self._path} has only empty feature columns; fill at least one.")
        self._values = {
            name: pa.array(one.values, pa.large_string())
            for name, one in self._prepared.items()
            if one.kind == TEXT
        }
        self._new_values: dict[str, int] = {}
        self._new_value: dict[str, tuple[str, str]] = {}  # the first of each, and its node
        self._new_gaps: dict[str, int] = {}

    def width_of(self, columns: Iterable[str]) -> int:
        """How many features these columns are."""
        return sum(self._width[name] for name in columns)

    def dense(self, table: pa.Table, columns: Sequence[str], ids: pa.Array) -> np.ndarray:
        """The features of ``columns`` for some rows: (rows, width) in float32."""
        parts = (self._encoded(name, table[name], ids) for name in columns)
        return _dense(parts, len(ids), self.width_of(columns))

    def smaller(self, table: pa.Table, ids: pa.Array) -> np.ndarray | sp.csr_array:
        """All features of some rows, dense or CSR, whichever is smaller."""
        parts = [self._encoded(name, table[name], ids) for name in self.columns]
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

    def warn_of_news(self) -> None:
        """After all rows: which of them have what the training had not."""
        if self._new_values:
            names, count = ", ".join(sorted(self._new_values)), sum(self._new_values.values())
            column, (value, node) = min(self._new_value.items())
            warnings.warn(
                f"{plural(count, 'node')} {'has' if count == 1 else 'have'} a value of {names} "
                f"that the model does not know{':' if count == 1 else ', such as'} {value!r} "
                f"({column} of node {node!r}); it counts as none.",
                HopliteWarning,
                stacklevel=3,
            )
        if self._new_gaps:
            shown = ", ".join(f"{name} ({n:,})" for name, n in sorted(self._new_gaps.items()))
            warnings.warn(
                f"{self._path} has gaps that the training had not: {shown}; the centre of the "
                "column stands for them.",
                HopliteWarning,
                stacklevel=3,
            )

    def _encoded(self, name: str, column: pa.ChunkedArray, ids: pa.Array) -> Encoded:
        made, prepared = self._made[name], self._prepared[name]
        if prepared.kind == TEXT:
            text = made.text(column)  # pyright: ignore[reportAttributeAccessIssue] - it is Words
            codes = pc.fill_null(pc.index_in(text, value_set=self._values[name]), -1).to_numpy()
            codes = codes.astype(np.int64)
            new = (codes < 0) & text.is_valid().to_numpy(zero_copy_only=False)
            if prepared.other:
                codes[new] = len(prepared.values)
            elif new.any():
                self._new_values[name] = self._new_values.get(name, 0) + int(new.sum())
                row = int(np.argmax(new))
                self._new_value.setdefault(name, (text[row].as_py()[:LONGEST], ids[row].as_py()))
            return Encoded(self._width[name], codes, one_hot=True)
        cells = made.cells(column, ids)
        if not prepared.fill and (gaps := int(np.isnan(cells).any(axis=1).sum())):
            self._new_gaps[name] = self._new_gaps.get(name, 0) + gaps
        return Encoded(self._width[name], made.checked(prepared.prepared(cells), ids))

    def _new(
        self, reader: TableReader, columns: list[str], most_values: int | None
    ) -> dict[str, Column]:
        """The columns, of which everything but the numbers of the scaling is known."""
        if not columns:
            raise DatasetError(
                f"{self._path} has no feature column; add at least one besides id, label and split."
            )
        if self._options.categories is None and most_values is None:
            most_values = ANY_NUMBER
        limit = most_values if self._options.categories is None else None
        made = {name: new_column(name, reader.kinds[name], self._path, limit) for name in columns}
        _survey(reader, made)
        for column in [column for column in made.values() if isinstance(column, Text)]:
            column.close()
            if column.kind == TEXT and not self._keeps(column):
                del made[column.name]
        self._constant = self._left_out(made)
        if not made:
            raise DatasetError(
                f"{self._path} has no feature column left, as its texts are titles or keys; add "
                "numbers, or text that repeats."
            )
        return made

    def _left_out(self, made: dict[str, Column]) -> list[str]:
        """Take the texts that never change from ``made``, but for the last column; their names.

        Earlier versions made a feature of them, as tables do that are read without any limit.
        """
        if self._options.categories is None:
            return []
        found = [
            name
            for name, column in made.items()
            if isinstance(column, Text) and column.kind == TEXT and column.is_constant
        ]
        if len(found) == len(made):
            return []
        for name in found:
            del made[name]
        return found

    def _keeps(self, column: Text) -> bool:
        """Whether a text becomes features: not if it is a key, unless there is no limit."""
        many, limit = len(column.values), self._options.categories
        said = (
            f"text column {column.name!r} of {self._path} has {column.shown_values} different "
            f"values in {column.filled:,} rows"
        )
        mistake, keeps = column.typing_error(), limit is None or not column.is_key
        if mistake:  # which may be why they are so many
            _warn(mistake)
        if not keeps:
            _warn(f"{said}; it is left out, as a title or a key is")
        elif column.is_key:
            _warn(f"{said}; it becomes that many features, so remove it if it is a title or a key")
        elif limit is not None and many > limit and not mistake:
            _warn(
                f"{said}; the {limit - 1:,} most frequent become features and all others "
                f"{f'{column.name}={OTHER}'!r}, so give more categories if they matter"
            )
        return keeps

    def _known(self, reader: TableReader, columns: list[str]) -> dict[str, Column]:
        """The columns that the preparation names; what else the table has is left out."""
        for name, wanted in self._prepared.items():
            if name not in columns:
                raise DatasetError(
                    f"{self._path} has no column {name!r}, a {wanted.kind} that the model was "
                    f"trained with; add it.{nearest_hint(name, columns)}"
                )
        others = [name for name in columns if name not in self._prepared]
        if others:
            _warn(
                f"{self._path} has columns that the model does not use: "
                f"{', '.join(others[:NAMED])}{', ...' if len(others) > NAMED else ''}"
            )
        return {
            name: known_column(wanted, reader.kinds[name], self._path)
            for name, wanted in self._prepared.items()
        }

    def _measured(self, reader: TableReader) -> dict[str, _Measured]:
        """What all cells of the columns of numbers say together; their gaps may be refused."""
        columns = {name: one for name, one in self._made.items() if one.kind != TEXT}
        width = sum(column.width for column in columns.values())
        rows = int(np.clip(SAMPLED // max(width, 1), LEAST_ROWS, MOST_ROWS))
        found = {
            name: _Measured(one.width, self._options.scale, rows) for name, one in columns.items()
        }
        for name, table, ids in _cells(reader, list(columns)):
            found[name].add(columns[name].cells(table[name], ids), ids)
        for name, one in found.items():
            if not one.known:
                raise empty(name, self._path)
        gaps = {name: one for name, one in found.items() if one.gaps}
        if gaps and self._options.gaps == REFUSE:
            shown = ", ".join(
                f"{one.gap(columns[name], self._path if i == 0 else None)}"
                for i, (name, one) in enumerate(gaps.items())
            )
            raise DatasetError(
                f"{shown}; fill the gap or remove the column, or let --gaps fill do it."
            )
        return found

    def _warn_about_scales(self, measured: dict[str, _Measured]) -> None:
        if self._options.scale != "none":
            return
        if self._options.categories is None:
            for name, column in self._prepared.items():
                if column.kind in (DATE, TIME):
                    _warn(
                        f"column {name!r} of {self._path} holds dates or times; it becomes one "
                        "number (days since 1970-01-01, or the seconds of a time or duration), so "
                        "scale it as other large numbers"
                    )
            return
        large = [name for name, one in measured.items() if one.is_large]
        if large:
            _warn(
                f"{', '.join(large[:NAMED])}{', ...' if len(large) > NAMED else ''} of "
                f"{self._path} have a standard deviation above {LARGE} and are not scaled; use "
                "--scale standard, so that other columns count, too"
            )

    def _refuse_twins(self) -> None:
        first: dict[str, str] = {}
        for name, column in self._prepared.items():
            for feature in column.names():
                if first.setdefault(feature, name) != name:
                    raise DatasetError(
                        f"columns {first[feature]!r} and {name!r} of {self._path} both give the "
                        f"feature {feature!r}; rename one of them."
                    )


def _text(column: Text, limit: int | None) -> PreparedColumn:
    values, other = column.frequent(limit)
    if other:  # a value that is called so is one of the others
        values = tuple(value for value in values if value != OTHER)
    return PreparedColumn(column.name, TEXT, values=values, other=other)


class _Measured:
    """What the cells of one column of numbers say together."""

    def __init__(self, width: int, scale: str, rows: int) -> None:
        self._scale = scale
        self._statistics: Statistics = (
            Quantiles(width, rows) if scale == "robust" else Moments(width)
        )
        self._two = True  # whether all are 0 or 1
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self.gaps, self.known = 0, False
        self._first = "", -1  # the node that has the first gap; where in its list, -1 for all of it

    def add(self, cells: np.ndarray, ids: pa.Array) -> None:
        gaps = np.isnan(cells)
        rows = np.flatnonzero(gaps.any(axis=1))
        if rows.size and not self.gaps:
            row = gaps[rows[0]]
            self._first = ids[int(rows[0])].as_py(), -1 if row.all() else int(np.argmax(row))
        self.gaps += len(rows)
        self.known = self.known or not gaps.all()
        self._two = self._two and bool(((cells == 0) | (cells == 1) | gaps).all())
        for bound, found in ((self._low, np.fmin), (self._high, np.fmax)):
            found(bound, found.reduce(cells, axis=0, initial=np.nan), out=bound)
        self._statistics.add(squeezed(cells) if self._scale == "log" else cells)

    def gap(self, column: Column, path: Path | None) -> str:
        """What is missing, in words: of the table ``path``, unless that has been said."""
        node, place = self._first
        name, what = (column.name, column.gap) if place < 0 else (f"{column.name}[{place}]", NUMBER)
        where = repr(name) if path is None else f"column {name!r} of {path} has"
        more = f" and {self.gaps - 1:,} more" if self.gaps > 1 else ""
        return f"{where} no {what} for node {node!r}{more}"

    @property
    def is_large(self) -> bool:
        return bool((self._statistics.scale() > LARGE).any())

    def prepared(self, column: Column, scale: str) -> PreparedColumn:
        """How its cells become features."""
        found = PreparedColumn(column.name, column.kind, column.width, truth=column.truth)
        if np.isfinite(self._low).all():  # a place of a list may have no number at all
            low, high = tuple(self._low.tolist()), tuple(self._high.tolist())
            found = dataclasses.replace(found, low=low, high=high)
        centre = self._statistics.centre()
        usual = stretched(centre) if scale == "log" else centre
        still, by = self._low >= self._high, self._statistics.scale()
        if self._two:  # 0 and 1 stay; a 0 that never was a 1 has weights of chance
            kept = still & (centre != 0) & (not column.truth)  # ones stand for a constant
            still, usual = still & ~kept, usual.clip(0, 1)
            centre, by = (still & (self._low == 1)).astype(float), np.ones_like(by)
        if scale != "none" and (still.any() or not self._two):
            found = dataclasses.replace(
                found,
                centre=tuple(centre.tolist()),
                scale=tuple(np.where(still, STILL, by).tolist()),
                log=scale == "log" and not self._two,
            )
        return dataclasses.replace(found, fill=tuple(usual.tolist())) if self.gaps else found


def _dense(parts: Iterable[Encoded], rows: int, width: int) -> np.ndarray:
    out, start = np.zeros((rows, width), np.float32), 0
    for part in parts:
        part.fill(out[:, start : start + part.width])
        start += part.width
    return out


def _survey(reader: TableReader, columns: dict[str, Column]) -> None:
    """Show every column the cells that it needs to see: none, those of a first batch, or all."""
    some = False
    for batch in reader.batches([reader.id, *(name for name in columns if columns[name].peeks)]):
        some, waiting = True, False
        for column in columns.values():
            if column.peeks:
                column.look(batch.table[column.name], batch.filled_text(reader.id))
                waiting = waiting or column.needs_another_look()
        if not waiting:
            break
    if not some:
        raise DatasetError(f"{reader.path} has no rows; give one row per node.")
    for column in columns.values():
        if isinstance(column, Lists) and not column.width:
            raise empty(column.name, reader.path)
    waiting = [name for name in columns if columns[name].looks]
    while waiting:
        for name, table, ids in _cells(reader, waiting):
            columns[name].look(table[name], ids)
        waiting = [name for name in waiting if columns[name].needs_another_look()]


def _cells(reader: TableReader, columns: list[str]) -> Iterator[tuple[str, pa.Table, pa.Array]]:
    """Every column in batches of rows, with the ids of these."""
    for group in reader.groups(columns):
        for batch in reader.batches([reader.id, *group]):
            ids = batch.filled_text(reader.id)
            for name in group:
                yield name, batch.table, ids


def _warn(sentence: str) -> None:
    warnings.warn(f"{sentence}.", HopliteWarning, stacklevel=6)
