"""hLGC: every hop's coefficient alpha_i is scaled by a gate that a small network computes.

Three readings of the paper, with P_i = p_i(S) X and H_i the sum of the hops up to i:

    node      H = sum_i alpha_i sigmoid(ReLU(P_i W1_i) W2_i) * (P_i Theta)
              one value per node and hop; W1_i: d x h, W2_i: h x 1, h = d/2 (the paper's equation)
    class     H_i = H_{i-1} + alpha_i ([X, H_{i-1}] W + b) * (P_i Theta),  H_{-1} = 0
              one value per node and class; W: (d + m) x m (the paper's experimental section)
    feature   F_i = F_{i-1} + alpha_i ([P_{i-1}, F_{i-1}] W + b) * P_i,  F_0 = alpha_0 X
              H = F_k Theta; one value per node and feature; W: 2d x d, shared by all hops (the
              public experiments)

All gates are functions of one node's own rows, so only the rows that are asked for are computed;
`class` propagates m columns (weights first), the other two need the hop features themselves.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hoplite.filters import start_coefficients, uniform
from hoplite.models.base import Model, Weights
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import RowView


class HyperLGC(Model):
    """The part that the gates share: the base coefficients alpha."""

    def initial_filter(self, generator: torch.Generator) -> Weights:
        config = self.config
        alpha = start_coefficients(config.start, config.hops, self.lowpass_sign, generator)
        return {"alpha": alpha} | self.initial_gate(generator)

    def initial_gate(self, generator: torch.Generator) -> Weights:
        """First weights of the gate network of one run."""
        raise NotImplementedError

    def _linear(
        self, inputs: int, outputs: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Weight (inputs, outputs) and bias (outputs,) ~ U(-1/sqrt(inputs), 1/sqrt(inputs)).

        With the low-pass start the bias is 1, so that training begins at the low-pass LGC.
        """
        weight = uniform((inputs, outputs), inputs, generator)
        bias = uniform((outputs,), inputs, generator)
        return weight, torch.ones(outputs) if self.config.start == "lowpass" else bias


class NodeGate(HyperLGC):
    """One sigmoid gate per node and hop, from that hop's features."""

    def initial_gate(self, generator: torch.Generator) -> Weights:
        d, hidden, hops = self.num_features, max(self.num_features // 2, 1), self.config.hops
        return {
            "gate_hidden": uniform((hops + 1, d, hidden), d, generator),
            "gate_out": uniform((hops + 1, hidden), hidden, generator),
        }

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        total = weights["theta"].new_zeros(())
        for i, hop in enumerate(view.hop_features(dropout)):
            by_run = hop.transpose(0, 1)  # (R or 1, rows, d)
            hidden = torch.relu(by_run @ weights["gate_hidden"][:, i])
            gate = torch.sigmoid(hidden @ weights["gate_out"][:, i].unsqueeze(2))
            scale = weights["alpha"][:, i, None, None] * gate
            total = total + scale * (by_run @ weights["theta"])
        return total.transpose(0, 1)


class ClassGate(HyperLGC):
    """One linear gate per node and class, from the features and the sum so far."""

    def initial_gate(self, generator: torch.Generator) -> Weights:
        d, m = self.num_features, self.num_classes
        weight, bias = self._linear(d + m, m, generator)
        return {"gate_features": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        outputs = view.hop_outputs(weights["theta"], dropout)
        fixed = view.inputs(weights["gate_features"], dropout) + weights["gate_bias"]
        total = weights["alpha"][:, 0, None] * fixed * outputs[0]
        for i in range(1, self.config.hops + 1):
            gate = fixed + torch.einsum("nrm,rmo->nro", total, weights["gate_sum"])
            total = total + weights["alpha"][:, i, None] * gate * outputs[i]
        return total


class FeatureGate(HyperLGC):
    """One linear gate per node and feature, from the hop before and the sum so far."""

    def initial_gate(self, generator: torch.Generator) -> Weights:
        d = self.num_features
        weight, bias = self._linear(2 * d, d, generator)
        return {"gate_hop": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        hops = view.hop_features(dropout).transpose(1, 2)  # (k + 1, R or 1, rows, d)
        bias = weights["gate_bias"].unsqueeze(1)
        total = weights["alpha"][:, 0, None, None] * hops[0]
        for i in range(1, self.config.hops + 1):
            gate = hops[i - 1] @ weights["gate_hop"] + total @ weights["gate_sum"] + bias
            total = total + weights["alpha"][:, i, None, None] * gate * hops[i]
        return (total @ weights["theta"]).transpose(0, 1)
