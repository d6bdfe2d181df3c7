"""The label column of a node table, a batch of rows at a time: classes, numbers, or sets of labels.

What it is, the option ``task`` says; without it they are classes, and a column that looks like a
measurement is asked about.
"""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa

from hoplite.datasets.table_cells import (
    GAP_WORDS,
    first_odd,
    is_number,
    spelled_numbers,
    without_gaps,
)
from hoplite.datasets.table_reader import Batch, as_number, pc
from hoplite.errors import DatasetError, HopliteWarning
from hoplite.labels import AUTO, CLASSES, NUMBERS, SETS, UNKNOWN_LABEL, as_sets, label_sets

# Distinct numbers that are taken as classes without a question: where there are two nodes for each,
# and where there are not.
MOST_WHOLE, MOST_FRACTIONS = (1000, 100), (20, 5)
MANY = 100  # classes
_INTEGER = re.compile(r"-?[0-9]{1,19}")


class ClassColumn:
    """Classes: any text, empty where unknown."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column = path, column
        self._codes: list[np.ndarray] = []
        self._names: dict[str, int] = {}  # in the order in which they came

    def add(self, batch: Batch) -> None:
        """Take the labels of the next rows along."""
        text = batch.text(self._column, fractions=True)
        values = pc.unique(text).drop_null()
        for name in values.to_pylist():
            self._names.setdefault(name, len(self._names))
        own = np.array([*(self._names[name] for name in values.to_pylist()), -1], np.int32)
        self._codes.append(own[codes_in(text, values)])

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The class of every node, and the names of the classes, sorted."""
        names = sorted_classes(list(self._names))
        place = {name: i for i, name in enumerate(names)}
        codes = np.array([*(place[name] for name in self._names), UNKNOWN_LABEL])
        labels = codes[np.concatenate(self._codes)]
        self._question(names, int((labels != UNKNOWN_LABEL).sum()))
        return labels, tuple(names)

    def _question(self, names: list[str], labelled: int) -> None:
        if len(names) > MANY and labelled < 2 * len(names):
            warnings.warn(
                f"{_many(names, labelled, self._column, self._path)}; each becomes a class, so "
                "give another column if it is a key.",
                HopliteWarning,
                stacklevel=5,
            )


class LikelyClasses(ClassColumn):
    """Classes, but nobody has said so: what looks like a measurement is asked about."""

    def _question(self, names: list[str], labelled: int) -> None:
        if is_measurement(names, labelled):
            raise DatasetError(
                f"{_many(names, labelled, self._column, self._path)}; the task is "
                "regression if they are measurements, or classification if each is a class: say "
                "which (--task, task= in Python)."
            )
        super()._question(names, labelled)


class NumberColumn:
    """Numbers, NaN where they are missing."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column = path, column
        self._values: list[np.ndarray] = []

    def add(self, batch: Batch) -> None:
        cells = batch.table[self._column]
        if is_number(cells.type):
            found = cells.cast(pa.float64(), safe=False)
        else:
            text = batch.text(self._column)
            text = without_gaps(text)
            found = spelled_numbers(text)
            if found is None:
                raise self._refusal(batch, first_odd(spelled_numbers, text))
        values = np.asarray(found.to_numpy(zero_copy_only=False), np.float64)
        odd = np.flatnonzero(np.isinf(values))
        if odd.size:
            raise self._refusal(batch, int(odd[0]))
        self._values.append(values)

    def _refusal(self, batch: Batch, row: int) -> DatasetError:
        return DatasetError(
            f"column {self._column!r} of {self._path} has "
            f"{batch.table[self._column][row].as_py()!r} in data row {batch.first + row + 1:,}; "
            "for regression every label is a finite number, or empty where unknown."
        )

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The number of every node, and no names."""
        return np.concatenate(self._values), ()


class SetColumn(ClassColumn):
    """Several labels a node, as ``a|b``; ``|`` alone for none of them, empty where unknown."""

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Which labels every node has, (n, m), and their names, sorted."""
        names = sorted_classes(sorted({one for many in label_sets([*self._names]) for one in many}))
        if not names:
            return super().labels()
        return as_sets([*self._names], names)[np.concatenate(self._codes)], tuple(names)


COLUMNS = {
    AUTO: LikelyClasses,
    CLASSES.task: ClassColumn,
    NUMBERS.task: NumberColumn,
    SETS.task: SetColumn,
}


def codes_in(text: pa.Array, values: pa.Array) -> np.ndarray:
    """The place of every text in ``values``, -1 for none."""
    return pc.fill_null(pc.index_in(text, value_set=values), -1).to_numpy()


def sorted_classes(names: list[str]) -> list[str]:
    """By name, or by number if all are integers."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def is_measurement(names: list[str], labelled: int) -> bool:
    """Whether the distinct labels of so many nodes look like numbers to learn, and no classes.

    That are more than 1000 whole numbers, or more than 20 with fractions; where there are not two
    nodes for each, more than 100, or 5. Words for a gap, such as NA, do not count.

    >>> is_measurement(["0.5", "1.0", "1.5"], 30), is_measurement([f"{i}.5" for i in range(30)], 30)
    (False, True)
    """
    names = [name for name in names if name not in GAP_WORDS]
    whole = all(_INTEGER.fullmatch(name) for name in names)
    most = (MOST_WHOLE if whole else MOST_FRACTIONS)[labelled < 2 * len(names)]
    return len(names) > most and not any(math.isnan(as_number(name)) for name in names)


def _many(names: list[str], labelled: int, column: str, path: Path) -> str:
    numbers = not any(math.isnan(as_number(name)) for name in names)
    what = "numbers" if numbers else "values"
    return (
        f"column {column!r} of {path} has {len(names):,} different {what} for {labelled:,} "
        "labelled nodes"
    )
