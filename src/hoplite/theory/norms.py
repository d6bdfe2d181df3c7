"""Upper bounds of the norms of an operator and of its polynomials."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from hoplite.bases import Basis
from hoplite.operators import Operator


def one_norm(matrix: sp.csr_array) -> float:
    """The largest absolute column sum; for a symmetric matrix also the largest row sum.

    >>> one_norm(sp.csr_array([[1.0, -2.0], [-2.0, 0.0]]))
    3.0
    """
    return float(abs(matrix).sum(axis=0).max()) if matrix.shape[1] else 0.0


def polynomial_norms(
    operator: Operator, matrix: sp.csr_array, basis: Basis, hops: int
) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of ``||p_i(S)||_1`` and of ``||p_i(S)||_2``, i = 0 .. k: two arrays (k + 1,).

    ``matrix`` is the operator's S of a graph.
    The first follow from the recurrence, the second are the largest values on the spectrum.
    """
    one = basis.growth(one_norm(operator.in_basis(matrix, basis)), hops)
    return one, basis.largest(*basis.mapped(*operator.spectrum), hops)
