"""The objective of models that spread labels: there is nothing to learn, only to score."""

from __future__ import annotations

import numpy as np

from hoplite.models.base import Weights
from hoplite.models.labelprop import LabelModel
from hoplite.training.objective import Measured, Objective, Problem


class LabelObjective(Objective):
    """The labels of the training nodes, and the outputs that they give."""

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
        parts = self.problem.parts
        return {name: self._logits[parts[name].nodes] for name in self.problem.scored}

    def weights(self) -> Weights:
        return dict(self._weights)
