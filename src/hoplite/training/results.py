"""hoplite.train: a graph in, trained and scored models out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hoplite.config import MOST_SEED, TrainingConfig, check_number
from hoplite.errors import ConfigError, GraphError
from hoplite.models import ModelConfig, build_model, find_model, split_options
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.propagation.engine import Propagation
from hoplite.propagation.orders import Plan
from hoplite.store import open_data
from hoplite.tasks import USUAL, Task, find_task
from hoplite.training.distributed import ALONE, Team
from hoplite.training.loop import fit_runs, scores_of
from hoplite.training.runs import (
    AnyPropagation,
    NodeSet,
    Run,
    RunResult,
    TrainingProgress,
    node_sets,
    plan_runs,
    require_result,
)
from hoplite.training.streamed import StoredPropagation

MOST_RUNS = 100_000


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
        return max(finite, key=lambda run: np.nan_to_num(rank(run.scores[name]), nan=-np.inf)).model

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


def train(
    graph: NodeData | str | os.PathLike[str],
    model: str = "lgc",
    *,
    seeds: int | Sequence[int] = 1,
    record_test: bool = False,
    progress: Callable[[TrainingProgress], None] | None = None,
    memory: str | int | None = None,
    team: Team = ALONE,
    **options: Any,
) -> TrainingResult:
    """Train ``model`` on ``graph``'s split, once per seed, and score each run on the test nodes.

    Parameters
    ----------
    graph : Graph with a split, the name or path of a dataset, or a hop store or its path
        A store's own hops, operator and basis are the default then, and dropout 0.
    model : {"sgc", "egc", "lgc", "hlgc", "gcn", "gat"}
    seeds : how many (0, 1, 2, ...) or which
    record_test : keep test curves in the history (they never choose anything)
    progress : called after every epoch
    memory : for a store: peak of this process, such as "4GB" (the default)
    team : for a store: the processes that share its rows, see :mod:`hoplite.training.distributed`
    options : fields of ModelConfig and TrainingConfig, such as ``hops=20, lr=0.2``

    >>> import hoplite
    >>> result = hoplite.train(hoplite.load("cora"), "sgc", hops=2, epochs=20)
    >>> result.test_accuracy > 0.6
    True
    """
    data = open_data(graph)
    store = data.stored
    if store is not None:
        names = {"hops", "operator", "basis"} & find_model(model).settings()
        usual = {name: getattr(store, name) for name in names}
        options = usual | {"dropout": 0.0} | options
    model_config, training_config = split_options(model, options)
    if store is None and (memory is not None or team.size > 1):
        what = "memory is given" if memory is not None else f"there are {team.size} processes"
        raise ConfigError(
            f"{what}, which is for hop stores; make one with `hoplite propagate` and train on it."
        )
    task = find_task()
    if not task.known(data.labels).any():
        raise GraphError("the graph has no labels to learn from; give at least some nodes a label.")
    if not data.split.train.size:
        raise GraphError("the training set is empty; give the graph a split with training nodes.")
    parts, chosen = node_sets(data), as_seeds(seeds)
    outputs = task.outputs(data.labels, data.class_names)
    built = build_model(model_config, data.num_features, outputs)
    if store is None:
        source = Propagation(
            data.in_memory(), model_config.operator, model_config.basis, model_config.hops
        )
    else:
        source = StoredPropagation(
            store,
            built,
            memory=memory or "4GB",
            team=team,
            training=training_config,
            runs=len(chosen),
        )
    results = fit_runs(
        built,
        source,
        [Run(training_config, seed) for seed in chosen],
        parts["train"],
        parts["val"] if len(parts["val"]) else None,
        watch=parts["test"] if record_test and len(parts["test"]) else None,
        progress=progress,
        task=task,
    )
    require_result(results)
    runs = tuple(
        scored_run(data, model_config, result, source, parts["test"], task) for result in results
    )
    return TrainingResult(data, model_config, training_config, runs, task)


def plan(
    graph: NodeData | str, model: str = "lgc", *, seeds: int | Sequence[int] = 1, **options: Any
) -> Plan:
    """The evaluation order of the steps of ``train`` with these arguments, and why.

    >>> chosen = plan("pubmed", "sgc", hops=10, dropout=0, seeds=5)
    >>> chosen.order
    'hops-first'
    >>> print(chosen.explain())  # doctest: +ELLIPSIS
    hops-first: it needs less work
      weights first  ...
    """
    model_config, training_config = split_options(model, options)
    data = open_data(graph).in_memory()
    split = data.split
    rows = data.num_nodes if model_config.standardize else split.train.size
    return plan_runs(
        build_model(model_config, data.num_features, data.num_classes),
        Propagation(data, model_config.operator, model_config.basis, model_config.hops),
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
    data: NodeData,
    config: ModelConfig,
    result: RunResult,
    source: AnyPropagation,
    test: NodeSet,
    task: str | Task = USUAL,
) -> ScoredRun:
    """A finished run with its model, scored on ``test``.

    Scores are NaN without test nodes, without a result, or with outputs that are not finite.
    """
    task = find_task(task)
    scores = {f"val_{metric.name}": result.best(f"val_{metric.name}") for metric in task.metrics}
    trained = TrainedModel(
        config=config,
        weights=result.weights,
        num_features=data.num_features,
        class_names=data.class_names,
        feature_names=data.feature_names or None,
        training={
            "dataset": data.name,
            "task": task.name,
            "seed": result.run.seed,
            "best_epoch": result.best_epoch,
            **{name: number(value) for name, value in scores.items()},
            **dataclasses.asdict(result.run.config),
        },
    )
    found = [np.nan] * len(task.metrics)
    if not len(test) or not result.best_epoch:
        pass
    elif source.stored is False:
        logits = trained.raw_logits(source)[test.nodes]
        if np.isfinite(logits).all():
            targets = task.targets(test.labels, trained.num_classes)
            measured = task.measure(torch.from_numpy(logits).unsqueeze(1), targets, len(test))
            found = [float(value) for value in measured]
    else:
        built = build_model(config, trained.num_features, trained.num_classes)
        found = scores_of(built, source, task, result.weights, test)
    scores |= {f"test_{m.name}": value for m, value in zip(task.metrics, found, strict=True)}
    return ScoredRun(
        seed=result.run.seed,
        model=trained,
        scores=scores,
        best_epoch=result.best_epoch,
        epochs=result.epochs,
        diverged=result.diverged,
        seconds=result.seconds,
        history=result.history,
    )
