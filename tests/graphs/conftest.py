"""Sets of small graphs, untidy: uneven sizes and classes, isolated nodes, a graph without nodes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import Generator

from hoplite.graph import Graph, Split
from hoplite.graphs import GraphSet


def random_graph(rng: Generator, nodes: int, density: float, width: int = 5) -> Graph:
    """Tags one-hot in all columns but the last two, which are numbers."""
    upper = np.triu(rng.random((nodes, nodes)) < density, k=1)
    tags = np.eye(width - 2)[rng.integers(0, width - 2, nodes)]
    features = np.hstack([tags, rng.normal(size=(nodes, 2))]).astype(np.float32)
    return Graph.from_edges(np.argwhere(upper), features)


def random_set(seed: int = 0, count: int = 60, **options) -> GraphSet:
    """Dense graphs are of class ``dense``, sparse ones of class ``sparse``."""
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.4
    sizes = rng.integers(1, 14, count)
    graphs = [
        random_graph(rng, int(n), 0.7 if label else 0.2)
        for n, label in zip(sizes, labels, strict=True)
    ]
    order = rng.permutation(count)
    split = Split(order[:30], order[30:42], order[42:])
    given = {"class_names": ["sparse", "dense"], "split": split, "name": "small"}
    return GraphSet.from_graphs(graphs, labels.astype(int), **(given | options))


@pytest.fixture(scope="session")
def small() -> GraphSet:
    return random_set()
