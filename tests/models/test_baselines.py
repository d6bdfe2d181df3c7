"""The GCN against PyTorch Geometric's layers, and its dropout."""

import numpy as np
import torch
from tests import pyg

from hoplite import train
from hoplite.models import ModelConfig, build_model
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation


def weights_of(model, seed=0):
    first = model.initial(torch.Generator().manual_seed(seed))
    first["hidden_bias"] += 0.1
    first["bias"] += 0.2
    return {name: value.unsqueeze(0) for name, value in first.items()}


def test_equals_two_gcnconv_layers(cora):
    nn = pyg.layers()
    model = build_model(ModelConfig("gcn", hidden=8), cora.num_features, cora.num_classes)
    weights = weights_of(model)
    first, second = nn.GCNConv(cora.num_features, 8), nn.GCNConv(8, cora.num_classes)
    with torch.no_grad():
        first.lin.weight.copy_(weights["hidden_weight"][0].T)
        first.bias.copy_(weights["hidden_bias"][0])
        second.lin.weight.copy_(weights["weight"][0].T)
        second.bias.copy_(weights["bias"][0])
        edges = torch.from_numpy(np.stack(cora.adjacency.tocoo().coords).astype(np.int64))
        features = torch.from_numpy(cora.features.toarray())
        theirs = second(torch.relu(first(features, edges)), edges)
        ours = model.logits(weights, Propagation(cora).view())[:, 0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_dropout_of_inputs_and_hidden_units(graphs, dense):
    graph = graphs(n=40, d=6)
    model = build_model(ModelConfig("gcn", hidden=8), 6, 3)
    weights = {name: value.double() for name, value in weights_of(model).items()}
    propagation = Propagation(graph)
    dropout = Dropout((0.4,), (3,), 7)
    found = model.logits(weights, propagation.view(), dropout)[:, 0]
    operator = torch.from_numpy(dense.operator(graph, "renormalized"))
    w = {name: value[0] for name, value in weights.items()}
    inputs = propagation.features.dense(dropout, 0)
    hidden = torch.relu(operator @ inputs @ w["hidden_weight"] + w["hidden_bias"])
    kept = dropout.layer(1).mask(torch.arange(40 * 8).view(40, 8), 0)
    expected = operator @ (hidden * kept * dropout.scale(0)) @ w["weight"] + w["bias"]
    torch.testing.assert_close(found, expected)


def test_layers_have_independent_masks():
    dropout, elements = Dropout((0.5,), (3,), 7), torch.arange(1000)
    same = dropout.mask(elements, 0) == dropout.layer(1).mask(elements, 0)
    assert 0.4 < same.float().mean() < 0.6


def test_gcn_learns_cora(cora):
    result = train(cora, "gcn", hidden=16, lr=0.02, weight_decay=5e-4, dropout=0.5)
    assert result.test_accuracy > 0.78
