"""What of a node can be changed: the cells of its row in a table, or its features as they are.

A number of a table is one feature (and one that tells whether it is missing), a text one feature
for each of its values: who changes a node thinks of the cell, the model sees the features.

    cell -> features of its column -> X[v]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hoplite.errors import ConfigError, nearest_hint, some_of
from hoplite.models.trained import TrainedModel
from hoplite.preparation import DATE, LIST, MISSING_CELL, OTHER, PreparedColumn, as_days
from hoplite.structural import NAMES, has_log_degree, links_among, structural_count

CellValue = float | str | bool | None
MAX_NUMBER = float(np.finfo(np.float32).max)  # of a cell that a table may have


@dataclass(frozen=True)
class Cell:
    """A number that became feature ``start + place``, or a text that became ``start`` and on."""

    start: int
    place: int
    column: PreparedColumn

    @property
    def name(self) -> str:
        return self.column.name if self.column.categories else self.column.names()[self.place]

    @property
    def feature(self) -> int:
        return self.start + self.place

    @property
    def missing(self) -> int:
        """The feature that tells whether the cell is missing, if its column has one."""
        return self.start + self.column.width

    @property
    def features(self) -> slice:
        """All features of its column."""
        return slice(self.start, self.start + len(self.column.names()))

    @property
    def may_miss(self) -> bool:
        """Whether the model knows what to make of it where it is missing; lists are whole."""
        column = self.column
        return bool(column.categories) or (bool(column.fill) and column.kind != LIST)

    def value(self, own: np.ndarray) -> float | str | None:
        """What the cell is at a node with the features ``own`` (d,); None where it is missing.

        >>> town = PreparedColumn("town", "text", values=("Bonn", "Ulm"))
        >>> Cell(1, 0, town).value(np.array([7.0, 0.0, 1.0]))
        'Ulm'
        """
        mine = own[self.features]
        if self.column.categories:
            return self.column.categories[int(mine.argmax())] if mine.any() else None
        found = self.column.original(mine, self.place)
        return None if found == MISSING_CELL else found  # a number or a date is never that text

    def changed(self, own: np.ndarray, value: CellValue) -> np.ndarray:
        """The features (d,) of a node that had ``own``, with another value of the cell.

        Numbers are those of the table, before they are scaled; a date is "2020-02-29" or any other
        that tables may have, what is true or false may be told so, and None, or "missing", is a
        gap. ConfigError if the cell cannot have the value.

        >>> age = PreparedColumn("age", "number", centre=(40.0,), scale=(10.0,), fill=(40.0,))
        >>> Cell(0, 0, age).changed(np.array([1.5, 0.0]), 30).tolist()
        [-1.0, 0.0]
        >>> Cell(0, 0, age).changed(np.array([1.5, 0.0]), None).tolist()
        [0.0, 1.0]
        """
        column, after = self.column, own.copy()
        gap = value is None or (value == MISSING_CELL and MISSING_CELL not in column.values)
        if gap and not self.may_miss:
            raise ConfigError(f"{self.name} cannot be missing: no node of the training lacks it.")
        if column.categories:
            after[self.features] = 0.0
            if not gap:
                after[self.start + self._category(value)] = 1.0
            return after
        cells = np.array(column.fill or column.usual, np.float64)
        cells[self.place] = math.nan if gap else self._number(value)
        prepared = column.prepared(cells[None])[0]
        large = abs(cells[self.place]) > MAX_NUMBER  # a logarithm may still be finite
        if large or not np.isfinite(prepared).all():
            raise ConfigError(f"{self.name} is {value}, which is too large for the model.")
        after[self.feature] = prepared[self.place]
        if column.fill:
            after[self.missing] = prepared[-1]
        return after

    def outside(self, value: CellValue, side: str = "equal") -> bool:
        """Whether ``value``, "above" it or "below" it, lies outside of what the training saw.

        False where that is not known. Values are told with six digits, and times as their day.

        >>> age = PreparedColumn("age", "number", low=(18.0,), high=(90.0,))
        >>> [Cell(0, 0, age).outside(3.0, side) for side in ("above", "below", "equal")]
        [False, True, True]
        """
        if not self.column.low or not self.column.high:
            return False
        low, high = self.column.low[self.place], self.column.high[self.place]
        number, slack = self._number(value), 1e-5 * max(abs(low), abs(high))
        low = math.floor(low) if self.column.step else low
        beyond = {"below": number < low - slack, "above": number > high + slack}
        return beyond.get(side, any(beyond.values()))

    def _category(self, value: CellValue) -> int:
        values = self.column.categories
        if not isinstance(value, str):
            raise ConfigError(f"{self.name} is {value}, which is no text; give one of its values.")
        if value not in values and not self.column.other:
            raise ConfigError(
                f"{self.name} is {value!r}, which the model has never seen ({some_of(values)})."
                f"{nearest_hint(value, values)}"
            )
        return values.index(value if value in values else OTHER)

    def _number(self, value: CellValue) -> float:
        column, wanted = self.column, "a number"
        if column.truth:
            wanted = "true or false"
            known = {"true": 1.0, "false": 0.0}
            value = known.get(value, value) if isinstance(value, str) else value
        elif column.kind == DATE:
            wanted = "a date such as 2020-02-29 or 29.02.2020"
            if isinstance(value, str):
                days = as_days(value)
                if days is not None:
                    return days
        known = isinstance(value, int | float) and (column.truth or not isinstance(value, bool))
        if not known or not math.isfinite(value):  # pyright: ignore[reportArgumentType]
            raise ConfigError(f"{self.name} is {value!r}; give {wanted}.")
        if column.truth and value not in (0, 1):
            raise ConfigError(f"{self.name} is {value!r}; give {wanted}.")
        return float(value)  # pyright: ignore[reportArgumentType]


def find_cells(
    trained: TrainedModel, names: Sequence[str] | None, features: Iterable[int]
) -> list[Cell]:
    """What these features, of all ``names``, came from, each cell once.

    Without what nobody can change: structural features and links follow from the edges.
    """
    preparation = trained.preparation
    columns, start = {}, 0
    for column in () if preparation is None else preparation.fitted:
        width = len(column.names())
        for place in range(width):
            number = place if place < column.width and not column.categories else 0
            columns[start + place] = Cell(start, number, column)
        start += width
    vectors = structural_count(names)
    made = int(has_log_degree(trained)) if vectors is None else len(NAMES) + vectors
    most = trained.num_features - made
    links = links_among(names, preparation) or ()
    found = {}
    for f in features:
        if f not in columns and f < most and f not in links:
            name = f"feature {f}" if names is None else str(names[f])
            columns[f] = Cell(f, 0, PreparedColumn(name, "number"))
        if f in columns:
            found[columns[f]] = None
    return list(found)
