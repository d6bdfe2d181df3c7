"""The n x n operators S that carry a signal one hop, and what is known of their spectra.

    adjacency      S = D^-1/2 A D^-1/2            spectrum in [-1, 1]
    renormalized   S = D~^-1/2 (A + w I) D~^-1/2  spectrum in [-1, 1], D~ the degrees of A + w I
    laplacian      S = I - D^-1/2 A D^-1/2        spectrum in [0, 2]
    random_walk    S = D^-1 A                     spectrum in [-1, 1], rows sum to 1, not symmetric

w is the graph's ``loop_weight``: the mean weight of its edges, so 1 without weights. All operators
stay the same if all weights are multiplied by one number: euros and cents give the same model.
PyTorch Geometric's ``gcn_norm`` has w = 1 whatever the weights are, which is another S.

An isolated node has D^-1/2 = 0: its adjacency and random_walk rows are zero, and L_ii =
renormalized S_ii = 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.bases import Basis, find_basis
from hoplite.csr import CsrMemory, CsrRows, row_ranges
from hoplite.errors import ConfigError, check_choice
from hoplite.formatting import listing
from hoplite.graph import Graph, Relation
from hoplite.machine import sparse as sp

PIECE_ENTRIES = 1 << 20  # entries of the adjacency that are worked on at a time


@dataclass(frozen=True)
class Operator:
    """S = shift I + sign N with N = D^-1/2 (A + loop w I) D^-1/2, D the degrees of A + loop w I.

    w is the graph's ``loop_weight``. N is similar to D^-1 (A + loop w I), whose absolute row sums
    are 1 (or 0 at an isolated node), so its eigenvalues lie in [-1, 1], and 1 belongs to the
    smoothest signal, the vector sqrt(d).

    If it is not ``symmetric``, N is D^-1 (A + loop w I) itself, whose smoothest signal is constant.
    """

    name: str
    loop: float = 0.0
    shift: float = 0.0
    sign: float = 1.0  # sign of a low-pass filter's coefficients, from one hop to the next
    symmetric: bool = True

    @property
    def spectrum(self) -> tuple[float, float]:
        """An interval that holds every eigenvalue."""
        return self.shift - 1, self.shift + 1

    @property
    def norm_bound(self) -> float:
        """An upper bound of the spectral norm ||S||_2 on every graph.

        If S is not symmetric, of its largest absolute row sum ||S||_inf instead: ||S||_2 has none.
        """
        return max(abs(end) for end in self.spectrum)

    @property
    def similar(self) -> Operator:
        """The symmetric one with the same eigenvalues on every graph."""
        return dataclasses.replace(self, symmetric=True)

    def require_symmetric(self, what: str) -> None:
        """ConfigError unless S is symmetric, which ``what`` needs."""
        if not self.symmetric:
            raise ConfigError(
                f"is {self.name!r}, which is not symmetric, but {what} a symmetric "
                f"operator; use {listing(SYMMETRIC, 'or')}.",
                "operator",
            )

    @property
    def normalized(self) -> Operator:
        """N alone."""
        return dataclasses.replace(self, shift=0.0, sign=1.0)

    def norm(self, graph: Graph) -> float:
        """``||S||_2`` of ``graph`` or more, never less; without an edge S is a multiple of I.

        ConfigError if S is not symmetric.
        """
        self.require_symmetric("a known spectral norm needs")
        if graph.num_edges:
            return self.norm_bound
        return abs(self.shift + self.sign * self.loop) if graph.num_nodes else 0.0

    def matrix(
        self, graph: Graph | Relation, dtype: Any = None, basis: str | Basis = "monomial"
    ) -> sp.csr_array:
        """S of a graph, or S_r of one of its relations, in the form that ``basis`` needs: n x n.

        In the number type of the graph's features unless one is given, of a relation in float64.

        >>> g = Graph.from_edges([(0, 1)], features=np.eye(3))
        >>> find_operator("laplacian").matrix(g).toarray().tolist()
        [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        turned, default = None, np.float64
        if isinstance(graph, Graph):
            default = graph.features.dtype
        elif graph.turned is not None:
            turned = CsrMemory(graph.turned)
        adjacency, n = CsrMemory(graph.adjacency), graph.adjacency.shape[0]
        most = adjacency.entries + n  # the diagonal is the only new place
        indices = np.empty(most, sp.get_index_dtype(maxval=most))
        values, indptr = np.empty(most, dtype or default), np.zeros(n + 1, indices.dtype)
        end = 0
        for start, rows in self.rows(adjacency, values.dtype, self.loop_of(graph), turned=turned):
            first, end = end, end + rows.nnz
            indices[first:end], values[first:end] = rows.indices, rows.data
            indptr[start + 1 : start + 1 + rows.shape[0]] = rows.indptr[1:] + first
        whole = sp.csr_array((values[:end], indices[:end], indptr), shape=(n, n))
        return self.in_basis(whole, basis)

    def loop_of(self, graph: Graph | Relation) -> float:
        """The weight of the self-loops that it adds to ``graph``; 0 if it adds none."""
        return self.loop * graph.loop_weight if self.loop else 0.0

    def rows(
        self,
        adjacency: CsrRows,
        dtype: Any,
        loop: float,
        max_entries: int = PIECE_ENTRIES,
        turned: CsrRows | None = None,
    ) -> Iterator[tuple[int, sp.csr_array]]:
        """S a range of rows at a time: its first row, and the rows; ``loop`` is that of loop_of.

        ``turned`` is the transpose of the adjacency, if that is not symmetric.
        Every entry is computed in float64 and rounded to ``dtype`` once. Two float64 numbers per
        node and the work on ``max_entries`` entries are in memory.
        """
        n = adjacency.rows
        left = _roots(adjacency, loop, max_entries)
        if not self.symmetric:
            left, right = left * left, np.ones(n)
        else:
            right = left if turned is None else _roots(turned, loop, max_entries)
        for start, stop in row_ranges(adjacency, max_entries):
            rows = _weights(adjacency, start, stop, loop)
            rows.data *= np.repeat(self.sign * left[start:stop], np.diff(rows.indptr))
            rows.data *= right[rows.indices]
            if self.shift:
                rows = sp.csr_array(self.shift * _identity(start, stop, n, np.float64) + rows)
            rows = rows.astype(dtype)
            rows.sort_indices()
            yield start, rows

    def in_basis(self, rows: sp.csr_array, basis: str | Basis, start: int = 0) -> sp.csr_array:
        """(S - middle I) / half, with its spectrum on the domain of ``basis``; S if it has none.

        ``rows`` are those of S from row ``start`` on.
        """
        middle, half = find_basis(basis).mapping(*self.spectrum)
        if middle == 0 and half == 1:
            return rows
        identity = _identity(start, start + rows.shape[0], rows.shape[1], rows.dtype)
        moved = sp.csr_array((rows - middle * identity) / half, dtype=rows.dtype)
        moved.eliminate_zeros()
        moved.sort_indices()
        return moved


Operators = str | Operator | Sequence[str | Operator]  # one, or several side by side
OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("renormalized", loop=1.0),
        Operator("adjacency"),
        Operator("laplacian", shift=1.0, sign=-1.0),
        Operator("random_walk", symmetric=False),
    )
}
SYMMETRIC = tuple(name for name, operator in OPERATORS.items() if operator.symmetric)


def find_operator(name: str | Operator) -> Operator:
    """The operator of this name; ConfigError, with the known ones, if there is none.

    >>> find_operator("laplacian").spectrum
    (0.0, 2.0)
    """
    return (
        name if isinstance(name, Operator) else OPERATORS[check_choice("operator", name, OPERATORS)]
    )


def find_operators(operators: Operators) -> list[Operator]:
    """One operator, or several, as a list."""
    several = [operators] if isinstance(operators, str | Operator) else operators
    return [*map(find_operator, several)]


def _roots(adjacency: CsrRows, loop: float, max_entries: int) -> np.ndarray:
    """D^-1/2 of the row sums of A + loop I, and 0 for a node without edges: (n,)."""
    roots = np.zeros(adjacency.rows)
    for start, stop in row_ranges(adjacency, max_entries):
        degrees = _weights(adjacency, start, stop, loop).sum(axis=1)
        np.power(degrees, -0.5, where=degrees > 0, out=roots[start:stop])
    return roots


def _weights(adjacency: CsrRows, start: int, stop: int, loop: float) -> sp.csr_array:
    """Rows of A + loop I in float64."""
    n = adjacency.rows
    weights = sp.csr_array(adjacency.read(start, stop), dtype=np.float64, copy=True)
    if loop:
        weights = sp.csr_array(weights + loop * _identity(start, stop, n, np.float64))
    return weights


def _identity(start: int, stop: int, n: int, dtype: Any) -> sp.csr_array:
    """Rows ``start`` to ``stop`` of the n x n identity."""
    return sp.eye_array(stop - start, n, k=start, dtype=dtype, format="csr")
