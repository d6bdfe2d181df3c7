"""Sound inputs of every kind that Hoplite reads, small and untidy, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx
import numpy as np
import pyarrow as pa
import scipy.io
import scipy.sparse as sp
from numpy.random import Generator
from pyarrow import csv, parquet

import hoplite
from hoplite.io.disk_graph import write_disk_graph
from hoplite.io.npz import write_npz
from hoplite.machine import used_memory
from hoplite.store import propagate

NODES, CLASSES = 90, 3
IMPORT_ROOM = 130 * 10**6  # so little that tables are imported instead of loaded
GRID = "[tables]\nlr = [0.2, 0.05]\nweight_decay = 5e-4\ndropout = 0.0\nhops = [1, 2]\n"
Run = Callable[[list[str], Path], None]  # a command in a folder; it must end well


def make_inputs(folder: Path, run: Run) -> None:
    """One sound input of every kind, small and untidy."""
    rng = np.random.default_rng(0)
    ids = [f"n{i}é" for i in rng.permutation(NODES)]
    labels = rng.choice(CLASSES, NODES, p=[0.6, 0.3, 0.1])
    labels[:CLASSES] = np.arange(CLASSES)
    parts = rng.choice(["train", "val", "test"], NODES)
    parts[:CLASSES] = "train"
    ends = rng.integers(0, NODES - 5, (3 * NODES, 2))  # the last five stay alone
    nodes = pa.table(
        {"id": ids, "label": [f"class {c}" for c in labels], "split": parts.tolist(),
         "age": rng.normal(size=NODES), "town": [f"t{t}" for t in rng.integers(0, 4, NODES)]}
    )  # fmt: skip
    edges = pa.table(
        {"source": [ids[i] for i in ends[:, 0]], "target": [ids[i] for i in ends[:, 1]],
         "weight": rng.uniform(0.1, 9, len(ends))}
    )  # fmt: skip
    for name in ("tables", "parquet"):
        (folder / name).mkdir()
    for name, table in (("nodes", nodes), ("edges", edges)):
        csv.write_csv(table, folder / "tables" / f"{name}.csv")
        parquet.write_table(table, folder / "parquet" / f"{name}.parquet")
    graph = hoplite.load(folder / "tables")
    write_npz(folder / "graph.npz", graph)
    write_disk_graph(graph, folder / "disk")
    propagate(graph, folder / "store", hops=2)
    make_reddit(folder / "reddit", rng)
    make_graph_files(folder, rng)
    (folder / "grid.toml").write_text(GRID)
    for words in (
        ["train", "tables", "--model", "lgc", "--hops", "2", "--epochs", "2", "--out", "model"],
        ["search", "tables", "--model", "sgc", "--grid", "grid.toml", "--seeds", "2",
         "--epochs", "3", "--workers", "1", "--out", "ledger"],
    ):  # fmt: skip
        run(words, folder)


def make_reddit(folder: Path, rng: Generator) -> None:
    folder.mkdir()
    np.savez(
        folder / "reddit_data.npz",
        feature=rng.normal(size=(NODES, 6)),
        label=np.arange(NODES) % CLASSES,
        node_types=rng.integers(1, 4, NODES),
    )
    sp.save_npz(folder / "reddit_graph.npz", sp.random(NODES, NODES, 0.05, "coo", rng=rng))


def make_graph_files(folder: Path, rng: Generator) -> None:
    labels, ends = np.arange(NODES) % CLASSES, rng.integers(0, NODES, (3 * NODES, 2))
    parts = rng.integers(0, 3, (4, NODES))
    parts[:, :CLASSES] = 0
    np.savez(
        folder / "masks.npz",
        node_features=rng.normal(size=(NODES, 6)),
        node_labels=labels,
        edges=ends,
        **{f"{part}_masks": parts == i for i, part in enumerate(("train", "val", "test"))},
    )
    graph = networkx.Graph(ends.tolist())
    graph.add_nodes_from((i, {"label": f"c{c}", "x": rng.normal()}) for i, c in enumerate(labels))
    networkx.write_graphml(graph, folder / "graph.graphml")
    lines = "\n".join(f"{u + 1} {v + 1} {rng.random():.3f}" for u, v in ends)
    (folder / "links.txt").write_text(f"# source target weight\n{lines}\n")
    scipy.io.mmwrite(folder / "matrix.mtx", sp.random(NODES, NODES, 0.05, "coo", rng=rng))
    table = pa.table({"id": np.arange(1, NODES + 1), "label": labels, "x": rng.normal(size=NODES)})
    for name in ("links", "matrix"):
        csv.write_csv(table, folder / f"{name}.nodes.csv")


def commands() -> dict[str, list[tuple[str, list[str]]]]:
    """Kind -> what is damaged, and a command that reads it."""
    train = ["--model", "sgc", "--hops", "2", "--epochs", "2"]
    import_it = ["--hops", "1", "--memory", str(used_memory() + IMPORT_ROOM), "--out", "new"]
    search = ["--model", "sgc", "--seeds", "2", "--epochs", "3", "--workers", "1"]
    search += ["--grid", "grid.toml", "--out"]
    return {
        "npz": [
            ("graph.npz", ["train", "graph.npz", *train]),
            ("reddit", ["train", "reddit", *train]),
            ("masks.npz", ["train", "masks.npz", *train, "--split-index", "2"]),
        ],
        "graph files": [
            (name, ["train", name, *train]) for name in ("graph.graphml", "links.txt", "matrix.mtx")
        ],
        "tables": [
            ("tables", ["train", "tables", *train]),
            ("parquet", ["train", "parquet", *train]),
            ("tables", ["propagate", "tables", *import_it]),
            ("parquet", ["propagate", "parquet", *import_it]),
        ],
        "disk graphs": [("disk", ["propagate", "disk", "--hops", "2", "--out", "new"])],
        "stores": [
            ("store", ["train", "store", "--model", "lgc", "--epochs", "2"]),
            ("store", ["propagate", "tables", "--hops", "3", "--out", "store"]),
        ],
        "models": [
            ("model", ["predict", "model", "tables", "--out", "new.csv"]),
            ("model", ["explain", "model", "tables", "--node", "n3é"]),
        ],
        "ledgers": [("ledger", ["search", "tables", *search, "ledger"])],
        "grids": [("grid.toml", ["search", "tables", *search, "new"])],
    }
