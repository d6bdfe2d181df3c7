"""Explanations of numbers, of several labels, and of calibrated probabilities."""

import html

import numpy as np
import pytest
from scipy.special import expit, softmax

from hoplite import ConfigError, Graph, Split, train
from hoplite.explain import explain, flips
from hoplite.explain.rendering import describe, explanation_page, headline, link_sentence, title


@pytest.fixture(scope="module")
def plain(graphs):
    """A graph whose nodes have text ids in no order, and a scattered split."""
    graph = graphs(n=60, dtype=np.float32)
    order = np.random.default_rng(2).permutation(60)
    return graph, Split(order[:30], order[30:45], order[45:])


def fit(plain, labels, **options):
    graph, split = plain
    made = Graph(
        graph.adjacency, graph.features, labels, split, node_ids=graph.node_ids, name="people"
    )
    return made, train(made, "lgc", hops=2, epochs=30, bias=True, **options).model


def check_sums(why, total):
    for parts in (why.by_hop, why.by_node, why.by_feature):
        assert why.constant + parts.sum() == pytest.approx(total, rel=1e-4, abs=1e-4)
    assert why.margin == pytest.approx(total, rel=1e-5)
    page = explanation_page(why.summary())
    assert title(why.summary()) in html.unescape(page)
    assert describe(why.summary()).facts["prediction"] == headline(why.summary())


def test_a_number_is_a_sum_in_its_units(plain):
    values = 300 + 50 * np.random.default_rng(0).normal(size=60)
    graph, model = fit(plain, values)
    for v in (0, 7, 31):
        why = explain(model, graph, graph.node_ids[v])
        check_sums(why, model.predict(graph)[v])
        summary = why.to_dict()
        assert summary["node"]["predicted"] == pytest.approx(why.margin)
        (output,) = summary["classes"]["top"]
        assert output["value"] == pytest.approx(why.margin)
        assert "probability" not in {*output, *summary["node"]}
        assert why.changes() is None
    assert f"Why {why.margin:.6g} is predicted" in title(why.summary())
    assert len(why.plot("classes").data) == 1
    with pytest.raises(ConfigError, match="the task of the model is regression"):
        flips(model, graph, graph.node_ids[0])
    with pytest.raises(ConfigError, match="the task of the model is regression"):
        explain(model, graph, graph.node_ids[0], against=0)


def test_of_several_labels_each_is_explained(plain):
    labels = (np.random.default_rng(1).random((60, 3)) < [0.6, 0.4, 0.2]).astype(np.int8)
    graph, model = fit(plain, labels)
    logits = model.logits(graph)
    for v in (0, 7, 31):
        for c in (None, 0, 1, 2):
            why = explain(model, graph, graph.node_ids[v], c)
            target = logits[v].argmax() if c is None else c
            assert (why.class_, why.against) == (model.class_names[target], None)
            check_sums(why, logits[v, target])
            summary = why.summary()
            assert ("could have" in title(summary)) == (logits[v, target] <= 0)
            for output in summary.classes.top:
                assert output.probability == pytest.approx(expit(output.logit))


def test_shown_logits_and_temperature_give_the_shown_probability(plain):
    labels = np.random.default_rng(3).integers(0, 3, 60)
    graph, model = fit(plain, labels, calibrate=True)
    summary = explain(model, graph, graph.node_ids[4]).summary()
    temperature = summary.model.temperature
    assert temperature == model.task.temperature != 1
    wanted = softmax(np.array([output.logit for output in summary.classes.top]) / temperature)
    np.testing.assert_allclose([one.probability for one in summary.classes.top], wanted, rtol=1e-5)
    assert f"the temperature {temperature:.4g}" in link_sentence(summary)
    few = explain(model, graph, graph.node_ids[4]).summary(1).classes
    assert (len(few.top), few.others) == (2, 1)  # the explained class and the runner-up
    assert few.rest == pytest.approx(wanted[2], rel=1e-5)
