"""Powers: p_i(S) = S^i, as in the paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.bases.base import Basis, Step


@dataclass(frozen=True)
class Monomial(Basis):
    """p_{i+1}(x) = x p_i(x), of S as it is.

    >>> Monomial().values(np.array([2.0]), 3).tolist()
    [[1.0, 2.0, 4.0, 8.0]]
    """

    name = "monomial"
    domain = None
    powers = True

    def step(self, i: int) -> Step:
        return 1.0, 0.0, 0.0

    def growth(self, norm: float, hops: int) -> np.ndarray:
        """norm^0 .. norm^k, infinity where it is too large for a number."""
        with np.errstate(over="ignore"):
            return norm ** np.arange(hops + 1.0)

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        return self.growth(max(abs(low), abs(high)), hops)

    def largest_text(self, low: float, high: float, hops: int) -> str:
        return f"{max(abs(low), abs(high)):g}^{hops}"
