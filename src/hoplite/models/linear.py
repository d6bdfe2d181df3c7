"""SGC, EGC and LGC: logits = sum_i c_i p_i(S) X Theta with c fixed, exponential, or free."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from hoplite.filters import exponential_coefficients, start_coefficients, start_rate
from hoplite.models.base import Model, Weights
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import RowView


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

    def initial_filter(self, generator: torch.Generator) -> Weights:
        return {}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return None


class EGC(LinearModel):
    """sum_i beta^i / i! S^i X Theta: a truncated exponential, one learned rate beta."""

    def initial_filter(self, generator: torch.Generator) -> Weights:
        config = self.config
        return {"beta": start_rate(config.start, config.hops, self.lowpass_sign, generator)}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return exponential_coefficients(weights["beta"], self.config.hops)


class LGC(LinearModel):
    """sum_i alpha_i p_i(S) X Theta: one learned coefficient per hop."""

    def initial_filter(self, generator: torch.Generator) -> Weights:
        config = self.config
        return {
            "alpha": start_coefficients(config.start, config.hops, self.lowpass_sign, generator)
        }

    def coefficients(self, weights: Weights) -> Tensor | None:
        return weights["alpha"]
