"""The two-layer GCN, the baseline that the linear models are measured against.

    H = dropout(ReLU(S dropout(X) W1 + b1)),  logits = S H W2 + b2

on the same operator, with W1: d x h and W2: h x m (Kipf and Welling's model if S is renormalized).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoplite.config import number_setting
from hoplite.models.base import OF_FILTERS, Model, Weights, glorot
from hoplite.models.polynomial import OperatorSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

MOST_UNITS = 1_000_000  # hidden units, and heads: their product with the features is no overflow


def hidden_setting() -> Any:
    """Of the two-layer models."""
    return number_setting(16, "hidden units (of each head).", 1, MOST_UNITS)


class GCN(Model):
    """Two graph convolutions with a ReLU between them."""

    name = "gcn"
    title = "GCN"
    idle = frozenset({"order", "output_dropout"}) | OF_FILTERS
    size = "{0.hidden} hidden units, {0.operator}"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(OperatorSettings):
        hidden: int = hidden_setting()

    def initial(self, generator: torch.Generator | None) -> Weights:
        d, h, m = self.num_features, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(d, h, generator),
            "hidden_bias": torch.zeros(h),
            "weight": glorot(h, m, generator),
            "bias": torch.zeros(m),
        }

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        from hoplite.propagation.features import drop_signals  # not for those who list models

        near = view.near(2)  # no other node has a part in two layers
        hidden = near.propagate(near.features.times(weights["hidden_weight"], dropout))
        hidden = torch.relu(hidden + weights["hidden_bias"]).transpose(0, 1)  # (R, near, h)
        if dropout is not None:
            hidden = drop_signals(hidden.contiguous(), dropout.layer(1), near.nodes)
        outputs = (hidden @ weights["weight"]).transpose(0, 1)
        return near.pick(near.propagate(outputs.contiguous()))
