"""Refit: train again on training and validation labels, with the epochs that validation chose.

It is another protocol: the validation nodes choose the epochs and all settings, in a first
training on the training labels alone, and are learned from only then. So their figures are those of
the first training, and the test nodes judge the second model.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from hoplite.training.runs import Run, RunResult
from hoplite.training.sets import NodeSet

PROTOCOL = "refit on training and validation labels"


def union(train: NodeSet, val: NodeSet) -> NodeSet:
    """The nodes of both, in rising order; where only ``train`` has weights, ``val`` has their mean.

    >>> union(NodeSet(np.array([4, 1]), np.array([0, 1])), NodeSet(np.array([2]), np.array([1])))
    NodeSet(nodes=array([1, 2, 4]), labels=array([1, 1, 0]), weights=None)
    """
    nodes = np.concatenate([train.nodes, val.nodes])
    labels = np.concatenate([train.labels, val.labels])
    weights = None
    if train.weights is not None:
        others = np.full(len(val), train.weights.mean()) if val.weights is None else val.weights
        weights = np.concatenate([train.weights, others])
    order = np.argsort(nodes, kind="stable")
    return NodeSet(nodes[order], labels[order], None if weights is None else weights[order])


def refit_run(result: RunResult) -> Run:
    """The run of ``result`` again, from its seed, for its own best epochs."""
    config = dataclasses.replace(result.run.config, epochs=result.best_epoch)
    return Run(config, result.run.seed)
