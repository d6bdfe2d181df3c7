"""Certificates: each formula by brute force, and how often the bounds hold."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, hypergeom, norm
from tests.commands import fail, succeed
from tests.examples import THOROUGH

import hoplite
from hoplite import ConfigError, Graph, GraphError, Split
from hoplite.io import write_npz
from hoplite.theory.certificates import (
    gibbs_errors,
    holdout_certificate,
    largest_risk,
    max_errors,
    pac_bayes_certificate,
    transductive_constant,
)

NODES = 150
OPTIONS = {"hops": 1, "optimizer": "adam", "epochs": 15, "dropout": 0, "lr": 0.2}


@pytest.fixture(scope="module")
def whole():
    """Uneven classes, a few wrong labels, isolated nodes."""
    rng = np.random.default_rng(5)
    labels = rng.choice(3, NODES, p=[0.6, 0.3, 0.1])
    features = rng.normal(size=(NODES, 6)) + 1.2 * np.eye(3, 6)[labels]
    edges = rng.integers(0, NODES - 6, (500, 2))
    edges = edges[(labels[edges[:, 0]] == labels[edges[:, 1]]) | (rng.random(500) < 0.2)]
    return Graph.from_edges(edges, features.astype(np.float32), labels)


def drawn(graph, seed):
    order = np.random.default_rng(seed).permutation(NODES)
    return graph.with_split(Split(order[:40], order[40:60], order[60:90]))


@pytest.mark.parametrize("delta", [0.013, 0.053, 0.31])
def test_the_most_errors_are_those_of_scipys_distribution(delta):
    population = 30
    for sample, errors in itertools.product((1, 7, 29, 30), (0, 1, 4, 7)):
        if errors <= sample:
            totals = range(errors, population - (sample - errors) + 1)
            tails = {k: hypergeom(population, k, sample).cdf(errors) for k in totals}
            wanted = max(k for k, tail in tails.items() if tail > delta)
            assert max_errors(errors, sample, population, delta) == wanted
    for total in range(population + 1):  # the bound fails at most as often as it says
        chance = hypergeom(population, total, 7)
        missed = [k for k in range(8) if chance.pmf(k) and max_errors(k, 7, 30, delta) < total]
        assert chance.pmf(missed).sum() <= delta


@pytest.mark.parametrize(("m", "total"), [(1, 2), (3, 10), (9, 10), (20, 45)])
def test_the_constant_is_the_largest_moment(m, total):
    def term(k, errors):
        q, r, p = k / m, (errors - k) / (total - m), errors / total
        cost = total * H(p) - m * H(q) - (total - m) * H(r)
        return hypergeom(total, errors, m).pmf(k) * math.exp(cost)

    def H(x):
        return -sum(y * math.log(y) for y in (x, 1 - x) if y > 0)

    moments = [
        sum(term(k, errors) for k in range(max(0, errors + m - total), min(m, errors) + 1))
        for errors in range(total + 1)
    ]
    assert transductive_constant(m, total) == pytest.approx(max(moments), rel=1e-5)
    if 20 <= m <= total - 20:
        limit = 3 * math.log(m) * math.sqrt(m * (1 - m / total))
        assert transductive_constant(m, total) <= limit  # that of the paper


def test_the_largest_risk_meets_the_budget():
    # q = 0, m = u: N H(r / 2) - u H(r) at r = 0.3
    budget = 20 * (-0.15 * math.log(0.15) - 0.85 * math.log(0.85))
    budget += 10 * (0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    assert largest_risk(0.0, 10, 20, budget) == pytest.approx(0.3, abs=1e-6)
    risks = [largest_risk(0.2, 30, 80, budget) for budget in (0.0, 0.5, 2.0, 8.0)]
    assert risks == sorted(risks)
    assert risks[0] == pytest.approx(0.2, abs=1e-8)


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_errors_of_noisy_logits_are_integrals(classes):
    rng = np.random.default_rng(classes)
    logits, spread = rng.normal(0, 2, (6, classes)), rng.lognormal(0, 2, 6)
    labels = rng.integers(0, classes, 6)
    for row, error in enumerate(gibbs_errors(logits, spread, labels)):
        others = np.delete(logits[row], labels[row])
        gaps = (logits[row, labels[row]] - others) / spread[row]
        right = quad(
            lambda x, gaps=gaps: norm.pdf(x) * norm.cdf(gaps + x).prod(), -12, 12, limit=500
        )[0]
        assert error == pytest.approx(1 - right, abs=1e-7)


def test_bounds_hold_as_often_as_they_say(whole):
    """1,000 random splits in `make test-thorough`."""
    splits, delta = 1000 if THOROUGH else 15, 0.1
    failures = {"holdout": 0, "pac_bayes": 0}
    for seed in range(splits):
        graph = drawn(whole, seed)
        model = hoplite.train(graph, "sgc", test=False, **OPTIONS).model
        found = hoplite.certify(model, graph, confidence=1 - delta)
        for name in failures:
            certificate = getattr(found, name)
            assert certificate.unlabelled == 60
            failures[name] += certificate.error > certificate.bound
    allowed = binom(splits, delta).ppf(0.999)
    assert max(failures.values()) <= allowed


@pytest.mark.parametrize("model", ["lgc", "egc", "ppr", "blocks", "jacobiconv"])
def test_every_linear_model(whole, model):
    graph = drawn(whole, 3)
    settings = {"hops": 2, "epochs": 10, "optimizer": "adam"}
    trained = hoplite.train(graph, model, **settings).model
    found = pac_bayes_certificate(trained, graph, 0.05)
    assert found.sample_error < found.bound < 1
    other = graph.labels.copy()
    hidden = np.setdiff1d(np.arange(NODES), np.concatenate([graph.split.train, graph.split.val]))
    other[hidden] = -1  # it reads no label of test and unlabelled nodes
    blind = Graph(graph.adjacency, graph.features, other, class_names=graph.class_names)
    blind = blind.with_split(Split(graph.split.train, graph.split.val))
    again = pac_bayes_certificate(trained, blind, 0.05)
    assert again.error is None
    assert again.unlabelled == 90
    assert 0 < again.bound < 1


def test_refusals(whole):
    graph = drawn(whole, 0)
    split = graph.split
    trained = hoplite.train(graph, "sgc", **OPTIONS)
    assert holdout_certificate(trained.model, graph, 0.05).sample == 30
    refit = hoplite.train(graph, "sgc", refit=True, **OPTIONS).model
    assert holdout_certificate(refit, graph, 0.05).sample == 30  # on other nodes
    everything = graph.with_split(Split(np.concatenate([split.train, split.test]), split.val))
    greedy = hoplite.train(everything, "sgc", **OPTIONS).model
    with pytest.raises(GraphError, match="may have learned from the test nodes"):
        holdout_certificate(greedy, graph, 0.05)
    found = hoplite.certify(greedy, everything)
    assert found.holdout is None
    assert "there are no test nodes" in found.refusals["holdout"]
    labels = hoplite.train(graph, "labelprop").model
    found = hoplite.certify(labels, graph)
    assert found.holdout.sample == 30
    assert "requires a linear model" in found.refusals["pac_bayes"]
    with pytest.raises(ConfigError, match="confidence is 1"):
        hoplite.certify(refit, graph, confidence=1)
    full = graph.with_split(Split(np.arange(NODES)))
    with pytest.raises(GraphError, match="all nodes are training or validation nodes"):
        hoplite.certify(greedy, full)


def test_a_balanced_draw_from_unbalanced_classes_has_no_pac_bayes_certificate(whole):
    balanced = [np.flatnonzero(whole.labels == label)[:5] for label in range(3)]
    rest = np.setdiff1d(np.arange(NODES), np.concatenate(balanced))
    graph = whole.with_split(Split(np.concatenate(balanced), rest[:20], rest[20:80]))
    model = hoplite.train(graph, "sgc", **OPTIONS).model
    with pytest.warns(hoplite.HopliteWarning, match="not a random sample"):
        found = hoplite.certify(model, graph)
    assert found.pac_bayes is None
    assert found.holdout is not None
    assert "not a random sample" in found.refusals["pac_bayes"]


def test_the_command(whole, tmp_path):
    write_npz(tmp_path / "graph.npz", drawn(whole, 1))
    words = ["graph.npz", "--model", "sgc", "--hops", 1, "--epochs", 10, "--out", "model"]
    succeed("train", *words, cwd=tmp_path)
    assert "60 nodes outside the split" in succeed("certify", "model", "graph.npz", cwd=tmp_path)
    found = json.loads(
        succeed("certify", "model", "graph.npz", "--confidence", 0.9, "--json", cwd=tmp_path)
    )
    assert found["holdout"]["sample"] == 30
    assert found["pac_bayes"]["confidence"] == 0.9
    assert found["refusals"] == {}
    message = fail(2, "certify", "model", "graph.npz", "--confidence", 2, cwd=tmp_path)
    assert "confidence is 2" in message
