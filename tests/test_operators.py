"""Operators: against their definition, their invariants, and a graph small enough for paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoplite import ConfigError, Graph
from hoplite.config import OPERATORS
from hoplite.operators import build_operator


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_operator_equals_its_definition(graphs, dense, name, dtype, weighted):
    graph = graphs(dtype=dtype, weighted=weighted)
    operator = build_operator(graph, name)
    assert operator.matrix.dtype == dtype
    np.testing.assert_allclose(
        operator.matrix.toarray(), dense.operator(graph, name), atol=np.finfo(dtype).eps * 4
    )


def test_path_of_three_by_hand():
    graph = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3))
    half = np.sqrt(0.5)
    adjacency = [[0, half, 0], [half, 0, half], [0, half, 0]]
    sixth = 1 / np.sqrt(6)
    renormalized = [[1 / 2, sixth, 0], [sixth, 1 / 3, sixth], [0, sixth, 1 / 2]]
    np.testing.assert_allclose(build_operator(graph, "adjacency").matrix.toarray(), adjacency)
    np.testing.assert_allclose(build_operator(graph, "renormalized").matrix.toarray(), renormalized)
    np.testing.assert_allclose(
        build_operator(graph, "laplacian").matrix.toarray(), np.eye(3) - adjacency
    )


def test_isolated_node():
    graph = Graph.from_edges([(0, 1)], features=np.eye(3))
    last = {name: build_operator(graph, name).matrix.toarray()[2] for name in OPERATORS}
    np.testing.assert_array_equal(last["adjacency"], [0, 0, 0])
    np.testing.assert_array_equal(last["laplacian"], [0, 0, 1])
    np.testing.assert_array_equal(last["renormalized"], [0, 0, 1])


def test_graph_without_edges():
    graph = Graph.from_edges([], features=np.eye(2))
    assert build_operator(graph, "adjacency").matrix.nnz == 0
    np.testing.assert_array_equal(build_operator(graph, "laplacian").matrix.toarray(), np.eye(2))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 20), density=st.floats(0, 1))
def test_invariants(graphs, seed, n, density):
    graph = graphs(n=n, seed=seed, density=density)
    roots = np.sqrt(graph.adjacency.sum(axis=1))
    laplacian = build_operator(graph, "laplacian").matrix
    np.testing.assert_allclose(laplacian @ roots, 0, atol=1e-12)  # L sqrt(d) = 0
    for name in OPERATORS:
        operator = build_operator(graph, name)
        values = np.linalg.eigvalsh(operator.matrix.toarray())
        low, high = operator.spectrum
        assert values.min() >= low - 1e-12
        assert values.max() <= high + 1e-12
        assert np.abs(values).max() <= operator.norm_bound + 1e-12
        assert abs(operator.matrix - operator.matrix.T).max() < 1e-15
        moved = np.linalg.eigvalsh(operator.for_basis("chebyshev").toarray())
        assert np.abs(moved).max() <= 1 + 1e-12


def test_unknown_operator_suggests_the_nearest(graphs):
    with pytest.raises(ConfigError, match="Did you mean 'laplacian'"):
        build_operator(graphs(), "laplacain")
