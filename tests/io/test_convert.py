"""Graphs of other libraries, with the libraries themselves: there, back, and to a model."""

import functools
import warnings

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import csv

import hoplite
from hoplite import DatasetError, Graph, GraphError, HopliteWarning
from hoplite.machine import quiet
from hoplite.structural import structural_features, structural_names

NODES = {
    "id": ["zoë", "7", "b c", "a", "alone", "x"],
    "label": ["cat", "ape", None, "ape", "cat", "cat"],
    "age": [3.0, -1.5, 0.0, 2.0, 8.0, 1.0],
    "town": ["Rome", None, "Oslo", "Rome", "Oslo", "Rome"],
    "size": [1, 2, 3, 4, 5, 6],
}
EDGES = {
    "source": ["zoë", "7", "b c", "zoë", "a", "x", "a"],
    "target": ["7", "zoë", "b c", "7", "b c", "a", "x"],
    "weight": [0.5, 4.0, 9.0, 2.0, 1.0, 3.0, 0.25],
}


@pytest.fixture
def club(tmp_path):
    """The graph that the CSV reader makes of the tables."""
    for name, table in (("nodes", NODES), ("edges", EDGES)):
        csv.write_csv(pa.table(table), tmp_path / f"{name}.csv")
    return hoplite.load(tmp_path)


def assert_same(one, other, *, names=True):
    np.testing.assert_allclose(one.adjacency.toarray(), other.adjacency.toarray(), rtol=1e-6)
    n = one.num_nodes
    np.testing.assert_array_equal(one.feature_rows(0, n), other.feature_rows(0, n))
    np.testing.assert_array_equal(one.labels, other.labels)
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(one.split, part), getattr(other.split, part))
    if names:
        assert one.node_ids == other.node_ids
        assert one.feature_names == other.feature_names
        assert one.class_names == other.class_names


def in_networkx(kind):
    """The tables as a NetworkX graph: gaps are None, or no attribute at all."""
    networkx = pytest.importorskip("networkx")
    graph = getattr(networkx, kind)()
    for i, node in enumerate(NODES["id"]):
        values = {name: NODES[name][i] for name in NODES if name != "id"}
        graph.add_node(node, **{k: v for k, v in values.items() if v is not None or i % 2})
    for u, v, w in zip(*EDGES.values(), strict=True):
        graph.add_edge(u, v, weight=w)
    return graph


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_follow_the_rules_of_tables(club, library):
    module = pytest.importorskip(library)
    make = module.table if library == "pyarrow" else module.DataFrame
    assert_same(hoplite.io.from_frames(make(NODES), make(EDGES)), club)
    for read in (hoplite.load, hoplite.open_data):
        assert_same(read((make(NODES), make(EDGES))), club)
    renamed = {{"id": "who", "label": "pet"}.get(name, name): NODES[name] for name in NODES}
    ends = {{"source": "from", "weight": "euros"}.get(name, name): EDGES[name] for name in EDGES}
    names = {"id": "who", "label": "pet", "source": "from", "weight": "euros"}
    graph = hoplite.io.from_frames(
        make(renamed), make(ends), features=["size"], name="club", **names
    )
    assert graph.feature_names == ("size",)
    assert graph.name == "club"
    np.testing.assert_array_equal(graph.adjacency.toarray(), club.adjacency.toarray())
    np.testing.assert_array_equal(graph.labels, club.labels)
    with pytest.raises(DatasetError, match=r"nodes has no column 'pt'.*'pet'"):
        hoplite.io.from_frames(make(renamed), make(ends), **names | {"label": "pt"})
    with pytest.raises(DatasetError, match="edges has no column 'source'"):
        hoplite.io.from_frames(make(NODES), make(ends))
    assert hoplite.io.from_frames(make(NODES), make(EDGES), label=None).num_classes == 0


def test_pandas_as_people_have_it(club):
    pandas = pytest.importorskip("pandas")
    nodes, edges = pandas.DataFrame(NODES), pandas.DataFrame(EDGES)
    shuffled = nodes.sample(frac=1, random_state=0)  # an index that numbers other rows
    again = hoplite.io.from_frames(shuffled, edges)
    order = [again.node_ids.index(node) for node in club.node_ids]
    np.testing.assert_array_equal(again.adjacency.toarray()[order][:, order],
                                  club.adjacency.toarray())  # fmt: skip
    indexed = nodes.astype({"town": "category"}).set_index("id")
    assert_same(hoplite.io.from_frames(indexed, edges), club)
    mixed = nodes.assign(odd=[1, "a", 2.5, None, True, b"x"])
    with pytest.raises(
        DatasetError, match=r"column 'odd' of nodes mixes values of the types bool.*one type"
    ):
        hoplite.io.from_frames(mixed, edges)
    with pytest.raises(DatasetError, match="nodes has type list; pass a pandas"):
        hoplite.io.from_frames([1], edges)
    with pytest.raises(DatasetError, match="nodes has no rows"):
        hoplite.io.from_frames(nodes[:0], edges)
    assert hoplite.io.from_frames(nodes, edges[:0]).num_edges == 0


def test_networkx_follows_the_rules_of_tables(club):
    assert_same(hoplite.io.from_networkx(in_networkx("MultiDiGraph")), club)
    simple = hoplite.io.from_networkx(
        in_networkx("Graph")
    )  # where the last weight of an edge holds
    np.testing.assert_array_equal(simple.adjacency.toarray() > 0, club.adjacency.toarray() > 0)
    chosen = hoplite.io.from_networkx(
        in_networkx("Graph"), features=["age"], label="town", weight=None
    )
    assert chosen.feature_names == ("age",)
    assert chosen.class_names == ("Oslo", "Rome")
    assert set(chosen.adjacency.data) == {1}
    assert_same(hoplite.io.from_networkx(hoplite.io.to_networkx(club), scale="none"), club)


def test_networkx_nodes_are_any_hashable_and_attributes_may_be_vectors():
    networkx = pytest.importorskip("networkx")
    grid = networkx.grid_2d_graph(4, 3)
    for node in grid:
        grid.nodes[node].update(id="n", x=np.array(node, float), label=node[0] > 1)
    graph = hoplite.io.from_networkx(grid, scale="none")
    assert graph.node_ids == tuple(grid)
    assert graph.feature_names == ("x[0]", "x[1]")
    assert set(graph.class_names) == {"false", "true"}
    np.testing.assert_array_equal(graph.features, np.array(list(grid), np.float32))
    np.testing.assert_array_equal(
        graph.adjacency.toarray(), networkx.to_numpy_array(grid, dtype=np.float32)
    )
    grid.nodes[0, 0]["x"] = "text"
    with pytest.raises(
        DatasetError, match="column 'x' of nodes mixes values of the types ndarray, str"
    ):
        hoplite.io.from_networkx(grid)
    with pytest.raises(DatasetError, match="graph has no nodes"):
        hoplite.io.from_networkx(networkx.Graph())


def test_igraph_follows_the_rules_of_tables(club):
    igraph = pytest.importorskip("igraph")
    place = {node: i for i, node in enumerate(NODES["id"])}
    graph = igraph.Graph(
        n=len(place),
        edges=[(place[u], place[v]) for u, v in zip(EDGES["source"], EDGES["target"], strict=True)],
        directed=True,
        vertex_attrs={{"id": "name"}.get(name, name): NODES[name] for name in NODES},
        edge_attrs={"weight": EDGES["weight"]},
    )
    assert_same(hoplite.io.from_igraph(graph), club)
    plain = igraph.Graph.Ring(5)
    with pytest.warns(HopliteWarning, match="has no features, so structural features"):
        ring = hoplite.open_data(plain)
    assert ring.node_ids == (0, 1, 2, 3, 4)
    graph.vs["name"] = ["twice"] * len(place)
    with pytest.raises(GraphError, match="node_ids"):
        hoplite.io.from_igraph(graph)
    assert ring.feature_names == structural_names(32)


def test_pyg_and_back(graphs):
    pytest.importorskip("torch_geometric")
    for weighted in (True, False):
        graph = graphs(n=50, d=6, dtype=np.float32, weighted=weighted)
        data = hoplite.io.to_pyg(graph)
        assert data.is_undirected()
        assert ("edge_weight" in data) is weighted
        assert_same(hoplite.io.from_pyg(data), graph, names=False)
        again = hoplite.io.to_pyg(hoplite.open_data(data))
        np.testing.assert_array_equal(again.edge_index, data.edge_index)


def test_pyg_as_people_have_it():
    pytest.importorskip("torch_geometric")
    import torch

    with quiet():
        from torch_geometric.data import Data, HeteroData
        from torch_geometric.transforms import ToSparseTensor
    rng = np.random.default_rng(0)
    ends = torch.from_numpy(rng.integers(0, 9, (2, 30)))  # duplicates, both directions, self-loops
    weight = torch.from_numpy(rng.uniform(0.1, 5, 30))
    masks = torch.from_numpy(rng.integers(0, 3, (10, 4)))
    masks[:2] = 0  # a training node of each class
    data = Data(
        x=torch.from_numpy(rng.normal(size=(10, 3))).float(),
        edge_index=ends,
        edge_attr=weight[:, None],
        y=torch.tensor([[0.0], [1], [1], [0], [1], [float("nan")], [0], [float("nan")], [1], [0]]),
        **{f"{part}_mask": masks == i for i, part in enumerate(("train", "val", "test"))},
    )
    dense = np.zeros((10, 10))
    np.add.at(dense, tuple(ends.numpy()), weight.numpy())
    np.fill_diagonal(dense, 0)
    for which in (None, 3):
        graph = hoplite.io.from_pyg(data, split=which, task="classification")
        np.testing.assert_allclose(graph.adjacency.toarray(), np.maximum(dense, dense.T))
        assert graph.labels.tolist() == [0, 1, 1, 0, 1, -1, 0, -1, 1, 0]
        known = np.isin(np.arange(10), [5, 7], invert=True)
        for i, part in enumerate(("train", "val", "test")):
            wanted = np.flatnonzero((masks[:, which or 0].numpy() == i) & known)
            np.testing.assert_array_equal(getattr(graph.split, part), wanted)
        assert graph.split.note == f"from the masks, split {which or 0} of 0 to 3"
    assert hoplite.io.from_pyg(data).labels.dtype == float
    with pytest.raises(hoplite.ConfigError, match="split"):
        hoplite.io.from_pyg(data, split=4)
    with quiet():
        sparse = ToSparseTensor(attr="edge_attr", layout=torch.sparse_csr)(data.coalesce())
    turned = hoplite.io.from_pyg(sparse)
    np.testing.assert_allclose(turned.adjacency.toarray(), graph.adjacency.toarray())
    data.edge_attr = torch.ones(30, 2)
    with pytest.warns(HopliteWarning, match="2 attributes each, which cannot be used as weights"):
        assert set(hoplite.io.from_pyg(data).adjacency.data) == {1}
    bare = Data(edge_index=ends, num_nodes=12)
    np.testing.assert_array_equal(
        hoplite.io.from_pyg(bare, structural=3).features, structural_features(hoplite.io.from_pyg(
            Data(edge_index=ends, x=torch.ones(12, 1))), 3))  # fmt: skip
    with pytest.raises(GraphError, match="data is a HeteroData"):
        hoplite.io.from_pyg(HeteroData())
    read = functools.partial(
        hoplite.io.from_pyg, Data(x=torch.ones(3, 1), y=torch.tensor([0.5, -1, 1]))
    )
    assert read().labels.tolist() == [0.5, -1, 1]  # numbers
    assert read(task="classification").class_names == ("-1", "0.5", "1")
    whole = Data(x=torch.ones(3, 1), y=torch.tensor([0.0, -1, torch.nan]))
    np.testing.assert_array_equal(
        hoplite.io.from_pyg(whole).labels, Graph.from_edges([], np.ones((3, 1)), whole.y).labels
    )
    assert hoplite.io.from_pyg(whole, task="classification").class_names == ("-1", "0")
    several = Data(x=torch.ones(3, 1), y=torch.tensor([[1.0, 1], [1, 1], [torch.nan, torch.nan]]))
    assert hoplite.io.from_pyg(several).labels.tolist() == [[1, 1], [1, 1], [-1, -1]]


def test_scipy_against_dense():
    rng = np.random.default_rng(2)
    dense = rng.uniform(0, 3, (12, 12)) * (rng.random((12, 12)) < 0.2)
    names = ["b", None, "a", "", "b", "a", "b", "a", "b", "a", float("nan"), " a "]
    for given in (dense, sp.coo_matrix(dense), sp.csc_array(dense)):
        graph = hoplite.io.from_scipy(given, np.eye(12), np.array(names, object), name="mine")
        both = np.maximum(dense, dense.T)
        np.fill_diagonal(both, 0)
        np.testing.assert_allclose(graph.adjacency.toarray(), both)
        assert graph.labels.tolist() == [1, -1, 0, -1, 1, 0, 1, 0, 1, 0, -1, 0]
        assert (graph.class_names, graph.name) == (("a", "b"), "mine")
        assert sum(graph.split.sizes().values()) == 9
    with pytest.raises(GraphError, match="must be square"):
        hoplite.io.from_scipy(sp.eye_array(2, 3))


def test_a_model_knows_its_structural_features(tmp_path):
    networkx = pytest.importorskip("networkx")
    club = networkx.karate_club_graph()
    model = hoplite.train(hoplite.io.from_networkx(club, label="club", structural=4), "sgc").model
    for node in club:
        del club.nodes[node]["club"]
    wanted = model.predict_proba(hoplite.io.from_networkx(club, structural=4))
    with pytest.warns(HopliteWarning, match="a different meaning on a graph with other edges"):
        np.testing.assert_array_equal(model.predict_proba(club), wanted)
    lines = [f"{u} {v} {w}" for u, v, w in club.edges(data="weight")]
    (tmp_path / "club.txt").write_text("\n".join(lines))
    with pytest.warns(HopliteWarning, match="a different meaning on a graph with other edges"):
        again = hoplite.open_data(tmp_path / "club.txt", prepare=model)
    np.testing.assert_allclose(model.predict_proba(again), wanted, atol=1e-5)


def test_structural_features(graphs):
    """They are the eigenvectors of dense algebra, and the same from both solvers and every time."""
    graph = graphs(n=700, d=1, density=0.02, isolated=40)
    found = structural_features(graph, 5)
    np.testing.assert_array_equal(found, structural_features(graph, 5))
    dense = graph.adjacency.toarray().astype(float)
    degrees = dense.sum(axis=1)
    roots = np.where(degrees > 0, degrees, np.inf) ** -0.5
    operator = roots[:, None] * dense * roots
    for j in range(5):
        vector = found[:, 2 + j].astype(float)
        value = vector @ operator @ vector / (vector @ vector)
        np.testing.assert_allclose(operator @ vector, value * vector, atol=1e-3)
        np.testing.assert_allclose((vector**2).mean(), value**2, rtol=1e-3)
        assert vector[abs(vector).argmax()] > 0
    assert abs(np.linalg.eigvalsh(operator)).max() == pytest.approx(1)
    np.testing.assert_allclose(found[:, 0], degrees / degrees.mean(), rtol=1e-5)
    np.testing.assert_allclose(found[:, 1], np.log1p(degrees / graph.loop_weight), rtol=1e-5)
    cents = Graph(100 * graph.adjacency, graph.features)
    np.testing.assert_allclose(structural_features(cents, 0), found[:, :2], rtol=1e-5)
    assert not found[degrees == 0].any()
    few = Graph.from_edges([(0, 1)], np.empty((2, 0)))
    assert structural_features(few, 4).shape == (2, 6)


def test_tensors_of_any_kind_are_arrays(graphs):
    torch = pytest.importorskip("torch")
    graph = graphs()
    dense = torch.tensor(graph.adjacency.toarray(), dtype=torch.float32)
    x = torch.from_numpy(np.array(graph.feature_rows(0, graph.num_nodes))).float()
    y = torch.from_numpy(np.array(graph.labels))
    pairs = dense.nonzero()
    expected = Graph(dense.numpy(), x.numpy(), graph.labels)
    with quiet():  # sparse CSR is new
        inputs = [
            (dense.to_sparse_coo(), x.to_sparse_csr()),
            (dense.to_sparse_csr(), x.clone().requires_grad_()),
            (dense.clone().requires_grad_(), torch.nn.Parameter(x)),
        ]
    for adjacency, features in inputs:
        assert Graph(adjacency, features, y).fingerprint() == expected.fingerprint()
        assert hoplite.io.from_scipy(adjacency, features, y).num_edges == expected.num_edges
        weights = dense[pairs[:, 0], pairs[:, 1]].requires_grad_()
        other = Graph.from_edges(pairs, features, y, weights=weights)
        assert other.fingerprint() == expected.fingerprint()
    rough = Graph.from_edges(pairs, x.bfloat16(), y)
    np.testing.assert_allclose(rough.feature_rows(0, 5), x[:5].bfloat16().float())


def test_masks_of_another_length_and_of_integers():
    torch = pytest.importorskip("torch")
    Data = pytest.importorskip("torch_geometric.data").Data
    data = Data(x=torch.ones(6, 1), y=torch.tensor([0, 1, 0, 1, 0, 1]))
    data.train_mask = torch.tensor([True, True, False, False])
    with pytest.raises(GraphError, match="train_mask has 4 values but the graph has 6 nodes"):
        hoplite.io.from_pyg(data)
    with pytest.raises(GraphError, match=r"pass split.train.astype\(bool\)"):
        hoplite.Split(train=np.array([0, 1, 0, 1]))


def test_floats_that_look_like_classes_are_numbers_with_a_warning():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 40).astype(float)
    labels[5] = np.nan
    graph = Graph.from_edges(rng.integers(0, 40, (80, 2)), rng.random((40, 3)), labels)
    graph = graph.with_split(hoplite.io.stratified_split(graph.labels, 0))
    with pytest.warns(HopliteWarning, match="only 3 different ones"):
        assert hoplite.train(graph, "sgc", epochs=1).task.name == "regression"
    with warnings.catch_warnings(record=True, action="always") as caught:
        assert hoplite.train(graph, "sgc", epochs=1, task="regression").task.name == "regression"
        classes = hoplite.train(graph, "sgc", epochs=1, task="classification").model.class_names
    assert classes == ("0", "1", "2")
    assert not any("different ones" in str(one.message) for one in caught)
