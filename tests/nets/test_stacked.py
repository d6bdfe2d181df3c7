"""Stacked LGC against its formula, written densely."""

import numpy as np
import pytest
import torch

from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.nets.view import GraphView


def tensors(model):
    rng = np.random.default_rng(0)
    first = model.initial(rng)
    return {
        name: torch.tensor(value + 0.1 * rng.random(value.shape), dtype=torch.float64)
        for name, value in first.items()
    }


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("operator", ["renormalized", "random_walk"])
@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
@pytest.mark.parametrize("dropout", [None, Dropout(0.4, 3, 7, nodes=0.2)])
@pytest.mark.parametrize("rows", [None, np.array([17, 5, 39, 5])])
def test_layers_and_their_gradients(graphs, dense, layers, sparse, operator, basis, dropout, rows):
    graph = graphs(n=40, d=6, sparse=sparse, density=0.03)  # some nodes are out of reach
    config = model_config(
        "stacked", layers=layers, hidden=5, hops=2, operator=operator, basis=basis, start="random"
    )
    model = build_model(config, 6, 3)
    ours, w = ({k: v.requires_grad_() for k, v in tensors(model).items()} for _ in "ab")
    source = Propagation.of(graph, config)
    outputs = model.forward(ours, GraphView(source, rows), dropout) + ours["bias"]
    powers = [torch.from_numpy(p) for p in dense.basis(graph, operator, basis, 2)]
    signal = torch.tensor(source.features.dense(dropout))
    for number in range(1, layers + 1):
        mapped = signal @ w[f"weight_{number}"]
        hops = torch.stack([p @ mapped for p in powers])
        signal = torch.tensordot(w[f"alpha_{number}"], hops, dims=1)
        if number < layers:
            signal = torch.relu(signal + w[f"bias_{number}"])
            if dropout is not None:
                mask = dropout.of_entries(number)
                kept = mask.keeps(np.arange(signal.numel()).reshape(signal.shape))
                signal = signal * torch.from_numpy(kept) * mask.scale
    expected = signal + w["bias"]
    expected = expected if rows is None else expected[rows]
    torch.testing.assert_close(outputs, expected)
    outer = torch.from_numpy(np.random.default_rng(1).standard_normal(outputs.shape))
    outputs.backward(outer)
    expected.backward(outer)
    for name, value in ours.items():
        torch.testing.assert_close(value.grad, w[name].grad, msg=name)
