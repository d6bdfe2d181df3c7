"""Every benchmark at a tiny size: what it reports, and what happens without the peers."""

import dataclasses
import sys
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import untidy
from torch.nn.functional import cross_entropy

from hoplite import HopliteError
from hoplite.lab.bench import epoch, family, hyper, many, peers, product, scaling
from hoplite.lab.bench.child import peak_share, product_growth
from hoplite.lab.bench.measure import Context, Effort
from hoplite.lab.bench.product import power_law_matrix
from hoplite.models import ModelConfig, build_model
from hoplite.models.hlgc import GATES
from hoplite.peers import quiet
from hoplite.propagation.backend import get_num_threads
from hoplite.propagation.engine import Propagation

CONTEXT = Context(threads=2, bandwidth=1e10)
PRODUCT = product.ProductSize(300, 4000, 8, Effort(3), speedup=3, memory=1.15)
CELLS = (
    epoch.Cell("cora", "lgc", 3, threads=1, ms=3, layers=False),
    epoch.Cell("cora", "lgc", 3, ratios={"TAGConv K=3": 100}),
    epoch.Cell("pubmed", "egc", 2),
    epoch.Cell("pubmed", "gcn"),
    epoch.Cell("cora", "sgc", 2),
    epoch.Cell("cora", "sgc", 2, dropout=0, ratios=epoch.ROWS),
)
EPOCH = epoch.EpochSize(CELLS, 4, Effort(2))


@pytest.fixture(scope="module")
def small(graphs):
    return graphs(n=60, d=8, dtype=np.float32, sparse=True)


@pytest.fixture
def context(small, monkeypatch):
    """Every dataset is the small graph, and a peer's sample is one epoch."""
    monkeypatch.setattr(epoch, "PEER_SECONDS", 0)
    return Context(2, 1e10, load=lambda name: small)


@pytest.fixture
def alone(monkeypatch):
    """As if no optional peer were installed."""
    for module in ("torch_geometric.nn", "dgl.sparse"):
        monkeypatch.setitem(sys.modules, module, None)


def test_spmm(monkeypatch):
    monkeypatch.setattr(product, "peak_share", lambda *arguments: 1.2)
    before = get_num_threads()
    outcome = product.run(CONTEXT, PRODUCT)
    assert get_num_threads() == before
    by_torch, by_scipy, memory = outcome.figures
    assert (by_torch.peer, by_scipy.peer) == (product.TORCH, product.SCIPY)
    assert by_torch.ours == by_scipy.ours > 0
    assert by_torch.goal.text == ">= 3x"
    assert by_scipy.goal is None
    assert (memory.ours, memory.passed) == (1.2, False)
    assert outcome.facts["roofline_ms_gather"] > outcome.facts["roofline_ms_compulsory"] > 0
    assert any("GFLOP/s" in note for note in outcome.notes)


def test_spmm_needs_room(monkeypatch):
    monkeypatch.setattr(product.ProductSize, "needed_bytes", 10**18)
    outcome = product.run(CONTEXT, PRODUCT)
    assert not outcome.figures
    assert "not run" in outcome.notes[0]


def test_spmm_without_scipy_and_peak(monkeypatch, alone):
    monkeypatch.setattr(product, "peak_share", lambda *arguments: None)
    size = product.ProductSize(300, 4000, 8, Effort(1), with_scipy=False)
    outcome = product.run(CONTEXT, size)
    assert [figure.peer for figure in outcome.figures] == [product.TORCH]
    text = " ".join(outcome.notes)
    for part in ("SciPy, which has one thread", "DGL is not installed", "does not tell"):
        assert part in text


def test_dgl_takes_part_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(product, "peak_share", lambda *arguments: None)

    def from_csr(indptr, indices, values, shape):
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape)

    fake = types.ModuleType("dgl.sparse")
    fake.from_csr, fake.spmm = from_csr, torch.matmul
    monkeypatch.setitem(sys.modules, "dgl", types.ModuleType("dgl"))
    monkeypatch.setitem(sys.modules, "dgl.sparse", fake)
    outcome = product.run(CONTEXT, PRODUCT)
    assert product.DGL in [figure.peer for figure in outcome.figures]
    fake.spmm = lambda S, X: 2 * (S @ X)
    with pytest.raises(HopliteError, match="hoplite and DGL differ"):
        product.run(CONTEXT, PRODUCT)


def test_peak_memory_of_a_product():
    matrix = power_law_matrix(20_000, 400_000)
    share = peak_share(matrix, 64, 2)
    assert share is None or 0.9 < share < 1.5


def test_peak_sees_what_is_freed_again(monkeypatch):
    from hoplite.propagation import spmm as module

    def wasteful(S, X):
        waste = torch.ones(2**24)  # 64 MiB
        return waste[:1]

    matrix = power_law_matrix(100, 1000)
    monkeypatch.setattr(module, "spmm", wasteful)
    # freed and kept by the allocator, which would give it to the product
    blocks = [torch.ones(2**14) for _ in range(2**11)]
    pinned = torch.ones(2**14)
    del blocks
    growth = product_growth(matrix, 4)
    assert growth is None or growth > 60 * 2**20
    assert pinned[0] == 1


def test_epoch(context):
    if peers.find("torch_geometric.nn") is None:
        pytest.skip("PyTorch Geometric is not installed")
    outcome = epoch.run(context, EPOCH)
    found = {}
    for figure in outcome.figures:
        found.setdefault(figure.case, []).append(figure)
    names = {case: {figure.peer for figure in figures} for case, figures in found.items()}
    rows = {"plain torch, S^k X kept", "SGConv K=2, cached"}
    assert names == {
        "cora, lgc, 3 hops, 1 thread": {None, "plain torch"},
        "cora, lgc, 3 hops, 2 threads": {"plain torch", "TAGConv K=3", "TAGConv K=3, CSR"},
        "pubmed, egc, 2 hops, 2 threads": {"plain torch"},
        "pubmed, gcn, 2 threads": {"plain torch", "GCNConv, 2 layers"},
        "cora, sgc, 2 hops, 2 threads": {"plain torch", "SGConv K=2"},
        "cora, sgc, 2 hops, no dropout, 2 threads": rows,
        "cora, sgc, 2 hops, no dropout, 2 threads: set-up and first epoch": rows,
    }
    for figures in found.values():  # the strongest peer first
        ratios = [figure.ratio for figure in figures if figure.peer]
        assert ratios == sorted(ratios)
    goals = {(f.case[:9], f.peer): f.goal.text for f in outcome.figures if f.goal}
    assert goals == {
        ("cora, lgc", None): "<= 3 ms",
        ("cora, lgc", "TAGConv K=3"): ">= 100x",
        ("cora, sgc", "plain torch, S^k X kept"): ">= 1x",
    }
    assert not outcome.notes


def test_epoch_with_one_thread(small, context, alone):
    outcome = epoch.run(dataclasses.replace(context, threads=1), EPOCH)
    cases = [(figure.case, figure.peer) for figure in outcome.figures]
    assert len(set(cases)) == len(cases)
    goals = {figure.case: figure.goal.text for figure in outcome.figures if figure.goal}
    assert goals["cora, lgc, 3 hops, 1 thread"] == "<= 3 ms"


def test_epoch_without_pyg(context, alone):
    outcome = epoch.run(context, EPOCH)
    assert {figure.peer for figure in outcome.figures} == {None, "plain torch", *epoch.ROWS}
    assert outcome.notes == [peers.missing_note("PyTorch Geometric")]


def test_the_sizes_of_epoch_and_hyper():
    goals = {
        cell.model: cell.ms for cell in epoch.FULL.cells if cell.dataset == "pubmed" and cell.ms
    }
    assert goals == {"sgc": 5, "egc": 6, "lgc": 6}
    assert {cell.dataset for cell in epoch.FULL.cells if not cell.dropout} == {"cora", "pubmed"}
    assert all(cell.rivals() for cell in epoch.FULL.cells)
    limits = {(gate.dataset, gate.name): gate.ms for gate in hyper.FULL.gates}
    assert limits == {
        ("cora", "class"): 15,
        ("cora", "node"): 250,
        ("cora", "feature"): 120,
        ("citeseer", "feature"): 400,
    }
    assert {gate.name for gate in hyper.QUICK.gates} == set(GATES)


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@given(graph=untidy.graphs(), seed=untidy.SEEDS, data=st.data())
def test_plain_torch_is_the_same_model(graph, seed, data):
    model, hops = data.draw(st.sampled_from(sorted(peers.PLAIN))), data.draw(st.integers(1, 5))
    rate = data.draw(st.sampled_from([0.0, 1e-9]))  # with dropout, but of nothing
    ((_, build),) = peers.plain(model, rate, hops=hops, hidden=4).items()
    torch.manual_seed(seed)
    peer = build(peers.PeerData(graph))
    sizes = {"hidden": 4} if model == "gcn" else {"hops": hops}
    ours = build_model(ModelConfig(model, **sizes), graph.num_features, graph.num_classes)
    shapes = ours.shapes()
    names = {
        "sgc": ["theta"], "egc": ["theta", "beta"], "lgc": ["theta", "alpha"],
        "gcn": ["hidden_weight", "hidden_bias", "weight", "bias"],
    }[model]  # fmt: skip
    copies = {}
    for name, weight in zip(names, peer.weights, strict=True):
        copy = weight.detach().T if model == "sgc" else weight.detach()
        copies[name] = copy.reshape(1, *shapes[name]).clone().requires_grad_()
    propagation = Propagation(graph, ours.config.operator, ours.config.basis, ours.config.hops)

    def logits(nodes):
        return ours.logits(copies, propagation.view(nodes), None, None)[:, 0]

    targets = torch.from_numpy(np.array(graph.labels)[graph.split.train])
    with quiet():
        theirs = peer.step()
        cross_entropy(theirs, targets).backward()
        checked = peer.check()
    mine = logits(graph.split.train)
    cross_entropy(mine, targets).backward()
    near = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(theirs, mine, **near)
    torch.testing.assert_close(checked, logits(graph.split.val), **near)
    for weight, copy in zip(peer.weights, copies.values(), strict=True):
        gradient = weight.grad.T if model == "sgc" else weight.grad
        torch.testing.assert_close(gradient.flatten(), copy.grad.flatten(), **near)


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@given(graph=untidy.graphs(), seed=untidy.SEEDS, hops=st.integers(0, 4))
def test_sign_is_the_same_model_as_hop_blocks(graph, seed, hops):
    """Logits at both sets of nodes, and every gradient, at the same weights."""
    if peers.find("torch_geometric.nn") is None:
        pytest.skip("PyTorch Geometric is not installed")
    ((name, build),) = peers.layers("blocks", 0.0, hops=hops).items()
    assert name == f"SIGN K={hops}"
    torch.manual_seed(seed)
    peer = build(peers.PeerData(graph))
    ours = build_model(ModelConfig("blocks", hops), graph.num_features, graph.num_classes)
    theta = torch.stack([weight.detach().T for weight in peer.weights])
    theta = theta.unsqueeze(0).requires_grad_()
    propagation = Propagation(graph, ours.config.operator, ours.config.basis, hops)

    def logits(nodes):
        return ours.logits({"theta": theta}, propagation.view(nodes), None, None)[:, 0]

    targets = torch.from_numpy(np.array(graph.labels)[graph.split.train])
    theirs, mine = peer.step(), logits(graph.split.train)
    near = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(theirs, mine, **near)
    torch.testing.assert_close(peer.check(), logits(graph.split.val), **near)
    cross_entropy(theirs, targets).backward()
    cross_entropy(mine, targets).backward()
    for weight, gradient in zip(peer.weights, theta.grad[0], strict=True):
        torch.testing.assert_close(weight.grad.T, gradient, **near)


def test_plain_dropout_keeps_the_mean_and_drops_alike_in_the_transpose(small):
    torch.manual_seed(0)
    data = peers.PeerData(small)
    with quiet():
        draws = [[form.to_dense() for form in data.inputs.dropped(0.25)] for _ in range(100)]
    assert all(torch.equal(X, transpose.T) for X, transpose in draws)
    values = torch.stack([X for X, _ in draws])
    torch.testing.assert_close(values, (values != 0) * data.X / 0.75)
    assert abs((values != 0)[:, data.X != 0].double().mean() - 0.75) < 0.02


def test_peers_train(small):
    """An epoch moves every weight, and both inputs of TAGConv give the same."""
    ends = []
    builders = peers.plain("gcn", 0.0) | peers.layers("lgc", 0.0, hops=3)
    for build in builders.values():
        torch.manual_seed(0)
        peer = build(peers.PeerData(small))
        first = [weight.detach().clone() for weight in peer.weights]
        run_epoch = peer.epoch
        assert all(0 <= run_epoch() <= 1 for _ in range(2))
        moved = zip(first, peer.weights, strict=True)
        assert all((old - new).abs().max() > 0.1 for old, new in moved)
        ends.append(peer.weights)
    for one, other in zip(*ends[1:], strict=True):  # of TAGConv, if it is installed
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_many(context):
    size = many.ManySize(2, 1, 2, 3, 4, Effort(2), ms=1.5)
    (figure,) = many.run_many(context, size).figures
    assert figure.case.startswith("27 runs of lgc, 2 hops")
    assert figure.peer == "one by one"
    assert figure.goal.text == "<= 1.5 ms"


def test_the_paper_grid_has_945_runs():
    runs = many.paper_runs(5, 500, 100)
    assert len({(run.config, run.seed) for run in runs}) == 135
    assert len(runs) * len(many.GRID.hops) == 945


def test_grid(small):
    shares = []
    context = Context(1, 1e10, lambda what, share: shares.append(share), load=lambda name: small)
    outcome = many.run_grid(context, many.GridSize((1, 2), 2, 5, 2))
    assert outcome.figures[0].case == "108 runs of lgc, k in 1, 2"
    assert outcome.figures[0].unit == "min"
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert outcome.facts["run_epochs"] <= 108 * 5
    assert "best mean validation accuracy" in outcome.notes[0]


def test_hyper(context):
    gates = (("cora", "class", 3, 1e6), ("cora", "node", 2, 0), ("citeseer", "feature", 2, 0))
    size = hyper.HyperSize(tuple(hyper.Gate(*gate) for gate in gates), Effort(2))
    outcome = hyper.run(context, size)
    assert [figure.passed for figure in outcome.figures] == [True, False, False]
    assert all(figure.ours > 0 for figure in outcome.figures)


WALKED = {"sgc": 10, "egc": 10, "jacobiconv": 10, "blocks": 10}
WALKED |= {"s2gc": 16, "ppr": 10, "heat": 10, "dgc": 100}  # the model, and its usual hops
DRAWN = ("ppr", "lgc")  # with consistency, too


def test_family(context):
    """Every linear model beside LGC of its hops; hop blocks beside SIGN, and its set-up apart."""
    if peers.find("torch_geometric.nn") is None:
        pytest.skip("PyTorch Geometric is not installed")
    outcome = family.run(context, family.FamilySize(2, Effort(2)))
    found = [(figure.case, figure.peer, figure.goal.text) for figure in outcome.figures]
    blocks = "cora, blocks, 2 hops, no dropout, 2 threads"
    assert sorted(found) == sorted(
        [
            (f"cora, {name}, {hops} hops", f"lgc, {hops} hops", f">= {0.2 if wide else 0.5}x")
            for name, hops in WALKED.items()
            for wide in [name == "jacobiconv"]
        ]
        + [
            (
                f"cora, {name}, 10 hops, consistency of 3 draws",
                "lgc, 10 hops, no dropout",
                ">= 0.2x",
            )
            for name in DRAWN
        ]
        + [(f"{blocks}{what}", "SIGN K=2", ">= 1x") for what in ("", ": set-up and first epoch")]
    )
    assert all(figure.ours > 0 and figure.ratio > 0 for figure in outcome.figures)
    assert all(figure.rounds == 2 for figure in outcome.figures)


def test_family_without_pyg(context, alone):
    outcome = family.run(context, family.FamilySize(2, Effort(1)))
    assert peers.missing_note("PyTorch Geometric") in outcome.notes
    assert outcome.figures[-1].peer is None


def test_family_is_judged_by_the_epochs_of_lgc(context, monkeypatch):
    """An epoch of LGC takes 1 ms a hop, and another 3 or 6 times as long."""
    asked = []

    def laps(graph, model, count, **options):
        asked.append((model, options))
        drawn = options.get("draws", 1)
        times = 1 if (model, drawn) == ("lgc", 1) else 6 if (model, drawn) == ("ppr", 3) else 3
        return 1.0, times * options["hops"] / 1000

    monkeypatch.setattr(epoch, "laps", laps)
    size = family.FamilySize(2, Effort(3))
    figures = {f.case: f for f in family.run(context, size).figures if f.peer != family.SIGN}
    ratios = {case: round(1 / figure.ratio) for case, figure in figures.items()}
    last = "cora, ppr, 10 hops, consistency of 3 draws"
    assert ratios == {case: 6 if case == last else 3 for case in figures}
    passed = {case.split(", ", 1)[1] for case, figure in figures.items() if figure.passed}
    assert passed == {"jacobiconv, 10 hops", "lgc, 10 hops, consistency of 3 draws"}
    settings = {"lr": 0.05, "dropout": 0.5}
    for name, hops in WALKED.items():
        assert (name, {"hops": hops, **settings}) in asked
        assert ("lgc", {"hops": hops, **settings}) in asked
    drawn = {"hops": 10, "lr": 0.05, "dropout": 0.0}
    assert ("lgc", drawn) in asked
    drawn |= {"drop_nodes": 0.5, "draws": 3, "consistency": 1.0}
    assert all((name, drawn) in asked for name in DRAWN)


def test_scaling():
    size = scaling.ScalingSize(200, (1000, 2000, 4000), (2, 4), 3, 4, Effort(2))
    outcome = scaling.run(CONTEXT, size)
    slopes = {f.case: f for f in outcome.figures if f.case.startswith("slope over")}
    assert len(outcome.figures) == 3 + 3 + 2 + len(slopes) == 11
    assert [figure.goal is not None for figure in slopes.values()] == [True, False, True]
    assert outcome.figures[0].case.startswith("200 nodes, ")
    assert outcome.figures[4].case.startswith("100 nodes, ")


def test_hops_are_powers():
    matrix = power_law_matrix(50, 400)
    X = torch.rand(50, 3)
    S = scaling.SparseMatrix.from_scipy(matrix)
    expected = matrix @ (matrix @ (matrix @ X.numpy()))
    np.testing.assert_allclose(scaling.hops_of(S, X, 3)().numpy(), expected, rtol=1e-4)
