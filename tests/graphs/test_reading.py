"""Sets of graphs from tables, databases, TU folders, files and other libraries' graphs."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from hoplite import GraphClassifier, load
from hoplite.errors import ConfigError, DatasetError, GraphError, ModelFileError
from hoplite.graph import Graph
from hoplite.graphs import (
    GraphSet,
    is_graph_set,
    load_graphs,
    train_graphs,
    write_graph_files,
    write_graphs,
)

pytestmark = pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
GRAPHS = """graph,label,split
m1,toxic,train
m2,safe,train
m3,safe,val
m4,toxic,test
m5,,
"""
NODES = """graph,id,element,charge
m2,b,C,0.5
m1,a,C,1
m1,b,N,3
m3,a,O,
m4,a,C,1000
m4,b,Br,-1000
m2,a,N,0.5
m5,x,C,2
"""
EDGES = """graph,source,target
m1,a,b
m2,b,a
m4,a,b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("graphs", GRAPHS), ("nodes", NODES), ("edges", EDGES)):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    return tmp_path


def by_name(graphs: GraphSet, graph: str) -> np.ndarray:
    found = graphs.graph(graphs.index(graph))
    order = np.argsort([str(name) for name in found.node_ids or ()])
    return np.asarray(found.features)[order]


def test_tables_become_a_set(folder: Path) -> None:
    graphs = load_graphs(folder)
    assert is_graph_set(folder)
    assert graphs.graph_ids == ["m1", "m2", "m3", "m4", "m5"]
    assert graphs.sizes.tolist() == [2, 2, 1, 2, 1]
    assert graphs.class_names == ("safe", "toxic")
    assert graphs.table.labels.tolist() == [1, 0, 0, 1, -1]
    assert graphs.table.split.sizes() == {"train": 2, "val": 1, "test": 1}
    assert graphs.adjacency.nnz == 6
    assert graphs.graph(1).num_edges == 1


def test_columns_are_fitted_to_training_graphs(folder: Path) -> None:
    """Neither the charges of test graphs nor their elements change what others look like."""
    before = load_graphs(folder)
    assert not any(
        "Br" in name or "O" in name.split("=")[-1] for name in before.feature_names or ()
    )
    text = NODES.replace("m4,a,C,1000", "m4,a,C,-7").replace("m4,b,Br,-1000", "m4,b,Zn,1")
    (folder / "nodes.csv").write_text(text, encoding="utf-8")
    after = load_graphs(folder)
    assert after.feature_names == before.feature_names
    for graph in ("m1", "m2", "m3", "m5"):
        np.testing.assert_array_equal(by_name(after, graph), by_name(before, graph))


@pytest.mark.parametrize("library", ["tables", "networkx", "igraph"])
def test_columns_are_fitted_to_the_training_graphs_of_a_drawn_split(library: str) -> None:
    source = pytest.importorskip("igraph" if library == "igraph" else "networkx")

    def loaded(charge: float, others: np.ndarray) -> GraphSet:
        charges = np.where(np.isin(np.arange(20), others), charge, np.arange(20.0))
        nodes = pd.DataFrame({"graph": range(20), "id": 0, "charge": charges, "tag": charges > 99})
        labels = ["ab"[g % 2] for g in range(20)]
        if library == "tables":
            edges = pd.DataFrame({"graph": [0], "source": [0], "target": [0]})
            graphs = pd.DataFrame({"graph": range(20), "label": labels})
            return load_graphs((graphs, nodes.astype({"tag": str}), edges), seed=0)
        lists = [source.Graph() for _ in range(20)]
        for graph, x in zip(lists, charges.tolist(), strict=True):
            add = graph.add_vertex if library == "igraph" else graph.add_node
            add("a", charge=x, tag=str(x > 99))
        return load_graphs(lists, labels=labels, seed=0, scale="robust")

    split = loaded(0, np.empty(0)).table.split
    others = np.concatenate([split.val, split.test])
    high, low = loaded(1e3, others), loaded(-1e6, others)
    assert high.preparation == low.preparation
    np.testing.assert_array_equal(high.table.split.train, split.train)


def test_a_label_column_that_does_not_exist_is_named_with_those_that_do(folder: Path) -> None:
    with pytest.raises(DatasetError, match=r"no column 'toxicity' .*'label', 'split'"):
        load_graphs(folder, label="toxicity")


def test_nodes_that_only_edges_name_are_created(folder: Path) -> None:
    (folder / "edges.csv").write_text(EDGES + "m3,a,z\n", encoding="utf-8")
    assert load_graphs(folder, unknown_nodes="create").sizes.tolist() == [2, 2, 2, 2, 1]


def test_databases_and_frames_say_the_same(folder: Path, tmp_path: Path) -> None:
    expected = load_graphs(folder)
    tables = {stem: folder / f"{stem}.csv" for stem in ("graphs", "nodes", "edges")}
    with duckdb.connect(str(tmp_path / "set.duckdb")) as database:
        for stem, path in tables.items():
            database.execute(f"CREATE TABLE {stem} AS FROM read_csv('{path}')")
        frames = tuple(database.execute(f"FROM {stem}").df() for stem in tables)
    database = sqlite3.connect(tmp_path / "set.sqlite")
    for (stem, _), frame in zip(tables.items(), frames, strict=True):
        frame.to_sql(stem, database, index=False)
    database.close()
    for source in (tmp_path / "set.duckdb", tmp_path / "set.sqlite", frames):
        assert is_graph_set(source)
        found = load_graphs(source)
        assert (found.adjacency != expected.adjacency).nnz == 0
        np.testing.assert_allclose(found.features, expected.features, atol=1e-6)
        np.testing.assert_array_equal(found.table.labels, expected.table.labels)


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("nodes", "m5,x", "m9,x", "graphs that are not in"),
        ("nodes", "m1,b,N", "m1,a,N", "in data rows"),
        ("edges", "m1,a,b", "m1,a,z", "to an unknown node"),
        ("edges", "m1,a,b", "m3,a,b", "to an unknown node"),  # b is a node of other graphs
        ("edges", "graph,source", "g,source", "no column 'graph'"),
        ("graphs", "m2,safe", "m1,safe", "in data rows"),
        ("graphs", "safe,val", "safe,vl", "split"),
    ],
)
def test_damaged_tables_are_one_sentence(
    folder: Path, table: str, old: str, new: str, message: str
) -> None:
    path = folder / f"{table}.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(DatasetError, match=message):
        load_graphs(folder)


def test_new_graphs_are_prepared_as_those_of_the_training(folder: Path, tmp_path: Path) -> None:
    graphs = load_graphs(folder)
    new = tmp_path / "new"
    new.mkdir()
    (new / "graphs.csv").write_text("graph\nz\n", encoding="utf-8")
    (new / "nodes.csv").write_text("graph,id,element,charge\nz,1,C,1\nz,2,U,3\n", encoding="utf-8")
    (new / "edges.csv").write_text("graph,source,target\nz,1,2\n", encoding="utf-8")
    found = load_graphs(new, prepare=graphs.preparation)
    assert found.feature_names == graphs.feature_names
    np.testing.assert_array_equal(by_name(found, "z")[0], by_name(graphs, "m1")[0])
    known = graphs.select([0, 1, 2, 3])
    fitted = GraphClassifier("hops", hops=1, folds=2).fit(known, known.labels)
    assert fitted.predict(known)[:1] == fitted.predict([graphs[0]])
    with pytest.raises(ModelFileError, match="'charge' was prepared differently"):
        fitted.predict(load_graphs(new))


def test_a_tu_folder(tmp_path: Path) -> None:
    files = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n2\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "3\n5\n3\n3\n9\n",
        "node_attributes": "0.5, 1\n1, 2\n2, 3\n3, 4\n4, 5\n",
    }
    for name, text in files.items():
        (tmp_path / f"TOY_{name}.txt").write_text(text, encoding="utf-8")
    graphs = load_graphs(tmp_path)
    assert is_graph_set(tmp_path)
    assert repr(graphs) == "GraphSet(graphs=2, nodes=5, edges=3, features=5, classes=2)"
    assert graphs.class_names == ("-1", "1")
    assert graphs.table.labels.tolist() == [1, 0]
    assert (graphs.feature_names or ())[:3] == ("tag=3", "tag=5", "tag=9")
    (tmp_path / "TOY_A.txt").write_text("1\n2\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"edges has shape \(2, 1\).*[^.]\.$"):
        load_graphs(tmp_path)
    (tmp_path / "TOY_A.txt").write_text("", encoding="utf-8")
    assert repr(load_graphs(tmp_path)).startswith("GraphSet(graphs=2, nodes=5, edges=0")
    (tmp_path / "TOY_A.txt").write_text(files["A"], encoding="utf-8")
    (tmp_path / "TOY_graph_indicator.txt").write_text("2\n1\n2\n2\n2\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="must increase"):
        load_graphs(tmp_path)
    (tmp_path / "TOY_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="connects two graphs"):
        load_graphs(tmp_path)
    (tmp_path / "TOY_graph_indicator.txt").write_text("1\n1\n2\n2\n9000000000", encoding="utf-8")
    for _ in range(2):  # with labels, and without
        with pytest.raises(DatasetError, match="graph 9,000,000,000 of"):
            load_graphs(tmp_path)
        (tmp_path / "TOY_graph_labels.txt").unlink(missing_ok=True)


def test_many_tags_are_sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {
        "node_counts": np.array([2, 3]),
        "edge_counts": np.array([1, 2]),
        "edge_source": np.array([0, 0, 1]),
        "edge_target": np.array([1, 1, 2]),
        "node_tags": np.array([4, 2, 9, 4, 7]),
        "node_attributes": np.arange(5, dtype=np.float32)[:, None] - 2,
    }
    np.savez(tmp_path / "tags.npz", **arrays)  # pyright: ignore[reportArgumentType]
    dense = load_graphs(tmp_path / "tags.npz")
    codes = np.eye(4)[[1, 0, 3, 1, 2]]
    np.testing.assert_array_equal(dense.features, np.hstack([codes, arrays["node_attributes"]]))
    monkeypatch.setattr("hoplite.graphs.files.MAX_DENSE", 4)
    sparse = load_graphs(tmp_path / "tags.npz")
    assert sp.issparse(sparse.features)
    np.testing.assert_array_equal(sparse.features.toarray(), dense.features)
    assert sparse.feature_names == dense.feature_names


def test_npz_and_back(small: GraphSet, tmp_path: Path) -> None:
    write_graphs(tmp_path / "small.npz", small)
    assert is_graph_set(tmp_path / "small.npz")
    again = load_graphs(tmp_path / "small.npz")
    assert (again.adjacency != small.adjacency).nnz == 0
    np.testing.assert_array_equal(again.features, small.features)
    np.testing.assert_array_equal(again.table.labels, small.table.labels)
    np.testing.assert_array_equal(again.table.split.val, small.table.split.val)
    assert again.class_names == small.class_names
    with pytest.raises(ConfigError, match="split"):
        load_graphs(tmp_path / "small.npz", split=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("edge_target", np.array([1, 99], np.uint8)),
        ("node_counts", np.array([-1, 4])),
        ("node_counts", np.array([2, 4 * 10**9])),
        ("node_counts", np.array([2**62, 2**62, 2**62, 2**62, 4])),
        ("edge_counts", np.array([1])),
        ("edge_counts", np.array([1, 4 * 10**9])),
        ("node_tags", np.array([0, 1, 2])),
        ("tag_values", np.array([5])),
        ("node_attributes", np.array([[object()]] * 4)),
    ],
)
def test_damaged_npz_files_are_refused(tmp_path: Path, name: str, value: np.ndarray) -> None:
    arrays = {
        "node_counts": np.array([2, 2]),
        "edge_counts": np.array([1, 1]),
        "edge_source": np.array([0, 0]),
        "edge_target": np.array([1, 1]),
        "graph_labels": np.array([0, 1]),
        "node_tags": np.array([0, 1, 1, 0]),
        "tag_values": np.array([5, 7]),
    }
    np.savez(tmp_path / "sound.npz", **arrays)  # pyright: ignore[reportArgumentType]
    assert len(load_graphs(tmp_path / "sound.npz")) == 2
    np.savez(tmp_path / "bad.npz", **(arrays | {name: value}))  # pyright: ignore
    with pytest.raises(DatasetError):
        load_graphs(tmp_path / "bad.npz")


def test_npz_files_without_features_have_a_limit(tmp_path: Path) -> None:
    none = np.empty(0, np.int64)
    arrays = {"node_counts": np.array([4 * 10**9]), "edge_counts": np.array([0])}
    np.savez(tmp_path / "large.npz", edge_source=none, edge_target=none, **arrays)  # pyright: ignore
    with pytest.raises(DatasetError, match="too large"):
        load_graphs(tmp_path / "large.npz")


def test_files_keep_ids_and_preparation(folder: Path, tmp_path: Path) -> None:
    graphs = load_graphs(folder)
    write_graphs(tmp_path / "one.npz", graphs)
    write_graph_files(tmp_path / "many", [graphs])
    model = train_graphs(graphs, "hops", hops=1).model
    for path in (tmp_path / "one.npz", tmp_path / "many"):
        again = load_graphs(path)
        for name in ("graph_ids", "node_ids", "feature_names", "preparation"):
            assert getattr(again, name) == getattr(graphs, name)
        np.testing.assert_allclose(model.logits(again), model.logits(graphs), atol=1e-6)
        with pytest.raises(DatasetError, match=r"use hoplite\.load_graphs"):
            load(path)
    with pytest.raises(DatasetError, match=r"use hoplite\.load_graphs"):
        load(folder)
    with pytest.raises(GraphError, match="two graphs have the id"):
        write_graph_files(tmp_path / "many", [graphs, graphs])
    other = dataclasses.replace(graphs, preparation=None)
    with pytest.raises(GraphError, match="differ in preparation"):
        write_graph_files(tmp_path / "many", [graphs, other])


def test_lists_of_networkx_graphs() -> None:
    nx = pytest.importorskip("networkx")
    one, two = nx.path_graph(["a", "b"]), nx.cycle_graph(3)
    nx.set_node_attributes(one, {"a": "C", "b": "N"}, "element")
    nx.set_node_attributes(two, "C", "element")
    graphs = load_graphs([one, two], labels=["x", "y"])
    assert is_graph_set([one, two])
    assert graphs.sizes.tolist() == [2, 3]
    assert graphs.class_names == ("x", "y")
    assert graphs.adjacency.nnz == 8


def test_lists_of_igraph_graphs_have_the_names_of_their_vertices() -> None:
    igraph = pytest.importorskip("igraph")
    plain, several = igraph.Graph.Ring(3), igraph.Graph([(0, 1), (0, 1)])
    for graph in (plain, several):
        graph.vs["name"] = [f"v{i}" for i in range(graph.vcount())]
        graph.vs["charge"] = [0.5 * i for i in range(graph.vcount())]
    graphs = load_graphs([plain, several], labels=["ring", "pair"])
    assert graphs.feature_names == ("charge",)
    assert graphs.node_ids == ["v0", "v1", "v2", "v0", "v1"]
    nx = pytest.importorskip("networkx")
    again = load_graphs([igraph.Graph.from_networkx(nx.path_graph(["a", "b"]))], labels=[0])
    assert (again.node_ids, again.num_features) == (["a", "b"], 0)


def test_lists_of_networkx_graphs_may_have_several_types() -> None:
    nx = pytest.importorskip("networkx")
    pairs = [("a", "b"), ("b", "c")]
    types = (nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph)
    graphs = load_graphs([nx.Graph(), *(make(pairs) for make in types)], labels=[0, 1, 0, 1, 0])
    assert graphs.sizes.tolist() == [0, 3, 3, 3, 3]
    assert all((graphs[g].adjacency != graphs[1].adjacency).nnz == 0 for g in range(2, 5))
    with pytest.raises(ConfigError, match="directed"):
        load_graphs([nx.DiGraph(pairs)], labels=[0], directed=True)


def test_graphs_without_labels_are_not_trained_on(small: GraphSet) -> None:
    with pytest.raises(GraphError, match="no training graph"):
        train_graphs(small.with_labels(None))


def test_labels_of_pyg_graphs_may_be_missing() -> None:
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")

    def labels(*values: Any) -> Any:
        edges = torch.empty(2, 0).long()
        data = [pyg.Data(x=torch.ones(1, 1), edge_index=edges, y=value) for value in values]
        return load_graphs(data).labels

    np.testing.assert_array_equal(labels(torch.tensor([1]), None, 0), [1, -1, 0])
    np.testing.assert_array_equal(labels(torch.tensor([[1, 0]]), None), [[1, 0], [-1, -1]])
    np.testing.assert_array_equal(labels(torch.tensor([[0.5]]), None), [0.5, np.nan])
    np.testing.assert_array_equal(labels(torch.tensor([3])), [3])  # of a model with more classes
    assert labels(None, None).tolist() == [-1, -1]
    with pytest.raises(GraphError, match="y has 1 to 2 values"):
        labels(torch.tensor([1]), torch.tensor([1, 0]))


def test_lists_of_pyg_graphs() -> None:
    torch, pyg = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    pairs = torch.tensor([[0, 1], [1, 2]])
    data = [
        pyg.Data(x=torch.eye(3), edge_index=pairs, y=torch.tensor([1])),
        pyg.Data(x=torch.ones(2, 3), edge_index=torch.empty(2, 0).long(), y=torch.tensor([0])),
    ]
    graphs = load_graphs(data)
    assert graphs.table.labels.tolist() == [1, 0]
    assert graphs.adjacency.nnz == 4
    assert graphs.num_features == 3
    bonds = pyg.Data(edge_index=pairs, edge_attr=torch.tensor([[2.0], [3.0]]), num_nodes=4)
    graphs = load_graphs([bonds, bonds], labels=[0, 1])
    assert graphs.num_features == 0
    assert graphs.sizes.tolist() == [4, 4]
    assert graphs[0].adjacency.sum() == 10.0  # weights, as of a single graph


def test_sets_check_themselves(small: GraphSet) -> None:
    joined = Graph.from_edges([(0, 1)], np.eye(2))
    both = GraphSet(joined.adjacency, joined.features, np.array([0, 1, 2]), [0, 1])
    for stop in (1, 2):
        with pytest.raises(GraphError, match="connects graph 0 with another"):
            both.block(0, stop)
    with pytest.raises(GraphError, match="offsets"):
        GraphSet(joined.adjacency, joined.features, np.array([0, 3]), [0])
    with pytest.raises(GraphError, match="no graph"):
        small.index("missing")
    with pytest.raises(GraphError, match="one library"):
        load_graphs([joined, "cora"])
    part = small.select([3, 1])
    assert (part.graph(0).adjacency != small.graph(3).adjacency).nnz == 0
    assert part.table.labels.tolist() == small.table.labels[[3, 1]].tolist()
    assert not part.table.split.train.size


def test_sets_on_disk_are_read_in_ranges(small: GraphSet, tmp_path: Path) -> None:
    parts = [small.select(np.arange(25)), small.select(np.arange(25, 60))]
    write_graph_files(tmp_path, parts)
    assert is_graph_set(tmp_path)
    found = load_graphs(tmp_path)
    assert not isinstance(found.features, np.ndarray)
    np.testing.assert_array_equal(found.select([40, 3]).features, small.select([40, 3]).features)
    assert (found.block(0, 60).adjacency != small.adjacency).nnz == 0
    expected = train_graphs(small.with_split(None), "hops").model
    again = train_graphs(found, "hops").model
    np.testing.assert_array_equal(again.head.weights["theta"], expected.head.weights["theta"])
    np.testing.assert_allclose(again.logits(found), expected.logits(small), atol=1e-9)
    write_graphs(tmp_path / "small.npz", found)
    assert (load_graphs(tmp_path / "small.npz").adjacency != small.adjacency).nnz == 0
    (tmp_path / "indptr.npy").unlink()
    with pytest.raises(DatasetError, match=r"indptr\.npy does not exist; write it again"):
        load_graphs(tmp_path)


def test_sets_on_disk_keep_the_split(small: GraphSet, tmp_path: Path) -> None:
    write_graph_files(tmp_path, [small, small])
    split = load_graphs(tmp_path).table.split
    for part in ("train", "val", "test"):
        own = getattr(small.table.split, part)
        expected = np.concatenate([own, own + len(small)])
        np.testing.assert_array_equal(getattr(split, part), expected)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("node_counts", lambda a: a[:, None]),
        ("node_counts", lambda a: a.astype(float)),
        ("node_counts", lambda a: a[:-1]),
        ("node_counts", lambda a: -a.astype(int)),
        ("graph_labels", lambda a: a[:-1]),
        ("graph_labels", lambda a: a.astype("U")),
        ("graph_labels", lambda a: a[:, None, None]),
        ("split", lambda a: a[:-1]),
        ("indptr", lambda a: a[:, None]),
        ("indptr", lambda a: a[:-1]),
        ("indices", lambda a: a[:-1]),
        ("values", lambda a: a[:, None]),
        ("features", lambda a: a[:, 0]),
        ("features", lambda a: a[:-1]),
    ],
)
def test_damaged_sets_on_disk_are_refused(
    small: GraphSet, tmp_path: Path, name: str, change: Any
) -> None:
    write_graph_files(tmp_path, [small])
    if (path := tmp_path / f"{name}.npy").exists():
        np.save(path, change(np.load(path)))
    else:
        arrays = dict(np.load(tmp_path / "graphs.npz"))
        arrays[name] = change(arrays[name])
        np.savez(tmp_path / "graphs.npz", **arrays)
    with pytest.raises(DatasetError, match="is not a valid set of graphs"):
        load_graphs(tmp_path)


def test_damaged_edges_on_disk_are_refused_when_read(small: GraphSet, tmp_path: Path) -> None:
    write_graph_files(tmp_path, [small])
    sound, columns = np.load(tmp_path / "indptr.npy"), np.load(tmp_path / "indices.npy")
    for name, damaged in (
        ("indptr", sound - 5 * (sound < sound[-1])),
        ("indptr", np.append(sound[-2::-1], sound[-1])),
        ("indices", columns + small.num_nodes),
        ("indices", columns - 1),
    ):
        np.save(tmp_path / f"{name}.npy", damaged)
        with pytest.raises(GraphError):
            load_graphs(tmp_path).block(0, len(small))
        np.save(tmp_path / f"{name}.npy", sound if name == "indptr" else columns)


@pytest.mark.parametrize("task", ["auto", "classification", "multilabel"])
def test_texts_of_labels_mean_the_same_as_for_nodes(task: str) -> None:
    texts = ["a|b", "a", "b", "a;b"] * 5
    ids = [f"g{i}" for i in range(len(texts))]
    nodes = pd.DataFrame({"id": ids, "x": 1.0, "label": texts})
    edges = pd.DataFrame({"source": ids[1:], "target": ids[:-1]})
    plain = load((nodes, edges), task=task)
    tables = (
        nodes.rename(columns={"id": "graph"})[["graph", "label"]],
        pd.DataFrame({"graph": ids, "id": 0, "x": 1.0}),
        pd.DataFrame({"graph": ids, "source": 0, "target": 0}),
    )
    whole = load_graphs(tables, task=task)
    assert whole.class_names == plain.class_names
    np.testing.assert_array_equal(whole.table.labels, plain.labels)
