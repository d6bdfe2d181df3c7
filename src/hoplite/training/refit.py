"""Refit: train again on training and validation labels, with the epochs that validation chose.

It is another protocol: the validation nodes choose the epochs and all settings, in a first
training on the training labels alone, and are learned from only then. So their figures are those of
the first training, and the test nodes judge the second model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hoplite.models import Model
from hoplite.tasks import Task
from hoplite.training.loop import fit_runs
from hoplite.training.runs import AnyPropagation, NodeSet, Run, RunResult, TrainingProgress

PROTOCOL = "refit on training and validation labels"


def union(train: NodeSet, val: NodeSet) -> NodeSet:
    """The nodes of both, without weights.

    >>> union(NodeSet(np.array([4, 1]), np.array([0, 1])), NodeSet(np.array([2]), np.array([1])))
    NodeSet(nodes=array([4, 1, 2]), labels=array([0, 1, 1]), weights=None)
    """
    nodes = np.concatenate([train.nodes, val.nodes])
    return NodeSet(nodes, np.concatenate([train.labels, val.labels]))


def refit_runs(
    model: Model,
    source: AnyPropagation,
    results: Sequence[RunResult],
    parts: Mapping[str, NodeSet],
    weighted: Callable[[NodeSet], NodeSet],
    *,
    progress: Callable[[TrainingProgress], None] | None = None,
    task: str | Task,
) -> list[RunResult]:
    """The runs of ``results`` trained again from their seeds, each for its own best epochs.

    All train together and each leaves when it is done. ``weighted`` gives the training nodes of
    both parts their weights. A run without a result stays as it is.
    """
    again = [r for r, result in enumerate(results) if result.best_epoch]
    longest = max(results[r].best_epoch for r in again)
    runs = [
        Run(
            dataclasses.replace(results[r].run.config, epochs=longest),
            results[r].run.seed,
            results[r].best_epoch,
        )
        for r in again
    ]
    both = weighted(union(parts["train"], parts["val"]))
    order = np.argsort(both.nodes, kind="stable")  # as the nodes of a split are
    weights = None if both.weights is None else both.weights[order]
    both = NodeSet(both.nodes[order], both.labels[order], weights)
    made = fit_runs(model, source, runs, both, progress=progress, task=task)
    found = dict(zip(again, made, strict=True))
    return [
        dataclasses.replace(found[r], run=result.run) if r in found else result
        for r, result in enumerate(results)
    ]
