"""Chebyshev polynomials of the first kind: p_i(cos t) = cos(i t)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.bases.base import Basis, Step


@dataclass(frozen=True)
class Chebyshev(Basis):
    """T_1(x) = x, then T_{i+1}(x) = 2 x T_i(x) - T_{i-1}(x); at most 1 on [-1, 1].

    >>> Chebyshev().values(np.array([-1.0, 1.0]), 2).tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    name = "chebyshev"
    domain = (-1.0, 1.0)

    def step(self, i: int) -> Step:
        return (2.0, 0.0, 1.0) if i else (1.0, 0.0, 0.0)

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        return np.ones(hops + 1)
