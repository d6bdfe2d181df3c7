"""The operators and features of one graph: what every evaluation of a filter reads.

There is one matrix M_p for each :class:`~hoplite.graph.Relation` of the graph and each operator
(channel) of the model, P in all; mostly P = 1. Their hops stand side by side, hop 0 shared:

    hops = X, p_1(M_1) X .. p_k(M_1) X, p_1(M_2) X .. p_k(M_2) X, ...    (1 + P k of n x d)

All channels of a relation come before the next relation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from itertools import repeat
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp

from hoplite.bases import Basis, find_basis
from hoplite.engine.features import BLOCK_COLUMNS, Features, as_sparse_if_few
from hoplite.engine.polynomial import (
    gather_hops,
    iterate,
    polynomial,
    polynomial_adjoint,
    scatter_hops,
)
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import ConfigError, plural
from hoplite.graph import Graph
from hoplite.machine import available_memory, format_bytes
from hoplite.operators import Operator, Operators, find_operators

_fitted: WeakKeyDictionary[Graph, dict[Any, Basis]] = WeakKeyDictionary()  # graphs never change
MAX_NEAR = 0.9  # share of all nodes beyond which leaving out the others saves too little


class Propagation:
    """The operators and X of ``graph``, for polynomials of degree ``hops``.

    All are of the features' number type, or of ``dtype``. A basis that comes from a signal is
    fitted to X, see :func:`fitted_basis`.

    Parameters
    ----------
    graph : Graph
    operator : str, Operator or a sequence of them
        Several operators are channels.
    basis, hops
        The polynomials p_0 .. p_hops.

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]], directed=True)
    >>> hops = Propagation(g, "adjacency", hops=1).gather(np.array([[1.0], [3.0]]))
    >>> hops[:, :, 0].tolist()  # X, what a node points to, what points to it
    [[1.0, 3.0], [3.0, 0.0], [0.0, 1.0]]
    """

    def __init__(
        self,
        graph: Graph,
        operator: Operators = "renormalized",
        basis: str | Basis = "monomial",
        hops: int = 2,
        dtype: Any = None,
    ) -> None:
        dtype = graph.features.dtype if dtype is None else np.dtype(dtype)
        features = graph.features.astype(dtype, copy=False)
        self.basis, self.hops = fitted_basis(graph, operator, basis, hops), hops
        self.features = Features.from_array(as_sparse_if_few(features))
        self.matrices = _matrices(graph, operator, self.basis, dtype)
        self.adjacency = graph.adjacency
        self.nodes: np.ndarray | None = None  # of the graph, if these are only some of them
        self.neighbours: Features | None = None  # labels of neighbours (n, m), if they are read

    @classmethod
    def of(cls, graph: Graph, config: Any, dtype: Any = None) -> Self:
        """What a model with the settings ``config`` is evaluated with on ``graph``."""
        return cls(graph, config.operators, config.basis, config.hops, dtype)

    @property
    def num_nodes(self) -> int:
        """n."""
        return self.features.shape[0]

    @property
    def dtype(self) -> np.dtype:
        """The number type of every signal."""
        return self.features.dtype

    @property
    def nonzeros(self) -> int:
        """The nonzeros of all operators."""
        return sum(matrix.nnz for matrix in self.matrices)

    @property
    def slices(self) -> int:
        """The number of hops: 1 + P k."""
        return 1 + len(self.matrices) * self.hops

    def near(self, rows: np.ndarray, hops: int | None = None) -> tuple[Propagation, np.ndarray]:
        """The same for the nodes that hops of ``rows`` read, and where the rows are among them.

        ``hops`` is how many, if not all. Far rows of a smaller operator are not those of the whole
        one. Itself, if hardly any node is left out.
        """
        reached = np.zeros(self.num_nodes, bool)
        reached[rows] = True
        for matrix in self.matrices:
            reached |= nodes_near(matrix, rows, self.hops if hops is None else hops)
        if reached.sum() > MAX_NEAR * self.num_nodes:
            return self, rows
        nodes = np.flatnonzero(reached)
        part = copy(self)
        part.features = self.features.rows(nodes)
        part.matrices = [matrix.among(nodes) for matrix in self.matrices]
        part.nodes = nodes if self.nodes is None else self.nodes[nodes]
        part.neighbours = None if self.neighbours is None else self.neighbours.rows(nodes)
        return part, np.searchsorted(nodes, rows)

    def with_neighbours(self, columns: Features) -> Propagation:
        """The same with the labels of neighbours: (n, m)."""
        whole = copy(self)
        whole.neighbours = columns
        return whole

    def required_neighbours(self) -> Features:
        """The labels of neighbours; ConfigError if they are not known."""
        if self.neighbours is None:
            raise ConfigError("the model uses labels of neighbours; pass the graph as well.")
        return self.neighbours

    def combine(self, signal: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """sum_i c_i p_i(M) Z over all hops: (n, w) and (slices, w) -> (n, w).

        Scales of the last hops may be left out where there is one operator; they count as 0.
        """
        hops = self._parts(scales)
        return _total([*map(polynomial, self.matrices, repeat(self.basis), repeat(signal), hops)])

    def combine_adjoint(
        self, gradient: np.ndarray, signal: np.ndarray, scales: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradients of :meth:`combine` by its signal, (n, w), and its scales, (slices, w)."""
        fixed = (repeat(self.basis), repeat(gradient), repeat(signal))
        parts = map(polynomial_adjoint, self._transposed, *fixed, self._parts(scales))
        sums, dots = zip(*parts, strict=True)
        return _total(sums), self._joined(dots)

    def combine_transposed(self, signal: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """sum_i c_i p_i(M') Z, the adjoint of :meth:`combine` by its signal alone."""
        hops = self._parts(scales)
        fixed = (repeat(self.basis), repeat(signal))
        return _total([*map(polynomial, self._transposed, *fixed, hops)])

    def gather(self, signal: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Every hop of a signal at ``rows`` (all if None): (n, w) -> (slices, rows, w)."""
        fixed = (repeat(self.basis), repeat(signal), repeat(self.hops), repeat(rows))
        return self._joined([*map(gather_hops, self.matrices, *fixed)])

    def sum_blocks(self, signals: np.ndarray) -> np.ndarray:
        """sum_i p_i(M) Z_i: (slices, n, w) -> (n, w)."""
        parts = map(np.ascontiguousarray, self._parts(signals))
        return _total([*map(scatter_hops, self.matrices, repeat(self.basis), parts)])

    def sum_blocks_adjoint(self, gradient: np.ndarray) -> np.ndarray:
        """U_i = p_i(M') G, the gradient of :meth:`sum_blocks`: (n, w) -> (slices, n, w)."""
        fixed = (repeat(self.basis), repeat(gradient), repeat(self.hops))
        return self._joined([*map(gather_hops, self._transposed, *fixed)])

    @property
    def _transposed(self) -> list[SparseMatrix]:
        return [matrix.T for matrix in self.matrices]

    def reach(self, nodes: np.ndarray | Sequence[int]) -> np.ndarray:
        """The rows ``nodes`` of every p_i(M): (slices, nodes, n)."""
        unit = np.zeros((self.num_nodes, len(nodes)), self.dtype)
        unit[nodes, np.arange(len(nodes))] = 1
        hops = [[*iterate(m.T, self.basis, unit, self.hops)] for m in self.matrices]
        return self._joined([np.stack([hop.T for hop in of_matrix]) for of_matrix in hops])

    def hop_features(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Every hop of X at ``rows`` (all if None): (slices, rows, d)."""
        if rows is None and not self.features.is_sparse:
            return self.gather(self.features.dense())
        count = self.num_nodes if rows is None else len(rows)
        out = np.empty((self.slices, count, self.features.shape[1]), self.dtype)
        for columns, block in self.features.column_blocks():
            out[:, :, columns] = self.gather(block, rows)
        return out

    def filtered_features(
        self, coefficients: np.ndarray, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """sum_i c_i p_i(M) X at ``rows`` (all if None): (rows, d)."""
        count = self.num_nodes if rows is None else len(rows)
        out = np.empty((count, self.features.shape[1]), self.dtype)
        for columns, block in self.features.column_blocks():
            filtered = self.combine(block, repeated(coefficients, block))
            out[:, columns] = filtered if rows is None else filtered[rows]
        return out

    def _parts(self, values: np.ndarray) -> Iterator[np.ndarray]:
        """Values of every hop, (slices, ...), of each matrix: (k + 1, ...)."""
        if len(self.matrices) == 1:
            yield values
            return
        first, rest = values[:1], values[1:]
        for part in range(len(self.matrices)):
            part_values = rest[part * self.hops : (part + 1) * self.hops]
            yield np.concatenate([np.zeros_like(first) if part else first, part_values])

    def _joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Values of every hop of all matrices, hop 0 once."""
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([parts[0], *(hops[1:] for hops in parts[1:])])


def _total(parts: Iterable[np.ndarray]) -> np.ndarray:
    first, *others = parts
    return sum(others, first)


def repeated(coefficients: np.ndarray, signal: np.ndarray) -> np.ndarray:
    """Coefficients (hops,) for every column of a signal (n, w): (hops, w), of its type.

    Those of classes, (hops, w), are as they are.
    """
    wide = np.empty((len(coefficients), signal.shape[1]), signal.dtype)
    wide[...] = coefficients if np.ndim(coefficients) == 2 else np.asarray(coefficients)[:, None]
    return wide


def part_names(relations: Collection[str], operators: Sequence[str]) -> list[str]:
    """Names of the operators side by side; none if there is only one.

    >>> part_names(["out", "in"], ["adjacency"]), part_names([], ["adjacency", "laplacian"])
    (['out', 'in'], ['adjacency', 'laplacian'])
    >>> part_names(["out", "in"], ["adjacency", "laplacian"])
    ['out adjacency', 'out laplacian', 'in adjacency', 'in laplacian']
    """
    if len(operators) == 1:
        return list(relations)
    if not relations:
        return list(operators)
    return [f"{relation} {operator}" for relation in relations for operator in operators]


def nodes_near(matrix: SparseMatrix, rows: np.ndarray, hops: int) -> np.ndarray:
    """Whether ``hops`` hops of ``rows`` read each node: (n,) of bool."""
    whole = matrix.to_scipy()
    reached = np.zeros(whole.shape[0], bool)
    reached[rows] = True
    linked = sp.csr_array((np.ones(whole.nnz, bool), whole.indices, whole.indptr), whole.shape)
    count = int(reached.sum())
    for _ in range(hops):
        reached |= reached @ linked  # what the rows of these read, in whichever direction
        if reached.sum() == count:
            break
        count = int(reached.sum())
    return reached


def _matrices(
    graph: Graph, operator: Operators, basis: Basis, dtype: np.dtype
) -> list[SparseMatrix]:
    channels, matrices = find_operators(operator), []
    for edges in graph.relations or (graph,):
        undirected = isinstance(edges, Graph) or edges.turned is None
        for channel in channels:
            matrix = channel.matrix(edges, dtype, basis)
            symmetric = undirected and channel.symmetric
            matrices.append(SparseMatrix.from_scipy(matrix, symmetric=symmetric))
    return matrices


def fitted_basis(graph: Graph, operator: Operators, basis: str | Basis, hops: int) -> Basis:
    """The basis itself, or, if its numbers come from a signal, what it is for X of ``graph``.

    In float64, whatever the type of X; found once for a graph. It is one of a symmetric operator.

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [0.0]])
    >>> str(fitted_basis(g, "adjacency", "optimal", 1))
    'recurrence:1,0,0'
    """
    chosen = find_basis(basis)
    if not chosen.of_signal:
        return chosen
    graph.refuse_relations(f"basis {str(chosen)!r}")
    acting, *others = operators = find_operators(operator)
    if others or not acting.symmetric:
        raise ConfigError(
            f"is {str(chosen)!r}, which requires a single symmetric operator, but the "
            f"operator is {' and '.join(each.name for each in operators)}; use another basis or "
            "operator.",
            "basis",
        )
    bases = _fitted.setdefault(graph, {})
    key = acting, chosen, hops
    if key not in bases:
        bases[key] = _fit(graph, *key)
    return bases[key]


def _fit(graph: Graph, operator: Operator, basis: Basis, hops: int) -> Basis:
    nodes, columns = graph.num_nodes, graph.num_features
    needed, free = 8 * nodes * (2 * columns + 2 * min(columns, BLOCK_COLUMNS)), available_memory()
    if needed > free:
        raise ConfigError(
            f"is {str(basis)!r}, and fitting it to {plural(nodes, 'node')} with {columns:,} "
            f"features takes {format_bytes(needed)} of memory, but only {format_bytes(free)} is "
            "free; use another basis.",
            "basis",
        )
    whole = operator.matrix(graph, np.float64, basis)
    matrix = SparseMatrix.from_scipy(whole, symmetric=True)
    features = Features.from_array(graph.features)

    def product(block: np.ndarray) -> np.ndarray:
        return spmm(matrix, block)

    return basis.fitted(product, (block for _, block in features.column_blocks()), hops)
