"""The three gates of hLGC against their formulas, written densely, and from hop stores."""

import numpy as np
import pytest
import torch

from hoplite import train
from hoplite.engine import backend as backend_module
from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.nets.hlgc import GATES
from hoplite.nets.view import GraphView, HopView
from hoplite.store import propagate
from hoplite.training import stored

ROWS = np.array([11, 3, 29, 3])


def build(gate, graph, hops=3, **options):
    config = model_config("hlgc", hops=hops, gate=gate, **options)
    return build_model(config, graph.num_features, graph.num_classes)


def tensors(model, seed=0):
    first = model.initial(np.random.default_rng(seed))
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in first.items()}


def dense_gates(model, w, hops):
    """The formulas of the module's docstring, from P_0 .. P_k (k + 1, n, d)."""
    X, theta, gate = hops[0], w["theta"], model.config.gate
    total = torch.zeros(X.shape[0], theta.shape[1], dtype=X.dtype)
    for i, P in enumerate(hops):
        if gate == "node":
            hidden = torch.relu(P @ w["gate_hidden"][i] + w["gate_hidden_bias"][i])
            value = torch.sigmoid(hidden @ w["gate_out"][i].unsqueeze(1) + w["gate_out_bias"][i])
            total = total + value * (w["alpha"][i] * P @ theta)
        elif gate == "class":
            value = X @ w["gate_features"] + total @ w["gate_sum"] + w["gate_bias"]
            total = total + w["alpha"][i] * value * (P @ theta)
        else:
            before = hops[i - 1] if i else X
            value = before @ w["gate_hop"] + total @ w["gate_sum"] + w["gate_bias"]
            total = total + (P * value) @ theta
    return total


def dense_hops(graph, dense, config, dropout):
    features = Propagation(graph).features.dense(dropout)
    basis = dense.basis(graph, config.operator, config.basis, config.hops)
    return torch.from_numpy(np.stack([p @ features for p in basis]))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dropout", [None, Dropout(0.4, 3, 7, nodes=0.2)])
@pytest.mark.parametrize("rows", [None, ROWS])
@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
@pytest.mark.usefixtures("each_backend")
def test_gates_and_their_gradients(graphs, dense, gate, sparse, dropout, rows, basis):
    graph = graphs(n=40, d=7, sparse=sparse, density=0.1)
    model = build(gate, graph, basis=basis)
    ours, theirs = ({k: v.requires_grad_() for k, v in tensors(model).items()} for _ in range(2))
    source = Propagation.of(graph, model.config)
    found = model.forward(ours, GraphView(source, rows), dropout)
    expected = dense_gates(model, theirs, dense_hops(graph, dense, model.config, dropout))
    expected = expected if rows is None else expected[rows]
    torch.testing.assert_close(found, expected)
    outer = torch.from_numpy(np.random.default_rng(1).standard_normal(found.shape))
    found.backward(outer)
    expected.backward(outer)
    for name, value in ours.items():
        torch.testing.assert_close(value.grad, theirs[name].grad, msg=name)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("hops_first", [False, True])
def test_hop_features_are_enough(graphs, gate, hops_first):
    graph = graphs(n=30, d=6)
    model = build(gate, graph, bias=True)
    weights, source = tensors(model), Propagation.of(graph, model.config)
    expected = model.forward(weights, GraphView(source), None)
    hops = source.hop_features()
    torch.testing.assert_close(model.forward(weights, HopView(hops), None), expected)
    torch.testing.assert_close(
        model.forward(weights, GraphView(source, ROWS, hops_first=hops_first), None),
        expected[ROWS],
    )
    arrays = {name: value.numpy() for name, value in weights.items()}
    np.testing.assert_allclose(model.signal_from_hops(arrays, hops[:, ROWS]), expected[ROWS])
    arrays["bias"] = np.arange(3.0)
    np.testing.assert_allclose(model.logits(arrays, source), expected.numpy() + np.arange(3.0))


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("options", [{}, {"standardize": True, "bias": True}, {"batch": 5}])
def test_a_store_trains_as_the_graph(graphs, tmp_path, monkeypatch, gate, options):
    for module in (backend_module, stored):  # chunks of 4 rows of 3 hops
        monkeypatch.setattr(module, "RANGE_NUMBERS", 4 * 3 * 7)
    graph = graphs(n=60, d=7, dtype=np.float32)
    store = propagate(graph, tmp_path / "store", hops=2)
    own = {"gate": gate, "hops": 2, "dropout": 0.0, "epochs": 5, "lr": 0.02, "seeds": [3]}
    from_store = train(store, "hlgc", **own, **options)
    in_memory = train(graph, "hlgc", **own, **options)
    for name, curve in in_memory.runs[0].history.items():
        np.testing.assert_allclose(
            from_store.runs[0].history[name], curve, rtol=1e-4, atol=1e-5, err_msg=name
        )
    for name, value in in_memory.model.weights.items():
        np.testing.assert_allclose(from_store.model.weights[name], value, atol=2e-4, err_msg=name)
    np.testing.assert_allclose(
        from_store.model.logits(store), in_memory.model.logits(graph), rtol=1e-3, atol=1e-3
    )
