"""Training that uses the unlabelled nodes: several draws of what is dropped, and their agreement.

In a step, draw s = 1 .. S drops entries of X, nodes and outputs of its own (see
:mod:`hoplite.propagation.dropout`) and gives probabilities P_s, n x m. With l_s the loss of the
labelled nodes in draw s,

    loss = 1/S sum_s l_s  +  consistency * 1/(S n) sum_s sum_v w_v ||P_s[v] - Q[v]||^2

    P = 1/S sum_s P_s,    Q[v, c] = P[v, c]^(1/T) / sum_c' P[v, c']^(1/T)

over all n nodes. Q is the mean prediction, sharpened by the temperature T (``sharpen``); it is a
target, so no gradient goes through it. w_v is 1 if max_c P[v, c] >= ``confidence``, and else 0.
With T = 0, Q is the one-hot of the most probable class: this is self-training, with the confident
nodes' own predictions for labels. With T = 1 and S = 1 the penalty is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hoplite.models import Weights
from hoplite.propagation.dropout import Dropout
from hoplite.training.runs import Run

DRAW = 48  # the bit of a seed from which on the number of a draw stands


def dropped(runs: Sequence[Run], epoch: int, *, always: bool = False) -> Dropout | None:
    """What every draw of every run drops in a step, the draws of a run side by side.

    None if that is nothing, unless it is ``always`` asked for.
    """
    draws = runs[0].config.draws
    if not (always or any(run.config.drops for run in runs)):
        return None

    def rates(name: str) -> tuple[float, ...]:
        return tuple(getattr(run.config, name) for run in runs for _ in range(draws))

    seeds = tuple(run.seed ^ (draw << DRAW) for run in runs for draw in range(draws))
    return Dropout(rates("dropout"), seeds, epoch, rates("drop_nodes"), rates("output_dropout"))


def drawn(weights: Weights, draws: int) -> Weights:
    """The weights (R, ...) of every draw: (R S, ...)."""
    if draws == 1:
        return weights
    return {name: value.repeat_interleave(draws, dim=0) for name, value in weights.items()}


def mean_of_draws(values: Tensor, draws: int) -> Tensor:
    """Of a value for every draw, (R S,), the mean of each run: (R,)."""
    return values if draws == 1 else values.view(-1, draws).mean(dim=1)


def disagreement(logits: Tensor, runs: Sequence[Run]) -> Tensor:
    """The penalty of the logits (n, R S, m) of all draws, without its factor: (R,).

    >>> from hoplite.config import TrainingConfig
    >>> one = Run(TrainingConfig(draws=2, sharpen=1.0), seed=0)
    >>> p = torch.tensor([[[0.25, 0.75], [0.75, 0.25]]])  # one node, two draws
    >>> found = disagreement(p.log(), [one])  # from the mean, each is 0.25 away in both classes
    >>> [round(value, 6) for value in found.tolist()]
    [0.125]
    """
    return _Disagreement.apply(logits, runs)  # pyright: ignore[reportReturnType]


class _Disagreement(torch.autograd.Function):
    """With D_s = w (P_s - Q), d/dZ_s = 2 / (S n) P_s * (D_s - sum_c D_s[:, c] P_s[:, c]).

    torch's softmax of few columns takes most of a step, so that both come from one pass, and the
    classes stand first: sums over them are then sums of long rows, in less than half the time.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, runs: Sequence[Run]) -> Tensor:
        draws, nodes = runs[0].config.draws, len(logits)
        found = logits.permute(2, 1, 0).contiguous()  # (m, R S, n)
        found = (found - found.amax(dim=0)).exp_()
        found /= found.sum(dim=0)
        found = found.view(-1, len(runs), draws, nodes)
        common = found.mean(dim=2)  # (m, R, n)
        least = common.new_tensor([run.config.confidence for run in runs])
        sure = common.amax(dim=0) >= least.unsqueeze(1)
        target = _sharpened(common, [run.config.sharpen for run in runs])
        apart = found - target.unsqueeze(2)  # (m, R, S, n)
        apart *= sure.unsqueeze(1)
        distances = apart.square().sum(dim=(0, 2, 3))
        apart -= (apart * found).sum(dim=0)
        ctx.gradient = apart.mul_(found).mul_(2 / (draws * nodes))
        return distances / (draws * nodes)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = ctx.gradient * gradients[0].view(1, -1, 1, 1)
        return found.flatten(1, 2).permute(2, 1, 0), None


def _sharpened(common: Tensor, temperatures: Sequence[float]) -> Tensor:
    """Q of the mean prediction (m, R, n); one-hot, of equal classes the first, for T = 0."""
    if not any(temperatures):
        return torch.zeros_like(common).scatter_(0, common.argmax(dim=0, keepdim=True), 1.0)
    given = common.new_tensor(temperatures).view(1, -1, 1)
    found = (common / common.amax(dim=0)) ** (1 / given.clamp_min(1e-30))
    found /= found.sum(dim=0)
    if all(temperatures):
        return found
    return torch.where(given > 0, found, _sharpened(common, [0.0] * len(temperatures)))
