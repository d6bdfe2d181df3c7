"""Look names up exactly, by prefix or by substring; choose example nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from hoplite.formatting import short
from hoplite.tasks.base import Task

MAX_SORTED = 2_000_000  # names that are sorted for a search; more are only found exactly
NUM_EXAMPLES = 4


class Names:
    """The texts of ``names``, for exact look-up and search.

    >>> names = Names(["Zoë", "bob", "Bea", 7])
    >>> names.index("7"), names.index("Bob"), names.search("B", 5), names.search("o", 5)
    (3, None, [2, 1], [1, 0])
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self._names = names
        self._numbered = isinstance(names, range)  # 0 to n - 1, which need no table
        self._place: dict[str, int] = {}
        if not self._numbered:
            self._place = {str(name): place for place, name in enumerate(names)}
        few = names if len(names) <= MAX_SORTED else ()
        self._sorted = sorted((str(name).casefold(), place) for place, name in enumerate(few))

    @property
    def unique(self) -> bool:
        """Whether no two names have the same text, as 1 and "1" have."""
        return self._numbered or len(self._place) == len(self._names)

    def __getitem__(self, place: int) -> str:
        return str(self._names[place])

    def index(self, text: str) -> int | None:
        """The place of the name with exactly this text, or None."""
        if not self._numbered:
            return self._place.get(text)
        known = text.isascii() and text.isdecimal() and str(int(text[:20])) == text
        return int(text) if known and int(text) < len(self._names) else None

    def search(self, text: str, limit: int) -> list[int]:
        """Places of names that begin with ``text``, else of those that contain it.

        Case does not matter; a name equal to ``text`` comes first.
        """
        wanted = text.casefold()
        start = bisect_left(self._sorted, (wanted,))
        near = self._sorted[start : start + limit]
        matches = [place for name, place in near if name.startswith(wanted)]
        if not matches:
            matches = [place for name, place in self._sorted if wanted in name]
        exact = self.index(text)
        if exact is not None:
            matches = [exact, *(place for place in matches if place != exact)]
        return matches[:limit]


def find_examples(
    task: Task, logits: np.ndarray, names: Sequence[str]
) -> list[tuple[str, list[int]]]:
    """Nodes to begin with, and what they are.

    For numbers these are the largest and the smallest. For classes they are the surest
    predictions of the class that is predicted least often, and the least sure of all.

    >>> from hoplite.tasks.multiclass import Multiclass
    >>> found = find_examples(Multiclass(), np.array([[2.0, 0], [0, 1], [1, 0], [5, 0]]), "ab")
    >>> for about, nodes in found:
    ...     print(about, nodes)
    the surest of b, which is predicted least often [1]
    the least sure [2, 0, 3]
    """
    predicted = task.predict(logits)
    everywhere = np.ones(len(logits), bool)
    if not task.has_classes:
        smallest, largest = _first(predicted, everywhere), _first(-predicted, everywhere)
        return [("the largest", largest), ("the smallest", smallest)]
    values = task.link(logits)
    inside = predicted == 1 if values.shape == predicted.shape else _one_hot(predicted, len(names))
    counts = inside.sum(axis=0)
    if not counts.any():
        return []
    rarest = int(np.where(counts > 0, counts, len(logits) + 1).argmin())
    surest = _first(-values[:, rarest], inside[:, rarest])
    often = ", which is predicted least often" if (counts > 0).sum() > 1 else ""
    examples = [(f"the surest of {short(names[rarest])}{often}", surest)]
    if task.exclusive:
        everywhere[surest] = False  # each node once
        examples.append(("the least sure", _first(values[inside], everywhere)))
    return [(about, nodes) for about, nodes in examples if nodes]


def _one_hot(classes: np.ndarray, count: int) -> np.ndarray:
    return classes[:, None] == np.arange(count)


def _first(keys: np.ndarray, candidates: np.ndarray) -> list[int]:
    """The candidates with the smallest keys; of equal ones the first."""
    nodes = np.flatnonzero(candidates)
    return nodes[np.argsort(keys[nodes], kind="stable")][:NUM_EXAMPLES].tolist()
