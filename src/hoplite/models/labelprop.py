"""Label propagation: the labels of the training nodes are the signal, and nothing is learned."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import MOST_HOPS, choice_setting, number_setting
from hoplite.errors import ConfigError
from hoplite.models.base import Model, Weights
from hoplite.models.fixed import SMOOTH_AT_ONE, smooth_choices
from hoplite.models.settings import TRAINING, ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

LEAST_SHARE = 2.0**-40  # of a class that reaches a node, so that its logarithm is finite
FAR = 2.0**80
USED = {"monitor", "threshold", "calibrate", "correct_smooth", "refit"}  # of a training's settings


class LabelPropagation(Model):
    """F_0 = Y, F_{t+1} = a S F_t + (1 - a) Y for t = 0 .. k - 1, a = ``alpha``:

        F_k = sum_i c_i S^i Y,    c_i = (1 - a) a^i for i < k,    c_k = a^k        (n, m)

    Y (n, m) is 1 at the class of a training node, or at each of its labels, and 0 elsewhere; with
    sample weights, a row times its weight. It is all the weights there are, so a model is of the
    nodes of its own graph. S is not negative, and neither is F.

    What F says of a node are shares of the labels that reach it. Of exclusive classes
    p_c = F_c / sum_j F_j, and the logits are log p, whose softmax is p. Where a node may have
    several labels, p_c = F_c / f_k with f_0 = u, 1 at the training nodes (``labelled``), so of the
    nodes that reach it the share with label c, and the logits are log(p / (1 - p)). Shares are
    kept above 2^-40. A node that nothing reaches has the shares of the training nodes.

    >>> found = LabelPropagation.numbers(LabelPropagation.Settings(hops=2, alpha=0.5))
    >>> found.tolist()
    [0.5, 0.25, 0.25]
    """

    name = "labelprop"
    title = "Label propagation"
    idle = frozenset(set(TRAINING) - USED)
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"
    growth = "hops"
    learns = False
    unexplained = "spreads labels, in which it is linear, and reads no features"
    bound = True

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        operator: str = choice_setting("adjacency", smooth_choices(), SMOOTH_AT_ONE)
        hops: int = number_setting(50, "Steps k of the walk.", 0, MOST_HOPS)
        alpha: float = number_setting(
            0.9, "Share of the neighbours' labels in every hop, 0 to 1.", 0, 1
        )

    _labels: Weights | None = None  # those that it was shown

    @classmethod
    def numbers(cls, config: ModelConfig) -> np.ndarray:
        return walk(config.alpha, config.hops)

    def shown(
        self, num_nodes: int, nodes: np.ndarray, targets: Tensor, weights: Tensor | None
    ) -> LabelPropagation:
        if targets.is_floating_point():
            raise ConfigError(
                f"model is {self.name!r}, which spreads classes, but the labels are numbers; use "
                "another model, such as ppr."
            )
        several = targets.ndim == 2
        rows = targets.float() if several else torch.eye(self.num_classes)[targets]
        each = torch.ones(len(rows), 1) if weights is None else weights.float().reshape(-1, 1)
        labels = {"signal": rows * each} | ({"labelled": each} if several else {})
        found = copy.copy(self)
        place = torch.from_numpy(np.array(nodes, np.int64))
        found._labels = {
            name: torch.zeros(num_nodes, value.shape[1]).index_add_(0, place, value)
            for name, value in labels.items()
        }
        return found

    def initial(self, generator: torch.Generator | None) -> Weights:
        return {} if self._labels is None else dict(self._labels)

    def expected(
        self, there: dict[str, tuple[int, ...]], num_nodes: int
    ) -> dict[str, tuple[int, ...]]:
        labelled = {"labelled": (num_nodes, 1)} if "labelled" in there else {}
        return {"signal": (num_nodes, self.num_classes)} | labelled

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        numbers = tuple(self.numbers(self.config).tolist())
        signal, labelled = weights["signal"], weights.get("labelled")
        everything = signal if labelled is None else torch.cat([signal, labelled], dim=2)
        # only ratios count, so labels from afar need not vanish below float32's smallest number
        reached = view.smoothed(FAR * everything.transpose(0, 1), numbers)
        found = reached[..., : self.num_classes]
        mass, most = found.sum(dim=2, keepdim=True), signal.sum(dim=(1, 2), keepdim=True)
        if labelled is not None:
            mass, most = reached[..., -1:], labelled.sum(dim=1, keepdim=True)
        usual = (signal.sum(dim=1, keepdim=True) / most).transpose(0, 1)
        shares = torch.where(mass > 0, found / mass, usual).clamp(LEAST_SHARE, 1)
        if labelled is None:
            return shares.log()
        return shares.log() - (1 - shares).clamp_min(LEAST_SHARE).log()

    def coefficients(self, weights: Weights) -> Tensor:
        signal = weights["signal"]
        return torch.tensor(self.numbers(self.config), dtype=signal.dtype).expand(len(signal), -1)

    def maps(self, weights: Weights) -> Tensor:
        raise ConfigError(
            f"a {self.name} has no Theta; its weights are the labels that it spreads."
        )


def walk(alpha: float, hops: int) -> np.ndarray:
    """c_0 .. c_k of a walk that goes on with probability ``alpha`` in each of k hops: (k + 1,).

    >>> walk(1.0, 2).tolist()
    [0.0, 0.0, 1.0]
    """
    found = alpha ** np.arange(hops + 1.0)
    found[:-1] *= 1 - alpha
    return found
