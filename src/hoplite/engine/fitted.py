"""A basis with its numbers: what is fitted to the operator and the features of a graph, is here."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np

from hoplite.bases import Basis, find_basis
from hoplite.engine.features import Features
from hoplite.engine.orders import free_memory
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.memory import show_bytes
from hoplite.operators import Operator, Operators, find_operator, listed

COLUMNS = 256  # features propagated at a time
Key = tuple[Operator, Basis, int]
_known: WeakKeyDictionary[Graph, dict[Key, Basis]] = WeakKeyDictionary()  # a graph never changes


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
    acting, *others = [find_operator(one) for one in listed(operator)]
    if others or not acting.symmetric:
        raise ConfigError(
            f"basis is {str(chosen)!r}, which is fitted to one symmetric operator, and this is "
            f"{' and '.join(map(str, listed(operator)))}; use another basis or operator."
        )
    known = _known.setdefault(graph, {})
    key = acting, chosen, hops
    if key not in known:
        known[key] = _fit(graph, *key)
    return known[key]


def _fit(graph: Graph, operator: Operator, basis: Basis, hops: int) -> Basis:
    nodes, columns = graph.num_nodes, graph.num_features
    needed, free = 8 * nodes * (2 * columns + 2 * min(columns, COLUMNS)), free_memory()
    if needed > free:
        raise ConfigError(
            f"basis is {str(basis)!r}, and fitting it to {nodes:,} nodes with {columns:,} features "
            f"takes {show_bytes(needed)}, where {show_bytes(free)} are free; use another basis."
        )
    whole = operator.matrix(graph, np.float64, basis)
    matrix = SparseMatrix.from_scipy(whole, symmetric=True)
    features = Features.from_array(graph.features)

    def product(block: np.ndarray) -> np.ndarray:
        return spmm(matrix, block)

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, columns, COLUMNS):
            yield features.dense_columns(start, min(start + COLUMNS, columns))

    return basis.fitted(product, blocks(), hops)
