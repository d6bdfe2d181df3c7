"""The GAT against PyTorch Geometric's layers, its dropout, and the part of the graph it reads."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests import pyg
from torch.nn.functional import elu

from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.nets.view import Attention, GraphView

CONFIG = model_config("gat", hidden=4, heads=3)


def build(graph, config=CONFIG):
    return build_model(config, graph.num_features, graph.num_classes)


def weights_of(model, seed=0, dtype=torch.float64):
    """First weights; biases are made to count."""
    first = model.initial(np.random.default_rng(seed))
    first["hidden_bias"] += 0.1
    first["bias"] += 0.2
    return {name: torch.tensor(value, dtype=dtype) for name, value in first.items()}


def two_layers(graph, w):
    """PyTorch Geometric's own modules, loops added by them: logits of every node."""
    nn = pyg.layers()
    heads, hidden = w["hidden_source"].shape
    first = nn.GATConv(graph.num_features, hidden, heads).to(w["weight"].dtype)
    second = nn.GATConv(heads * hidden, graph.num_classes).to(w["weight"].dtype)
    with torch.no_grad():
        for layer, prefix in ((first, "hidden_"), (second, "")):
            layer.lin.weight.copy_(w[f"{prefix}weight"].T)
            layer.att_src.copy_(w[f"{prefix}source"][None])
            layer.att_dst.copy_(w[f"{prefix}target"][None])
            layer.bias.copy_(w[f"{prefix}bias"])
        edges = torch.from_numpy(np.stack(graph.adjacency.tocoo().coords).astype(np.int64))
        features = torch.from_numpy(sp.csr_array(graph.features).toarray())
        return second(elu(first(features, edges)), edges)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_two_gatconv_layers(graphs, sparse, dtype):
    graph = graphs(n=40, d=6, sparse=sparse, dtype=dtype)  # two nodes are isolated
    model = build(graph)
    weights = weights_of(model, dtype=torch.from_numpy(np.zeros(0, dtype)).dtype)
    expected = two_layers(graph, weights)
    source = Propagation(graph)
    arrays = {name: value.numpy() for name, value in weights.items()}
    torch.testing.assert_close(torch.from_numpy(model.logits(arrays, source)), expected)
    nodes = np.array([39, 7, 0, 38, 7])
    found = model.forward(weights, GraphView(source, nodes), None) + weights["bias"]
    torch.testing.assert_close(found, expected[nodes])


@pytest.mark.parametrize("dropout", [None, Dropout(0.4, 3, 7)])
def test_gradients_of_all_weights(graphs, dropout):
    graph = graphs(n=8, d=4)
    model = build(graph, model_config("gat", hidden=2, heads=2))
    weights = weights_of(model, 5)
    view = GraphView(Propagation(graph), np.array([1, 6]))
    names = [name for name in weights if name != "bias"]

    def signal(*values):
        return model.forward(dict(zip(names, values, strict=True)), view, dropout)

    values = tuple(weights[name].requires_grad_() for name in names)
    assert torch.autograd.gradcheck(signal, values)


def test_dropout_of_inputs_hidden_units_and_attention(graphs):
    graph = graphs(n=30, d=6)
    n, heads, h = 30, 3, 4
    model, source = build(graph), Propagation(graph)
    w, dropout = weights_of(model), Dropout(0.4, 3, 7)
    scale = dropout.of_entries().scale
    targets, sources = Attention.whole(source).tocoo().coords

    def kept(layer, *shape):
        mask = dropout.of_entries(layer).keeps(np.arange(np.prod(shape)).reshape(shape))
        return torch.from_numpy(scale * mask)

    def attended(z, s, t, layer):  # z: (n, heads, c), dense over the edges
        scores = torch.full((z.shape[1], n, n), -torch.inf, dtype=torch.float64)
        values = (z * t).sum(2)[targets] + (z * s).sum(2)[sources]
        scores[:, targets, sources] = torch.nn.functional.leaky_relu(values, 0.2).T
        mask = torch.zeros_like(scores)
        mask[:, targets, sources] = kept(layer, len(sources), z.shape[1]).T
        return torch.einsum("hij,jhc->ihc", scores.softmax(2) * mask, z)

    inputs = torch.tensor(source.features.dense(dropout))
    z = (inputs @ w["hidden_weight"]).view(n, heads, h)
    hidden = attended(z, w["hidden_source"], w["hidden_target"], 2).reshape(n, heads * h)
    hidden = elu(hidden + w["hidden_bias"]) * kept(1, n, heads * h)
    z = (hidden @ w["weight"]).unsqueeze(1)
    expected = attended(z, w["source"], w["target"], 3)[:, 0]
    torch.testing.assert_close(model.forward(w, GraphView(source), dropout), expected)
    nodes = np.array([4, 29, 11])  # fewer edges are read, the same ones are dropped
    torch.testing.assert_close(model.forward(w, GraphView(source, nodes), dropout), expected[nodes])
