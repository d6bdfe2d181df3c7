"""hoplite.train on real and small graphs."""

import json

import numpy as np
import pytest

import hoplite
from hoplite import Graph, GraphError


def test_cora_reaches_the_papers_level(cora):
    result = hoplite.train(cora, "lgc", hops=20, lr=0.2, weight_decay=5e-4, dropout=0.5, seeds=3)
    assert result.test_accuracy >= 0.80
    best = max(result.runs, key=lambda run: run.val_accuracy)
    assert result.model is best.model
    predicted = result.model.predict(cora)
    test = cora.split.test
    assert np.mean(predicted[test] == cora.labels[test]) == pytest.approx(best.test_accuracy)


def test_summary_is_plain_json(graphs):
    result = hoplite.train(graphs(n=40, dtype=np.float32), "egc", hops=2, epochs=4, seeds=[3, 7])
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    assert summary["config"]["seeds"] == [3, 7]
    assert summary["config"]["hops"] == 2
    assert [run["seed"] for run in summary["runs"]] == [3, 7]
    accuracies = [run["test_accuracy"] for run in summary["runs"]]
    assert summary["test_accuracy_mean"] == pytest.approx(np.mean(accuracies))
    assert summary["test_accuracy_std"] == pytest.approx(np.std(accuracies))
    assert summary["ms_per_epoch"] > 0
    assert summary["split"]["train"] == 13


def test_many_epochs_cost_no_memory_in_advance(graphs):
    result = hoplite.train(graphs(n=30, dtype=np.float32), hops=1, epochs=10**12, patience=3)
    assert len(result.runs[0].history["val_loss"]) == result.runs[0].epochs


def test_graph_without_labels(graphs):
    graph = Graph(graphs().adjacency, graphs().features)
    with pytest.raises(GraphError, match="the graph has no labels; pass labels="):
        hoplite.train(graph)
