"""EGC: sum_i beta^i / i! S^i X Theta, a truncated exponential with one learned rate beta."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hoplite.models.base import Weights, uniform
from hoplite.models.polynomial import Polynomial, StartSettings
from hoplite.models.settings import ModelConfig
from hoplite.operators import find_operator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.bases import Basis
    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

NEGLIGIBLE = 2.0**-16  # of the rounding error


class EGC(Polynomial):
    """c_i = beta^i / i!.

    >>> EGC.largest(2.0, EGC.Settings(hops=3)).tolist()
    [1.0, 2.0, 2.0, 1.3333333333333333]
    """

    name = "egc"
    title = "EGC"
    learned = "beta"
    exponential = True
    theorem = 2
    Settings = StartSettings

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        """beta ~ U(-1/sqrt(k), 1/sqrt(k)); with the low-pass start 1, or -1 for the Laplacian."""
        rate = uniform((), max(self.config.hops, 1), generator)
        if self.config.start == "lowpass":
            rate = torch.tensor(find_operator(self.config.operator).sign)
        return {"beta": rate}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return exponential_coefficients(weights["beta"], self.config.hops)

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        """As for all polynomials, without the hops that a factorial makes vanish.

        ``|S^i X Theta|`` is at most ``|S|^i |X Theta|``, so a term below a small part of the
        rounding of the largest is lost anyway. A run's own terms decide about that, not its
        neighbours'.
        """
        every = exponential_coefficients(weights["beta"], self.config.hops)
        norm = find_operator(self.config.operator).norm_bound
        growth = norm ** np.arange(self.config.hops + 1.0)
        size = np.abs(every.detach().numpy()) * growth
        least = size.max(axis=1, keepdims=True) * torch.finfo(every.dtype).eps * NEGLIGIBLE
        matters = ~(size < least)  # NaN does
        matters[:, 1:] |= matters[:, :-1].copy()  # c_{i-1} is the slope of c_i
        used = int(np.flatnonzero(matters.any(axis=0))[-1]) + 1
        kept = torch.where(torch.from_numpy(matters), every, 0.0)
        return view.combine(weights["theta"], kept[:, :used], dropout)

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.cumprod(np.concatenate([[1.0], bound / np.arange(1, config.hops + 1)]))

    @classmethod
    def paper_growth(cls, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """exp(a ||S||_1); infinity where it is too large for a number."""
        return math.exp(bound * norm) if bound * norm < 700 else math.inf


def exponential_coefficients(rate: Tensor, hops: int) -> Tensor:
    """beta^i / i! for i = 0 .. hops: shape (...) -> (..., hops + 1), differentiable.

    >>> exponential_coefficients(torch.tensor(2.0), 3)
    tensor([1.0000, 2.0000, 2.0000, 1.3333])
    """
    one = torch.ones_like(rate).unsqueeze(-1)
    if hops == 0:
        return one
    steps = torch.arange(1, hops + 1, dtype=rate.dtype, device=rate.device)
    return torch.cat([one, torch.cumprod(rate.unsqueeze(-1) / steps, dim=-1)], dim=-1)
