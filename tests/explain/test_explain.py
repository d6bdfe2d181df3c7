"""Explanations: exact sums for every model, equal to dense algebra, with names and plain JSON."""

import json
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import Graph, GraphError, TrainedModel, train
from hoplite.bases import EXAMPLES
from hoplite.explain import Explainer, explain
from hoplite.models import build_model, model_config
from hoplite.operators import OPERATORS

MODELS = ("sgc", "egc", "lgc", "blocks", "jacobiconv")
CASES = [
    (model, basis)
    for model in MODELS
    for basis in {
        "lgc": EXAMPLES,
        "blocks": EXAMPLES[-1:],
        "jacobiconv": EXAMPLES[-1:],
    }.get(model, ("monomial",))
]


def untrained(config, graph, seed=0, classes=("a", "b", "c"), names=None):
    model = build_model(config, graph.num_features, len(classes))
    rng = np.random.default_rng(seed)
    weights = model.initial(rng)
    if "bias" in weights:
        weights["bias"] += np.linspace(-0.5, 0.5, len(classes))
    for name in ("class_filter", "decay"):  # which start alike for all classes and hops
        if name in weights:
            weights[name] += rng.normal(size=weights[name].shape)
    facts = {"loop_weight": graph.loop_weight}  # as a trained model has it
    return TrainedModel(config, weights, graph.num_features, tuple(classes), names, **facts)


def check_sums(found, logit, tolerance):
    """Everything adds up to the logit, and every pair to its two singles."""
    scale = abs(logit) + np.abs(found.hop_node).sum() + abs(found.constant)
    assert found.margin == pytest.approx(logit, abs=tolerance * scale)
    assert abs(found.residual) <= tolerance * scale
    singles = {"hop": found.by_hop, "node": found.by_node, "feature": found.by_feature}
    for values in singles.values():
        assert found.constant + values.sum() == pytest.approx(logit, abs=tolerance * scale)
    for first, second in combinations(singles, 2):
        pairs = getattr(found, f"{first}_{second}")
        assert pairs.shape == (len(singles[first]), len(singles[second]))
        np.testing.assert_allclose(pairs.sum(axis=1), singles[first], atol=1e-12 * scale)
        np.testing.assert_allclose(pairs.sum(axis=0), singles[second], atol=1e-12 * scale)


@given(
    seed=st.integers(0, 2**32 - 1),
    case=st.sampled_from(CASES),
    operator=st.sampled_from(sorted(OPERATORS)),
    hops=st.integers(0, 6),
    density=st.floats(0.05, 0.9),
    standardize=st.booleans(),
    dtype=st.sampled_from([np.float64, np.float32]),
)
@examples(150)
def test_contributions_add_up_on_random_graphs(
    graphs, seed, case, operator, hops, density, standardize, dtype
):
    (model, basis), close = case, 1e-9 if dtype is np.float64 else 1e-5
    about = {"isolated": seed % 3, "sparse": seed % 2 == 0, "dtype": dtype}
    graph = graphs(n=9, d=4, seed=seed, density=density, **about)
    config = model_config(model, hops, operator, basis, bias=True, standardize=standardize)
    trained = untrained(config, graph, seed)
    node = seed % 9
    logits = trained.logits(graph)[node]
    name = graph.node_ids[node]
    check_sums(explain(trained, graph, name, alone=True), logits.max(), close)
    found, order = explain(trained, graph, name), np.argsort(-logits, kind="stable")
    assert (found.class_, found.against) == tuple(np.array(trained.class_names)[order[:2]])
    check_sums(found, logits[order[0]] - logits[order[1]], close)
    second = explain(trained, graph, name, int(order[1]))
    assert second.against == trained.class_names[order[0]]


@pytest.mark.parametrize(("model", "basis"), CASES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_parts_equal_dense_algebra(graphs, dense, model, basis, operator):
    """Every single number R[i, u] X[u, f] W[i, f], with R from dense polynomials of S."""
    graph = graphs(sparse=True)
    hops, node, c = 3, 4, 2
    trained = untrained(model_config(model, hops, operator, basis), graph)
    found = explain(trained, graph, graph.node_ids[node], c, alone=True)
    reach = np.stack([p[node] for p in dense.basis(graph, operator, basis, hops)])
    np.testing.assert_allclose(found.reach, reach, atol=1e-12)
    features = dense.features(graph)
    theta = trained.weights["theta"].astype(np.float64)[..., c]
    theta = np.broadcast_to(theta, (hops + 1, 5))  # blocks have one for each hop
    if model == "jacobiconv":
        w = {name: value.astype(np.float64) for name, value in trained.weights.items()}
        steps = np.cumprod([1, *np.tanh(w["decay"])])
        theta = theta * (steps * w["class_filter"][:, c])[:, None]
    own = model in ("blocks", "jacobiconv")  # whose maps have the coefficients
    known = np.ones(hops + 1) if own else trained.filter_coefficients_
    np.testing.assert_allclose(found.coefficients, known, rtol=1e-6)
    cube = np.einsum("iu,uf,i,if->iuf", reach, features, found.coefficients, theta)
    np.testing.assert_allclose(found.hop_node, cube.sum(axis=2), atol=1e-12)
    np.testing.assert_allclose(found.hop_feature, cube.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(found.node_feature.toarray(), cube.sum(axis=0), atol=1e-12)


@pytest.fixture(scope="module")
def trained_on_cora(cora):
    return train(cora, "lgc", hops=10, epochs=30, seeds=1).model


def test_dictionary_of_cora(cora, trained_on_cora):
    found = explain(trained_on_cora, cora, 0).to_dict(top=6)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == [
        *("dataset", "model", "node", "class", "against", "margin", "constant", "residual"),
        *("classes", "hops", "nodes", "features", "node_features", "neighbourhood", "flips"),
        *("changes", "neighbour_labels", "threshold"),
    ]
    model = {"model": "lgc", "hops": 10, "operator": "renormalized", "basis": "monomial"}
    assert found["model"] == model | {"task": "classification", "temperature": 1.0}
    classes = found["classes"]
    assert found["node"]["predicted"] == found["class"] == classes["top"][0]["name"]
    shown = [one["probability"] for one in classes["top"]]
    assert (len(shown), classes["others"]) == (6, 1)
    assert sum(shown) + classes["rest"] == pytest.approx(1)
    total = found["margin"] - found["constant"] - found["residual"]
    assert sum(hop["contribution"] for hop in found["hops"]) == pytest.approx(total)
    for kind in ("nodes", "features"):
        part = found[kind]
        shown = [one["contribution"] for one in part["top"]]
        assert len(shown) == 6
        assert shown == sorted(shown, key=abs, reverse=True)
        assert sum(shown) + part["rest"] == pytest.approx(total)
        assert part["others"] > 0
    groups = found["nodes"]["groups"]
    assert sum(group["count"] for group in groups) == found["nodes"]["others"]
    assert sum(group["contribution"] for group in groups) == pytest.approx(found["nodes"]["rest"])
    assert len(found["node_features"]) == 6
    check_neighbourhood(cora, found)


def check_neighbourhood(graph, found):
    drawn = found["neighbourhood"]
    indices = [one["index"] for one in drawn["nodes"]]
    assert indices[0] == found["node"]["index"]
    assert len(set(indices)) == len(indices) <= 40
    assert {one["index"] for one in found["nodes"]["top"]} <= set(indices)
    expected = sp.triu(graph.adjacency[indices][:, indices], 1)
    assert len(drawn["edges"]) == expected.nnz
    for x, y, weight in drawn["edges"]:
        assert weight == pytest.approx(graph.adjacency[x, y])
    far = {one["index"]: one["distance"] for one in drawn["nodes"]}
    for one in drawn["nodes"][1:]:  # each one has a neighbour that is one step nearer
        near = graph.adjacency[[one["index"]]].indices
        assert min(far.get(u, 99) for u in near) == one["distance"] - 1


def test_ids_may_be_numbers_or_their_texts(graphs):
    plain = graphs()
    graph = Graph(plain.adjacency, plain.features, node_ids=list(range(100, 112)))
    explainer = Explainer(untrained(model_config("sgc", 1), graph), graph)
    assert explainer.explain(103).node == explainer.explain("103").node == 3
    assert explainer.explain(103).to_dict()["node"]["id"] == 103
    with pytest.raises(GraphError, match=r"node 3 is not in the graph.*'100'"):
        explainer.explain(3)
