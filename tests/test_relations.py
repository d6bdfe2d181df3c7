"""Directions and types of edges: values and gradients are those of dense algebra."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv
from tests.conftest import dense_operator
from tests.examples import examples
from tests.untidy import SEEDS

import hoplite
from hoplite import Graph, Split
from hoplite.bases import EXAMPLES, find_basis
from hoplite.engine import polynomial
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import Filter, KeptHops, WeightsFirst
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, DatasetError, GraphError, ModelFileError
from hoplite.explain import explain, flips
from hoplite.operators import OPERATORS, SYMMETRIC
from hoplite.theory.generalization import generalization


def arcs_graph(
    rng: np.random.Generator,
    n: int = 25,
    *,
    directed: bool = True,
    types: bool = True,
    dtype: Any = np.float64,
) -> Graph:
    """Weighted arcs of uneven types, repeated, with loops, and nodes that none leaves or enters."""
    edges = rng.integers(0, n - 2, (3 * n, 2))
    edges[: n // 2, 0] = rng.integers(0, 4, n // 2)  # a few that point to many
    labels = rng.integers(0, 3, n)
    labels[:3], labels[rng.permutation(np.arange(3, n))[: n // 6]] = [0, 1, 2], -1
    known = np.concatenate([[0, 1, 2], rng.permutation(np.flatnonzero(labels[3:] >= 0) + 3)])
    return Graph.from_edges(
        edges,
        rng.standard_normal((n, 4)).astype(dtype),
        labels,
        weights=rng.uniform(0.1, 50, len(edges)),
        directed=directed,
        types=rng.choice(["call", "pay", "pay", "pay"], len(edges)) if types else None,
        split=Split(known[:9], known[9:14], known[14:]),
        node_ids=[f"node {i}" for i in rng.permutation(n)],
    )


def dense_hops(graph: Graph, name: str, basis: str, hops: int) -> np.ndarray:
    """I, p_1(S_1) .. p_k(S_1), p_1(S_2) ..: (1 + R k, n, n)."""
    chosen, one = find_basis(basis), np.eye(graph.num_nodes)
    middle, half = chosen.mapping(*OPERATORS[name].spectrum)
    found = [one]
    for matrix in [dense_operator(one, name) for one in graph.relations]:
        moved, before, now = (matrix - middle * one) / half, one, one
        for a, b, g in chosen.steps(hops):
            before, now = now, (a * moved + b * one) @ now - g * before
            found.append(now)
    return np.stack(found)


@examples(25)
@given(
    seed=SEEDS,
    directed=st.booleans(),
    types=st.booleans(),
    operator=st.sampled_from(sorted(OPERATORS)),
    basis=st.sampled_from(EXAMPLES),
    hops=st.integers(0, 4),
    rows=st.sampled_from([[7], [3, 0, 3, 11, 24], list(range(25))]),
    tiles=st.booleans(),
    dropped=st.booleans(),
)
def test_values_and_gradients(
    seed: int,
    directed: bool,
    types: bool,
    operator: str,
    basis: str,
    hops: int,
    rows: list[int],
    tiles: bool,
    dropped: bool,
) -> None:
    rng = np.random.default_rng(seed)
    graph = arcs_graph(rng, directed=directed or not types, types=types)
    powers = dense_hops(graph, operator, basis, hops)
    dropout = Dropout(0.5, seed % 99, nodes=0.2) if dropped else None
    theta, c = rng.standard_normal((4, 3)), rng.standard_normal(len(powers))
    gradient = rng.standard_normal((len(rows), 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(polynomial, "TILE_ROWS", 65_536 if tiles else 0)
        source = Propagation(graph, operator, basis, hops)
        assert source.slices == len(powers)
        x = source.features.dense(dropout)
        every = powers[:, rows] @ x
        orders = [WeightsFirst(source, np.array(rows))]
        orders += [] if dropped else [KeptHops.of(source, np.array(rows))]
        found = [order.evaluate(Filter(theta, c), dropout) for order in orders]
        gradients = [one.gradient(gradient) for one in found]
        np.testing.assert_allclose(source.reach([5])[:, 0], powers[:, 5], atol=1e-9)
    for one, (by_map, by_scale) in zip(found, gradients, strict=True):
        close = {"rtol": 1e-8, "atol": 1e-8}
        np.testing.assert_allclose(one.values, np.einsum("k,knd,dm->nm", c, every, theta), **close)
        np.testing.assert_allclose(by_map, np.einsum("k,knd,nm->dm", c, every, gradient), **close)
        wanted = np.einsum("knd,dm,nm->k", every, theta, gradient)
        np.testing.assert_allclose(by_scale, wanted, **close)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_norms_and_transposes(name: str) -> None:
    for seed in range(5):
        graph = arcs_graph(np.random.default_rng(seed), types=False)
        out, into = [dense_operator(one, name) for one in graph.relations]
        assert np.linalg.norm(out, 2) <= OPERATORS[name].norm_bound + 1e-12
        np.testing.assert_allclose(into, out.T, atol=1e-14)
        own = OPERATORS[name].matrix(graph.relations[0], np.float64)
        np.testing.assert_allclose(own.toarray(), out, atol=1e-12)


def test_few_rows_read_in_the_direction_of_the_arcs() -> None:
    ring = np.column_stack([np.arange(40), np.roll(np.arange(40), -1)])
    graph = Graph.from_edges(ring, np.random.default_rng(0).normal(size=(40, 3)), directed=True)
    source = Propagation(graph, "adjacency", hops=2)
    near, rows = source.near(np.array([5, 20]))
    assert near.nodes is not None
    assert near.nodes.tolist() == [3, 4, 5, 6, 7, 18, 19, 20, 21, 22]
    np.testing.assert_allclose(near.hop_features(rows), source.hop_features()[:, [5, 20]])


def test_by_hand() -> None:
    """0 -> 1 (twice), 1 -> 2: out is what a node points to; weights of one way are summed."""
    graph = Graph.from_edges(
        [(0, 1), (0, 1), (1, 2)], np.eye(3), weights=[1.0, 2.0, 5.0], directed=True
    )
    out, into = graph.relations
    assert (out.name, into.name, out.loop_weight) == ("out", "in", 4.0)
    assert out.adjacency.toarray().tolist() == [[0, 3, 0], [0, 0, 5], [0, 0, 0]]
    assert into.adjacency.toarray().tolist() == [[0, 0, 0], [3, 0, 0], [0, 5, 0]]
    found = OPERATORS["adjacency"].matrix(out, np.float64).toarray()
    np.testing.assert_allclose(found, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    typed = Graph.from_edges([(0, 1), (1, 0), (1, 2)], np.eye(3), types=["b", "b", "a"])
    assert list(typed.relation_weights) == ["a", "b"]
    assert typed.relations[1].adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert Graph.from_edges([(0, 1)], np.eye(2), types=["a"], directed=True).relation_weights == {
        "a:out": 1.0, "a:in": 1.0,
    }  # fmt: skip


def test_one_undirected_type_is_the_plain_model() -> None:
    """To the bit: the relation is the graph itself."""
    rng = np.random.default_rng(1)
    edges, x, labels = rng.integers(0, 30, (80, 2)), rng.random((30, 5)), rng.integers(0, 2, 30)
    split = Split(range(0, 30, 2), range(1, 30, 2))
    options: dict[str, Any] = {"weights": rng.random(80), "split": split}
    plain = Graph.from_edges(edges, x, labels, **options)
    typed = Graph.from_edges(edges, x, labels, types=["t"] * 80, **options)
    for start in ("random", "lowpass"):
        settings = {"hops": 3, "epochs": 8, "seeds": 2, "dropout": 0.3, "start": start}
        ours, theirs = (hoplite.train(one, "lgc", **settings) for one in (typed, plain))
        for one, other in zip(ours.runs, theirs.runs, strict=True):
            np.testing.assert_array_equal(one.model.logits(typed), other.model.logits(plain))
        np.testing.assert_array_equal(
            ours.model.filter_coefficients_, theirs.model.filter_coefficients_[None, :]
        )


def test_saved_and_explained(tmp_path: Path) -> None:
    graph = arcs_graph(np.random.default_rng(5))
    model = hoplite.train(graph, "lgc", hops=2, epochs=5, bias=True).model
    again = hoplite.TrainedModel.load(model.save(tmp_path / "m"))
    assert again.relations == graph.relation_weights
    np.testing.assert_array_equal(again.logits(graph), model.logits(graph))
    assert again.filter_coefficients_.shape == (4, 3)
    sent = pickle.loads(pickle.dumps(graph))  # as to the workers of a search
    np.testing.assert_array_equal(again.logits(sent), again.logits(graph))
    assert not sent.relations[0].adjacency.data.flags.writeable
    for node in (0, 7):
        found = explain(again, graph, graph.node_ids[node], alone=True)
        assert abs(found.residual) < 1e-9
        np.testing.assert_allclose(found.by_node.sum(), found.by_hop.sum())
        np.testing.assert_allclose(found.by_feature.sum(), found.by_hop.sum())
        theta = again.weights["theta"][:, again.class_names.index(found.class_)]
        hops = dense_hops(graph, "renormalized", "monomial", 2)[:, node]
        wanted = again.weights["alpha"] * (hops @ graph.features @ theta)
        np.testing.assert_allclose(found.by_hop, wanted, atol=1e-6)
        shown = [(part["hop"], part.get("relation")) for part in found.to_dict()["hops"]]
        assert shown == found.hops
        assert shown[:3] == [(0, None), (1, "call:out"), (2, "call:out")]
    with pytest.raises(hoplite.HopliteError, match="if removed, because"):
        flips(again, graph, graph.node_ids[0])


def test_other_graphs_at_prediction() -> None:
    """A type that lacks has no edges; one that is new is refused; weights are the model's."""
    rng = np.random.default_rng(6)
    graph, x = arcs_graph(rng, directed=False), rng.standard_normal((6, 4))
    model = hoplite.train(graph, "lgc", hops=2, epochs=5).model
    calls = Graph.from_edges([(0, 1), (1, 2)], x, types=["call"] * 2, weights=[1.0, 9.0])
    powers = [np.eye(6)]
    for weights, loop in ((calls.adjacency.toarray(), "call"), (np.zeros((6, 6)), "pay")):
        weights = weights + model.relations[loop] * np.eye(6)
        roots = weights.sum(axis=1) ** -0.5
        own = roots[:, None] * weights * roots
        powers += [own, own @ own]
    alpha, theta = (model.weights[name].astype(np.float64) for name in ("alpha", "theta"))
    wanted = sum(a * power @ x @ theta for a, power in zip(alpha, powers, strict=True))
    np.testing.assert_allclose(model.logits(calls), wanted, rtol=1e-6, atol=1e-7)
    with pytest.raises(ModelFileError, match=r"edges of type 'mail', which .* \(call, pay\)"):
        model.predict(Graph.from_edges([(0, 1)], x, types=["mail"]))
    with pytest.raises(ModelFileError, match=r"trained with them \(call, pay\)"):
        model.predict(Graph.from_edges([(0, 1)], x))
    plain = hoplite.train(Graph.from_edges([(0, 1)], x, [0, 1] * 3, split=Split([0, 1, 2])), "sgc",
                          hops=1, epochs=2).model  # fmt: skip
    with pytest.raises(ModelFileError, match=r"loaded with edge directions .* trained without"):
        plain.predict(calls)


def test_what_keeps_no_relations_says_so(tmp_path: Path) -> None:
    graph = arcs_graph(np.random.default_rng(0))
    fitted = hoplite.train(graph, "lgc", hops=1, epochs=1).model
    for call in (
        lambda: hoplite.propagate(graph, tmp_path / "s", hops=1),
        lambda: hoplite.io.write_npz(tmp_path / "g.npz", graph),
        lambda: hoplite.io.write_disk_graph(graph, tmp_path / "d"),
        lambda: hoplite.HopFeatures(graph, hops=1).fit_transform(np.arange(3)),
        lambda: hoplite.io.to_networkx(graph),
        lambda: hoplite.io.to_pyg(graph),
    ):
        with pytest.raises(ConfigError, match=r"has directed or typed edges \(call:out"):
            call()
    for call in (fitted.to_arrays, lambda: generalization(fitted, graph)):
        with pytest.raises(ConfigError, match=r"several operators|a polynomial per direction"):
            call()
    with pytest.raises(ConfigError, match="coefficients of shape"):
        hoplite.frequency_response(fitted)
    with pytest.raises(GraphError, match="types has a missing value"):
        Graph.from_edges([(0, 1)], np.eye(2), types=[None])


def tables(folder: Path) -> Path:
    rng = np.random.default_rng(4)
    names = [f"a{i}" for i in range(40)]
    nodes = {"id": names, "size": rng.random(40), "label": rng.choice(["x", "y"], 40)}
    ends = {name: rng.choice(names, 120) for name in ("source", "target")}
    edges = ends | {"weight": rng.random(120), "kind": rng.choice(["call", "pay"], 120)}
    folder.mkdir()
    csv.write_csv(pa.table(nodes), folder / "nodes.csv")
    csv.write_csv(pa.table(edges), folder / "edges.csv")
    return folder


def test_tables_in_every_way(tmp_path: Path) -> None:
    folder = tables(tmp_path / "t")
    graph = hoplite.load(folder, directed=True, type="kind")
    assert list(graph.relation_weights) == ["call:out", "call:in", "pay:out", "pay:in"]
    frames = [csv.read_csv(folder / f"{stem}.csv") for stem in ("nodes", "edges")]
    others = [hoplite.io.from_frames(*frames, directed=True, type="kind")]
    networkx = pytest.importorskip("networkx")
    made = networkx.MultiDiGraph()
    for row in frames[0].to_pylist():
        made.add_node(row.pop("id"), **row)
    for row in frames[1].to_pylist():
        made.add_edge(row["source"], row["target"], weight=row["weight"], kind=row["kind"])
    others.append(hoplite.io.from_networkx(made, directed=True, type="kind"))
    networkx.write_graphml(made, tmp_path / "g.graphml")
    others.append(hoplite.load(tmp_path / "g.graphml", directed=True, type="kind"))
    for other in others:
        for ours, theirs in zip(graph.relations, other.relations, strict=True):
            assert ours.name == theirs.name
            np.testing.assert_allclose(ours.adjacency.toarray(), theirs.adjacency.toarray())
    with pytest.raises(GraphError, match="directed is True but the graph is undirected"):
        hoplite.io.from_networkx(networkx.path_graph(3), directed=True, structural=1)
    with pytest.raises(DatasetError, match=r"has no column 'kinds' .*Did you mean 'kind'"):
        hoplite.load(folder, type="kinds")
    with pytest.raises(DatasetError, match=r"has no column 'kinds'"):
        hoplite.load(tmp_path / "g.graphml", type="kinds")
    with pytest.raises(ConfigError, match="directed= and type= are not supported"):
        hoplite.propagate(folder, tmp_path / "s", hops=1, directed=True, memory="300MB")
    model = hoplite.train(graph, "lgc", hops=1, epochs=2).model
    again = hoplite.load(folder, prepare=model)  # which knows how the tables are read
    np.testing.assert_array_equal(model.logits(again), model.logits(graph))
    np.testing.assert_allclose(model.logits(made), model.logits(graph), rtol=1e-5, atol=1e-6)


def test_pyg_keeps_directions_and_types() -> None:
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    pairs = torch.tensor([[0, 1, 2], [1, 2, 0]])
    data = pyg.Data(x=torch.eye(3), edge_index=pairs, edge_type=torch.tensor([0, 1, 1]))
    graph = hoplite.io.from_pyg(data, directed=True, type="edge_type")
    assert list(graph.relation_weights) == ["0:out", "0:in", "1:out", "1:in"]
    assert graph.relations[0].adjacency.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(GraphError, match="type is 'kind', but data has no edge attribute"):
        hoplite.io.from_pyg(data, type="kind")


def test_scipy_arcs_go_from_rows_to_columns() -> None:
    rng = np.random.default_rng(5)
    dense = rng.uniform(0.1, 9, (12, 12)) * (rng.random((12, 12)) < 0.3)
    features, labels = rng.standard_normal((12, 3)), [0, 1] * 6
    for matrix in (dense, sp.coo_matrix(dense), sp.csc_array(dense)):
        graph = hoplite.io.from_scipy(matrix, features, labels, directed=True)
        arcs = dense * (1 - np.eye(12))
        for relation, wanted in zip(graph.relations, (arcs, arcs.T), strict=True):
            np.testing.assert_allclose(relation.adjacency.toarray(), wanted)
        np.testing.assert_allclose(graph.adjacency.toarray(), np.maximum(arcs, arcs.T))
    opened = hoplite.open_data(sp.csr_array(dense), directed=True, structural=1)
    assert list(opened.relation_weights) == ["out", "in"]
    assert len(hoplite.io.from_scipy(dense, features, directed=False).relations) == 0
    with pytest.raises(ConfigError, match="directed is an option for reading data"):
        hoplite.train(graph, "lgc", hops=1, directed=True)
    with pytest.raises(ConfigError, match="type is an option of node and edge tables"):
        hoplite.open_data(sp.csr_array(dense), type="kind", structural=1)
