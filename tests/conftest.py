"""Graphs that the tests share, and the same mathematics written densely, once, for comparison."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.polynomial import chebyshev

from hoplite import Graph, Split, load


def make_graph(
    n: int = 12,
    d: int = 5,
    classes: int = 3,
    *,
    seed: int = 0,
    dtype: type = np.float64,
    sparse: bool = False,
    weighted: bool = True,
    isolated: int = 2,
    density: float = 0.3,
) -> Graph:
    """A random weighted graph whose last ``isolated`` nodes have no edge."""
    rng = np.random.default_rng(seed)
    linked = n - isolated
    upper = np.triu(rng.random((linked, linked)) < density, 1)
    edges = np.argwhere(upper)
    weights = rng.uniform(0.5, 2.0, len(edges)) if weighted else None
    features = (rng.random((n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    order = np.arange(n)
    third = max(n // 3, classes)
    split = Split(order[:third], order[third : 2 * third], order[2 * third :])
    return Graph.from_edges(
        edges,
        sp.csr_array(features) if sparse else features,
        labels,
        weights=weights,
        split=split,
    )


def dense_operator(graph: Graph, name: str) -> np.ndarray:
    """The operator, entry by entry from its definition."""
    weights = graph.adjacency.toarray().astype(np.float64)
    if name == "renormalized":
        weights = weights + np.eye(len(weights))
    degrees = weights.sum(axis=1)
    normal = np.zeros_like(weights)
    for i, j in np.argwhere(weights):
        normal[i, j] = weights[i, j] / np.sqrt(degrees[i] * degrees[j])
    return np.eye(len(weights)) - normal if name == "laplacian" else normal


def dense_basis(graph: Graph, operator: str, basis: str, hops: int) -> list[np.ndarray]:
    """p_0(S) .. p_k(S) from the eigendecomposition of S."""
    values, vectors = np.linalg.eigh(dense_operator(graph, operator))
    if basis == "monomial":
        scalars = [values**i for i in range(hops + 1)]
    else:
        mapped = values - 1 if operator == "laplacian" else values
        scalars = [chebyshev.Chebyshev.basis(i)(mapped) for i in range(hops + 1)]
    return [(vectors * scalar) @ vectors.T for scalar in scalars]


def dense_features(graph: Graph) -> np.ndarray:
    features = graph.features
    return features.toarray() if sp.issparse(features) else np.asarray(features)


@pytest.fixture(scope="session")
def graphs() -> Callable[..., Graph]:
    return make_graph


@pytest.fixture(scope="session")
def dense() -> type:
    """The dense twins, gathered under one name."""

    class Dense:
        operator = staticmethod(dense_operator)
        basis = staticmethod(dense_basis)
        features = staticmethod(dense_features)

    return Dense


@pytest.fixture(scope="session")
def cora() -> Graph:
    return load("cora")
