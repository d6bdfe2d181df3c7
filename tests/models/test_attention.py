"""The GAT against PyTorch Geometric's layers, its dropout, and the part of the graph it reads."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tests import pyg
from torch.nn.functional import elu

from hoplite import ConfigError, Graph, TrainedModel, train
from hoplite.config import TrainingConfig
from hoplite.models import ModelConfig, build_model
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation
from hoplite.training import NodeSet, Run, fit_runs

CONFIG = ModelConfig("gat", hidden=4, heads=3)
pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(scope="module")
def installed():
    pyg.layers()


def build(graph, config=CONFIG):
    return build_model(config, graph.num_features, graph.num_classes)


def weights_of(model, seeds=(0,), dtype=torch.float64):
    """First weights with the run axis first; biases are made to count."""
    runs = [model.initial(torch.Generator().manual_seed(seed)) for seed in seeds]
    for run in runs:
        run["hidden_bias"] += 0.1
        run["bias"] += 0.2
    return {name: torch.stack([run[name] for run in runs]).to(dtype) for name in runs[0]}


def two_layers(graph, weights):
    """PyTorch Geometric's own modules, loops added by them: logits of every node."""
    nn = pyg.layers()
    w = {name: value[0] for name, value in weights.items()}
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
    graph = graphs(n=40, d=6, sparse=sparse, dtype=dtype)  # its last two nodes are isolated
    model = build(graph)
    weights = weights_of(model, dtype=torch.from_numpy(np.zeros(0, dtype)).dtype)
    expected = two_layers(graph, weights)
    propagation = Propagation(graph)
    torch.testing.assert_close(model.logits(weights, propagation.view())[:, 0], expected)
    nodes = np.array([39, 7, 0, 38, 7])
    found = model.logits(weights, propagation.view(nodes))[:, 0]
    torch.testing.assert_close(found, expected[nodes])


def test_equals_two_gatconv_layers_on_cora(cora):
    model = build(cora)
    weights = weights_of(model, dtype=torch.float32)
    expected = two_layers(cora, weights)
    found = model.logits(weights, Propagation(cora).view(cora.split.val))[:, 0]
    torch.testing.assert_close(found, expected[cora.split.val], rtol=1e-4, atol=1e-5)


def test_edges_are_those_of_the_graph_for_every_operator():
    graph = Graph.from_edges([(0, 1), (1, 1), (1, 2)], np.eye(4))
    for operator in ("renormalized", "adjacency", "laplacian"):
        edges = Propagation(graph, operator).edges
        assert edges.T.tolist() == [
            [0, 0], [1, 0], [0, 1], [1, 1], [2, 1], [1, 2], [2, 2], [3, 3]
        ]  # fmt: skip


@pytest.mark.parametrize("dropout", [None, Dropout((0.4, 0.2), (3, 4), 7)])
def test_gradients_of_all_weights(graphs, dropout):
    graph = graphs(n=8, d=4)
    model = build(graph, ModelConfig("gat", hidden=2, heads=2))
    weights = weights_of(model, (5, 6))
    view = Propagation(graph).view(np.array([1, 6]))
    names = list(weights)

    def logits(*values):
        return model.logits(dict(zip(names, values, strict=True)), view, dropout)

    values = tuple(weights[name].requires_grad_() for name in names)
    assert torch.autograd.gradcheck(logits, values)


def test_dropout_of_inputs_hidden_units_and_attention(graphs):
    graph = graphs(n=30, d=6)
    n, heads, h = 30, 3, 4
    model, propagation = build(graph), Propagation(graph)
    weights, dropout = weights_of(model), Dropout((0.4,), (3,), 7)
    w = {name: value[0] for name, value in weights.items()}
    scale = dropout.scale(0)
    source, target = propagation.edges

    def attended(z, s, t, layer):  # z: (n, heads, c), dense over the edges
        scores = torch.full((z.shape[1], n, n), -torch.inf, dtype=torch.float64)
        values = (z * t).sum(2)[target] + (z * s).sum(2)[source]
        scores[:, target, source] = torch.nn.functional.leaky_relu(values, 0.2).T
        kept = torch.arange(len(source) * z.shape[1]).view(len(source), -1)
        mask = torch.zeros_like(scores)
        mask[:, target, source] = scale * dropout.layer(layer).mask(kept, 0).T.double()
        return torch.einsum("hij,jhc->ihc", scores.softmax(2) * mask, z)

    z = (propagation.features.dense(dropout, 0) @ w["hidden_weight"]).view(n, heads, h)
    hidden = attended(z, w["hidden_source"], w["hidden_target"], 2).reshape(n, heads * h)
    hidden = elu(hidden + w["hidden_bias"])
    kept = dropout.layer(1).mask(torch.arange(n * heads * h).view(n, heads * h), 0)
    z = (hidden * kept * scale @ w["weight"]).unsqueeze(1)
    expected = attended(z, w["source"], w["target"], 3)[:, 0] + w["bias"]
    everywhere = model.logits(weights, propagation.view(), dropout)[:, 0]
    torch.testing.assert_close(everywhere, expected)
    nodes = np.array([4, 29, 11])  # fewer edges are read, the same ones are dropped
    found = model.logits(weights, propagation.view(nodes), dropout)[:, 0]
    torch.testing.assert_close(found, expected[nodes])


def test_together_equals_alone(graphs):
    graph = graphs(n=40, d=8, dtype=np.float32, sparse=True)
    model, view = build(graph), Propagation(graph).view()
    weights = weights_of(model, (1, 2), torch.float32)
    together = model.logits(weights, view, Dropout((0.5, 0.2), (8, 9), 4))
    for r, (rate, seed) in enumerate([(0.5, 8), (0.2, 9)]):
        one = {name: value[r : r + 1] for name, value in weights.items()}
        alone = model.logits(one, view, Dropout((rate,), (seed,), 4))
        torch.testing.assert_close(together[:, r], alone[:, 0])


def test_seed_alone_decides_a_training(graphs):
    graph = graphs(n=40, d=8, dtype=np.float32)
    parts = [NodeSet(nodes, graph.labels[nodes]) for nodes in (graph.split.train, graph.split.val)]
    settings = TrainingConfig(lr=0.1, epochs=8)

    def fit(*seeds):
        propagation = Propagation(graph, hops=CONFIG.hops)
        return fit_runs(build(graph), propagation, [Run(settings, s) for s in seeds], *parts)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = fit(3, 4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    for seed, shared in zip((3, 4), together, strict=True):
        (alone,) = fit(seed)
        for name, curve in shared.history.items():
            np.testing.assert_array_equal(curve, alone.history[name])
        assert all(torch.equal(shared.weights[name], alone.weights[name]) for name in alone.weights)
    curves = [result.history["train_loss"] for result in together]
    assert (curves[0] != curves[1]).any()


@pytest.mark.parametrize("options", [{"standardize": True}, {"optimizer": "lbfgs"}, {"dropout": 0}])
def test_other_settings_train(graphs, options):
    graph = graphs(n=40, d=8, dtype=np.float32)
    result = train(graph, "gat", hidden=4, heads=2, epochs=3, **options)
    assert np.isfinite(result.runs[0].history["train_loss"]).all()


def test_without_pytorch_geometric(graphs, tmp_path, monkeypatch):
    graph = graphs(dtype=np.float32)
    folder = train(graph, "gat", hidden=4, epochs=1).model.save(tmp_path / "m")
    monkeypatch.setattr("hoplite.peers.find", lambda module: None)
    sentence = r'gat needs PyTorch Geometric; run `pip install "hoplite-graph\[lab\]"`'
    with pytest.raises(ConfigError, match=sentence):
        train(graph, "gat", hidden=4, epochs=1)
    model = TrainedModel.load(folder)  # reading it is possible, using it is not
    with pytest.raises(ConfigError, match=sentence):
        model.predict(graph)


def test_gat_learns_cora(cora, tmp_path):
    options = {"hidden": 8, "lr": 0.05, "weight_decay": 5e-4, "dropout": 0.5}
    result = train(cora, "gat", epochs=100, patience=40, **options)
    assert result.test_accuracy > 0.78
    back = TrainedModel.load(result.model.save(tmp_path / "gat"))
    np.testing.assert_array_equal(back.predict(cora), result.model.predict(cora))
