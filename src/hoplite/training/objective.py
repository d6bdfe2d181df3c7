"""What a training minimises, whatever the model: a loss and its gradient, and outputs to score."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hoplite.engine.backend import use_threads
from hoplite.models.base import Weights
from hoplite.tasks import Task
from hoplite.training.sets import NodeSet


@dataclass(frozen=True)
class Part:
    """Nodes with the targets that their outputs should meet, and what each counts in the loss."""

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
    """What all runs of a training share: where outputs come from, the task, and the nodes.

    Parameters
    ----------
    source : Propagation or HopRows
        A graph in memory, or rows of hop features in files.
    task : Task
    parts : dict
        "train", and "val" and "test" where they are scored in every epoch.
    """

    source: Any
    task: Task
    parts: dict[str, Part]
    _shared: dict[Hashable, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, source: Any, task: Task, sets: dict[str, NodeSet], outputs: int) -> Problem:
        """Of node sets with labels, for a model with so many outputs."""
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

    @property
    def scored(self) -> list[str]:
        """The parts that are scored in every epoch."""
        return [name for name in self.parts if name != "train"]

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What runs share, made by the first that needs it."""
        with self._lock:
            if key not in self._shared:
                with use_threads(0):  # all of them: other runs wait for it
                    self._shared[key] = make()
            return self._shared[key]


class Measured(NamedTuple):
    """The loss of some nodes, and the sums that their metrics are made of."""

    loss: float
    tally: np.ndarray


class Objective(ABC):
    """The loss of one run as a function of its weights, which an optimizer changes in place."""

    problem: Problem
    params: Weights  # those that are learned
    map_weights: tuple[str, ...] = ("theta", "bias")  # the others are the filter's
    learns: bool = True  # whether there are steps; if not, one epoch scores the weights as they are

    @abstractmethod
    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        """The loss of the training nodes, or of a ``batch`` of them, and its gradient.

        Weight decay is the optimizer's. ``step`` counts the steps of the training from 0 and
        decides, with the seed, what is dropped.
        """

    @abstractmethod
    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        """The outputs of the scored parts, (rows, m) each, at the weights as they are now.

        If ``next_step`` follows with the same weights, its outputs may be computed on the way.
        """

    def weights(self) -> Weights:
        """A copy of all that belongs to a trained model."""
        return {name: value.copy() for name, value in self.params.items()}

    def measure(self, logits: np.ndarray, part: Part) -> Measured:
        """Loss and tally of outputs (rows, m)."""
        task = self.problem.task
        loss = task.loss(logits, part.targets, part.weights)
        return Measured(loss, task.tally(logits, part.targets))
