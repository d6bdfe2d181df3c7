"""Label propagation: the labels of the training nodes are the signal, and nothing is learned."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from hoplite.config import MAX_HOPS, choice_setting, number_setting
from hoplite.engine.propagation import Propagation, repeated
from hoplite.errors import ConfigError
from hoplite.models.base import Model, Weights
from hoplite.models.fixed import SMOOTH_AT_ONE, smooth_choices
from hoplite.models.settings import TRAINING, ModelConfig

MIN_SHARE = 2.0**-40  # of a class that reaches a node, so that its logarithm is finite
FAR = 2.0**80
# settings of a training that matter
USED = {"monitor", "threshold", "calibrate", "correct_smooth", "refit", "folds", "preset"}


class LabelModel(Model):
    """A model whose weights are the labels of the nodes of its own graph: nothing is learned."""

    idle = frozenset(set(TRAINING) - USED)

    @abstractmethod
    def from_labels(
        self, num_nodes: int, nodes: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> Weights:
        """The weights, from the task's targets (rows, ...) of the training ``nodes``."""

    def initial(self, rng: np.random.Generator | None) -> Weights:
        return {}


class LabelPropagation(LabelModel):
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
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        operator: str = choice_setting("adjacency", smooth_choices(), SMOOTH_AT_ONE)
        hops: int = number_setting(50, "Number of hops.", 0, MAX_HOPS)
        alpha: float = number_setting(0.9, "Weight of the neighbours' labels in every hop.", 0, 1)

    @classmethod
    def numbers(cls, config: ModelConfig) -> np.ndarray:
        """c_0 .. c_k: (k + 1,)."""
        return walk(config.alpha, config.hops)

    def from_labels(
        self, num_nodes: int, nodes: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> Weights:
        if targets.dtype.kind == "f":
            raise ConfigError(
                f"model is {self.name!r}, which propagates classes, but the labels are numbers; "
                "use another model, such as ppr."
            )
        several = targets.ndim == 2
        rows = targets if several else np.eye(self.num_classes)[targets]
        each = np.ones((len(rows), 1)) if weights is None else np.reshape(weights, (-1, 1))
        found = {"signal": rows * each} | ({"labelled": each} if several else {})
        whole = {}
        for name, value in found.items():
            whole[name] = np.zeros((num_nodes, value.shape[1]), np.float32)
            np.add.at(whole[name], nodes, value.astype(np.float32))
        return whole

    def expected(
        self, found: dict[str, tuple[int, ...]], num_nodes: int
    ) -> dict[str, tuple[int, ...]]:
        labelled = {"labelled": (num_nodes, 1)} if "labelled" in found else {}
        return {"signal": (num_nodes, self.num_classes)} | labelled

    def logits(self, weights: Weights, source: Propagation) -> np.ndarray:
        signal, labelled = weights["signal"], weights.get("labelled")
        known = signal if labelled is None else np.concatenate([signal, labelled], axis=1)
        whole = np.zeros((source.num_nodes, known.shape[1]), source.dtype)
        # only ratios count, so labels from afar need not vanish below float32's smallest number
        whole[: len(known)] = FAR * known  # nodes that came later have none
        reached = source.combine(whole, repeated(self.numbers(self.config), whole))
        found = reached[:, : self.num_classes]
        mass, total = found.sum(axis=1, keepdims=True), signal.sum()
        if labelled is not None:
            mass, total = reached[:, -1:], labelled.sum()
        default = (signal.sum(axis=0) / total).astype(source.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(mass > 0, found / mass, default).clip(MIN_SHARE, 1)
        if labelled is None:
            return np.log(shares)
        return np.log(shares) - np.log(np.maximum(1 - shares, MIN_SHARE))


def walk(alpha: float, hops: int) -> np.ndarray:
    """c_0 .. c_k of a walk that goes on with probability ``alpha`` in each of k hops: (k + 1,).

    >>> walk(1.0, 2).tolist()
    [0.0, 0.0, 1.0]
    """
    found = alpha ** np.arange(hops + 1.0)
    found[:-1] *= 1 - alpha
    return found
