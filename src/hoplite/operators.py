"""The n x n operators S that carry a signal one hop, and what is known of their spectra.

    adjacency      D^-1/2 A D^-1/2            spectrum in [-1, 1]
    renormalized   D~^-1/2 (A + I) D~^-1/2    spectrum in [-1, 1], D~ the degrees of A + I
    laplacian      I - D^-1/2 A D^-1/2        spectrum in [0, 2]

An isolated node has D^-1/2 = 0: its adjacency row is zero, and L_ii = renormalized S_ii = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.bases import Basis, find_basis
from hoplite.config import OPERATORS
from hoplite.datasets.csr_rows import CsrMemory, CsrRows, row_ranges
from hoplite.errors import check_choice
from hoplite.graph import Graph

SPECTRUM = {"renormalized": (-1.0, 1.0), "adjacency": (-1.0, 1.0), "laplacian": (0.0, 2.0)}
PIECE_ENTRIES = 1 << 20  # of the adjacency that are worked on at a time


@dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric operator of one graph, as S and in the form that a basis needs."""

    name: str
    matrix: sp.csr_array

    @property
    def spectrum(self) -> tuple[float, float]:
        """An interval that holds every eigenvalue."""
        return SPECTRUM[self.name]

    @property
    def norm_bound(self) -> float:
        """An upper bound of the spectral norm ||S||_2."""
        return max(abs(end) for end in self.spectrum)

    def for_basis(self, basis: str | Basis) -> sp.csr_array:
        """(S - c I) / h, with its spectrum on the domain of ``basis``; S if that has none."""
        return in_basis(self.matrix, self.name, basis)


def build_operator(graph: Graph, name: str = "renormalized", dtype: Any = None) -> Operator:
    """The operator ``name`` of ``graph``, in the number type of its features unless one is given.

    >>> g = Graph.from_edges([(0, 1)], features=np.eye(3))
    >>> build_operator(g, "laplacian").matrix.toarray().tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_choice("operator", name, OPERATORS)
    dtype = graph.features.dtype if dtype is None else dtype
    adjacency, n = CsrMemory(graph.adjacency), graph.num_nodes
    most = adjacency.entries + n  # the diagonal is the only new place
    indices = np.empty(most, sp.get_index_dtype(maxval=most))
    values, indptr = np.empty(most, dtype), np.zeros(n + 1, indices.dtype)
    end = 0
    for start, rows in operator_rows(adjacency, name, dtype):
        first, end = end, end + rows.nnz
        indices[first:end], values[first:end] = rows.indices, rows.data
        indptr[start + 1 : start + 1 + rows.shape[0]] = rows.indptr[1:] + first
    return Operator(name, sp.csr_array((values[:end], indices[:end], indptr), shape=(n, n)))


def operator_rows(
    adjacency: CsrRows, name: str, dtype: Any, most_entries: int = PIECE_ENTRIES
) -> Iterator[tuple[int, sp.csr_array]]:
    """The operator ``name`` a range of rows at a time: its first row, and the rows.

    Every entry is computed in float64 and rounded to ``dtype`` once. Two float64 numbers per node
    and the work on ``most_entries`` entries are in memory.
    """
    n = adjacency.rows
    roots = np.zeros(n)
    for start, stop in row_ranges(adjacency, most_entries):
        roots[start:stop] = _inverse_roots(_weights(adjacency, name, start, stop).sum(axis=1))
    for start, stop in row_ranges(adjacency, most_entries):
        rows = _weights(adjacency, name, start, stop)
        rows.data *= np.repeat(roots[start:stop], np.diff(rows.indptr))
        rows.data *= roots[rows.indices]
        if name == "laplacian":
            rows = sp.csr_array(_identity(start, stop, n, np.float64) - rows)
        rows = rows.astype(dtype)
        rows.sort_indices()
        yield start, rows


def in_basis(rows: sp.csr_array, name: str, basis: str | Basis, start: int = 0) -> sp.csr_array:
    """Rows of S from row ``start`` on, in the form that ``basis`` needs."""
    middle, half = find_basis(basis).mapping(*SPECTRUM[name])
    if middle == 0 and half == 1:
        return rows
    identity = _identity(start, start + rows.shape[0], rows.shape[1], rows.dtype)
    moved = sp.csr_array((rows - middle * identity) / half, dtype=rows.dtype)
    moved.eliminate_zeros()
    moved.sort_indices()
    return moved


def _weights(adjacency: CsrRows, name: str, start: int, stop: int) -> sp.csr_array:
    """Rows of A, or of A + I for ``renormalized``, in float64."""
    n = adjacency.rows
    weights = sp.csr_array(adjacency.read(start, stop).to_scipy(n), dtype=np.float64, copy=True)
    if name == "renormalized":
        weights = sp.csr_array(weights + _identity(start, stop, n, np.float64))
    return weights


def _identity(start: int, stop: int, n: int, dtype: Any) -> sp.csr_array:
    """Rows ``start`` to ``stop`` of the n x n identity."""
    return sp.eye_array(stop - start, n, k=start, dtype=dtype, format="csr")


def _inverse_roots(degrees: np.ndarray) -> np.ndarray:
    """D^-1/2, and 0 for a node without edges."""
    found = np.zeros_like(degrees)
    np.power(degrees, -0.5, where=degrees > 0, out=found)
    return found
