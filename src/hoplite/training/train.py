"""hoplite.train: a graph in, trained and scored models out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import MOST_SEED, ModelConfig, TrainingConfig, check_number, split_options
from hoplite.datasets import load
from hoplite.errors import ConfigError, GraphError
from hoplite.graph import Graph
from hoplite.models import build_model
from hoplite.models.trained import TrainedModel
from hoplite.propagation.engine import Propagation
from hoplite.propagation.plan import Plan
from hoplite.training.loop import fit_runs
from hoplite.training.runs import NodeSet, Progress, Run, RunResult, node_sets, plan_runs

MOST_RUNS = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class ScoredRun:
    """One seed's trained model with its accuracies; the test set was read once, at the end."""

    seed: int
    model: TrainedModel
    val_accuracy: float
    test_accuracy: float
    best_epoch: int
    epochs: int
    seconds: float
    history: dict[str, np.ndarray]

    @property
    def diverged(self) -> bool:
        """Whether the loss became infinite or NaN; the model is then the best one before that."""
        return not np.isfinite(self.history["train_loss"]).all()

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
    """The runs of one configuration on one graph."""

    graph: Graph
    model_config: ModelConfig
    training_config: TrainingConfig
    runs: tuple[ScoredRun, ...]

    @property
    def model(self) -> TrainedModel:
        """The model of the run with the best validation accuracy (the first of equals)."""
        values = np.nan_to_num([run.val_accuracy for run in self.runs])
        return self.runs[int(np.argmax(values))].model

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy over the runs."""
        return float(np.mean([run.test_accuracy for run in self.runs]))

    @property
    def val_accuracy(self) -> float:
        """Mean validation accuracy over the runs."""
        return float(np.mean([run.val_accuracy for run in self.runs]))

    def __repr__(self) -> str:
        return (
            f"TrainingResult({self.model_config.model} on {self.graph.name}, "
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
            "dataset": self.graph.name,
            "model": self.model_config.model,
            "config": dataclasses.asdict(self.model_config)
            | dataclasses.asdict(self.training_config)
            | {"seeds": [run.seed for run in self.runs]},
            "split": self.graph.split.sizes() | {"note": self.graph.split.note},
            "test_accuracy_mean": number(test.mean()),
            "test_accuracy_std": number(test.std()),
            "val_accuracy_mean": number(val.mean()),
            "val_accuracy_std": number(val.std()),
            "epochs_mean": float(np.mean([run.epochs for run in self.runs])),
            "ms_per_epoch": self.ms_per_epoch,
            "runs": [run.summary() for run in self.runs],
        }


def train(
    graph: Graph | str,
    model: str = "lgc",
    *,
    seeds: int | Sequence[int] = 1,
    record_test: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> TrainingResult:
    """Train ``model`` on ``graph``'s split, once per seed, and score each run on the test nodes.

    Parameters
    ----------
    graph : Graph with a split, or the name or path of a dataset
    model : {"sgc", "egc", "lgc", "hlgc", "gcn", "gat"}
    seeds : how many (0, 1, 2, ...) or which
    record_test : keep test curves in the history (they never choose anything)
    progress : called after every epoch
    options : fields of ModelConfig and TrainingConfig, such as ``hops=20, lr=0.2``

    >>> import hoplite
    >>> result = hoplite.train(hoplite.load("cora"), "sgc", hops=2, epochs=20)
    >>> result.test_accuracy > 0.6
    True
    """
    model_config, training_config = split_options(model, options)
    if not isinstance(graph, Graph):
        graph = load(graph)
    labels = graph.labels
    if labels is None or (labels < 0).all():
        raise GraphError("the graph has no labels to learn from; give at least some nodes a label.")
    if not graph.split.train.size:
        raise GraphError("the training set is empty; give the graph a split with training nodes.")
    parts = node_sets(graph)
    propagation = Propagation(graph, model_config.operator, model_config.basis, model_config.hops)
    results = fit_runs(
        build_model(model_config, graph.num_features, graph.num_classes),
        propagation,
        [Run(training_config, seed) for seed in as_seeds(seeds)],
        parts["train"],
        parts["val"] if len(parts["val"]) else None,
        watch=parts["test"] if record_test and len(parts["test"]) else None,
        progress=progress,
    )
    runs = tuple(
        scored_run(graph, model_config, result, propagation, parts["test"]) for result in results
    )
    return TrainingResult(graph, model_config, training_config, runs)


def plan(
    graph: Graph | str, model: str = "lgc", *, seeds: int | Sequence[int] = 1, **options: Any
) -> Plan:
    """The evaluation order that ``train`` with these arguments takes, and why.

    >>> chosen = plan("pubmed", "sgc", hops=10, dropout=0, seeds=5)
    >>> chosen.order
    'hops-first'
    >>> print(chosen.explain())  # doctest: +ELLIPSIS
    hops-first: it needs less work
      weights first  ...
    """
    model_config, training_config = split_options(model, options)
    graph = graph if isinstance(graph, Graph) else load(graph)
    split = graph.split
    rows = graph.num_nodes if model_config.standardize else split.train.size + split.val.size
    return plan_runs(
        build_model(model_config, graph.num_features, graph.num_classes),
        Propagation(graph, model_config.operator, model_config.basis, model_config.hops),
        [Run(training_config, seed) for seed in as_seeds(seeds)],
        rows,
    )


def as_seeds(seeds: Any) -> list[int]:
    """How many seeds (0, 1, 2, ...) or which, as a list."""
    if isinstance(seeds, list | tuple | range | np.ndarray):
        for seed in seeds:
            check_number("seeds", seed, 0, MOST_SEED, whole=True)
        if not len(seeds) or len(set(seeds)) < len(seeds):
            raise ConfigError(f"seeds is {seeds!r}; give at least one, and none twice.")
        return [int(seed) for seed in seeds]
    check_number("seeds", seeds, 1, MOST_RUNS, whole=True)
    return list(range(int(seeds)))


def scored_run(
    graph: Graph, config: ModelConfig, result: RunResult, propagation: Propagation, test: NodeSet
) -> ScoredRun:
    """A finished run with its model, scored on ``test`` (NaN without test nodes)."""
    trained = TrainedModel(
        config=config,
        weights=result.weights,
        num_features=graph.num_features,
        class_names=tuple(graph.class_names or ()),
        feature_names=tuple(graph.feature_names) if graph.feature_names else None,
        training={
            "dataset": graph.name,
            "seed": result.run.seed,
            "best_epoch": result.best_epoch,
            "val_accuracy": number(result.val_accuracy),
            **dataclasses.asdict(result.run.config),
        },
    )
    accuracy = np.nan
    if len(test):
        predicted = trained.logits_from(propagation)[test.nodes].argmax(axis=1)
        accuracy = float(np.mean(predicted == test.labels))
    return ScoredRun(
        seed=result.run.seed,
        model=trained,
        val_accuracy=result.val_accuracy,
        test_accuracy=accuracy,
        best_epoch=result.best_epoch,
        epochs=result.epochs,
        seconds=result.seconds,
        history=result.history,
    )


def number(value: float) -> float | None:
    """A float for JSON, which has no NaN: None stands for what was not measured."""
    return None if np.isnan(value) else float(value)
