"""Models of the folds, kept next to the one that all labels trained, for prediction sets by CV+.

After k folds the labelled node i = 1 .. n has the strangeness s_i by the model of its fold f(i),
which has not learned from its label. CV+ (Barber and others 2021; Romano and others 2020) takes a
label c into the set of a node v if

    #{i : s_i < s_f(i)(v, c)} < (1 - alpha) (n + 1)

where s_f(v, c) is the strangeness of c at v by the model of fold f. For numbers, s_i = |y_i - f|:

    [-q(s_i - mu_f(i)(v)), q(s_i + mu_f(i)(v))],    q: the ceil((1 - alpha) (n + 1))-th smallest

If v and the labelled nodes are exchangeable, the set holds the true label with a probability of at
least 1 - 2 alpha (up to a term that vanishes with n), and mostly with about 1 - alpha.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from hoplite.errors import ModelFileError
from hoplite.models.base import Weights
from hoplite.tasks import Task
from hoplite.tasks.conformal import NEAR

MAX_NUMBERS = 1_000_000  # weights of all folds; beyond, none are kept
NODES, FOLD = "folds.nodes", "folds.{}.{}"  # names of arrays in the file of the weights
PIECE = 10**7  # numbers at a time


@dataclass(frozen=True, eq=False)
class FoldModels:
    """The weights of each fold's model, and what these said of the n labelled nodes.

    Parameters
    ----------
    weights : tuple of dict of ndarray
        k of them.
    nodes : ndarray (n, 3), float64
        The fold 0 .. k - 1, the label and the out-of-fold strangeness of every labelled node.
    """

    weights: tuple[Weights, ...]
    nodes: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by names, as it is saved."""
        own = {
            FOLD.format(fold, name): value
            for fold, weights in enumerate(self.weights)
            for name, value in weights.items()
        }
        return own | {NODES: self.nodes}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> Self:
        """The inverse of :meth:`arrays`, for weights of these names; ModelFileError if damaged."""
        folds, nodes = range((len(arrays) - 1) // len(names)), arrays[NODES]
        if not folds or not len(nodes) or not np.isin(nodes[:, 0], folds).all():
            raise ModelFileError("the model's folds are damaged; train again.")
        weights = ({name: arrays[FOLD.format(fold, name)] for name in names} for fold in folds)
        return cls(tuple(weights), nodes)

    @staticmethod
    def shapes(
        own: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Of :meth:`arrays`, for weights of the shapes ``own`` in a file that has ``found``."""
        if NODES not in found:
            return {}
        folds = range((len(found) - len(own) - 1) // len(own))
        expected = {FOLD.format(fold, name): own[name] for fold in folds for name in own}
        return expected | {NODES: (*found[NODES][:1], 3)}

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
            centres = np.column_stack([task.link(one)[:, 0] for one in outputs]).astype(np.float64)
            ends = [sign * _smallest(sign * centres, folds, scores, rank) for sign in (-1, 1)]
            return np.column_stack(ends)
        inside = np.empty_like(outputs[0], bool)
        strange = [1 - task.link(one).astype(np.float64) - NEAR for one in outputs]
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
    """Of every row of ``centres`` (n, k) the rank-th smallest centre of a node's fold + score."""
    found = np.full(len(centres), np.inf)
    step = max(1, PIECE // len(scores))
    for start in range(0, len(centres) if rank <= len(scores) else 0, step):
        sums = centres[start : start + step, folds] + scores
        found[start : start + step] = np.partition(sums, rank - 1, axis=1)[:, rank - 1]
    return found
