"""Upper bounds of the norms of an operator and of its polynomials."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from hoplite.operators import Operator


def one_norm(matrix: sp.csr_array) -> float:
    """The largest absolute column sum; for a symmetric matrix also the largest row sum.

    >>> one_norm(sp.csr_array([[1.0, -2.0], [-2.0, 0.0]]))
    3.0
    """
    return float(abs(matrix).sum(axis=0).max()) if matrix.shape[1] else 0.0


def power_norms(norm: float, hops: int) -> np.ndarray:
    """norm^0 .. norm^k: (k + 1,), infinity where it is too large for a number.

    >>> power_norms(2.0, 3).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    with np.errstate(over="ignore"):
        return norm ** np.arange(hops + 1.0)


def polynomial_norms(operator: Operator, basis: str, hops: int) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of ``||p_i(S)||_1`` and of ``||p_i(S)||_2``, i = 0 .. k: two arrays (k + 1,).

    Chebyshev polynomials are at most 1 on the spectrum; their 1-norms follow from the recurrence.
    """
    if basis == "monomial":
        one = power_norms(one_norm(operator.matrix), hops)
        return one, power_norms(operator.norm_bound, hops)
    norm = one_norm(operator.for_basis("chebyshev"))
    found = [1.0, norm]
    for _ in range(hops - 1):
        found.append(min(2 * norm * found[-1] + found[-2], math.inf))
    return np.array(found[: hops + 1]), np.ones(hops + 1)
