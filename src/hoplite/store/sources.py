"""What a store is made from: a graph in memory or on disk, both read a range of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.csr_rows import CsrMemory, CsrRows, adjacency_digest, features_digest
from hoplite.datasets.disk_graph import DiskGraph
from hoplite.graph import Graph, Split
from hoplite.store.memory import peak_memory

PIECE = 1 << 22  # numbers of X read at a time


class Source(Protocol):
    """A graph as the store reads it."""

    @property
    def name(self) -> str: ...
    @property
    def loading_peak(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def adjacency(self) -> CsrRows: ...
    @property
    def class_names(self) -> Sequence[str]: ...
    @property
    def feature_names(self) -> Sequence[str] | None: ...
    def labels(self) -> np.ndarray: ...
    def split(self) -> Split: ...
    def feature_rows(self, start: int, stop: int) -> np.ndarray: ...
    def identity(self) -> Identity: ...
    def releasable(self) -> int: ...


@dataclass(frozen=True)
class Identity:
    """By which a store knows its graph again."""

    graph: str
    features: str
    longest_row: int


class MemorySource:
    """A :class:`Graph`; ``ours`` says that nobody else holds it."""

    def __init__(self, graph: Graph, *, ours: bool = False) -> None:
        self._graph, self._ours = graph, ours
        self.loading_peak = peak_memory() if ours else 0
        self.name, self.nodes, self.columns = graph.name, graph.num_nodes, graph.num_features
        self.adjacency = CsrMemory(graph.adjacency)
        self.class_names: Sequence[str] = graph.class_names or ()
        self.feature_names = graph.feature_names

    def labels(self) -> np.ndarray:
        labels = self._graph.labels
        assert labels is not None  # a Graph fills them in
        return labels

    def split(self) -> Split:
        return self._graph.split

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X, dense and in float32."""
        rows: Any = self._graph.features[start:stop]
        dense = rows.toarray() if sp.issparse(rows) else rows
        return np.ascontiguousarray(dense, np.float32)

    def identity(self) -> Identity:
        graph, longest = adjacency_digest(self.adjacency)
        return Identity(graph, features_digest(feature_pieces(self), self.columns), longest)

    def releasable(self) -> int:
        """Bytes that are free again once the store is prepared."""
        parts = [self._graph.adjacency, self._graph.features] if self._ours else []
        return sum(_array_bytes(part) for part in parts)


class DiskSource:
    """A graph on disk, see :class:`DiskGraph`."""

    def __init__(self, graph: DiskGraph) -> None:
        self._graph = graph
        self.loading_peak = 0  # nothing was loaded
        self.name, self.nodes, self.columns = graph.name, graph.nodes, graph.features
        self.adjacency: CsrRows = graph.adjacency
        self.class_names: Sequence[str] = graph.class_names
        self.feature_names: Sequence[str] | None = graph.feature_names

    def labels(self) -> np.ndarray:
        return self._graph.labels()

    def split(self) -> Split:
        return self._graph.split()

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows of X, dense and in float32."""
        return self._graph.feature_rows(start, stop)

    def identity(self) -> Identity:
        digests = self._graph.digests
        return Identity(digests.graph, digests.features, self._graph.longest_row)

    def releasable(self) -> int:
        """Nothing: a graph on disk holds no memory."""
        return 0


def feature_pieces(source: Source) -> Iterator[np.ndarray]:
    """X in pieces of rows, dense and in float32."""
    step = max(1, PIECE // max(source.columns, 1))
    for start in range(0, source.nodes, step):
        yield source.feature_rows(start, min(start + step, source.nodes))


def _array_bytes(array: Any) -> int:
    if sp.issparse(array):
        return array.data.nbytes + array.indices.nbytes + array.indptr.nbytes
    return array.nbytes
