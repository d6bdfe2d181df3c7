"""The GCN against PyTorch Geometric's layers, and its dropout."""

import numpy as np
import pytest
import torch
from tests import pyg

from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.nets.view import GraphView


def weights_of(model, seed=0):
    first = model.initial(np.random.default_rng(seed))
    first["hidden_bias"] += 0.1
    first["bias"] += 0.2
    return first


def tensors(weights):
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}


def test_equals_two_gcnconv_layers(cora):
    nn = pyg.layers()
    model = build_model(model_config("gcn", hidden=8), cora.num_features, cora.num_classes)
    weights = weights_of(model)
    first, second = nn.GCNConv(cora.num_features, 8), nn.GCNConv(8, cora.num_classes)
    with torch.no_grad():
        first.lin.weight.copy_(torch.tensor(weights["hidden_weight"].T))
        first.bias.copy_(torch.tensor(weights["hidden_bias"]))
        second.lin.weight.copy_(torch.tensor(weights["weight"].T))
        second.bias.copy_(torch.tensor(weights["bias"]))
        edges = torch.from_numpy(np.stack(cora.adjacency.tocoo().coords).astype(np.int64))
        features = torch.from_numpy(cora.features.toarray())
        theirs = second(torch.relu(first(features, edges)), edges)
    ours = model.logits(weights, Propagation(cora))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("operator", ["renormalized", "random_walk"])
@pytest.mark.parametrize("dropout", [None, Dropout(0.4, 3, 7, nodes=0.3)])
@pytest.mark.parametrize("rows", [None, np.array([17, 5, 39, 5])])
@pytest.mark.usefixtures("each_backend")
def test_two_layers_and_their_gradients(graphs, dense, sparse, operator, dropout, rows):
    graph = graphs(n=40, d=6, sparse=sparse, density=0.06)
    model = build_model(model_config("gcn", hidden=8, operator=operator), 6, 3)
    ours, w = ({k: v.requires_grad_() for k, v in tensors(weights_of(model)).items()} for _ in "ab")
    source = Propagation.of(graph, model.config)
    found = model.forward(ours, GraphView(source, rows), dropout)
    S = torch.from_numpy(dense.operator(graph, operator))
    inputs = torch.tensor(source.features.dense(dropout))
    hidden = torch.relu(S @ inputs @ w["hidden_weight"] + w["hidden_bias"])
    if dropout is not None:
        mask = dropout.of_entries(1)
        kept = mask.keeps(np.arange(40 * 8).reshape(40, 8))
        hidden = hidden * torch.from_numpy(kept) * mask.scale
    expected = S @ hidden @ w["weight"]
    expected = expected if rows is None else expected[rows]
    torch.testing.assert_close(found, expected)
    outer = torch.from_numpy(np.random.default_rng(1).standard_normal(found.shape))
    found.backward(outer)
    expected.backward(outer)
    for name in ("hidden_weight", "hidden_bias", "weight"):
        torch.testing.assert_close(ours[name].grad, w[name].grad, msg=name)
