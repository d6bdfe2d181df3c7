"""Labels of neighbours as columns, at hop 0 only.

With A (n, n) the weights of the edges without self-loops, u (n,) 1 at the training nodes and 0 at
the others, and Y (n, m) the targets of the training nodes, one-hot for classes, 0 and 1 for several
labels, less their mean for numbers, and 0 at the other nodes:

    W = diag(A u)^-1 A diag(u)                        n x n, a row of 0 without a labelled neighbour
    L = W Y                                           n x m
    H = sum_i p_i(M) X Theta_i + L Lambda (+ 1 b')    Lambda: m x m, learned

So L are shares of the classes among the labelled neighbours of a node, or the mean of their
numbers. No node sees its own label: the diagonal of W is 0, and L is not propagated. In
cross-validation u are the nodes of the other folds. Of a training node L has one label less than of
another node with the same neighbours.

The part of a neighbour t in the logit of class c of node v is W_vt (Y Lambda)_tc.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.engine.features import Features
from hoplite.errors import HopliteWarning, ModelFileError, plural
from hoplite.graph import NodeData
from hoplite.models.alignment import NodeIndex


def neighbour_weights(adjacency: sp.csr_array, nodes: np.ndarray) -> sp.csr_array:
    """W: the share of each of N labelled ``nodes`` among the labelled neighbours of a node: (n, N).

    >>> edges = sp.csr_array(np.array([[5, 1, 1], [1, 0, 0], [1, 0, 0]]))
    >>> neighbour_weights(edges, np.array([0, 1])).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]
    """
    place = np.full(adjacency.shape[0], -1)
    place[nodes] = np.arange(len(nodes))
    edges = adjacency.tocoo()
    row, column = edges.coords
    used = (row != column) & (place[column] >= 0) & (edges.data > 0)
    row, weights = row[used], edges.data[used].astype(np.float64)
    total = np.bincount(row, weights, len(place))
    shape = len(place), len(nodes)
    return sp.csr_array((weights / total[row], (row, place[column[used]])), shape)


def target_rows(targets: np.ndarray, outputs: int) -> sp.csr_array:
    """Y of N nodes from the targets of their task, classes, rows of 0 and 1 or numbers: (N, m).

    >>> target_rows(np.array([1, 0]), 2).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if targets.ndim == 2 or targets.dtype.kind == "f":
        return sp.csr_array(targets.reshape(len(targets), -1).astype(np.float64))
    values, rows = np.ones(len(targets)), np.arange(len(targets))
    return sp.csr_array((values, (rows, targets)), (len(targets), outputs))


def neighbour_columns(
    adjacency: sp.csr_array, nodes: np.ndarray, targets: np.ndarray, outputs: int, dtype: Any
) -> Features:
    """L (n, m) of distinct ``nodes`` with their targets."""
    columns = neighbour_weights(adjacency, nodes) @ target_rows(targets, outputs)
    return Features.from_array(sp.csr_array(columns, dtype=dtype))


@dataclass(frozen=True)
class NeighbourLabels:
    """The labels that a trained model reads of neighbours.

    Parameters
    ----------
    nodes : tuple of str or int
        The ids of its training nodes as texts; their numbers, in a graph without ids.
    targets : tuple of float or tuple of int
        Of each node its class, its number less the mean over the deviation, or all its labels.

    >>> NeighbourLabels(("a", "b"), (1, (0, 1))).rows(2).toarray().tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """

    nodes: tuple[int | str, ...]
    targets: tuple[float | tuple[int, ...], ...]

    @classmethod
    def of(cls, data: NodeData, nodes: np.ndarray, targets: np.ndarray) -> NeighbourLabels:
        """The labels of distinct ``nodes`` of the data."""
        ids, numbers = data.node_ids, nodes.tolist()
        names = numbers if ids is None else [str(ids[number]) for number in numbers]
        several = [tuple(np.flatnonzero(row).tolist()) for row in targets] * (targets.ndim == 2)
        return cls(tuple(names), tuple(several or targets.tolist()))

    def rows(self, outputs: int) -> sp.csr_array:
        """Y of its nodes, (N, m); ValueError if labels do not match the number of outputs."""
        if len(self.nodes) != len(self.targets):
            raise ValueError(
                "labels of neighbours: the number of labels is not the number of nodes"
            )
        if outputs == 1 and not any(isinstance(target, tuple) for target in self.targets):
            return target_rows(np.array(self.targets, np.float64), 1)
        sets = [target if isinstance(target, tuple) else (target,) for target in self.targets]
        columns = np.array([label for labels in sets for label in labels], np.float64)
        if ((columns < 0) | (columns >= outputs) | (columns % 1 > 0)).any():
            raise ValueError("labels of neighbours: a label is not a class of the model")
        row = np.repeat(np.arange(len(sets)), [len(labels) for labels in sets])
        entries = np.ones(len(row)), (row, columns.astype(np.int64))
        return sp.csr_array(entries, (len(sets), outputs))

    def check(self, outputs: int, index: NodeIndex | None) -> None:
        """Raise ValueError if the labels do not match the number of outputs and the nodes."""
        self.rows(outputs)
        numbers = [name for name in self.nodes if not isinstance(name, str)]
        count = 0 if index is None else index.count
        if len(set(self.nodes)) < len(self.nodes) or not all(0 <= i < count for i in numbers):
            raise ValueError("labels of neighbours: a label has no node, or a node has two")

    def places(self, data: NodeData) -> np.ndarray:
        """The index in ``data`` of each of its nodes, -1 if missing: (N,)."""
        numbers = [name for name in self.nodes if not isinstance(name, str)]
        if numbers:  # of a graph without ids
            return np.array(numbers, np.int64)
        if data.node_ids is None:
            raise ModelFileError(
                f"the model needs node ids to look up labels, but {data.name} has none; add node "
                "ids."
            )
        place = {str(name): i for i, name in enumerate(data.node_ids)}
        return np.array([place.get(str(name), -1) for name in self.nodes], np.int64)

    def within(self, data: NodeData) -> tuple[np.ndarray, np.ndarray]:
        """The nodes that are in ``data``: their indices there, and their positions in ``nodes``."""
        indices = self.places(data)
        present = np.flatnonzero(indices >= 0)
        if not present.size:
            warnings.warn(
                f"{data.name} has none of the {plural(len(indices), 'node')} whose labels the "
                "model uses; train a model without neighbour_labels for such data.",
                HopliteWarning,
                stacklevel=3,
            )
        return indices[present], present

    def columns(self, data: NodeData, outputs: int, dtype: Any) -> Features:
        """L of all nodes of a graph: (n, m)."""
        nodes, present = self.within(data)
        columns = neighbour_weights(data.in_memory().adjacency, nodes) @ self.rows(outputs)[present]
        return Features.from_array(sp.csr_array(columns, dtype=dtype))
