"""A graph in files, read a range of rows at a time.

:func:`import_tables` makes it from tables, :func:`write_disk_graph` from a graph in memory.

graph.json                              written last
indptr.npy, indices.npy, values.npy     the adjacency, CSR, both directions, no diagonal
features.npy                            (n, d) float32
labels.npy, split.npz, ids.parquet
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from pyarrow import parquet

from hoplite.datasets.array_files import NpyRows, growing_npy, read_npz, write_npy
from hoplite.datasets.csr_rows import CsrFiles, CsrMemory, growing_csr, index_type, row_ranges
from hoplite.datasets.fingerprint import adjacency_digest, features_digest
from hoplite.errors import DatasetError
from hoplite.files import atomic_write, atomic_write_text
from hoplite.graph import Graph, Split

FILE = "graph.json"
FORMAT = "hoplite graph 1"
IDS = "ids.parquet"
SPLIT_PARTS = ("train", "val", "test")
PIECE = 1 << 22  # numbers hashed or copied at a time


class DiskGraph:
    """A graph on disk; close it, or use it in a ``with`` block.

    ``digests`` are the SHA-256 of the adjacency (``graph``) and of X (``features``).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        path = self.folder / FILE
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(meta, dict) or meta.get("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            self.name: str = meta["name"]
            self.nodes, self.features = int(meta["nodes"]), int(meta["features"])
            self.longest_row = int(meta["longest_row"])
            self.digests: dict[str, str] = meta["digests"]
            self.class_names = tuple(meta["class_names"])
            names = meta["feature_names"]
            self.feature_names = None if names is None else tuple(names)
            self.tables: list[Any] = meta["tables"]
            self._note, self._integers = meta["split_note"], bool(meta["integer_ids"])
            self.adjacency = CsrFiles(self.folder, self._damaged)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(error) from error
        try:
            if self.adjacency.rows != self.nodes:
                raise ValueError("the adjacency has another size")
            self._features = NpyRows(self.folder / "features.npy")
            if self._features.shape != (self.nodes, self.features):
                self._features.close()
                raise ValueError("features.npy has another shape")
        except (OSError, ValueError) as error:
            self.adjacency.close()
            raise self._damaged(error) from error

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X: float32 of shape (stop - start, features)."""
        return self._features.read(start, stop)

    def labels(self) -> np.ndarray:
        """The class of every node, -1 where unknown."""
        try:
            with NpyRows(self.folder / "labels.npy") as file:
                return file.read(0, len(file))
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def split(self) -> Split:
        """The nodes of training, validation and test."""
        try:
            parts = read_npz(self.folder / "split.npz", SPLIT_PARTS)
            return Split(*parts, note=self._note)
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def ids(self) -> list[Any]:
        """The ids of the nodes, integers where all of them are; in memory."""
        if not (self.folder / IDS).exists():
            return list(range(self.nodes))
        names = parquet.read_table(self.folder / IDS)["id"].to_pylist()
        return [int(name) for name in names] if self._integers else names

    def close(self) -> None:
        self.adjacency.close()
        self._features.close()

    def __enter__(self) -> DiskGraph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        edges = self.adjacency.entries // 2
        return f"DiskGraph(nodes={self.nodes}, edges={edges}, features={self.features})"

    def _damaged(self, error: Exception) -> DatasetError:
        return DatasetError(
            f"{self.folder} holds no whole graph on disk ({error}); remove it and import it again."
        )


def is_disk_graph(folder: Path) -> bool:
    """Whether ``folder`` holds a graph on disk that was imported to the end."""
    return (folder / FILE).is_file()


def write_disk_graph(graph: Graph, folder: str | os.PathLike[str]) -> None:
    """Write a graph from memory, for a process that has less of it; X in float32.

    >>> import tempfile
    >>> path = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_disk_graph(path, folder)
    ...     with DiskGraph(folder) as found:
    ...         print(found, found.feature_rows(1, 2).tolist())
    DiskGraph(nodes=3, edges=2, features=3) [[0.0, 1.0, 0.0]]
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    adjacency, n = CsrMemory(graph.adjacency), graph.num_nodes
    with growing_csr(folder, index_type(n), graph.adjacency.dtype.type) as append:
        for start, stop in row_ranges(adjacency, PIECE):
            append(adjacency.read(start, stop).to_scipy(n))
    width = graph.num_features
    step = max(1, PIECE // max(width, 1))
    with growing_npy(folder / "features.npy", np.float32, (width,)) as append:
        for start in range(0, n, step):
            rows: Any = graph.features[start : start + step]
            append(rows.toarray() if sp.issparse(rows) else rows)
    ids = graph.node_ids
    if ids is not None:
        with atomic_write(folder / IDS) as file:
            names = pa.array([str(name) for name in ids], pa.large_string())
            parquet.write_table(pa.table({"id": names}), file)
    assert graph.labels is not None  # a Graph fills them in
    write_rest(
        folder,
        graph.labels,
        graph.split,
        name=graph.name,
        class_names=graph.class_names or (),
        feature_names=graph.feature_names,
        integer_ids=ids is not None and all(isinstance(name, int) for name in ids),
        tables=[],
    )


def write_rest(
    folder: Path,
    labels: np.ndarray,
    split: Split,
    *,
    name: str,
    class_names: Sequence[str],
    feature_names: Sequence[str] | None,
    integer_ids: bool,
    tables: list[Any],
) -> None:
    """After adjacency, features and ids: labels, split, and graph.json, which closes it all."""
    write_npy(folder / "labels.npy", labels)
    with atomic_write(folder / "split.npz") as file:
        np.savez(file, **{part: getattr(split, part) for part in SPLIT_PARTS})
    with CsrFiles(folder) as adjacency, NpyRows(folder / "features.npy") as rows:
        graph, longest = adjacency_digest(adjacency)
        n, width = rows.shape
        step = max(1, PIECE // max(width, 1))
        pieces = (rows.read(start, min(start + step, n)) for start in range(0, n, step))
        digests = {"graph": graph, "features": features_digest(pieces, width)}
    meta = {
        "format": FORMAT,
        "name": name,
        "nodes": n,
        "features": width,
        "longest_row": longest,
        "digests": digests,
        "class_names": list(class_names),
        "feature_names": None if feature_names is None else list(feature_names),
        "split_note": split.note,
        "integer_ids": integer_ids,
        "tables": tables,
    }
    atomic_write_text(folder / FILE, json.dumps(meta, indent=1) + "\n")
