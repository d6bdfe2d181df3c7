"""The n x n operators S that carry a signal one hop, and what is known of their spectra.

    adjacency      D^-1/2 A D^-1/2            spectrum in [-1, 1]
    renormalized   D~^-1/2 (A + I) D~^-1/2    spectrum in [-1, 1], D~ the degrees of A + I
    laplacian      I - D^-1/2 A D^-1/2        spectrum in [0, 2]

An isolated node has D^-1/2 = 0: its adjacency row is zero, and L_ii = renormalized S_ii = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import OPERATORS
from hoplite.errors import check_choice
from hoplite.graph import Graph

SPECTRUM = {"renormalized": (-1.0, 1.0), "adjacency": (-1.0, 1.0), "laplacian": (0.0, 2.0)}


@dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric operator of one graph, in the form S and in the form mapped to [-1, 1]."""

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

    @property
    def lowpass_sign(self) -> int:
        """Sign of the spectrum's smooth end: +1 where smooth signals have large eigenvalues."""
        return -1 if self.name == "laplacian" else 1

    def for_basis(self, basis: str) -> sp.csr_array:
        """S for monomials; for Chebyshev polynomials (S - c I) / h, the spectrum on [-1, 1]."""
        low, high = self.spectrum
        middle, half = (low + high) / 2, (high - low) / 2
        if basis == "monomial" or (middle == 0 and half == 1):
            return self.matrix
        identity = sp.eye_array(self.matrix.shape[0], dtype=self.matrix.dtype, format="csr")
        moved = sp.csr_array((self.matrix - middle * identity) / half, dtype=self.matrix.dtype)
        moved.eliminate_zeros()
        moved.sort_indices()
        return moved


def build_operator(graph: Graph, name: str = "renormalized", dtype: Any = None) -> Operator:
    """The operator ``name`` of ``graph``, in the number type of its features unless one is given.

    >>> g = Graph.from_edges([(0, 1)], features=np.eye(3))
    >>> build_operator(g, "laplacian").matrix.toarray().tolist()
    [[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_choice("operator", name, OPERATORS)
    dtype = graph.features.dtype if dtype is None else dtype
    weights = sp.csr_array(graph.adjacency, dtype=np.float64)
    identity = sp.eye_array(graph.num_nodes, format="csr")
    if name == "renormalized":
        matrix = _normalized(sp.csr_array(weights + identity))
    elif name == "adjacency":
        matrix = _normalized(weights)
    else:
        matrix = identity - _normalized(weights)
    matrix = sp.csr_array(matrix, dtype=dtype)
    matrix.sort_indices()
    return Operator(name, matrix)


def _normalized(weights: sp.csr_array) -> sp.csr_array:
    """D^-1/2 W D^-1/2 with D the row sums of W, and D^-1/2 = 0 where the row sum is 0."""
    scaling = sp.dia_array((inverse_roots(weights.sum(axis=1))[None], [0]), shape=weights.shape)
    return sp.csr_array(scaling @ weights @ scaling)


def inverse_roots(degrees: np.ndarray) -> np.ndarray:
    """D^-1/2, and 0 for a node without edges.

    >>> inverse_roots(np.array([4.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    found = np.zeros_like(degrees)
    np.power(degrees, -0.5, where=degrees > 0, out=found)
    return found
