"""What explanations read of a graph, in memory or from a hop store in bounded memory, in float64.

S   k products with one column: the rows v of p_0(S) .. p_k(S)
X   the rows of some nodes, some at a time
A   the edges of some nodes
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from hoplite.bases import find_basis
from hoplite.csr_rows import CsrRows, row_ranges
from hoplite.engine.evaluation import WeightsFirst
from hoplite.engine.polynomial import next_hop
from hoplite.engine.propagation import Propagation
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.graph import Graph
from hoplite.memory import release_memory, show_bytes, used_memory
from hoplite.models import LinearModel, ModelConfig, Weights
from hoplite.models.alignment import check_channels, in_columns
from hoplite.node_data import NodeData, StoredHops

BLOCK_ENTRIES = 1 << 22  # numbers of X that are worked on at a time
ENTRY_BYTES = 64  # what the work on a number, or on an entry of S, may take
LEAST_NUMBERS = 1 << 12  # that are worked on at a time, however little memory is left
RESERVE = 32 * 10**6  # of the budget, for what is not counted


class NoRemovals(StoreError):
    """What a removal changes cannot be computed from a store; all else can."""


class Rows(Protocol):
    """A graph that a model is explained on; ``dtype`` is the number type of its predictions."""

    @property
    def data(self) -> NodeData: ...
    @property
    def dtype(self) -> np.dtype: ...

    def reach(self, node: int) -> np.ndarray:
        """The rows ``node`` of p_0(S) .. p_k(S), (k + 1, n); of P operators (1 + P k, n)."""
        ...

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        """The sorted ``nodes``, some at a time, with their rows of X, dense or sparse.

        ``copies`` is how many numbers the caller makes of each.
        """
        ...

    def all_features(self) -> Any | None:
        """X, if it is there as a whole and no more than is worked on at a time."""
        ...

    def edges(self, nodes: np.ndarray) -> sp.csr_array:
        """The rows of A of sorted ``nodes``; 1 for an edge whose weight is not known."""
        ...

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        """p_i(S) X of the ``hops`` at a node, (hops, 1, d), if they are stored; None if not."""
        ...

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        """The model's signal of all nodes, before standardisation and bias: pieces (rows, m)."""
        ...

    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        """The graph of sorted ``nodes`` with the edges of those of them that are ``inside``.

        Its features are in the model's order. NoRemovals if it is not known, or too large.
        """
        ...


class GraphRows:
    """A graph in memory, with its features in the model's order."""

    def __init__(self, graph: Graph, config: ModelConfig) -> None:
        self.data, self.dtype = graph, graph.features.dtype
        self._config = config

    @cached_property
    def _propagation(self) -> Propagation:
        return Propagation.of(self.data, self._config, np.float64)

    def reach(self, node: int) -> np.ndarray:
        return self._propagation.reach([node])[:, 0]

    def all_features(self) -> Any | None:
        features = self._propagation.features
        return features.matrix() if features.nnz <= BLOCK_ENTRIES else None

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        features, n = self._propagation.features, self.data.num_nodes
        matrix = features.matrix()
        step = max(BLOCK_ENTRIES // (max(features.nnz // max(n, 1), 1) * copies), 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            yield part, matrix if len(part) == n else matrix[part]

    def edges(self, nodes: np.ndarray) -> sp.csr_array:
        return self.data.adjacency[nodes]

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return None

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        yield WeightsFirst(self._propagation).evaluate(model.filter(weights)).values

    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        graph = self.data
        return _ball(self.edges(inside), inside, nodes, graph.features[nodes], graph.loop_weight)


class StoredRows:
    """A hop store; whatever is read of it, the process stays within ``memory`` bytes, if given."""

    def __init__(
        self, store: StoredHops, config: ModelConfig, columns: np.ndarray | None, memory: int | None
    ) -> None:
        check_channels(config, store.folder)
        for setting in ("operator", "basis"):
            own, wanted = getattr(store, setting), getattr(config, setting)
            if own != wanted:
                raise StoreError(
                    f"{store.folder} holds hops with {setting} {own} but the model has {wanted}; "
                    f"give a store made with --{setting} {wanted}, or the dataset itself."
                )
        if store.hops < config.hops:
            raise StoreError(
                f"{store.folder} holds {store.hops} hops but the model has {config.hops}; run "
                f"`hoplite propagate` with --hops {config.hops}, or give the dataset itself."
            )
        store.require_complete()
        self.data, self.dtype, self._store = store, np.dtype(np.float32), store
        self._basis, self._hops, self._memory = find_basis(config.basis), config.hops, memory
        self._columns = columns

    def reach(self, node: int) -> np.ndarray:
        n, k = self.data.num_nodes, self._hops
        # R itself, what is computed of it, and what numpy makes of that for a moment
        self._require(8 * n * (3 * k + 12), "explaining a node")
        hops = np.zeros((k + 1, n, 1))
        hops[0, node] = 1
        matrix, most = self._store.operator_rows, self._numbers()
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
            yield part, self._aligned(self._rows(part, [0])[0])

    def all_features(self) -> Any | None:
        return None

    def edges(self, nodes: np.ndarray) -> sp.csr_array:
        weights = self.data.adjacency_rows
        if weights is not None:
            return _some_rows(weights, nodes)
        # S has an entry for every edge, and some on its diagonal
        found = _some_rows(self._store.operator_rows, nodes).tocoo()
        apart = nodes[found.row] != found.col
        ends = found.row[apart], found.col[apart]
        return sp.csr_array((np.ones(len(ends[0])), ends), shape=found.shape)

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return self._aligned(self._store.rows([node], hops))

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        hops, n = model.hops_read, self.data.num_nodes
        step = max(self._numbers() // max(4 * self.data.num_features * len(hops), 1), 1)
        for start in range(0, n, step):
            rows = self._store.read(start, min(start + step, n), hops)
            yield model.signal_from_hops(weights, self._aligned(rows))

    def ball(self, inside: np.ndarray, nodes: np.ndarray) -> Graph:
        weights = self.data.adjacency_rows
        if weights is None:
            raise NoRemovals(
                f"{self._store.folder} keeps no edge weights, without which no removal can be "
                "computed; give the dataset itself, or make the store again."
            )
        entries = sum(
            int(ends[-1] - ends[0])
            for ends in (weights.indptr(start, stop) for start, stop in _runs(inside))
        )
        width = self.data.num_features if self._columns is None else len(self._columns)
        needed = 2 * ENTRY_BYTES * entries + 32 * len(nodes) * (width + 8)
        what = f"removing edges and nodes among the {len(nodes):,} within reach"
        self._require(needed, what, NoRemovals)
        features = np.empty((len(nodes), width), np.float32)
        done = 0
        for part, rows in self.features(nodes):
            features[done : done + len(part)] = rows
            done += len(part)
        return _ball(self.edges(inside), inside, nodes, features, self.data.loop_weight)

    def _rows(self, nodes: np.ndarray, hops: list[int]) -> np.ndarray:
        first, last = (int(nodes[0]), int(nodes[-1]) + 1) if len(nodes) else (0, 0)
        if last - first == len(nodes):
            return self._store.read(first, last, hops)
        return self._store.rows(nodes, hops)

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
                f"{what} takes {show_bytes(needed)} more, so at least {show_bytes(least)} of "
                f"memory, and {show_bytes(self._memory)} are allowed; give more --memory."
            )


def _ball(
    rows: sp.csr_array, inside: np.ndarray, nodes: np.ndarray, features: Any, loop_weight: float
) -> Graph:
    """The graph of ``nodes`` from the ``rows`` of A of those ``inside``; A is symmetric.

    The features have no names: they are in the model's order already. The weight of self-loops is
    that of the whole graph.
    """
    found = rows.tocoo()
    ends = np.searchsorted(nodes, inside[found.row]), np.searchsorted(nodes, found.col)
    half = sp.csr_array((found.data, ends), shape=(len(nodes), len(nodes)))
    return Graph(half.maximum(half.T), features).with_loop_weight(loop_weight)


def _some_rows(matrix: CsrRows, nodes: np.ndarray) -> sp.csr_array:
    parts = [matrix.read(start, stop).to_scipy(matrix.rows) for start, stop in _runs(nodes)]
    return sp.vstack(parts, "csr") if parts else sp.csr_array((0, matrix.rows))


def _runs(nodes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Sorted nodes as ranges (start, stop) without gaps.

    >>> list(_runs(np.array([0, 1, 2, 7, 8])))
    [(0, 3), (7, 9)]
    """
    cuts = np.flatnonzero(np.diff(nodes) > 1) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(nodes)]):
        if first < last:
            yield int(nodes[first]), int(nodes[last - 1]) + 1
