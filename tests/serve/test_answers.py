"""Answers equal the library's own: predictions, explanations, and the graph changed and rebuilt."""

from __future__ import annotations

import math
import warnings

import msgspec
import numpy as np
import pytest
from tests.serve.conftest import AMOUNT, IDS, SCRIPT, TOWN, cells, trained

import hoplite
from hoplite import ConfigError, HopliteWarning
from hoplite.explain import Explainer
from hoplite.serve.answers import Answers
from hoplite.store import propagate

CHANGES = [
    {AMOUNT: 1234.5},
    {"age": 71.5},
    {"age": None},
    {"town": TOWN},
    {"town": "missing"},
    {"member": True, "age": "missing"},
    {"since": "04.03.2011"},
    {"member": "false", "since": "2011-03-04", "town": "Oslo", AMOUNT: 0, "age": 18},
]


def as_cells(changes):
    """What a person writes into the table for the same."""
    special = {None: "", True: "true", "missing": ""}
    return {name: special.get(value, str(value)) for name, value in changes.items()}


def load(folder, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        return hoplite.load(folder, prepare=model)


@pytest.fixture(scope="module")
def answers(model, tables):
    return Answers(model, load(tables, model))


def values(prediction):
    return [
        output.value if output.probability is None else output.probability
        for output in prediction.outputs
    ]


def test_predictions_are_the_models_own(answers, model, tables):
    graph = load(tables, model)
    probabilities, predicted = model.predict_proba(graph), model.predict(graph)
    for v, name in enumerate(graph.node_ids):
        found = answers.node(name)
        assert (found.id, found.index) == (name, v)
        np.testing.assert_allclose(values(found.prediction), probabilities[v], rtol=1e-5)
        assert found.prediction.predicted == model.class_names[predicted[v]]
        label = graph.labels[v]
        assert found.label == (None if label < 0 else graph.class_names[label])
        near = graph.adjacency[[v]]
        others = near.indices != v
        assert found.neighbours.total == others.sum()
        weights = [one.weight for one in found.neighbours.top]
        heaviest = sorted(near.data[others], reverse=True)[:30]
        assert np.array(weights, near.dtype).tolist() == np.array(heaviest).tolist()
        assert all(len(str(weight)) < 12 for weight in weights)  # 74.28, not 74.27999877929688
    assert answers.node(graph.node_ids[-1]).neighbours.total == 0  # an isolated one


@pytest.mark.parametrize("top", [1, 10])
def test_explanations_are_the_librarys_own(answers, model, tables, top):
    explainer = Explainer(model, load(tables, model))
    for name in IDS:
        found, wanted = answers.explanation(name, top=top), explainer.explain(name).summary(top)
        assert found == msgspec.structs.replace(
            wanted, node_features=found.node_features, changes=None
        )
        assert answers.flips(name) == explainer.explain(name).changes()
    found = answers.explanation(SCRIPT, class_="dog", against="cat")
    assert (found.class_, found.against) == ("dog", "cat")
    with pytest.raises(ConfigError, match="class_ is 'bird'"):
        answers.explanation(SCRIPT, class_="bird")


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_change_is_that_of_tables_written_again(answers, model, changed, change):
    for node in (SCRIPT, "日本", cells()[-1]["who"]):
        found = answers.change(node, change)
        graph = changed(model, node, as_cells(change))
        place = list(graph.node_ids).index(node)
        wanted = model.predict_proba(graph)[place]
        np.testing.assert_allclose(values(found.after), wanted, rtol=2e-4, atol=1e-6)
        assert values(found.before) == values(answers.node(node).prediction)
    assert [one.name for one in found.changed] == list(change)


@pytest.mark.parametrize(
    ("kind", "label", "options", "explained"),
    [
        ("hlgc", "kind", {"gate": "node"}, False),
        ("sgc", "kind", {"standardize": True}, True),
        ("blocks", "kind", {}, True),
        ("gcn", "kind", {}, False),
        ("lgc", "price", {"task": "regression", "bias": True}, True),
        ("lgc", "likes", {"task": "multilabel", "bias": True}, True),
    ],
)
def test_every_kind_of_model(tables, changed, kind, label, options, explained):
    model = trained(tables, kind, label, **options)
    graph = load(tables, model)
    answers = Answers(model, graph)
    change = {"age": 90, "town": "Bonn", AMOUNT: 5000}
    for node in IDS[:3]:
        found = answers.change(node, change)
        other = changed(model, node, as_cells(change))
        place = list(other.node_ids).index(node)
        for report, data in ((found.before, graph), (found.after, other)):
            wanted = model.predict_proba(data)[place]
            np.testing.assert_allclose(values(report), wanted, rtol=1e-3, atol=1e-5)
            row = model.task.columns(model.logits(data)[[place]], model.class_names)
            if model.task.has_classes:
                assert report.predicted == str(row["predicted"][0])
            else:
                assert report.predicted == pytest.approx(row["predicted"][0], rel=1e-4)
    assert (answers.model().explained is None) == explained
    if not explained:
        with pytest.raises(ConfigError, match="is not linear"):
            answers.explanation(SCRIPT)
        return
    for node in IDS:
        report = answers.explanation(node)
        parts = report.constant + sum(hop.contribution for hop in report.hops)
        assert parts == pytest.approx(report.margin, rel=1e-3, abs=1e-3)
        by_node = sum(one.contribution for one in report.nodes.top) + report.nodes.rest
        assert report.constant + by_node == pytest.approx(report.margin, rel=1e-3, abs=1e-3)
    if not model.task.has_classes:  # in units of the number itself
        predicted = answers.node(IDS[-1]).prediction.predicted
        assert report.margin == pytest.approx(predicted, rel=1e-5)


def test_a_hop_store(tables, tmp_path):
    model = trained(tables, "sgc")
    graph = load(tables, model)
    propagate(graph, tmp_path / "store", hops=2, prepare=model)
    stored = Answers(model, hoplite.open_data(tmp_path / "store"), memory="4GB")
    whole = Answers(model, graph)
    for node in IDS:
        a, b = stored.node(node), whole.node(node)
        np.testing.assert_allclose(values(a.prediction), values(b.prediction), rtol=1e-4)
        assert [one.id for one in a.neighbours.top] == [one.id for one in b.neighbours.top]
        assert a.features == b.features
        change = {"age": 60, "town": "Oslo"}
        after = [values(one.change(node, change).after) for one in (stored, whole)]
        np.testing.assert_allclose(*after, rtol=1e-4)
        logits = [one.explanation(node).margin for one in (stored, whole)]
        assert logits[0] == pytest.approx(logits[1], rel=1e-3, abs=1e-5)
    gated = trained(tables, "hlgc", gate="node")
    stored = Answers(gated, hoplite.open_data(tmp_path / "store"))
    assert "serve the dataset itself" in stored.model().changed
    with pytest.raises(ConfigError, match="serve the dataset itself"):
        stored.change(SCRIPT, {"age": 3})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"agee": 3}, "'agee' is not a feature"),
        ({"kind": "cat"}, "'kind' is not a feature"),
        ({"age": "old"}, "age is 'old'; it must be a number"),
        ({"age": True}, "age is True; it must be a number"),
        ({"age": math.inf}, "age is inf; it must be a number"),
        ({"age": 1e300}, "too large"),
        ({AMOUNT: None}, "cannot be missing"),
        ({"town": "Rome"}, "has never seen"),
        ({"town": 3}, "is not a string"),
        ({"since": "yesterday"}, "a date, e.g. 2020-02-29 or 29.02.2020"),
        ({"since": "03/04/2011"}, "a date, e.g."),  # of two meanings
        ({"since": "2020-02-30"}, "a date, e.g."),
        ({"member": "perhaps"}, "true or false"),
        ({"member": 0.5}, "member is 0.5; it must be true or false"),
        ({"member": 7}, "member is 7; it must be true or false"),
    ],
)
def test_what_cannot_be_changed(answers, change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        answers.change(SCRIPT, change)


def small(ids=None, names=None):
    """A model of two features, and its graph of three nodes."""
    graph = hoplite.Graph.from_edges(
        [(0, 1), (1, 2)], [[1.0, 2.0], [3.0, 5.0], [0.0, 4.0]], node_ids=ids, feature_names=names
    )
    weights = {"theta": np.array([[1.0, 2.0], [0.5, -1.0]])}
    config = hoplite.model_config("sgc", hops=1)
    return hoplite.TrainedModel(config, weights, 2, ("cat", "dog"), feature_names=names), graph


def test_ids_of_the_same_text_are_refused():
    with pytest.raises(ConfigError, match=r"two nodes of .* have ids that look the same"):
        Answers(*small([1, "1", "b"]))


@pytest.mark.parametrize(
    ("label", "options"),
    [("kind", {}), ("price", {"task": "regression"}), ("likes", {"task": "multilabel"})],
)
def test_nodes_to_begin_with(tables, label, options):
    model = trained(tables, label=label, bias=True, **options)
    graph = load(tables, model)
    answers = Answers(model, graph)
    examples = answers.examples().examples
    assert all(1 <= len(one.nodes) <= 4 for one in examples)
    for one in examples:
        for node in one.nodes:
            assert node.predicted == answers.node(node.id).prediction.predicted
    if label == "price":
        numbers = model.predict(graph)
        wanted = [[graph.node_ids[v] for v in np.argsort(sign * numbers)[:4]] for sign in (-1, 1)]
        assert [[node.id for node in one.nodes] for one in examples] == wanted
    if label == "kind":
        counts = np.bincount(model.predict(graph), minlength=3)
        rarest = model.class_names[min(np.flatnonzero(counts), key=lambda c: counts[c])]
        assert {node.predicted for node in examples[0].nodes} == {rarest}
        used = {node.id for node in examples[0].nodes}
        shares = dict(zip(graph.node_ids, model.predict_proba(graph).max(axis=1), strict=True))
        left = [name for name in graph.node_ids if name not in used]  # each node once
        assert examples[1].nodes[0].id == min(left, key=lambda name: shares[name])
