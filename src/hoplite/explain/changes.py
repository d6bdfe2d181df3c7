"""At which value of its own features a node would be given another class, exactly.

The features X[v] of a node v reach its own logits by what is on the diagonal of p_i(S) alone:

    z_c(v) = rest + sum_f X[v, f] W[f, c],    W = sum_i c_i p_i(S)[v, v] Theta

so the margin of the predicted class p over class c is 0 where X[v, f] has changed by
-(z_p - z_c) / (W[f, p] - W[f, c]), and the smallest of these changes flips the prediction. With a
chosen threshold the margin is that over the threshold (see hoplite.explain.explanation). Every
other value stays as it is, those of the neighbours too. What changes is a cell of the table, if
the features came from one: a number moves one feature (and is missing no more), a text takes
another of its values, what is 0 or 1 becomes the other. Structural features follow from the edges,
so they are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import ConfigError, nearest_hint, some_of
from hoplite.explain.exact import ExactModel, lead_of
from hoplite.explain.summary import Changes, ValueFlip
from hoplite.models.trained import TrainedModel
from hoplite.preparation import (
    MISSING_CELL,
    OTHER,
    DateColumn,
    ListColumn,
    NumberColumn,
    PreparedColumn,
    WordsColumn,
    as_days,
)
from hoplite.structural import links_among, made_of_edges

CellValue = float | str | bool | None
MAX_NUMBER = float(np.finfo(np.float32).max)  # largest number in a cell of a table


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
        """The feature that marks missing cells, if the column has one."""
        return self.start + self.column.width

    @property
    def features(self) -> slice:
        """All features of its column."""
        return slice(self.start, self.start + len(self.column.names()))

    @property
    def may_miss(self) -> bool:
        """Whether the model knows what to make of it where it is missing; lists are whole."""
        column = self.column
        return bool(column.categories) or (bool(column.fill) and not isinstance(column, ListColumn))

    def value(self, features: np.ndarray) -> float | str | None:
        """What the cell is at a node with these ``features`` (d,); None where it is missing.

        >>> from hoplite.preparation import TextColumn
        >>> town = TextColumn("town", values=("Bonn", "Ulm"))
        >>> Cell(1, 0, town).value(np.array([7.0, 0.0, 1.0]))
        'Ulm'
        """
        values = features[self.features]
        if self.column.categories:
            return self.column.categories[int(values.argmax())] if values.any() else None
        original = self.column.original(values, self.place)
        return None if original == MISSING_CELL else original  # which no number or date is

    def changed(self, own: np.ndarray, value: CellValue) -> np.ndarray:
        """The features (d,) of a node that had ``own``, with another value of the cell.

        Numbers are those of the table, before they are scaled; a date is "2020-02-29" or any other
        that tables may have, booleans may be given as such, and None, or "missing", is a
        gap. ConfigError if the cell cannot have the value.

        >>> age = NumberColumn("age", centre=(40.0,), scale=(10.0,), fill=(40.0,))
        >>> Cell(0, 0, age).changed(np.array([1.5, 0.0]), 30).tolist()
        [-1.0, 0.0]
        >>> Cell(0, 0, age).changed(np.array([1.5, 0.0]), None).tolist()
        [0.0, 1.0]
        """
        column, after = self.column, own.copy()
        gap = value is None or (value == MISSING_CELL and MISSING_CELL not in column.values)
        if gap and not self.may_miss:
            raise ConfigError(
                f"{self.name} cannot be missing, because no training node has it missing."
            )
        if column.categories:
            after[self.features] = 0.0
            if not gap:
                after[self.start + self._category(value)] = 1.0
            return after
        cells = np.array(column.fill or column.default_fill, np.float64)
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

        False where that is not known. Values have six digits, and times are shown as their day.

        >>> age = NumberColumn("age", low=(18.0,), high=(90.0,))
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
            raise ConfigError(
                f"{self.name} is {value}, which is not a string; pass one of its values."
            )
        if value not in values and not self.column.other:
            raise ConfigError(
                f"{self.name} is {value!r}, which the model has never seen ({some_of(values)})."
                f"{nearest_hint(value, values)}"
            )
        return values.index(value if value in values else OTHER)

    def _number(self, value: CellValue) -> float:
        column, number, expected = self.column, value, "a number"
        if column.truth:
            expected, number = "true or false", {"true": 1.0, "false": 0.0}.get(str(value), value)
        elif isinstance(column, DateColumn):
            expected = "a date, e.g. 2020-02-29 or 29.02.2020"
            number = as_days(value) if isinstance(value, str) else value
        allowed = number in (0, 1) if column.truth else not isinstance(number, bool)
        if not isinstance(number, int | float) or not math.isfinite(number) or not allowed:
            raise ConfigError(f"{self.name} is {value!r}; it must be {expected}.")
        return float(number)


def find_cells(
    trained: TrainedModel, names: Sequence[str] | None, features: Iterable[int]
) -> list[Cell]:
    """What these features, of all ``names``, came from, each cell once.

    Without what nobody can change: structural features and links follow from the edges, and the
    weights of words from all others of the text.
    """
    preparation = trained.preparation
    columns, words, start = {}, set[int](), 0
    for column in () if preparation is None else preparation.fitted:
        width = len(column.names())
        if isinstance(column, WordsColumn):
            words.update(range(start, start + width))
        for place in range(width):
            number = place if place < column.width and not column.categories else 0
            columns[start + place] = Cell(start, number, column)
        start += width
    most = trained.num_features - made_of_edges(names, preparation)
    links = links_among(names, preparation) or ()
    cells = {}
    for f in features:
        if f not in columns and f < most and f not in links:
            name = f"feature {f}" if names is None else str(names[f])
            columns[f] = Cell(f, 0, NumberColumn(name))
        if f in columns and f not in words:
            cells[columns[f]] = None
    return list(cells)


FIRST_NODES = 1 << 12  # whose values show, with those within reach, what is 0 or 1
# digits of a reported change, rounded away from the present value: more where a third class is
# near, fewer where float32 cannot distinguish the value from the border
DIGITS = (4, 5, 6, 7, 8, 9, 3, 2, 1)


def value_changes(
    exact: ExactModel, node: int, reach: np.ndarray, logits: np.ndarray, features: Sequence[int]
) -> Changes | None:
    """How the cells of ``node`` that ``features`` came from would flip its prediction, one by one.

    ``reach`` are the rows of :meth:`Rows.reach`. None where the outputs are standardised, so that
    the logits are not linear in X, or where there is only one class.
    """
    slopes = own_slopes(exact, node, reach)
    if slopes is None or len(logits) < 2:
        return None
    cells = find_cells(exact.trained, exact.feature_names, features)
    present = _Present(
        exact.trained.class_names,
        exact.rows.row(node),
        exact.trained.task.decisions(logits),
        slopes,
        exact.rows.dtype == np.float64,
    )
    flags = _flags(exact, reach, cells)
    flips = [present.flip(cell, flag) for cell, flag in zip(cells, flags.tolist(), strict=True)]
    return Changes(len(cells), tuple(flip for flip in flips if flip is not None))


def own_slopes(exact: ExactModel, node: int, reach: np.ndarray) -> np.ndarray | None:
    """W (d, m), by which the logits of a node follow its own features; None if not linearly.

    >>> from hoplite import Graph, model_config, TrainedModel
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> weights = {"theta": np.array([[1.0, 2.0]])}
    >>> model = TrainedModel(model_config("sgc", hops=1), weights, 1, ("a", "b"))
    >>> exact = ExactModel(model, graph)
    >>> own_slopes(exact, 0, exact.rows.reach(0)).round(9).tolist()  # S is 1/2 everywhere
    [[0.5, 1.0]]
    """
    if exact.trained.config.standardize:
        return None
    back = exact.coefficients * reach[:, node]  # of each hop: (k + 1,)
    if len(exact.maps) == 1:
        return back.sum() * exact.maps[0]
    return np.tensordot(back, exact.maps, 1)


def _flags(exact: ExactModel, reach: np.ndarray, cells: Sequence[Cell]) -> np.ndarray:
    """Which cells are 0 or 1.

    A preparation that scales leaves only those as they are. Otherwise the nodes within reach, and
    the first ones, show it.
    """
    plain = np.array([c.column.is_plain(c.place) and not c.column.step for c in cells], bool)
    preparation = exact.trained.preparation
    scaled = len(preparation.names) if preparation is not None and preparation.scales else 0
    is_known = np.array([cell.start < scaled or cell.column.truth for cell in cells], bool)
    if (plain & ~is_known).any():
        nodes = np.any(reach, axis=0, keepdims=True)[0]
        nodes[:FIRST_NODES] = True
        binary = np.ones(len(cells), bool)
        for _, rows in exact.rows.features(np.flatnonzero(nodes)):
            values = sp.csc_array(rows[:, [cell.feature for cell in cells]]).toarray()
            binary &= ((values == 0) | (values == 1)).all(axis=0)
        plain &= is_known | binary
    return plain


@dataclass(frozen=True)
class _Present:
    """The node as it is: features ``own`` (d,), decisions ``outputs`` (m,), ``slopes`` (d, m).

    ``double`` means that the features are in float64.
    """

    names: Sequence[str]
    own: np.ndarray
    outputs: np.ndarray
    slopes: np.ndarray
    double: bool

    def flip(self, cell: Cell, flag: bool) -> ValueFlip | None:
        """The change of one cell that changes the prediction, None if there is none."""
        column, x, now = cell.column, float(self.own[cell.feature]), cell.value(self.own)
        if column.categories:
            own, slopes = self.own[cell.features], self.slopes[cell.features]
            outputs = self.outputs + slopes - own @ slopes  # of each value: (values, m)
            return self._strongest(cell, now, column.categories, outputs)
        slope, outputs = self.slopes[cell.feature], self.outputs
        if now is None:
            if column.width > 1:
                return None  # a list is given as a whole
            outputs = outputs - self.slopes[cell.missing]
        if flag:
            others = np.setdiff1d([0.0, 1.0], [] if now is None else [x])
            values = [column.to_cell(other) for other in others.tolist()]
            return self._strongest(cell, now, values, outputs + (others[:, None] - x) * slope)
        p = self._predicted
        if outputs.argmax() != p:  # any number will do, and so the usual one
            usual = column.original(np.array([x, 0.0]), 0)
            return self._flip(cell, now, usual, "equal", outputs)
        margins, slope = outputs[p] - outputs, slope[p] - slope
        with np.errstate(divide="ignore", invalid="ignore"):
            change = np.where(slope != 0, -margins / slope, np.inf)
        change[p] = np.inf
        other = int(np.abs(change).argmin())
        up = change[other] > 0 or (change[other] == 0 and slope[other] < 0)
        border, here = (column.value(at, cell.place) for at in (x + change[other], x))
        fallback = None  # where a third class is ahead already, as days are no finer
        for digits in DIGITS if np.isfinite(border) else ():
            to = column.to_cell(_beyond(border, here, up, column.step, digits))
            after = None if to is None else self._outputs_at(cell, to)
            if after is not None:
                flip = self._flip(cell, now, to, "above" if up else "below", after)
                if after.argmax() == other:
                    return flip
                fallback = fallback or flip
        return fallback

    def _outputs_at(self, cell: Cell, value: CellValue) -> np.ndarray | None:
        """The decisions (m,) with another value of one cell, as the model would read it."""
        try:
            change = cell.changed(self.own, value) - self.own
        except ConfigError:  # too large for the model's numbers
            return None
        if self.double and isinstance(value, float) and cell.column.is_plain(cell.place):
            change[cell.feature] = value - self.own[cell.feature]  # which is not rounded to float32
        return self.outputs + change[cell.features] @ self.slopes[cell.features]

    def _strongest(
        self, cell: Cell, now: Any, values: Sequence[Any], outputs: np.ndarray
    ) -> ValueFlip | None:
        """The change to the value that leaves the predicted class furthest behind."""
        best = int(lead_of(outputs, self._predicted).argmin())
        return self._flip(cell, now, values[best], "equal", outputs[best])

    @property
    def _predicted(self) -> int:
        return int(self.outputs.argmax())

    def _flip(
        self, cell: Cell, now: Any, to: Any, side: str, outputs: np.ndarray
    ) -> ValueFlip | None:
        becomes = int(outputs.argmax())
        if becomes == self._predicted:
            return None
        name, outside = self.names[becomes], cell.outside(to, side)
        value = MISSING_CELL if now is None else now
        return ValueFlip(cell.feature, cell.name, value, to, side, name, outside)


def _beyond(border: float, here: float, up: bool, step: float, digits: int) -> float:
    """The first multiple of ``step`` behind ``border``; without one, of ``digits`` of the change.

    >>> _beyond(35.2374, 41.0, False, 0, 4), _beyond(18250.0, 18249.5, True, 1, 4)
    (35.237, 18251.0)
    """
    if not step:
        size = abs(border - here) or 1e-6 * max(abs(border), 1.0)
        step = 10.0 ** (math.floor(math.log10(size)) - digits + 1)
    count = math.floor(border / step) + 1 if up else math.ceil(border / step) - 1
    return float(f"{count * step:.15g}")
