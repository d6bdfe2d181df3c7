"""Sets of labelled nodes, their weights in the loss, and mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.errors import GraphError
from hoplite.graph import PARTS, NodeData
from hoplite.tasks import Task

WINDOW = 8  # segments whose rows are shuffled together


@dataclass(frozen=True)
class NodeSet:
    """Nodes with their labels, and the weight of each in the loss.

    Parameters
    ----------
    nodes : (n,) array of int
        Indices of the nodes.
    labels : (n,) or (n, m) array
        Their labels.
    weights : (n,) array, optional
        Their weights in the loss; 1 if missing.
    """

    nodes: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None = None

    def weighted(self, weights: np.ndarray | None) -> NodeSet:
        """The set with these weights, divided by their mean: (n,), or (n, m) for each output.

        Doubling the weight of a node then equals repeating the node, whatever the penalty.
        """
        if weights is None or not len(self):
            return self
        if not weights.sum() > 0:
            raise GraphError(
                "all weights of the training nodes are 0; at least one must be positive."
            )
        return NodeSet(self.nodes, self.labels, weights / weights.mean())

    def at(self, rows: np.ndarray) -> NodeSet:
        """A subset of the nodes, by positions or a mask."""
        weights = None if self.weights is None else self.weights[rows]
        return NodeSet(self.nodes[rows], self.labels[rows], weights)

    def counted(self) -> NodeSet:
        """The nodes whose weight is not 0; all nodes if all weights are 0."""
        if self.weights is None or not self.weights.any():
            return self
        return self.at(np.flatnonzero(self.weights.reshape(len(self), -1).any(axis=1)))

    def distinct(self) -> NodeSet:
        """The distinct nodes, sorted, without weights; a repeated node has its first label."""
        nodes, first = np.unique(self.nodes, return_index=True)
        return NodeSet(nodes, np.asarray(self.labels)[first])

    def check(self, num_nodes: int) -> None:
        """Raise GraphError unless every node is in range and has a label."""
        nodes, labels = np.asarray(self.nodes), np.asarray(self.labels)
        if nodes.ndim != 1 or nodes.shape != labels.shape[:1]:
            raise GraphError(
                f"nodes has shape {nodes.shape} but labels has shape {labels.shape}; "
                "pass one label per node."
            )
        if nodes.size and (nodes.min() < 0 or nodes.max() >= num_nodes):
            outside = nodes.min() if nodes.min() < 0 else nodes.max()
            raise GraphError(
                f"node {outside} is out of range; node indices go from 0 to {num_nodes - 1}."
            )

    def __len__(self) -> int:
        return len(self.nodes)


def node_sets(data: NodeData, sample_weight: np.ndarray | None = None) -> dict[str, NodeSet]:
    """The ``train``, ``val`` and ``test`` nodes of a labelled graph, with their weights.

    Training and validation nodes of weight 0 are left out.
    """
    sets = {}
    for name in PARTS:
        nodes = getattr(data.split, name)
        weights = None if sample_weight is None else sample_weight[nodes]
        part = NodeSet(nodes, data.labels[nodes], weights)
        sets[name] = part if name == "test" else part.counted()
    return sets


def weighted_sets(
    sets: Mapping[str, NodeSet], task: Task, config: TrainingConfig, names: Sequence[str]
) -> dict[str, NodeSet]:
    """Multiply the weights of nodes by those of their classes, and divide them by their mean.

    Validation and test sets whose weights are all 0 have no weights.
    """
    weighted = {}
    for name, part in sets.items():
        train_labels, weights = sets["train"].labels, part.weights
        by_class = task.node_weights(config.class_weight, train_labels, part.labels, names)
        if by_class is not None:  # (n,), or (n, m)
            weights = by_class if weights is None else (by_class.T * weights).T
        plain = NodeSet(part.nodes, part.labels)
        unused = name != "train" and weights is not None and not weights.any()
        weighted[name] = plain if unused else plain.weighted(weights)
    return weighted


def checked_weights(sample_weight: Any, count: int) -> np.ndarray | None:
    """Check that there is one weight for each of ``count`` nodes, or None."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    if weights.shape != (count,) or weights.dtype.kind not in "biuf":
        raise GraphError(
            f"sample_weight has shape {weights.shape} and type {weights.dtype} for {count:,} "
            "nodes; pass one number per node."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise GraphError(
            "sample_weight contains a negative number, NaN or infinity; use finite "
            "numbers, 0 or larger."
        )
    return weights.astype(np.float64)


def union(train: NodeSet, val: NodeSet) -> NodeSet:
    """The nodes of both sets, sorted; if only ``train`` has weights, ``val`` gets their mean.

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


def shuffled_batches(count: int, batch: int, seed: int, epoch: int) -> Iterator[np.ndarray | None]:
    """Positions 0 .. count - 1 in random order, ``batch`` at a time; None, for all, if it is 0.

    The positions are cut into segments of ``batch`` positions, the segments are shuffled, and then
    the rows within every 8 segments. Each position is in one batch of the epoch, and only one batch
    may be smaller than ``batch``.

    >>> [len(rows) for rows in shuffled_batches(5, 2, seed=0, epoch=0)]
    [2, 2, 1]
    """
    if not batch:
        yield None
        return
    batch = min(batch, count)
    rng = np.random.default_rng([seed, epoch])
    segments = rng.permutation(-(-count // batch))
    for first in range(0, len(segments), WINDOW):
        starts = np.sort(segments[first : first + WINDOW]) * batch
        window = (starts[:, None] + np.arange(batch)).ravel()
        window = window[window < count]
        order = window[rng.permutation(len(window))]
        for start in range(0, len(order), batch):
            yield order[start : start + batch]
