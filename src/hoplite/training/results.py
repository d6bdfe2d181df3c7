"""What training gives: scored models, and their figures as plain values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import ModelConfig, TrainingConfig
from hoplite.graph import Graph
from hoplite.models.trained import TrainedModel
from hoplite.store import HopStore


@dataclass(frozen=True, eq=False, repr=False)
class ScoredRun:
    """One seed's trained model with its accuracies; the test set was read once, at the end.

    ``diverged``: a loss or a weight became infinite or NaN, and the model is the best one before
    that; if there is none, ``best_epoch`` is 0 and the accuracies are NaN.
    """

    seed: int
    model: TrainedModel
    val_accuracy: float
    test_accuracy: float
    best_epoch: int
    epochs: int
    diverged: bool
    seconds: float
    history: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return f"ScoredRun(seed={self.seed}, test_accuracy={self.test_accuracy:.3f})"

    def summary(self) -> dict[str, Any]:
        """The figures, without weights and curves."""
        return {
            "seed": self.seed,
            "val_accuracy": number(self.val_accuracy),
            "test_accuracy": number(self.test_accuracy),
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "diverged": self.diverged,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult:
    """The runs of one configuration on one graph, or on the hop store of one."""

    graph: Graph | HopStore
    model_config: ModelConfig
    training_config: TrainingConfig
    runs: tuple[ScoredRun, ...]

    @property
    def model(self) -> TrainedModel:
        """The model of the run with the best validation accuracy (the first of equals)."""
        finite = [run for run in self.runs if run.best_epoch]
        return max(finite, key=lambda run: np.nan_to_num(run.val_accuracy)).model

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy over the runs; NaN if one of them has no result."""
        return float(np.mean([run.test_accuracy for run in self.runs]))

    @property
    def val_accuracy(self) -> float:
        """Mean validation accuracy over the runs; NaN if one of them has no result."""
        return float(np.mean([run.val_accuracy for run in self.runs]))

    def __repr__(self) -> str:
        return (
            f"TrainingResult({self.model_config.model} on {name_of(self.graph)}, "
            f"{len(self.runs)} runs, validation {self.val_accuracy:.1%}, "
            f"test {self.test_accuracy:.1%})"
        )

    @property
    def ms_per_epoch(self) -> float:
        """Milliseconds per run and epoch: training step, validation, and a share of the set-up."""
        seconds = sum(run.seconds for run in self.runs)
        return 1000 * seconds / sum(run.epochs for run in self.runs)

    def summary(self) -> dict[str, Any]:
        """Everything but weights and curves, as plain JSON values; std is over the runs (n)."""
        test = np.array([run.test_accuracy for run in self.runs])
        val = np.array([run.val_accuracy for run in self.runs])
        return {
            "dataset": name_of(self.graph),
            "model": self.model_config.model,
            "config": dataclasses.asdict(self.model_config)
            | dataclasses.asdict(self.training_config)
            | {"seeds": [run.seed for run in self.runs]},
            "split": self.graph.split.sizes() | {"note": self.graph.split.note},
            "test_accuracy_mean": number(test.mean()),
            "test_accuracy_std": number(test.std()),
            "val_accuracy_mean": number(val.mean()),
            "val_accuracy_std": number(val.std()),
            "diverged": sum(run.diverged for run in self.runs),
            "epochs_mean": float(np.mean([run.epochs for run in self.runs])),
            "ms_per_epoch": self.ms_per_epoch,
            "runs": [run.summary() for run in self.runs],
        }


def name_of(data: Graph | HopStore) -> str:
    """The dataset's name."""
    return data.name if isinstance(data, Graph) else data.manifest.name


def number(value: float) -> float | None:
    """A float for JSON, which has no NaN and no infinity: None stands for them."""
    return float(value) if np.isfinite(value) else None
