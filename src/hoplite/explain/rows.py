"""What explanations read of a graph, in memory or from a hop store in bounded memory, in float64.

S   k products with one column: the rows v of p_0(S) .. p_k(S)
X   the rows of some nodes, some at a time
A   the edges of some nodes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.bases import find_basis
from hoplite.csr import row_ranges
from hoplite.engine.evaluation import WeightsFirst
from hoplite.engine.polynomial import next_hop
from hoplite.engine.propagation import Propagation
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.graph import Graph
from hoplite.machine import format_bytes, release_memory, used_memory
from hoplite.models import LinearModel, ModelConfig, Weights
from hoplite.models.alignment import in_columns
from hoplite.node_data import StoredHops

BLOCK_ENTRIES = 1 << 22  # numbers of X that are worked on at a time
ENTRY_BYTES = 64  # what the work on a number, or on an entry of S, may take
LEAST_NUMBERS = 1 << 12  # that are worked on at a time, however little memory is left
MAX_FRONTIER = 1 << 14  # nodes whose edges are looked at together
RESERVE = 32 * 10**6  # of the budget, for what is not counted


class NoRemovals(StoreError):
    """What a removal changes cannot be computed from a store; all else can."""


class Rows(ABC):
    """The data that a model is explained on; ``dtype`` is the number type of its predictions."""

    data: Any
    dtype: np.dtype

    @abstractmethod
    def reach(self, node: int) -> np.ndarray:
        """The rows ``node`` of p_0(S) .. p_k(S), (k + 1, n); of P operators (1 + P k, n)."""

    @abstractmethod
    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        """Sorted ``nodes``, some at a time, with their rows of X in float64, dense or sparse.

        ``copies`` is how many numbers the caller makes of each.
        """

    @abstractmethod
    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        """p_i(S) X of the ``hops`` at a node, (hops, 1, d), if they are stored; None if not."""

    @abstractmethod
    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        """The model's signal of all nodes, before standardisation and bias: pieces (rows, m)."""

    @abstractmethod
    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        """The graph of sorted ``nodes`` with the edges of those of them that are ``inside``.

        Its features are in the model's order. NoRemovals if it does not fit in memory.
        """

    def edges(self, nodes: np.ndarray) -> sp.csr_array:
        """The rows of A of sorted ``nodes``."""
        rows = self.data.adjacency_rows
        parts = [rows.read(start, stop).to_scipy(rows.rows) for start, stop in _runs(nodes)]
        return sp.vstack(parts, "csr") if parts else sp.csr_array((0, rows.rows))

    def _ball(self, inside: np.ndarray, nodes: np.ndarray, features: Any) -> Graph:
        found = self.edges(inside).tocoo()
        ends = np.searchsorted(nodes, inside[found.row]), np.searchsorted(nodes, found.col)
        half = sp.csr_array((found.data, ends), shape=(len(nodes), len(nodes)))
        graph = Graph(half.maximum(half.T), features)  # A is symmetric
        return graph.with_loop_weight(self.data.loop_weight)


class GraphRows(Rows):
    """A graph in memory, with its features in the model's order."""

    def __init__(self, graph: Graph, config: ModelConfig) -> None:
        self.data, self.dtype = graph, graph.features.dtype
        self._config = config

    @cached_property
    def _propagation(self) -> Propagation:
        return Propagation.of(self.data, self._config, np.float64)

    def reach(self, node: int) -> np.ndarray:
        return self._propagation.reach([node])[:, 0]

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        features, n = self._propagation.features, self.data.num_nodes
        matrix = features.matrix()
        step = max(BLOCK_ENTRIES // (max(features.nnz // max(n, 1), 1) * copies), 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            yield part, matrix if len(part) == n else matrix[part]

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return None

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        yield WeightsFirst(self._propagation).evaluate(model.filter(weights)).values

    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        return self._ball(inside, nodes, self.data.features[nodes])


class StoredRows(Rows):
    """A hop store; whatever is read of it, the process stays within ``memory`` bytes, if given."""

    def __init__(
        self, store: StoredHops, config: ModelConfig, columns: np.ndarray | None, memory: int | None
    ) -> None:
        self.data, self.dtype = store, np.dtype(np.float32)
        self._basis, self._hops, self._memory = find_basis(config.basis), config.hops, memory
        self._columns = columns

    def reach(self, node: int) -> np.ndarray:
        n, k = self.data.num_nodes, self._hops
        # R itself, what is computed of it, and what numpy makes of that for a moment
        self._require(8 * n * (3 * k + 12), "explaining a node")
        hops = np.zeros((k + 1, n, 1))
        hops[0, node] = 1
        matrix, most = self.data.operator_rows, self._numbers()
        for i, step in enumerate(self._basis.steps(k)):
            now, before, ahead = hops[i], hops[max(i - 1, 0)], hops[i + 1]
            for start, stop in row_ranges(matrix, most):
                rows = matrix.read(start, stop).to_scipy(n).astype(np.float64)
                part, some = slice(start, stop), SparseMatrix(rows, symmetric=False)
                next_hop(some, step, now, before[part], own=now[part], out=ahead[part])
        return hops[:, :, 0]

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        step = max(self._numbers() // max(self.data.num_features * copies, 1), 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            first, stop = int(part[0]), int(part[-1]) + 1
            if stop - first == len(part):
                rows = self.data.read(first, stop, [0])
            else:
                rows = self.data.rows(part, [0])
            yield part, self._aligned(rows[0])

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return self._aligned(self.data.rows([node], hops))

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        hops, n = model.hops_read, self.data.num_nodes
        step = max(self._numbers() // max(4 * self.data.num_features * len(hops), 1), 1)
        for start in range(0, n, step):
            rows = self.data.read(start, min(start + step, n), hops)
            yield model.signal_from_hops(weights, self._aligned(rows))

    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        ranges = [self.data.adjacency_rows.indptr(*run) for run in _runs(inside)]
        entries = sum(int(ends[-1] - ends[0]) for ends in ranges)
        width = self.data.num_features if self._columns is None else len(self._columns)
        needed = 2 * ENTRY_BYTES * entries + 32 * len(nodes) * (width + 8)
        what = f"removing edges and nodes among the {len(nodes):,} within reach"
        self._require(needed, what, NoRemovals)
        parts = [rows.astype(np.float32) for _, rows in self.features(nodes)]
        return self._ball(inside, nodes, np.concatenate(parts))

    def _aligned(self, rows: np.ndarray) -> np.ndarray:
        """Rows of features, in float64, in the model's order; zeros where the store has none."""
        rows = rows.astype(np.float64)
        return rows if self._columns is None else in_columns(rows, self._columns)

    def _numbers(self) -> int:
        """How many numbers can be worked on at a time."""
        return max(min(self._room // (2 * ENTRY_BYTES), BLOCK_ENTRIES), LEAST_NUMBERS)

    @property
    def _room(self) -> int:
        if self._memory is None:
            return 2 * ENTRY_BYTES * BLOCK_ENTRIES
        return self._memory - RESERVE - used_memory()

    def _require(self, needed: int, what: str, error: type[StoreError] = StoreError) -> None:
        """StoreError unless so many bytes fit beside what the process holds already."""
        if self._memory is None:
            return
        release_memory()
        if needed > self._room:
            least = used_memory() + RESERVE + needed
            raise error(
                f"{what} takes {format_bytes(needed)} more, so at least {format_bytes(least)} of "
                f"memory, and {format_bytes(self._memory)} are allowed; give more --memory."
            )


def _runs(nodes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Sorted nodes as ranges (start, stop) without gaps.

    >>> list(_runs(np.array([0, 1, 2, 7, 8])))
    [(0, 3), (7, 9)]
    """
    cuts = np.flatnonzero(np.diff(nodes) > 1) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(nodes)]):
        if first < last:
            yield int(nodes[first]), int(nodes[last - 1]) + 1


def nearest(
    rows: Rows, node: int, steps: int, wanted: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Steps from ``node`` to every node within ``steps``, and the node before it on a shortest way.

    Both are (n,), and -1 where a node is farther; the node before ``node`` is -1, too. With
    ``wanted`` the search ends as soon as all of these are found.
    """
    distance, before = (np.full(rows.data.num_nodes, -1) for _ in range(2))
    distance[node] = 0
    frontier = np.array([node])
    for step in range(1, steps + 1):
        if wanted is not None and (distance[wanted] >= 0).all():
            break
        ahead = [np.empty(0, np.int64)]
        for start in range(0, len(frontier), MAX_FRONTIER):
            part = frontier[start : start + MAX_FRONTIER]
            near = rows.edges(part)
            fresh = np.flatnonzero(distance[near.indices] < 0)
            found, first = np.unique(near.indices[fresh], return_index=True)
            distance[found] = step
            before[found] = np.repeat(part, np.diff(near.indptr))[fresh[first]]
            ahead.append(found)
        frontier = np.sort(np.concatenate(ahead))
    return distance, before


def plain_float(value: Any) -> float:
    """The shortest decimal that is the same number of its type, as a table would have it.

    >>> float(np.float32(74.28)), plain_float(np.float32(74.28))
    (74.27999877929688, 74.28)
    """
    return float(str(value))
