"""Several layers of LGC with ReLUs between them, which the paper leaves to future work.

    H_l = ReLU(sum_{i=0..k} alpha_{l,i} p_i(M) dropout(H_{l-1}) W_l + b_l),   H_0 = X,  l = 1 .. L

the last layer without ReLU. W_1 is d x h, the last h x m, those between h x h; alpha_l has k + 1
numbers. With L = 1 and without the bias it is LGC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import MAX_HOPS, number_setting
from hoplite.machine import torch
from hoplite.models.base import Weights
from hoplite.models.linear import (
    OperatorSettings,
    basis_setting,
    start_coefficients,
    start_setting,
)
from hoplite.nets.base import Network, Tensors, glorot
from hoplite.nets.gcn import LAYER_IDLE, hidden_setting

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.view import GraphView

MAX_LAYERS = 32


class StackedLGC(Network):
    """``layers`` polynomials of ``hops`` hops, with ``hidden`` units between them."""

    name = "stacked"
    title = "stacked LGC"
    idle = LAYER_IDLE
    size = "{0.layers} layers of {0.hops} hops, {0.hidden} hidden units, {0.operator}"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(OperatorSettings):
        hops: int = number_setting(2, "Number of hops of each layer.", 0, MAX_HOPS)
        layers: int = number_setting(2, "Number of layers.", 1, MAX_LAYERS)
        hidden: int = hidden_setting()
        start: str = start_setting()
        basis: str = basis_setting()

    def initial(self, rng: np.random.Generator | None) -> Weights:
        """First weights: alpha_l, W_l and b_l of every layer; the last b_l is ``bias``."""
        count, weights = self.config.layers, Weights()
        hidden = [self.config.hidden] * (count - 1)
        sizes = [self.num_features, *hidden, self.num_classes]
        for number in range(1, count + 1):
            inputs, outputs = sizes[number - 1 : number + 1]
            bias = "bias" if number == count else f"bias_{number}"
            weights[f"alpha_{number}"] = start_coefficients(self.config, rng)
            weights[f"weight_{number}"] = glorot(inputs, outputs, rng)
            weights[bias] = np.zeros(outputs, np.float32)
        return weights

    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        from hoplite.nets.view import at_rows, drop, polynomial, times

        count = self.config.layers
        near, rows = view.near(count * self.config.hops)  # no other node has a part in the outputs
        signal = times(near.features, weights["weight_1"], dropout)
        for number in range(1, count):
            signal = polynomial(near, signal, weights[f"alpha_{number}"])
            hidden = torch.relu(signal + weights[f"bias_{number}"])
            hidden = drop(hidden, dropout, number, near.nodes)
            signal = hidden @ weights[f"weight_{number + 1}"]
        return at_rows(polynomial(near, signal, weights[f"alpha_{count}"]), rows)

    def signal_columns(self) -> int:
        return max(self.config.hidden, self.num_classes)
