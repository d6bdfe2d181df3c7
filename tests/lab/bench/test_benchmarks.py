"""Every benchmark at a tiny size: what it reports, and what happens without the peers."""

import sys
import types

import numpy as np
import pytest
import torch

from hoplite import HopliteError
from hoplite.lab.bench import epoch, hyper, many, peers, product, scaling
from hoplite.lab.bench.child import peak_share, product_growth
from hoplite.lab.bench.measure import Context, Effort
from hoplite.lab.bench.product import power_law_matrix
from hoplite.propagation.backend import get_num_threads

CONTEXT = Context(threads=2, bandwidth=1e10)
PRODUCT = product.ProductSize(300, 4000, 8, Effort(3), speedup=3, memory=1.15)
EPOCH = epoch.EpochSize(3, 4, Effort(2))


@pytest.fixture(scope="module")
def small(graphs):
    return graphs(n=60, d=8, dtype=np.float32, sparse=True)


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
    growth = product_growth(matrix, 4)
    assert growth is None or growth > 60 * 2**20


def test_epoch(small):
    if peers.find("torch_geometric.nn") is None:
        pytest.skip("PyTorch Geometric is not installed")
    outcome = epoch.run(CONTEXT, EPOCH, small)
    cases = [(figure.case, figure.peer) for figure in outcome.figures]
    assert cases[:2] == [("lgc, 3 hops, 1 thread", None), ("lgc, 3 hops, 1 thread", "TAGConv K=3")]
    assert ("lgc, 3 hops, 2 threads", "TAGConv K=3, CSR") in cases
    assert {peer for _, peer in cases} >= {"SGConv K=2", "ChebConv K=3", "GCNConv, 2 layers"}
    goals = [figure.goal.text for figure in outcome.figures if figure.goal]
    assert goals == ["<= 3 ms", ">= 100x", ">= 100x"]
    assert not outcome.notes


def test_epoch_without_pyg(small, alone):
    outcome = epoch.run(CONTEXT, EPOCH, small)
    assert all(figure.peer is None for figure in outcome.figures)
    assert outcome.notes == [peers.missing_note("PyTorch Geometric")]


def test_pyg_epoch_trains_and_both_inputs_agree(small):
    nn = peers.find("torch_geometric.nn")
    if nn is None:
        pytest.skip("PyTorch Geometric is not installed")
    data = peers.PygData(small)
    layers = []
    for csr in (False, True):
        torch.manual_seed(0)
        model = peers.tag(nn, data, 3)
        first = [weight.detach().clone() for weight in model.parameters()]
        run_epoch = peers.training_epoch(data, model, csr=csr, rate=0.0)
        assert all(0 <= run_epoch() <= 1 for _ in range(2))
        moved = zip(first, model.parameters(), strict=True)
        assert all((old - new).abs().max() > 0.1 for old, new in moved)
        layers.append(model)
    for one, other in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_many(small):
    size = many.ManySize(2, 1, 2, 3, 4, Effort(2), ms=1.5)
    (figure,) = many.run_many(CONTEXT, size, small).figures
    assert figure.case.startswith("27 runs of lgc, 2 hops")
    assert figure.peer == "one by one"
    assert figure.goal.text == "<= 1.5 ms"


def test_the_paper_grid_has_945_runs():
    runs = many.paper_runs(5, 500, 100)
    assert len({(run.config, run.seed) for run in runs}) == 135
    assert len(runs) * len(many.GRID.hops) == 945


def test_grid(small):
    shares = []
    context = Context(1, 1e10, lambda what, share: shares.append(share))
    outcome = many.run_grid(context, many.GridSize((1, 2), 2, 5, 2), small)
    assert outcome.figures[0].case == "108 runs of lgc, k in 1, 2"
    assert outcome.figures[0].unit == "min"
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert outcome.facts["run_epochs"] <= 108 * 5
    assert "best mean validation accuracy" in outcome.notes[0]


def test_hyper(small):
    size = hyper.HyperSize(2, {"class": 3, "node": 2, "feature": 2}, Effort(2), {"class": 1e6})
    outcome = hyper.run(CONTEXT, size, small)
    assert [figure.passed for figure in outcome.figures].count(True) == 1
    assert all(figure.ours > 0 for figure in outcome.figures)


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
