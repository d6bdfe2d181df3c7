"""A graph in files, read a range of rows at a time.

:func:`import_tables` makes it from tables, :func:`write_disk_graph` from a graph in memory.

graph.json                              written last
indptr.npy, indices.npy, values.npy     the adjacency, CSR, both directions, no diagonal
features.npy                            (n, d) float32
labels.npy, split.npz, ids.npy

graph.json has a checksum of each. Whoever reads all rows in order, as ``propagate`` does, gets them
compared with it at the end, before the last of them is given out: no wrong number is ever used.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from hoplite.csr import (
    AdjacencyDigest,
    CsrPiece,
    FeaturesDigest,
    Fingerprint,
    adjacency_digest,
    features_digest,
    index_type,
    mean_weight,
    row_ranges,
)
from hoplite.errors import DatasetError
from hoplite.files import open_regular, read_json, write_json
from hoplite.graph import Graph, Split
from hoplite.io.array_files import Closing, CsrFiles, NpyRows, growing_csr, growing_npy, write_npy
from hoplite.io.ids import IDS, IdFile, all_integers, write_ids
from hoplite.io.splits import read_labels, read_split, split_crc32, write_split
from hoplite.node_data import cached_property
from hoplite.preparation import Preparation

FILE = "graph.json"
PIECE = 1 << 22  # numbers hashed or copied at a time
Names = tuple[str, ...]
Count = Annotated[int, Meta(ge=0, le=2**48)]
Checksum = Annotated[int, Meta(ge=0, lt=2**32)]


@dataclass(frozen=True)
class Digests:
    """SHA-256 of the adjacency and of X, whatever the pieces they are kept in."""

    graph: str
    features: str


@dataclass(frozen=True)
class Checksums:
    """CRC-32 of the smaller parts; of the file of ids, None if there is none."""

    labels: Checksum
    split: Checksum
    ids: Checksum | None


@dataclass(frozen=True)
class Description:
    """graph.json."""

    format: Literal["hoplite graph 1"]
    name: str
    nodes: Count
    features: Count
    longest_row: Count
    digests: Digests
    class_names: Names
    feature_names: Names | None
    split_note: str
    integer_ids: bool
    tables: list[list[str | int]]  # name, size and time of what was imported; the seed
    checksums: Checksums
    preparation: Preparation | None = None


class DiskGraph(Closing):
    """A graph on disk, as :class:`hoplite.NodeData`; close it, or use it in a ``with`` block.

    ``digests`` are the SHA-256 of the adjacency (``graph``) and of X (``features``).
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        with self.clear_damage(FILE):
            found = self._found = read_json(self.folder / FILE, Description)
            names = found.feature_names
            if names is not None and len(names) != found.features:
                raise ValueError(f"it has {len(names):,} names of {found.features:,} features")
        self.name, self.num_nodes, self.num_features = found.name, found.nodes, found.features
        self.longest_row, self.digests = found.longest_row, found.digests
        self.class_names: tuple[str, ...] = found.class_names
        self.feature_names = names
        self.preparation = found.preparation
        self.tables, self._sum = found.tables, _WholePass(lambda: FeaturesDigest(found.features))
        with contextlib.ExitStack() as stack:
            with self.clear_damage("the adjacency"):
                files = stack.enter_context(CsrFiles(self.folder))
                if files.rows != self.num_nodes:
                    raise ValueError(f"it has {files.rows:,} rows, not {self.num_nodes:,}")
            self.adjacency_rows = CheckedRows(files, self)
            with self.clear_damage("features.npy"):
                self._features = stack.enter_context(NpyRows(self.folder / "features.npy"))
                shape, kind = self._features.shape, self._features.dtype
                if shape != (self.num_nodes, self.num_features) or kind != np.float32:
                    raise ValueError(f"it holds {kind} of shape {shape}")
            self._open = stack.pop_all()

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X: float32 of shape (stop - start, features)."""
        with self.clear_damage("features.npy"):
            rows = self._features.read(start, stop)
            if self._sum.add(start, stop, rows) and stop == self.num_nodes:
                self._sum.compare(self.digests.features)
        return rows

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def loop_weight(self) -> float:
        """The weight of the self-loops that operators add, as in memory."""
        return mean_weight(self.adjacency_rows)

    @property
    def relation_weights(self) -> dict[str, float]:
        """None: directions and types of edges are not kept here."""
        return {}

    @property
    def stored(self) -> None:
        """No hop features have been computed, see :class:`hoplite.NodeData`."""

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every node, -1 where unknown."""
        path, sums = self.folder / "labels.npy", self._found.checksums
        with self.clear_damage(path.name):
            return read_labels(path, self.num_nodes, len(self.class_names), sums.labels)

    @cached_property
    def split(self) -> Split:
        """The nodes of training, validation and test."""
        path, sums, labels = self.folder / "split.npz", self._found.checksums, self.labels
        with self.clear_damage(path.name):
            return read_split(path, labels, self._found.split_note, sums.split)

    @cached_property
    def node_ids(self) -> IdFile | None:
        """The ids of the nodes, integers where all of them are; None if they have none."""
        sums, path = self._found.checksums, self.folder / IDS
        if sums.ids is None:
            return None
        with self.clear_damage(IDS):
            check_same(file_crc32(path), sums.ids)
        integers = self._found.integer_ids
        return IdFile(path, self.num_nodes, integers=integers, damaged=partial(self._damage, IDS))

    def fingerprint(self) -> Fingerprint:
        """By which the graph is known again; it was noted when the files were written."""
        return Fingerprint(self.digests.graph, self.digests.features, self.longest_row)

    def in_memory(self) -> Graph:
        """All of it in memory."""
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
    def clear_damage(self, name: str) -> Iterator[None]:
        """Within the block, a file that is missing or damaged is a DatasetError."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise self._damage(name, error) from error

    def _damage(self, name: str, error: Exception) -> DatasetError:
        return DatasetError(
            f"{self.folder} holds no whole graph on disk ({name}: "
            f"{getattr(error, 'strerror', None) or error}); remove it and import it again."
        )

    def close(self) -> None:
        self._open.close()

    def __repr__(self) -> str:
        edges = self.adjacency_rows.entries // 2
        return f"DiskGraph(nodes={self.num_nodes}, edges={edges}, features={self.num_features})"


class _WholePass:
    """The digest of rows that are read in order from the first to the last.

    Every pass that begins with the first row is looked at, until one has been found sound.
    """

    def __init__(self, new: Callable[[], AdjacencyDigest | FeaturesDigest]) -> None:
        self._new, self._digest = new, new()
        self._next, self._sound = 0, False

    def add(self, start: int, stop: int, rows: Any) -> bool:
        """Whether these were the next rows."""
        if self._sound or stop == start:
            return False
        if start == 0:
            self._digest, self._next = self._new(), 0
        if start != self._next:
            return False
        self._digest.add(rows)
        self._next = stop
        return True

    def compare(self, digest: str, **facts: int) -> None:
        """ValueError unless the pass gave this ``digest``, and whatever else it noted."""
        check_same(self._digest.digest(), digest)
        for name, value in facts.items():
            check_same(getattr(self._digest, name), value)
        self._sound = True


class CheckedRows:
    """The adjacency of a graph on disk, as :class:`CsrFiles` reads it, compared with its digest."""

    def __init__(self, files: CsrFiles, graph: DiskGraph) -> None:
        self._files, self._graph = files, graph
        self.rows, self.entries = files.rows, files.entries
        self._sum = _WholePass(lambda: AdjacencyDigest(files.rows))

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start`` to ``stop`` (excluded) begin, and where the last of them ends."""
        with self._graph.clear_damage("indptr.npy"):
            return self._files.indptr(start, stop)

    def read(self, start: int, stop: int) -> CsrPiece:
        with self._graph.clear_damage("the adjacency"):
            rows = self._files.read(start, stop)
            if self._sum.add(start, stop, rows) and stop == self.rows:
                wanted = self._graph
                self._sum.compare(wanted.digests.graph, longest_row=wanted.longest_row)
        return rows


def check_same(found: object, wanted: object) -> None:
    """ValueError unless a digest is the one that was noted."""
    if found != wanted:
        raise ValueError("it does not hold what was written to it")


def verify_disk_graph(folder: Path) -> list[str]:
    """Read all files of a graph on disk; one sentence per damage."""

    def adjacency() -> None:
        for start, stop in row_ranges(graph.adjacency_rows, PIECE):
            graph.adjacency_rows.read(start, stop)

    def features() -> None:
        step = max(1, PIECE // max(graph.num_features, 1))
        for start in range(0, graph.num_nodes, step):
            graph.feature_rows(start, min(start + step, graph.num_nodes))

    def ids() -> None:
        for _ in graph.node_ids or ():
            pass

    found: list[str] = []
    try:
        with DiskGraph(folder) as graph:
            for check in (adjacency, features, lambda: graph.split, ids):
                try:
                    check()
                except DatasetError as error:
                    found.append(str(error))
    except DatasetError as error:
        found.append(str(error))
    return found


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
    graph.refuse_relations("a graph on disk")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (FILE, IDS):
        (folder / name).unlink(missing_ok=True)
    adjacency, n = graph.adjacency_rows, graph.num_nodes
    with growing_csr(folder, index_type(n), graph.adjacency.dtype.type) as append:
        for start, stop in row_ranges(adjacency, PIECE):
            append(adjacency.read(start, stop).to_scipy(n))
    width = graph.num_features
    step = max(1, PIECE // max(width, 1))
    with growing_npy(folder / "features.npy", np.float32, (width,)) as append:
        for start in range(0, n, step):
            append(graph.feature_rows(start, min(start + step, n)))
    ids = graph.node_ids
    if ids is not None:
        write_ids(folder / IDS, ids)
    write_rest(
        folder,
        graph.labels,
        graph.split,
        name=graph.name,
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        integer_ids=ids is not None and all_integers(ids),
        tables=[],
        preparation=graph.preparation,
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
    preparation: Preparation | None,
) -> None:
    """After adjacency, features and ids: labels, split, and graph.json, which closes it all."""
    write_npy(folder / "labels.npy", labels)
    write_split(folder / "split.npz", split)
    with CsrFiles(folder) as adjacency, NpyRows(folder / "features.npy") as rows:
        graph, longest = adjacency_digest(adjacency)
        n, width = rows.shape
        step = max(1, PIECE // max(width, 1))
        pieces = (rows.read(start, min(start + step, n)) for start in range(0, n, step))
        digests = Digests(graph, features_digest(pieces, width))
    sums = Checksums(zlib.crc32(labels.data), split_crc32(split), file_crc32(folder / IDS))
    found = Description(
        format="hoplite graph 1",
        name=name,
        nodes=n,
        features=width,
        longest_row=longest,
        digests=digests,
        class_names=tuple(class_names),
        feature_names=None if feature_names is None else tuple(feature_names),
        split_note=split.note,
        integer_ids=integer_ids,
        tables=tables,
        checksums=sums,
        preparation=preparation,
    )
    write_json(folder / FILE, found)


def file_crc32(path: Path) -> int | None:
    """CRC-32 of a file, None if it does not exist."""
    checksum = 0
    try:
        with open_regular(path) as file:
            while piece := file.read(PIECE):
                checksum = zlib.crc32(piece, checksum)
    except FileNotFoundError:
        return None
    return checksum
