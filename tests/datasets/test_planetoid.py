"""Planetoid files: the real ones where they are at hand, small ones everywhere."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite.datasets import load, read_planetoid
from hoplite.datasets.planetoid import planetoid_names
from hoplite.errors import DatasetError

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "planetoid"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="Planetoid's files are not at hand")


@needs_real
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "train"),
    [
        ("cora", 2708, 5278, 1433, 7, 140),
        ("citeseer", 3327, 4552, 3703, 6, 120),
        ("pubmed", 19717, 44324, 500, 3, 60),
    ],
)
def test_the_real_files(name, nodes, edges, features, classes, train):
    graph = read_planetoid(REAL, name)
    assert (graph.num_nodes, graph.num_edges) == (nodes, edges)
    assert (graph.num_features, graph.num_classes) == (features, classes)
    assert graph.split.sizes() == {"train": train, "val": 500, "test": 1000}
    np.testing.assert_array_equal(graph.split.train, np.arange(train))
    np.testing.assert_array_equal(graph.split.val, np.arange(train, train + 500))
    listed = np.loadtxt(REAL / f"ind.{name}.test.index", dtype=int)
    np.testing.assert_array_equal(graph.split.test, np.sort(listed))
    sums = graph.features.sum(axis=1)
    np.testing.assert_allclose(sums[sums != 0], 1, rtol=1e-5)


@needs_real
@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_the_embedded_graphs_equal_the_real_files(name):
    real, embedded = read_planetoid(REAL, name), load(name)
    assert (real.adjacency != embedded.adjacency).nnz == 0
    for part in ("data", "indices", "indptr"):
        a, b = getattr(real.features, part), getattr(embedded.features, part)
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(real.labels, embedded.labels)
    for part in ("train", "val", "test"):
        a, b = getattr(real.split, part), getattr(embedded.split, part)
        np.testing.assert_array_equal(a, b)
    assert real.split.note == embedded.split.note == "public Planetoid split"


@needs_real
def test_citeseers_missing_test_nodes():
    graph = read_planetoid(REAL, "citeseer")
    unknown = np.flatnonzero(graph.labels == -1)
    assert unknown.size == 15
    assert graph.features[unknown].nnz == 0
    assert graph.adjacency[unknown].nnz == 16  # without features and class, but not without edges
    assert np.intersect1d(unknown, graph.split.test).size == 0


def one_hot(labels):
    return np.eye(2, dtype=np.int32)[labels]


@pytest.fixture
def files():
    """Four known nodes, and test nodes 6 and 4; node 5 is missing."""
    allx = np.array([[1, 1], [0, 2], [3, 1], [0, 0]], np.float32)
    return {
        "x": sp.csr_matrix(allx[:2]),
        "allx": sp.csr_matrix(allx),
        "tx": sp.csr_matrix(np.array([[6, 0], [0, 4]], np.float32)),
        "y": one_hot([0, 1]),
        "ally": one_hot([0, 1, 1, 0]),
        "ty": one_hot([1, 0]),
        "graph": collections.defaultdict(
            list, {0: [1, 1, 6], 1: [0, 1], 2: [4], 3: [], 4: [2], 5: [5], 6: [0]}
        ),
        "test.index": "6\n4\n",
    }


def write(folder, files, name="toy"):
    for part, value in files.items():
        path = folder / f"ind.{name}.{part}"
        if isinstance(value, str):
            path.write_text(value)
        else:
            path.write_bytes(pickle.dumps(value, protocol=4))


def test_rows_and_nodes_by_hand(files, tmp_path):
    write(tmp_path, files)
    graph = read_planetoid(tmp_path, "toy")
    expected = [[0.5, 0.5], [0, 1], [0.75, 0.25], [0, 0], [0, 1], [0, 0], [1, 0]]
    np.testing.assert_array_equal(graph.features.toarray(), expected)
    np.testing.assert_array_equal(graph.labels, [0, 1, 1, 0, 0, -1, 1])
    edges = np.argwhere(np.triu(graph.adjacency.toarray() == 1))
    assert edges.tolist() == [[0, 1], [0, 6], [2, 4]]
    assert graph.num_edges == 3
    assert graph.split.train.tolist() == [0, 1]
    assert graph.split.val.tolist() == [2, 3]
    assert graph.split.test.tolist() == [4, 6]
    assert graph.name == "toy"


def test_raw_features_on_request(files, tmp_path):
    write(tmp_path, files)
    graph = read_planetoid(tmp_path, "toy", row_normalize=False)
    assert graph.features.toarray()[6].tolist() == [6, 0]


def test_nodes_without_a_class_are_in_no_part(files, tmp_path):
    files["ally"] = np.array([[1, 0], [0, 1], [0, 0], [1, 0]])
    write(tmp_path, files)
    graph = read_planetoid(tmp_path, "toy")
    assert graph.labels[2] == -1
    assert graph.split.val.tolist() == [3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tx": sp.csr_matrix((2, 3), dtype=np.float32)}, "differ in columns"),
        ({"ty": np.eye(3, dtype=int)[:2]}, "differ in columns"),
        ({"ty": one_hot([1, 0, 1])}, "tx has 2 rows but its labels have 3"),
        ({"x": sp.csr_matrix((1, 2), dtype=np.float32)}, "x has 1 rows but its labels have 2"),
        ({"allx": [1, 2]}, "allx holds no matrix"),
        ({"ally": [1, 2]}, "ally holds no matrix"),
        ({"graph": [[1], [0]]}, "graph is no graph"),
        ({"graph": {0: [1], "a": []}}, "graph is no graph"),
        ({"graph": {0: [[1]]}}, "graph is no graph"),
        ({"graph": {0: [True]}}, "graph is no graph"),
        ({"graph": {i: [7] for i in range(7)}}, "names node 7 but .* make 7 nodes"),
        ({"graph": {i: [0] for i in range(-1, 7)}}, "names node -1"),
        ({"graph": {i: [10**30] for i in range(7)}}, "names node 1000000"),
        ({"test.index": "6\n"}, "has 1 indices but tx has 2 rows"),
        ({"test.index": "6\nsix\n"}, "no list of node indices"),
        ({"test.index": "6\n6\n"}, "names a node twice"),
        ({"test.index": "6\n3\n"}, "names node 3 but test nodes go from 4"),
        ({"test.index": "6\n1000000000000\n"}, "names node 1000000000000"),
    ],
)
def test_files_that_do_not_fit_together(files, changes, message, tmp_path):
    write(tmp_path, files | changes)
    with pytest.raises(DatasetError, match=message):
        read_planetoid(tmp_path, "toy")


def test_more_training_rows_than_known_nodes(files, tmp_path):
    write(tmp_path, files | {"x": sp.csr_matrix(np.ones((5, 2))), "y": one_hot([0, 1, 0, 1, 0])})
    with pytest.raises(DatasetError, match="y has 5 rows but allx has only 4"):
        read_planetoid(tmp_path, "toy")


def test_missing_files_are_named(files, tmp_path):
    del files["ty"], files["test.index"]
    write(tmp_path, files)
    with pytest.raises(DatasetError, match=r"has no ind\.toy\.ty, ind\.toy\.test\.index;"):
        read_planetoid(tmp_path, "toy")


def test_truncated_and_hostile_files_are_named(files, tmp_path):
    write(tmp_path, files)
    path = tmp_path / "ind.toy.allx"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DatasetError, match=r"ind\.toy\.allx is truncated or damaged"):
        read_planetoid(tmp_path, "toy")
    path.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DatasetError, match=r"ind\.toy\.allx is refused"):
        read_planetoid(tmp_path, "toy")


def test_names_are_found(files, tmp_path):
    write(tmp_path, files, "a")
    write(tmp_path, files, "nell.0.1")
    (tmp_path / "ind.b.other").touch()
    assert planetoid_names(tmp_path) == ["a", "nell.0.1"]
