"""The figures of a set of nodes are scikit-learn's, on uneven classes of which some are absent."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from tests.training.scattered import scattered_graph
from tests.untidy import SEEDS

from hoplite import ConfigError, HopliteWarning, train
from hoplite.store import propagate
from hoplite.tasks import find_task
from hoplite.tasks.evaluation import calibration_error, evaluate_classes


@st.composite
def scored(draw):
    """Labels of m classes, rare and absent ones among them, and probabilities with ties."""
    rng = np.random.default_rng(draw(SEEDS))
    n, m = draw(st.integers(2, 40)), draw(st.integers(2, 5))
    labels = rng.choice(m, n, p=rng.dirichlet(np.full(m, 0.3)))
    scores = rng.dirichlet(np.ones(m), n).round(draw(st.integers(1, 6))) + 1e-3
    return labels, (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)


@given(scored())
def test_figures_are_those_of_scikit_learn(case):
    labels, p = case
    n, m = p.shape
    predicted, names = p.argmax(axis=1), [f"c{i}" for i in range(m)]
    positive = 1 if m == 2 else None
    found = evaluate_classes(labels, p, predicted, names, positive)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        balanced = metrics.balanced_accuracy_score(labels, predicted)
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    f1 = metrics.f1_score(labels, predicted, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1)
    exact = p.astype(float) / p.sum(axis=1, keepdims=True, dtype=float)
    assert found["log_loss"] == pytest.approx(-np.log(exact[np.arange(n), labels]).mean())
    present = np.unique(labels)
    if len(present) == 1:
        assert np.isnan(found["roc_auc"])
        assert np.isnan(found["average_precision"])
        assert found.as_dict()["roc_auc"] is None
    elif m == 2:
        assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(labels, p[:, 1]))
        ap = metrics.average_precision_score(labels, p[:, 1])
        assert found["average_precision"] == pytest.approx(ap)
    else:  # the mean over the classes that are there; scikit-learn's own needs all of them
        each = np.eye(m)[labels][:, present]
        ours = p[:, present]
        assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(each, ours))
        ap = metrics.average_precision_score(each, ours)
        assert found["average_precision"] == pytest.approx(ap)
        if len(present) == m:
            ovr = metrics.roc_auc_score(labels, p, multi_class="ovr")
            assert found["roc_auc"] == pytest.approx(ovr)
    matrix = metrics.confusion_matrix(labels, predicted, labels=range(m))
    np.testing.assert_array_equal(found.confusion, matrix)
    for c, name in enumerate(names):
        one = found.classes[name]
        right = matrix[c, c]
        assert one["support"] == matrix[c].sum()
        assert one["recall"] == pytest.approx(right / max(matrix[c].sum(), 1))
        assert one["precision"] == pytest.approx(right / max(matrix[:, c].sum(), 1))


@given(scored())
def test_calibration_error_bin_by_bin(case):
    labels, p = case
    sure, right = p.max(axis=1).astype(float), p.argmax(axis=1) == labels
    total = 0.0
    for b in range(15):
        inside = (sure > b / 15) & (sure <= (b + 1) / 15)
        if inside.any():
            total += inside.sum() * abs(right[inside].mean() - sure[inside].mean())
    assert calibration_error(labels, p) == pytest.approx(total / len(labels))


@pytest.mark.parametrize("few", [0, 1])
def test_the_rarer_of_two_classes_is_positive(few):
    rng = np.random.default_rng(few)
    seen = np.where(rng.random(200) < 0.1, few, 1 - few)
    task = find_task("multiclass").fitted(seen, 2)
    assert task.positive == few
    labels = np.where(rng.random(90) < 0.2, few, 1 - few)
    logits = rng.standard_normal((90, 2))
    found = task.evaluate(labels, logits, ["a", "b"])
    least = task.baseline(labels, ["a", "b"])
    scores = logits[:, few] - logits[:, 1 - few]
    ap = metrics.average_precision_score(labels == few, scores)
    assert found["average_precision"] == pytest.approx(ap)
    assert least["accuracy"] == np.mean(labels != few)
    assert (least["balanced_accuracy"], least["roc_auc"]) == (0.5, 0.5)
    assert least["average_precision"] == pytest.approx(np.mean(labels == few))
    assert task.headline == ("roc_auc", "average_precision")
    shares = np.bincount(seen, minlength=2) / 200
    assert least["log_loss"] == pytest.approx(-np.log(shares[labels]).mean())


def test_a_result_has_the_metrics_of_its_runs(tmp_path):
    """In memory and from a store, with mean and deviation; and each run's are its model's."""
    graph = scattered_graph()
    options = {"hops": 2, "epochs": 8, "dropout": 0, "seeds": 3}
    result = train(graph, "lgc", **options)
    stored = train(propagate(graph, tmp_path / "store", hops=2), "lgc", **options)
    for part in ("val", "test"):
        nodes = getattr(graph.split, part)
        for run, other in zip(result.runs, stored.runs, strict=True):
            predicted = run.model.predict(graph)[nodes]
            found = run.metrics(part)
            assert found["accuracy"] == np.mean(predicted == graph.labels[nodes])
            assert found["accuracy"] == run.scores[f"{part}_accuracy"]
            assert found.figures == pytest.approx(other.metrics(part).figures, abs=1e-5)
        means = result.metrics(part)
        each = [run.metrics(part)["macro_f1"] for run in result.runs]
        assert means["macro_f1"] == pytest.approx((np.mean(each), np.std(each)))
        report = result.summary()
        assert report["metrics"][part]["macro_f1"]["mean"] == means["macro_f1"].mean
        assert report["baseline"][part]["accuracy"] == result.baseline(part)["accuracy"]
        assert report["runs"][1]["metrics"][part] == result.runs[1].metrics(part).as_dict()
    with pytest.raises(ConfigError, match="part is 'train'"):
        result.metrics("train")


def test_a_model_no_better_than_the_majority_is_told(tmp_path):
    graph = scattered_graph()
    blind = graph.with_features(np.ones((graph.num_nodes, 1)))
    with pytest.warns(
        HopliteWarning, match="by validation scores the model is no better than always"
    ):
        result = train(blind, "sgc", hops=0, epochs=3, seeds=2)
    assert result.best_run.val_metrics["accuracy"] <= result.baseline("val")["accuracy"]
    with pytest.warns(HopliteWarning, match="no better than always predicting .*: AUC 0"):
        train(blind, "sgc", hops=0, epochs=3, class_weight="balanced")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = train(graph.with_features(np.eye(graph.num_classes)[graph.labels]), hops=0, lr=1.0)
    assert seen._shortfall() is None
    assert seen.metrics()["accuracy"].mean > 0.9
