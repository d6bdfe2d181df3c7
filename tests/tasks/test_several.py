"""Several labels for a node, from tables and matrices to predictions, beside scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from tests.untidy import SEEDS

from hoplite import ConfigError, Graph, GraphError, LGCClassifier, Split, TrainedModel, train
from hoplite.engine.propagation import Propagation
from hoplite.tasks.evaluation import evaluate_labels

OPTIONS = {"hops": 1, "bias": True, "dropout": 0, "epochs": 150, "lr": 0.1, "weight_decay": 1e-4}
NAMES = ("rare", "a b", "often")


@st.composite
def scored(draw):
    """Labels of which some no node has, and some every node; probabilities with ties."""
    rng = np.random.default_rng(draw(SEEDS))
    n, m = draw(st.integers(2, 30)), draw(st.integers(2, 5))
    labels = (rng.random((n, m)) < rng.choice([0, 0.1, 0.5, 1], m)).astype(np.int8)
    return labels, rng.random((n, m)).round(draw(st.integers(1, 5)))


@given(scored())
def test_figures_are_those_of_scikit_learn(case):
    labels, p = case
    report = (p > 0.5).astype(np.int8)
    names = [f"c{c}" for c in range(p.shape[1])]
    found = evaluate_labels(labels, p, report, names)
    for average in ("micro", "macro"):
        wanted = metrics.f1_score(labels, report, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(wanted)
    assert found["subset_accuracy"] == pytest.approx(metrics.accuracy_score(labels, report))
    assert found["label_accuracy"] == pytest.approx(1 - metrics.hamming_loss(labels, report))
    least = np.finfo(float).eps
    clipped = np.clip(p, least, 1 - least)
    losses = labels * np.log(clipped) + (1 - labels) * np.log(1 - clipped)
    assert found["log_loss"] == pytest.approx(-losses.mean(), rel=1e-3)
    both = [c for c in range(p.shape[1]) if 0 < labels[:, c].sum() < len(labels)]
    for name, score in (
        ("roc_auc", metrics.roc_auc_score),
        ("average_precision", metrics.average_precision_score),
    ):
        wanted = np.mean([score(labels[:, c], p[:, c]) for c in both]) if both else np.nan
        assert found[name] == pytest.approx(wanted, nan_ok=True)
    parts = metrics.precision_recall_fscore_support(labels, report, average=None, zero_division=0)
    for c, name in enumerate(names):
        values = [found.classes[name][what] for what in ("precision", "recall", "f1", "support")]
        assert values == pytest.approx([part[c] for part in parts])


@pytest.fixture(scope="module")
def tagged():
    """A graph whose labels two hops nearly tell; isolated nodes, parts in no order, gaps."""
    rng = np.random.default_rng(2)
    n = 150
    edges = np.argwhere(np.triu(rng.random((n, n)) < 0.03, 1))
    edges = edges[~np.isin(edges, [4, 90]).any(axis=1)]
    bare = Graph.from_edges(
        edges, rng.standard_normal((n, 4)), node_ids=[f"n{i}" for i in range(n)]
    )
    hops = Propagation(bare, hops=1).hop_features()[-1]
    scores = hops @ rng.standard_normal((4, 3))
    labels = (scores > np.quantile(scores, [0.85, 0.5, 0.3], axis=0)[[0, 1, 2], [0, 1, 2]]).astype(
        int
    )
    order = rng.permutation(n)
    labels[order[120:]] = -1
    graph = Graph(bare.adjacency, bare.features, labels, None, NAMES, None, bare.node_ids)
    return graph.with_split(Split(order[:70], order[70:95], order[95:120]))


def test_a_matrix_is_learned(tagged):
    result = train(tagged, "sgc", **OPTIONS, seeds=2)
    nodes, run = tagged.split.test, result.best_run
    labels, report = tagged.labels[nodes], run.model.predict(tagged)[nodes]
    assert report.shape == labels.shape
    assert run.test_metrics["micro_f1"] == metrics.f1_score(labels, report, average="micro")
    assert run.scores["test_micro_f1"] == pytest.approx(run.test_metrics["micro_f1"])
    assert result.metrics()["roc_auc"].mean > 0.9
    seen = tagged.labels[tagged.split.train]
    dummy = DummyClassifier(strategy="most_frequent").fit(np.zeros((70, 1)), seen)
    most = dummy.predict(np.zeros((len(nodes), 1)))
    wanted = metrics.f1_score(labels, most, average="macro", zero_division=0)
    assert result.baseline()["macro_f1"] == pytest.approx(wanted)
    assert result.summary()["runs"][0]["metrics"]["test"]["classes"]["a b"]["support"] > 0
    for monitor in ("auc", "ap", "f1", "accuracy"):
        chosen = train(tagged, "sgc", **OPTIONS | {"epochs": 20}, monitor=monitor).runs[0]
        name = chosen.task.monitor(monitor).name
        assert chosen.val_metrics[name] == pytest.approx(chosen.best(f"val_{name}"))
    recalls = [
        train(tagged, "sgc", **OPTIONS | {"epochs": 40}, class_weight=weight)
        .runs[0].val_metrics.classes["rare"]["recall"]
        for weight in ("none", {"rare": 50})
    ]  # fmt: skip
    assert recalls[0] <= recalls[1] > 0.9


def test_estimators_take_a_matrix(tagged, tmp_path):
    train_nodes, val, test = (getattr(tagged.split, part) for part in ("train", "val", "test"))
    model = clone(LGCClassifier(tagged, **OPTIONS))
    model.fit(train_nodes, tagged.labels[train_nodes], validation=(val, tagged.labels[val]))
    same = train(tagged, "lgc", **OPTIONS).model
    np.testing.assert_array_equal(model.predict(test), same.predict(tagged)[test])
    np.testing.assert_allclose(model.predict_proba(test), same.predict_proba(tagged)[test])
    assert model.decision_function(test).shape == (25, 3)
    wanted = metrics.accuracy_score(tagged.labels[test], model.predict(test))
    assert model.score(test, tagged.labels[test]) == pytest.approx(wanted)
    assert model.model_.class_names == NAMES
    mask = np.isin(np.arange(150), train_nodes)
    masked = LGCClassifier(tagged, **OPTIONS).fit(mask, tagged.labels)
    assert masked.predict(test).shape == (25, 3)
    with pytest.raises(GraphError, match="validation y has shape"):
        model.fit(train_nodes, tagged.labels[train_nodes], validation=(val, np.zeros((25, 2), int)))
    with pytest.raises(GraphError, match="other than 0 and 1"):
        model.fit(np.arange(150), tagged.labels)


def test_what_several_labels_do_not_have(tagged, tmp_path):
    model = train(tagged, "sgc", **OPTIONS | {"epochs": 3}).model
    saved = TrainedModel.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(saved.predict(tagged), model.predict(tagged))
    for refused in (
        lambda: train(tagged, "sgc", threshold="f1"),
        lambda: train(tagged, "sgc", calibrate=True),
        lambda: saved.prediction_sets(tagged),
        lambda: train(tagged, "sgc", task="regression"),
    ):
        with pytest.raises((ConfigError, GraphError)) as caught:
            refused()
        assert "\n" not in str(caught.value)
