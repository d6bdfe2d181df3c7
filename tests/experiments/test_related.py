"""The networks of the related work: those that we wrote against their formulas, all by training."""

import numpy as np
import pytest
import torch
from tests import pyg

import hoplite
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, find_model, model_config
from hoplite.nets.view import GraphView

related = pytest.importorskip("experiments.related")
peers = pytest.importorskip("experiments.pyg")
NAMES = ["DCNN", "GGNN", "NN4G", "FastGCN", "DGI"]
SMALL = {"DGI": {"hidden_channels": 4, "steps": 3}, "FastGCN": {"samples": 7}}


def module_outputs(name, graph, operator="renormalized", **options):
    """Outputs in evaluation, with the module's weights and dense A and X."""
    model = build_model(model_config(f"experiments.related:{name}", **options), 5, 3)
    first = model.initial(np.random.default_rng(0))
    weights = {key: torch.tensor(value, dtype=torch.float64) for key, value in first.items()}
    outputs = model.forward(weights, GraphView(Propagation(graph, operator)), None)
    X = torch.from_numpy(np.array(graph.features, np.float64))
    return outputs, weights, torch.from_numpy(graph.adjacency.toarray().astype(np.float64)), X


def test_dcnn(graphs):
    outputs, w, A, X = module_outputs("DCNN", graphs(n=30, d=5), "random_walk", hops=2)
    P = torch.nan_to_num(A / A.sum(dim=1, keepdim=True))
    hops = [torch.tanh(w["diffusion"][i] * (torch.linalg.matrix_power(P, i) @ X)) for i in range(3)]
    torch.testing.assert_close(outputs, torch.cat(hops, dim=1) @ w["theta"], check_dtype=False)


def test_nn4g(graphs):
    outputs, w, A, X = module_outputs("NN4G", graphs(d=5), hidden_channels=4, num_layers=3)
    own = (X @ w["inputs.weight"].T + w["inputs.bias"]).split(4, dim=1)
    layers = [torch.tanh(own[0])]
    for i in (1, 2):
        maps = w[f"before.{i - 1}.weight"].split(4, dim=1)  # V_{i,j}', side by side
        signal = sum(A @ H @ V.T for H, V in zip(layers, maps, strict=True))
        layers.append(torch.tanh(own[i] + signal))
    expected = torch.cat(layers, dim=1) @ w["last.weight"].T + w["last.bias"]
    torch.testing.assert_close(outputs, expected)


@pytest.mark.parametrize("name", ["GAT", "GCN", "FirstARMA", "FirstCheb"])
def test_a_first_layer_is_that_of_pyg(graphs, name):
    whole = GraphView(Propagation(graphs(n=30, d=5))).whole
    x, edges, weights = whole.features.float(), whole.edge_index, whole.edge_weight.float()
    if name in ("GAT", "GCN"):
        edges = (edges,) if name == "GAT" else (edges, weights)
        layer = getattr(peers, name)(5, 3).first.eval()
        reference = pyg.layers().GATConv(5, 8, 8) if name == "GAT" else pyg.layers().GCNConv(5, 64)
        reference.load_state_dict(layer.state_dict())
    else:
        layer, edges = getattr(peers, name)(5, 4, 2, 0.5).eval(), (edges, weights)
        torch.nn.init.normal_(layer.bias)
        maps = layer.features
        blocks = torch.stack(maps.weight.chunk(maps.blocks)).mT  # (blocks, d, w)
        if name == "FirstARMA":
            reference = pyg.layers().ARMAConv(5, 4, num_stacks=2)
            roots = {"root_weight": blocks[None, 2:], "bias": layer.bias.view(1, 2, 1, 4)}
            state = {"init_weight": blocks[:2], "weight": reference.weight, **roots}
        else:
            reference = pyg.layers().ChebConv(5, 4, 3)
            state = {f"lins.{i}.weight": block.T for i, block in enumerate(blocks)}
            state["bias"] = layer.bias
        reference.load_state_dict(state)
    torch.testing.assert_close(layer(x, *edges), reference(x, *edges))


def test_a_feature_map_drops_and_multiplies_what_is_not_zero():
    x = torch.randn(40, 6, dtype=torch.float64) * (torch.rand(40, 6) < 0.4)
    layer = related.FeatureMap(6, 3, 0.25, blocks=2).double()
    torch.nn.init.normal_(layer.bias)
    torch.manual_seed(5)
    (outputs := layer(x)).backward(x)
    torch.manual_seed(5)
    dropped = torch.zeros_like(x).masked_scatter(x != 0, torch.dropout(x[x != 0], 0.25, True))
    assert 0 < (dropped != 0).sum() < (x != 0).sum()
    torch.testing.assert_close(outputs, dropped @ layer.weight.T + layer.bias)
    torch.testing.assert_close(layer.weight.grad, x.T @ dropped)
    torch.testing.assert_close(layer.eval()(x), x @ layer.weight.T + layer.bias)


def test_fastgcn_counts_have_expectation_one():
    torch.manual_seed(0)
    net = related.FastGCN(5, 3, samples=400_000)
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    counts = net.counts(edges, torch.tensor([1.0, 1.0, 0.2, 0.2]), 3, torch.float32)
    torch.testing.assert_close(counts, torch.ones(3), rtol=0.05, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_network_trains_alike_twice(graphs, name):
    graph, model = graphs(n=40, d=5), find_model(f"experiments.related:{name}")
    runs = [hoplite.train(graph, model, epochs=3, **SMALL.get(name, {})) for _ in range(2)]
    curves = [run.runs[0].history["train_loss"] for run in runs]
    np.testing.assert_array_equal(curves[0], curves[1])
    assert np.isfinite(curves[0]).all()
