"""Removals: the batch formula against graphs really built again, and the search for flips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.explain.test_explain import CASES, untrained

from hoplite import Graph, TrainedModel
from hoplite.explain import flips
from hoplite.explain.exact import ExactModel
from hoplite.explain.removals import Field, first_order_effects
from hoplite.explain.summary import NodeName, Removals
from hoplite.models import model_config
from hoplite.operators import SYMMETRIC


def field_of(trained, graph, node):
    exact = ExactModel(trained, graph)
    return Field(exact, exact.data, node)


def without_edge(graph, x, y):
    adjacency = graph.adjacency.toarray()
    adjacency[x, y] = adjacency[y, x] = 0
    return Graph(adjacency, graph.features)


def without_node(graph, u):
    kept = np.delete(np.arange(graph.num_nodes), u)
    return Graph(graph.adjacency[kept][:, kept], graph.features[kept])


def joined(batches):
    return [row for batch in batches for row in batch]


def check_all_removals(trained, graph, node, tolerance=1e-10):
    """Logits of every removal that can matter, and that all others change nothing."""
    field = field_of(trained, graph, node)
    whole = trained.logits(graph)[node]
    ends = list(zip(field.edges.source, field.edges.target, strict=True))
    by_edge = dict(
        zip(ends, joined(field.logits_without("edges", np.arange(len(ends)))), strict=True)
    )
    for x, y in np.argwhere(np.triu(graph.adjacency.toarray())):
        expected = trained.logits(without_edge(graph, x, y))[node]
        np.testing.assert_allclose(by_edge.get((x, y), whole), expected, atol=tolerance)
    rows = joined(field.logits_without("nodes", np.arange(len(field.nodes))))
    by_node = dict(zip(field.nodes, rows, strict=True))
    for u in np.delete(np.arange(graph.num_nodes), node):
        expected = trained.logits(without_node(graph, u))[node - (u < node)]
        np.testing.assert_allclose(by_node.get(u, whole), expected, atol=tolerance)


@given(
    seed=st.integers(0, 2**32 - 1),
    case=st.sampled_from(CASES),
    operator=st.sampled_from(sorted(SYMMETRIC)),
    hops=st.integers(0, 5),
    density=st.floats(0.1, 0.7),
)
@examples(40)
def test_batches_equal_graphs_built_again_at_random(graphs, seed, case, operator, hops, density):
    """Sparse ones too: with leaves, small components and nodes that a removal isolates."""
    model, basis = case
    graph = graphs(n=10, d=4, seed=seed, density=density, isolated=1)
    config = model_config(model, hops, operator, basis)
    check_all_removals(untrained(config, graph, seed), graph, seed % 10)


def scaled_weight(graph, x, y, factor):
    adjacency = graph.adjacency.toarray()
    adjacency[x, y] = adjacency[y, x] = adjacency[x, y] * factor
    return Graph(adjacency, graph.features)


@pytest.mark.parametrize(("model", "basis"), CASES)
@pytest.mark.parametrize("operator", SYMMETRIC)
def test_first_order_effects(graphs, model, basis, operator):
    """The estimate of a slight removal is right to first order: its error falls with the square.

    A slight removal is that of an edge of small weight, so the graph gets one, smaller each time.
    """
    plain = graphs(n=8, isolated=0, density=0.5)
    x, y = np.argwhere(np.triu(plain.adjacency.toarray()))[3]
    config = model_config(model, 3, operator, basis)
    trained, errors = untrained(config, plain), []
    for share in (1e-3, 1e-4):
        graph = scaled_weight(plain, x, y, share)
        field = field_of(trained, graph, 1)
        e = np.flatnonzero((field.edges.source == x) & (field.edges.target == y))
        estimate = first_order_effects(field, 0, 2)[0][e[0]]
        change = trained.logits(without_edge(graph, x, y))[1] - trained.logits(graph)[1]
        errors.append(abs(estimate - (change[0] - change[2])))
    assert errors[1] < max(0.02 * errors[0], 1e-12)


def flipping(trained, graph, node):
    """All flips of a small graph, by building every graph again: {removed: margin}."""
    whole = trained.logits(graph)[node]
    old, found = whole.argmax(), {}

    def note(what, logits):
        if logits.argmax() != old:
            found[what] = logits[old] - np.delete(logits, old).max()

    for x, y in np.argwhere(np.triu(graph.adjacency.toarray())):
        note((x, y), trained.logits(without_edge(graph, x, y))[node])
    for u in np.delete(np.arange(graph.num_nodes), node):
        note(u, trained.logits(without_node(graph, u))[node - (u < node)])
    return found


def named(found):
    """The margins of what was found, by the ends of the edge or by the node."""
    edges = found.edges.found
    ends = [(edge.source.index, edge.target.index) for edge in edges]
    margins = dict(zip(ends, [edge.margin for edge in edges], strict=True))
    return margins | {one.node.index: one.margin for one in found.nodes.found}


@pytest.mark.parametrize("model", ["sgc", "blocks", "jacobiconv"])
def test_finds_all_flips(graphs, model):
    seen = 0
    for seed in range(12):
        graph = graphs(n=8, isolated=0, seed=seed)
        trained = untrained(model_config(model, 2, "adjacency"), graph, seed)
        for node in range(4):
            expected = flipping(trained, graph, node)
            found = named(flips(trained, graph, graph.node_ids[node], most=100))
            assert found == pytest.approx(expected, abs=1e-10)
            seen += len(expected)
    assert seen > 10


def test_standardised_flips_are_real(graphs):
    """The new mean and spread are only known to the confirmation, which has the last word."""
    seen = 0
    for seed in range(12):
        graph = graphs(n=8, isolated=0, seed=seed)
        config = model_config("lgc", 2, "adjacency", bias=True, standardize=True)
        trained = untrained(config, graph, seed)
        expected = flipping(trained, graph, 1)
        for what, margin in named(flips(trained, graph, graph.node_ids[1], most=100)).items():
            assert margin == pytest.approx(expected[what])
            seen += 1
    assert seen > 5


def star():
    """Node 0 with 30 weak friends of class a and one strong of class b; far nodes hang on those."""
    edges = [(0, u) for u in range(1, 32)] + [(u, u + 31) for u in range(1, 32)]
    features = np.zeros((63, 2))
    features[1:31, 0], features[31, 1] = 0.1, 3.5
    return Graph.from_edges(edges, features, node_ids=[f"p{u}" for u in range(63)])


def test_a_small_budget_finds_the_same():
    graph = star()
    trained = TrainedModel(
        model_config("lgc", 2),
        {"theta": np.eye(2), "alpha": np.array([0.0, 1.0, 0.2])},
        2,
        ("a", "b"),
    )
    every, few = (flips(trained, graph, "p0", budget=budget) for budget in (1000, 2))
    assert (every.edges.checked, every.edges.of) == (62, 62)
    assert (few.edges.checked, few.edges.of) == (2, 62)
    assert (few.nodes.checked, few.nodes.of) == (2, 62)
    (edge,) = few.edges.found
    assert edge.source == NodeName(0, "p0")
    assert edge.target == NodeName(31, "p31")
    assert edge.becomes == "a"
    assert edge.margin < 0 < few.margin
    assert few.edges.found == every.edges.found
    assert few.nodes.found == every.nodes.found
    assert [one.node.id for one in few.nodes.found] == ["p31"]


@pytest.mark.parametrize("hops", [0, 3])
def test_nothing_to_remove(graphs, hops):
    graph = graphs()
    node = np.flatnonzero((np.diff(graph.adjacency.indptr) == 0) == bool(hops))[0]
    found = flips(untrained(model_config("lgc", hops), graph), graph, graph.node_ids[node])
    assert found.edges == found.nodes == Removals(0, 0, ())
    assert found.margin >= 0


def test_a_tie_that_changes_the_class_is_a_flip():
    """Without its only neighbour the node has no features at all: the first class wins."""
    graph = Graph.from_edges([(0, 1)], features=[[0.0], [1.0]])
    weights = {"theta": np.array([[0.0, 1.0]])}
    trained = TrainedModel(model_config("sgc", 1), weights, 1, ("a", "b"))
    found = flips(trained, graph, 0)
    assert trained.predict(graph)[0] == 1
    (edge,), (other,) = found.edges.found, found.nodes.found
    assert edge.becomes == other.becomes == "a"
    assert edge.margin == other.margin == 0.0


@pytest.mark.parametrize("weights", [(1e9, 1e-8), (1e17, 1.0)])
def test_a_degree_that_is_rounded_away_is_looked_at_anew(weights):
    graph = Graph.from_edges(
        [(0, 1), (0, 2)], features=[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], weights=weights
    )
    trained = TrainedModel(model_config("sgc", 1, "adjacency"), {"theta": np.eye(2)}, 2, ("a", "b"))
    found = flips(trained, graph, 0)
    assert [one.target.index for one in found.edges.found] == [1]
    assert [one.node.index for one in found.nodes.found] == [1]
