"""The sample of large data that candidates are tried on.

Labels of neighbours, and filters of several hops, need whole neighbourhoods. So the sample is as
dense as the graph: some labelled nodes at random, and the nodes nearest to them. An epoch of
training on it is short.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.graph import Graph, Split

MAX_LABELS = 10_000  # most labels of data that is not sampled
VALIDATED, DRAWN = 300, 400  # labelled nodes: those that validate, and others
NODES, COLUMNS = 1_500, 100


def sample(graph: Graph, seed: int) -> tuple[Graph, np.ndarray | None]:
    """What candidates are tried on: ``graph`` without test nodes, a part of it if it is large.

    Of more than 10,000 labels it has 300 labelled nodes that validate, 400 others, the nodes
    nearest to them, 1,500 in all, and the 100 most frequent columns. These columns are the second
    value; it is None without a sample.
    """
    train, val = graph.split.train, graph.split.val
    if train.size + val.size <= MAX_LABELS:
        return graph.with_split(Split(train, val)), None
    rng = np.random.default_rng(seed)
    if val.size:
        val = rng.permutation(val)[:VALIDATED]
    else:
        train = rng.permutation(train)
        train, val = train[VALIDATED:], train[:VALIDATED]
    nodes = nearest(graph, np.concatenate([val, rng.permutation(train)[:DRAWN]]), NODES, rng)
    columns = most_frequent(graph, COLUMNS)
    part = induced(graph, nodes, columns)
    train, val = (np.flatnonzero(np.isin(nodes, members)) for members in (train, val))
    return part.with_split(Split(train, val)), columns


def nearest(graph: Graph, nodes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """``nodes`` and those nearest to them, ``count`` in all, sorted; others at random at the end.

    >>> path = Graph.from_edges([(0, 1), (1, 2), (2, 3)], np.eye(5))
    >>> nearest(path, np.array([1]), 3, np.random.default_rng(0))
    array([0, 1, 2])
    """
    inside = np.zeros(graph.num_nodes, bool)
    inside[nodes] = True
    count, last = min(count, graph.num_nodes), nodes
    while (missing := count - int(inside.sum())) > 0:
        ring = np.unique(graph.adjacency[last].indices)
        ring = ring[~inside[ring]]
        last = rng.permutation(ring if ring.size else np.flatnonzero(~inside))[:missing]
        inside[last] = True
    return np.flatnonzero(inside)


def induced(graph: Graph, nodes: np.ndarray, columns: np.ndarray) -> Graph:
    """The subgraph of these nodes, with these columns and the loop weight of the whole graph."""

    def block(matrix: sp.csr_array) -> sp.csr_array:
        return matrix[nodes][:, nodes]

    relations = [
        dataclasses.replace(
            relation,
            adjacency=block(relation.adjacency),
            turned=None if relation.turned is None else block(relation.turned),
        )
        for relation in graph.relations
    ]
    part = Graph(
        block(graph.adjacency),
        graph.features[nodes][:, columns],
        graph.labels[nodes],
        class_names=graph.class_names,
        name=graph.name,
        relations=relations,
    )
    return part.with_loop_weight(graph.loop_weight)


def most_frequent(graph: Graph, count: int) -> np.ndarray:
    """The ``count`` columns of X that most nodes have, in their order; all if there are fewer."""
    features: Any = graph.features
    if graph.num_features <= count:
        return np.arange(graph.num_features)
    sparse = features if sp.issparse(features) else sp.csr_array(features)
    counts = np.bincount(sparse.indices, minlength=graph.num_features)
    return np.sort(np.argsort(-counts, kind="stable")[:count])
