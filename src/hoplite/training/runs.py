"""What goes into the training loop and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.models import Model, Weights
from hoplite.propagation.engine import Propagation
from hoplite.propagation.plan import Plan, Problem, make_plan


@dataclass(frozen=True)
class Run:
    """One training: its settings and its seed."""

    config: TrainingConfig
    seed: int


@dataclass(frozen=True)
class RunResult:
    """What one run gave: the weights of its best epoch and the curves that led there."""

    run: Run
    weights: Weights
    best_epoch: int
    epochs: int
    val_accuracy: float  # at the best epoch; NaN without validation nodes
    history: dict[str, np.ndarray]  # per epoch: {train,val[,test]}_{loss,accuracy}
    seconds: float  # this run's share of the batch's time


@dataclass(frozen=True)
class Progress:
    """How far a batch of runs is, for progress bars."""

    done: int  # run-epochs finished or saved by early stopping
    total: int
    epoch: int
    running: int
    val_accuracy: float  # mean of the runs' best so far

    def within(self, index: int, count: int) -> Progress:
        """This batch's progress as number ``index`` of ``count`` equal batches."""
        waiting = count - index - 1
        done, total = self.done + index * self.total, count * self.total
        return Progress(done, total, self.epoch, self.running + waiting, self.val_accuracy)


@dataclass(frozen=True)
class NodeSet:
    """Nodes with their known classes."""

    nodes: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.nodes)


def plan_runs(model: Model, propagation: Propagation, runs: Sequence[Run], rows: int) -> Plan:
    """The evaluation order for ``runs`` whose epochs need the outputs of ``rows`` nodes."""
    features = propagation.features
    problem = Problem(
        nodes=features.shape[0],
        features=features.shape[1],
        classes=model.num_classes,
        operator_nonzeros=propagation.matrix.nnz,
        feature_nonzeros=features.nnz,
        hops=propagation.hops,
        kept_hops=1 if model.kept_hops == "last" else propagation.hops + 1,
        rows=rows,
        epochs=runs[0].config.epochs,
        runs=len(runs),
        dropout=any(run.config.dropout for run in runs),
    )
    return make_plan(problem, runs[0].config.order)
