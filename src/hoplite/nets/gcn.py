"""The two-layer GCN, the baseline that the linear models are measured against.

    H = dropout(ReLU(S dropout(X) W1 + b1)),  logits = S H W2 + b2

on the same operator, with W1: d x h and W2: h x m (Kipf and Welling's model if S is renormalized).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.config import number_setting
from hoplite.machine import torch
from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.linear import OperatorSettings
from hoplite.nets.base import Network, Tensors, glorot

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.view import GraphView

LAYER_IDLE = frozenset({"order", "output_dropout"}) | OF_FILTERS  # of networks of several layers
MAX_UNITS = 1_000_000  # hidden units, and heads: their product with the features does not overflow


def hidden_setting() -> Any:
    """The setting of the two-layer models' hidden units."""
    return number_setting(16, "Hidden units, of each head for gat.", 1, MAX_UNITS)


class GCN(Network):
    """Two graph convolutions with a ReLU between them."""

    name = "gcn"
    title = "GCN"
    idle = LAYER_IDLE
    size = "{0.hidden} hidden units, {0.operator}"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(OperatorSettings):
        hidden: int = hidden_setting()

    def initial(self, rng: np.random.Generator | None) -> Weights:
        d, h, m = self.num_features, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(d, h, rng),
            "hidden_bias": np.zeros(h, np.float32),
            "weight": glorot(h, m, rng),
            "bias": np.zeros(m, np.float32),
        }

    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        from hoplite.nets.view import Convolution, drop, times

        features, (first, second) = view.layers(2, Convolution)
        hidden = first(times(features, weights["hidden_weight"], dropout))
        hidden = drop(torch.relu(hidden + weights["hidden_bias"]), dropout, 1, first.nodes)
        return second(hidden @ weights["weight"])

    def signal_columns(self) -> int:
        return max(self.config.hidden, self.num_classes)
