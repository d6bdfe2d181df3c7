"""One run, scored: its model, its figures on validation and test nodes."""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, HopliteWarning, check_choice, plural
from hoplite.graph import Graph, NodeData
from hoplite.models import LabelModel
from hoplite.models.alignment import NodeIndex
from hoplite.models.labelprop import CorrectSmooth
from hoplite.models.neighbours import NeighbourLabels
from hoplite.models.trained import (
    LEARNED_FROM,
    SPLIT,
    TASK_STATE,
    TrainedModel,
    learned_nodes,
    split_facts,
)
from hoplite.tasks import LOSS, Evaluation, Metric, Task
from hoplite.tasks.conformal import FoldModels
from hoplite.tasks.evaluation import evaluate_classes
from hoplite.training.runs import RunResult, at_best, costs
from hoplite.training.sets import NodeSet, union

if TYPE_CHECKING:
    from hoplite.training.fit import CrossValidated, Fitted

SCORED = ("val", "test")
MIN_POSITIVE = 5  # labels of the rarer class, to choose a threshold
PROTOCOL = "refit on training and validation labels"


class Scored(ABC):
    """A result with a validation score and a test score."""

    @abstractmethod
    def _scored(self, part: str) -> tuple[Task, float]:
        """The task, and its score on the nodes of ``part``, "val" or "test"."""

    @property
    def test_score(self) -> float:
        """(Mean) test score: accuracy, R^2 or micro F1; NaN with ``test=False``."""
        return self._scored("test")[1]

    @property
    def val_score(self) -> float:
        """(Mean) validation score; NaN if a run has no result."""
        return self._scored("val")[1]

    @property
    def test_accuracy(self) -> float:
        """:attr:`test_score` for classes, NaN with ``test=False``; other tasks have none."""
        return self._accuracy("test")

    @property
    def val_accuracy(self) -> float:
        """:attr:`val_score` for classes; other tasks have none."""
        return self._accuracy("val")

    def _accuracy(self, part: str) -> float:
        task, score = self._scored(part)
        if task.score.name != "accuracy":
            raise AttributeError(
                f"{task.name} has no {part}_accuracy; use {part}_score, its {task.score.name}."
            )
        return score


@dataclass(frozen=True, eq=False, repr=False)
class ScoredRun(Scored):
    """The trained model of one seed with its scores; the test nodes were scored once, at the end.

    Attributes
    ----------
    scores : dict
        The task's metrics on the validation nodes at the best epoch, and on the test nodes, e.g.
        ``val_accuracy`` and ``test_accuracy``.
    diverged : bool
        Whether a loss or a weight became infinite or NaN. The model is then the best earlier one;
        if there is none, ``best_epoch`` is 0 and the scores are NaN.
    seconds, trained_epochs : float, int
        Total of all trainings, including folds and a refit.
    outputs : dict
        Labels and outputs of the validation and test nodes, if all outputs are finite.
    selection_scores : tuple of float
        The ``monitor`` and the loss on the validation nodes, by which runs are compared.
    selection_accuracy : float
        Accuracy on the validation nodes, before a threshold.
    out_of_fold : bool
        Whether the outputs of "val" are out-of-fold outputs of training nodes.
    predicted : ndarray of int (N,), optional
        Their classes if a threshold was tuned: a fold uses the threshold that the other folds
        choose, because one chosen on the same labels would even predict random labels well.
    """

    seed: int
    model: TrainedModel
    scores: dict[str, float]
    best_epoch: int
    epochs: int
    diverged: bool
    seconds: float
    trained_epochs: int
    history: dict[str, np.ndarray]
    task: Task
    outputs: dict[str, tuple[np.ndarray, np.ndarray]]
    selection_scores: tuple[float, float]
    selection_accuracy: float
    out_of_fold: bool = False
    predicted: np.ndarray | None = None

    @cached_property
    def val_metrics(self) -> Evaluation | None:
        """All metrics of the validation nodes; None without such nodes or without a result."""
        return self.evaluate("val") if "val" in self.outputs else None

    @cached_property
    def test_metrics(self) -> Evaluation | None:
        """All metrics of the test nodes; None without such nodes or without a result."""
        return self.evaluate("test") if "test" in self.outputs else None

    def metrics(self, part: str) -> Evaluation | None:
        """All metrics of the nodes of ``part``, "val" or "test"."""
        check_choice("part", part, SCORED)
        return self.val_metrics if part == "val" else self.test_metrics

    def evaluate(self, part: str, rows: Any = slice(None)) -> Evaluation:
        """The figures of ``rows`` of the nodes of ``part``, whose outputs are known."""
        labels, logits = (values[rows] for values in self.outputs[part])
        names, positive = self.model.class_names, getattr(self.task, "positive", None)
        if part == "test" or self.predicted is None:
            return self.task.evaluate(labels, logits, names)
        return evaluate_classes(
            labels, self.task.link(logits), self.predicted[rows], names, positive
        )

    @cached_property
    def calibration(self) -> dict[str, Any] | None:
        """The ``temperature``, and for ``val`` and ``test`` the calibration error ``before`` and
        ``after``; None if the model is not calibrated.
        """
        first = self.task.uncalibrated()
        if first is None:
            return None
        tasks = {"before": first, "after": self.task}
        errors = {
            part: {when: task.figure("calibration_error", *outputs) for when, task in tasks.items()}
            for part, outputs in self.outputs.items()
        }
        return {"temperature": self.task.state()["temperature"], **errors}

    @property
    def threshold(self) -> float | None:
        """The probability from which the positive class is predicted; None if not chosen."""
        chosen = self.task.chosen_threshold
        return None if chosen is None else chosen[1]

    @property
    def stopped_early(self) -> bool:
        """Whether it ended before the maximum number of epochs, by patience or divergence."""
        learns = not issubclass(self.model.config.kind, LabelModel)
        learns = learns and self.model.training["optimizer"] != "path"
        return learns and self.epochs < self.model.training["epochs"]

    def best(self, curve: str) -> float:
        """The value of a curve of the history at the best epoch; NaN if there is none."""
        return at_best(self.history, curve, self.best_epoch)

    def _scored(self, part: str) -> tuple[Task, float]:
        return self.task, self.scores[f"{part}_{self.task.score.name}"]

    def __repr__(self) -> str:
        test = [f", {k}={v:z.3f}" for k, v in self.scores.items() if k.startswith("test_")]
        return f"ScoredRun(seed={self.seed}{''.join(test)})"

    def summary(self) -> dict[str, Any]:
        """The figures, without weights and curves."""
        after = self.model.correct_smooth
        return {
            "seed": self.seed,
            **{name: number(value) for name, value in self.scores.items()},
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "diverged": self.diverged,
            "seconds": self.seconds,
            **({} if after is None else {"correct_smooth": after.settings()}),
            **({} if self.threshold is None else {"threshold": self.threshold}),
            **({} if self.calibration is None else {"calibration": self.calibration}),
            "metrics": {
                part: evaluation.as_dict()
                for part in SCORED
                if (evaluation := self.metrics(part)) is not None
            },
        }


def number(value: float) -> float | None:
    """A float for JSON; None for NaN and infinity."""
    return float(value) if np.isfinite(value) else None


def scored_run(
    fitted: Fitted,
    result: RunResult,
    again: RunResult | None = None,
    score: Sequence[str] = SCORED,
    crossed: CrossValidated | None = None,
) -> ScoredRun:
    """A finished run with its model, scored on the nodes of the parts in ``score``.

    Scores are NaN without test nodes, without a result, or if outputs are not finite. If the run
    was trained ``again`` on training and validation labels, the test scores are those of the second
    model; everything that depends on validation nodes comes from the first training. After
    cross-validation, the out-of-fold outputs of the training nodes in ``crossed`` replace those of
    validation nodes.
    """
    out_of_fold = None if crossed is None else crossed.outputs
    task, sets, settings = fitted.task, fitted.sets, result.run.config
    predicted = None
    scores = {f"val_{metric.name}": result.best(f"val_{metric.name}") for metric in task.metrics}
    trained = _trained_model(fitted, result, scores)
    first = [part for part in score if again is None or part == "val"]
    trained, outputs = _scored_outputs(fitted, trained, result, first)
    if out_of_fold is not None and np.isfinite(out_of_fold).all():
        outputs["val"] = np.asarray(sets["train"].labels), out_of_fold
    monitor = task.monitor(settings.monitor)
    selection_scores = result.best(f"val_{monitor.name}"), result.best("val_loss")
    selection_accuracy = result.best("val_accuracy")
    after = trained.correct_smooth is not None or out_of_fold is not None
    if "val" in outputs and after:
        # without a tuned threshold, as for the other epochs and settings
        part = sets["val" if out_of_fold is None else "train"]
        selection_scores = judge(task, monitor, part, outputs["val"][1])
        if "val_accuracy" in scores:
            selection_accuracy = judge(task, task.score, part, outputs["val"][1])[0]
    if "val" in outputs:
        threshold = settings.threshold
        if isinstance(threshold, str) and _is_too_rare(trained, outputs["val"][0], out_of_fold):
            threshold = 0.5
        task = trained.calibrate_on(
            *outputs["val"], threshold=threshold, calibrate=settings.calibrate
        )
        if threshold != 0.5 or after:
            scores |= _measured(task, outputs, "val")
            if crossed is not None and isinstance(threshold, str):
                predicted = _fold_classes(fitted.task, threshold, crossed.folds, *outputs["val"])
                scores["val_accuracy"] = float((predicted == outputs["val"][0]).mean())
            trained.training.update({name: number(value) for name, value in scores.items()})
        if crossed is not None and crossed.weights and task.has_sets:
            labels, logits = outputs["val"]
            nodes = [crossed.folds, labels, task.nonconformity(labels, logits)]
            kept = FoldModels(crossed.weights, np.column_stack(nodes).astype(np.float64))
            trained = dataclasses.replace(trained, fold_models=kept)
    elif not isinstance(settings.threshold, str):
        task = task.tuned(settings.threshold, np.empty(0), np.empty(0))
        trained.training[TASK_STATE] = task.state()
    if again is not None:
        trained = _refitted(fitted, trained, again)
        last = [part for part in score if part == "test"]
        outputs |= _scored_outputs(fitted, trained, again, last)[1]
    scores |= _measured(task, outputs, "test")
    return ScoredRun(
        seed=result.run.seed,
        model=trained,
        scores=scores,
        best_epoch=result.best_epoch,
        epochs=result.epochs,
        diverged=result.diverged or (again is not None and again.diverged),
        **costs([result] if again is None else [result, again]),
        history=result.history,
        task=task,
        outputs=outputs,
        selection_scores=selection_scores,
        selection_accuracy=selection_accuracy,
        out_of_fold=crossed is not None and "val" in outputs,
        predicted=predicted,
    )


def _fold_classes(
    task: Task, by: str, folds: np.ndarray, labels: np.ndarray, logits: np.ndarray
) -> np.ndarray:
    """The classes (N,) of all folds, each by the threshold that is best for the other folds."""
    predicted = np.empty(len(labels), np.int64)
    for fold in np.unique(folds):
        inside = folds == fold
        tuned = task.tuned(by, labels[~inside], logits[~inside])
        predicted[inside] = tuned.predict(logits[inside])
    return predicted


def _is_too_rare(model: TrainedModel, labels: np.ndarray, out_of_fold: np.ndarray | None) -> bool:
    """Whether the rarer of two classes has too few ``labels`` for a threshold; if so, warn."""
    positive = getattr(model.task, "positive", None)
    if positive is None or not 0 < (count := int((labels == positive).sum())) < MIN_POSITIVE:
        return False
    assert model.class_names is not None  # a task with classes
    nodes = plural(count, "validation node" if out_of_fold is None else "labelled node")
    warnings.warn(
        f"class {model.class_names[positive]!r} has only {nodes}, so no threshold was chosen; "
        "label more nodes of this class.",
        HopliteWarning,
        stacklevel=2,
    )
    return True


def with_test_scores(run: ScoredRun, data: NodeData) -> ScoredRun:
    """Score a run on the test nodes of ``data``, which it has not used yet."""
    nodes = data.split.test
    run.model.training[SPLIT] = split_facts(data.split)
    if not nodes.size:
        return run
    outputs = run.outputs | {"test": (data.labels[nodes], run.model.logits(data)[nodes])}
    scores = run.scores | _measured(run.task, outputs, "test")
    return dataclasses.replace(run, outputs=outputs, scores=scores)


def _trained_model(fitted: Fitted, result: RunResult, scores: dict[str, float]) -> TrainedModel:
    data, config, settings = fitted.data, fitted.config, result.run.config
    keeps_labels = issubclass(config.kind, LabelModel) or settings.correct_smooth
    keeps_labels |= config.neighbour_labels and data.node_ids is None
    about: dict[str, Any] = {
        "dataset": data.name,
        "task": fitted.task.name,
        TASK_STATE: fitted.task.state(),
        "seed": result.run.seed,
        "best_epoch": result.best_epoch,
        **{name: number(value) for name, value in scores.items()},
        **dataclasses.asdict(settings),
    }
    if fitted.split is not None:
        about[SPLIT] = split_facts(fitted.split)
        about[LEARNED_FROM] = learned_nodes(fitted.split)
    return TrainedModel(
        config=config,
        weights=result.weights,
        num_features=data.num_features,
        class_names=tuple(fitted.names),
        feature_names=data.feature_names or None,
        training=about,
        preparation=data.preparation,
        loop_weight=data.loop_weight,
        relations=data.relation_weights,
        node_index=NodeIndex.of(data) if keeps_labels else None,
        neighbours=_neighbours(fitted, fitted.sets["train"]),
    )


def _neighbours(fitted: Fitted, train: NodeSet) -> NeighbourLabels | None:
    """The labels of neighbours that the model uses, if any."""
    if not fitted.config.neighbour_labels:
        return None
    labelled = train.counted().distinct()
    targets = fitted.task.targets(labelled.labels, len(fitted.names))
    return NeighbourLabels.of(fitted.data, labelled.nodes, targets)


def judge(task: Task, monitor: Metric, part: NodeSet, logits: np.ndarray) -> tuple[float, float]:
    """The monitor and the loss of outputs (rows, m) of ``part``."""
    targets = task.targets(np.asarray(part.labels), logits.shape[1])
    values = logits.astype(np.float64)
    loss = task.loss(values, targets, part.weights)
    if monitor is LOSS:
        return loss, loss
    if monitor in task.metrics:  # far quicker than an evaluation
        figures = task.measured(task.tally(values, targets))
        return float(figures[task.metrics.index(monitor)]), loss
    return task.figure(monitor.name, np.asarray(part.labels), logits), loss


def _measured(
    task: Task, outputs: Mapping[str, tuple[np.ndarray, np.ndarray]], part: str
) -> dict[str, float]:
    """The task's metrics on a part; NaN without its outputs."""
    figures: Sequence[float] = [np.nan] * len(task.metrics)
    if part in outputs:
        labels, logits = outputs[part]
        figures = task.measured(task.tally(logits, task.targets(labels, logits.shape[1])))
    return {f"{part}_{m.name}": float(v) for m, v in zip(task.metrics, figures, strict=True)}


def _scored_outputs(
    fitted: Fitted, model: TrainedModel, result: RunResult, parts: Sequence[str]
) -> tuple[TrainedModel, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The model, and the labels and outputs of the nodes of ``parts`` if all are finite.

    If the run's settings ask for Correct and Smooth, its settings are chosen here once.
    """
    sets, source = fitted.sets, fitted.source
    scored = {name: sets[name] for name in parts if name in sets and len(sets[name])}
    if not result.best_epoch or not scored:
        return model, {}
    if isinstance(source, Propagation):
        graph = fitted.data.in_memory()
        logits = model.raw_logits(source, graph)
        if result.run.config.correct_smooth and np.isfinite(logits).all():
            model = _with_after(model, graph, logits, sets, result.run.config, fitted.task)
            logits = model.finished(graph, logits)
        rows = {name: logits[part.nodes] for name, part in scored.items()}
    else:
        rows = {
            name: source.logits(fitted.model, result.weights, part.nodes)
            for name, part in scored.items()
        }
    outputs = {name: (np.asarray(part.labels), rows[name]) for name, part in scored.items()}
    return model, {name: pair for name, pair in outputs.items() if np.isfinite(pair[1]).all()}


def _with_after(
    model: TrainedModel,
    graph: Graph,
    logits: np.ndarray,
    parts: Mapping[str, NodeSet],
    config: TrainingConfig,
    task: Task,
) -> TrainedModel:
    """The model with the settings of Correct and Smooth that are best on the validation nodes."""
    if model.correct_smooth is not None:
        return model
    train, val, monitor = parts["train"], parts["val"], task.monitor(config.monitor)
    counted = train.counted()  # without weights
    unsmoothed = CorrectSmooth.of(counted.nodes, counted.labels)

    def rank(outputs: np.ndarray) -> float:
        return float(monitor.rank(judge(task, monitor, val, outputs[val.nodes])[0]))

    chosen = unsmoothed.chosen(graph, logits, rank)
    if chosen.idle:  # it needs no labels, but the model itself may store some
        keeps = issubclass(model.config.kind, LabelModel) or model.neighbours is not None
        index = model.node_index if keeps else None
        return dataclasses.replace(model, correct_smooth=CorrectSmooth((), ()), node_index=index)
    return dataclasses.replace(model, correct_smooth=chosen)


def _refitted(fitted: Fitted, model: TrainedModel, again: RunResult) -> TrainedModel:
    """The model with the weights of the second training, which also used validation labels.

    Choices and scores of the validation nodes are those of the first model, so prediction sets of
    the second one have approximately their coverage.
    """
    both = union(*(fitted.sets[name].counted() for name in ("train", "val")))
    after = model.correct_smooth
    if after is not None and not after.idle:
        both_labels = CorrectSmooth.of(both.nodes, both.labels)
        after = dataclasses.replace(after, nodes=both_labels.nodes, labels=both_labels.labels)
    neighbours = _neighbours(fitted, both)
    return dataclasses.replace(
        model, weights=again.weights, correct_smooth=after, neighbours=neighbours
    )


def check_after(config: TrainingConfig, task: Task, *, stored: bool = False) -> None:
    """Raise ConfigError, before any work, if Correct and Smooth is not possible."""
    if config.correct_smooth and not task.exclusive:
        raise ConfigError(
            f"requires one class per node, but these are labels for {task.labels.task}; leave it "
            "out.",
            "correct_smooth",
        )
    if config.correct_smooth and stored:
        raise ConfigError(
            "requires edges, which a hop store does not have; train on the graph, or leave it out.",
            "correct_smooth",
        )
