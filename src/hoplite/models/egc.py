"""EGC: sum_i beta^i / i! S^i X Theta, a truncated exponential with one learned rate beta."""

from __future__ import annotations

import math

import numpy as np

from hoplite.bases import Basis
from hoplite.models.base import Weights, uniform
from hoplite.models.linear import FilterFacts, LinearModel, StartSettings
from hoplite.models.settings import ModelConfig
from hoplite.operators import find_operator

NEGLIGIBLE = 2.0**-16  # of the rounding error


class EGC(LinearModel):
    """c_i = beta^i / i!.

    >>> EGC.largest(2.0, EGC.Settings(hops=3)).tolist()
    [1.0, 2.0, 2.0, 1.3333333333333333]
    """

    name = "egc"
    title = "EGC"
    facts = FilterFacts(learned="beta", exponential=True, theorem=2)
    Settings = StartSettings

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        """beta ~ U(-1/sqrt(k), 1/sqrt(k)); with the low-pass start 1, or -1 for the Laplacian."""
        rate = uniform((), max(self.config.hops, 1), rng)
        if self.config.start == "lowpass":
            rate = np.array(find_operator(self.config.operator).sign, np.float32)
        return {"beta": np.asarray(rate)}

    def coefficients(self, weights: Weights) -> np.ndarray:
        """Without the last hops, which a factorial makes vanish.

        ``|S^i X Theta|`` is at most ``|S|^i |X Theta|``, so a term below a small part of the
        rounding of the largest is lost anyway.
        """
        every = exponential_coefficients(weights["beta"], self.config.hops)
        matters = self._matters(every)
        kept = np.where(matters, every, every.dtype.type(0))
        return kept[: int(np.flatnonzero(matters)[-1]) + 1]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        """d/dbeta = sum_{i >= 1} (dLoss/dc_i) beta^(i-1) / (i-1)!"""
        every = exponential_coefficients(weights["beta"], self.config.hops)
        used = len(gradient)
        slopes = np.where(self._matters(every)[1:used], every[: used - 1], 0.0)
        return {"beta": np.array(np.sum(gradient[1:] * slopes, dtype=np.float64))}

    def _matters(self, every: np.ndarray) -> np.ndarray:
        """Which hops count: bool (k + 1,)."""
        norm = find_operator(self.config.operator).norm_bound
        size = np.abs(every) * norm ** np.arange(self.config.hops + 1.0)
        matters = ~(size < size.max() * np.finfo(every.dtype).eps * NEGLIGIBLE)  # NaN does
        matters[1:] |= matters[:-1].copy()  # c_{i-1} is the slope of c_i
        return matters

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.cumprod(np.concatenate([[1.0], bound / np.arange(1, config.hops + 1)]))

    @classmethod
    def paper_growth(cls, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """exp(a ||S||_1); infinity where it is too large for a number."""
        return math.exp(bound * norm) if bound * norm < 700 else math.inf


def exponential_coefficients(rate: np.ndarray, hops: int) -> np.ndarray:
    """beta^i / i! for i = 0 .. hops as a cumulative product, as i! overflows: (hops + 1,).

    >>> exponential_coefficients(np.array(2.0), 3).round(4).tolist()
    [1.0, 2.0, 2.0, 1.3333]
    """
    steps = np.arange(1, hops + 1, dtype=rate.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.cumprod(np.concatenate([np.ones(1, rate.dtype), rate / steps]))
