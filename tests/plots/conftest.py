"""An untidy graph with hostile names, and models that were trained on it."""

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite import Graph, Split, train

NAMES = [
    "<b>bold</b>",
    '<img src=x onerror="alert(1)">',
    "ordinary",
    "\u202eevil & \u05e9\u05dc\u05d5\u05dd",
]


def untidy(seed: int = 5, n: int = 140) -> Graph:
    """Weights over magnitudes, isolated nodes, uneven classes, a scattered split, gaps."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])
    labels[:4] = range(4)
    linked = rng.permutation(n)[: n - 15]
    edges = rng.choice(linked, (3 * n, 2))
    features = rng.standard_normal((n, 6)) + np.eye(4)[labels] @ rng.standard_normal((4, 6))
    order = np.append(np.arange(4), 4 + rng.permutation(n - 4))
    train_nodes, val, test, _ = np.split(order, [60, 90, 125])
    labels[rng.choice(order[125:], 8, replace=False)] = -1
    return Graph.from_edges(
        edges,
        sp.csr_array(features * (rng.random((n, 6)) < 0.7)),
        labels,
        weights=10.0 ** rng.uniform(-3, 3, len(edges)),
        split=Split(train_nodes, val, test),
        class_names=NAMES,
        feature_names=[
            "<i>age</i>",
            "x" * 300,
            "c",
            "d",
            "e",
            "<a href='javascript:alert(1)'>f</a>",
        ],
        node_ids=[f"<u>node {i}</u>" for i in range(n)],
        name="<script>alert(1)</script>",
    )


@pytest.fixture(scope="session")
def graph():
    return untidy()


@pytest.fixture(scope="session")
def trained(graph):
    """Of every kind of filter: one, one per class, one that is known."""
    usual = {"epochs": 40, "patience": 6, "lr": 0.1, "dropout": 0.0}
    return {
        "lgc": train(graph, "lgc", hops=5, operator="laplacian", basis="chebyshev", **usual),
        "jacobiconv": train(graph, "jacobiconv", hops=3, seeds=3, **usual),
        "ppr": train(graph, "ppr", hops=4, **usual),
        "sgc": train(graph, "sgc", hops=2, **usual),
        "hlgc": train(graph, "hlgc", hops=2, gate="node", **usual),
    }
