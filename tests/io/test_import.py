"""Tables larger than memory: the graph on disk is the one that ``load`` gives, to the bit."""

from __future__ import annotations

import os
import sqlite3

import duckdb
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import hoplite
from hoplite.errors import ConfigError, DatasetError
from hoplite.io import tables
from hoplite.io.disk_graph import DiskGraph
from hoplite.preparation import SCALES

ROOM = 10**9
FILES = ("features.npy", "indices.npy", "indptr.npy", "values.npy", "ids.npy", "labels.npy")


def write(folder, *, weighted, text_ids, n=200, e=4000):
    """Every pair of nodes is hit often, both ways and with itself; gaps, rare words, lone nodes."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(10 * n)[:n] + 2**40
    names = np.array([f" node {i} é" for i in ids]) if text_ids else ids
    towns = ["Ulm", "Bonn", None, *(f"t{i}" for i in range(70))]
    nodes = pd.DataFrame({"id": names, "town": rng.choice(towns, n)})
    nodes["label"] = rng.choice(["a", "b", None], n)
    nodes["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.integers(-5, 90, n))
    nodes["day"] = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D")
    nodes["tall"] = rng.random(n) < 0.5
    ends = {end: rng.choice(names[: n // 2], e) for end in ("source", "target")}
    edges = pd.DataFrame(ends)
    if weighted:
        edges["weight"] = (10 ** rng.uniform(-3, 3, e)).astype(np.float32)
    folder.mkdir()
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("weighted", [False, True])
def test_same_as_load(tmp_path, monkeypatch, scale, weighted):
    monkeypatch.setattr(tables, "EDGES_AT_ONCE", 700)
    folder = write(tmp_path / "t", weighted=weighted, text_ids=weighted)
    graph = hoplite.load(folder, seed=3, scale=scale)
    tables.import_tables(folder, tmp_path / "g", memory=ROOM, seed=3, scale=scale)
    found = DiskGraph(tmp_path / "g")
    n = found.num_nodes
    adjacency = found.adjacency_rows.read(0, n)
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(adjacency, part), getattr(graph.adjacency, part))
    dense = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    assert np.array_equal(found.feature_rows(0, n), dense)
    assert found.preparation == graph.preparation
    assert tuple(found.node_ids) == graph.node_ids
    assert np.array_equal(found.labels, graph.labels)
    assert np.array_equal(found.split.val, graph.split.val)
    assert not (tmp_path / "g" / tables.SCRATCH).exists()


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_threads_and_memory_change_no_bit(tmp_path, monkeypatch):
    folder, found, connect = write(tmp_path / "t", weighted=True, text_ids=True), [], duckdb.connect
    for threads, memory in ((1, 150 * 10**6), (4, ROOM), (7, 3 * ROOM)):

        def connected(place, config, threads=threads):
            return connect(place, config=config | {"threads": threads})

        monkeypatch.setattr(duckdb, "connect", connected)
        out = tmp_path / f"g{threads}"
        tables.import_tables(folder, out, memory=memory)
        found.append([(out / name).read_bytes() for name in FILES])
    assert found[0] == found[1] == found[2]


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_an_import_is_kept_until_its_tables_change(tmp_path):
    folder, out = write(tmp_path / "t", weighted=False, text_ids=False), tmp_path / "g"
    tables.import_tables(folder, out, memory=ROOM)
    before = (out / "graph.json").stat().st_mtime_ns
    tables.import_tables(folder, out, memory=ROOM)
    assert (out / "graph.json").stat().st_mtime_ns == before
    edges = folder / "edges.csv"
    edges.write_text(edges.read_text() + "1,2\n")
    with pytest.raises(DatasetError, match="'1', '2' \\(first in data row 4,001"):
        tables.import_tables(folder, out, memory=ROOM)
    assert not (out / "graph.json").exists()
    with pytest.raises(ConfigError, match=r"1 MB .* needs 100 MB; increase memory= by 99 MB"):
        tables.import_tables(folder, out, memory=10**6)


@pytest.mark.parametrize(
    ("nodes", "changed"),
    [
        ("people.csv", "people.csv"),
        ("more/people.csv", "more/people.csv"),
        ("SELECT * FROM 'people.csv'", "people.csv"),
        ("SELECT * FROM 'more/people.csv'", "more/people.csv"),
    ],
)
def test_an_import_follows_the_files_that_are_named_or_queried(tmp_path, nodes, changed):
    folder, out = tmp_path / "t", tmp_path / "g"
    (folder / "more").mkdir(parents=True)
    rows = "\n".join(["id,label,age", *(f"{i},{'ab'[i % 2 ^ 1]},{i}" for i in range(20))]) + "\n"
    for name in ("nodes.csv", "people.csv", "more/people.csv"):
        (folder / name).write_text(rows)
    edges = "\n".join(["source,target", *(f"{i},{(i + 1) % 20}" for i in range(20))])
    (folder / "edges.csv").write_text(edges + "\n")
    tables.import_tables(folder, out, memory=ROOM, nodes=nodes)
    before = (out / "graph.json").stat().st_mtime_ns
    tables.import_tables(folder, out, memory=ROOM, nodes=nodes)
    assert (out / "graph.json").stat().st_mtime_ns == before
    graph = DiskGraph(out)
    assert graph.labels[3] == 0
    path = folder / changed
    time = path.stat().st_mtime_ns
    path.write_text(rows.replace("\n3,a", "\n3,b"))
    os.utime(path, ns=(time + 10**9, time + 10**9))  # clocks of file systems are coarse
    tables.import_tables(folder, out, memory=ROOM, nodes=nodes)
    graph = DiskGraph(out)
    assert graph.labels[3] == 1


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_an_import_follows_what_a_database_has_not_merged_yet(tmp_path):
    path, out = tmp_path / "people.sqlite", tmp_path / "g"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE nodes (id, label, age)")
    writer.execute("CREATE TABLE edges (source, target)")
    rows = [(i, "ab"[i % 2 ^ 1], i) for i in range(20)]
    writer.executemany("INSERT INTO nodes VALUES (?, ?, ?)", rows)
    writer.executemany("INSERT INTO edges VALUES (?, ?)", [(i, (i + 1) % 20) for i in range(20)])
    tables.import_tables(path, out, memory=ROOM)
    writer.execute("UPDATE nodes SET label = 'b' WHERE id = 3")
    tables.import_tables(path, out, memory=ROOM)
    graph = DiskGraph(out)
    assert graph.labels[3] == 1
    writer.close()
