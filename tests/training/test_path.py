"""Convex models are solved: the optimum of every penalty, as scikit-learn and algebra have it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

import hoplite
from hoplite.engine.propagation import Propagation
from hoplite.models import split_options
from hoplite.training import path

LIKE_SKLEARN = {"max_iter": 10_000, "tol": 1e-10}


@pytest.fixture
def exact(monkeypatch):
    """Solved as far as the number type allows."""
    monkeypatch.setattr(path, "TOLERANCE", 0.0)


def columns_of(graph, model, **options):
    """The columns that theta multiplies, dense, at the training nodes: (N, D)."""
    config, _ = split_options(model, options)
    source = Propagation.of(graph, config)
    hops = source.hop_features(graph.split.train)
    if model != "blocks":
        return np.tensordot(config.kind.constants(config), hops, 1)
    return np.concatenate(list(hops), axis=1)


def standardized(columns):
    """Mean 0 and deviation 1; what is constant keeps its deviation."""
    mean, deviation = columns.mean(axis=0), columns.std(axis=0)
    return (columns - mean) / np.where(deviation > 1e-6 * np.abs(mean), deviation, 1.0)


def untidy(*, sparse, seed=0):
    """120 nodes with weights, isolated ones, scattered parts, uneven classes and columns."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, 120, p=[0.6, 0.3, 0.1])
    labels[rng.random(120) < 0.2] = -1
    features = rng.normal(2.0, rng.uniform(0.1, 30, 5), (120, 5)) + labels[:, None]
    features[:, 3] = 7.0  # a constant column
    if sparse:
        features = sp.csr_array(np.where(rng.random(features.shape) < 0.3, features, 0))
    nodes = rng.permutation(np.flatnonzero(labels >= 0))
    return hoplite.Graph.from_edges(
        rng.integers(0, 110, (300, 2)),
        features=features,
        labels=labels,
        weights=rng.uniform(0.1, 9, 300),
        split=hoplite.Split(nodes[:50], nodes[50:70], nodes[70:]),
    )


def penalty_of(columns, epoch):
    """The penalty of an epoch, of columns as they enter the penalty."""
    return path.relative_penalty(epoch - 1, len(columns)) * (columns**2).sum(axis=1).mean()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", ["sgc", "ppr", "blocks"])
def test_each_penalty_is_scikit_learns_optimum(exact, model, sparse):
    graph = untidy(sparse=sparse)
    result = hoplite.train(graph, model, hops=2)
    run, train = result.best_run, graph.split.train
    columns = columns_of(graph, model, hops=2)
    scaled = columns if sparse else standardized(columns)
    penalty = penalty_of(scaled, run.best_epoch)
    judge = LogisticRegression(C=1 / (penalty * len(train)), **LIKE_SKLEARN)
    judge.fit(scaled, graph.labels[train])
    expected = judge.predict_log_proba(scaled)
    theta = result.model.weights["theta"].reshape(columns.shape[1], -1)
    logits = columns @ theta + result.model.weights["bias"]
    found = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_regression_is_ridge_regression(exact):
    graph = untidy(sparse=False)
    rng = np.random.default_rng(1)
    numbers = rng.normal(3, 2, graph.num_nodes)
    numbers[graph.labels < 0] = np.nan
    graph = graph.with_labels(numbers).with_split(graph.split)
    result = hoplite.train(graph, "blocks", hops=1)
    train, run = graph.split.train, result.best_run
    columns = columns_of(graph, "blocks", hops=1)
    scaled = standardized(columns)
    penalty = penalty_of(scaled, run.best_epoch)
    judge = Ridge(alpha=penalty * len(train) / 2).fit(scaled, numbers[train])
    found = result.model.predict(graph)[train]
    np.testing.assert_allclose(found, judge.predict(scaled), atol=2e-3)


def test_weights_first_finds_the_same_optimum(exact):
    """Its penalties rest on an estimate, so one that is known is solved in both orders."""
    graph = untidy(sparse=True)
    options = {"hops": 2, "optimizer": "path", "epochs": 12, "patience": 12, "dropout": 0.0}
    runs = [
        hoplite.train(graph, "blocks", order=order, **options).best_run
        for order in ("hops-first", "weights-first")
    ]
    losses = [run.history["val_loss"].min() for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


def test_the_seed_changes_nothing_and_is_solved_once():
    graph = untidy(sparse=True)
    first, second = hoplite.train(graph, "sgc", seeds=2).runs
    assert (first.seed, second.seed) == (0, 1)
    assert np.array_equal(first.model.weights["theta"], second.model.weights["theta"])


def test_the_unit_of_the_features_does_not_matter(exact):
    graph = untidy(sparse=False)
    scaled = graph.with_features(graph.features * 1000 + 5)
    runs = [hoplite.train(one, "blocks", hops=1, operator="random_walk").best_run
            for one in (graph, scaled)]  # fmt: skip
    assert runs[0].best_epoch == runs[1].best_epoch
    left, right = (run.outputs["val"][1] for run in runs)
    np.testing.assert_allclose(left - left[:, :1], right - right[:, :1], atol=0.02)


def test_options_of_steps_mean_adam():
    for options in ({"lr": 0.1}, {"dropout": 0.5}, {"preset": "paper"}, {"standardize": True}):
        _, training = split_options("sgc", options)
        assert training.optimizer == "adam"
        assert training.weight_decay == 5e-6
    config, training = split_options("sgc", {})
    assert (training.optimizer, config.hops, config.bias) == ("path", 2, True)
    assert split_options("sgc", {"preset": "paper"})[0].hops == 10
    config, training = split_options("jacobiconv", {"preset": "authors", "lr": 0.1})
    assert (config.operator, training.lr, training.filter_decay_factor) == ("adjacency", 0.1, 0)
    with pytest.raises(hoplite.ConfigError, match="sgc has no such preset"):
        split_options("sgc", {"preset": "authors"})


def test_a_model_that_is_not_convex_is_refused():
    with pytest.raises(hoplite.ConfigError, match="lgc is not convex"):
        split_options("lgc", {"optimizer": "path"})


def test_a_refit_is_the_optimum_of_all_labels(exact):
    graph = untidy(sparse=False)
    result = hoplite.train(graph, "blocks", hops=1, refit=True)
    both = np.union1d(graph.split.train, graph.split.val)
    whole = graph.with_split(hoplite.Split(train=both))
    columns = columns_of(whole, "blocks", hops=1)
    scaled = standardized(columns)
    penalty = penalty_of(scaled, result.best_run.best_epoch)
    judge = LogisticRegression(C=1 / (penalty * len(both)), **LIKE_SKLEARN)
    judge.fit(scaled, graph.labels[both])
    np.testing.assert_allclose(
        result.model.predict_proba(graph)[both], judge.predict_proba(scaled), atol=2e-4
    )


def test_a_refit_has_the_penalty_that_was_chosen():
    """Beyond 10,000 nodes the steps are longer; those of a refit are the first training's."""
    first, again = 8_800, 11_000
    for epoch in range(5):
        chosen = path.relative_penalty(epoch, first)
        kept = path.relative_penalty(epoch, again, first)
        assert kept == pytest.approx(chosen * first / again)
