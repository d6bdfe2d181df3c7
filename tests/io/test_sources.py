"""Every source of node and edge tables gives the same graph; hostile names and queries do not."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.workbooks import write_workbook

import hoplite
from hoplite import DatasetError, Graph
from hoplite.errors import HopliteError
from hoplite.preparation import Preparation, TableOptions

SERVER = Path("/usr/lib/postgresql")


@pytest.fixture(scope="module")
def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Text ids in any order, gaps, dates, truth values, umlauts, repeated weighted edges."""
    rng, n = np.random.default_rng(0), 60
    nodes = pd.DataFrame({"id": [f"n{i}" for i in rng.permutation(n)]})
    nodes["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 9, n).round(3))
    nodes["town"] = rng.choice(["Köln", "Ulm", 'O\'Hara; "x"'], n)
    days = pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    nodes["since"] = (pd.to_datetime("2020-01-01") + days).date
    nodes["open"] = rng.random(n) < 0.5
    nodes["label"] = rng.choice(["a", "b"], n)
    ends = {end: rng.choice(nodes["id"], 300) for end in ("source", "target")}
    return nodes, pd.DataFrame(ends | {"weight": rng.random(300).round(3)})


@pytest.fixture(scope="module")
def two_files(frames, tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("csv"), frames)


@pytest.fixture(scope="module")
def expected(two_files) -> Graph:
    return hoplite.load(two_files)


def trained_logits(source, graph: Graph) -> np.ndarray:
    return hoplite.train(source, "sgc", epochs=3).model.logits(graph)


@pytest.fixture(scope="module")
def logits(two_files, expected) -> np.ndarray:
    return trained_logits(two_files, expected)


def written(folder: Path, frames, ending=".csv", **options) -> Path:
    for stem, frame in zip(("nodes", "edges"), frames, strict=True):
        frame.to_csv(folder / f"{stem}{ending}", index=False, **options)
    return folder


def as_parquet(folder, frames):
    for stem, frame in zip(("nodes", "edges"), frames, strict=True):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        parquet.write_table(table, folder / f"{stem}.parquet")
    return folder


def as_json(folder, frames):
    for stem, frame in zip(("nodes", "edges"), frames, strict=True):
        plain = frame.assign(since=frame["since"].astype(str)) if "since" in frame else frame
        plain.to_json(folder / f"{stem}.jsonl", orient="records", lines=True)
    return folder


def rows_of(frame):
    cells = frame.astype(object).itertuples(index=False)
    return [[*frame.columns], *([None if v != v else v for v in row] for row in cells)]


def as_workbook(folder, frames):
    nodes, edges = map(rows_of, frames)
    return write_workbook(folder / "bank.xlsx", {"nodes": nodes, "edges": edges})


def as_duckdb(folder, frames):
    with duckdb.connect(str(folder / "bank.duckdb")) as con:
        for stem, frame in zip(("nodes", "edges"), frames, strict=True):
            con.register("frame", frame)
            con.execute(f"CREATE TABLE {stem} AS FROM frame").fetchall()
    return folder / "bank.duckdb"


def as_sqlite(folder, frames):
    with sqlite3.connect(folder / "bank.sqlite") as con:
        for stem, frame in zip(("nodes", "edges"), frames, strict=True):
            frame.to_sql(stem, con, index=False)
    return folder / "bank.sqlite"


SOURCES = {
    "semicolons": lambda folder, f: written(folder, f, sep=";"),
    "decimal commas": lambda folder, f: written(folder, f, sep=";", decimal=","),
    "tabs": lambda folder, f: written(folder, f, ".tsv", sep="\t"),
    "gzip": lambda folder, f: written(folder, f, ".csv.gz"),
    "latin-1": lambda folder, f: written(folder, f, encoding="latin-1"),
    "utf-16": lambda folder, f: written(folder, f, encoding="utf-16"),
    "parquet": as_parquet,
    "json lines": as_json,
    "excel": as_workbook,
    "duckdb": as_duckdb,
    "sqlite": as_sqlite,
    "pandas": lambda _, f: f,
    "polars": lambda _, f: tuple(map(pl.from_pandas, f)),
    "arrow": lambda _, f: tuple(map(pa.Table.from_pandas, f)),
}


def check_same(graph: Graph, expected: Graph) -> None:
    assert graph.feature_names == expected.feature_names
    np.testing.assert_array_equal(graph.features, expected.features)
    assert (graph.adjacency != expected.adjacency).nnz == 0
    np.testing.assert_array_equal(graph.labels, expected.labels)
    assert graph.class_names == expected.class_names
    assert graph.node_ids == expected.node_ids
    np.testing.assert_array_equal(graph.split.train, expected.split.train)


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_graph_and_training(tmp_path, frames, expected, logits, name):
    source = SOURCES[name](tmp_path, frames)
    check_same(hoplite.open_data(source), expected)
    np.testing.assert_array_equal(trained_logits(source, expected), logits)


def test_a_damaged_csv_in_another_encoding_is_one_sentence(tmp_path):
    """It is read from a temporary copy in UTF-8, whose errors are still those of the file."""
    (tmp_path / "nodes.csv").write_bytes('id,label\nZoë,a\nb,"a\n'.encode("latin-1"))
    (tmp_path / "edges.csv").write_text("source,target\nb,b\n")
    with pytest.raises(DatasetError, match=r"nodes.csv cannot be read: line 3 has a quote"):
        hoplite.load(tmp_path)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_tables_and_queries_of_a_database(tmp_path, frames, expected, kind):
    path = {"duckdb": as_duckdb, "sqlite": as_sqlite}[kind](tmp_path, frames)
    query = "SELECT target AS source, source AS target, weight FROM edges WHERE weight >= 0;"
    check_same(hoplite.load(path, nodes="nodes", edges=query), expected)
    check_same(hoplite.load(path, nodes="main.nodes"), expected)
    with pytest.raises(DatasetError, match=r"no table 'node' .*Did you mean 'nodes'\?"):
        hoplite.load(path, nodes="node")
    with pytest.raises(HopliteError) as caught:
        hoplite.load(path, nodes="SELECT * FROM nodes; DROP TABLE edges")
    assert "\n" not in str(caught.value)
    check_same(hoplite.load(path), expected)


def test_named_files_and_queries_of_a_folder(tmp_path, frames, expected):
    written(tmp_path, frames)
    (tmp_path / "nodes.csv").rename(tmp_path / "accounts.csv")
    shutil.copy(as_parquet(tmp_path, frames) / "edges.parquet", tmp_path / "pay's.parquet")
    for stem in ("nodes.parquet", "edges.parquet", "edges.csv"):
        (tmp_path / stem).unlink()
    names = {"nodes": "accounts.csv", "edges": "pay's.parquet"}
    check_same(hoplite.load(tmp_path, **names), expected)
    check_same(hoplite.load(tmp_path, **names | {"edges": 'FROM "pay\'s.parquet"'}), expected)
    with pytest.raises(DatasetError, match=r"has no file .*Did you mean 'accounts.csv'\?"):
        hoplite.load(tmp_path, **names | {"nodes": "acounts.csv"})


def test_a_query_is_never_remembered(tmp_path, frames):
    path = as_duckdb(tmp_path, frames)
    graph = hoplite.load(path, nodes="SELECT * FROM nodes")
    kept = graph.preparation.options
    assert (kept.nodes, kept.edges) == ("", "")
    evil = Preparation(TableOptions(nodes="SELECT * FROM read_text('/etc/passwd')"), ())
    with pytest.warns(hoplite.HopliteWarning):
        assert hoplite.load(path, prepare=evil).num_nodes == graph.num_nodes


NAMES = [
    'a"b',
    "x; DROP TABLE cells",
    "new\nline",
    "語 🙂",
    "c0",
    "rowid",
    "X",
    "x",
    "'",
    "\\",
    "%s{0}",
]


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "sqlite", "pandas"])
def test_hostile_names_are_only_names(tmp_path, kind):
    names = [
        name for name in NAMES if kind not in ("duckdb", "sqlite") or name not in ("X", "rowid")
    ]
    nodes = pd.DataFrame({"id": ["a", "b", "c"]})
    for i, name in enumerate(names):
        nodes[name] = [float(i), i + 1.0, i + 5.0]
    pair = nodes, pd.DataFrame({"source": ["a"], "target": ["b"]})
    made = {"csv": written, "parquet": as_parquet, "duckdb": as_duckdb, "sqlite": as_sqlite}
    graph = hoplite.open_data(made[kind](tmp_path, pair) if kind in made else pair)
    assert graph.feature_names == tuple(names)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite", "xlsx"])
def test_damaged_databases_end_in_a_sentence(tmp_path, frames, kind):
    made = {"duckdb": as_duckdb, "sqlite": as_sqlite, "xlsx": as_workbook}[kind]
    path = made(tmp_path, frames)
    content = path.read_bytes()
    for at in range(0, len(content), max(1, len(content) // 12)):
        path.write_bytes(content[:at] + bytes(64) + content[at + 64 :][: len(content) // 2])
        with contextlib.suppress(HopliteError):
            hoplite.load(path)


def test_a_missing_extra_is_named(tmp_path, frames, monkeypatch):
    path = as_sqlite(tmp_path, frames)
    monkeypatch.setitem(__import__("sys").modules, "adbc_driver_sqlite", None)
    with pytest.raises(HopliteError, match="databases"):
        hoplite.load(path)


@pytest.fixture(scope="module")
def server():
    """A Postgres server of this test's own, on a free port; skipped where there is none."""
    binaries = sorted(SERVER.glob("*/bin/initdb"))
    if not binaries:
        pytest.skip("Postgres is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hoplite-postgres-"))
    root = os.geteuid() == 0  # as which Postgres refuses to run
    user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if root else []
    if root:
        shutil.chown(folder, "nobody", "nogroup")
    data, bin_folder = folder / "data", binaries[-1].parent
    start = [*user, bin_folder / "initdb", "-D", data, "-U", "hoplite", "-A", "trust", "-E", "UTF8"]
    subprocess.run(start, check=True, capture_output=True, cwd=folder)
    process, ready = None, False
    try:
        while not ready:
            if process is None or process.poll() is not None:  # another took the port meanwhile
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = str(free.getsockname()[1])
                options = ["-p", port, "-k", "", "-h", "127.0.0.1", "-F"]
                command = [*user, bin_folder / "postgres", "-D", data, *options]
                process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
            time.sleep(0.1)
            asked = [bin_folder / "pg_isready", "-h", "127.0.0.1", "-p", port]
            ready = subprocess.run(asked, capture_output=True).returncode == 0
        yield f"postgresql://hoplite@127.0.0.1:{port}/postgres"
    finally:
        if process is not None:
            process.terminate()
            process.wait(600)
        shutil.rmtree(folder, ignore_errors=True)


def test_postgres(server, frames, expected, logits, tmp_path):
    from adbc_driver_postgresql import dbapi

    nodes, edges = (pa.Table.from_pandas(frame, preserve_index=False) for frame in frames)
    with dbapi.connect(server) as con, con.cursor() as cursor:
        cursor.adbc_ingest("nodes", nodes)
        cursor.adbc_ingest("edges", edges)
        cursor.execute('CREATE TABLE "n; DROP" AS SELECT *, age::numeric AS "a""b" FROM nodes')
        con.commit()
    check_same(hoplite.load(server), expected)
    np.testing.assert_array_equal(trained_logits(server, expected), logits)
    query = "SELECT source, target, weight FROM edges"
    check_same(hoplite.load(server, nodes="public.nodes", edges=query), expected)
    odd = hoplite.load(server, nodes="n; DROP", drop="age")
    np.testing.assert_array_equal(odd.features[:, -2], expected.features[:, 0])
    with pytest.raises(DatasetError, match=r"no table 'nod' .*Did you mean 'nodes'\?"):
        hoplite.load(server, nodes="nod")
    with pytest.raises(DatasetError, match="cannot be read"):
        hoplite.load(server, edges="SELECT nothing FROM edges")
    store = hoplite.propagate(server, tmp_path / "store", hops=1)
    np.testing.assert_allclose(store.read(0, 60, hops=[0])[0], expected.features, rtol=1e-6)


def test_a_server_that_is_not_there():
    with pytest.raises(DatasetError, match="cannot be read") as caught:
        hoplite.load("postgresql://nobody@127.0.0.1:1/none")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_mixed_line_ends_lose_no_row(tmp_path, packed):
    rows = ["id,label,age", *(f"n{i},{'xy'[i % 2]},{i}.5" for i in range(50))]
    text = "".join(row + ("\n" if i % 7 == 3 else "\r\n") for i, row in enumerate(rows)).encode()
    (tmp_path / "edges.csv").write_bytes(b"source,target\r\nn0,n1\nn1,n2\r\n")
    file = tmp_path / ("nodes.csv.gz" if packed else "nodes.csv")
    file.write_bytes(gzip.compress(text) if packed else text)
    graph = hoplite.load(tmp_path, scale="none")
    assert graph.features[:, 0].tolist() == [i + 0.5 for i in range(50)]
    assert graph.num_edges == 2


def test_a_binary_file_is_not_text(tmp_path):
    (tmp_path / "nodes.csv").write_bytes(np.random.default_rng(0).bytes(3000))
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    with pytest.raises(DatasetError, match=r"nodes\.csv is not a text file"):
        hoplite.load(tmp_path)
