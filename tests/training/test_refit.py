"""Refit: the second training is one on both label sets, for each run's own best epochs."""

import dataclasses
import sys

import numpy as np
import pytest

import hoplite
from hoplite import ConfigError, Split
from hoplite.models import find_model
from hoplite.training.runs import time_limit

OPTIONS = {"hops": 3, "epochs": 30, "lr": 0.1, "dropout": 0.3, "weight_decay": 1e-3}


def both_parts(graph):
    """The graph with the validation nodes among the training nodes."""
    split = graph.split
    both = np.concatenate([split.train, split.val])
    return graph.with_split(Split(both, [], split.test))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"dropout": 0.0},
        {"class_weight": "balanced"},
        {"optimizer": "lbfgs", "dropout": 0.0, "epochs": 6, "lr": 1.0},
        {"batch": 7, "dropout": 0.0},
    ],
)
@pytest.mark.parametrize("model", ["sgc", "lgc", "gcn"])
def test_each_run_is_a_training_on_both_parts_for_its_best_epochs(graphs, model, more):
    graph = graphs(n=50, seed=4)
    own = {k: v for k, v in (OPTIONS | more).items() if k in find_model(model).settings()}
    if "batch" in own and not find_model(model).reads_rows():
        return
    first = hoplite.train(graph, model, seeds=4, **own)
    result = hoplite.train(graph, model, seeds=4, refit=True, **own)
    if model != "gcn" and "optimizer" not in more:
        assert len({run.best_epoch for run in first.runs}) > 1
    for before, run in zip(first.runs, result.runs, strict=True):
        assert run.best_epoch == before.best_epoch
        assert run.val_accuracy == before.val_accuracy  # of the first training
        alone = own | {"epochs": run.best_epoch}
        alone |= {"folds": 0, "seeds": [run.seed]}
        wanted = hoplite.train(both_parts(graph), model, **alone).runs[0]
        for name, value in wanted.model.weights.items():
            np.testing.assert_allclose(run.model.weights[name], value, atol=1e-6)
        assert run.test_accuracy == wanted.test_accuracy
    assert result.best_run.seed == first.best_run.seed


def test_sample_weights_of_both_parts_count(graphs):
    graph = graphs(n=50, seed=4)
    weights = 10.0 ** np.random.default_rng(1).uniform(-2, 2, 50)
    (run,) = hoplite.train(graph, "sgc", refit=True, sample_weight=weights, **OPTIONS).runs
    options = OPTIONS | {"epochs": run.best_epoch, "sample_weight": weights, "folds": 0}
    wanted = hoplite.train(both_parts(graph), "sgc", **options).model
    np.testing.assert_allclose(run.model.logits(graph), wanted.logits(graph), atol=1e-6)


def test_what_validation_chose_stays(graphs):
    graph = graphs(n=60, classes=2, seed=4)
    options = OPTIONS | {"threshold": "balanced", "calibrate": True}
    first = hoplite.train(graph, "sgc", **options)
    result = hoplite.train(graph, "sgc", refit=True, **options)
    assert result.model.task == first.model.task
    assert result.model.task.temperature != 1


def test_prediction_sets_use_the_scores_of_the_model_before(graphs):
    graph = graphs(n=60, classes=3, seed=4)
    first = hoplite.train(graph, "sgc", **OPTIONS).model
    model = hoplite.train(graph, "sgc", refit=True, **OPTIONS).model
    assert model.set_quantile(0.7) == first.set_quantile(0.7)
    wanted = model.task.sets(model.logits(graph), first.set_quantile(0.7))
    np.testing.assert_array_equal(model.prediction_sets(graph, 0.7), wanted)


def test_label_propagation_and_correct_and_smooth_have_both_labels(graphs):
    graph = graphs(n=60, seed=2)
    split = graph.split
    both = np.concatenate([split.train, split.val])
    labels = hoplite.train(graph, "labelprop", refit=True).model
    assert (np.flatnonzero(labels.weights["signal"].sum(axis=1)) == np.sort(both)).all()
    options = OPTIONS | {"epochs": 1, "correct_smooth": True, "dropout": 0.0}
    seen = 0
    for seed in range(8):
        (first,) = hoplite.train(graph, "sgc", seeds=[seed], **options).runs
        (run,) = hoplite.train(graph, "sgc", seeds=[seed], refit=True, **options).runs
        assert run.val_accuracy == first.val_accuracy
        if first.model.correct_smooth.idle:
            assert run.model.correct_smooth.idle
            continue
        seen += 1
        wanted = tuple(np.sort(both).tolist()), tuple(graph.labels[np.sort(both)].tolist())
        after = dataclasses.replace(first.model.correct_smooth, nodes=wanted[0], labels=wanted[1])
        assert run.model.correct_smooth == after
        found = run.model.logits(graph)[split.test].argmax(axis=1)
        assert run.test_accuracy == (found == graph.labels[split.test]).mean()
    assert seen


@pytest.mark.parametrize("option", ["refit", "correct_smooth", "calibrate"])
def test_empty_validation_is_none(graphs, option):
    graph = graphs(n=30, d=3)
    nodes = graph.split.train
    model = hoplite.LGCClassifier(graph, hops=1, epochs=2, **{option: True})
    with pytest.raises(ConfigError, match=f"{option} requires a validation split"):
        model.fit(nodes, graph.labels[nodes], validation=([], []))


def test_a_refit_without_time_keeps_the_first_model(graphs, monkeypatch):
    graph, options = graphs(n=60), {"hops": 2, "epochs": 20, "dropout": 0.0}
    first = hoplite.train(graph, "lgc", **options).model
    module = sys.modules["hoplite.training.fit"]
    trained, calls = module.train_runs, []

    def limited(*words, **more):
        calls.append(words)
        with time_limit(-1.0 if len(calls) == 2 else 1e9, keep_best=True):
            return trained(*words, **more)

    monkeypatch.setattr(module, "train_runs", limited)
    with time_limit(1e9, keep_best=True):
        kept = hoplite.train(graph, "lgc", refit=True, **options).model
    assert len(calls) == 2
    for name, value in first.weights.items():
        assert np.array_equal(value, kept.weights[name])
