"""Legendre polynomials: orthogonal on [-1, 1] with the same weight everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.bases.base import Basis, Step


@dataclass(frozen=True)
class Legendre(Basis):
    """(i + 1) P_{i+1}(x) = (2 i + 1) x P_i(x) - i P_{i-1}(x); at most 1 on [-1, 1].

    >>> Legendre().values(np.array([0.0, 1.0]), 2).tolist()
    [[1.0, 0.0, -0.5], [1.0, 1.0, 1.0]]
    """

    name = "legendre"
    domain = (-1.0, 1.0)

    def step(self, i: int) -> Step:
        return (2 * i + 1) / (i + 1), 0.0, i / (i + 1)

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        return np.ones(hops + 1)
