"""The two-layer Graph Attention Network, a baseline.

    H = dropout(ELU(concat_h A_h dropout(X) W1_h + b1)),  logits = A H W2 + b2

A_h(i, j) = dropout(softmax over i's edges of LeakyReLU(target_h . z_i + source_h . z_j)), where z
is dropout(X) W1_h, or H W2 (Velickovic et al.). Edge weights are not used; every node has a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import number_setting
from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.settings import ModelConfig
from hoplite.nets.base import Network, Tensors, glorot
from hoplite.nets.gcn import MAX_UNITS, hidden_setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.view import GraphView
else:
    from hoplite.optional_deps import torch

SLOPE = 0.2  # of LeakyReLU below 0


class GAT(Network):
    """``heads`` attention heads of ``hidden`` units each, an ELU, and one head to the classes."""

    name = "gat"
    title = "GAT"
    idle = frozenset({"order", "output_dropout"}) | OF_FILTERS
    size = "{0.heads} heads of {0.hidden} hidden units"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        hidden: int = hidden_setting()
        heads: int = number_setting(8, "attention heads.", 1, MAX_UNITS)

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
        from hoplite.nets.view import drop

        def attend(signal: Tensor, source: Tensor, target: Tensor, layer: int) -> Tensor:
            """The sums of a signal (n, heads, c) by its attention, whose weights are (heads, c)."""
            scores = (signal * target).sum(dim=2).index_select(0, sums.target)
            scores = scores + (signal * source).sum(dim=2).index_select(0, sums.source)
            attention = sums.softmax(torch.nn.functional.leaky_relu(scores, SLOPE))
            return sums(signal, drop(attention, dropout, layer))

        w, sums = weights, view.graph.edge_sums
        signal = view.graph.inputs(w["hidden_weight"], dropout)
        signal = signal.view(-1, self.config.heads, self.config.hidden)
        hidden = attend(signal, w["hidden_source"], w["hidden_target"], 2)
        hidden = torch.nn.functional.elu(hidden.flatten(1) + w["hidden_bias"])
        signal = (drop(hidden, dropout, 1) @ w["weight"]).unsqueeze(1)
        return view.pick(attend(signal, w["source"], w["target"], 3).squeeze(1))

    def signal_columns(self) -> int:
        return max(self.config.heads * self.config.hidden, self.num_classes)
