"""Damage of a graph on disk: found when propagate reads it, or told by verify()."""

import json
import shutil

import numpy as np
import pytest

from hoplite import DatasetError, Graph
from hoplite.datasets.disk_graph import DiskGraph, write_disk_graph
from hoplite.store import propagate

SETTINGS = {"hops": 3}


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def edit(path, **changes):
    """Other values and no checksum, as earlier versions wrote it and malice would."""
    content = json.loads(path.read_text()) | changes
    content.pop("checksum", None)
    path.write_text(json.dumps(content))


GRAPH_FILES = ["features.npy", "indices.npy", "indptr.npy", "values.npy", "labels.npy", "split.npz"]


@pytest.mark.parametrize("name", GRAPH_FILES)
def test_damage_of_a_graph_on_disk_stops_propagate(graphs, tmp_path, name):
    """A flipped bit in the numbers, where no header tells of it; and verify() tells of it, too."""
    write_disk_graph(graphs(60, 9, dtype=np.float32), tmp_path / "s" / "graph")
    store = propagate(tmp_path / "s" / "graph", tmp_path / "s", **SETTINGS)
    assert store.verify() == []
    path = tmp_path / "s" / "graph" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if name == "split.npz" else -8] ^= 1
    path.write_bytes(content)
    (found,) = store.verify()
    assert str(path.parent) in found
    with pytest.raises(DatasetError, match="holds no whole graph on disk"):
        propagate(path.parent, tmp_path / "fresh", **SETTINGS)


def test_other_numbers_with_a_sound_file_are_found_too(graphs, tmp_path):
    """Swapped with those of a graph of the same size."""
    for seed in (0, 1):
        write_disk_graph(graphs(60, 9, seed=seed, dtype=np.float32), tmp_path / f"{seed}")
    for name in ("features.npy", "labels.npy"):
        shutil.copytree(tmp_path / "0", tmp_path / name)
        shutil.copy(tmp_path / "1" / name, tmp_path / name)
        with pytest.raises(DatasetError, match=name):
            propagate(tmp_path / name, tmp_path / f"s-{name}", **SETTINGS)


def test_damaged_ids_and_a_graph_of_an_earlier_version(graphs, tmp_path):
    graph = graphs(60, 9, dtype=np.float32)
    ids = [f"n{i}" for i in range(60)]
    write_disk_graph(Graph(graph.adjacency, graph.features, node_ids=ids), tmp_path / "g")
    with DiskGraph(tmp_path / "g") as found:
        assert list(found.node_ids) == ids
    edit(tmp_path / "g" / "graph.json", checksums=None)
    with DiskGraph(tmp_path / "g") as found:
        assert list(found.node_ids) == ids
    write_disk_graph(Graph(graph.adjacency, graph.features, node_ids=ids), tmp_path / "g")
    flip(tmp_path / "g" / "ids.parquet")
    with DiskGraph(tmp_path / "g") as found, pytest.raises(DatasetError, match=r"ids\.parquet"):
        _ = found.node_ids


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 10**18},
        {"nodes": 61},
        {"features": -1},
        {"digests": None},
        {"class_names": ["\ud800"]},
        {"longest_row": 7.5},
        {"tables": {}},
        {"integer_ids": "no"},
    ],
)
def test_a_damaged_description_of_a_graph(graphs, tmp_path, change):
    write_disk_graph(graphs(60, 9), tmp_path / "g")
    edit(tmp_path / "g" / "graph.json", **change)
    with pytest.raises(DatasetError, match="holds no whole graph on disk"):
        DiskGraph(tmp_path / "g")


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '|O', 'fortran_order': False, 'shape': (60, 9), }",
        b"{'descr': '<f4', 'fortran_order': True, 'shape': (60, 9), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-60, 9), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 9), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (9**9**9, 9), }",
        b"-" * 4000 + b"1",
        b"(" * 4000,
    ],
)
def test_headers_that_are_no_rows_of_numbers(graphs, tmp_path, header):
    write_disk_graph(graphs(60, 9), tmp_path / "g")
    path = tmp_path / "g" / "features.npy"
    start = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little")
    path.write_bytes(start + header + b"\n" + path.read_bytes()[128:])
    with pytest.raises(DatasetError, match="holds no whole graph on disk"):
        DiskGraph(tmp_path / "g")


def test_damage_is_found_again_and_after_a_look_at_some_rows(graphs, tmp_path):
    """One sound pass is compared; what was only looked at, or refused before, is none."""
    graph = graphs(60, 5, dtype=np.float32)
    write_disk_graph(graph, tmp_path / "g")
    path = tmp_path / "g" / "features.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 4
    path.write_bytes(data)
    with DiskGraph(tmp_path / "g") as found:
        found.feature_rows(0, 10)
        for _ in range(2):
            with pytest.raises(DatasetError, match=r"features\.npy: it does not hold what was"):
                propagate(found, tmp_path / "s", hops=1)


def test_names_that_are_numbers_are_kept_as_text(graphs, tmp_path):
    graph = graphs(20, 3, dtype=np.float32)
    named = Graph(
        graph.adjacency,
        graph.features,
        graph.labels,
        split=graph.split,
        class_names=[4, 5, 6],
        feature_names=[7, 8, 9],
    )
    assert propagate(named, tmp_path / "s", hops=1).feature_names == ("7", "8", "9")
    write_disk_graph(named, tmp_path / "g")
    with DiskGraph(tmp_path / "g") as found:
        assert found.class_names == ("4", "5", "6")
    for file in (tmp_path / "s/manifest.json", tmp_path / "g/graph.json"):  # as once written
        content = json.loads(file.read_text())
        del content["checksum"]
        content["feature_names"] = [7, 8, 9]
        file.write_text(json.dumps(content))
    assert propagate(tmp_path / "g", tmp_path / "s", hops=1).feature_names == ("7", "8", "9")
