"""SGC, EGC and LGC: logits = sum_i c_i p_i(S) X Theta with c fixed, exponential, or free."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from hoplite.filters import exponential_coefficients, start_coefficients, start_rate
from hoplite.models.base import Model, Weights
from hoplite.operators import find_operator
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import RowView

NEGLIGIBLE = 2.0**-16  # of the rounding error


class LinearModel(Model):
    """A model whose coefficients do not depend on the node."""

    @abstractmethod
    def coefficients(self, weights: Weights) -> Tensor | None:
        """c_0 .. c_k per run, (R, k + 1); None means one-hot at k."""

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        return view.combine(weights["theta"], self.coefficients(weights), dropout)


class SGC(LinearModel):
    """S^k X Theta: the last hop alone."""

    kept_hops = "last"

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        return {}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return None


class EGC(LinearModel):
    """sum_i beta^i / i! S^i X Theta: a truncated exponential, one learned rate beta."""

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        config = self.config
        return {"beta": start_rate(config.start, config.hops, self.lowpass_sign, generator)}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return exponential_coefficients(weights["beta"], self.config.hops)

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        """As for all linear models, without the hops that a factorial makes vanish.

        |S^i X Theta| is at most |S|^i |X Theta|, so a term below a small part of the rounding of
        the largest is lost anyway. A run's own terms decide about that, not its neighbours'.
        """
        every = exponential_coefficients(weights["beta"], self.config.hops)
        norm = find_operator(self.config.operator).norm_bound
        growth = norm ** torch.arange(self.config.hops + 1, dtype=torch.float64)
        size = every.detach().abs() * growth
        least = size.amax(dim=1, keepdim=True) * torch.finfo(every.dtype).eps * NEGLIGIBLE
        matters = ~(size < least)  # NaN does
        matters[:, 1:] |= matters[:, :-1].clone()  # c_{i-1} is the slope of c_i
        used = int(matters.any(dim=0).nonzero().max()) + 1
        kept = torch.where(matters, every, 0.0)
        return view.combine(weights["theta"], kept[:, :used], dropout)


class LGC(LinearModel):
    """sum_i alpha_i p_i(S) X Theta: one learned coefficient per hop."""

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        config = self.config
        return {
            "alpha": start_coefficients(config.start, config.hops, self.lowpass_sign, generator)
        }

    def coefficients(self, weights: Weights) -> Tensor | None:
        return weights["alpha"]
