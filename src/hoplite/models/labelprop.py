"""Label propagation, whose signal are the labels of the training nodes, and Correct and Smooth.

In label propagation nothing is learned. Correct and Smooth carries what a trained model missed at
the training nodes to the others (Huang et al., Combining label propagation and simple models
out-performs graph neural networks, 2021). With S = D^-1/2 A D^-1/2, Z (n, m) the probabilities of
any model of classes, and Y its training nodes' labels, one-hot:

    walk_a(G, fix)  G_0 = G,  G_{t+1} = fix(a S G_t + (1 - a) G),  50 steps
    correct         E = Y - Z at the training nodes, else 0;  E^ = walk_a1(E, fix);  Z' = Z + s E^
    smooth          G = Z' with the training rows replaced by Y;  Z'' = walk_a2(G, clip to [0, 1])

s is a number, and ``fix`` then sets the training rows to those of E; or, by ``autoscale``, ``fix``
clips to [-1, 1] and s is a number for each node: sigma / ||E^_i||_1, sigma the mean of ||E_i||_1
over the training nodes; where that is above 1000, hardly anything arrived, and s = 1. This is the
authors' definition, and that of ``torch_geometric.nn.CorrectAndSmooth``.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from hoplite.config import MAX_HOPS, number_setting
from hoplite.engine.propagation import Propagation, repeated
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.machine import special
from hoplite.models.base import Model, Weights
from hoplite.models.fixed import SMOOTH_AT_ONE
from hoplite.models.linear import operator_setting
from hoplite.models.settings import TRAINING, ModelConfig
from hoplite.operators import find_operator

MIN_SHARE = 2.0**-40  # least share of a class that reaches a node: its logarithm is finite
FAR = 2.0**80
# settings of a training that matter
USED = {"monitor", "threshold", "calibrate", "correct_smooth", "refit", "folds", "preset"}
OPERATOR = "adjacency"
STEPS = 50
MAX_SCALE = 1000.0
# The grid from which validation nodes choose; None is autoscale
ALPHAS = (0.5, 0.8, 0.95)
SCALES = (None, 1.0)

Fix = Callable[[np.ndarray], np.ndarray]  # after each step of a walk
Share = Annotated[float, Meta(ge=0, le=1)]


class LabelModel(Model):
    """A model whose weights are the labels of the nodes of its training graph."""

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

    """

    name = "labelprop"
    title = "Label propagation"
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        operator: str = operator_setting("adjacency", SMOOTH_AT_ONE)
        hops: int = number_setting(50, "Number of hops.", 0, MAX_HOPS)
        alpha: float = number_setting(0.9, "Weight of the neighbours' labels in every hop.", 0, 1)

    def from_labels(
        self, num_nodes: int, nodes: np.ndarray, targets: np.ndarray, weights: np.ndarray | None
    ) -> Weights:
        if targets.dtype.kind == "f":
            raise ConfigError(
                f"is {self.name!r}, which propagates classes, but the labels are numbers; "
                "use another model, e.g. ppr.",
                "model",
            )
        several = targets.ndim == 2
        rows = targets if several else np.eye(self.num_classes)[targets]
        labelled = np.ones((len(rows), 1)) if weights is None else np.reshape(weights, (-1, 1))
        columns = {"signal": rows * labelled} | ({"labelled": labelled} if several else {})
        whole = {}
        for name, values in columns.items():
            whole[name] = np.zeros((num_nodes, values.shape[1]), np.float32)
            np.add.at(whole[name], nodes, values.astype(np.float32))
        return whole

    def expected(
        self, saved: dict[str, tuple[int, ...]], num_nodes: int
    ) -> dict[str, tuple[int, ...]]:
        labelled = {"labelled": (num_nodes, 1)} if "labelled" in saved else {}
        return {"signal": (num_nodes, self.num_classes)} | labelled

    def logits(self, weights: Weights, source: Propagation) -> np.ndarray:
        signal, labelled = weights["signal"], weights.get("labelled")
        columns = signal if labelled is None else np.concatenate([signal, labelled], axis=1)
        whole = np.zeros((source.num_nodes, columns.shape[1]), source.dtype)
        # only ratios count, so labels from afar need not vanish below float32's smallest number
        whole[: len(columns)] = FAR * columns  # nodes that came later have none
        reached = source.combine(whole, repeated(walk(self.config.alpha, self.config.hops), whole))
        by_class = reached[:, : self.num_classes]
        mass, total = by_class.sum(axis=1, keepdims=True), signal.sum()
        if labelled is not None:
            mass, total = reached[:, -1:], labelled.sum()
        default = (signal.sum(axis=0) / total).astype(source.dtype)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(mass > 0, by_class / mass, default).clip(MIN_SHARE, 1)
        if labelled is None:
            return np.log(shares)
        return np.log(shares) - np.log(np.maximum(1 - shares, MIN_SHARE))


def walk(alpha: float, hops: int) -> np.ndarray:
    """c_0 .. c_k of a walk that goes on with probability ``alpha`` in each of k hops: (k + 1,).

    >>> walk(0.5, 2).tolist(), walk(1.0, 2).tolist()
    ([0.5, 0.25, 0.25], [0.0, 0.0, 1.0])
    """
    coefficients = alpha ** np.arange(hops + 1.0)
    coefficients[:-1] *= 1 - alpha
    return coefficients


@dataclass(frozen=True)
class CorrectSmooth:
    """The labels that it carries, and its settings; with neither step it changes nothing.

    Parameters
    ----------
    nodes, labels : the training nodes and their classes
    correct, smooth : the alpha of each step; None leaves it out
    scale : s; None is autoscale

    >>> CorrectSmooth((0,), (1,), correct=0.8).describe()
    'correct with alpha 0.8 (autoscale)'
    """

    nodes: tuple[Annotated[int, Meta(ge=0)], ...]
    labels: tuple[Annotated[int, Meta(ge=0)], ...]
    correct: Share | None = None
    smooth: Share | None = None
    scale: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.labels) or len(set(self.nodes)) != len(self.nodes):
            raise ValueError("Correct and Smooth needs one label for each of its nodes")

    @classmethod
    def of(cls, nodes: np.ndarray, labels: np.ndarray) -> CorrectSmooth:
        """Labels of these nodes, with neither step; a node that comes twice has its first label."""
        nodes, first = np.unique(nodes, return_index=True)
        return cls(tuple(nodes.tolist()), tuple(np.asarray(labels)[first].tolist()))

    @property
    def idle(self) -> bool:
        """Whether it changes nothing."""
        return self.correct is None and self.smooth is None

    def describe(self) -> str:
        """The settings in words."""
        how = "autoscale" if self.scale is None else f"scale {self.scale:g}"
        steps = [] if self.correct is None else [f"correct with alpha {self.correct:g} ({how})"]
        steps += [] if self.smooth is None else [f"smooth with alpha {self.smooth:g}"]
        return ", ".join(steps) or "neither, because neither helps on the validation nodes"

    def settings(self) -> dict[str, float | str | None]:
        """The settings as plain values."""
        scale = None if self.correct is None else self.scale or "auto"
        return {"correct": self.correct, "scale": scale, "smooth": self.smooth}

    def outputs(self, graph: Graph, logits: np.ndarray) -> np.ndarray:
        """log Z'' of a model's ``logits`` on all nodes of ``graph``: (n, m) -> (n, m).

        Entries of Z'' are kept above 2^-40; its softmax is then Z'' divided by its rows' sums.
        """
        if self.idle:
            return logits
        signals = _Signals(graph, logits, self)
        probabilities = signals.probabilities
        if self.correct is not None:
            (error,) = signals.errors((self.correct,), self.scale)
            probabilities = signals.corrected(error, self.scale)
        if self.smooth is not None:
            (probabilities,) = signals.smoothed(probabilities, (self.smooth,))
        return np.log(np.maximum(probabilities, MIN_SHARE))

    def chosen(
        self, graph: Graph, logits: np.ndarray, rank: Callable[[np.ndarray], float]
    ) -> CorrectSmooth:
        """The settings of the grid whose outputs (n, m) ``rank`` highest; of equals the simplest.

        Simpler is: neither step, smooth alone, correct alone, both; then the earlier in the grid.
        """
        ranked: list[tuple[CorrectSmooth, float]] = [(self, rank(logits))]
        for settings, signal in self._tried(_Signals(graph, logits, self)):
            ranked.append((settings, rank(np.log(np.maximum(signal, MIN_SHARE)))))

        def key(pair: tuple[CorrectSmooth, float]) -> tuple[float, int]:
            settings, value = pair
            steps = 2 * (settings.correct is not None) + (settings.smooth is not None)
            return (-value if np.isfinite(value) else np.inf), steps

        return min(ranked, key=key)[0]

    def _tried(self, signals: _Signals) -> Iterator[tuple[CorrectSmooth, np.ndarray]]:
        """Every other point of the grid with its Z''."""
        starts = [(self, signals.probabilities)]
        errors = {scale: signals.errors(ALPHAS, scale) for scale in SCALES}
        for i, alpha in enumerate(ALPHAS):
            for scale in SCALES:
                settings = dataclasses.replace(self, correct=alpha, scale=scale)
                starts.append((settings, signals.corrected(errors[scale][i], scale)))
        for settings, signal in starts:
            if not settings.idle:
                yield settings, signal
            for alpha, smoothed in zip(ALPHAS, signals.smoothed(signal, ALPHAS), strict=True):
                yield dataclasses.replace(settings, smooth=alpha), smoothed


class _Signals:
    """Z, Y and S of one model on one graph."""

    def __init__(self, graph: Graph, logits: np.ndarray, training_labels: CorrectSmooth) -> None:
        matrix = find_operator(OPERATOR).matrix(graph, logits.dtype)
        self.matrix = SparseMatrix.from_scipy(matrix, symmetric=True)
        self.probabilities = special.softmax(logits, axis=1)
        self.nodes = np.array(training_labels.nodes, np.int64)
        one_hot = np.eye(logits.shape[1], dtype=logits.dtype)
        self.labels = one_hot[np.array(training_labels.labels, np.int64)]
        self.missed = np.zeros_like(self.probabilities)
        self.missed[self.nodes] = self.labels - self.probabilities[self.nodes]

    def walked(self, signal: np.ndarray, alphas: Sequence[float], fix: Fix) -> list[np.ndarray]:
        """walk_a of a signal (n, m) for each alpha, all in the same products with S."""
        start = np.tile(signal, (1, len(alphas)))
        shares = np.repeat(alphas, signal.shape[1]).astype(signal.dtype)
        spread, rest = start, 1 - shares
        for _ in range(STEPS):
            spread = fix(shares * spmm(self.matrix, spread) + rest * start)
        return np.split(spread, len(alphas), axis=1)

    def errors(self, alphas: Sequence[float], scale: float | None) -> list[np.ndarray]:
        """E^ for each alpha."""
        pinned = np.tile(self.missed[self.nodes], (1, len(alphas)))

        def pin(signal: np.ndarray) -> np.ndarray:
            signal[self.nodes] = pinned
            return signal

        fix = _clip(-1) if scale is None else pin
        return self.walked(self.missed, alphas, fix)

    def corrected(self, error: np.ndarray, scale: float | None) -> np.ndarray:
        if scale is not None:
            return self.probabilities + self.probabilities.dtype.type(scale) * error
        sigma = np.abs(self.missed).sum() / len(self.nodes)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            scales = sigma / np.abs(error).sum(axis=1, keepdims=True)
        scales = np.where(scales <= MAX_SCALE, scales, self.probabilities.dtype.type(1))
        return self.probabilities + scales * error

    def smoothed(self, signal: np.ndarray, alphas: Sequence[float]) -> list[np.ndarray]:
        start = signal.copy()
        start[self.nodes] = self.labels
        return self.walked(start, alphas, _clip(0))


def _clip(low: float) -> Fix:
    """Into [``low``, 1], in place."""
    return lambda signal: np.clip(signal, low, 1, out=signal)
