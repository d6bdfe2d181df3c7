"""How far nodes are, and the ways there, against SciPy's shortest paths."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse.csgraph import dijkstra
from tests.untidy import SEEDS, UNTRAINED
from tests.untidy import graphs as untidy_graphs

from hoplite import Graph, TrainedModel, model_config
from hoplite.explain import explain
from hoplite.explain.rows import GraphRows, nearest


@pytest.mark.filterwarnings(UNTRAINED)
@settings(max_examples=40, deadline=None)
@given(untidy_graphs(), SEEDS)
def test_distances_and_ways(graph, seed):
    rng = np.random.default_rng(seed)
    rows = GraphRows(graph, model_config("sgc", 2))
    node, steps = int(rng.integers(graph.num_nodes)), int(rng.integers(0, 6))
    true = dijkstra(graph.adjacency, unweighted=True, indices=node, limit=steps)
    true = np.where(np.isfinite(true), true, -1)
    with patch("hoplite.explain.rows.MAX_FRONTIER", int(rng.integers(1, 9))):
        distance, before = nearest(rows, node, steps)
        np.testing.assert_array_equal(distance, true)
        assert before[node] == -1
        for u in np.flatnonzero(distance > 0):
            assert distance[before[u]] == distance[u] - 1
            assert graph.adjacency[int(before[u]), int(u)] != 0
        wanted = rng.choice(graph.num_nodes, 4, replace=False)
        early, _ = nearest(rows, node, steps, wanted)
        np.testing.assert_array_equal(early[wanted], distance[wanted])
        none, _ = nearest(rows, node, steps, [])
        assert np.flatnonzero(none >= 0).tolist() == [node]


def test_weights_of_a_drawing_are_those_of_the_table():
    weights = np.array([74.28, 1e-3], np.float32)
    graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(3, dtype=np.float32), weights=weights)
    assert graph.adjacency.dtype == np.float32
    model = TrainedModel(
        model_config("sgc", 2), {"theta": np.array([[1.0, 0], [0, 1], [2, -1]])}, 3, ("a", "b")
    )
    edges = explain(model, graph, 0).summary().neighbourhood.edges
    assert {edge[2] for edge in edges} == {74.28, 0.001}
