"""A graph in files, read a range of rows at a time.

:func:`import_tables` makes it from tables, :func:`write_disk_graph` from a graph in memory.

graph.json                              written last
indptr.npy, indices.npy, values.npy     the adjacency, CSR, both directions, no diagonal
features.npy                            (n, d) float32
labels.npy, split.npz, ids.npy, id_ends.npy

graph.json has the checksum of each, with which it is compared before anything of it is used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hoplite.csr import Fingerprint, fingerprint, index_type, mean_weight, row_pieces
from hoplite.errors import DatasetError
from hoplite.files import read_json, write_json
from hoplite.graph import Graph, cached_property
from hoplite.io import node_files
from hoplite.io.array_files import (
    CSR_ARRAYS,
    CsrFiles,
    NpyRows,
    all_crc32,
    growing_csr,
    growing_npy,
)
from hoplite.io.node_files import Checksum, Count, NodeFacts, NodeFiles, all_integers, write_nodes

FILE, FEATURES = "graph.json", "features.npy"
ADJACENCY = tuple(f"{part}.npy" for part in CSR_ARRAYS)


@dataclass(frozen=True, kw_only=True)
class GraphDescription(NodeFacts):
    """graph.json."""

    format: Literal["hoplite graph 1"] = "hoplite graph 1"
    features: Count
    fingerprint: Fingerprint
    tables: list[list[str | int]]  # name, size and time of what was imported; the seed
    crc32: dict[str, Checksum]  # checksum of every other file


class DiskGraph(NodeFiles):
    """A graph on disk, which implements :class:`hoplite.NodeData` in little memory.

    No file stays open.

    Parameters
    ----------
    folder : path
        A folder written by :func:`write_disk_graph` or :func:`import_tables`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_disk_graph(Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)), folder)
    ...     graph = DiskGraph(folder)
    ...     print(graph.num_nodes, graph.feature_rows(1, 2).tolist())
    3 [[0.0, 1.0, 0.0]]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            facts = self._facts = read_json(self.folder / FILE, GraphDescription)
            names = facts.feature_names
            if names is not None and len(names) != facts.features:
                raise ValueError(f"it has {len(names):,} names for {facts.features:,} features")
        except (OSError, ValueError) as error:
            raise self._damaged(FILE, error) from error
        super().__init__(self.folder, facts)
        self.num_features, self.tables = facts.features, facts.tables

    @property
    def _crc32(self) -> dict[str, int]:
        return self._facts.crc32

    @cached_property
    def adjacency_rows(self) -> CsrFiles:
        """The edge weights, a range of rows at a time."""
        with self._checked("the adjacency", *ADJACENCY):
            rows = CsrFiles(self.folder, partial(self._damaged, "the adjacency"))
            if rows.rows != self.num_nodes:
                raise ValueError(f"it has {rows.rows:,} rows, not {self.num_nodes:,}")
        return rows

    @cached_property
    def _features(self) -> NpyRows:
        with self._checked(FEATURES, FEATURES):
            rows = NpyRows(self.folder / FEATURES)
            if rows.shape != (self.num_nodes, self.num_features) or rows.dtype != np.float32:
                raise ValueError(f"it has type {rows.dtype} and shape {rows.shape}")
        return rows

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X: float32 of shape (stop - start, features)."""
        rows = self._features
        with self._checked(FEATURES):
            return rows.read(start, stop)

    @cached_property
    def loop_weight(self) -> float:
        """The weight of the self-loops that operators add, as in memory."""
        return mean_weight(self.adjacency_rows)

    @property
    def stored(self) -> None:
        """No hop features have been computed, see :class:`hoplite.NodeData`."""

    def fingerprint(self) -> Fingerprint:
        """What identifies the graph; it was computed when the files were written."""
        return self._facts.fingerprint

    def in_memory(self) -> Graph:
        """The whole graph in memory."""
        n = self.num_nodes
        return Graph(
            self.adjacency_rows.read(0, n),
            self.feature_rows(0, n),
            self.labels,
            self.split,
            self.class_names,
            self.feature_names,
            self.node_ids,
            self.name,
            self.preparation,
        )

    def _damaged(self, name: str, error: Exception) -> DatasetError:
        return DatasetError(
            f"{self.folder} is not a complete graph on disk ({name}: "
            f"{getattr(error, 'strerror', None) or error}); remove it and import it again."
        )

    def __repr__(self) -> str:
        edges = self.adjacency_rows.entries // 2
        return f"DiskGraph(nodes={self.num_nodes}, edges={edges}, features={self.num_features})"


def is_disk_graph(folder: Path) -> bool:
    """Whether ``folder`` holds a graph on disk that was imported to the end."""
    return (folder / FILE).is_file()


def write_disk_graph(graph: Graph, folder: str | os.PathLike[str]) -> None:
    """Write a graph from memory to a folder, which :class:`DiskGraph` opens.

    Another process can then compute its hop features with less memory than the graph needs.

    Parameters
    ----------
    graph : Graph
        The graph to write; its features are stored in float32.
    folder : path
        The folder to write to.

    Examples
    --------
    >>> import tempfile
    >>> path = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_disk_graph(path, folder)
    ...     graph = DiskGraph(folder)
    ...     print(graph, graph.feature_rows(1, 2).tolist())
    DiskGraph(nodes=3, edges=2, features=3) [[0.0, 1.0, 0.0]]
    """
    graph.refuse_relations("a graph on disk")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    n, width, ids = graph.num_nodes, graph.num_features, graph.node_ids
    with growing_csr(folder, index_type(n), graph.adjacency.dtype.type) as append:
        append(graph.adjacency)
    with growing_npy(folder / FEATURES, np.float32, (width,)) as append:
        for rows in row_pieces(graph.feature_rows, n, width):
            append(rows)
    write_nodes(folder, graph.labels, graph.split, ids, integers=all_integers(ids or ()))
    write_description(
        folder,
        name=graph.name,
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        split_note=graph.split.note,
        tables=[],
        preparation=graph.preparation,
    )


def write_description(folder: Path, **facts: Any) -> None:
    """After all other files: graph.json, which completes them.

    ``facts`` are the fields of :class:`GraphDescription` that the files do not tell.
    """
    features = NpyRows(folder / FEATURES)
    n, width = features.shape
    description = GraphDescription(
        nodes=n,
        features=width,
        fingerprint=fingerprint(CsrFiles(folder), features.read, width),
        crc32=all_crc32(folder, FEATURES, *node_files.FILES, *ADJACENCY),
        **facts,
    )
    write_json(folder / FILE, description)
