"""The statement about a trained model: its terms, when it says something, when nothing."""

import math

import numpy as np
import pytest

from hoplite import ConfigError, TrainedModel, model_config
from hoplite.models import LGC, MODELS, S2GC, build_model
from hoplite.theory import FunctionClass, generalization


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
    size = norm / found.margin_scale
    assert 2 * math.log2(size) == pytest.approx(round(2 * math.log2(size)))
    assert found.complexity_term == pytest.approx(4 * size * found.unit_complexity)
    unit = FunctionClass(graph, model_config("lgc", 2), bias=bias, outputs=3)
    assert found.unit_complexity <= unit.bound()
    logits, train_nodes = fitted.logits(graph), graph.split.train
    leads = [
        logits[v, graph.labels[v]] - max(np.delete(logits[v], graph.labels[v])) for v in train_nodes
    ]
    losses = [min(1.0, max(0.0, 1 - lead / found.margin_scale)) for lead in leads]
    assert found.margin_loss == pytest.approx(np.mean(losses))
    wrong = fitted.predict(graph)[train_nodes] != graph.labels[train_nodes]
    assert found.train_error == pytest.approx(np.mean(wrong))


def test_scaling_alpha_against_theta_changes_nothing(graphs):
    graph = graphs(40, 3, seed=1)
    one, other = (random_model(graph, "lgc", hops=2) for _ in range(2))
    other.weights["alpha"] *= 8
    other.weights["theta"] /= 8
    assert generalization(one, graph).bound == pytest.approx(generalization(other, graph).bound)


class Big(LGC):
    """Own coefficients, but the facts of LGC, which do not hold for them."""

    name = "big"

    def coefficients(self, weights):
        return 100 * weights["alpha"]

    def coefficients_vjp(self, weights, gradient):
        return {"alpha": 100 * gradient}


class Bigger(Big):
    name = "bigger"


class Reversed(S2GC):
    name = "reversed"

    def coefficients(self, weights):
        return super().coefficients(weights)[::-1].copy()


class Declared(Big):
    name = "declared"
    facts = LGC.facts

    @classmethod
    def largest(cls, bound, config):
        return np.full(config.hops + 1, 100.0 * bound)

    def coefficients(self, weights):
        return super().coefficients(weights)


@pytest.mark.parametrize("model", [Big, Bigger, Reversed])
def test_facts_of_other_coefficients_do_not_count(graphs, model, monkeypatch):
    monkeypatch.setitem(MODELS, model.name, model)
    graph = graphs(40, 3, seed=1)
    with pytest.raises(ConfigError, match=r"own coefficients but inherits"):
        generalization(random_model(graph, model.name, hops=2), graph)
    with pytest.raises(ConfigError, match=r"own coefficients but inherits"):
        FunctionClass(graph, model_config(model.name, hops=2))


def test_declared_facts_count(graphs, monkeypatch):
    monkeypatch.setitem(MODELS, Declared.name, Declared)
    graph = graphs(40, 3, seed=1)
    own, plain = (FunctionClass(graph, model_config(n, hops=2)) for n in ("declared", "lgc"))
    assert own.bound() == pytest.approx(100 * plain.bound())
