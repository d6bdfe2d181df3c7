"""The contract of all models: logits equal dense algebra, in both evaluation orders."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hoplite.bases import EXAMPLES
from hoplite.errors import ConfigError
from hoplite.models import ModelConfig, build_model
from hoplite.models.egc import exponential_coefficients
from hoplite.operators import OPERATORS
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation

CASES = [
    ("sgc", "monomial", "class"),
    ("egc", "monomial", "class"),
    ("gcn", "monomial", "class"),
    *[
        (model, basis, gate)
        for basis in EXAMPLES
        for model, gate in [
            ("lgc", "class"),
            ("blocks", "class"),
            ("jacobiconv", "class"),
            ("hlgc", "node"),
            ("hlgc", "class"),
            ("hlgc", "feature"),
        ]
    ],
]


def dense_logits(config, weights, features, powers):
    """The formulas of the models' docstrings in NumPy, one run, every node."""
    weights = {name: value.double() for name, value in weights.items()}
    w = SimpleNamespace(**{name: value.numpy() for name, value in weights.items()})
    hops = [p @ features for p in powers]
    k = config.hops
    if config.model == "gcn":
        operator = powers[1]
        hidden = np.maximum(operator @ features @ w.hidden_weight + w.hidden_bias, 0)
        return operator @ hidden @ w.weight + w.bias
    if config.model == "sgc":
        values = hops[k] @ w.theta
    elif config.model == "egc":
        c = exponential_coefficients(weights["beta"], k).numpy()
        values = sum(c[i] * hops[i] for i in range(k + 1)) @ w.theta
    elif config.model == "lgc":
        values = sum(w.alpha[i] * hops[i] for i in range(k + 1)) @ w.theta
    elif config.model == "blocks":
        values = sum(hops[i] @ w.theta[i] for i in range(k + 1))
    elif config.model == "jacobiconv":
        steps = config.gamma * np.tanh(w.decay)
        each = [np.prod(steps[:i]) * w.class_filter[i] for i in range(k + 1)]
        values = sum(each[i] * (hops[i] @ w.theta) for i in range(k + 1))
    elif config.gate == "node":
        values = 0
        for i in range(k + 1):
            hidden = np.maximum(hops[i] @ w.gate_hidden[i], 0)
            gate = 1 / (1 + np.exp(-hidden @ w.gate_out[i]))
            values = values + w.alpha[i] * gate[:, None] * (hops[i] @ w.theta)
    elif config.gate == "class":
        values = np.zeros((len(features), w.theta.shape[1]))
        for i in range(k + 1):
            inputs = np.hstack([features, values])
            gate = inputs @ np.vstack([w.gate_features, w.gate_sum]) + w.gate_bias
            values = values + w.alpha[i] * gate * (hops[i] @ w.theta)
    else:
        values = np.zeros((len(features), w.theta.shape[1]))
        for i in range(k + 1):
            inputs = np.hstack([hops[max(i - 1, 0)], values])
            gate = inputs @ np.vstack([w.gate_hop, w.gate_sum]) + w.gate_bias
            values = values + (hops[i] * gate) @ w.theta
    if config.standardize:
        values = (values - values.mean(axis=0)) / values.std(axis=0)
    return values + w.bias if config.bias else values


def stacked_weights(model, seeds, dtype=torch.float64):
    runs = [model.initial(torch.Generator().manual_seed(seed)) for seed in seeds]
    for r, run in enumerate(runs):
        if "bias" in run:
            run["bias"] += r + 1
        for name in ("class_filter", "decay"):  # which start alike for all classes and hops
            if name in run:
                drawn = torch.Generator().manual_seed(r)
                run[name] += torch.randn(run[name].shape, generator=drawn)
    return runs, {name: torch.stack([run[name] for run in runs]).to(dtype) for name in runs[0]}


@pytest.mark.parametrize(("model", "basis", "gate"), CASES)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_equal_dense_algebra(graphs, dense, model, basis, gate, operator, sparse, dtype):
    graph = graphs(sparse=sparse, dtype=dtype)
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == np.float32 else {"atol": 1e-10}
    for hops in (2,) if model == "gcn" else (0, 1, 3):
        own = {} if model == "gcn" else {"hops": hops, "basis": basis, "gate": gate, "bias": True}
        config = ModelConfig(model, operator=operator, **own)
        built = build_model(config, graph.num_features, graph.num_classes)
        runs, weights = stacked_weights(built, [3, 4], torch.from_numpy(np.zeros(0, dtype)).dtype)
        powers = dense.basis(graph, operator, basis, hops)
        expected = np.stack(
            [dense_logits(config, run, dense.features(graph), powers) for run in runs], axis=1
        )
        propagation = Propagation(graph, operator, basis, hops)
        nodes = np.array([7, 0, 11])
        for hops_first in (False, True):
            everywhere = built.logits(weights, propagation.view(hops_first=hops_first))
            np.testing.assert_allclose(everywhere.numpy(), expected, **tolerance)
            somewhere = built.logits(weights, propagation.view(nodes, hops_first=hops_first))
            np.testing.assert_allclose(somewhere.numpy(), expected[nodes], **tolerance)


@pytest.mark.parametrize(("model", "basis", "gate"), [case for case in CASES if case[0] != "gcn"])
def test_dropout_acts_on_the_features_before_propagation(graphs, dense, model, basis, gate):
    config = ModelConfig(model, 2, "renormalized", basis, gate=gate)
    dropout = Dropout((0.5, 0.0, 0.3), (11, 12, 13), epoch=4)
    powers = None
    for sparse in (False, True):
        graph = graphs(sparse=sparse)
        powers = dense.basis(graph, "renormalized", basis, 2)
        built = build_model(config, graph.num_features, graph.num_classes)
        runs, weights = stacked_weights(built, [1, 2, 3])
        propagation = Propagation(graph, "renormalized", basis, 2)
        nodes = np.array([5, 2, 10])
        found = built.logits(weights, propagation.view(nodes), dropout).numpy()
        for r, run in enumerate(runs):
            dropped = propagation.features.dense(dropout, r).numpy()
            expected = dense_logits(config, run, dropped, powers)[nodes]
            np.testing.assert_allclose(found[:, r], expected, atol=1e-6)


@pytest.mark.parametrize("hops_first", [False, True])
def test_standardized_output(graphs, dense, hops_first):
    graph = graphs()
    config = ModelConfig("lgc", 2, bias=True, standardize=True)
    built = build_model(config, graph.num_features, graph.num_classes)
    runs, weights = stacked_weights(built, [0])
    powers = dense.basis(graph, "renormalized", "monomial", 2)
    expected = dense_logits(config, runs[0], dense.features(graph), powers)
    view = Propagation(graph, hops=2).view(hops_first=hops_first)
    rows = torch.tensor([3, 1])
    found = built.logits(weights, view, rows=rows)[:, 0]
    np.testing.assert_allclose(found.numpy(), expected[[3, 1]], atol=1e-5)
    values = built.logits(weights, view)[:, 0] - weights["bias"][0]
    np.testing.assert_allclose(values.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(values.std(0, correction=0), 1, atol=1e-6)


@pytest.mark.parametrize(("model", "basis", "gate"), CASES)
@pytest.mark.parametrize("hops_first", [False, True])
def test_gradients_of_all_weights(graphs, model, basis, gate, hops_first):
    graph = graphs(n=8, d=4)
    own = {} if model == "gcn" else {"hops": 2, "basis": basis, "gate": gate, "bias": True}
    config = ModelConfig(model, operator="laplacian", **own)
    built = build_model(config, graph.num_features, graph.num_classes)
    _, weights = stacked_weights(built, [5, 6])
    names = list(weights)
    view = Propagation(graph, "laplacian", basis, 2).view(np.array([1, 6]), hops_first=hops_first)

    def logits(*values):
        return built.logits(dict(zip(names, values, strict=True)), view)

    values = tuple(weights[name].requires_grad_() for name in names)
    assert torch.autograd.gradcheck(logits, values)


@pytest.mark.parametrize("gain", [0, 10**9])
@pytest.mark.parametrize("rates", [None, (0.5, 0.2)])
@pytest.mark.parametrize("hops", [0, 1, 2, 5])
def test_the_feature_gate_is_the_authors(graphs, dense, monkeypatch, gain, rates, hops):
    """Values and gradients of the formula as it stands, whichever way the products are taken.

    ``gain`` 0 propagates X and X W_d; a large one takes the rows of p_i(S) and multiplies the rows'
    hop features.
    """
    monkeypatch.setattr("hoplite.propagation.engine.WIDE_GAIN", gain)
    monkeypatch.setattr("hoplite.propagation.engine.MOST_FILTER_SIZE", gain)
    rng = np.random.default_rng(hops)
    graph = graphs(n=23, d=7, sparse=True, seed=hops)
    n, d, m = 23, 7, 3
    nodes = rng.permutation(n)[: rng.integers(1, 5)]
    built = build_model(ModelConfig("hlgc", hops, gate="feature"), d, m)
    _, weights = stacked_weights(built, [3, 4])
    for value in weights.values():
        value.requires_grad_()
    assert {name: tuple(value.shape[1:]) for name, value in weights.items()} == {
        "theta": (d, m), "gate_hop": (d, d), "gate_sum": (m, d), "gate_bias": (d,)
    }  # fmt: skip
    dropout = None if rates is None else Dropout(rates, (8, 9), epoch=2)
    propagation = Propagation(graph, "adjacency", hops=hops, dtype="float64")
    found = built.logits(weights, propagation.view(nodes), dropout)
    upstream = torch.from_numpy(rng.standard_normal(tuple(found.shape)))
    gradients = torch.autograd.grad((found * upstream).sum(), list(weights.values()))

    operator = torch.from_numpy(dense.basis(graph, "adjacency", "monomial", 1)[1])
    literal = []
    for r in range(2):
        one = {name: value[r] for name, value in weights.items()}
        W = torch.cat([one["gate_hop"], one["gate_sum"]])
        X = (
            propagation.features.dense()
            if rates is None
            else propagation.features.dense(dropout, r)
        )
        before, now, H = X, X, torch.zeros(n, m, dtype=torch.float64)
        for _ in range(hops + 1):
            gate = torch.cat([before, H], dim=1) @ W + one["gate_bias"]
            H = H + (now * gate) @ one["theta"]
            before, now = now, operator @ now
        literal.append(H[nodes])
    expected = torch.stack(literal, dim=1)
    torch.testing.assert_close(found, expected)
    for one, two in zip(
        gradients,
        torch.autograd.grad((expected * upstream).sum(), list(weights.values())),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


def test_lgc_holds_sgc_and_egc(graphs):
    graph = graphs()
    view = Propagation(graph, hops=3).view()
    theta = torch.randn(1, graph.num_features, 3, dtype=torch.float64)
    lgc = build_model(ModelConfig("lgc", 3), graph.num_features, 3)
    sgc = build_model(ModelConfig("sgc", 3), graph.num_features, 3)
    egc = build_model(ModelConfig("egc", 3), graph.num_features, 3)
    last = torch.tensor([[0.0, 0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(
        lgc.logits({"theta": theta, "alpha": last}, view), sgc.logits({"theta": theta}, view)
    )
    beta = torch.tensor([0.7], dtype=torch.float64)
    alpha = exponential_coefficients(beta, 3)
    torch.testing.assert_close(
        lgc.logits({"theta": theta, "alpha": alpha}, view),
        egc.logits({"theta": theta, "beta": beta}, view),
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "lcg"}, "Did you mean 'lgc'"),
        ({"operator": "normalized"}, "operator is 'normalized'"),
        ({"basis": "monomials"}, "Did you mean 'monomial'"),
        ({"start": "low"}, "Did you mean 'lowpass'"),
        ({"gate": "nodes"}, "Did you mean 'node'"),
        ({"hops": -1}, "hops is -1"),
        (
            {"model": "sgc", "basis": "chebyshev"},
            "sgc has no basis; leave it out, or use lgc",
        ),
        ({"model": "sgc", "gate": "node"}, "sgc has no gate"),
        ({"model": "lgc", "hidden": 8}, "lgc has no hidden; leave it out, or use gcn or gat"),
        ({"model": "gcn", "heads": 4}, "gcn has no heads; leave it out, or use gat"),
        ({"model": "gat", "heads": 0}, "heads is 0"),
        ({"model": "gat", "operator": "laplacian"}, "gat has no operator"),
        ({"model": "gat", "start": "lowpass"}, "gat has no start"),
        ({"model": "gat", "basis": "chebyshev"}, "gat has no basis"),
        ({"model": "sgc", "start": "lowpass"}, "sgc has no start"),
    ],
)
def test_bad_settings(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        ModelConfig(**options)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("rate", [0.0, 0.3, -2.5, 9.0])
def test_egc_leaves_out_only_what_rounding_loses(graphs, dense, operator, rate):
    """Eighty hops of EGC equal the full sum, whatever the rate and the operator's norm."""
    graph = graphs(n=15, d=4, classes=3)
    model = build_model(ModelConfig("egc", hops=80, operator=operator), 4, 3)
    theta = torch.randn(1, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    beta = torch.tensor([rate], dtype=torch.float64, requires_grad=True)
    view = Propagation(graph, operator, hops=80).view()
    found = model.logits({"theta": theta, "beta": beta}, view)[:, 0]
    powers = dense.basis(graph, operator, "monomial", 80)
    start = torch.from_numpy(dense.features(graph)) @ theta[0]
    terms = [
        rate**i / math.factorial(i) * torch.from_numpy(p) @ start for i, p in enumerate(powers)
    ]
    torch.testing.assert_close(found, sum(terms), rtol=1e-9, atol=1e-9)
    (gradient,) = torch.autograd.grad(found.sum(), beta)
    slopes = [
        rate ** (i - 1) / math.factorial(i - 1) * torch.from_numpy(powers[i]) @ start
        for i in range(1, 81)
    ]
    torch.testing.assert_close(gradient[0], sum(slopes).sum(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("basis", EXAMPLES)
def test_a_kept_filter_equals_its_hops(graphs, basis, monkeypatch):
    """SGC's rows of p_k(S), kept once, give what k products give, and the same gradient."""
    graph = graphs(n=30, d=4, classes=3)
    propagation = Propagation(graph, "renormalized", basis, hops=6)
    found = []
    for gain in (0, 1000):
        monkeypatch.setattr("hoplite.propagation.engine.DENSE_GAIN", gain)
        theta = torch.randn(
            2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        theta.requires_grad_()
        outputs = propagation.view([3, 1, 7]).combine(theta, None, Dropout((0.5, 0.2), (1, 2), 4))
        (outputs**2).sum().backward()
        found.append((outputs.detach(), theta.grad))
    torch.testing.assert_close(found[0], found[1])
