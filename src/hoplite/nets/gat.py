"""The two-layer Graph Attention Network, a baseline.

    H = dropout(ELU(concat_h A_h dropout(X) W1_h + b1)),  logits = A H W2 + b2

A_h(i, j) = dropout(softmax over i's edges of LeakyReLU(target_h . z_i + source_h . z_j)), where z
is dropout(X) W1_h, or H W2 (Velickovic et al.). Edge weights are not used; every node has a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import number_setting
from hoplite.machine import torch
from hoplite.models.base import Weights
from hoplite.models.settings import ModelConfig
from hoplite.nets.base import Network, Tensors, glorot
from hoplite.nets.gcn import LAYER_IDLE, MAX_UNITS, hidden_setting

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.view import Attention, GraphView

Product = Callable[["Tensor"], "Tensor"]


class GAT(Network):
    """``heads`` attention heads of ``hidden`` units each, an ELU, and one head to the classes."""

    name = "gat"
    title = "GAT"
    idle = LAYER_IDLE
    size = "{0.heads} heads of {0.hidden} hidden units"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        hidden: int = hidden_setting()
        heads: int = number_setting(8, "Attention heads.", 1, MAX_UNITS)

    def initial(self, rng: np.random.Generator | None) -> Weights:
        heads, h, m = self.config.heads, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(self.num_features, heads * h, rng),
            "hidden_source": glorot(heads, h, rng),
            "hidden_target": glorot(heads, h, rng),
            "hidden_bias": np.zeros(heads * h, np.float32),
            "weight": glorot(heads * h, m, rng),
            "source": glorot(1, m, rng),
            "target": glorot(1, m, rng),
            "bias": np.zeros(m, np.float32),
        }

    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        from hoplite.nets.view import Attention, drop, times

        def attend(layer: Attention, inputs: Product, prefix: str, mask: int) -> Tensor:
            """The sums of inputs W (sources, h, c) by their attention: (nodes, h c)."""
            source, target = weights[f"{prefix}source"], weights[f"{prefix}target"]
            weight = weights[f"{prefix}weight"]
            heads = weight.view(-1, *source.shape)
            # (inputs W) s = inputs (W s), which has fewer columns
            scores = inputs((heads * source).sum(dim=2)), inputs((heads * target).sum(dim=2))
            signal = inputs(weight).view(-1, *source.shape)
            return layer(signal, scores, dropout, mask).flatten(1)

        features, (first, second) = view.layers(2, Attention)
        hidden = attend(first, lambda weight: times(features, weight, dropout), "hidden_", 2)
        hidden = torch.nn.functional.elu(hidden + weights["hidden_bias"])
        hidden = drop(hidden, dropout, 1, first.nodes)
        return attend(second, lambda weight: hidden @ weight, "", 3)

    def signal_columns(self) -> int:
        return max(self.config.heads * self.config.hidden, self.num_classes)
