"""Any torch.nn.Module of (x, edge_index) as a model: what it gives, in the same protocol."""

import sys
import textwrap

import numpy as np
import pytest
import torch
from tests import pyg
from torch import nn

from hoplite import ConfigError, ModelFileError, TrainedModel, train
from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import MODELS, build_model, find_model, model_config, register_model
from hoplite.models.settings import address_of
from hoplite.nets.view import GraphView

CODE = textwrap.dedent("""
    import torch
    from torch import nn
    from torch.nn.functional import dropout as drop

    class Net(nn.Module):
        def __init__(self, in_channels, out_channels, hidden_channels, dropout=0.5, act="relu",
                     share: float = 1, skip=True, act_kwargs=None, norm=False):
            super().__init__()
            self.first = nn.Linear(in_channels, hidden_channels)
            self.norm = nn.BatchNorm1d(hidden_channels) if norm else nn.Identity()
            self.second = nn.Linear(hidden_channels, out_channels)
            self.bias = nn.Parameter(torch.full((out_channels,), 0.25))
            self.rate, self.act, self.share, self.skip = dropout, getattr(torch, act), share, skip

        def forward(self, x, edge_index, edge_weight=None):
            h = self.act(self.norm(self.first(drop(x, self.rate, self.training))))
            h = drop(h, self.rate, self.training)
            if self.training:
                assert torch.is_grad_enabled()
            message = h[edge_index[0]] * edge_weight[:, None]
            sums = torch.zeros_like(h).index_add(0, edge_index[1], message)
            return self.second(self.skip * h + self.share * sums) + self.bias
""")


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Net in a module of its own, in the current folder."""
    (tmp_path / "my_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield "my_nets:Net"
    sys.modules.pop("my_nets", None)


def net(address):
    find_model(address)
    return sys.modules["my_nets"].Net


def parts(graph):
    """X and the edges as the graph has them, both ways, in float64."""
    adjacency = graph.adjacency.toarray()
    target, source = np.nonzero(adjacency)
    edges = torch.from_numpy(np.stack([source, target]))
    weights = torch.from_numpy(adjacency[target, source].astype(np.float64))
    features = graph.features
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    return torch.from_numpy(dense.astype(np.float64)), edges, weights


def by_hand(module, weights, graph):
    """The module with these weights, called as its author would, in eval mode."""
    module = module.double().eval()
    module.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})
    with torch.no_grad():
        return module(*parts(graph)).numpy()


def arrays(model, seed=0):
    first = model.initial(np.random.default_rng(seed))
    return {name: value.astype(np.float64) for name, value in first.items()}


def tensors(model, seed=0):
    return {name: torch.from_numpy(value) for name, value in arrays(model, seed).items()}


def test_settings_are_the_arguments(address):
    kind = find_model(address)
    assert (kind.name, kind.title, address_of(kind)) == ("my_nets_net", "Net", address)
    assert kind.Settings().as_dict() == {
        "model": "my_nets_net", "standardize": False, "hidden_channels": 64, "act": "relu",
        "share": 1.0, "skip": True, "norm": False,
    }  # fmt: skip
    assert kind is find_model(net(address)) is find_model("my_nets_net")
    assert "dropout" in kind.settings()
    assert kind.Settings(hidden_channels=5).size() == "hidden_channels 5"
    wrong = {"hidden_channels": 2.5, "act": 3, "share": "a", "skip": 1, "hops": 3, "act_kwargs": 1}
    for name, value in wrong.items():
        with pytest.raises(ConfigError, match=f"{name}"):
            model_config(address, **{name: value})


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_logits_are_what_the_module_gives(address, graphs, sparse, norm):
    graph = graphs(n=40, d=7, sparse=sparse)
    config = model_config(address, hidden_channels=6, norm=norm, act="tanh", share=0.3)
    model = build_model(config, 7, 3)
    weights, source = arrays(model, 3), Propagation(graph)
    module = net(address)(7, 3, 6, act="tanh", share=0.3, norm=norm)
    expected = by_hand(module, weights, graph)
    np.testing.assert_allclose(model.logits(weights, source), expected, atol=1e-10)
    rows = np.array([30, 2, 17, 2])
    with torch.no_grad():
        found = model.forward(tensors(model, 3), GraphView(source, rows), None)
    np.testing.assert_allclose(found, expected[rows], atol=1e-10)
    assert not np.allclose(model.logits(arrays(model, 4), source), expected)


def test_first_weights_are_the_modules_own(address):
    model = build_model(model_config(address, hidden_channels=4, norm=True), 5, 3)
    before = torch.get_rng_state()
    first = model.initial(np.random.default_rng(11))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(11)
    own = net(address)(5, 3, 4, norm=True).state_dict()
    torch.set_rng_state(before)
    assert first.keys() == own.keys()
    assert all(np.array_equal(value, own[name].numpy()) for name, value in first.items())
    assert model.shapes() == {name: tuple(value.shape) for name, value in own.items()}
    assert model.unlearned == {f"norm.{name}" for name in (
        "running_mean", "running_var", "num_batches_tracked")}  # fmt: skip


def test_a_step_draws_by_seed_and_epoch_alone(address, graphs):
    graph = graphs(n=30, d=6)
    model = build_model(model_config(address, hidden_channels=8), 6, 3)
    weights, view = tensors(model, 1), GraphView(Propagation(graph))

    def step(number, rate=0.5, seed=7):
        torch.rand(3)  # what others draw changes nothing
        return model.forward(weights, view, Dropout(rate, seed, number))

    found = step(2)
    assert torch.equal(found, step(2))
    assert not torch.allclose(found, step(3))
    assert not torch.allclose(found, step(2, seed=8))
    assert torch.equal(step(2, rate=0.0), model.forward(weights, view, None))


# (of norm without decay the gradient of the bias before it is rounding, which Adam enlarges)
@pytest.mark.parametrize(("norm", "decay"), [(False, 0.0), (False, 0.05), (True, 0.05)])
def test_training_is_that_of_torch(address, graphs, norm, decay):
    """Against torch.optim.Adam on the module itself, without dropout; buffers do not decay."""
    graph = graphs(n=40, d=6)
    options = {"hidden_channels": 5, "norm": norm}
    found = train(
        graph, address, seeds=[9], lr=0.05, weight_decay=decay, dropout=0.0, epochs=6,
        monitor="loss", tie="loss", **options,
    )  # fmt: skip
    torch.manual_seed(9)
    module = net(address)(6, 3, dropout=0.0, **options).double()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05, weight_decay=decay)
    nodes, labels = graph.split.train, torch.from_numpy(graph.labels)
    kept, losses = [], []
    for _ in range(6):
        optimizer.zero_grad()
        module.train()
        nn.functional.cross_entropy(module(*parts(graph))[nodes], labels[nodes]).backward()
        optimizer.step()
        module.eval()
        with torch.no_grad():
            outputs = module(*parts(graph))[graph.split.val]
            losses.append(nn.functional.cross_entropy(outputs, labels[graph.split.val]).item())
        kept.append({name: value.clone() for name, value in module.state_dict().items()})
    np.testing.assert_allclose(found.runs[0].history["val_loss"], losses, rtol=1e-8)
    best = kept[found.runs[0].best_epoch - 1]
    for name, value in found.model.weights.items():
        np.testing.assert_allclose(value, best[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_together_is_alone_and_the_same_seed_gives_the_same_bits(address, graphs):
    """Runs in several threads share torch's one generator."""
    graph = graphs(n=40, d=6, dtype=np.float32)
    settings = {"hidden_channels": 5, "norm": True, "dropout": 0.5, "epochs": 8}
    together = train(graph, address, seeds=4, **settings)
    for seed, run in enumerate(together.runs):
        (alone,) = train(graph, address, seeds=[seed], **settings).runs
        for name, value in run.model.weights.items():
            np.testing.assert_array_equal(value, alone.model.weights[name], err_msg=name)
            assert value.dtype == np.float32
    one, other = (run.model.weights["bias"] for run in together.runs[:2])
    assert not np.array_equal(one, other)


def test_a_file_does_not_choose_what_is_imported(address, graphs):
    graph = graphs(n=30)
    found = train(graph, net(address), epochs=3, hidden_channels=4, norm=True)
    found.model.save("m")
    assert (TrainedModel.load("m").logits(graph) == found.model.logits(graph)).all()
    MODELS.pop("my_nets_net")
    Net = sys.modules.pop("my_nets").Net
    with pytest.raises(ModelFileError, match="'my_nets_net', which is unknown"):
        TrainedModel.load("m")
    assert "my_nets" not in sys.modules
    assert register_model(Net) is Net
    assert (TrainedModel.load("m").logits(graph) == found.model.logits(graph)).all()


class Plain(nn.Module):
    """What a class must have, and nothing else."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.map = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.map(x)


def test_buffers_of_any_type_and_frozen_parameters_stay(graphs):
    class Kept(Plain):
        def __init__(self, in_channels, out_channels, model="own", lr=0.5, standardize=None):
            super().__init__(in_channels, out_channels)
            assert (model, lr, standardize) == ("own", 0.5, None)  # names of Hoplite's own
            self.register_buffer("places", torch.arange(in_channels).flip(0))
            self.register_buffer("mask", torch.arange(in_channels) != 1)
            self.scale = nn.Parameter(torch.full((in_channels,), 3.0), requires_grad=False)

        def forward(self, x, edge_index):
            assert (self.places.dtype, self.mask.dtype) == (torch.int64, torch.bool)
            return self.map(x[:, self.places] * self.mask * self.scale)

    graph = graphs(n=30, d=5)
    found = train(graph, Kept, epochs=5, weight_decay=0.5)
    weights = found.model.weights
    assert weights["scale"].tolist() == [3.0] * 5
    assert weights["places"].tolist() == [4, 3, 2, 1, 0]
    x = parts(graph)[0].numpy()[:, [4, 3, 2, 1, 0]] * np.array([3, 0, 3, 3, 3])
    own = x @ weights["map.weight"].T + weights["map.bias"]
    np.testing.assert_allclose(found.model.logits(graph), own, atol=1e-10)


def test_modules_that_keep_edges_see_one_graph_each(graphs):
    """GCNConv(cached=True) keeps the first edges that it sees."""
    layers = pyg.layers()

    class Cached(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.layer = layers.GCNConv(in_channels, out_channels, cached=True)

        def forward(self, x, edge_index, edge_weight):
            return self.layer(x, edge_index, edge_weight)

    one, other = graphs(n=30, seed=1), graphs(n=30, seed=2)
    model = build_model(find_model(Cached).Settings(), 5, 3)
    weights = arrays(model)
    for graph in (one, other, one):
        found = model.logits(weights, Propagation(graph))
        np.testing.assert_allclose(found, by_hand(Cached(5, 3), weights, graph), atol=1e-10)
