"""Labels of neighbours as columns: dense algebra is the judge, and no node sees its own label."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from tests.training.test_path import LIKE_SKLEARN, columns_of, penalty_of, standardized, untidy

import hoplite
from hoplite import Graph, Split
from hoplite.config import TrainingConfig
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, HopliteWarning, ModelFileError
from hoplite.explain.exact import RemovalsUnavailableError
from hoplite.explain.rendering import describe, explanation_page
from hoplite.models import build_model, split_options
from hoplite.models.neighbours import neighbour_columns
from hoplite.tasks import find_task
from hoplite.theory.generalization import generalization
from hoplite.training import path, results
from hoplite.training.linear import LinearObjective
from hoplite.training.objective import Problem
from hoplite.training.runs import with_neighbours
from hoplite.training.sets import node_sets


def dense_columns(graph, nodes, rows):
    """L by dense algebra, from the rows Y (N, m) of the labelled nodes."""
    adjacency = graph.adjacency.toarray().astype(np.float64)
    np.fill_diagonal(adjacency, 0)
    total = adjacency[:, nodes].sum(axis=1, keepdims=True)
    return adjacency[:, nodes] @ rows / np.where(total > 0, total, 1)


def targets_of(kind, count, rng):
    """Targets of a task and their rows Y."""
    if kind == "classes":
        targets = rng.integers(0, 3, count)
        return targets, np.eye(3)[targets]
    if kind == "labels":
        targets = rng.integers(0, 2, (count, 3))
        return targets, targets.astype(float)
    targets = rng.normal(size=count)
    return targets, targets[:, None]


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_columns_are_shares_or_means_of_labelled_neighbours(kind):
    graph, rng = untidy(sparse=False), np.random.default_rng(5)
    nodes = rng.permutation(graph.num_nodes)[:50]
    targets, rows = targets_of(kind, 50, rng)
    found = neighbour_columns(graph.adjacency, nodes, targets, rows.shape[1], np.float64).dense()
    np.testing.assert_allclose(found, dense_columns(graph, nodes, rows), atol=1e-12)


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_no_column_of_a_node_changes_with_its_own_label(kind):
    """Edges from a node to itself, and edges that come twice, do not matter."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 20, (80, 2))
    arcs = sp.coo_array((np.ones(160), np.concatenate([edges, edges[:, ::-1]]).T), (20, 20))
    adjacency = sp.csr_array(arcs + sp.eye_array(20))
    targets, rows = targets_of(kind, 20, rng)
    first = neighbour_columns(adjacency, np.arange(20), targets, rows.shape[1], float).dense()
    for node in range(20):
        changed = targets.copy()
        changed[node] = 1 - targets[node] if kind == "labels" else (targets[node] + 1) % 3
        other = neighbour_columns(adjacency, np.arange(20), changed, rows.shape[1], float).dense()
        assert np.array_equal(other[node], first[node])
        assert not np.array_equal(other, first)


@pytest.mark.parametrize("hops", [0, 2])
@pytest.mark.parametrize("optimizer", ["path", "adam"])
def test_no_out_of_fold_output_changes_with_the_label_of_its_node(monkeypatch, optimizer, hops):
    monkeypatch.setattr(
        sys.modules["hoplite.training.fit"],
        "fold_numbers",
        lambda labels, k, seed: np.arange(len(labels)) % k,
    )
    graph = untidy(sparse=True)
    nodes = np.flatnonzero(graph.labels >= 0)
    options = {"hops": hops, "neighbour_labels": True, "optimizer": optimizer, "epochs": 1}

    def outputs(labels):
        data = graph.with_labels(labels).with_split(Split(nodes))
        result = hoplite.train(data, "blocks", folds=4, dropout=0.0, **options)
        return result.best_run.outputs["val"][1]

    first = outputs(graph.labels)
    for row in (0, 7, 40):
        labels = graph.labels.copy()
        labels[nodes[row]] = (labels[nodes[row]] + 1) % 3
        other = outputs(labels)
        assert np.array_equal(other[row], first[row])
        assert not np.array_equal(other, first)


def test_out_of_fold_outputs_are_those_of_the_folds_where_a_class_does_not_count():
    graph = untidy(sparse=True)
    graph = graph.with_split(Split(np.flatnonzero(graph.labels >= 0)[:80]))  # folds of 16 nodes
    options = {"epochs": 1, "lr": 1.0, "dropout": 0.0, "class_weight": {"1": 0}}
    run = hoplite.train(
        graph, "blocks", hops=0, neighbour_labels=True, optimizer="adam", **options
    ).best_run
    assert run.val_accuracy == pytest.approx(run.history["val_accuracy"][0])


def test_isolated_nodes_are_named_if_only_labels_of_neighbours_are_read():
    graph = untidy(sparse=True)
    model = hoplite.train(graph, "blocks", hops=0, neighbour_labels=True).model
    with pytest.warns(hoplite.HopliteWarning, match="have no edge: they are predicted from"):
        hoplite.predict_table(model, graph)


def test_a_trained_model_gives_a_node_the_same_output_whatever_its_own_label():
    graph = untidy(sparse=True)
    model = hoplite.train(graph, "ppr", hops=3, neighbour_labels=True).model
    first, known = model.logits(graph), model.neighbours
    assert known is not None
    assert len(known.nodes) == len(graph.split.train)  # no validation or test node
    for row, node in enumerate(known.nodes):
        targets = list(known.targets)
        targets[row] = (targets[row] + 1) % 3
        other = dataclasses.replace(known, targets=tuple(targets))
        changed = dataclasses.replace(model, neighbours=other).logits(graph)
        assert np.array_equal(changed[node], first[node])


@pytest.mark.parametrize("sparse", [False, True])
def test_each_penalty_is_scikit_learns_optimum(monkeypatch, sparse):
    monkeypatch.setattr(path, "TOLERANCE", 0.0)
    graph = untidy(sparse=sparse)
    result = hoplite.train(graph, "blocks", hops=1, neighbour_labels=True)
    train, weights = graph.split.train, result.model.weights
    labels = dense_columns(graph, train, np.eye(3)[graph.labels[train]])
    columns = np.concatenate([columns_of(graph, "blocks", hops=1), labels[train]], axis=1)
    scaled = columns if sparse else standardized(columns)
    penalty = penalty_of(scaled, result.best_run.best_epoch)
    judge = LogisticRegression(C=1 / (penalty * len(train)), **LIKE_SKLEARN)
    expected = judge.fit(scaled, graph.labels[train]).predict_log_proba(scaled)
    theta = np.concatenate([weights["theta"].reshape(-1, 3), weights["neighbours"]])
    logits = columns @ theta + weights["bias"]
    found = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(result.model.logits(graph)[train], logits, atol=1e-4)


@pytest.mark.parametrize(
    "training",
    [
        {"dropout": 0.0},
        {"dropout": 0.5},
        {"dropout": 0.0, "optimizer": "lbfgs"},
    ],
)
@pytest.mark.parametrize("model", ["lgc", "blocks"])
def test_the_gradient_is_that_of_differences(model, training):
    graph = untidy(sparse=False)
    graph = graph.with_features(graph.features.astype(np.float64))
    config, _ = split_options(model, {"hops": 2, "neighbour_labels": True})
    built = build_model(config, graph.num_features, 3)
    sets, task = node_sets(graph), find_task("multiclass")
    source = with_neighbours(built, Propagation.of(graph, config), sets["train"], task)
    problem = Problem.of(source, task, sets, 3)
    objective = LinearObjective(built, problem, TrainingConfig(**training), 0)
    weights = objective.params["neighbours"]
    weights[...] = np.random.default_rng(1).normal(size=weights.shape)
    _, gradients = objective.gradient(0)
    for place in [(0, 0), (1, 2), (2, 1)]:
        losses = []
        for step in (1e-5, -1e-5):
            weights[place] += step
            losses.append(objective.gradient(0)[0].loss)
            weights[place] -= step
        slope = (losses[0] - losses[1]) / 2e-5
        assert gradients["neighbours"][place] == pytest.approx(slope, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("batch", [0, 16])
@pytest.mark.parametrize("model", ["lgc", "jacobiconv", "blocks"])
def test_scores_are_those_of_predictions(model, batch):
    graph = untidy(sparse=True)
    dropout = 0.0 if batch else 0.4
    options = {"hops": 2, "epochs": 5, "dropout": dropout, "batch": batch, "lr": 0.1}
    result = hoplite.train(graph, model, neighbour_labels=True, **options)
    run = result.best_run
    np.testing.assert_allclose(
        result.model.logits(graph)[graph.split.test], run.outputs["test"][1], atol=1e-5
    )
    nodes, task = graph.split.val, result.task
    logits = result.model.logits(graph)[nodes].astype(np.float64)
    found = task.loss(logits, task.targets(graph.labels[nodes], 3))
    assert run.history["val_loss"][run.best_epoch - 1] == pytest.approx(found, rel=1e-4)


def named(graph, order=None):
    """The graph with ids, and its nodes in another order."""
    ids = [f"n{i}" for i in range(graph.num_nodes)]
    order = np.arange(graph.num_nodes) if order is None else order
    back = np.argsort(order)
    parts = {part: back[getattr(graph.split, part)] for part in ("train", "val", "test")}
    return Graph(
        graph.adjacency[order][:, order],
        graph.features[order],
        graph.labels[order],
        split=Split(**parts),
        node_ids=[ids[i] for i in order],
        class_names=graph.class_names,
    )


def test_a_saved_model_knows_its_labels_by_ids(tmp_path):
    graph = named(untidy(sparse=True))
    trained = hoplite.train(graph, "blocks", hops=1, neighbour_labels=True, refit=True).model
    trained.save(tmp_path / "model")
    model = hoplite.TrainedModel.load(tmp_path / "model")
    assert model.neighbours == trained.neighbours
    assert len(model.neighbours.nodes) == len(graph.split.train) + len(graph.split.val)
    logits = trained.logits(graph)
    assert np.array_equal(model.logits(graph), logits)
    order = np.random.default_rng(2).permutation(graph.num_nodes)
    other = named(untidy(sparse=True), order).with_labels(np.full(len(order), -1))
    np.testing.assert_allclose(model.logits(other), logits[order], atol=1e-5)
    strangers = other.with_node_ids([f"x{i}" for i in range(graph.num_nodes)])
    with pytest.warns(HopliteWarning, match="none of the 70 nodes whose labels"):
        model.logits(strangers)
    with pytest.raises(ModelFileError, match="needs node ids"):
        model.logits(untidy(sparse=True))


def test_without_ids_a_model_is_of_its_own_graph():
    graph = untidy(sparse=True)
    model = hoplite.train(graph, "sgc", neighbour_labels=True).model
    smaller = Graph(graph.adjacency[:100][:, :100], graph.features[:100])
    with pytest.raises(ModelFileError, match="has 100"):
        model.logits(smaller)


@pytest.mark.parametrize("change", ["none", "class", "node"])
def test_a_damaged_file_is_refused(tmp_path, change):
    graph = untidy(sparse=True)
    model = hoplite.train(graph, "sgc", neighbour_labels=True).model
    known = model.neighbours
    bad = {
        "none": None,
        "class": dataclasses.replace(known, targets=(7, *known.targets[1:])),
        "node": dataclasses.replace(known, nodes=(999, *known.nodes[1:])),
    }[change]
    with pytest.raises((ModelFileError, ValueError), match="labels of neighbours"):
        dataclasses.replace(model, neighbours=bad).save(tmp_path / "model")


def of_task(kind):
    """A graph whose labels are of a task."""
    graph, rng = named(untidy(sparse=False)), np.random.default_rng(3)
    known = graph.labels >= 0
    if kind == "regression":
        labels = np.where(known, graph.labels + rng.normal(size=len(known)), np.nan)
    elif kind == "multilabel":
        labels = np.where(known[:, None], rng.integers(0, 2, (len(known), 3)), -1)
    else:
        return graph
    return graph.with_labels(labels).with_split(graph.split)


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_explanations_add_up_and_name_the_neighbours(kind):
    graph = of_task(kind)
    model = hoplite.train(graph, "blocks", hops=1, neighbour_labels=True).model
    explainer = hoplite.explain.Explainer(model, graph)
    train, adjacency = graph.split.train, graph.adjacency.toarray()
    seen = 0
    for node in range(0, graph.num_nodes, 7):
        why = explainer.explain_at(node)
        assert abs(why.residual) < 1e-4
        near = [u for u in train if adjacency[node, u] and u != node]
        assert set(np.flatnonzero(why.by_label)) <= set(near)
        total = sum(adjacency[node, u] for u in near)
        shown = why.summary(50).neighbour_labels
        assert sum(p.contribution for p in shown.top) == pytest.approx(why.by_label.sum())
        if kind == "classification":
            gap = model.weights["neighbours"][:, why.target]
            gap = gap - model.weights["neighbours"][:, why.rival]
            for part in shown.top:
                assert part.label == graph.class_names[graph.labels[part.index]]
                expected = adjacency[node, part.index] / total * gap[graph.labels[part.index]]
                assert part.contribution == pytest.approx(expected, rel=1e-4)
        if kind == "regression":
            values = [graph.labels[part.index] for part in shown.top]
            assert [float(part.label) for part in shown.top] == pytest.approx(values, rel=1e-5)
        seen += len(shown.top)
    assert seen > 10
    summary = explainer.explain_at(int(np.flatnonzero(adjacency[:, train[0]])[0])).summary()
    assert "By label of a neighbour" in explanation_page(summary)
    (named,) = (t for t in describe(summary).tables if t.title == "By label of a neighbour")
    assert [row[0] for row in named.rows] == [str(p.id) for p in summary.neighbour_labels.top]


def test_what_needs_more_than_hop_features_is_refused(tmp_path):
    graph = untidy(sparse=False)
    model = hoplite.train(graph, "sgc", neighbour_labels=True).model
    with pytest.raises(ConfigError, match="labels of neighbours"):
        model.to_arrays()
    with pytest.raises(RemovalsUnavailableError, match="labels of neighbours"):
        hoplite.explain.flips(model, graph, 0)
    with pytest.raises(ConfigError, match="no known bound"):
        generalization(model, graph)
    with pytest.raises(ConfigError, match="standardize"):
        hoplite.train(graph, "sgc", neighbour_labels=True, standardize=True)
    store = hoplite.propagate(graph, tmp_path / "store", hops=2)
    with pytest.raises(ConfigError, match="neighbour_labels requires edges"):
        hoplite.train(store, "sgc", neighbour_labels=True, optimizer="adam")
    with pytest.raises(ConfigError, match="neighbour_labels requires edges"):
        model.logits(store)


@pytest.mark.parametrize("many", [False, True])
def test_tables_read_labels_of_neighbours_where_these_lower_the_loss(tmp_path, monkeypatch, many):
    """Labels that neighbours share, and a column that tells nothing."""
    if many:  # labels, so that one fold judges
        monkeypatch.setattr(sys.modules["hoplite.training.fit"], "MAX_FOLDED", 100)
        monkeypatch.setattr(results, "MAX_FOLDED", 100)
    rng = np.random.default_rng(0)
    labels, ends = rng.integers(0, 3, 300), rng.integers(0, 300, (4000, 2))
    ends = ends[(labels[ends[:, 0]] == labels[ends[:, 1]]) | (rng.random(4000) < 0.2)][:900]
    rows = [f"n{i},{'abc'[labels[i]]},{rng.normal()}" for i in range(300)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    lines = [f"n{a},n{b}" for a, b in ends]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    result = hoplite.train(tmp_path)
    assert result.model_config.neighbour_labels
    names = [*result.candidates]
    assert names[-1] == f"{names[0]}, neighbour labels True" if many else len(names) == 6
    assert len(result.model.neighbours.nodes) == 300
    assert result.graph_gain.graph > result.graph_gain.features
    own = hoplite.train(tmp_path, neighbour_labels=False)
    assert not own.model_config.neighbour_labels
