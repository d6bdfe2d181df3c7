"""The two-layer GCN, the baseline that the linear models are measured against.

    H = dropout(ReLU(S dropout(X) W1 + b1)),  logits = S H W2 + b2

on the same operator, with W1: d x h and W2: h x m (Kipf and Welling's model if S is renormalized).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from hoplite.models.base import Model, Weights
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import RowView
from hoplite.propagation.features import Features


class GCN(Model):
    """Two graph convolutions with a ReLU between them."""

    def initial(self, generator: torch.Generator | None) -> Weights:
        d, h, m = self.num_features, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(d, h, generator),
            "hidden_bias": torch.zeros(h),
            "weight": glorot(h, m, generator),
            "bias": torch.zeros(m),
        }

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        return {}

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        hidden = view.propagate(view.whole_inputs(weights["hidden_weight"], dropout))
        hidden = torch.relu(hidden + weights["hidden_bias"]).transpose(0, 1)  # (R, n, h)
        if dropout is not None:
            hidden = _DropHidden.apply(hidden.contiguous(), dropout.layer(1))
        outputs = (hidden @ weights["weight"]).transpose(0, 1)
        return view.pick(view.propagate(outputs.contiguous()))


class _DropHidden(torch.autograd.Function):
    """Each run's dropout of its hidden signal, (R, n, h); its own adjoint."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, dropout: Dropout) -> Tensor:
        ctx.dropout = dropout
        return torch.stack(
            [Features(signal).dense(dropout, run) for run, signal in enumerate(hidden)]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _DropHidden.apply(gradients[0].contiguous(), ctx.dropout), None


def glorot(inputs: int, outputs: int, generator: torch.Generator | None) -> Tensor:
    """U(-a, a) with a = sqrt(6 / (inputs + outputs))."""
    bound = math.sqrt(6 / (inputs + outputs))
    if generator is None:
        return torch.empty(inputs, outputs)
    return bound * (2 * torch.rand(inputs, outputs, generator=generator) - 1)
