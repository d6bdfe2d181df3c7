"""A small graph in disorder, for tests that count by hand."""

from __future__ import annotations

import numpy as np

from hoplite import Graph, Split


def scattered_graph():
    """Weights, isolated nodes, three classes of very different size, a split in no order."""
    rng = np.random.default_rng(11)
    n = 60
    edges = np.argwhere(np.triu(rng.random((n - 4, n - 4)) < 0.08, 1))
    labels = rng.choice(3, n, p=[0.7, 0.25, 0.05])
    labels[[5, 40, 59]] = [0, 1, 2]
    features = rng.normal(size=(n, 6)) + np.eye(3, 6)[labels]
    order = rng.permutation(np.setdiff1d(np.arange(n), [5, 40, 59]))
    split = Split([59, *order[:12], 5, 40], order[12:30], order[30:])
    weights = rng.uniform(0.1, 5, len(edges))
    return Graph.from_edges(edges, features, labels, weights=weights, split=split)
