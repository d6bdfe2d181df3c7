"""Correct and Smooth: what a trained model missed at the training nodes, carried to the others.

Huang et al., Combining label propagation and simple models out-performs graph neural networks,
2021. With S = D^-1/2 A D^-1/2, Z (n, m) the probabilities of any model of classes, and Y its
training nodes' labels, one-hot:

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta
from scipy.special import softmax

from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.graph import Graph
from hoplite.models.labelprop import MIN_SHARE
from hoplite.operators import find_operator

OPERATOR = "adjacency"
STEPS = 50
MAX_SCALE = 1000.0
# The grid, of which validation nodes choose; None is autoscale
ALPHAS = (0.5, 0.8, 0.95)
SCALES = (None, 1.0)

Fix = Callable[[np.ndarray], np.ndarray]  # after each step of a walk
Share = Annotated[float, Meta(ge=0, le=1)]


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
        """Of these nodes, with neither step; a node that comes twice has its first label."""
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
        return ", ".join(steps) or "neither, which was as good on the validation nodes"

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
        at = _Signals(graph, logits, self)
        found = at.probabilities
        if self.correct is not None:
            found = at.corrected(at.errors((self.correct,), self.scale)[0], self.scale)
        if self.smooth is not None:
            found = at.smoothed(found, (self.smooth,))[0]
        return np.log(np.maximum(found, MIN_SHARE))

    def chosen(
        self, graph: Graph, logits: np.ndarray, rank: Callable[[np.ndarray], float]
    ) -> CorrectSmooth:
        """The settings of the grid whose outputs (n, m) ``rank`` highest; of equals the simplest.

        Simpler is: neither step, smooth alone, correct alone, both; then the earlier in the grid.
        """
        found: list[tuple[CorrectSmooth, float]] = [(self, rank(logits))]
        for one, signal in self._tried(_Signals(graph, logits, self)):
            found.append((one, rank(np.log(np.maximum(signal, MIN_SHARE)))))

        def key(pair: tuple[CorrectSmooth, float]) -> tuple[float, int]:
            one, value = pair
            steps = 2 * (one.correct is not None) + (one.smooth is not None)
            return (-value if np.isfinite(value) else np.inf), steps

        return min(found, key=key)[0]

    def _tried(self, at: _Signals) -> Iterator[tuple[CorrectSmooth, np.ndarray]]:
        """Every other point of the grid with its Z''."""
        starts = [(self, at.probabilities)]
        errors = {scale: at.errors(ALPHAS, scale) for scale in SCALES}
        for i, alpha in enumerate(ALPHAS):
            for scale in SCALES:
                one = dataclasses.replace(self, correct=alpha, scale=scale)
                starts.append((one, at.corrected(errors[scale][i], scale)))
        for one, signal in starts:
            if not one.idle:
                yield one, signal
            for alpha, found in zip(ALPHAS, at.smoothed(signal, ALPHAS), strict=True):
                yield dataclasses.replace(one, smooth=alpha), found


class _Signals:
    """Z, Y and S of one model on one graph."""

    def __init__(self, graph: Graph, logits: np.ndarray, known: CorrectSmooth) -> None:
        matrix = find_operator(OPERATOR).matrix(graph, logits.dtype)
        self.matrix = SparseMatrix.from_scipy(matrix, symmetric=True)
        self.probabilities = softmax(logits, axis=1)
        self.nodes = np.array(known.nodes, np.int64)
        one_hot = np.eye(logits.shape[1], dtype=logits.dtype)
        self.labels = one_hot[np.array(known.labels, np.int64)]
        self.missed = np.zeros_like(self.probabilities)
        self.missed[self.nodes] = self.labels - self.probabilities[self.nodes]

    def walked(self, signal: np.ndarray, alphas: Sequence[float], fix: Fix) -> list[np.ndarray]:
        """walk_a of a signal (n, m) for each alpha, all in the same products with S."""
        start = np.tile(signal, (1, len(alphas)))
        shares = np.repeat(alphas, signal.shape[1]).astype(signal.dtype)
        found, rest = start, 1 - shares
        for _ in range(STEPS):
            found = fix(shares * spmm(self.matrix, found) + rest * start)
        return np.split(found, len(alphas), axis=1)

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
            each = sigma / np.abs(error).sum(axis=1, keepdims=True)
        each = np.where(each <= MAX_SCALE, each, self.probabilities.dtype.type(1))
        return self.probabilities + each * error

    def smoothed(self, signal: np.ndarray, alphas: Sequence[float]) -> list[np.ndarray]:
        start = signal.copy()
        start[self.nodes] = self.labels
        return self.walked(start, alphas, _clip(0))


def _clip(low: float) -> Fix:
    """Into [``low``, 1], in place."""
    return lambda signal: np.clip(signal, low, 1, out=signal)
