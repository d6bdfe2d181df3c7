"""CV+: sets of a model of all labels by the models of its folds."""

from __future__ import annotations

import dataclasses
import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.training.test_folds import all_labels
from tests.training.test_path import untidy

import hoplite
from hoplite import ModelFileError, TrainedModel
from hoplite.predictions import predict_table
from hoplite.store import propagate
from hoplite.tasks import conformal
from hoplite.tasks.conformal import NODES, FoldModels


def by_hand(model, graph, coverage, by_class):
    """The definition, node by node and class by class."""
    kept = model.fold_models
    task, count = model.task, graph.num_nodes
    models = [dataclasses.replace(model, weights=one) for one in kept.weights]
    chances = [1 - one.predict_proba(graph).astype(float) for one in models]
    inside = np.zeros((count, model.num_classes), bool)
    for v in range(count):
        for c in range(model.num_classes):
            nodes = [row for row in kept.nodes if not by_class or row[1] == c]
            below = sum(s < chances[int(f)][v, c] - 1e-6 for f, _, s in nodes)
            inside[v, c] = below < Fraction(repr(coverage)) * (len(nodes) + 1)
    assert task.has_classes
    return inside


@pytest.mark.filterwarnings("ignore:a coverage of")
@pytest.mark.parametrize(
    ("name", "options"),
    [("blocks", {"hops": 1, "calibrate": True}), ("lgc", {"hops": 2, "epochs": 10})],
)
def test_sets_of_classes_by_definition(name, options, tmp_path):
    graph = all_labels(untidy(sparse=False))
    result = hoplite.train(graph, name, **options)
    model = TrainedModel.load(result.model.save(tmp_path / "m"))
    labels, logits = result.best_run.outputs["val"]
    folds = model.fold_models.nodes[:, 0]
    np.testing.assert_array_equal(model.fold_models.nodes[:, 1], labels)
    for fold, weights in enumerate(model.fold_models.weights):
        own = dataclasses.replace(model, weights=weights).logits(graph)[graph.split.train]
        np.testing.assert_allclose(own[folds == fold], logits[folds == fold], atol=1e-4)
    for coverage, by_class in ((0.5, False), (0.9, False), (0.8, True), (0.99, True)):
        found = model.prediction_sets(graph, coverage, by_class=by_class)
        np.testing.assert_array_equal(found, by_hand(model, graph, coverage, by_class))
        table = predict_table(model, graph, coverage=coverage, by_class=by_class)
        assert table["set_size"].tolist() == found.sum(axis=1).tolist()


def test_intervals_of_numbers_by_definition():
    rng = np.random.default_rng(1)
    graph = untidy(sparse=False)
    values = graph.features[:, 0] + 0.5 * rng.standard_normal(graph.num_nodes)
    values[rng.random(graph.num_nodes) < 0.3] = np.nan
    graph = graph.with_labels(values)
    graph = graph.with_split(hoplite.Split(np.flatnonzero(np.isfinite(values))))
    model = hoplite.train(graph, "blocks", hops=1).model
    kept = model.fold_models
    models = [dataclasses.replace(model, weights=one).predict(graph) for one in kept.weights]
    rank = math.ceil(Fraction("0.9") * (len(kept.nodes) + 1))
    low, high = model.prediction_sets(graph, 0.9).T
    for v in range(graph.num_nodes):
        lower = sorted(s - models[int(f)][v] for f, _, s in kept.nodes)
        upper = sorted(s + models[int(f)][v] for f, _, s in kept.nodes)
        assert (low[v], high[v]) == pytest.approx((-lower[rank - 1], upper[rank - 1]))
    known = np.isfinite(values)
    assert 0.85 < ((low <= values) & (values <= high))[known].mean() < 1


def test_hidden_labels_are_covered():
    """In the mean over draws of the labelled nodes, which are few."""
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(12):
        x = rng.standard_normal((500, 6))
        labels = np.argmax(x[:, :3] + rng.gumbel(size=(500, 3)), axis=1)
        graph = hoplite.Graph.from_edges(rng.integers(0, 500, (800, 2)), x, labels)
        graph = graph.with_split(hoplite.Split(np.arange(60)))
        model = hoplite.train(graph, "blocks", hops=1).model
        sets = model.prediction_sets(graph, 0.9)
        covered.append(sets[np.arange(60, 500), labels[60:]].mean())
    assert 0.87 < np.mean(covered) < 0.97


def test_where_no_fold_is_kept(monkeypatch, tmp_path):
    graph = all_labels(untidy(sparse=False))
    options = {"hops": 1, "operator": "adjacency"}
    assert (
        hoplite.train(graph, "blocks", neighbour_labels=True, **options).model.fold_models is None
    )
    model = hoplite.train(graph, "blocks", **options).model
    store = propagate(graph, tmp_path / "store", **options)
    wanted = model.task.sets(model.logits(graph), model.set_quantile(0.8))
    np.testing.assert_array_equal(model.prediction_sets(store, 0.8), wanted)
    monkeypatch.setattr(sys.modules["hoplite.training.fit"], "MAX_NUMBERS", 10)
    large = hoplite.train(graph, "blocks", **options).model
    assert large.fold_models is None
    np.testing.assert_array_equal(large.prediction_sets(graph, 0.8), wanted)


def test_damaged_folds(tmp_path):
    graph = all_labels(untidy(sparse=False))
    model = hoplite.train(graph, "blocks", hops=1).model
    model.save(tmp_path / "m")
    (path,) = (tmp_path / "m").glob("weights-*")
    arrays = {name: one for name, one in load_file(path).items() if conformal.is_of_fold(name)}
    names = [*model.weights]
    shapes = {name: value.shape for name, value in (model.weights | arrays).items()}
    own = {name: value.shape for name, value in model.weights.items()}
    assert own | FoldModels.shapes(own, shapes) == shapes
    for damaged in (
        {NODES: arrays[NODES]},
        arrays | {NODES: arrays[NODES][:0]},
        arrays | {NODES: arrays[NODES] + 0.5},
    ):
        with pytest.raises(ModelFileError, match="folds are damaged"):
            FoldModels.of_arrays(damaged, names)
    for wrong in ({"folds.9.theta": (1, 1)}, {NODES: (3,)}, {"folds.0.theta": (2, 2)}):
        there = shapes | wrong
        assert own | FoldModels.shapes(own, there) != there
