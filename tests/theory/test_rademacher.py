"""The complexity against brute force, and every bound against the complexity."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import Graph, model_config
from hoplite.bases import EXAMPLES
from hoplite.theory import FunctionClass, function_class
from hoplite.theory.complexity import chebyshev_points

SLACK = 1 + 1e-9


def every_sign(size):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=size)))


def brute_force(chosen, graph, dense, points=4001):
    """The definition with dense algebra: all signs, all vertices, a fine grid over beta."""
    hops = dense.basis(graph, chosen.config.operator, chosen.config.basis, chosen.config.hops)
    features = dense.features(graph).astype(np.float64)
    stack = np.stack([(p @ features)[chosen.nodes] for p in hops])
    products = np.einsum("sl,ild->sid", every_sign(chosen.size), stack)
    if chosen.config.model == "lgc":
        suprema = chosen.coefficient_bound * np.abs(products).sum(axis=1).max(axis=1)
    elif chosen.config.model == "sgc":
        suprema = np.abs(products[:, -1]).max(axis=1)
    else:
        rates = np.linspace(-1, 1, points) * chosen.coefficient_bound
        factorials = np.array([math.factorial(i) for i in range(chosen.config.hops + 1)])
        table = rates[:, None] ** np.arange(chosen.config.hops + 1) / factorials
        suprema = np.abs(np.einsum("bi,sid->sbd", table, products)).max(axis=(1, 2))
    return float(suprema.mean()) * chosen.weight_bound * chosen.lipschitz / chosen.size


CASES = [
    *[("lgc", basis) for basis in EXAMPLES],
    ("egc", "monomial"),
    ("sgc", "monomial"),
]


@pytest.mark.parametrize("operator", ["renormalized", "adjacency", "laplacian"])
@pytest.mark.parametrize(("model", "basis"), CASES)
@pytest.mark.parametrize("hops", [0, 1, 4])
def test_the_estimate_is_the_definition(graphs, dense, model, basis, operator, hops):
    graph = graphs(9, 4, seed=hops)
    chosen = FunctionClass(
        graph,
        model_config(model, hops, operator, basis),
        nodes=np.array([0, 2, 3, 5, 8]),
        coefficient_bound=1.7,
        weight_bound=0.6,
        lipschitz=2.0,
    )
    found = chosen.estimate()
    wanted = brute_force(chosen, graph, dense)
    assert found.exact
    assert found.draws == 16
    assert found.value == pytest.approx(wanted, rel=1e-3 if model == "egc" else 1e-9)
    assert found.low <= wanted * SLACK
    assert wanted <= found.high * SLACK


@st.composite
def classes(draw, most_nodes=9):
    """A class on a random graph: signs, zeros, huge and tiny features, isolated nodes."""
    n = draw(st.integers(1, most_nodes))
    d = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    edges = np.argwhere(np.triu(rng.random((n, n)) < draw(st.sampled_from([0.0, 0.3, 1.0])), 1))
    kind = draw(st.sampled_from(["normal", "positive", "signs", "sparse"]))
    features = rng.normal(size=(n, d))
    if kind == "positive":
        features = np.abs(features)
    elif kind == "signs":
        features = np.sign(features)
    elif kind == "sparse":
        features *= rng.random((n, d)) < 0.3
    features *= 10.0 ** draw(st.integers(-4, 4))
    model, basis = draw(st.sampled_from(CASES))
    sizes = st.just(0.0) | st.floats(1e-3, 4.0)
    return FunctionClass(
        Graph.from_edges(edges, features, weights=rng.uniform(0.1, 5, len(edges))),
        model_config(
            model,
            draw(st.integers(0, 6)),
            draw(st.sampled_from(["renormalized", "adjacency", "laplacian"])),
            basis,
        ),
        nodes=rng.permutation(n)[: draw(st.integers(1, n))],
        coefficient_bound=draw(sizes),
        weight_bound=draw(sizes),
        lipschitz=draw(sizes),
        bias=draw(st.booleans()),
    )


@examples(250)
@given(data=st.data())
def test_no_bound_is_ever_below_the_complexity(data):
    chosen = data.draw(classes())
    found = chosen.estimate()
    assert found.exact
    for name, value in chosen.bounds().items():
        assert found.value <= value * SLACK, name
    assert found.low <= found.value <= found.high


@examples(80)
@given(chosen=classes(most_nodes=5), outputs=st.integers(2, 3))
def test_nor_for_several_outputs(chosen, outputs):
    many = dataclasses.replace(chosen, outputs=outputs)
    found = many.estimate(2**15)
    assert found.exact
    assert found.value >= chosen.estimate().value / SLACK  # the largest of several
    for name, value in many.bounds().items():
        assert found.value <= value * SLACK, name


@examples(60)
@given(chosen=classes(), seed=st.integers(0, 1000))
def test_the_interval_holds_the_truth(chosen, seed):
    truth, drawn = chosen.estimate(), chosen.estimate(2, seed=seed, confidence=0.9999)
    assert drawn.exact == (chosen.size <= 2)
    assert drawn.low <= truth.high * SLACK
    assert truth.low <= drawn.high * SLACK


def test_the_papers_theorem_fails_for_more_than_one_feature():
    """No edges, k = 0, a = b = 1, six nodes, every sign pattern a feature: 1 > 1 / sqrt(6)."""
    graph = Graph.from_edges([], features=every_sign(6).T)
    chosen = FunctionClass(graph, model_config("lgc", 0))
    found = chosen.estimate()
    assert found.exact
    assert found.value == 1.0
    assert chosen.paper_bound() == pytest.approx(1 / math.sqrt(6))
    assert chosen.paper_bound() < found.value
    assert found.value <= chosen.bound() <= 1.0 + 1e-9  # which is as tight as can be


@pytest.mark.parametrize("model", ["lgc", "egc"])
def test_the_papers_theorem_for_one_feature(graphs, model):
    for seed in range(20):
        graph = graphs(10, 1, seed=seed)
        chosen = FunctionClass(graph, model_config(model, 3), nodes=np.arange(10))
        assert chosen.estimate().value <= chosen.paper_bound()


def test_paper_bounds_by_hand():
    path = Graph.from_edges([(0, 1), (1, 2)], features=[[1.0], [-2.0], [0.5]])
    norm = 2 / math.sqrt(2)  # the middle column of the adjacency
    options = {"coefficient_bound": 0.5, "weight_bound": 3.0}
    lgc = FunctionClass(path, model_config("lgc", 2, "adjacency"), **options, lipschitz=0.25)
    egc = FunctionClass(path, model_config("egc", 2, "adjacency"), **options, lipschitz=0.25)
    front = 3.0 * 2.0 * 0.25 / math.sqrt(3)
    assert lgc.paper_bound() == pytest.approx(front * 0.5 * (1 + norm + norm**2))
    assert egc.paper_bound() == pytest.approx(front * math.exp(0.5 * norm))


def test_huge_bounds_are_infinite_not_an_error(graphs):
    graph = graphs(12, 3)
    chosen = FunctionClass(graph, model_config("lgc", 5000, "laplacian"))
    assert chosen.paper_bound() == math.inf
    assert (
        FunctionClass(graph, model_config("egc", 3), coefficient_bound=1e6).paper_bound()
        == math.inf
    )


def test_single_precision_features_do_not_cross_a_bound(graphs):
    """The hops are computed in float64, whatever the features are."""
    graph = graphs(12, 3, dtype=np.float32)
    exact = graph.with_features(np.asarray(graph.features, dtype=np.float64))
    one, other = (FunctionClass(g, model_config("lgc", 24, "laplacian")) for g in (graph, exact))
    assert one.bound() == pytest.approx(other.bound(), rel=1e-13)


def test_blocks_do_not_matter(graphs, monkeypatch):
    graph = graphs(12, 5)
    whole = FunctionClass(graph, model_config("egc", 3), coefficient_bound=2.0)
    wanted = whole.bounds(), whole.estimate(50, seed=3)
    monkeypatch.setattr(function_class, "BLOCK_BYTES", 1)
    monkeypatch.setattr(function_class, "KEPT_BYTES", 1)
    narrow = FunctionClass(graph, model_config("egc", 3), coefficient_bound=2.0)
    assert len(list(narrow._blocks())) == 5
    seen = []
    assert narrow.bounds() == pytest.approx(wanted[0])
    assert narrow.estimate(50, seed=3, progress=seen.append).value == pytest.approx(wanted[1].value)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@examples(60)
@given(degree=st.integers(0, 12), per_degree=st.integers(2, 8), seed=st.integers(0, 10_000))
def test_a_polynomial_is_covered_by_its_points(degree, per_degree, seed):
    points, factor = chebyshev_points(degree, per_degree)
    rng = np.random.default_rng(seed)
    polynomial = np.polynomial.Polynomial(rng.normal(size=degree + 1))
    everywhere = np.abs(polynomial(np.linspace(-1, 1, 2001))).max()
    assert everywhere <= factor * np.abs(polynomial(points)).max() * SLACK


def test_no_features_and_zero_features():
    for features in (np.zeros((3, 0)), np.zeros((3, 2))):
        chosen = FunctionClass(
            Graph.from_edges([(0, 1)], features=features), model_config("egc", 2)
        )
        assert chosen.bound() == 0.0
        assert chosen.estimate().value == 0.0
