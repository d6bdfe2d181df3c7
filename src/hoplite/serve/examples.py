"""Nodes to begin with: those of which a model says the most telling things, from its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hoplite.shown import short
from hoplite.tasks.base import Task

MOST_EXAMPLES = 4  # of a kind


def find_examples(
    task: Task, logits: np.ndarray, names: Sequence[str]
) -> list[tuple[str, list[int]]]:
    """What the nodes are, and which: of numbers the ends, of classes the rarest one and doubts.

    The rarest class is the one that is predicted least often, but somewhere; of the outputs
    ``logits`` (n, m) come its largest f(z), and the smallest f(z) of what is predicted.

    >>> from hoplite.tasks.multiclass import Multiclass
    >>> found = find_examples(Multiclass(), np.array([[2.0, 0], [0, 1], [1, 0], [5, 0]]), "ab")
    >>> for about, nodes in found:
    ...     print(about, nodes)
    the surest of b, which is predicted least often [1]
    the least sure [2, 0, 3]
    """
    if not task.has_classes:
        values = task.predict(logits)
        return [("the largest", _first(-values)), ("the smallest", _first(values))]
    values, predicted = task.link(logits), task.predict(logits)
    if task.exclusive:
        counts = np.bincount(predicted, minlength=len(names))
    else:
        counts = (predicted == 1).sum(axis=0)
    if not counts.any():
        return []
    rarest = int(np.where(counts > 0, counts, len(logits) + 1).argmin())
    own = predicted == rarest if task.exclusive else predicted[:, rarest] == 1
    surest = _first(np.where(own, -values[:, rarest], np.inf))[: int(counts[rarest])]
    often = ", which is predicted least often" if (counts > 0).sum() > 1 else ""
    found = [(f"the surest of {short(names[rarest])}{often}", surest)]
    if task.exclusive:
        doubts = np.take_along_axis(values, predicted[:, None], 1)[:, 0]
        doubts[surest] = np.inf  # each node once
        found.append(("the least sure", _first(doubts)[: len(doubts) - len(surest)]))
    return [(about, nodes) for about, nodes in found if nodes]


def _first(keys: np.ndarray) -> list[int]:
    """Where the smallest keys are; of equal ones the first."""
    most = min(MOST_EXAMPLES, len(keys))
    if most < len(keys):
        limit = np.partition(keys, most - 1)[most - 1]
        near = np.flatnonzero(keys <= limit) if limit == limit else np.arange(len(keys))
    else:
        near = np.arange(len(keys))
    return near[np.argsort(keys[near], kind="stable")][:most].tolist()
