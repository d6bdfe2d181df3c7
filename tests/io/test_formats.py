"""GraphML, Matrix Market, lists of edges and .npz files with masks: as people write them."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from pyarrow import csv
from sklearn.preprocessing import RobustScaler, StandardScaler

import hoplite
from hoplite import ConfigError, DatasetError, HopliteWarning, ModelFileError, load, train
from hoplite.io import read_edge_list, read_graphml, read_matrix_market

FEATURELESS = pytest.warns(HopliteWarning, match="has no features, so structural features are used")
NODES = {
    "id": ["10", "9", "30", "zoë x", "5"],
    "label": ["b", None, "a", "b", "a"],
    "age": [1.5, 2.0, -1.0, 0.0, 3.0],
}


def dense_of(edges, n):
    """What from_edges means: sums in a direction, the larger of both, no diagonal."""
    found = np.zeros((n, n))
    for u, v, w in edges:
        found[u, v] += w
    np.fill_diagonal(found, 0)
    return np.maximum(found, found.T)


def masks_file(path, *, n=12, splits=4, seed=0, **changes):
    rng = np.random.default_rng(seed)
    parts = rng.integers(0, 3, (splits, n))
    parts[:, :3] = 0
    arrays = {
        "node_features": rng.normal(size=(n, 3)).astype(np.float32),
        "node_labels": np.where(rng.random(n) < 0.2, -1, np.arange(n) % 2),
        "edges": rng.integers(0, n, (30, 2)),
        **{f"{part}_masks": parts == i for i, part in enumerate(("train", "val", "test"))},
    }
    arrays["node_labels"][:2] = 0, 1
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **arrays)
    return arrays


def test_masks_of_several_splits(tmp_path):
    arrays = masks_file(tmp_path / "g.npz")
    known = arrays["node_labels"] >= 0
    for which in (None, 0, 3):
        graph = load(tmp_path / "g.npz", split=which)
        for part in ("train", "val", "test"):
            mask = arrays[f"{part}_masks"][which or 0] & known
            np.testing.assert_array_equal(getattr(graph.split, part), np.flatnonzero(mask))
        assert graph.split.note == f"from the masks of g.npz, split {which or 0} of 0 to 3"
    np.testing.assert_array_equal(graph.features, arrays["node_features"])
    pairs = {(u, v, 1) for u, v in arrays["edges"].tolist()}
    np.testing.assert_array_equal(graph.adjacency.toarray(), dense_of(pairs, 12))
    with pytest.raises(ConfigError, match="split"):
        load(tmp_path / "g.npz", split=4)
    masks_file(tmp_path / "h.npz", train_masks=None, val_masks=None, test_masks=None)
    assert load(tmp_path / "h.npz", seed=3).split.seed == 3
    masks_file(tmp_path / "i.npz", node_features=None)
    with FEATURELESS:
        assert load(tmp_path / "i.npz").num_features == 34


@pytest.mark.parametrize(
    "changes",
    [
        {"edges": np.array([[0, 12]])},
        {"edges": np.array([[0, -1]])},
        {"edges": np.zeros((2, 3), int)},
        {"node_labels": np.zeros(5, int)},
        {"val_masks": np.zeros((3, 12), bool)},
        {"test_masks": np.ones((4, 12), bool)},
        {"node_features": np.full((12, 1), np.nan)},
        {"node_features": np.array([["a"]])},
        {"node_features": None, "node_labels": None},
    ],
)
def test_wrong_masks(tmp_path, changes):
    masks_file(tmp_path / "g.npz", **changes)
    with pytest.raises(DatasetError, match=r"g\.npz is not a valid graph file") as caught:
        load(tmp_path / "g.npz")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.txt", "# from somewhere\n%\n\n10 9 0.5\n9 10 2\n30 30 1\n10 9 1\n30 5 7e-1\n"),
        ("e.tsv", "10\t9\t0.5\n9\t10\t2\n30\t30\t1\n10\t9\t1\n30\t5\t0.7\n"),
        ("e.csv", "10,9,0.5\n9,10,2\n30,30,1\n10,9,1\n30,5,0.7\n"),
        (
            "edges.txt",
            "weight,target,source,kind\n0.5,9,10,x\n2,10,9,\n1,30,30,\n1,9,10,\n.7,5,30,",
        ),
    ],
)
def test_edge_lists(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    graph = read_edge_list(tmp_path / name)
    assert graph.node_ids == (5, 9, 10, 30)
    edges = [(2, 1, 0.5), (1, 2, 2), (3, 3, 1), (2, 1, 1), (3, 0, 0.7)]
    np.testing.assert_allclose(graph.adjacency.toarray(), dense_of(edges, 4))
    with FEATURELESS:
        assert load(tmp_path / name).feature_names[:2] == ("degree", "log degree")
    assert load(tmp_path / name, structural=2).num_features == 4
    beside = "nodes.csv" if name == "edges.txt" else "e.nodes.csv"
    csv.write_csv(pa.table(NODES), tmp_path / beside)
    graph = load(tmp_path / name)
    assert graph.node_ids == tuple(NODES["id"])
    assert graph.class_names == ("a", "b")
    edges = [(0, 1, 0.5), (1, 0, 2), (0, 1, 1), (2, 4, 0.7)]
    np.testing.assert_allclose(graph.adjacency.toarray(), dense_of(edges, 5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no edge in its first lines"),
        ("# only words\n", "has no edge in its first lines"),
        ("a\nb\n", "has 1 column; it must have source, target"),
        ("a b c d\n", "has 4 columns"),
        ("# a\na b\nc\n", "line 3 has 1 cell instead of 2"),
        ("a b\nc d\ne f g h\n", "line 3 has at least 3 cells instead of 2"),
        ('a b\nc "d\n', "line 2 has a quote that is never closed"),
        ("from,to\n1,2\n2,3\n", "starts with 'from' and 'to', but all other ids are numbers"),
        ('"from", "to"\n\n"-1", "2"\n"2", "3"\n', "starts with 'from' and 'to'"),
        ("a b 1\nc d x\n", r"column 'weight' of .*e\.txt has 'x' in data row 2"),
        ("a b 1\nc d -2\n", r"has '-2' in data row 2"),
        ("a b 1\nc d nan\n", r"has 'nan' in data row 2"),
        ("a b\nc \n", "column 'target' of .* is empty in data row 2"),
    ],
)
def test_wrong_edge_lists(tmp_path, text, message):
    (tmp_path / "e.txt").write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        read_edge_list(tmp_path / "e.txt")
    assert len(str(caught.value).splitlines()) == 1


def test_text_ids_may_stand_before_numbers(tmp_path):
    (tmp_path / "e.txt").write_text("A,B\n1,2\n2,3\nC,1\n")
    assert read_edge_list(tmp_path / "e.txt").node_ids == ("1", "2", "3", "A", "B", "C")


@pytest.mark.parametrize("kind", ["real", "integer", "pattern"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_matrix_market(tmp_path, kind, symmetric):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 9, (7, 7)) * (rng.random((7, 7)) < 0.4)
    dense = np.triu(dense) + np.triu(dense, 1).T if symmetric else dense
    dense = dense / 2 if kind == "real" else dense
    scipy.io.mmwrite(tmp_path / "m.mtx", sp.coo_array(dense), field=kind)
    graph = read_matrix_market(tmp_path / "m.mtx")
    weights = (dense > 0).astype(float) if kind == "pattern" else dense.astype(float)
    np.fill_diagonal(weights, 0)
    np.testing.assert_allclose(graph.adjacency.toarray(), np.maximum(weights, weights.T))
    assert graph.node_ids == tuple(range(1, 8))
    table = {"id": list(range(7, 0, -1)), "label": list("ababaab"), "x": list(range(7))}
    csv.write_csv(pa.table(table), tmp_path / "m.nodes.csv")
    graph = load(tmp_path / "m.mtx")
    assert graph.class_names == ("a", "b")
    np.testing.assert_allclose(
        graph.adjacency.toarray(), np.maximum(weights, weights.T)[::-1, ::-1]
    )


def test_blank_lines_and_comments_of_a_matrix_are_ignored(tmp_path):
    (tmp_path / "m.mtx").write_text(f"{HEAD}\n3 3 2\n\n1 2 .5\n% the last\n2 3 2\n\n\n")
    dense = [[0, 0.5, 0], [0.5, 0, 2], [0, 2, 0]]
    np.testing.assert_equal(read_matrix_market(tmp_path / "m.mtx").adjacency.toarray(), dense)


HEAD = "%%MatrixMarket matrix coordinate real general\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its header does not"),
        ("1 2\n", "its header does not"),
        (HEAD, "its size is"),
        (f"{HEAD}2 3 1\n1 1 1\n", "an adjacency matrix must be square"),
        (f"{HEAD}3 3 99999999999\n1 1 1\n", "99,999,999,999 entries but has"),
        (f"{HEAD}99999999999 99999999999 1\n1 1 1\n", "too many for this machine's memory"),
        (f"{HEAD}3 3 1\n1 4 1\n", "an index is not between 1 and 3"),
        (f"{HEAD}3 3 2\n1 2 1\n", "2 entries of 3 numbers but has 1 of 3"),
        (f"{HEAD}3 3 2\n\n", "2 entries of 3 numbers but has 0 of 1"),
        (f"{HEAD}3 3 1\n1 2 -5\n", "finite numbers, 0 or larger"),
        (f"{HEAD}3 3 1\n1 2 nan\n", "finite numbers, 0 or larger"),
        (HEAD.replace("real", "complex") + "3 3 1\n1 2 1 1\n", "its header does not"),
        (HEAD.replace("coordinate", "array") + "9 9\n1\n", "its header does not"),
    ],
)
def test_wrong_matrices(tmp_path, text, message):
    (tmp_path / "m.mtx").write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        read_matrix_market(tmp_path / "m.mtx")
    assert len(str(caught.value).splitlines()) == 1


def networkx_graph():
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiDiGraph()
    for i, node in enumerate(NODES["id"]):
        graph.add_node(node, town="Rome" if i % 2 else "Oslo & <co>", old=bool(i % 3), size=i)
        if NODES["label"][i]:
            graph.nodes[node].update(label=NODES["label"][i])
        graph.nodes[node].update(age=NODES["age"][i])
    for u, v, w in (("10", "9", 0.5), ("9", "10", 2.0), ("5", "5", 1.0), ("zoë x", "5", 3.0)):
        graph.add_edge(u, v, weight=w)
    return networkx, graph


def test_graphml_of_networkx_and_igraph(tmp_path):
    networkx, graph = networkx_graph()
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    wanted, found = hoplite.io.from_networkx(graph), load(tmp_path / "g.graphml")
    assert found.node_ids == wanted.node_ids
    assert set(found.feature_names) == set(wanted.feature_names)
    order = [found.feature_names.index(name) for name in wanted.feature_names]
    np.testing.assert_array_equal(found.feature_rows(0, 5)[:, order], wanted.feature_rows(0, 5))
    np.testing.assert_array_equal(found.labels, wanted.labels)
    np.testing.assert_array_equal(found.adjacency.toarray(), wanted.adjacency.toarray())
    igraph = pytest.importorskip("igraph")
    igraph.Graph.Read_GraphML(str(tmp_path / "g.graphml")).write_graphml(
        str(tmp_path / "i.graphml")
    )
    again = load(tmp_path / "i.graphml")  # where a gap in a text is an empty one
    np.testing.assert_array_equal(again.adjacency.toarray(), wanted.adjacency.toarray())
    np.testing.assert_array_equal(again.labels, wanted.labels)


KEYS = (
    '<key id="d0" for="node" attr.name="x" attr.type="double"><default>4</default></key>'
    '<key id="d1" for="edge" attr.name="weight" attr.type="int"/>'
    '<key id="y" for="node" yfiles.type="nodegraphics"/>'
)


def graphml(body, keys=KEYS, head='<?xml version="1.0"?>'):
    space = 'xmlns="http://graphml.graphdrawing.org/xmlns"'
    return f'{head}<graphml {space}>{keys}<graph edgedefault="directed">{body}</graph></graphml>'


def test_graphml_by_hand(tmp_path):
    body = (
        '<edge source="a" target="b"><data key="d1"> 3 </data></edge><node id="a"/>'
        '<node id="b"><data key="d0">INF</data><data key="y"><p>drawn</p></data></node>'
        '<edge source="b" target="a"><data key="d1">2</data></edge>'
    )
    path = tmp_path / "g.graphml"
    path.write_text(graphml(body.replace("INF", "-1.5e1")))
    graph = read_graphml(path, scale="none")
    assert graph.features.tolist() == [[4], [-15]]
    assert graph.adjacency.toarray().tolist() == [[0, 3], [3, 0]]
    for text, message in (
        (graphml(body), "contains infinity for node"),
        (graphml(body.replace("INF", "four")), "could not convert string to float: 'four'"),
        (graphml(body.replace("> 3 <", ">x<")), "invalid literal for int"),
        (graphml('<node id="a"/><node id="a"/>'), "a node is declared twice"),
        (graphml('<node id="a"/><edge source="a" target="c"/>'), "an undeclared node"),
        (graphml('<node id="a"><graph/></node>'), "it has 2 graphs"),
        (graphml('<node id="a"/><hyperedge/>'), "hyperedges"),
        (graphml(""), "graph has no nodes"),
        (graphml("", KEYS.replace('"int"', '"complex"')), "is not a valid GraphML file"),
        (graphml(body)[:-10], "no element found"),
        (
            graphml(
                '<node id="&a;"/>',
                head='<!DOCTYPE g [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
            ),
            "contains a DOCTYPE declaration",
        ),
    ):
        path.write_text(text)
        with pytest.raises(DatasetError, match=message) as caught:
            read_graphml(path)
        assert len(str(caught.value).splitlines()) == 1


def test_arrays_are_scaled_if_asked(tmp_path):
    rng = np.random.default_rng(4)
    features = rng.normal(50, [1, 200, 3], (60, 3)).astype(np.float32)
    features[:, 2] = features[:, 2] > 50
    gaps = np.where(rng.random((60, 3)) < 0.1, np.nan, features)
    masks_file(tmp_path / "g.npz", n=60, node_features=features, node_labels=np.arange(60) % 2)
    masks_file(tmp_path / "h.npz", n=60, node_features=gaps, node_labels=np.arange(60) % 2)
    for scale, judge in (("standard", StandardScaler()), ("robust", RobustScaler())):
        graph = load(tmp_path / "g.npz", scale=scale)
        np.testing.assert_allclose(graph.features, judge.fit_transform(features), atol=1e-4)
    with pytest.raises(DatasetError, match="NaN"):
        load(tmp_path / "h.npz")
    filled = load(tmp_path / "h.npz", gaps="fill", structural=2)
    holes = np.isnan(gaps)
    wanted = np.where(holes, 0, StandardScaler().fit_transform(gaps))
    np.testing.assert_allclose(filled.features[:, :3], wanted, atol=1e-4)
    np.testing.assert_array_equal(filled.features[:, 3], holes.any(axis=1))
    model = train(filled, "blocks", hops=1, epochs=3).model
    with pytest.warns(HopliteWarning, match="do not trust"):
        again = load(tmp_path / "g.npz", prepare=model)  # other cells, the same centre and scale
    same = ~holes.any(axis=1)
    np.testing.assert_array_equal(again.features[same], filled.features[same])
    with pytest.raises(
        ConfigError, match=r"drop is an option of .*tables.*; leave it out or use scale or use gaps"
    ):
        load(tmp_path / "g.npz", drop="node_features")
    scaled = train(load(tmp_path / "g.npz", scale="standard"), "sgc", hops=1, epochs=2).model
    plain = load(tmp_path / "g.npz")
    with pytest.raises(
        ModelFileError, match="column 'node_features' was prepared differently for g"
    ):
        scaled.predict(plain)
    assert train(plain, "sgc", hops=1, epochs=2).model.predict(plain).shape == (60,)


@pytest.mark.parametrize("reading", [{}, {"scale": "standard"}, {"structural": 2}])
@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_directions_of_arrays(tmp_path, reading):
    """As those of an array in Python; a model reads them as in its training."""
    rng = np.random.default_rng(5)
    own = {"node_labels": np.arange(60) % 2, "edges": rng.integers(0, 60, (90, 2))}
    own["node_features"] = rng.normal(3, 2, (60, 3)) if "structural" not in reading else None
    masks_file(tmp_path / "g.npz", n=60, **own)
    graph = load(tmp_path / "g.npz", directed=True, **reading)
    plain = load(tmp_path / "g.npz", directed=False, **reading)
    dense = np.zeros((60, 60))
    dense[tuple(own["edges"].T)] = 1
    np.fill_diagonal(dense, 0)
    np.testing.assert_array_equal(graph.relations[0].adjacency.toarray(), dense)
    assert [relation.name for relation in graph.relations] == ["out", "in"]
    assert not plain.relations
    np.testing.assert_array_equal(
        *(g.features.toarray() if sp.issparse(g.features) else g.features for g in (graph, plain))
    )
    assert graph.feature_names == plain.feature_names
    model = train(graph, "lgc", hops=2, epochs=3).model
    again = load(tmp_path / "g.npz", prepare=model)
    np.testing.assert_array_equal(model.logits(again), model.logits(graph))
