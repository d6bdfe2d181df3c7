"""Propagation where a small mistake would go unnoticed elsewhere: bounds, ties, orders, restored
states, and the exact numbers behind a plan."""

import dataclasses
import functools

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from hoplite import Graph
from hoplite.errors import ConfigError, GraphError
from hoplite.propagation import backend, engine, polynomial
from hoplite.propagation.backend import get_num_threads, set_num_threads, threads_for, use_backend
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation
from hoplite.propagation.features import Features
from hoplite.propagation.orders import Problem, make_plan
from hoplite.propagation.spmm import SparseMatrix, matmul, spmm

SMALL = Problem(
    nodes=10,
    features=4,
    classes=3,
    operator_nonzeros=20,
    feature_nonzeros=30,
    hops=5,
    kept_hops=6,
    rows=7,
    epochs=11,
    runs=2,
)


# ---- plans


def test_the_work_of_both_orders_by_hand():
    assert SMALL.weights_first_work() == 2 * 11 * 8 * (30 + 5 * 20)  # 6 columns, a vector
    wider = dataclasses.replace(SMALL, runs=3, passes=1)
    assert wider.weights_first_work() == 11 * 9 * (30 + 5 * 20)
    assert wider.hops_first_work() == 5 * 20 * 4 + 11 * 3 * 7 * 4 * (4 * 6 + 3) // 4
    for kept, mixing in ((1, 0), (2, 2)):
        work = dataclasses.replace(SMALL, kept_hops=kept).hops_first_work()
        assert work == 400 + 44 * 28 * (4 * mixing + 3) // 4
    assert SMALL.hops_first_bytes() == 4 * 6 * 7 * 4
    assert dataclasses.replace(SMALL, epochs=500, runs=1) == Problem(10, 4, 3, 20, 30, 5, 6, 7)
    assert Problem(10, 4, 3, 20, 30, 5, 6, 7).dropout is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.hops = 3


def test_hop_features_that_just_fit_are_kept():
    enough = SMALL.hops_first_bytes()
    assert make_plan(SMALL, memory=enough).order == "hops-first"
    plan = make_plan(SMALL, memory=enough - 1)
    assert (plan.order, plan.reason) == ("weights-first", "the hop features do not fit in memory")


def test_without_a_limit_half_of_the_free_memory_is_used(monkeypatch):
    for free, order in ((2 * 672, "hops-first"), (2 * 672 - 2, "weights-first")):
        monkeypatch.setattr("hoplite.propagation.orders.free_memory", lambda free=free: free)
        assert make_plan(SMALL).order == order


def test_equal_work_goes_weights_first():
    equal = Problem(10, 4, 8, 20, 28, hops=0, kept_hops=1, rows=28)
    assert equal.weights_first_work() == equal.hops_first_work()
    assert make_plan(equal, memory=10**9).order == "weights-first"
    less = dataclasses.replace(equal, feature_nonzeros=29)
    assert make_plan(less, memory=10**9).order == "hops-first"


def test_an_order_that_is_asked_for_is_taken():
    for order in ("hops-first", "weights-first"):
        plan = make_plan(SMALL, order, memory=0)
        assert (plan.order, plan.reason) == (order, "as asked")
    dropped = dataclasses.replace(SMALL, dropout=True)
    assert make_plan(dropped, "weights-first").reason == "as asked"
    lines = make_plan(SMALL, memory=10**9).explain().splitlines()
    assert lines[0] == "hops-first: it needs less work"
    assert lines[1].split() == ["weights", "first", "2.29e+04", "multiply-adds"]
    assert lines[2].endswith(" 8.72e+03 multiply-adds, 0.0 MiB of hop features")
    large = dataclasses.replace(SMALL, rows=7 * 2**16)
    assert "42.0 MiB" in make_plan(large).explain()


# ---- threads and backends


@pytest.fixture
def three_threads():
    before = get_num_threads()
    set_num_threads(3)
    yield
    set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_small_tensors_get_one_thread_and_the_others_come_back():
    with threads_for(2**17):
        assert get_num_threads() == 3
    with threads_for(2**17 - 1):
        assert torch.get_num_threads() == 1
        assert get_num_threads() == 3  # of the C++ core, which goes by the work of each product
    assert torch.get_num_threads() == 3
    with pytest.raises(RuntimeError, match="inside"), threads_for(1):
        raise RuntimeError("inside")
    assert get_num_threads() == 3
    set_num_threads(1)
    with threads_for(1):
        set_num_threads(2)  # the block had nothing to restore
    assert get_num_threads() == 2


@pytest.mark.usefixtures("three_threads")
def test_the_most_threads():
    set_num_threads(1024)
    assert get_num_threads() == 1024
    with pytest.raises(ConfigError, match="threads is 1025"):
        set_num_threads(1025)


def test_a_backend_ends_with_its_block_even_by_an_error():
    x = torch.zeros(2)
    with pytest.raises(RuntimeError, match="inside"), use_backend("torch"):
        raise RuntimeError("inside")
    assert backend.uses_native(x) == backend.has_native()
    if backend.has_native():
        with use_backend("native"):
            assert backend.uses_native(x)
            assert backend.uses_native(x.double())
            assert not backend.uses_native(x.to("meta"))


# ---- dropout


def test_keys_are_splitmix_of_seed_and_epoch():
    def splitmix(z):
        z = (z + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    for seed, epoch in ((0, 0), (5, 2), (-3, 7), (2**70 + 1, 2**40 + 9), (1, 2**64 + 3), (9, -1)):
        dropout = Dropout((0.25,), (seed,), epoch)
        key = splitmix(splitmix(seed % 2**64) ^ epoch % 2**64)
        assert dropout.rules[0].tolist() == [key % 2**32, key >> 32, 2**30]
        assert dropout.rules.dtype == np.uint32
    assert Dropout((0.25,), (4,)).epoch == 0


def test_layers_have_masks_of_their_own():
    dropout = Dropout((0.5, 0.2), (7, 8), 3)
    assert dropout.layer(0) == dropout
    assert dropout.layer(1) == Dropout((0.5, 0.2), (7, 8), 3 + 2**32)
    assert dropout.layer(2) == Dropout((0.5, 0.2), (7, 8), 3 + 2**33)
    with pytest.raises(dataclasses.FrozenInstanceError):
        dropout.epoch = 4


def test_factors_of_rates_that_are_no_fractions_of_two():
    dropout = Dropout((0.3, 0.9), (0, 1))
    np.testing.assert_allclose(dropout.scales, [1 / 0.7, 10], rtol=1e-8)
    with pytest.raises(ValueError, match="read-only"):
        dropout.scales[0] = 2
    assert Dropout((0.0, 0.0), (1, 2)).active is False
    assert Dropout((0.0, 0.1), (1, 2)).active is True


# ---- views


@pytest.fixture
def untidy():
    """Text-like order, weights, isolated nodes, uneven degrees; more columns than rows."""
    rng = np.random.default_rng(3)
    edges = np.argwhere(np.triu(rng.random((14, 14)) < 0.3, 1))
    features = rng.normal(size=(17, 23)) * (rng.random((17, 23)) < 0.5)
    weights = rng.uniform(0.1, 9.0, len(edges))
    return functools.partial(Graph.from_edges, edges, weights=weights), features


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("nodes", [None, [11, 16, 0, 3, 3]])
def test_wide_features_in_blocks(untidy, dense, monkeypatch, sparse, nodes):
    make, features = untidy
    graph = make(features=sp.csr_array(features) if sparse else features)
    monkeypatch.setattr(engine, "BLOCK_COLUMNS", 7)
    propagation = Propagation(graph, "laplacian", "chebyshev", hops=3)
    blocks = list(propagation.feature_blocks())
    assert [(part.start, part.stop) for part, _ in blocks] == [(0, 7), (7, 14), (14, 21), (21, 23)]
    powers = dense.basis(graph, "laplacian", "chebyshev", 3)
    rows = np.arange(17) if nodes is None else np.array(nodes)
    expected = np.stack([(p @ features)[rows] for p in powers])
    view = propagation.view(nodes)
    assert view.num_rows == len(rows)
    np.testing.assert_allclose(view.hop_features().squeeze(2), expected, atol=1e-10)
    np.testing.assert_allclose(view.last_hop_features(), expected[-1], atol=1e-10)
    some = torch.tensor([4, 1])
    for kept, hops in (("all", expected), ("last", expected[-1:])):
        part = view.part(some, kept)
        assert part.num_rows == 2
        np.testing.assert_allclose(part.hop_features().squeeze(2), hops[:, [4, 1]], atol=1e-10)


@pytest.mark.parametrize("few_rows", [0, 1000])
@pytest.mark.parametrize("hops_first", [False, True])
def test_coefficients_of_the_last_hops_may_be_left_out(untidy, monkeypatch, few_rows, hops_first):
    make, features = untidy
    monkeypatch.setattr(engine, "FEW_ROWS", few_rows)
    propagation = Propagation(make(features=features), hops=4)
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(2, 23, 3, dtype=torch.float64, generator=generator)
    some = torch.randn(2, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    every = torch.cat([some, torch.zeros(2, 3, dtype=torch.float64)], dim=1)
    view = propagation.view([9, 16, 2], hops_first=hops_first)
    left_out, zero = view.combine(theta, some), view.combine(theta, every)
    torch.testing.assert_close(left_out, zero)
    whole = propagation.view().combine(theta, every)
    torch.testing.assert_close(left_out, whole[[9, 16, 2]])


def test_hops_are_kept_for_few_rows_only(untidy, monkeypatch):
    make, features = untidy
    monkeypatch.setattr(engine, "FEW_ROWS", 4)
    propagation, used = Propagation(make(features=features), hops=2), []
    for name in ("hop_stack", "combine"):
        twin = getattr(engine, name)
        monkeypatch.setattr(
            engine, name, lambda *given, twin=twin, name=name: used.append(name) or twin(*given)
        )
    theta = torch.ones(1, 23, 2, dtype=torch.float64)
    learned = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    for nodes in ([1, 2, 3, 4], [1, 2, 3, 4, 5], None):  # 4 * 4 < 17 < 4 * 5
        propagation.view(nodes).combine(theta, learned)
    propagation.view([1]).combine(theta, learned.detach())
    assert used == ["hop_stack", "combine", "combine", "combine"]


def test_a_kept_filter_only_where_it_is_cheap(untidy, monkeypatch):
    make, features = untidy
    propagation = Propagation(make(features=features), hops=3)
    cost = 4 * 3 * propagation.matrix.nnz
    assert not propagation.view()._filter_is_cheap(3)
    most = (cost - 1) // 17
    assert propagation.view([1] * most)._filter_is_cheap(3)
    assert not propagation.view([1] * (most + 1))._filter_is_cheap(3)
    monkeypatch.setattr(engine, "MOST_FILTER_SIZE", 34)
    assert propagation.view([5, 1])._filter_is_cheap(3)
    assert not propagation.view([5, 1, 2])._filter_is_cheap(3)
    monkeypatch.undo()
    assert not propagation.view([1] * most)._filter_is_cheap(2)  # of hops that count


def test_nodes_out_of_range():
    propagation = Propagation(Graph.from_edges([(0, 1)], np.eye(3)))
    assert propagation.view([0, 2]).num_rows == 2
    assert propagation.view([]).num_rows == 0
    for nodes in ([-1], [0, 3], [2, -2, 1]):
        with pytest.raises(GraphError, match="pass indices from 0 to 2"):
            propagation.view(nodes)
    assert propagation.hops == 2  # unless it is said


def test_edges_are_sorted_by_target_and_have_one_loop_each(untidy):
    make, features = untidy
    graph = make(features=features)
    found = []
    for operator in ("adjacency", "renormalized", "laplacian"):
        sources, targets = Propagation(graph, operator).edges
        assert torch.equal(torch.sort(targets, stable=True).values, targets)
        found.append({(int(a), int(b)) for a, b in zip(sources, targets, strict=True)})
        assert len(found[-1]) == len(sources)
    loops = {(i, i) for i in range(17)}
    links = {tuple(pair) for pair in np.argwhere(graph.adjacency.toarray()).tolist()}
    assert found == [loops | links] * 3


# ---- products


def test_large_graphs_go_hop_by_hop_with_the_same_numbers(untidy, monkeypatch):
    make, features = untidy
    propagation = Propagation(make(features=features), "laplacian", "chebyshev", hops=5)
    matrix, signal = propagation.matrix, torch.from_numpy(features)
    assert polynomial._in_tiles(matrix, signal) == backend.has_native()
    rows = torch.tensor([16, 2, 7])
    scales = torch.linspace(-1, 2, 6 * 23, dtype=torch.float64).view(6, 23)

    def everything():
        return (
            polynomial.gather_hops(matrix, "chebyshev", signal, 5, rows),
            polynomial.gather_hops(matrix, "chebyshev", signal, 5, None),
            polynomial.weighted_sum(matrix, "chebyshev", signal, scales),
            *polynomial.weighted_sum_adjoint(matrix, "chebyshev", signal, signal + 1, scales),
        )

    tiled = everything()
    monkeypatch.setattr(polynomial, "TILE_ROWS", 16)
    assert not polynomial._in_tiles(matrix, signal)
    for mine, twin in zip(everything(), tiled, strict=True):
        torch.testing.assert_close(mine, twin)
    monkeypatch.setattr(polynomial, "TILE_ROWS", 17)
    assert polynomial._in_tiles(matrix, signal) == backend.has_native()


@pytest.mark.parametrize("name", ["torch", "auto"])
def test_scaled_products_keep_their_factors(name):
    matrix = SparseMatrix.from_scipy(sp.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]])))
    x = torch.tensor([[1.0, 4.0], [10.0, 5.0]], dtype=torch.float64)
    ones = torch.ones(2, 2, dtype=torch.float64)
    scale = torch.tensor([1.0, -1.0], dtype=torch.float64)
    with use_backend(name):
        assert spmm(matrix, x).tolist() == [[20, 10], [3, 12]]
        assert spmm(matrix, x, scale=0.5).tolist() == [[10, 5], [1.5, 6]]
        assert spmm(matrix, x, Z=ones).tolist() == [[21, 11], [4, 13]]
        assert spmm(matrix, x, Z=ones, column_scale=scale).tolist() == [[21, 9], [4, 11]]
        assert spmm(matrix, x, W=ones).tolist() == [[20, 10], [3, 12]]  # w_scale is 0
        assert spmm(matrix, x, W=ones, w_scale=-2.0).tolist() == [[18, 8], [1, 10]]
        assert matmul(matrix, x[:, 0]).tolist() == [20, 3]
    empty = SparseMatrix.from_scipy(sp.csr_array((2, 0)))
    assert matmul(empty, torch.zeros(0, 3, 2, dtype=torch.float64)).shape == (2, 3, 2)


def test_what_a_sparse_matrix_says_of_itself():
    plain = SparseMatrix.from_scipy(sp.csr_array(np.array([[0.0, 2.0, 1.0]], dtype=np.float32)))
    assert repr(plain) == "SparseMatrix(1 x 3, nnz=2, float32)"
    square = SparseMatrix.from_scipy(sp.eye_array(2, format="csr"), symmetric=True)
    assert repr(square) == "SparseMatrix(2 x 2, nnz=2, float64, symmetric)"
    assert plain.symmetric is False
    assert plain.T.symmetric is False
    assert plain.T is plain.T
    assert plain.T.T is plain
    assert plain.to_torch() is plain.to_torch()
    if backend.has_native():
        assert plain.handle is plain.handle


def test_rows_of_features_out_of_range():
    features = Features.from_graph_array(np.arange(6.0).reshape(3, 2))
    assert features.rows([2, 0]).dense().tolist() == [[4, 5], [0, 1]]
    assert features.rows([]).shape == (0, 2)
    for rows in ([3], [-1], [0, 2, 3]):
        with pytest.raises(GraphError, match="row indices go from"):
            features.rows(rows)
    assert features.nnz == 6
    twice = features.rows([2, 0]).rows([1])  # dropout still goes by the first numbers
    assert twice.elements().tolist() == [[0, 1]]
    assert features.rows([2, 0]).elements().tolist() == [[4, 5], [0, 1]]
