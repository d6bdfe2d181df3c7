"""Every benchmark at a tiny size: what it reports, and what happens without the peers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import pyg, untidy
from tests.examples import examples
from torch.nn.functional import cross_entropy

from benchmarks import epoch, peers, product
from benchmarks.measure import Context, Effort
from benchmarks.product import power_law_matrix
from hoplite.config import TrainingConfig
from hoplite.engine.backend import get_num_threads
from hoplite.engine.propagation import Propagation
from hoplite.machine import quiet
from hoplite.models import build_model, model_config
from hoplite.tasks import find_task
from hoplite.training.objective import Problem
from hoplite.training.runs import Run, objective_of
from hoplite.training.sets import node_sets

CONTEXT = Context(quick=True, threads=2)
SIZE = product.Size(300, 4000, 8, Effort(3), speedup=3, memory=1.15, roofline=0.85)
CASES = (
    epoch.Case("cora", "lgc", 3, threads=1, ms=3, layers=False),
    epoch.Case("cora", "lgc", 3, ratios={epoch.TORCH: 3.5, "TAGConv K=3": 100}),
    epoch.Case("pubmed", "egc", 2),
    epoch.Case("pubmed", "gcn"),
    epoch.Case("cora", "sgc", 2),
    epoch.Case("cora", "sgc", 2, dropout=0, ratios={epoch.ROWS: 2}),
)


@pytest.fixture(scope="module")
def small(graphs):
    return graphs(n=60, d=8, dtype=np.float32, sparse=True)


@pytest.fixture
def context(small, monkeypatch):
    """Every dataset is the small graph, and a peer's sample is one epoch."""
    monkeypatch.setattr(epoch, "PEER_SECONDS", 0)
    return Context(quick=True, threads=2, load=lambda name: small)


def test_spmm(monkeypatch):
    monkeypatch.setattr(product, "peak_share", lambda *arguments: 1.2)
    before = get_num_threads()
    outcome = product.run_size(CONTEXT, SIZE)
    assert get_num_threads() == before
    by_torch, by_scipy, memory, roofline = outcome.figures
    assert (by_torch.peer, by_scipy.peer) == (product.TORCH, product.SCIPY)
    assert by_torch.ours == by_scipy.ours > 0
    assert by_torch.goal.text == ">= 3x"
    assert by_scipy.goal is None
    assert (memory.ours, memory.passed) == (1.2, False)
    assert roofline.goal.text == ">= 0.85"
    gather = product.Traffic(300, power_law_matrix(300, 4000).nnz, 8).gather
    assert roofline.ours == pytest.approx(1e3 * gather / CONTEXT.bandwidth / by_torch.ours)
    assert any("GFLOP/s" in note for note in outcome.notes)


def test_epoch(context):
    if peers.find("torch_geometric.nn") is None:
        pytest.skip("PyTorch Geometric is not installed")
    outcome = epoch.run_cases(context, CASES, 4, Effort(2))
    found = {}
    for figure in outcome.figures:
        found.setdefault(figure.case, []).append(figure)
    counts = [sum(figure.peer is not None for figure in figures) for figures in found.values()]
    assert counts == [1, 3, 1, 2, 2, 2, 2]
    geometric = {"TAGConv K=3", "TAGConv K=3, CSR", "GCNConv, 2 layers"}
    geometric |= {"SGConv K=2", "SGConv K=2, cached"}
    names = {figure.peer.split(" (")[0] for figure in outcome.figures if figure.peer}
    assert names == {epoch.TORCH, epoch.ROWS} | geometric
    for figures in found.values():  # the strongest peer first
        ratios = [figure.ratio for figure in figures if figure.peer]
        assert ratios == sorted(ratios)
    goals = {
        (f.case[:9], f.peer and f.peer.split(" (")[0]): f.goal.text
        for f in outcome.figures
        if f.goal
    }
    assert goals == {
        ("cora, lgc", None): "<= 3 ms",
        ("cora, lgc", epoch.TORCH): ">= 3.5x",
        ("cora, lgc", "TAGConv K=3"): ">= 100x",
        ("cora, sgc", epoch.ROWS): ">= 2x",
    }
    assert outcome.notes == []


def at_weights(graph, config, given):
    """Outputs of all nodes at weights, by name, and the gradient of the training loss."""
    model = build_model(config, graph.num_features, graph.num_classes)
    source, sets = Propagation.of(graph, config), {"train": node_sets(graph)["train"]}
    problem = Problem.of(source, find_task(), sets, graph.num_classes)
    objective = objective_of(model, problem, Run(TrainingConfig(dropout=0.0), 0))
    assert objective.params.keys() == given.keys()
    for name, value in given.items():
        objective.params[name][...] = value.reshape(objective.params[name].shape)
    return model.logits(objective.params, source), objective.gradient(0)[1]


def check_same_model(peer, graph, config, given):
    """Logits at both sets of nodes, and every gradient, at the same weights.

    ``given`` are functions that bring weights of the peer, or their gradients, to our shapes.
    """
    targets = torch.from_numpy(np.array(graph.labels)[graph.split.train])
    with quiet():
        theirs = peer.step()
        cross_entropy(theirs, targets).backward()
        checked = peer.check().detach().numpy()
    values = [weight.detach().numpy() for weight in peer.weights]
    ours, gradients = at_weights(graph, config, given(values))
    near = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(theirs.detach().numpy(), ours[graph.split.train], **near)
    np.testing.assert_allclose(checked, ours[graph.split.val], **near)
    for name, gradient in given([weight.grad.numpy() for weight in peer.weights]).items():
        np.testing.assert_allclose(gradient.ravel(), gradients[name].ravel(), **near)


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@given(graph=untidy.graphs(), seed=untidy.SEEDS, data=st.data())
@examples(50)
def test_plain_torch_is_the_same_model(graph, seed, data):
    model, hops = data.draw(st.sampled_from(sorted(peers.PLAIN))), data.draw(st.integers(1, 5))
    rates = [0.0] if model == "blocks" else [0.0, 1e-9]  # with dropout, but of nothing
    rate = data.draw(st.sampled_from(rates))
    ((_, build),) = peers.plain(model, rate, hops=hops, hidden=4).items()
    torch.manual_seed(seed)
    peer = build(peers.PeerData(graph))
    names = {
        "sgc": ["theta"], "egc": ["theta", "beta"], "lgc": ["theta", "alpha"], "blocks": ["theta"],
        "gcn": ["hidden_weight", "hidden_bias", "weight", "bias"],
    }[model]  # fmt: skip

    def named(values):
        turned = [value.T if model in ("sgc", "blocks") else value for value in values]
        return dict(zip(names, turned, strict=True))

    sizes = {"hidden": 4} if model == "gcn" else {"hops": hops}
    check_same_model(peer, graph, model_config(model, **sizes), named)


@pytest.fixture(scope="module")
def geometric():
    """PyTorch Geometric, imported before hypothesis draws its first example."""
    return pyg.layers()


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@given(graph=untidy.graphs(), seed=untidy.SEEDS, hops=st.integers(0, 4))
@examples(30)
def test_sign_is_the_same_model_as_hop_blocks(geometric, graph, seed, hops):
    ((name, build),) = peers.layers("blocks", 0.0, hops=hops).items()
    assert name == f"SIGN K={hops}"
    torch.manual_seed(seed)
    peer = build(peers.PeerData(graph))
    config = model_config("blocks", hops)
    check_same_model(peer, graph, config, lambda values: {"theta": np.stack([v.T for v in values])})
