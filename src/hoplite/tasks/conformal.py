"""Prediction sets with a stated coverage, from nonconformity scores of labelled nodes.

**Split conformal prediction** (:class:`Conformal`): with s_(1) <= .. <= s_(n) the nonconformity
of n nodes outside the training set, the set of all labels with a nonconformity of at most

    q = s_(r),    r = ceil((n + 1) coverage),    q = infinity where r > n

contains the label of another node with a probability of at least ``coverage``, and at most
coverage + 1 / (n + 1) without ties, whatever the model, if that node and the n are exchangeable.

That is an average over all nodes, and may leave a rare class out. Class by class (Mondrian), q_c is
that of the n_c nodes of class c, and so is the coverage.

**CV+** (:class:`FoldModels`; Barber and others 2021; Romano and others 2020) uses the models of k
folds, kept next to the one that all labels trained. The labelled node i = 1 .. n has the
nonconformity s_i by the model of its fold f(i), which has not learned from its label. A label c is
in the set of a node v if

    #{i : s_i < s_f(i)(v, c)} < (1 - alpha) (n + 1)

where s_f(v, c) is the nonconformity of c at v by the model of fold f. For numbers, s_i = |y_i - f|:

    [-q(s_i - mu_f(i)(v)), q(s_i + mu_f(i)(v))],    q: the ceil((1 - alpha) (n + 1))-th smallest

If v and the labelled nodes are exchangeable, the set holds the true label with a probability of at
least 1 - 2 alpha (up to a term that vanishes with n), and mostly with about 1 - alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from hoplite.config import check_number
from hoplite.errors import ModelFileError
from hoplite.labels import JOINT
from hoplite.tasks.base import Task

NEAR = 1e-6  # probabilities so near are equal: float32, evaluated in any order
MAX_KEPT = 1000  # scores: beyond, a set may cover 1/1000 more than asked
MAX_NUMBERS = 1_000_000  # weights of all folds; beyond, none are kept
NODES, FOLD = "folds.nodes", "folds.{}.{}"  # names of arrays in the file of the weights
PIECE = 10**7  # numbers at a time
Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Conformal:
    """The sorted scores of n = ``nodes`` validation nodes, thinned where they are many.

    Of K ``scores`` the j-th, from 1, is s_(ceil(j n / K)); a rank between two of them takes the
    larger one, so that coverage is never lost.

    >>> scores = Conformal.of(np.array([0.4, 0.1, 0.3, 0.2]))
    >>> scores.quantile(0.5), scores.quantile(0.8), scores.quantile(0.9)
    (0.3, 0.4, inf)

    ``classes`` are those of the nodes of each class, None of one that no node has; none where nodes
    have no classes.
    """

    nodes: Annotated[int, Meta(ge=1)]
    scores: Annotated[tuple[float, ...], Meta(min_length=1)]
    classes: tuple[Conformal | None, ...] = ()

    @classmethod
    def of(cls, scores: np.ndarray, labels: np.ndarray | None = None, classes: int = 0) -> Self:
        """The scores from the nonconformity (n,) of all nodes, in any order, and of each class."""
        n, kept = len(scores), min(len(scores), MAX_KEPT)
        ranks = -(-np.arange(1, kept + 1) * n // kept)
        by_class = (scores[labels == c] for c in range(classes))
        parts = tuple(cls.of(part) if len(part) else None for part in by_class)
        return cls(n, tuple(np.sort(scores)[ranks - 1].tolist()), parts)

    def quantile(self, coverage: float) -> float:
        """q, by the exact rule: ``coverage`` is the decimal number that it is written as.

        >>> Conformal.of(np.arange(1, 10)).quantile(0.7)  # rank 7, though 10 * 0.7 > 7 in floats
        7
        """
        check_number("coverage", coverage, 0, 1, open_ends="lm")
        rank = math.ceil(Fraction(repr(float(coverage))) * (self.nodes + 1))
        if rank > self.nodes:
            return math.inf
        return self.scores[-(-rank * len(self.scores) // self.nodes) - 1]

    def quantiles(self, coverage: float) -> np.ndarray:
        """q_c of every class, infinite where its nodes are too few: (m,).

        >>> scores = Conformal.of(np.array([0.1, 0.2, 0.9]), np.array([0, 0, 1]), 3)
        >>> scores.quantiles(0.5).tolist()
        [0.2, 0.9, inf]
        """
        parts = self.classes
        return np.array([math.inf if part is None else part.quantile(coverage) for part in parts])


def nodes_needed(coverage: float) -> int:
    """The smallest number of nodes for which q is finite.

    >>> nodes_needed(0.9), nodes_needed(0.95), nodes_needed(0.5)
    (9, 19, 1)
    """
    share = Fraction(repr(float(coverage)))
    return math.ceil(share / (1 - share))


def set_names(names: Sequence[str]) -> list[str]:
    """Names in which ``|`` is escaped, so that it can separate them."""
    return [name.replace("\\", "\\\\").replace(JOINT, f"\\{JOINT}") for name in names]


@dataclass(frozen=True, eq=False)
class FoldModels:
    """The weights of each fold's model, and what these said of the n labelled nodes.

    Parameters
    ----------
    weights : tuple of dict of ndarray
        k of them.
    nodes : ndarray (n, 3), float64
        The fold 0 .. k - 1, the label and the out-of-fold nonconformity of every labelled node.
    """

    weights: tuple[Weights, ...]
    nodes: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by names, as it is saved."""
        weights_by_name = {
            FOLD.format(fold, name): value
            for fold, weights in enumerate(self.weights)
            for name, value in weights.items()
        }
        return weights_by_name | {NODES: self.nodes}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> Self:
        """The inverse of :meth:`arrays`, for weights of these names; ModelFileError if damaged."""
        folds, nodes = range((len(arrays) - 1) // len(names)), arrays[NODES]
        if not folds or not len(nodes) or not np.isin(nodes[:, 0], folds).all():
            raise ModelFileError("the model's folds are damaged; train the model again.")
        weights = ({name: arrays[FOLD.format(fold, name)] for name in names} for fold in folds)
        return cls(tuple(weights), nodes)

    @staticmethod
    def shapes(
        weights: Mapping[str, tuple[int, ...]], saved: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """The shapes of :meth:`arrays`, for models with these weights and a file with ``saved``."""
        if NODES not in saved:
            return {}
        folds = range((len(saved) - len(weights) - 1) // len(weights))
        expected = {FOLD.format(fold, name): weights[name] for fold in folds for name in weights}
        return expected | {NODES: (*saved[NODES][:1], 3)}

    def sets(
        self, task: Task, outputs: Sequence[np.ndarray], coverage: float, *, by_class: bool
    ) -> np.ndarray:
        """Of classes bool (n, m), of numbers (n, 2), by the outputs (n, m) of each fold's model.

        With ``by_class`` a class is compared with the labelled nodes of this class alone.
        """
        share, folds = Fraction(repr(float(coverage))), self.nodes[:, 0].astype(np.int64)
        labels, scores = self.nodes[:, 1], self.nodes[:, 2]
        if not task.has_classes:
            rank = math.ceil(share * (len(scores) + 1))
            centres = np.column_stack([task.link(z)[:, 0] for z in outputs]).astype(np.float64)
            ends = [sign * _smallest(sign * centres, folds, scores, rank) for sign in (-1, 1)]
            return np.column_stack(ends)
        inside = np.empty_like(outputs[0], bool)
        strange = [1 - task.link(z).astype(np.float64) - NEAR for z in outputs]
        for c in range(inside.shape[1]):
            counted = labels == c if by_class else np.ones(len(labels), bool)
            below = np.zeros(len(inside), np.int64)
            for fold, values in enumerate(strange):
                ordered = np.sort(scores[counted & (folds == fold)])
                below += np.searchsorted(ordered, values[:, c])
            inside[:, c] = below < math.ceil(share * (int(counted.sum()) + 1))
        return inside


def is_of_fold(name: str) -> bool:
    """Whether an array of this name belongs to :class:`FoldModels`."""
    return name.startswith("folds.")


def _smallest(centres: np.ndarray, folds: np.ndarray, scores: np.ndarray, rank: int) -> np.ndarray:
    """The rank-th smallest centre of a node's fold + score, for every row of ``centres`` (n, k)."""
    smallest = np.full(len(centres), np.inf)
    step = max(1, PIECE // len(scores))
    for start in range(0, len(centres) if rank <= len(scores) else 0, step):
        sums = centres[start : start + step, folds] + scores
        smallest[start : start + step] = np.partition(sums, rank - 1, axis=1)[:, rank - 1]
    return smallest
