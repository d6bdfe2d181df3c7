"""A graph in files, read a range of rows at a time.

:func:`import_tables` makes it from tables, :func:`write_disk_graph` from a graph in memory.

graph.json                              written last
indptr.npy, indices.npy, values.npy     the adjacency, CSR, both directions, no diagonal
features.npy                            (n, d) float32
labels.npy, split.npz, ids.npy, id_ends.npy

graph.json has the checksum of each, with which it is compared before anything of it is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from hoplite.csr import (
    Fingerprint,
    adjacency_digest,
    features_digest,
    index_type,
    mean_weight,
    row_pieces,
)
from hoplite.errors import DatasetError
from hoplite.files import read_json, write_json
from hoplite.graph import Graph, Split, cached_property
from hoplite.io.array_files import (
    CSR_ARRAYS,
    ID_ENDS,
    IDS,
    Closing,
    CsrFiles,
    NpyRows,
    StoredIds,
    all_integers,
    check_crc32,
    file_crc32,
    growing_csr,
    growing_npy,
    write_ids,
    write_npy,
)
from hoplite.io.splits import read_labels, read_split, write_split
from hoplite.preparation import Preparation

FILE, FEATURES, LABELS, SPLIT = "graph.json", "features.npy", "labels.npy", "split.npz"
FILES = (FEATURES, LABELS, SPLIT, IDS, ID_ENDS, *(f"{part}.npy" for part in CSR_ARRAYS))
Names = tuple[str, ...]
Count = Annotated[int, Meta(ge=0, le=2**48)]
Checksum = Annotated[int, Meta(ge=0, lt=2**32)]


@dataclass(frozen=True)
class Description:
    """graph.json."""

    format: Literal["hoplite graph 1"]
    name: str
    nodes: Count
    features: Count
    fingerprint: Fingerprint
    class_names: Names
    feature_names: Names | None
    split_note: str
    integer_ids: bool
    tables: list[list[str | int]]  # name, size and time of what was imported; the seed
    crc32: dict[str, Checksum]  # of every other file
    preparation: Preparation | None = None


class DiskGraph(Closing):
    """A graph on disk, which implements :class:`hoplite.NodeData` in little memory.

    Close it after use, or open it in a ``with`` block.

    Parameters
    ----------
    folder : path
        A folder written by :func:`write_disk_graph` or :func:`import_tables`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_disk_graph(Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)), folder)
    ...     with DiskGraph(folder) as graph:
    ...         print(graph.num_nodes, graph.feature_rows(1, 2).tolist())
    3 [[0.0, 1.0, 0.0]]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        with self._sound(FILE):
            found = self._found = read_json(self.folder / FILE, Description)
            names = found.feature_names
            if names is not None and len(names) != found.features:
                raise ValueError(f"it has {len(names):,} names for {found.features:,} features")
        self.name, self.num_nodes, self.num_features = found.name, found.nodes, found.features
        self.class_names: tuple[str, ...] = found.class_names
        self.feature_names = names
        self.preparation = found.preparation
        self.tables, self._open = found.tables, contextlib.ExitStack()

    @cached_property
    def adjacency_rows(self) -> CsrFiles:
        """The edge weights, a range of rows at a time."""
        with self._sound("the adjacency", *(f"{part}.npy" for part in CSR_ARRAYS)):
            files = CsrFiles(self.folder, partial(self._damage, "the adjacency"))
            self._open.enter_context(files)
            if files.rows != self.num_nodes:
                raise ValueError(f"it has {files.rows:,} rows, not {self.num_nodes:,}")
        return files

    @cached_property
    def _features(self) -> NpyRows:
        with self._sound(FEATURES, FEATURES):
            rows = self._open.enter_context(NpyRows(self.folder / FEATURES))
            if rows.shape != (self.num_nodes, self.num_features) or rows.dtype != np.float32:
                raise ValueError(f"it has type {rows.dtype} and shape {rows.shape}")
        return rows

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X: float32 of shape (stop - start, features)."""
        rows = self._features
        with self._sound(FEATURES):
            return rows.read(start, stop)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def loop_weight(self) -> float:
        """The weight of the self-loops that operators add, as in memory."""
        return mean_weight(self.adjacency_rows)

    @property
    def relation_weights(self) -> dict[str, float]:
        """Empty: a graph on disk has no directions and types of edges."""
        return {}

    @property
    def stored(self) -> None:
        """No hop features have been computed, see :class:`hoplite.NodeData`."""

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every node, -1 where unknown."""
        with self._sound(LABELS, LABELS):
            return read_labels(self.folder / LABELS, self.num_nodes, len(self.class_names))

    @cached_property
    def split(self) -> Split:
        """The nodes of training, validation and test."""
        labels = self.labels
        with self._sound(SPLIT, SPLIT):
            return read_split(self.folder / SPLIT, labels, self._found.split_note)

    @cached_property
    def node_ids(self) -> StoredIds | None:
        """The ids of the nodes, as integers if all of them are; None if they have none."""
        names, damaged = [IDS, ID_ENDS], partial(self._damage, IDS)
        names = [name for name in names if name in self._found.crc32]
        if not names:
            return None
        with self._sound(IDS, *names):
            integers = self._found.integer_ids
            return StoredIds(self.folder, self.num_nodes, integers=integers, damaged=damaged)

    def fingerprint(self) -> Fingerprint:
        """What identifies the graph; it was computed when the files were written."""
        return self._found.fingerprint

    def in_memory(self) -> Graph:
        """The whole graph in memory."""
        n = self.num_nodes
        return Graph(
            self.adjacency_rows.read(0, n).to_scipy(n),
            self.feature_rows(0, n),
            self.labels,
            self.split,
            self.class_names,
            self.feature_names,
            self.node_ids,
            self.name,
            self.preparation,
        )

    @contextlib.contextmanager
    def _sound(self, name: str, *files: str) -> Iterator[None]:
        """Compare files with their checksums; there, and within the block, damage is an error."""
        try:
            if files:
                check_crc32(self.folder, self._found.crc32, *files)
            yield
        except (OSError, ValueError) as error:
            raise self._damage(name, error) from error

    def _damage(self, name: str, error: Exception) -> DatasetError:
        return DatasetError(
            f"{self.folder} is not a complete graph on disk ({name}: "
            f"{getattr(error, 'strerror', None) or error}); remove it and import it again."
        )

    def close(self) -> None:
        self._open.close()

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
    ...     with DiskGraph(folder) as graph:
    ...         print(graph)
    DiskGraph(nodes=3, edges=2, features=3)
    """
    graph.refuse_relations("a graph on disk")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FILE, IDS, ID_ENDS):
        (folder / name).unlink(missing_ok=True)
    n, width = graph.num_nodes, graph.num_features
    with growing_csr(folder, index_type(n), graph.adjacency.dtype.type) as append:
        append(graph.adjacency)
    with growing_npy(folder / FEATURES, np.float32, (width,)) as append:
        for rows in row_pieces(graph.feature_rows, n, width):
            append(rows)
    ids = graph.node_ids
    integers = ids is not None and all_integers(ids)
    if ids is not None:
        write_ids(folder, ids, integers=integers)
    write_rest(
        folder,
        graph.labels,
        graph.split,
        name=graph.name,
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        integer_ids=integers,
        tables=[],
        preparation=graph.preparation,
    )


def write_rest(folder: Path, labels: np.ndarray, split: Split, **facts: Any) -> None:
    """After adjacency, features and ids: labels, split, and graph.json, which closes it all.

    ``facts`` are the fields of :class:`Description` that the files do not tell.
    """
    write_npy(folder / LABELS, labels)
    write_split(folder / SPLIT, split)
    with CsrFiles(folder) as adjacency, NpyRows(folder / FEATURES) as rows:
        graph, longest = adjacency_digest(adjacency)
        n, width = rows.shape
        pieces = row_pieces(rows.read, n, width)
        found = Description(
            format="hoplite graph 1",
            nodes=n,
            features=width,
            fingerprint=Fingerprint(graph, features_digest(pieces, width), longest),
            split_note=split.note,
            crc32={name: file_crc32(folder / name) for name in FILES if (folder / name).exists()},
            **facts,
        )
    write_json(folder / FILE, found)
