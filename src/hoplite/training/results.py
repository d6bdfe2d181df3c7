"""What training gives: scored models, and their figures as plain values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.models import ModelConfig
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.tasks import Task


@dataclass(frozen=True, eq=False, repr=False)
class ScoredRun:
    """One seed's trained model with its scores; the test set was read once, at the end.

    ``scores`` holds the task's metrics on the validation nodes, at the best epoch, and on the test
    nodes: ``val_accuracy`` and ``test_accuracy`` of classes.
    ``diverged``: a loss or a weight became infinite or NaN, and the model is the best one before
    that; if there is none, ``best_epoch`` is 0 and the scores are NaN.
    """

    seed: int
    model: TrainedModel
    scores: dict[str, float]
    best_epoch: int
    epochs: int
    diverged: bool
    seconds: float
    history: dict[str, np.ndarray]

    @property
    def val_accuracy(self) -> float:
        """Accuracy on the validation nodes."""
        return self.scores["val_accuracy"]

    @property
    def test_accuracy(self) -> float:
        """Accuracy on the test nodes."""
        return self.scores["test_accuracy"]

    def __repr__(self) -> str:
        test = [f", {k}={v:.3f}" for k, v in self.scores.items() if k.startswith("test_")]
        return f"ScoredRun(seed={self.seed}{''.join(test)})"

    def summary(self) -> dict[str, Any]:
        """The figures, without weights and curves."""
        return {
            "seed": self.seed,
            **{name: number(value) for name, value in self.scores.items()},
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "diverged": self.diverged,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult:
    """The runs of one configuration on one graph, or on the hop store of one."""

    graph: NodeData
    model_config: ModelConfig
    training_config: TrainingConfig
    runs: tuple[ScoredRun, ...]
    task: Task

    @property
    def model(self) -> TrainedModel:
        """The model of the run with the best validation score (the first of equals)."""
        name, rank = f"val_{self.task.score.name}", self.task.score.rank
        finite = [run for run in self.runs if run.best_epoch]
        return max(finite, key=lambda run: np.nan_to_num(rank(run.scores[name]))).model

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy over the runs; NaN if one of them has no result."""
        return float(self._all("test_accuracy").mean())

    @property
    def val_accuracy(self) -> float:
        """Mean validation accuracy over the runs; NaN if one of them has no result."""
        return float(self._all("val_accuracy").mean())

    def _all(self, score: str) -> np.ndarray:
        return np.array([run.scores[score] for run in self.runs])

    def __repr__(self) -> str:
        name = self.task.score.name
        return (
            f"TrainingResult({self.model_config.model} on {self.graph.name}, "
            f"{len(self.runs)} runs, validation {self._all(f'val_{name}').mean():.1%}, "
            f"test {self._all(f'test_{name}').mean():.1%})"
        )

    @property
    def ms_per_epoch(self) -> float:
        """Milliseconds per run and epoch: training step, validation, and a share of the set-up."""
        seconds = sum(run.seconds for run in self.runs)
        return 1000 * seconds / sum(run.epochs for run in self.runs)

    def summary(self) -> dict[str, Any]:
        """Everything but weights and curves, as plain JSON values; std is over the runs (n)."""
        names = [
            f"{part}_{metric.name}" for metric in self.task.metrics for part in ("test", "val")
        ]
        means = {
            f"{name}_{what}": number(getattr(self._all(name), what)())
            for name in names
            for what in ("mean", "std")
        }
        return {
            "dataset": self.graph.name,
            "model": self.model_config.model,
            "config": self.model_config.as_dict()
            | dataclasses.asdict(self.training_config)
            | {"seeds": [run.seed for run in self.runs]},
            "split": self.graph.split.sizes() | {"note": self.graph.split.note},
            **means,
            "diverged": sum(run.diverged for run in self.runs),
            "epochs_mean": float(np.mean([run.epochs for run in self.runs])),
            "ms_per_epoch": self.ms_per_epoch,
            "runs": [run.summary() for run in self.runs],
        }


def number(value: float) -> float | None:
    """A float for JSON, which has no NaN and no infinity: None stands for them."""
    return float(value) if np.isfinite(value) else None
