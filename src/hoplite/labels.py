"""The types of labels, determined by the array of the labels of all n nodes.

classification   int64 (n,)     the class of each node, -1 where unknown
regression       float64 (n,)   its number, NaN where unknown
multilabel       int8 (n, m)    1 for each of m labels that it has, else 0; a row of -1: unknown
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hoplite.errors import GraphError, check_choice, option_name, plural, some_of, warn

UNKNOWN_LABEL = -1
AUTO = "auto"
FEW_CLASSES = 100  # numbers of classes that the labels of fewer nodes may have, too
JOINT = "|"  # between the labels of one node
MAX_CLASSES = 20  # floats with so many different whole values may be meant as classes
MAX_NUMBER = 1e100  # larger ones overflow when squared and summed


class LabelType(ABC):
    """A type of labels; ``task`` is the name of the task that learns them."""

    task: ClassVar[str]

    @abstractmethod
    def fits(self, labels: np.ndarray) -> bool:
        """Whether an array of this dtype and shape has labels of this type."""

    @abstractmethod
    def checked(self, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
        """The labels as a graph stores them; GraphError if they are inconsistent."""

    @abstractmethod
    def is_known(self, labels: np.ndarray) -> np.ndarray:
        """Which nodes have a label: bool (n,)."""

    @abstractmethod
    def count(self, labels: np.ndarray) -> int:
        """The number of class names that the labels need."""

    @abstractmethod
    def text(self, label: np.ndarray, names: Sequence[str]) -> str | float:
        """A known label as text, or as a number."""

    @abstractmethod
    def unknown(self, nodes: int, count: int) -> np.ndarray:
        """Unknown labels of ``nodes`` nodes, for ``count`` class names."""

    @abstractmethod
    def moved(self, labels: np.ndarray, names: Sequence[str], to: Sequence[str]) -> np.ndarray:
        """The labels with the numbers of the names ``to``; other names become unknown."""

    def present(self, labels: np.ndarray) -> np.ndarray:
        """The numbers of the classes that these known labels have, each once.

        >>> CLASSES.present(np.array([2, 0, 2])).tolist(), NUMBERS.present(np.array([2.5])).tolist()
        ([0, 2], [])
        """
        counts = self.counts(labels, self.count(labels))
        return np.flatnonzero([] if counts is None else counts)

    def counts(self, labels: np.ndarray, count: int) -> np.ndarray | None:
        """How many of these known labels have each of ``count`` classes; None without classes.

        >>> CLASSES.counts(np.array([1, 1]), 3).tolist(), NUMBERS.counts(np.array([2.5]), 0)
        ([0, 2, 0], None)
        """
        if not count:
            return None
        return np.bincount(labels, minlength=count) if labels.ndim == 1 else labels.sum(axis=0)

    def groups(self, labels: np.ndarray) -> np.ndarray:
        """The group of each node (n,) that a split divides evenly, -1 where unknown.

        Classes are groups; otherwise all nodes are in one.

        >>> NUMBERS.groups(np.array([2.5, np.nan])).tolist()
        [0, -1]
        """
        return np.where(self.is_known(labels), 0, UNKNOWN_LABEL)


class Classes(LabelType):
    task = "classification"

    def fits(self, labels: np.ndarray) -> bool:
        return labels.ndim == 1 and labels.dtype.kind in "iu"

    def checked(self, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
        labels, n = labels.astype(np.int64), len(labels)
        if labels.min(initial=0) < UNKNOWN_LABEL:
            raise GraphError(f"labels contain {labels.min()}; use -1 for an unknown label.")
        if names is None and labels.max(initial=-1) >= max(n, FEW_CLASSES):
            raise GraphError(
                f"the largest label is {labels.max():,}, but {plural(n, 'node')} cannot have so "
                "many classes; number the classes 0, 1, 2, ... and use -1 for an unknown label."
            )
        if names is not None and labels.max(initial=-1) >= len(names):
            raise GraphError(
                f"labels contain {labels.max()} but there are {plural(len(names), 'class name')}; "
                f"labels must be from 0 to {len(names) - 1}."
            )
        return labels

    def is_known(self, labels: np.ndarray) -> np.ndarray:
        return labels >= 0

    def count(self, labels: np.ndarray) -> int:
        return int(labels.max(initial=-1)) + 1

    def text(self, label: np.ndarray, names: Sequence[str]) -> str:
        return str(names[int(label)])

    def unknown(self, nodes: int, count: int) -> np.ndarray:
        return np.full(nodes, UNKNOWN_LABEL)

    def moved(self, labels: np.ndarray, names: Sequence[str], to: Sequence[str]) -> np.ndarray:
        place = {name: i for i, name in enumerate(to)}
        codes = [place.get(name, UNKNOWN_LABEL) for name in names]
        return np.array([*codes, UNKNOWN_LABEL])[labels]

    def groups(self, labels: np.ndarray) -> np.ndarray:
        return labels


class Numbers(LabelType):
    task = "regression"

    def fits(self, labels: np.ndarray) -> bool:
        return labels.ndim == 1 and labels.dtype.kind == "f"

    def checked(self, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
        if names:
            raise GraphError(
                "class_names cannot be used for regression, where labels are "
                "numbers; leave them out."
            )
        if np.isinf(labels).any():
            raise GraphError(
                "labels contain infinity; pass finite numbers, and NaN for unknown labels."
            )
        labels = labels.astype(np.float64)
        largest = np.fmax.reduce(np.abs(labels), initial=0)
        if largest > MAX_NUMBER:
            raise GraphError(
                f"labels contain a number of size {largest:g}; rescale the labels so that none is "
                f"above {MAX_NUMBER:g}."
            )
        return labels

    def is_known(self, labels: np.ndarray) -> np.ndarray:
        return ~np.isnan(labels)

    def count(self, labels: np.ndarray) -> int:
        return 0

    def text(self, label: np.ndarray, names: Sequence[str]) -> float:
        return float(label)

    def unknown(self, nodes: int, count: int) -> np.ndarray:
        return np.full(nodes, np.nan)

    def moved(self, labels: np.ndarray, names: Sequence[str], to: Sequence[str]) -> np.ndarray:
        return labels


class Sets(LabelType):
    task = "multilabel"

    def fits(self, labels: np.ndarray) -> bool:
        return labels.ndim == 2 and labels.dtype.kind in "biuf"

    def checked(self, labels: np.ndarray, names: Sequence[str] | None) -> np.ndarray:
        count = labels.shape[1]
        if names is not None and len(names) != count:
            raise GraphError(
                f"labels have {plural(count, 'column')} but there are "
                f"{plural(len(names), 'class name')}; pass one for each column."
            )
        if not count:
            raise GraphError("labels have no columns; pass one column per label.")
        if labels.dtype.kind == "f":
            labels = np.where(np.isnan(labels), UNKNOWN_LABEL, labels)
        odd = (labels != 0) & (labels != 1) & (labels != UNKNOWN_LABEL)
        if odd.any() and count == 1:
            raise GraphError(
                f"labels has shape {labels.shape}; pass one label per node: labels.ravel()."
            )
        if odd.any():
            raise GraphError(
                f"labels contain {labels[odd][0]}; multi-label columns must contain 0 or 1, or -1 "
                "in every column for a node whose labels are unknown."
            )
        gaps = labels == UNKNOWN_LABEL
        partial = np.flatnonzero(gaps.any(axis=1) & ~gaps.all(axis=1))
        if partial.size:
            raise GraphError(
                f"labels are unknown in some columns of {plural(partial.size, 'node')} (first: "
                f"{partial[0]}); each row must be all 0 or 1, or all -1."
            )
        return np.ascontiguousarray(labels, np.int8)

    def is_known(self, labels: np.ndarray) -> np.ndarray:
        return labels[:, 0] != UNKNOWN_LABEL

    def count(self, labels: np.ndarray) -> int:
        return labels.shape[1]

    def text(self, label: np.ndarray, names: Sequence[str]) -> str:
        return JOINT.join(str(names[c]) for c in np.flatnonzero(label == 1).tolist()) or JOINT

    def unknown(self, nodes: int, count: int) -> np.ndarray:
        return np.full((nodes, count), UNKNOWN_LABEL, np.int8)

    def moved(self, labels: np.ndarray, names: Sequence[str], to: Sequence[str]) -> np.ndarray:
        place = {name: i for i, name in enumerate(names)}
        none = np.where(self.is_known(labels), 0, UNKNOWN_LABEL).astype(np.int8)
        return np.column_stack([labels[:, place[name]] if name in place else none for name in to])


CLASSES, NUMBERS, SETS = LABEL_TYPES = (Classes(), Numbers(), Sets())
TASK_WORDS = (AUTO, *[type_.task for type_ in LABEL_TYPES])


def check_task(task: str | None) -> str:
    """``task`` if it is one of the words; "auto" for None."""
    return AUTO if task is None else check_choice("task", task, TASK_WORDS)


def label_type(labels: np.ndarray) -> LabelType:
    """The type of ``labels``; GraphError if there is none.

    >>> label_type(np.array([0.5, 2.0])).task
    'regression'
    """
    for type_ in LABEL_TYPES:
        if type_.fits(labels):
            return type_
    raise GraphError(
        f"labels have type {labels.dtype} and shape {labels.shape}; pass an integer class for each "
        "node (-1 where unknown; pandas.factorize makes integers of names), a number (NaN where "
        "unknown), or a row of 0 and 1."
    )


def warn_of_float_classes(labels: np.ndarray, task: str | None) -> None:
    """Warn that floats are numbers to predict, if no ``task`` is given and they look like classes.

    They do if all of them are whole numbers, and at most 20 different ones.
    """
    if check_task(task) != AUTO or label_type(labels) is not NUMBERS:
        return
    values = np.unique(labels[~np.isnan(labels)])
    if 2 <= len(values) <= MAX_CLASSES and (values == np.round(values)).all():
        warn(
            f"labels are floats, so they are numbers to predict, though there are only "
            f"{len(values)} different ones; for classes, pass integers (-1 where unknown) or "
            f"{option_name('task', CLASSES.task)}, and otherwise "
            f"{option_name('task', NUMBERS.task)}.",
            stacklevel=3,
        )


def known_labels(labels: np.ndarray) -> np.ndarray:
    """Which nodes have a label: bool (n,).

    >>> known_labels(np.array([[1, 0], [-1, -1]])).tolist()
    [True, False]
    """
    return label_type(labels).is_known(labels)


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with a number after each repetition: a graph may have a name twice.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    unique: list[str] = []
    for name in names:
        ways = itertools.chain([name], (f"{name} ({i})" for i in itertools.count(2)))
        unique.append(next(way for way in ways if way not in unique))
    return unique


def label_sets(texts: Sequence[str]) -> list[list[str]]:
    """The labels that each text joins, such as ``a|b``; ``|`` alone is none of them.

    >>> label_sets(["a|b", "b", "|"])
    [['a', 'b'], ['b'], []]
    """
    return [[part.strip() for part in text.split(JOINT) if part.strip()] for text in texts]


def as_sets(texts: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """Rows of 0 and 1 for texts of :func:`label_sets`, and a row of -1 behind them: int8."""
    place = {name: c for c, name in enumerate(names)}
    rows = np.zeros((len(texts) + 1, len(names)), np.int8)
    for row, labels in zip(rows, label_sets(texts), strict=False):
        row[[place[label] for label in labels]] = 1
    rows[-1] = UNKNOWN_LABEL
    return rows


def relabelled(
    labels: np.ndarray, names: Sequence[str], task: str | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels and names for ``task``, one of :data:`TASK_WORDS`; GraphError if they do not fit it.

    For regression, the names of classes must be numbers. For several labels per node, names are
    split at ``|``.

    >>> relabelled(np.array([1, 0, -1]), ["2.5", "7"], "regression")[0].tolist()
    [7.0, 2.5, nan]
    >>> relabelled(np.array([7.0, np.nan]), [], "classification")
    (array([ 0, -1]), ('7',))
    """
    type_ = label_type(labels)
    if check_task(task) in (AUTO, type_.task):
        return labels, tuple(names)
    known = type_.is_known(labels)
    if type_ is CLASSES and task == NUMBERS.task:
        odd = [name for name in names if not is_numeral(name)]
        if odd:
            use = option_name("task", CLASSES.task)
            raise GraphError(
                f"{option_name('task', task)} requires numbers as labels, but these are "
                f"{plural(len(names), 'class')} ({some_of(odd, 3)}); use {use} to predict them."
            )
        return np.array([*map(float, names), np.nan])[labels], ()
    if type_ is NUMBERS and task == CLASSES.task:
        values, codes = np.unique(labels[known], return_inverse=True)
        classes = np.full(len(labels), UNKNOWN_LABEL)
        classes[known] = codes
        return classes, tuple(str(int(v) if v == np.round(v) else v) for v in values)
    if type_ is CLASSES:
        single = tuple(dict.fromkeys(itertools.chain.from_iterable(label_sets(names))))
        if single:
            return as_sets(names, single)[labels], single
    raise GraphError(
        f"task is {task!r}, but these are labels for {type_.task}; pass other labels, or leave "
        "task out."
    )


def is_numeral(text: str) -> bool:
    """Whether a text is a number.

    >>> is_numeral("2.5"), is_numeral("2,5")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
