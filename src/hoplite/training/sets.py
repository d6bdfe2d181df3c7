"""Nodes with their labels, what each of them counts in the loss, and mini-batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.errors import GraphError
from hoplite.graph import PARTS, NodeData
from hoplite.tasks import Task

WINDOW = 8  # segments whose rows are shuffled among each other


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
        """The set with these weights, (n,), or (n, m) one for each output, divided by their mean.

        So twice the weight of a node is the node twice, and a penalty keeps its share.
        """
        if weights is None or not len(self):
            return self
        if not weights.sum() > 0:
            raise GraphError(
                "all weights of the training nodes are 0; at least one must be positive."
            )
        return NodeSet(self.nodes, self.labels, weights / weights.mean())

    def at(self, rows: np.ndarray) -> NodeSet:
        """Some of the nodes, by their positions or a mask."""
        weights = None if self.weights is None else self.weights[rows]
        return NodeSet(self.nodes[rows], self.labels[rows], weights)

    def counted(self) -> NodeSet:
        """The nodes that count in the loss; those of weight 0 are as if without a label.

        All nodes if all weights are 0.
        """
        if self.weights is None or not self.weights.any():
            return self
        return self.at(np.flatnonzero(self.weights.reshape(len(self), -1).any(axis=1)))

    def distinct(self) -> NodeSet:
        """The nodes in rising order, without weights; one that comes twice has its first label."""
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
    """The ``train``, ``val`` and ``test`` nodes of a labelled graph's split, and their weights.

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
    """``sets`` with the weights of their nodes times those of their classes, of mean 1.

    A set for scores whose weights are all 0 has none.
    """
    seen, weighted = sets["train"].labels, {}
    for name, part in sets.items():
        of_class = task.node_weights(config.class_weight, seen, part.labels, names)
        weights = product_of((of_class, part.weights))
        plain = NodeSet(part.nodes, part.labels)
        unused = name != "train" and weights is not None and not weights.any()
        weighted[name] = plain if unused else plain.weighted(weights)
    return weighted


def product_of(factors: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The product of weights of nodes, (n,) or (n, m) each; None if all are None.

    >>> product_of([np.array([2.0, 3.0]), None, np.array([[1.0, 5.0], [1.0, 1.0]])]).tolist()
    [[2.0, 10.0], [3.0, 3.0]]
    """
    known = [np.asarray(factor, np.float64) for factor in factors if factor is not None]
    if not known:
        return None
    axes, product = max(factor.ndim for factor in known), np.ones(1)
    for factor in known:
        product = product * factor.reshape(*factor.shape, *[1] * (axes - factor.ndim))
    return product


def checked_weights(sample_weight: Any, count: int) -> np.ndarray | None:
    """A weight for each of ``count`` nodes, or None; GraphError if they are anything else."""
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


def shuffled_batches(count: int, batch: int, seed: int, epoch: int) -> Iterator[np.ndarray | None]:
    """Positions 0 .. count - 1 in random order, ``batch`` at a time; None, for all, if it is 0.

    The positions are cut into segments of ``batch`` neighbours, the segments shuffled, and the
    rows of every 8 of them shuffled again. Every position is in one batch of the epoch, and only
    one batch has fewer than ``batch``.

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
