"""What a node's logits become if an edge or a node is removed, for many removals at once.

N is the normalised adjacency (with loops if the operator is `renormalized`), d its degrees. Without
an edge (x, y) of weight w, or without a node u, exactly

    N' = E (N - edge) E,   E_x = sqrt(d_x / (d_x - w)), E_y alike    and 1 elsewhere
    N' = E N E,            E_u = 0, E_w = sqrt(d_w / (d_w - A_wu)) for the neighbours w of u

(E_x = 0 where nothing is left of d_x). So B removals are one signal of B columns through the same
N, and no matrix is built again. p_i(S') e_v stays within k hops of v: only those nodes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from hoplite.explain.exact import ExactModel
from hoplite.models import LinearModel, Weights
from hoplite.models.hyper import ClassGate
from hoplite.operators import find_operator
from hoplite.propagation.spmm import SparseMatrix, as_tensor, spmm

BATCH_BYTES = 200_000_000
CACHED_NUMBERS = 1 << 20  # a signal of so many stays in the cache: four times faster on Pubmed
LEFT = 1e-6  # of a degree: what is left below this has lost its digits
MOST_COLUMNS = 512


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges in arrays of one length: their ends, entry in N, and the E of both ends without it.

    ``doubtful`` are those so heavy that the degree left by them is rounded away.
    """

    source: np.ndarray
    target: np.ndarray
    entry: np.ndarray
    source_factor: np.ndarray
    target_factor: np.ndarray
    doubtful: np.ndarray


class _Batch(NamedTuple):
    """The E[row, column] that are not 1, and the entries of N that vanish: one removal a column."""

    size: int
    row: Tensor
    column: Tensor
    factor: Tensor
    gone: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # x, y, column, E_x N_xy E_y


class Field:
    """The nodes within k hops of ``node``, and all removals that can change its logits.

    ``edges`` are those with an end among these nodes; ``nodes`` those up to one hop farther, whose
    removal changes a degree among them. With no hops nothing can change the logits.
    """

    def __init__(self, exact: ExactModel, node: int) -> None:
        config, graph = exact.trained.config, exact.graph
        operator = find_operator(config.operator)
        self.exact, self.node, self.hops = exact, node, config.hops
        self.basis = exact.propagation.basis
        # S = shift I + sign N, in the form (S - middle I) / half that the basis needs
        middle, half = self.basis.mapping(*operator.spectrum)
        self.scale = operator.sign / half
        self._shift = (operator.shift - middle) / half
        normal = operator.normalized.matrix(graph, np.float64)
        degrees = graph.adjacency.sum(axis=1, dtype=np.float64) + operator.loop
        far = dijkstra(graph.adjacency, unweighted=True, indices=node, limit=self.hops + 1)
        inside = np.flatnonzero(far <= self.hops)
        self.place = np.full(graph.num_nodes, -1)
        self.place[inside] = np.arange(len(inside))
        self.matrix = SparseMatrix.from_scipy(normal[inside][:, inside], symmetric=True)
        self.edges = _edges_around(graph.adjacency, normal, degrees, self.place, self.hops)
        reached = np.isfinite(far) if self.hops else np.zeros(graph.num_nodes, dtype=bool)
        self.nodes = np.flatnonzero(reached & (np.arange(graph.num_nodes) != node))
        self._factors = _neighbour_factors(self.edges, graph.num_nodes)
        features, self.weights = _narrowed(exact, inside)
        self._features = (
            SparseMatrix.from_scipy(features.T.tocsr()) if sp.issparse(features) else features
        )
        self.num_features = features.shape[1]

    @property
    def batch_size(self) -> int:
        """Removals at a time, so that their signals and hop features stay in bounded memory."""
        nodes = self.matrix.shape[0]
        numbers = 5 * nodes + 3 * (self.hops + 1) * self.num_features
        numbers += (4 + self.hops) * self.exact.trained.num_classes
        most = min(BATCH_BYTES // (8 * numbers), MOST_COLUMNS)
        return max(min(most, max(CACHED_NUMBERS // nodes, 16)), 1)

    def without_edges(self, chosen: np.ndarray) -> Iterator[Tensor]:
        """Logits (B, m) without one edge each, batch after batch; ``chosen`` indexes ``edges``."""
        for start in range(0, len(chosen), self.batch_size):
            yield self._logits(self._edge_batch(chosen[start : start + self.batch_size]))

    def without_nodes(self, chosen: np.ndarray) -> Iterator[Tensor]:
        """Logits (B, m) without one node each, batch after batch; ``chosen`` indexes ``nodes``."""
        for start in range(0, len(chosen), self.batch_size):
            part = self.nodes[chosen[start : start + self.batch_size]]
            yield self._logits(self._node_batch(part))

    def step(self, signal: Tensor, a: float, b: float, batch: _Batch | None = None) -> Tensor:
        """a S + b times a signal, each column with its own removal: (nodes, B) -> (nodes, B)."""
        shift, scale = a * self._shift + b, a * self.scale
        if batch is None:
            return shift * signal + scale * spmm(self.matrix, signal)
        at = batch.row, batch.column
        scaled = signal.clone()
        scaled[at] *= batch.factor
        product = spmm(self.matrix, scaled)
        product[at] *= batch.factor
        if batch.gone is not None:
            x, y, column, entry = batch.gone
            product[x, column] -= entry * signal[y, column]
            product[y, column] -= entry * signal[x, column]
        return product.mul_(scale).add_(signal, alpha=shift)

    def reach(self, batch: _Batch | None = None) -> Iterator[Tensor]:
        """p_i(S) e_v for i = 0 .. k, each column with its own removal: (nodes, B)."""
        columns = 1 if batch is None else batch.size
        now = torch.zeros(self.matrix.shape[0], columns, dtype=torch.float64)
        now[self.place[self.node]] = 1
        before = now
        yield now
        for a, b, g in self.basis.steps(self.hops):
            ahead = self.step(now, a, b, batch)
            before, now = now, ahead.sub_(before, alpha=g) if g else ahead
            yield now

    def collect(self, signal: Tensor) -> Tensor:
        """X^T signal, column by column: (nodes, B) -> (B, d)."""
        if isinstance(self._features, SparseMatrix):
            return spmm(self._features, signal).T
        return (as_tensor(self._features).T @ signal).T

    def spread(self, weights: Tensor) -> Tensor:
        """X times weights: (k + 1, d) -> (nodes, k + 1)."""
        if isinstance(self._features, SparseMatrix):
            return spmm(self._features.T, weights.T)
        return as_tensor(self._features) @ weights.T

    def outputs(self, hops: Tensor) -> Tensor:
        """Logits (B, m) from hop features (k + 1, B, d)."""
        return self.exact.outputs(self.node, hops, self.weights)

    def _logits(self, batch: _Batch) -> Tensor:
        with torch.no_grad():
            return self.outputs(torch.stack([self.collect(hop) for hop in self.reach(batch)]))

    def _edge_batch(self, chosen: np.ndarray) -> _Batch:
        edges, count = self.edges, len(chosen)
        x, y = self.place[edges.source[chosen]], self.place[edges.target[chosen]]
        of_x, of_y = edges.source_factor[chosen], edges.target_factor[chosen]
        row = np.concatenate([x, y])
        column = np.tile(np.arange(count), 2)
        factor = np.concatenate([of_x, of_y])
        both = np.flatnonzero((x >= 0) & (y >= 0))
        entry = (of_x * edges.entry[chosen] * of_y)[both]
        gone = tuple(map(torch.from_numpy, (x[both], y[both], both, entry)))
        return _Batch(count, *_kept(row, column, factor), gone)  # pyright: ignore[reportArgumentType]

    def _node_batch(self, nodes: np.ndarray) -> _Batch:
        near = self._factors[nodes].tocoo()
        row = self.place[np.concatenate([near.col, nodes])]
        column = np.concatenate([near.row, np.arange(len(nodes))])
        factor = np.concatenate([near.data, np.zeros(len(nodes))])
        return _Batch(len(nodes), *_kept(row, column, factor))


def _edges_around(
    adjacency: sp.csr_array, normal: sp.csr_array, degrees: np.ndarray, place: np.ndarray, hops: int
) -> Edges:
    weights, entries = sp.triu(adjacency, 1, "csr").tocoo(), sp.triu(normal, 1, "csr").tocoo()
    x, y = weights.row, weights.col
    near = (place[x] >= 0) | (place[y] >= 0) if hops else np.zeros(len(x), dtype=bool)
    x, y, weight = x[near], y[near], weights.data[near].astype(np.float64)
    doubtful = np.zeros(len(x), dtype=bool)
    for end in (x, y):
        others = np.diff(normal.indptr)[end] > 1
        doubtful |= others & (degrees[end] - weight < LEFT * degrees[end])
    factors = _factor(degrees[x], weight), _factor(degrees[y], weight)
    return Edges(x, y, entries.data[near], *factors, doubtful)


def _factor(degree: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """sqrt(d / (d - w)), and 0 where nothing is left."""
    left = degree - weight
    return np.sqrt(np.divide(degree, left, out=np.zeros_like(degree), where=left > 0))


def _neighbour_factors(edges: Edges, n: int) -> sp.csr_array:
    """Row u: the E of its neighbours without u, which are those without the edge to u."""
    factor = np.concatenate([edges.target_factor, edges.source_factor])
    row = np.concatenate([edges.source, edges.target])
    column = np.concatenate([edges.target, edges.source])
    return sp.csr_array((factor, (row, column)), shape=(n, n))


def _kept(row: np.ndarray, column: np.ndarray, factor: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Without the rows of nodes that are too far."""
    inside = row >= 0
    row, column = row[inside].astype(np.int64), column[inside].astype(np.int64)
    return torch.from_numpy(row), torch.from_numpy(column), torch.from_numpy(factor[inside])


def _narrowed(exact: ExactModel, inside: np.ndarray) -> tuple[Any, Weights]:
    """X at these nodes and the model's weights.

    Where the model reads X only through products with weights, those stand for X, and the
    identity for the weights: m columns, or 2 m, instead of d, if these are fewer.
    """
    features: Any = exact.features[inside]
    if isinstance(exact.model, LinearModel):
        names = ["theta"]
    elif isinstance(exact.model, ClassGate):
        names = ["theta", "gate_features"]
    else:
        return features, exact.weights
    if features.shape[1] <= len(names) * exact.trained.num_classes:
        return features, exact.weights
    signal = features @ torch.cat([exact.weights[name][0] for name in names], dim=1).numpy()
    blocks = torch.eye(signal.shape[1], dtype=torch.float64).chunk(len(names), dim=1)
    units = {name: block.unsqueeze(0) for name, block in zip(names, blocks, strict=True)}
    return signal, exact.weights | units
