"""The statement about a trained model: its terms, when it says something, when nothing."""

import math

import numpy as np
import pytest

from hoplite import Graph, Split, TrainedModel, model_config
from hoplite.models import build_model
from hoplite.theory import FunctionClass, generalization


def communities(nodes=12_000, train_nodes=10_000, seed=0):
    """Two groups with edges inside, and features that tell them apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, nodes)
    order = np.argsort(labels, kind="stable")
    edges = np.stack([order[:-1], order[1:]], axis=1)
    features = np.eye(2)[labels] + 0.1 * rng.random((nodes, 2))
    parts = rng.permutation(nodes)
    split = Split(parts[:train_nodes], parts[train_nodes:-1000], parts[-1000:])
    return Graph.from_edges(edges, features, labels, split=split)


@pytest.mark.parametrize("model", ["sgc", "egc", "lgc"])
def test_with_many_nodes_and_few_features_it_promises_something(model):
    graph = communities()
    fitted = random_model(graph, model, hops=2)
    fitted.weights["theta"] = np.array([[1.0, -1.0], [-1.0, 1.0]])
    if model == "lgc":
        fitted.weights["alpha"] = np.ones(3)
    elif model == "egc":
        fitted.weights["beta"] = np.array(0.5)
    found = generalization(fitted, graph, draws=200)
    assert not found.vacuous
    assert 0 < found.bound < 0.5
    assert found.bound == pytest.approx(found.margin_loss + found.complexity + found.confidence)
    assert found.test_error < found.bound
    assert found.test_interval[0] <= found.test_error <= found.test_interval[1]
    assert found.gap == found.test_error - found.train_error
    assert "at most" in found.sentence()
    assert found == generalization(fitted, graph, draws=200)  # the same seed, the same statement
    # more confidence costs more
    assert generalization(fitted, graph, delta=1e-6, draws=200).bound > found.bound


def random_model(graph, name, seed=0, **options):
    config = model_config(name, **options)
    model = build_model(config, graph.num_features, graph.num_classes)
    weights = model.initial(np.random.default_rng(seed))
    return TrainedModel(config, weights, graph.num_features, tuple(graph.class_names))


@pytest.mark.parametrize("bias", [False, True])
def test_the_terms_by_hand(graphs, bias):
    graph = graphs(40, 3, seed=1)
    fitted = random_model(graph, "lgc", hops=2, bias=bias)
    if bias:
        fitted.weights["bias"] += 0.25
    found = generalization(fitted, graph)
    theta, alpha = fitted.weights["theta"].astype(np.float64), fitted.weights["alpha"]
    assert found.coefficient_norm == pytest.approx(np.abs(alpha).max())
    assert found.weight_norms == pytest.approx(np.abs(theta).sum(axis=0))
    norm = found.coefficient_norm * sum(found.weight_norms) + (0.25 * 3 if bias else 0)
    size = norm / found.margin
    assert 2 * math.log2(size) == pytest.approx(round(2 * math.log2(size)))
    assert found.complexity == pytest.approx(4 * size * found.unit_complexity)
    unit = FunctionClass(graph, "lgc", 2, bias=bias, outputs=3)
    assert found.unit_complexity <= unit.bound()
    logits, train_nodes = fitted.logits(graph), graph.split.train
    leads = [
        logits[v, graph.labels[v]] - max(np.delete(logits[v], graph.labels[v])) for v in train_nodes
    ]
    losses = [min(1.0, max(0.0, 1 - lead / found.margin)) for lead in leads]
    assert found.margin_loss == pytest.approx(np.mean(losses))
    wrong = fitted.predict(graph)[train_nodes] != graph.labels[train_nodes]
    assert found.train_error == pytest.approx(np.mean(wrong))


def test_classes_are_matched_by_name():
    graph = communities(2500, 1000)
    fitted = random_model(graph, "sgc", hops=1)
    fitted.weights["theta"] = np.array([[1.0, -1.0], [-1.0, 1.0]])
    named = TrainedModel(fitted.config, fitted.weights, 2, ("cat", "dog"))
    swapped = Graph(
        graph.adjacency, graph.features, 1 - graph.labels, graph.split, class_names=["dog", "cat"]
    )
    assert generalization(named, swapped) == generalization(fitted, graph)


def test_scaling_alpha_against_theta_changes_nothing(graphs):
    graph = graphs(40, 3, seed=1)
    one, other = (random_model(graph, "lgc", hops=2) for _ in range(2))
    other.weights["alpha"] *= 8
    other.weights["theta"] /= 8
    assert generalization(one, graph).bound == pytest.approx(generalization(other, graph).bound)
