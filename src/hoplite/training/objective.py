"""The objective of a training run: a loss and its gradient, and outputs to score."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.backend import use_threads
from hoplite.engine.dropout import DRAW_BIT, Dropout
from hoplite.engine.evaluation import Standardized
from hoplite.models.base import Model, Weights
from hoplite.models.labelprop import LabelModel
from hoplite.tasks import Task
from hoplite.training.sets import NodeSet


@dataclass(frozen=True)
class Part:
    """Nodes with their targets and their weights in the loss."""

    nodes: np.ndarray
    targets: np.ndarray
    weights: np.ndarray | None

    def __len__(self) -> int:
        return len(self.nodes)

    def at(self, rows: np.ndarray) -> Part:
        """Some of the nodes, by their positions."""
        weights = None if self.weights is None else self.weights[rows]
        return Part(self.nodes[rows], self.targets[rows], weights)


@dataclass(frozen=True)
class Problem:
    """What all runs of a training share: the source of outputs, the task, and the nodes.

    Parameters
    ----------
    source : Propagation or HopRows
        A graph in memory, or rows of hop features in files.
    task : Task
    parts : dict
        "train", and "val" and "test" if they are scored in every epoch.
    """

    source: Any
    task: Task
    parts: dict[str, Part]
    _shared: dict[Hashable, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, source: Any, task: Task, sets: dict[str, NodeSet], outputs: int) -> Problem:
        """Create it from sets of labelled nodes, for a model with this number of ``outputs``."""
        parts = {}
        for name, part in sets.items():
            targets = task.targets(np.asarray(part.labels), outputs)
            weights = None if part.weights is None else part.weights.astype(source.dtype)
            parts[name] = Part(np.asarray(part.nodes, np.int64), targets, weights)
        return cls(source, task, parts)

    @property
    def train(self) -> Part:
        """The training nodes."""
        return self.parts["train"]

    @cached_property
    def scored(self) -> dict[str, np.ndarray]:
        """The nodes of the parts that are scored in every epoch."""
        return {name: part.nodes for name, part in self.parts.items() if name != "train"}

    def cut(self, logits: np.ndarray, *, everywhere: bool) -> dict[str, np.ndarray]:
        """Split outputs into those of each scored part.

        The rows are all nodes if ``everywhere``, otherwise the scored nodes, part after part.
        """
        if everywhere:
            return {name: logits[nodes] for name, nodes in self.scored.items()}
        ends = np.cumsum([len(nodes) for nodes in self.scored.values()])
        return dict(zip(self.scored, np.split(logits, ends[:-1]), strict=True))

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """A value shared by all runs, computed once."""
        with self._lock:
            if key not in self._shared:
                with use_threads(0):  # all threads, because other runs wait for it
                    self._shared[key] = make()
            return self._shared[key]


class Measured(NamedTuple):
    """The loss of some nodes, and the sums from which their metrics are computed."""

    loss: float
    tally: np.ndarray


class Objective(ABC):
    """The loss of one run as a function of its weights, which an optimizer changes in place."""

    problem: Problem
    params: Weights  # the weights that are learned
    map_weights: tuple[str, ...] = Model.map_weights  # the others belong to the filter
    learns: bool = True  # if not, a single epoch scores the initial weights

    @abstractmethod
    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        """The loss of the training nodes, or of a ``batch`` of them, and its gradient.

        The optimizer adds weight decay. ``step`` counts from 0; it determines, with the seed, what
        is dropped.
        """

    @abstractmethod
    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        """The outputs of the scored parts, (rows, m) each, for the current weights.

        Outputs of ``next_step``, which uses the same weights, may be computed in the same pass.
        """

    def weights(self) -> Weights:
        """A copy of all weights of the trained model."""
        return {name: value.copy() for name, value in self.params.items()}

    def measure(self, logits: np.ndarray, part: Part) -> Measured:
        """Loss and tally of outputs (rows, m)."""
        task = self.problem.task
        loss = task.loss(logits, part.targets, part.weights)
        return Measured(loss, task.tally(logits, part.targets))


class LabelObjective(Objective):
    """Scores a model that spreads the labels of the training nodes; nothing is learned."""

    learns = False

    def __init__(self, model: LabelModel, problem: Problem) -> None:
        train, nodes = problem.train, problem.source.num_nodes
        self.problem, self.params = problem, {}
        self._weights = model.from_labels(nodes, train.nodes, train.targets, train.weights)
        self._logits = model.logits(self._weights, problem.source)

    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        train = self.problem.train
        return self.measure(self._logits[train.nodes], train), {}

    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        return self.problem.cut(self._logits, everywhere=True)

    def weights(self) -> Weights:
        return dict(self._weights)


class Signal(NamedTuple):
    """The signal V (rows, m) of a model, or its outputs H, with a function that returns the
    gradient by the weights from the gradient by these values."""

    values: np.ndarray
    gradient: Callable[[np.ndarray], Weights]


class GradientObjective(Objective):
    """The loss of a model that learns by gradients, linear or not:

        loss = mean over draws of the task's loss  (+ consistency * penalty over all nodes)

    A model computes its signal V, (rows, m), and the gradient by its weights from dV. This class
    adds standardisation, the bias and the loss; dLoss/db are the column sums of G = dLoss/dH.

    Parameters
    ----------
    model : Model
    problem : Problem
    config : TrainingConfig
    seed : int
        Determines the first weights and, with the step, what is dropped.
    """

    random_steps = False  # whether steps draw random numbers even without dropout
    ahead: Signal | None = None  # outputs of the training nodes in the next step, if known

    def __init__(self, model: Model, problem: Problem, config: TrainingConfig, seed: int) -> None:
        self.problem, self._config, self._seed = problem, config, seed
        self._standardize = model.config.standardize  # mean and deviation are over all nodes
        self._trains_everywhere = self._standardize or config.consistency > 0
        train = problem.train.nodes
        self._train_nodes = None if self._trains_everywhere else train  # evaluated in a step
        self._train_rows = train if self._trains_everywhere else slice(len(train))

    @abstractmethod
    def training_signal(self, dropout: Dropout | None) -> Signal:
        """The signal of the training nodes, or of all nodes if a step needs them."""

    @abstractmethod
    def batch_signal(self, batch: np.ndarray) -> Signal:
        """The signal of some training nodes, by their positions."""

    def gradient_by_ranges(self) -> tuple[Measured, Weights] | None:
        """Loss and gradient in one pass over ranges of training nodes; None without ranges."""
        return None

    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        config, task, part, rows = self._config, self.problem.task, self.problem.train, slice(None)
        outputs, by_penalty, apart, results = [], None, 0.0, []
        if batch is not None:
            part, outputs = part.at(batch), [self.finished(self.batch_signal(batch))]
        elif (by_ranges := self.gradient_by_ranges()) is not None:
            return by_ranges
        else:
            rows, outputs = self._train_rows, [] if self.ahead is None else [self.ahead]
            self.ahead = None
        if config.consistency and batch is None:
            for draw in range(config.draws):
                outputs.append(self.finished(self.training_signal(self.dropout(draw, step))))
            logits = np.stack([output.values for output in outputs])
            apart, by_penalty = penalty(logits, config.sharpen, config.confidence)
            by_penalty *= config.consistency * config.draws  # the mean divides by draws
        for draw in range(1 if batch is not None else config.draws):
            if draw == len(outputs):
                outputs.append(self.finished(self.training_signal(self.dropout(draw, step))))
            output = outputs[draw]
            train_logits = output.values[rows]
            loss, gradient = task.loss_and_gradient(train_logits, part.targets, part.weights)
            measured = Measured(loss, task.tally(train_logits, part.targets))
            if not isinstance(rows, slice):
                spread = np.zeros_like(output.values)
                np.add.at(spread, rows, gradient)  # a node may be listed twice
                gradient = spread
            if by_penalty is not None:
                gradient = by_penalty[draw] + gradient
            results.append((measured, output.gradient(gradient)))
        measured, gradients = results[0] if len(results) == 1 else _mean(results)
        return Measured(measured.loss + config.consistency * apart, measured.tally), gradients

    def finished(self, signal: Signal) -> Signal:
        """The outputs of a signal: standardised, if the model asks for it, and with bias."""
        scale = Standardized.of(signal.values) if self._standardize else None
        values = signal.values if scale is None else scale.apply(signal.values)

        def gradient(outer: np.ndarray) -> Weights:
            by_bias = {"bias": outer.sum(axis=0)} if self.adds_bias else {}
            by_signal = outer if scale is None else scale.by_signal(outer, signal.values)
            return signal.gradient(by_signal) | by_bias

        return Signal(values + self.params["bias"] if self.adds_bias else values, gradient)

    @property
    def adds_bias(self) -> bool:
        """Whether to add a bias here, because the model itself does not."""
        return "bias" in self.params

    def dropout(self, draw: int, step: int) -> Dropout | None:
        """The dropout of a draw of a step; None if nothing is dropped."""
        config = self._config
        if not (config.drops or self.random_steps):
            return None
        seed = self._seed ^ (draw << DRAW_BIT)
        return Dropout(config.dropout, seed, step, config.drop_nodes, config.output_dropout)


def _mean(draws: list[tuple[Measured, Weights]]) -> tuple[Measured, Weights]:
    """The mean of losses, tallies and gradients."""
    count = len(draws)
    loss = sum(measured.loss for measured, _ in draws) / count
    tally = np.sum([measured.tally for measured, _ in draws], axis=0) / count
    gradients = {name: sum(gradient[name] for _, gradient in draws) / count for name in draws[0][1]}
    return Measured(loss, tally), gradients  # pyright: ignore[reportReturnType]


def penalty(logits: np.ndarray, sharpen: float, confidence: float) -> tuple[float, np.ndarray]:
    """The consistency penalty without its factor, and its gradient.

    In a training step, draw s = 1 .. S drops entries of X, nodes and outputs at random
    (:mod:`hoplite.engine.dropout`) and predicts probabilities P_s, n x m. With l_s the loss of the
    labelled nodes in draw s, the step minimises

        1/S sum_s l_s  +  consistency * 1/(S n) sum_s sum_v w_v ||P_s[v] - Q[v]||^2

        P = 1/S sum_s P_s,    Q[v, c] = P[v, c]^(1/T) / sum_c' P[v, c']^(1/T)

    over all n nodes. Q is the mean prediction, sharpened by the temperature T (``sharpen``). It is
    a constant target without a gradient. The weight w_v is 1 if max_c P[v, c] >= ``confidence``,
    and 0 otherwise. With T = 0, Q is the one-hot vector of the most probable class: this is
    self-training, where the predictions of confident nodes serve as labels. With T = 1 and S = 1
    the penalty is 0.

    With D_s = w * (P_s - Q), the gradient by the logits of draw s is

        2 / (S n) P_s * (D_s - sum_c D_s[:, c] P_s[:, c])

    Parameters
    ----------
    logits : ndarray, (S, n, m)
        Outputs of all draws, float32 or float64.
    sharpen : float
        Temperature T of the target, 0 to 1; 0 for the one-hot vector of the most probable class, of
        equal ones the first.
    confidence : float
        Smallest probability of the most probable class with which a node counts.

    Returns
    -------
    penalty : float
    gradient : ndarray, (S, n, m)
        It has the type of ``logits``.

    Examples
    --------
    Two draws of one node; each is 0.25 away from the mean, in both classes.

    >>> logits = np.log([[[0.25, 0.75]], [[0.75, 0.25]]])
    >>> value, gradient = penalty(logits, sharpen=1.0, confidence=0.0)
    >>> round(value, 6), gradient.shape
    (0.125, (2, 1, 2))
    """
    draws, nodes, _ = logits.shape
    with np.errstate(all="ignore"):
        # Classes first: sums over few classes are sums of long rows, several times as fast.
        chances = logits.transpose(2, 0, 1).copy()  # (m, S, n)
        chances -= chances.max(axis=0)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=0)
        mean = chances.mean(axis=1)  # (m, n)
        largest = mean.max(axis=0)
        apart = chances - _sharpened(mean, largest, sharpen)[:, None]
        apart *= largest >= confidence
        work = np.square(apart)
        value = float(work.sum(dtype=np.float64) / np.float64(draws * nodes))
        np.multiply(apart, chances, out=work)
        apart -= work.sum(axis=0)
        chances *= logits.dtype.type(2) / (draws * nodes)
        apart *= chances
    return value, np.ascontiguousarray(apart.transpose(1, 2, 0))


def _sharpened(mean: np.ndarray, largest: np.ndarray, temperature: float) -> np.ndarray:
    """Q from the mean prediction (m, n) and its ``largest`` values (n,): (m, n)."""
    if temperature == 1:
        return mean
    if temperature == 0:
        is_largest = mean == largest
        if np.count_nonzero(is_largest) != is_largest.shape[1]:  # ties or NaN
            is_largest = np.arange(len(mean))[:, None] == mean.argmax(axis=0)
        return is_largest.astype(mean.dtype)
    target = mean / largest
    target **= 1 / temperature
    target /= target.sum(axis=0)
    return target
