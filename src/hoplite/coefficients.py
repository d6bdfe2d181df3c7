"""Where a filter's coefficients c_0 .. c_k come from, as far as it is known before any training."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from hoplite.bases import Basis


class Coefficients(ABC):
    """Coefficients that are the same for every node and class."""

    learned: ClassVar[str | None] = None  # the name of the weight that they come from
    homogeneous: ClassVar[bool] = False  # twice the weight, twice the coefficients
    exponential: ClassVar[bool] = False
    theorem: ClassVar[int | None] = None  # of the paper, about their Rademacher complexity

    @abstractmethod
    def largest(self, bound: float, hops: int) -> np.ndarray:
        """The largest ``|c_i|`` of all weights up to ``bound``: (k + 1,)."""

    def paper_growth(self, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """The factor of the paper's bound that grows with the operator's 1-norm.

        infinity where the paper has no theorem, which bounds nothing.
        """
        return math.inf


class Last(Coefficients):
    """c_k = 1 alone.

    >>> Last().largest(5.0, 2).tolist()
    [0.0, 0.0, 1.0]
    """

    def largest(self, bound: float, hops: int) -> np.ndarray:
        return np.eye(hops + 1)[-1]


class Exponential(Coefficients):
    """c_i = beta^i / i!.

    >>> Exponential().largest(2.0, 3).tolist()
    [1.0, 2.0, 2.0, 1.3333333333333333]
    """

    learned = "beta"
    exponential = True
    theorem = 2

    def largest(self, bound: float, hops: int) -> np.ndarray:
        return np.cumprod(np.concatenate([[1.0], bound / np.arange(1, hops + 1)]))

    def paper_growth(self, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """exp(a ||S||_1); infinity where it is too large for a number."""
        return math.exp(bound * norm) if bound * norm < 700 else math.inf


class Free(Coefficients):
    """c_i = alpha_i, a number per hop.

    >>> Free().largest(2.0, 2).tolist()
    [2.0, 2.0, 2.0]
    """

    learned = "alpha"
    homogeneous = True
    theorem = 1

    def largest(self, bound: float, hops: int) -> np.ndarray:
        return np.full(hops + 1, float(bound))

    def paper_growth(self, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """a sum_i ||S||_1^i."""
        with np.errstate(over="ignore"):
            return bound * float(basis.growth(norm, hops).sum())
