"""Cross-validation: out-of-fold outputs, the epoch that folds choose, and the final model."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    log_loss,
    precision_recall_fscore_support,
)
from tests.training.test_path import LIKE_SKLEARN, columns_of, penalty_of, untidy

import hoplite
from hoplite.tasks import find_task
from hoplite.training import path
from hoplite.training.comparison import Candidate, Comparison, default_choice
from hoplite.training.fit import choose_epoch, fold_numbers
from hoplite.training.runs import Run, RunResult


def all_labels(graph):
    return graph.with_split(hoplite.Split(train=np.flatnonzero(graph.labels >= 0)))


def test_folds_have_their_share_of_every_class():
    labels = np.array([0] * 52 + [1] * 9 + [2] * 3)
    numbers = fold_numbers(labels, 5, seed=3)
    for label, count in ((0, 52), (1, 9), (2, 3)):
        counts = np.bincount(numbers[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
        assert counts.sum() == count
    assert np.array_equal(numbers, fold_numbers(labels, 5, seed=3))
    assert not np.array_equal(numbers, fold_numbers(labels, 5, seed=4))
    assert np.bincount(fold_numbers(np.random.default_rng(0).normal(size=11), 5, 0)).max() == 3


def test_out_of_fold_outputs_are_those_of_models_without_the_fold(monkeypatch):
    monkeypatch.setattr(path, "TOLERANCE", 0.0)
    graph = all_labels(untidy(sparse=True))
    result = hoplite.train(graph, "blocks", hops=1)
    run, train = result.best_run, graph.split.train
    labels, logits = run.outputs["val"]
    assert np.array_equal(labels, graph.labels[train])
    columns = columns_of(graph, "blocks", hops=1)
    numbers = fold_numbers(labels, 5, seed=0)
    for fold in range(5):
        rest = numbers != fold
        penalty = penalty_of(columns[rest], run.best_epoch)
        judge = LogisticRegression(C=1 / (penalty * rest.sum()), **LIKE_SKLEARN)
        judge.fit(columns[rest], labels[rest])
        found = run.task.link(logits[~rest])
        np.testing.assert_allclose(found, judge.predict_proba(columns[~rest]), atol=2e-4)


def test_metrics_threshold_and_temperature_are_out_of_fold():
    graph = untidy(sparse=False)
    labels = np.where(graph.labels > 0, 1, graph.labels)
    graph = all_labels(graph.with_labels(labels, ["no", "yes"]))
    result = hoplite.train(graph, "sgc", threshold="f1", calibrate=True)
    run = result.best_run
    labels, logits = run.outputs["val"]
    assert result.out_of_fold
    assert run.val_metrics["log_loss"] == pytest.approx(log_loss(labels, run.task.link(logits)))
    folds, classes = fold_numbers(labels, 5, seed=0), np.empty_like(labels)
    for fold in range(5):  # no label decides about its own threshold
        own, rest = folds == fold, folds != fold
        classes[own] = run.task.tuned("f1", labels[rest], logits[rest]).predict(logits[own])
    expected = precision_recall_fscore_support(labels, classes, zero_division=0)
    assert run.val_accuracy == (classes == labels).mean() == run.val_metrics["accuracy"]
    assert run.val_metrics["balanced_accuracy"] == pytest.approx(expected[1].mean())
    assert run.val_metrics["macro_f1"] == pytest.approx(expected[2].mean())
    assert np.array_equal(run.val_metrics.confusion, confusion_matrix(labels, classes))
    assert f"accuracy {run.val_accuracy:.3f}" in str(result.plot_confusion("val"))
    assert run.calibration is not None
    assert run.test_metrics is None
    assert "calibration_error" not in result.intervals()  # resampling makes it larger
    low, high = result.intervals()["accuracy"]
    assert low <= run.val_accuracy <= high


def test_random_labels_are_not_predicted_by_models_trained_in_steps():
    rng = np.random.default_rng(5)
    scores, judged = [], []
    for _ in range(8):
        labels = rng.permutation(np.arange(120) % 2)
        features, edges = rng.standard_normal((120, 10)), rng.integers(0, 120, (200, 2))
        graph = all_labels(hoplite.Graph.from_edges(edges, features, labels))
        run = hoplite.train(graph, "lgc", hops=2).best_run
        scores.append(run.val_accuracy)
        judged.append(run.selection_scores[0])
    assert np.mean(scores) < 0.56  # 0.65 at the best epoch by the labels of each fold
    assert judged == pytest.approx(scores)


@pytest.mark.parametrize("model", ["sgc", "lgc"])
def test_there_are_from_two_folds_to_one_for_each_node(model):
    graph = all_labels(untidy(sparse=False))
    graph = graph.with_split(hoplite.Split(train=graph.split.train[:12]))
    for folds in (2, 20):
        result = hoplite.train(graph, model, hops=1, epochs=4, folds=folds)
        assert result.out_of_fold
        assert np.isfinite(result.val_score)
    with pytest.raises(hoplite.ConfigError, match="folds is 1; use at least 2, or 0"):
        hoplite.train(graph, model, folds=1)


def test_the_epochs_of_all_folds_and_of_a_refit_are_counted(monkeypatch):
    fit = sys.modules["hoplite.training.fit"]
    trainings = []

    def train_runs(*args, **kwargs):
        results = fit_runs(*args, **kwargs)
        trainings.extend(results)
        return results

    fit_runs = fit.train_runs
    monkeypatch.setattr(fit, "train_runs", train_runs)
    graph = all_labels(untidy(sparse=False))
    for most, options in ((10_000, {"epochs": 30}), (10_000, {"optimizer": "path"}), (20, {})):
        monkeypatch.setattr(fit, "MAX_FOLDED", most)
        trainings.clear()
        result = hoplite.train(graph, "sgc", hops=1, **options)
        epochs, seconds = (sum(getattr(one, k) for one in trainings) for k in ("epochs", "seconds"))
        assert result.best_run.trained_epochs == epochs
        assert result.ms_per_epoch == pytest.approx(1000 * seconds / epochs)


def test_curves_of_test_nodes_require_validation_nodes():
    graph = all_labels(untidy(sparse=False))
    split = hoplite.Split(train=graph.split.train[:-9], test=graph.split.train[-9:])
    with pytest.raises(hoplite.ConfigError, match="record_test requires validation nodes"):
        hoplite.train(graph.with_split(split), "sgc", record_test=True)


def test_solved_models_count_penalties():
    graph = all_labels(untidy(sparse=False))
    for optimizer, step in (("path", "penalty"), ("adam", "epoch")):
        result = hoplite.train(graph, "sgc", hops=1, optimizer=optimizer, dropout=0)
        facts = result._describe().facts
        assert facts["runs"].endswith(f" ms per {step}")
        assert facts["chosen"].startswith(f"seed 0, {step} ")


def result_of(losses, optimizer="path"):
    config = hoplite.TrainingConfig(
        optimizer=optimizer, dropout=0.0, monitor="loss", epochs=len(losses)
    )
    return RunResult(
        Run(config, 0), {}, 1 + int(np.argmin(losses)), len(losses), False,
        {"val_loss": np.array(losses)}, 0.0,
    )  # fmt: skip


def test_of_equal_penalties_the_strongest_is_taken():
    task = find_task("multiclass")
    noisy = [[1.0, 0.50, 0.49], [1.0, 0.50, 0.47], [1.0, 0.48, 0.50]]
    clear = [[1.0, 0.50, 0.40], [1.0, 0.50, 0.41], [1.0, 0.48, 0.39]]
    assert choose_epoch([*map(result_of, noisy)], task) == 2
    assert choose_epoch([*map(result_of, clear)], task) == 3
    steps = [result_of(losses, "adam") for losses in noisy]
    assert choose_epoch(steps, task) == 3
    failed = dataclasses.replace(steps[0], best_epoch=0)
    assert choose_epoch([failed, *steps[1:]], task) == 0


def test_epochs_that_are_not_finite_in_all_folds_are_left_out():
    task = find_task("multiclass")
    parts = [result_of([np.inf if fold == 0 else 0.7, 0.3, 0.31]) for fold in range(5)]
    assert choose_epoch(parts, task) == 2
    unknown = dataclasses.replace(parts[0], history={"val_loss": np.full(3, np.nan)})
    assert choose_epoch([unknown, *parts[1:]], task) == 2
    assert choose_epoch([unknown, parts[1]], task) == 2
    assert choose_epoch([unknown, unknown], task) == 1


@pytest.mark.parametrize("model", ["sgc", "lgc"])
def test_a_monitor_that_no_fold_defines_is_an_error(model):
    """One node per fold has no AUC; with two classes in one fold there is a choice."""
    graph = all_labels(untidy(sparse=False))
    graph = graph.with_split(hoplite.Split(train=graph.split.train[:12]))
    options = {"hops": 1, "epochs": 4, "monitor": "auc"}
    with pytest.raises(hoplite.ConfigError, match=r"monitor is 'auc', .* any of the 12 folds"):
        hoplite.train(graph, model, folds=12, **options)
    assert hoplite.train(graph, model, folds=2, **options).out_of_fold


def test_of_models_without_an_error_the_simplest_is_taken():
    graph = all_labels(untidy(sparse=False))
    labels = graph.labels[graph.split.train]
    task = find_task("multiclass").fitted(labels, graph.num_classes)
    candidates = []
    for hops, margin in ((0, 0.5), (1, 1.0), (2, 3.0)):
        outputs = margin * np.eye(graph.num_classes)[labels]
        blocks = Candidate(1 + hops, "blocks", {"hops": hops}, default=True, learned=5 + hops)
        candidates.append(Comparison(graph).scored(blocks, task, labels, outputs))
    assert candidates[0].val > 100 * candidates[2].val
    assert default_choice(reversed(candidates)) == candidates[0]


def test_every_label_trains_and_a_part_of_many_is_held_out_first(monkeypatch):
    graph = all_labels(untidy(sparse=False))
    labelled = len(graph.split.train)
    result = hoplite.train(graph, "blocks", hops=1, refit=True)
    assert (result.out_of_fold, result.held_out) == (True, 0)
    assert not result.training_config.refit  # folds end with all labels anyway
    monkeypatch.setattr(sys.modules["hoplite.training.fit"], "MAX_FOLDED", 20)
    result = hoplite.train(graph, "blocks", hops=1)
    assert not result.out_of_fold
    assert result.held_out == -(-labelled // 5)
    assert result.training_config.refit
    inside = fold_numbers(graph.labels[graph.split.train], 5, 0) == 0
    parts = hoplite.Split(graph.split.train[~inside], graph.split.train[inside])
    same = hoplite.train(graph.with_split(parts), "blocks", hops=1, refit=True)
    weights = same.model.weights
    assert all(np.array_equal(w, weights[name]) for name, w in result.model.weights.items())
    assert result.metrics("val") == same.metrics("val")


def test_test_nodes_are_left_unread():
    graph = untidy(sparse=False)
    result = hoplite.train(graph, "sgc", test=False)
    assert np.isnan(result.test_accuracy)
    assert result.metrics("test") == {}
    assert "test" not in result.best_run.outputs


def test_edges_that_tell_nothing_are_left_out(tmp_path):
    """Tables without an option: 0 hops where edges are random, more where labels follow them."""
    rng = np.random.default_rng(2)
    values, ends = rng.standard_normal((400, 3)), rng.integers(0, 400, (2, 900))
    adjacency = np.zeros((400, 400))
    adjacency[ends[0], ends[1]] = adjacency[ends[1], ends[0]] = 1
    np.fill_diagonal(adjacency, 0)
    means = adjacency @ values / np.maximum(adjacency.sum(axis=1), 1)[:, None]
    lines = [f"n{a},n{b}" for a, b in ends.T]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    gains = []
    for score, hops in ((values[:, 0], {0}), (means[:, 0], {1, 2, 5})):
        noisy = score / score.std() + rng.normal(0, 0.7, 400)
        rows = [
            f"n{i},{'yes' if noisy[i] > 0 else 'no'},{','.join(map(str, values[i]))}"
            for i in range(400)
        ]
        (tmp_path / "nodes.csv").write_text("\n".join(["id,label,a,b,c", *rows]) + "\n")
        result = hoplite.train(tmp_path)
        *names, last = result.candidates
        blocks = [f"blocks: hops {hops}" for hops in range(3)]
        assert names == [*blocks, "ppr: hops 5", "lgc: hops 5"]
        best = min(names, key=result.candidates.__getitem__)
        chosen = names[-1] if result.model_config.model == "lgc" else best
        assert last == f"{chosen}, neighbour labels True"
        assert result.model_config.hops in hops
        gains.append(result.graph_gain)
    useless, useful = gains
    assert useless.graph - useless.features < 2 * useless.error
    assert useful.graph - useful.features > 4 * useful.error
    labels, outputs = result.best_run.outputs["val"]
    rare = np.bincount(labels).argmin()
    margins = (outputs[:, rare] - outputs[:, 1 - rare]).astype(float)
    assert useful.graph == pytest.approx(average_precision_score(labels == rare, margins))
    assert useful.baseline == pytest.approx((labels == rare).mean())
    alone = hoplite.train(hoplite.load(tmp_path), "blocks", hops=0)
    assert alone.graph_gain is None
    labels, outputs = alone.best_run.outputs["val"]
    margins = (outputs[:, rare] - outputs[:, 1 - rare]).astype(float)
    assert useful.features == pytest.approx(average_precision_score(labels == rare, margins))
    named = hoplite.train(tmp_path, hops=1)
    assert named.candidates == {}
    assert named.graph_gain.features == useful.features
    assert named.summary()["graph_gain"]["features"] == useful.features


def test_no_threshold_is_chosen_by_too_few_nodes_of_a_class(tmp_path):
    rng = np.random.default_rng(4)
    rows = [f"n{i},{'fraud' if i < 3 else 'fine'},{rng.normal()}" for i in range(100)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    lines = [f"n{a},n{b}" for a, b in rng.integers(0, 100, (200, 2))]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    with pytest.warns(hoplite.HopliteWarning, match="'fraud' has only 3 labelled nodes, so no thr"):
        run = hoplite.train(tmp_path, hops=1, threshold="f1").best_run
    assert run.threshold is None
    assert run.model.task.threshold == 0.5


def test_a_rare_class_of_tables_has_a_threshold_by_out_of_fold_f1(tmp_path):
    rng = np.random.default_rng(4)
    score = rng.standard_normal(300)
    rare = score + rng.normal(0, 0.7, 300) > 1.6
    rows = [f"n{i},{'fraud' if rare[i] else 'fine'},{score[i]}" for i in range(300)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    lines = [f"n{a},n{b}" for a, b in rng.integers(0, 300, (300, 2))]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    figures = {}
    for threshold in ("f1", 0.5):
        named = {} if threshold == "f1" else {"threshold": threshold}
        run = hoplite.train(tmp_path, **named).best_run
        assert run.model.training["threshold"] == threshold
        figures[threshold] = run.val_metrics.classes["fraud"]["f1"]
    assert figures["f1"] > figures[0.5]
    assert run.threshold is None
    assert hoplite.train(tmp_path, folds=0, hops=1).training_config.threshold == 0.5


@pytest.mark.parametrize("part", ["train", "val"])
def test_labels_of_nodes_of_weight_0_change_nothing(part):
    graph = untidy(sparse=False)
    labels = np.where(graph.labels > 0, 1, graph.labels)
    known = np.flatnonzero(labels >= 0)
    split = hoplite.Split(known) if part == "train" else hoplite.Split(known[::2], known[1::2])
    weights, lost = np.ones(graph.num_nodes), getattr(split, part)[::3]
    weights[lost] = 0
    flipped = labels.copy()
    flipped[lost] = 1 - flipped[lost]
    options = {"hops": 0, "optimizer": "path", "threshold": "f1", "calibrate": True}
    facts = []
    for values in (labels, flipped):
        other = graph.with_labels(values, ["no", "yes"]).with_split(split)
        result = hoplite.train(other, "blocks", sample_weight=weights, **options)
        facts.append((result.model.task, result.best_run.val_metrics.figures, result.out_of_fold))
        if part == "train":
            model = hoplite.HopBlocksClassifier(other, **options)
            model.fit(known, values[known], sample_weight=weights[known])
            facts[-1] += (model.model_.task,)
    assert facts[0] == facts[1]


def test_folds_of_repeated_nodes_are_those_of_each_node_once():
    graph = all_labels(untidy(sparse=False))
    nodes = graph.split.train
    curves = []
    for rows in (nodes, np.repeat(nodes, 3)):
        model = hoplite.HopBlocksClassifier(graph, hops=0, optimizer="adam", dropout=0, epochs=9)
        curves.append(model.fit(rows, graph.labels[rows]).history_["val_loss"])
    np.testing.assert_allclose(*curves, rtol=1e-4)
