"""A chosen threshold is a part of its own of every lead."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import untidy
from tests.examples import examples

from hoplite import Graph, TrainedModel, model_config
from hoplite.explain import Explainer
from hoplite.explain.rendering import addends, contribution_bars, margin_table
from hoplite.models import build_model


def two_classes(drawn: Graph) -> Graph:
    """The graph with the classes no and yes, which is rare, and text ids in no order."""
    n = drawn.num_nodes
    ids = [f"p{i}" for i in np.random.default_rng(n).permutation(n)]
    labels = np.where(drawn.labels < 0, -1, drawn.labels > 0)
    graph = drawn.with_labels(labels, ("no", "yes")).with_split(drawn.split)
    return graph.with_node_ids(ids)


def decided(graph, config, threshold, temperature=1.0, shares=(0.9, 0.1), seed=0) -> TrainedModel:
    """A model of any weights, whose rarer class begins at ``threshold``."""
    built = build_model(config, graph.num_features, 2)
    weights = built.initial(np.random.default_rng(seed))
    if "bias" in weights:
        weights["bias"] += np.array([0.7, -1.1])
    state = {"shares": list(shares), "threshold": threshold, "temperature": temperature}
    training = {"task_state": state}
    return TrainedModel(config, weights, graph.num_features, ("no", "yes"), training=training)


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@examples(60)
@given(
    drawn=untidy.graphs(),
    threshold=st.floats(0.001, 0.999).filter(lambda t: t != 0.5),
    temperature=st.sampled_from([1.0, 0.3, 4.0]),
    rare=st.integers(0, 1),
    operator=st.sampled_from(["laplacian", "adjacency", "renormalized"]),
    bias=st.booleans(),
    seed=untidy.SEEDS,
)
def test_the_parts_are_the_margin_of_the_decision(
    dense, drawn, threshold, temperature, rare, operator, bias, seed
):
    """z_c - z_other -+ T log(t / (1 - t)) by dense algebra in float64."""
    graph = two_classes(drawn)
    shares = (0.9, 0.1) if rare else (0.1, 0.9)
    config = model_config("lgc", 2, operator, bias=bias)
    model = decided(graph, config, threshold, temperature, shares, seed)
    weights = {name: value.astype(np.float64) for name, value in model.weights.items()}
    signal = dense.features(graph).astype(np.float64) @ weights["theta"]
    powers = dense.basis(graph, operator, "monomial", 2)
    logits = sum(a * p @ signal for a, p in zip(weights["alpha"], powers, strict=True))
    logits = logits + (weights["bias"] if bias else 0)
    odds = temperature * np.log(threshold / (1 - threshold))
    explainer, node = Explainer(model, graph), seed % graph.num_nodes
    for c in (0, 1):
        found = explainer.explain(graph.node_ids[node], c)
        part = -odds if c == rare else odds
        lead = logits[node, c] - logits[node, 1 - c]
        scale = 1 + abs(lead) + abs(odds) + np.abs(found.hop_node).sum()
        near = {"abs": 1e-9 * scale}
        report = found.threshold
        assert report is not None
        assert (report.class_, report.probability) == (("no", "yes")[rare], threshold)
        assert found.threshold_part == pytest.approx(part, **near)
        constant = weights["bias"][c] - weights["bias"][1 - c] if bias else 0.0
        assert found.constant == pytest.approx(constant, **near)
        for parts in (found.by_hop, found.by_node, found.by_feature):
            total = found.constant + found.threshold_part + parts.sum()
            assert total == pytest.approx(lead + part, **near)
        assert found.margin == pytest.approx(lead + part, abs=1e-5 * scale)
        assert abs(found.residual) < 1e-5 * scale
    ahead = 1 / (1 + np.exp(-(logits[node, rare] - logits[node, 1 - rare]) / temperature))
    if abs(ahead - threshold) > 1e-4:
        wanted = rare if ahead > threshold else 1 - rare
        assert explainer.explain(graph.node_ids[node]).class_ == ("no", "yes")[wanted]


@pytest.mark.parametrize("by", ["hops", "nodes", "features"])
def test_tables_and_bars_have_the_threshold(graphs, by):
    graph = two_classes(graphs(n=30))
    explainer = Explainer(decided(graph, model_config("lgc", 2, bias=True), 0.1), graph)
    summaries = [explainer.explain(node).summary(2) for node in graph.node_ids]
    assert {values.node.predicted for values in summaries} == {"no", "yes"}
    for values in summaries:
        parts = addends(values, by)
        assert [part.name for part in parts[-2:]] == ["constant", "threshold"]
        total = sum(part.contribution for part in parts)
        assert total == pytest.approx(values.margin, abs=1e-5)
        assert sum(bar.amount for bar in contribution_bars(values, by)) == pytest.approx(total)
        rows = margin_table(values, by).rows
        assert [row[0] for row in rows[-3:]] == ["constant", "threshold", "sum"]
