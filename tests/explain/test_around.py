"""How far nodes are, and the ways there, against SciPy's shortest paths."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from scipy.sparse.csgraph import dijkstra
from tests.examples import examples
from tests.explain.test_explain import untrained
from tests.untidy import SEEDS, UNTRAINED
from tests.untidy import graphs as untidy_graphs

from hoplite import Graph, TrainedModel, model_config
from hoplite.bases import EXAMPLES
from hoplite.explain import Explainer, explain
from hoplite.operators import OPERATORS


@pytest.mark.filterwarnings(UNTRAINED)
@examples(40)
@given(untidy_graphs(), SEEDS)
def test_distances_ways_and_groups(graph, seed):
    rng = np.random.default_rng(seed)
    node, hops = int(rng.integers(graph.num_nodes)), int(rng.integers(0, 6))
    operator, basis = rng.choice(sorted(OPERATORS)), rng.choice(EXAMPLES)
    trained = untrained(model_config("lgc", hops, operator, basis), graph, seed, graph.class_names)
    found = Explainer(trained, graph).explain_at(node)
    true = dijkstra(graph.adjacency, unweighted=True, indices=node, limit=hops)
    true = np.where(np.isfinite(true), true, -1)
    np.testing.assert_array_equal(found.distances, true)
    for u in np.flatnonzero(true >= 0).tolist():
        way = found._way(u)
        assert (way[0], way[-1], len(way)) == (node, u, true[u] + 1)
        assert all(graph.adjacency[a, b] != 0 for a, b in pairwise(way))
    nodes = found.summary(2, brief=True).nodes
    hidden = np.delete(np.arange(graph.num_nodes), [part.index for part in nodes.top])
    assert {(one.hop, one.count) for one in nodes.groups} == {
        (hop, np.count_nonzero(found.by_node[hidden][true[hidden] == hop]))
        for hop in np.unique(true[hidden][found.by_node[hidden] != 0])
    }
    for one in nodes.groups:
        total = found.by_node[hidden][true[hidden] == one.hop].sum()
        assert one.contribution == pytest.approx(total, abs=1e-12)


def test_weights_of_a_drawing_are_those_of_the_table():
    weights = np.array([74.28, 1e-3], np.float32)
    graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(3, dtype=np.float32), weights=weights)
    assert graph.adjacency.dtype == np.float32
    model = TrainedModel(
        model_config("sgc", 2), {"theta": np.array([[1.0, 0], [0, 1], [2, -1]])}, 3, ("a", "b")
    )
    edges = explain(model, graph, 0).summary().neighbourhood.edges
    assert {edge[2] for edge in edges} == {74.28, 0.001}
