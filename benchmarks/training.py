"""A training of Hoplite as the benchmarks time it: the graph is prepared once, then epochs pass.

An epoch is a step of the optimizer and the validation, as hoplite.train makes them. A training is
planned for as many epochs as the paper's, since the evaluation order depends on that; it never
stops early, and ends when as many epochs as asked for are over.
"""

from __future__ import annotations

from typing import Any

from hoplite import Graph
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, split_options
from hoplite.tasks import task_of
from hoplite.training import NodeSet, Run, RunResult, train_runs

EPOCHS = 500
SETTINGS: dict[str, Any] = {
    "lr": 0.2,
    "weight_decay": 5e-4,
    "dropout": 0.5,
    "epochs": EPOCHS,
    "patience": EPOCHS,
}


class Trainer:
    """A model on the split of a graph with labels; ``options`` replace SETTINGS."""

    def __init__(self, graph: Graph, model: str, **options: Any) -> None:
        config, self.config = split_options(model, SETTINGS | options)
        config = config.fitted(graph)
        self.model = build_model(config, graph.num_features, graph.num_classes)
        self.source = Propagation.of(graph, config)
        labels, split = graph.labels, graph.split
        self.sets = {
            "train": NodeSet(split.train, labels[split.train]),
            "val": NodeSet(split.val, labels[split.val]),
        }
        self.task = task_of(labels).fitted(labels[split.train], graph.num_classes)

    def train(self, epochs: int, seeds: int = 1) -> list[RunResult]:
        """Runs of ``epochs`` epochs, as many at a time as there are threads."""
        runs = [Run(self.config, seed, last=epochs) for seed in range(seeds)]
        return train_runs(self.model, self.source, runs, self.sets, task=self.task)

    def epoch(self, epochs: int) -> float:
        """Mean seconds of an epoch; set-up before the first does not count."""
        (result,) = self.train(epochs)
        return result.seconds / result.epochs
