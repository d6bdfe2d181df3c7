"""hLGC: every hop is scaled by a gate that a small network computes.

Three readings of the paper, with P_i = p_i(S) X and H_i the sum of the hops up to i, H_{-1} = 0:

    node      H = sum_i alpha_i sigmoid(ReLU(P_i W1_i) W2_i) * (P_i Theta)
              one value per node and hop; W1_i: d x h, W2_i: h x 1, h = d/2 (the paper's equation)
    class     H_i = H_{i-1} + alpha_i ([X, H_{i-1}] W + b) * (P_i Theta)
              one value per node and class; W: (d + m) x m (the paper's experimental section)
    feature   H_i = H_{i-1} + (P_i * ([P_{i-1}, H_{i-1}] W + b)) Theta,  P_{-1} = X
              one value per node and feature; W: (d + m) x d, shared by all hops; no alpha, and
              hop 0 is gated, too (the authors' public code)

All gates are functions of one node's own rows, so only the rows that are asked for are computed;
`class` propagates m columns (weights first), the other two need the hop features themselves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoplite.config import choice_setting
from hoplite.models.base import Weights, uniform
from hoplite.models.polynomial import BasisSettings, Polynomial, start_coefficients
from hoplite.models.settings import ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

CACHED_ELEMENTS = 1 << 18  # of a hop's rows that are gated together
GATES = ("node", "class", "feature")


class HyperLGC(Polynomial):
    """What the gates share, and the base coefficients alpha of the two that have them."""

    name = "hlgc"
    title = "hLGC"
    variant = "gate"
    variants = GATES
    gated = True
    input_weights = ()
    idle = frozenset({"output_dropout"})  # its gates read hop features, which have no outputs

    @dataclass(frozen=True)
    class Settings(BasisSettings):
        gate: str = choice_setting("class", "node, class or feature.", GATES)

    @classmethod
    def reading(cls, config: ModelConfig) -> type[HyperLGC]:
        return {"node": NodeGate, "class": ClassGate, "feature": FeatureGate}[config.gate]

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        alpha = start_coefficients(self.config, generator)
        return {"alpha": alpha} | self.initial_gate(generator)

    def coefficients(self, weights: Weights) -> Tensor | None:
        return weights["alpha"]

    @abstractmethod
    def initial_gate(self, generator: torch.Generator | None) -> Weights:
        """First weights of the gate network of one run."""

    @abstractmethod
    def filtered(
        self,
        weights: Weights,
        view: RowView,
        dropout: Dropout | None,
        seen: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        """As in the base class; ``seen`` is shown each hop's gated coefficient in turn."""

    def node_coefficients(self, weights: Weights, view: RowView) -> list[Tensor]:
        seen: list[Tensor] = []
        with torch.no_grad():
            self.filtered(weights, view, None, seen.append)
        return seen

    def _linear(
        self, inputs: int, outputs: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Weight (inputs, outputs) and bias (outputs,) ~ U(-1/sqrt(inputs), 1/sqrt(inputs)).

        With the low-pass start the bias is 1, so that training begins at the low-pass LGC.
        """
        weight = uniform((inputs, outputs), inputs, generator)
        bias = uniform((outputs,), inputs, generator)
        return weight, torch.ones(outputs) if self.config.start == "lowpass" else bias


def run_matmul(left: Tensor, right: Tensor, base: Tensor | None = None) -> Tensor:
    """Every run's product: (R or 1, rows, a) and (R, a, b) -> (R, rows, b), added to ``base``.

    One run, or a left side that all runs share, is one plain product, which is faster than a batch.
    """
    runs, inner, outer = right.shape
    if left.shape[0] > 1:
        return left @ right if base is None else torch.baddbmm(base, left, right)
    if runs == 1:
        first = left[0] @ right[0] if base is None else torch.addmm(base[0], left[0], right[0])
        return first.unsqueeze(0)
    wide = left[0] @ right.transpose(0, 1).reshape(inner, runs * outer)
    found = wide.view(-1, runs, outer).transpose(0, 1)
    return found if base is None else base + found


class NodeGate(HyperLGC):
    """One sigmoid gate per node and hop, from that hop's features."""

    columns = "features"
    many_at_once = False  # every run has thousands of columns of its own

    def initial_gate(self, generator: torch.Generator | None) -> Weights:
        d, hidden, hops = self.num_features, max(self.num_features // 2, 1), self.config.hops
        return {
            "gate_hidden": uniform((hops + 1, d, hidden), d, generator),
            "gate_out": uniform((hops + 1, hidden), hidden, generator),
        }

    def filtered(
        self,
        weights: Weights,
        view: RowView,
        dropout: Dropout | None,
        seen: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        total = weights["theta"].new_zeros(())
        hops = view.hop_features(dropout)  # (k + 1, rows, R or 1, d)
        # unbind, not an index per hop: the gradient of one index is as large as all hops together
        names = ("alpha", "gate_hidden", "gate_out")
        for i, (known, alpha, inner, outer) in enumerate(
            zip(hops, *[weights[name].unbind(1) for name in names], strict=True)
        ):
            hop = known.transpose(0, 1)
            hidden = torch.relu(view.hop_output(i, inner, dropout, known).transpose(0, 1))
            gate = torch.sigmoid(hidden @ outer.unsqueeze(2))
            coefficient = alpha[:, None, None] * gate
            if seen is not None:
                seen(coefficient)
            total = total + coefficient * run_matmul(hop, weights["theta"])
        return total.transpose(0, 1)


class ClassGate(HyperLGC):
    """One linear gate per node and class, from the features and the sum so far."""

    coefficient_per = "class"
    input_weights = ("theta", "gate_features")

    def initial_gate(self, generator: torch.Generator | None) -> Weights:
        d, m = self.num_features, self.num_classes
        weight, bias = self._linear(d + m, m, generator)
        return {"gate_features": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}

    def filtered(
        self,
        weights: Weights,
        view: RowView,
        dropout: Dropout | None,
        seen: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        outputs = view.hop_outputs(weights["theta"], dropout)
        fixed = view.inputs(weights["gate_features"], dropout) + weights["gate_bias"]
        coefficient = weights["alpha"][:, 0, None] * fixed
        if seen is not None:
            seen(coefficient)
        total = coefficient * outputs[0]
        for i in range(1, self.config.hops + 1):
            gate = fixed + torch.einsum("nrm,rmo->nro", total, weights["gate_sum"])
            coefficient = weights["alpha"][:, i, None] * gate
            if seen is not None:
                seen(coefficient)
            total = total + coefficient * outputs[i]
        return total


class FeatureGate(HyperLGC):
    """One linear gate per node and feature, from the hop before and the logits so far.

    With W = [W_d; W_m] of d and m rows, P_{i-1} W_d = p_{i-1}(S) (X W_d) is a sparse product and
    then hops of d columns, where that costs less than d x d products with the rows of P_{i-1}.
    The rest of a hop costs O(rows d m).
    """

    coefficient_per = "feature"
    columns = "features"
    many_at_once = False

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        return self.initial_gate(generator)  # there is no alpha

    def initial_gate(self, generator: torch.Generator | None) -> Weights:
        d, m = self.num_features, self.num_classes
        weight, bias = self._linear(d + m, d, generator)
        return {"gate_hop": weight[:d], "gate_sum": weight[d:], "gate_bias": bias}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return torch.ones(len(weights["theta"]), self.config.hops + 1)

    def refusal(self, shapes: dict[str, tuple[int, ...]]) -> str | None:
        if "alpha" not in shapes:
            return None
        return (
            "its feature gate is that of Hoplite 0.1, which summed in the space of the features "
            "(W: 2d x d, with alphas); the gate is now that of the authors' code, another model, "
            "so train it again"
        )

    def filtered(
        self,
        weights: Weights,
        view: RowView,
        dropout: Dropout | None,
        seen: Callable[[Tensor], None] | None = None,
    ) -> Tensor:
        hops = view.hop_features(dropout)  # (k + 1, rows, R or 1, d)
        before = view.hop_outputs(weights["gate_hop"], dropout, hops[: max(self.config.hops, 1)])
        if torch.is_grad_enabled() or seen is not None:
            return self._summed(weights, hops, before, seen)
        # a few rows at a time, which stay in the caches for all hops
        rows = max(1, CACHED_ELEMENTS // self.num_features)
        pieces = zip(hops.split(rows, dim=1), before.split(rows, dim=1), strict=True)
        return torch.cat([self._summed(weights, *piece, None) for piece in pieces])

    def _summed(
        self, weights: Weights, hops: Tensor, before: Tensor, seen: Callable[[Tensor], None] | None
    ) -> Tensor:
        """H_k (rows, R, m) from P_i (k + 1, rows, R or 1, d) and P_i W_d (k, rows, R, d)."""
        known = before.transpose(1, 2).unbind(0)  # of every hop (R, rows, d)
        # [H_{i-1}, 1] [W_m; b]: the bias comes with the product
        inner = torch.cat([weights["gate_sum"], weights["gate_bias"].unsqueeze(1)], dim=1)
        total = inner.new_zeros(len(inner), hops.shape[1], self.num_classes)
        one = total.new_ones(*total.shape[:2], 1)
        for i, hop in enumerate(hops.transpose(1, 2).unbind(0)):
            so_far = torch.cat([total, one], dim=2)
            gate = run_matmul(so_far, inner, known[max(i - 1, 0)])
            if seen is not None:
                seen(gate)
            total = run_matmul(gate * hop, weights["theta"], total)
        return total.transpose(0, 1)
