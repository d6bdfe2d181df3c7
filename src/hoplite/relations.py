"""Relations: the edges of one direction or one type, each with an operator of its own.

A graph with R relations is filtered by one polynomial for each of them,

    logits = c_0 X Theta + sum_r sum_{i=1..k} c_{r,i} p_i(S_r) X Theta (+ b)

    S_r = shift I + sign N_r,    N_r = D_row^-1/2 (A_r + loop w_r I) D_column^-1/2

with S_r n x n, X n x d, Theta d x m and 1 + R k coefficients c. Hop 0 is X itself, whatever the
relation, so all of them share one c_0. A_r[v, u] is the weight of the arc by which v reads u, w_r
the mean weight of the relation's arcs, D_row and D_column the row and column sums of
A_r + loop w_r I; where one is 0, so is its D^-1/2. If A_r is symmetric, S_r is the operator of an
undirected graph. A_r is not negative, so ||N_r||_2 <= 1 (Schur's test: with B = A_r + loop w_r I,
x' N_r y = sum_{vu} B_vu (x_v / sqrt(row_v)) (y_u / sqrt(column_u)) <= ``|x| |y|``), and powers of
N_r cannot grow. Its eigenvalues may be complex; the transpose of A_r has the transpose of S_r. The
operator random_walk has N_r = D_row^-1 A_r instead, whose rows sum to 1, or 0.

Of directed edges there are two relations: ``out`` (A, a node reads those that it points to) and
``in`` (A transposed, it reads those that point to it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.csr import CsrMemory, checked_arcs, frozen, mean_weight
from hoplite.errors import GraphError

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.optional_deps import sparse as sp

OUT, IN = "out", "in"


@dataclass(frozen=True, eq=False)
class Relation:
    """``adjacency`` A_r is (n, n) CSR; ``turned`` is its transpose, None if it is symmetric.

    >>> (out, into) = relations_of(sp.csr_array([[0.0, 2.0], [0.0, 0.0]]), directed=True)
    >>> out.name, into.name, into.adjacency.toarray().tolist(), out.loop_weight
    ('out', 'in', [[0.0, 0.0], [2.0, 0.0]], 2.0)
    """

    name: str
    adjacency: sp.csr_array
    turned: sp.csr_array | None = None
    loop_weight: float = 1.0  # w_r: the mean weight of the relation's arcs

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled arrays are new and writable; make them read-only again."""
        self.__dict__.update(state)
        for name in ("adjacency", "turned"):
            if state[name] is not None:
                object.__setattr__(self, name, frozen(state[name]))

    def with_loop_weight(self, weight: float) -> Relation:
        return dataclasses.replace(self, loop_weight=weight)


def relations_of(arcs: Any, *, directed: bool, prefix: str = "") -> tuple[Relation, ...]:
    """The relations of ``arcs`` (n, n), whose entry (v, u) is the weight of the arc from v to u.

    Two if they are ``directed``, and otherwise one, in which of two ways the larger weight counts.
    """
    matrix = checked_arcs(arcs)
    if not directed:
        matrix = checked_arcs(matrix.maximum(matrix.T))
        return (Relation(prefix, frozen(matrix), None, mean_weight(CsrMemory(matrix))),)
    turned, weight = frozen(sp.csr_array(matrix.T)), mean_weight(CsrMemory(matrix))
    matrix = frozen(matrix)
    names = [f"{prefix}:{way}" if prefix else way for way in (OUT, IN)]
    return Relation(names[0], matrix, turned, weight), Relation(names[1], turned, matrix, weight)


def edge_relations(
    edges: np.ndarray, values: np.ndarray, nodes: int, *, summed: bool, directed: bool, types: Any
) -> tuple[Relation, ...]:
    """The relations of edges (e, 2) with these weights; none if neither is asked for.

    Repeated ones are ``summed``, or count once. ``types`` are (e,) texts, or None.
    """
    if types is None and not directed:
        return ()
    if types is None:
        named, codes = [""], np.zeros(len(edges), np.int64)
    else:
        texts = np.asarray([str(one).strip() for one in types], dtype=object)
        if len(texts) != len(edges):
            raise GraphError(
                f"types has {len(texts):,} entries but there are {len(edges):,} edges."
            )
        if any(one is None or not str(one).strip() for one in types):
            raise GraphError("types has a missing value; give every edge a type.")
        found, codes = np.unique(texts.astype(str), return_inverse=True)
        named = found.tolist()
    relations: list[Relation] = []
    for code, name in enumerate(named):
        own = codes == code
        ends = edges[own, 0], edges[own, 1]
        arcs = sp.coo_array((values[own], ends), shape=(nodes, nodes)).tocsr()
        if not summed:
            arcs.data[:] = 1
        relations += relations_of(arcs, directed=directed, prefix=name)
    return tuple(relations)


def types_of(names: Iterable[str]) -> list[str]:
    """The types as the column of the edges has them, of the names of relations.

    >>> types_of(["a:out", "a:in", "b:out", "b:in"]), types_of(["a", "b:out"])
    (['a', 'b'], ['a', 'b:out'])
    """
    names, ways = list(names), (f":{OUT}", f":{IN}")
    if all(name.endswith(ways) for name in names):
        names = [name.rpartition(":")[0] for name in names]
    return list(dict.fromkeys(names))


def check_relations(relations: Sequence[Relation], nodes: int) -> tuple[Relation, ...]:
    """GraphError unless they are of a graph of so many nodes, each with a name of its own."""
    names = [relation.name for relation in relations]
    if len(set(names)) < len(names):
        raise GraphError("relations has a name twice; make the names unique.")
    for relation in relations:
        if relation.adjacency.shape != (nodes, nodes):
            raise GraphError(
                f"relation {relation.name!r} has shape {relation.adjacency.shape} but the graph "
                f"has {nodes:,} nodes."
            )
    return tuple(relations)


def like(relations: Sequence[Relation], wanted: dict[str, float], nodes: int) -> Any:
    """``relations`` in the order of ``wanted``, whose names have the weights of the self-loops.

    One that is missing has no arcs, so that S_r is the identity, or 0 for the adjacency operator.
    """
    there = {relation.name: relation for relation in relations}
    empty = frozen(sp.csr_array((nodes, nodes), dtype=np.float32))
    return tuple(
        there.get(name, Relation(name, empty)).with_loop_weight(weight)
        for name, weight in wanted.items()
    )
