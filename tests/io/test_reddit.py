"""Reddit's two public files at a small size, and what may be wrong with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite.errors import DatasetError
from hoplite.io import load, load_reddit
from hoplite.io.datasets import FILES, reddit_folders

N, D = 40, 6
NODES, GRAPH = FILES


def parts(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "feature": rng.standard_normal((N, D)),
        "label": rng.permutation(np.arange(N, dtype=np.int32) % 4),
        "node_ids": np.arange(N),
        "node_types": np.repeat([1, 2, 3], [24, 6, 10]),
    }


def matrix(seed=0):
    """Directed, with repeated pairs, a diagonal and values that do not count."""
    rng = np.random.default_rng(seed)
    row, col = rng.integers(0, N, (2, 150)).astype(np.int32)
    return sp.coo_matrix((rng.uniform(-3, 3, 150), (row, col)), shape=(N, N))


def write(folder: Path, nodes=None, graph=None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / NODES, **(parts() if nodes is None else nodes))
    sp.save_npz(folder / GRAPH, matrix() if graph is None else graph)
    return folder


def dense(graph):
    adjacency = np.zeros((N, N), np.float32)
    adjacency[graph.row, graph.col] = adjacency[graph.col, graph.row] = 1
    np.fill_diagonal(adjacency, 0)
    return adjacency


def test_the_graph_is_that_of_the_files(tmp_path):
    graph = load_reddit(write(tmp_path))
    assert graph.name == "reddit"
    np.testing.assert_array_equal(graph.adjacency.toarray(), dense(matrix()))
    assert graph.adjacency.dtype == np.float32
    assert graph.adjacency.indices.dtype == np.int32
    np.testing.assert_array_equal(graph.features, parts()["feature"].astype(np.float32))
    np.testing.assert_array_equal(graph.labels, parts()["label"])
    assert graph.split.train.tolist() == list(range(24))
    assert graph.split.val.tolist() == list(range(24, 30))
    assert graph.split.test.tolist() == list(range(30, 40))


@pytest.mark.parametrize("feature", [np.float32, np.float64, np.float16, np.int16, ">f8"])
@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("compressed", [True, False])
def test_any_type_of_numbers(tmp_path, feature, index, compressed):
    nodes = parts()
    nodes["feature"] = (10 * nodes["feature"]).astype(feature)
    write(tmp_path, nodes)
    graph = matrix()
    arrays = {"row": graph.row.astype(index), "col": graph.col.astype(index), "data": graph.data}
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / GRAPH, **arrays, format=np.array(b"coo"), shape=np.array(graph.shape))
    loaded = load_reddit(tmp_path)
    np.testing.assert_array_equal(loaded.features, nodes["feature"].astype(np.float32))
    np.testing.assert_array_equal(loaded.adjacency.toarray(), dense(graph))


def test_folders_in_turn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOPLITE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert reddit_folders() == [tmp_path / "data/reddit", tmp_path / "cache/hoplite/reddit"]
    with pytest.raises(DatasetError, match=r"--fetch reddit` \(1\.4 GB, to .*data/reddit\)"):
        load("reddit")
    other = parts()
    other["feature"] = other["feature"][:, :2]
    write(tmp_path / "cache/hoplite/reddit", other)
    assert load("reddit").num_features == 2
    write(tmp_path / "data/reddit")
    assert load("Reddit").num_features == D
    assert load(tmp_path / "cache/hoplite/reddit").num_features == 2
    monkeypatch.delenv("HOPLITE_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert reddit_folders() == [tmp_path / "home/.cache/hoplite/reddit"]


def changed(**changes):
    return {name: value for name, value in (parts() | changes).items() if value is not None}


@pytest.mark.parametrize(
    "nodes",
    [
        changed(feature=None),
        changed(label=None),
        changed(label=np.arange(N) / 2),
        changed(label=np.array(["a"] * N)),
        changed(label=np.zeros(3, int)),
        changed(label=np.zeros((N, 1), int)),
        changed(label=np.full(N, -7)),
        changed(node_types=np.zeros(N, int)),
        changed(node_types=np.ones(3, int)),
        changed(feature=np.zeros(N)),
        changed(feature=np.full((N, D), 1e300)),
        changed(feature=np.zeros((N, D), complex)),
        changed(feature=np.array([[None]] * N)),
        changed(feature=np.zeros((N - 1, D))),
    ],
)
def test_wrong_nodes(tmp_path, nodes):
    with pytest.raises(DatasetError, match=r"is not a valid graph file .*--fetch reddit"):
        load_reddit(write(tmp_path, nodes))


def graph_arrays(**changes):
    graph = matrix()
    arrays = {"row": graph.row, "col": graph.col, "data": graph.data}
    arrays |= {"format": np.array(b"coo"), "shape": np.array(graph.shape)} | changes
    return {name: value for name, value in arrays.items() if value is not None}


@pytest.mark.parametrize(
    "arrays",
    [
        graph_arrays(row=None),
        graph_arrays(format=None),
        graph_arrays(format=np.array(b"csr")),
        graph_arrays(format=np.array(3)),
        graph_arrays(shape=np.array([N, 7])),
        graph_arrays(row=np.full(150, N)),
        graph_arrays(col=np.full(150, 2**40)),
        graph_arrays(col=np.full(150, -1)),
        graph_arrays(col=np.zeros(3, int)),
        graph_arrays(row=np.zeros(150)),
        graph_arrays(row=np.array([None])),
    ],
)
def test_wrong_matrices(tmp_path, arrays):
    write(tmp_path)
    np.savez(tmp_path / GRAPH, **arrays)
    with pytest.raises(DatasetError, match=r"is not a valid graph file .*--fetch reddit"):
        load_reddit(tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_missing_and_damaged_files(tmp_path, name):
    path = write(tmp_path) / name
    whole = path.read_bytes()
    with pytest.raises(DatasetError, match=f"{name} does not exist; .*--fetch reddit"):
        load_reddit(tmp_path / "none" if name == NODES else _without(path))
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DatasetError, match=f"{name} is not a valid graph file .*--fetch"):
            load_reddit(tmp_path)


def _without(path):
    path.unlink()
    return path.parent


def test_memory_stays_near_the_graphs_own(tmp_path):
    """Loading 1.5M pairs in int64 and features in float64 stays within what the docstring says."""
    n, d, pairs = 20_000, 300, 1_500_000
    rng = np.random.default_rng(0)
    kinds = np.repeat([1, 2, 3], [n // 2, n // 4, n // 4])
    label = np.arange(n) % 5
    np.savez(tmp_path / NODES, feature=rng.standard_normal((n, d)), label=label, node_types=kinds)
    row, col = rng.integers(0, n, (2, pairs))
    sp.save_npz(tmp_path / GRAPH, sp.coo_array((np.ones(pairs), (row, col)), shape=(n, n)))
    code = (
        "import resource, sys\n"
        "from hoplite.io import load_reddit\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "before = peak(); graph = load_reddit(sys.argv[1])\n"
        "print(peak() - before, graph.adjacency.nnz)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    grown, entries = map(int, run.stdout.split())
    # The features twice, because a Graph copies what it is given, and pieces of 16 MB.
    assert grown < 34 * entries + 2 * 4 * n * d + 5e7
