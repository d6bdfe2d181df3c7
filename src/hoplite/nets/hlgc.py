"""hLGC: every hop is scaled by a gate that a small network computes.

Three readings of the paper, with P_i = p_i(S) X and H_i the sum of the hops up to i, H_{-1} = 0:

    node      H = sum_i f_i * (alpha_i P_i Theta),  f_i = sigmoid(ReLU(P_i W1_i + b1_i) W2_i + b2_i)
              one value per node and hop; W1_i: d x h, W2_i: h x 1, h = floor(d/2) (the paper's
              equation, with the biases of its authors' later code)
    class     H_i = H_{i-1} + alpha_i ([X, H_{i-1}] W + b) * (P_i Theta)
              one value per node and class; W: (d + m) x m (the paper's experimental section)
    feature   H_i = H_{i-1} + (P_i * ([P_{i-1}, H_{i-1}] W + b)) Theta,  P_{-1} = X
              one value per node and feature; W: (d + m) x d, shared by all hops; no alpha, and
              hop 0 is gated, too (the authors' first public code)

All gates are functions of one node's own rows, so only the rows that are asked for are computed;
`class` propagates m columns (weights first), the other two need the hop features themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import choice_setting
from hoplite.machine import torch
from hoplite.models.base import Weights, uniform
from hoplite.models.linear import HopSettings, basis_setting, start_coefficients, start_setting
from hoplite.models.settings import ModelConfig
from hoplite.nets.base import RowNetwork, Tensors

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.view import RowView

CACHED_NUMBERS = 1 << 18  # numbers of a hop whose rows are gated together
GATES = ("node", "class", "feature")


class HyperLGC(RowNetwork):
    """LGC with a gate, by the setting ``gate``."""

    name = "hlgc"
    title = "hLGC"
    size = "{0.hops} hops, {0.operator}, {0.basis_title}"
    variant = "gate"
    idle = frozenset({"output_dropout"})  # its gates read hop features, which have no outputs

    @dataclass(frozen=True)
    class Settings(HopSettings):
        start: str = start_setting()
        basis: str = basis_setting()
        gate: str = choice_setting("node", "Gate: node, class or feature.", GATES)

    def __init__(
        self, config: ModelConfig, num_features: int, num_classes: int, relations: int = 1
    ) -> None:
        super().__init__(config, num_features, num_classes, relations)
        gates = {"node": NodeGate, "class": ClassGate, "feature": FeatureGate}
        self.gate: Gate = gates[config.gate](config, num_features, num_classes)

    def initial(self, rng: np.random.Generator | None) -> Weights:
        """First weights: Theta, the gate's (with alpha where it has one), and the bias."""
        m = self.num_classes
        weights = {"theta": uniform((self.num_features, m), m, rng)} | self.gate.initial(rng)
        if self.config.bias:
            weights["bias"] = np.zeros(m, np.float32)
        return weights

    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor:
        return self.gate.forward(weights, view, dropout)

    def signal_columns(self) -> int:
        return self.gate.signal_columns()

    def dense_work(self, rows: int, nodes: int) -> int:
        return rows * (self.config.hops + 1) * self.gate.row_work()


class Gate(ABC):
    """A gate with its weights."""

    def __init__(self, config: ModelConfig, num_features: int, num_classes: int) -> None:
        self.config, self.num_features, self.num_classes = config, num_features, num_classes

    @abstractmethod
    def initial(self, rng: np.random.Generator | None) -> Weights:
        """First weights."""

    @abstractmethod
    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor:
        """The gated sum at the view's rows: (rows, m)."""

    def signal_columns(self) -> int:
        """Columns of the widest signal."""
        return self.num_features

    @abstractmethod
    def row_work(self) -> int:
        """Multiply-adds of a row and hop."""

    def _linear(
        self, inputs: int, outputs: int, rng: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weight (inputs, outputs) and bias (outputs,) ~ U(-1/sqrt(inputs), 1/sqrt(inputs)).

        With the low-pass start the bias is 1, so that training begins at the low-pass LGC.
        """
        weight, bias = uniform((inputs, outputs), inputs, rng), uniform((outputs,), inputs, rng)
        lowpass = self.config.start == "lowpass"
        return weight, np.ones(outputs, np.float32) if lowpass else bias


class NodeGate(Gate):
    """One sigmoid gate per node and hop, from that hop's features.

    Each hop has a network of its own: W1_i (d, h) and b1_i (h,) start from U(+-1/sqrt(d)), and
    W2_i (h,) and b2_i from U(+-1/sqrt(h)). A step at r rows takes 2 r d h (k + 1) multiply-adds for
    W1 and its gradient, an evaluation at most half as many.
    """

    @property
    def _hidden(self) -> int:
        """h, the hidden units of a gate."""
        return max(self.num_features // 2, 1)

    def initial(self, rng: np.random.Generator | None) -> Weights:
        d, hidden, hops = self.num_features, self._hidden, self.config.hops
        return {
            "alpha": start_coefficients(self.config, rng),
            "gate_hidden": uniform((hops + 1, d, hidden), d, rng),
            "gate_hidden_bias": uniform((hops + 1, hidden), d, rng),
            "gate_out": uniform((hops + 1, hidden), hidden, rng),
            "gate_out_bias": uniform((hops + 1,), hidden, rng),
        }

    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor:
        theta, total = weights["theta"], 0
        # iteration unbinds: the gradient of an index would be as large as all hops together
        names = ("alpha", "gate_hidden", "gate_hidden_bias", "gate_out", "gate_out_bias")
        of_hops = zip(view.hop_features(dropout), *[weights[name] for name in names], strict=True)
        for i, (hop, alpha, W1, b1, W2, b2) in enumerate(of_hops):
            hidden = torch.relu(view.hop_output(i, W1, dropout, hop) + b1)
            gate = torch.sigmoid(hidden @ W2 + b2)
            total = total + (alpha * gate).unsqueeze(1) * (hop @ theta)
        assert not isinstance(total, int)  # there is a hop 0
        return total

    def row_work(self) -> int:
        return self.num_features * (self._hidden + self.num_classes)


class ClassGate(Gate):
    """One linear gate per node and class, from the features and the sum so far."""

    def initial(self, rng: np.random.Generator | None) -> Weights:
        d, m = self.num_features, self.num_classes
        alpha = start_coefficients(self.config, rng)
        weight, bias = self._linear(d + m, m, rng)
        first = {"gate_features": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}
        return {"alpha": alpha} | first

    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor:
        hops = view.hop_outputs(weights["theta"], dropout).unbind(0)
        fixed = view.inputs(weights["gate_features"], dropout) + weights["gate_bias"]
        first, *alphas = weights["alpha"].unbind(0)
        total = first * fixed * hops[0]
        for alpha, hop in zip(alphas, hops[1:], strict=True):
            gate = torch.addmm(fixed, total, weights["gate_sum"])
            total = torch.addcmul(total, alpha * gate, hop)
        return total

    def signal_columns(self) -> int:
        return self.num_classes

    def row_work(self) -> int:
        return self.num_classes * self.num_classes


class FeatureGate(Gate):
    """One linear gate per node and feature, from the hop before and the logits so far.

    With W = [W_d; W_m] of d and m rows, P_{i-1} W_d = p_{i-1}(S) (X W_d) is a sparse product and
    then hops of d columns, where that costs less than d x d products with the rows of P_{i-1}.
    The rest of a hop costs O(rows d m).
    """

    def initial(self, rng: np.random.Generator | None) -> Weights:
        d, m = self.num_features, self.num_classes
        weight, bias = self._linear(d + m, d, rng)
        return {"gate_hop": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}

    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor:
        hops = view.hop_features(dropout).contiguous()
        before = view.hop_outputs(weights["gate_hop"], dropout, hops[: max(self.config.hops, 1)])
        if torch.is_grad_enabled():
            return self._summed(weights, hops, before)
        # a few rows at a time, which stay in the caches for all hops
        rows = max(1, CACHED_NUMBERS // self.num_features)
        pieces = zip(hops.split(rows, dim=1), before.split(rows, dim=1), strict=True)
        return torch.cat([self._summed(weights, *piece) for piece in pieces])

    def row_work(self) -> int:
        return self.num_features * 2 * self.num_classes

    def _summed(self, weights: Tensors, hops: Tensor, before: Tensor) -> Tensor:
        """H_k (rows, m) from P_i (k + 1, rows, d) and P_i W_d (k, rows, d)."""
        # [H_{i-1}, 1] [W_m; b]: the bias comes with the product
        inner = torch.cat([weights["gate_sum"], weights["gate_bias"].unsqueeze(0)])
        total = inner.new_zeros(hops.shape[1], self.num_classes)
        ones_column = total.new_ones(len(total), 1)
        before_hops = before.unbind(0)
        for i, hop in enumerate(hops):
            so_far = torch.cat([total, ones_column], dim=1)
            gate = torch.addmm(before_hops[max(i - 1, 0)], so_far, inner)
            total = torch.addmm(total, gate * hop, weights["theta"])
        return total
