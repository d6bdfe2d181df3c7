"""The rule by which one of several finalists is chosen: the simplest of equals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hoplite.graph import Graph
from hoplite.selection.ranking import Candidate, by_validation
from hoplite.selection.trials import Trial
from hoplite.tasks import Metric


@dataclass(frozen=True)
class Scored:
    """A candidate's figures of one rung."""

    trial: Trial
    rung: int
    figures: Candidate
    seconds: float
    epochs: int  # of all seeds

    @property
    def scores(self) -> np.ndarray:
        """What is compared, a value per seed, larger is better."""
        return np.array(self.figures.scores or self.figures.val)

    @property
    def order(self) -> tuple[float, ...]:
        """What sorts them, the best first; of equals, the first in the file."""
        return *by_validation(self.figures), self.trial.position


def decide(
    finalists: Sequence[Scored], graph: Graph, monitor: Metric
) -> tuple[Scored, Scored, float]:
    """The simplest of the finalists that are as good as the best; the best; what counts as equal.

    A finalist is as good as the best if the best's lead in mean score over the r seeds is at most

        max( sqrt(s_best^2 / r + s_other^2 / r),  1 / n_val )

    that is the standard error of the difference by the seeds, and, of shares of the nodes such as
    the accuracy, one validation node. Simple is what :meth:`Trial.simplicity` says.

    Why not the binomial error of one accuracy: all finalists are judged on the same nodes, and are
    wrong at mostly the same ones, which says nothing of their difference. What does is the number
    D of nodes where only one of two is right, with an error of sqrt(D) / n_val: a lead of one node
    is never more than that, whatever D is, and larger ones may be.
    """
    ranked = sorted(finalists, key=lambda one: one.order)
    best = ranked[0]
    whole = [one for one in ranked if one.figures.lost == best.figures.lost]
    node = 1 / len(graph.split.val) if monitor.percent else 0.0
    margins = {id(one): max(_error(best.scores, one.scores), node) for one in whole}
    lead = {id(one): float(np.nanmean(best.scores) - np.nanmean(one.scores)) for one in whole}
    equal = [one for one in whole if one is best or lead[id(one)] <= margins[id(one)] + 1e-9]
    chosen = min(equal, key=lambda one: one.trial.simplicity(graph))
    return chosen, best, margins[id(chosen)]


def _error(one: np.ndarray, other: np.ndarray) -> float:
    """Standard error of the difference of two means over the seeds; 0 for a single seed."""
    if len(one) < 2:
        return 0.0
    found = math.sqrt((np.nanvar(one, ddof=1) + np.nanvar(other, ddof=1)) / len(one))
    return found if math.isfinite(found) else 0.0
