"""hoplite.train: a graph in, trained and scored models out."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hoplite.config import MAX_SEED, TrainingConfig, check_flag, check_number
from hoplite.engine.evaluation import Plan
from hoplite.engine.propagation import Propagation
from hoplite.errors import (
    ConfigError,
    GraphError,
    HopliteWarning,
    by_interface,
    check_choice,
    option_name,
    plural,
    some_of,
)
from hoplite.formatting import Described, Description, Table, printable
from hoplite.graph import NodeData, Split
from hoplite.labels import AUTO, is_numeral, label_type, warn_of_float_classes
from hoplite.models import (
    MODELS,
    HopBlocks,
    LinearModel,
    ModelConfig,
    build_model,
    find_model,
    split_options,
)
from hoplite.models.pictures import (
    WORDS,
    PictureData,
    check_picture,
    confusion_figure,
    history_figure,
    predicted_figure,
    reliability_figure,
)
from hoplite.models.settings import forget_on_failure, switch_note
from hoplite.models.trained import TrainedModel, split_facts
from hoplite.progress import training_bar, watched
from hoplite.store import open_data
from hoplite.structural import without_log_degree
from hoplite.tasks import LOSS, Evaluation, Metric, Task, task_of
from hoplite.tasks.base import title_of
from hoplite.training.comparison import (
    Candidate,
    Comparison,
    GraphGain,
    default_candidates,
    default_choice,
    is_tables,
    with_default_model,
)
from hoplite.training.fit import MAX_FOLDED, MIN_LABELS, fit
from hoplite.training.linear import plan_order
from hoplite.training.path import relative_penalty
from hoplite.training.runs import (
    OutOfTimeError,
    Report,
    Run,
    TrainingProgress,
    check_time,
    stage,
    time_limit,
)
from hoplite.training.scoring import (
    PROTOCOL,
    SCORED,
    Scored,
    ScoredRun,
    number,
)
from hoplite.training.sets import NodeSet, checked_weights, node_sets

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

log = logging.getLogger("hoplite.training")

MAX_RUNS = 100_000
MAX_CLASSES = 20  # maximum number of rows in the table of classes
MIN_CONFUSED = 0.05  # share of the nodes of a class that is worth a note
PART_TITLES = {"val": "validation", "test": "test"}
RESAMPLES, COVERED = 100, (5, 95)  # bootstrap samples, and percentiles of intervals


class Spread(NamedTuple):
    """Mean and (population) standard deviation of a figure over the runs."""

    mean: float
    std: float


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult(Described, Scored):
    """The result of :func:`hoplite.train`: the runs of one configuration, with their scores.

    Attributes
    ----------
    model : TrainedModel
        The model of the best run.
    test_score, val_score : float
        Mean score over the runs: accuracy, R^2 or micro F1; NaN for parts that were not scored,
        such as the test nodes with ``test=False``.
    runs : list of ScoredRun
        One per seed, with history, scores and model.
    graph : NodeData
        What was trained on.

    Examples
    --------
    >>> import hoplite
    >>> result = hoplite.train("cora", "sgc", hops=2, epochs=5, seeds=2)
    >>> len(result.runs), result.metrics("val")["accuracy"].mean == result.val_score
    (2, True)
    """

    graph: NodeData
    model_config: ModelConfig
    training_config: TrainingConfig
    runs: tuple[ScoredRun, ...]
    task: Task
    candidates: dict[str, float] = field(default_factory=dict)  # out-of-fold losses that chose
    graph_gain: GraphGain | None = None  # what the graph adds to the features of tables

    @property
    def model(self) -> TrainedModel:
        """The model of :attr:`best_run`."""
        return self.best_run.model

    @property
    def best_run(self) -> ScoredRun:
        """The run with the best validation score at its best epoch; the first of equal ones."""
        monitor = self.task.monitor(self.training_config.monitor)

        def rank(run: ScoredRun) -> tuple[float, float]:
            figure, loss = run.selection_scores
            value = np.nan_to_num(monitor.rank(figure), nan=-np.inf)
            first = self.training_config.tie == "first"
            return value, 0.0 if first else -np.nan_to_num(loss, nan=np.inf)

        return max([run for run in self.runs if run.best_epoch], key=rank)

    @property
    def reported_part(self) -> str:
        """The part whose scores are reported first: "test", or "val" if no test node was scored."""
        return "test" if any("test" in run.outputs for run in self.runs) else "val"

    def best_step(self, run: ScoredRun) -> str:
        """The best epoch of a run; if it is a penalty, its size before the number."""
        text = f"{run.best_epoch} of {run.epochs}"
        size = relative_penalty(run.best_epoch - 1, len(self.graph.split.train))
        return f"{size:.2g} ({text})" if self.training_config.optimizer == "path" else text

    def metrics(self, part: str = "test") -> dict[str, Spread]:
        """Mean and standard deviation of every metric over the runs.

        The metrics of one run, and of each class, are in ``run.test_metrics``.

        Parameters
        ----------
        part : {"test", "val"}

        Returns
        -------
        dict of Spread
            With ``mean`` and ``std``, NaN if a run has no result; empty if there are no such nodes.
        """
        evaluations = [run.metrics(part) for run in self.runs]
        names = next((e.figures for e in evaluations if e is not None), ())
        columns = {
            name: np.array([np.nan if e is None else e[name] for e in evaluations])
            for name in names
        }
        return {name: Spread(float(v.mean()), float(v.std())) for name, v in columns.items()}

    @property
    def out_of_fold(self) -> bool:
        """Whether validation scores are from cross-validation."""
        return self.best_run.out_of_fold

    @property
    def held_out(self) -> int:
        """Number of training nodes that validated before the model was trained on all nodes."""
        if self.graph.split.val.size or self.out_of_fold:
            return 0
        return len(self.best_run.outputs.get("val", ((),))[0])

    @property
    def part_titles(self) -> dict[str, str]:
        """The names of "val" and "test" in tables."""
        if self.out_of_fold:
            return PART_TITLES | {"val": "out-of-fold"}
        return PART_TITLES | ({"val": "held-out"} if self.held_out else {})

    def intervals(self, part: str = "val") -> dict[str, tuple[float, float]]:
        """90 % confidence intervals of the scores of the best run, by resampling nodes.

        They show how the scores of this model would vary for other nodes.

        Parameters
        ----------
        part : {"val", "test"}, default "val"
            :meth:`metrics`, :meth:`baseline` and the plots have "test" as their default.

        Returns
        -------
        dict
            From the name of a metric to the ends of its interval; empty for more than 10,000 nodes.
            The calibration error has none: resampling makes it larger.
        """
        check_choice("part", part, SCORED)
        if part not in self._intervals:
            self._intervals[part] = {}  # if time runs out
            self._intervals[part] = self._resampled(part)
        return dict(self._intervals[part])

    @cached_property
    def _intervals(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Intervals that are known, by part."""
        return {}

    def _resampled(self, part: str) -> dict[str, tuple[float, float]]:
        run, rng = self.best_run, np.random.default_rng(0)
        count = len(run.outputs.get(part, ((),))[0])
        if not 0 < count <= MAX_FOLDED:
            return {}
        samples = rng.integers(0, count, (RESAMPLES, count))
        figures = []
        for rows in samples:
            check_time()
            figures.append(run.evaluate(part, rows).figures)
        ends = {
            name: np.nanpercentile([sample[name] for sample in figures], COVERED)
            for name in figures[0]
            if name != "calibration_error"
            and np.isfinite([sample[name] for sample in figures]).any()
        }
        return {name: (float(low), float(high)) for name, (low, high) in ends.items()}

    def baseline(self, part: str = "test") -> Evaluation | None:
        """Scores of a baseline that knows only the training labels, e.g. the largest class.

        Parameters
        ----------
        part : {"test", "val"}

        Returns
        -------
        Evaluation or None
            None if there are no such nodes.
        """
        check_choice("part", part, SCORED)
        labels = next((r.outputs[part][0] for r in self.runs if part in r.outputs), None)
        return None if labels is None else self.task.baseline(labels, self.graph.class_names)

    def figures(self) -> dict[str, Any] | None:
        """All scores of the test nodes (without any: the validation nodes), as plain values.

        Returns
        -------
        dict or None
            ``nodes`` says which they are; ``mean`` and ``std`` are over the runs, the others of the
            best one, whose ``seed`` it has. None if no node was scored.
        """
        nodes = self.reported_part
        best, baseline = self.best_run.metrics(nodes), self.baseline(nodes)
        if best is None or baseline is None:
            return None
        spreads, values = self.metrics(nodes), best.as_dict()
        return {
            "nodes": nodes,
            "seed": self.best_run.seed,
            "mean": {name: number(spread.mean) for name, spread in spreads.items()},
            "std": {name: number(spread.std) for name, spread in spreads.items()},
            "baseline": {name: number(value) for name, value in baseline.figures.items()},
            "classes": values.get("classes", {}),
            "confusion": values.get("confusion"),
            "reliability": best.reliability,
        }

    def _unvalidated(self) -> str | None:
        """A warning if validation scores, or those of some class, are missing."""
        if not self.metrics("val"):
            used = f"so the last {self.training_config.step_title} was used"
            advice = f"cross-validation requires {MIN_LABELS} labelled nodes and at least 2 folds"
            return f"there are no validation scores, {used}; {advice}."
        labels, split, classes = self.graph.labels, self.graph.split, self.graph.class_names
        part, few, without = split.val, 0, "there are no validation nodes"
        if not part.size:  # folds, which cannot train on the only node of a class and score it
            part, few, without = split.train, 1, "there is only one labelled node"
        counts = label_type(labels).counts(labels[part], len(classes))
        trained = label_type(labels).present(labels[split.train])
        names = [classes[c] for c in trained if counts is not None and counts[c] <= few]
        if not names:
            return None
        return f"{without} of class {some_of(map(repr, names))}; label more nodes."

    def _shortfall(self) -> str | None:
        """A warning if the chosen model is no better than the baseline.

        They are compared by the metric that chose the epoch, or by the task's score if that was the
        loss; by ROC AUC if class weights or a threshold trade accuracy for rare classes.
        """
        part = "val"  # nothing is learned from test nodes
        reached, baseline = self.best_run.metrics(part), self.baseline(part)
        if reached is None or baseline is None:
            return None
        monitor = self.task.monitor(self.training_config.monitor)
        metric = self.task.score if monitor is LOSS else monitor
        if monitor is LOSS and self.training_config.optimizer == "path" and self.task.exclusive:
            metric = Metric("log_loss", larger_is_better=False)
        if self.training_config.trades_accuracy and metric is self.task.score:
            metric = Metric("roc_auc")
        if not metric.rank(reached[metric.name]) <= metric.rank(baseline[metric.name]):
            return None
        shares, classes = "always predicting the shares of the classes", self.graph.class_names
        name = shares if metric.name == "log_loss" else self.task.baseline_name
        advice = "check the features, their scale and the settings"
        if self.task.exclusive and len(classes) > MAX_CLASSES and all(map(is_numeral, classes)):
            advice = f"the classes are {len(classes):,} different numbers; if these are "
            advice += f"measurements, use {option_name('task', 'regression')}"
        return (
            f"by {self.part_titles[part]} scores the model is no better than {name}: "
            f"{title_of(metric.name)} {reached[metric.name]:z.3f} against "
            f"{baseline[metric.name]:z.3f}; {advice}."
        )

    def _scored(self, part: str) -> tuple[Task, float]:
        return self.task, float(self._all(f"{part}_{self.task.score.name}").mean())

    def _all(self, score: str) -> np.ndarray:
        return np.array([run.scores[score] for run in self.runs])

    def __repr__(self) -> str:
        score = self.task.score
        val, test = (score.format(self._all(f"{p}_{score.name}").mean()) for p in SCORED)
        how = f", {PROTOCOL}" if self.training_config.refit else ""
        return (
            f"TrainingResult({self.model_config.model} on {self.graph.name}, "
            f"{plural(len(self.runs), 'run')}{how}, {score.name.replace('_', ' ')}: "
            f"{self.part_titles['val']} {val}, test {test})"
        )

    def _describe(self) -> Description:
        return _described(self)

    def plot_history(self) -> Figure:
        """Plot loss and score of every run by epoch, with the kept epoch and early stops.

        Plots require the extra ``plot``.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        return history_figure(self)

    def plot_filter(self, *, density: bool = False) -> Figure:
        """Plot the filter of the best model, as :meth:`hoplite.TrainedModel.plot_filter`.

        Parameters
        ----------
        density : bool, default False
            Also plot the density of the eigenvalues of the training graph.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        return self.model.plot_filter(self.graph.in_memory() if density else None)

    def plot_confusion(self, part: str = "test") -> Figure:
        """Plot the confusion matrix of the best model on the test (or "val") nodes."""
        return confusion_figure(self._picture_data(part, "plot_confusion"))

    def plot_reliability(self, part: str = "test") -> Figure:
        """Plot the reliability diagram of the best model on the test (or "val") nodes."""
        return reliability_figure(self._picture_data(part, "plot_reliability"))

    def plot_predicted(self, part: str = "test") -> Figure:
        """Plot predicted against true numbers of the test (or "val") nodes."""
        return predicted_figure(self._picture_data(part, "plot_predicted"))

    def _picture_data(self, part: str, picture: str) -> PictureData:
        """What a ``picture`` shows of ``part``."""
        check_picture(self.task, picture)
        run = self.best_run
        if check_choice("part", part, SCORED) not in run.outputs:
            raise GraphError(
                f"there are no {part} nodes with predictions to plot; pass the other part, 'val' "
                "or 'test'."
            )
        who = f"{len(run.outputs[part][0]):,} {WORDS.get(part, part)} nodes"
        names, figures = self.model.class_names, run.evaluate(part)
        return PictureData(run.task, *run.outputs[part], names, who, figures)

    @property
    def ms_per_epoch(self) -> float:
        """Milliseconds per run and epoch, of all trainings: folds, the final one, and a refit."""
        seconds = sum(run.seconds for run in self.runs)
        return 1000 * seconds / sum(run.trained_epochs for run in self.runs)

    def summary(self) -> dict[str, Any]:
        """All results except weights and curves.

        Returns
        -------
        dict
            JSON values; standard deviations are population deviations over the runs.
        """
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
            "task": self.task.labels.task,
            "config": self.model_config.as_dict()
            | dataclasses.asdict(self.training_config)
            | {"seeds": [run.seed for run in self.runs]},
            "split": split_facts(self.graph.split),
            **({"protocol": PROTOCOL} if self.training_config.refit else {}),
            **means,
            "metrics": {
                part: {
                    name: {what: number(v) for what, v in spread._asdict().items()}
                    for name, spread in self.metrics(part).items()
                }
                for part in SCORED
            },
            "baseline": {
                part: baseline.as_dict() for part in SCORED if (baseline := self.baseline(part))
            },
            "out_of_fold": self.out_of_fold,
            "held_out": self.held_out,
            "candidates": {name: number(loss) for name, loss in self.candidates.items()},
            "graph_gain": None if self.graph_gain is None else self.graph_gain.summary(),
            "intervals": self.intervals(self.reported_part),
            "unvalidated": self._unvalidated(),
            "diverged": sum(run.diverged for run in self.runs),
            "epochs_mean": float(np.mean([run.epochs for run in self.runs])),
            "ms_per_epoch": self.ms_per_epoch,
            "runs": [run.summary() for run in self.runs],
        }


def _described(result: TrainingResult) -> Description:
    """Every metric and its baseline, over the runs; the classes of one run."""
    spreads = {part: metrics for part in PART_TITLES if (metrics := result.metrics(part))}
    parts = [*spreads]
    last = parts[-1] if parts else "val"  # the test nodes, where there are some
    baseline = result.baseline(last)
    tables = []
    if baseline is not None and parts:
        columns = [
            "metric",
            *[result.part_titles[part] for part in parts],
            f"90 % interval ({result.part_titles[last]}{', best run' * (len(result.runs) > 1)})",
            f"baseline ({result.part_titles[last]})",
        ]
        intervals = result.intervals(last)
        rows = [
            [title_of(name), *[_spread(spreads[part][name], len(result.runs)) for part in parts],
             _interval(intervals.get(name)),
             "" if name == "calibration_error" else f"{baseline[name]:z.3f}"]
            for name in spreads[last]
        ]  # fmt: skip
        tables = [Table(columns, rows)]
    run, step = result.best_run, result.training_config.step_title
    facts = {
        "model": f"{result.model_config.kind.title}, {result.model_config.size()}",
        "graph": f"{result.graph.name}, {plural(result.graph.num_nodes, 'node')}",
        "runs": f"{plural(len(result.runs), 'seed')}, {result.ms_per_epoch:.3g} ms per {step}",
        "chosen": f"seed {run.seed}, {step} {result.best_step(run)}",
    }
    if result.candidates:
        losses = [f"{name} {loss:.4g}" for name, loss in result.candidates.items()]
        facts["compared by loss"] = ", ".join(losses)
    if result.graph_gain is not None:
        facts["does the graph help?"] = result.graph_gain.describe()
    diverged = sum(run.diverged for run in result.runs)
    if diverged:
        facts["diverged"] = plural(diverged, "run")
    sentences = filter(None, (result._unvalidated(), result._shortfall()))
    notes = [sentence[0].upper() + sentence[1:] for sentence in sentences]
    return Description("TrainingResult", facts, [*tables, *_classes(result, last)], notes)


def _classes(result: TrainingResult, part: str) -> list[Table]:
    """Those of the chosen run, the rarest first, with what they are most often mistaken for."""
    evaluation = result.best_run.metrics(part)
    if evaluation is None or not 0 < len(evaluation.classes) <= MAX_CLASSES:
        return []
    figures = "precision", "recall", "f1"
    columns = ["class", "precision", "recall", "F1", "nodes"]
    columns += ["most often mistaken for"] if evaluation.confusion is not None else []
    names, rows = [*evaluation.classes], []
    for c in sorted(range(len(names)), key=lambda c: evaluation.classes[names[c]]["support"]):
        values = evaluation.classes[names[c]]
        row = [
            names[c],
            *[f"{values[figure]:.3f}" for figure in figures],
            f"{values['support']:,.0f}",
        ]
        if evaluation.confusion is not None:
            wrong = np.where(np.arange(len(names)) == c, 0, evaluation.confusion[c])
            many = wrong.max() > MIN_CONFUSED * values["support"]
            row.append(f"{names[wrong.argmax()]} ({wrong.max():,})" if many else "")
        rows.append(row)
    title = f"Classes of the {result.part_titles[part]} nodes, seed {result.best_run.seed}"
    return [Table(columns, rows, title)]


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:z.2f} to {ends[1]:z.2f}"


def _spread(spread: Spread, runs: int) -> str:
    return f"{spread.mean:z.3f}" + (f" ± {spread.std:.3f}" if runs > 1 else "")


def train(
    graph: Any,
    model: str | type | None = None,
    *,
    seeds: int | Sequence[int] = 1,
    record_test: bool = False,
    test: bool = True,
    progress: bool | Callable[[TrainingProgress], None] | None = False,
    memory: str | int | None = None,
    cluster: str | None = None,
    sample_weight: Any = None,
    task: str = AUTO,
    **options: Any,
) -> TrainingResult:
    """Train a model, once per seed, and score it on the validation and test nodes.

    Without validation nodes, folds of the training nodes choose; see :mod:`hoplite.training.fit`.
    All labelled nodes of tables without a split are training nodes.

    Parameters
    ----------
    graph : Graph, str, path, graph of another library, pair of data frames, or HopStore
        What to train on; see :func:`hoplite.open_data`. For a store its own hops, operator and
        basis are the defaults, and dropout 0.
    model : str or type, optional
        A model's name, such as "lgc" (docs/models.md), or a class of your own
        (docs/your-own-model.md). If None, several models may be compared by validation or
        out-of-fold loss: hop blocks of 0, 1 and 2 hops, PPR and LGC.

        - Node and edge tables: logarithms of degrees are added to the features, and each model is
          also tried with the labels of neighbours. With validation nodes, or more than 10,000
          labels, only hop blocks of 2 hops are compared.
        - Other graphs, if no option is given and at least 20 % of the nodes, but at most 20,000,
          are training nodes: the models above.
        - Otherwise the model is ``"lgc"``.
    seeds : int or sequence of int, default 1
        How many seeds (0, 1, ...) to train, or which.
    record_test : bool, default False
        Keep test curves in the history; they never choose anything. Requires validation nodes.
    test : bool, default True
        False leaves the test nodes unread, e.g. while you compare settings.
    progress : bool or callable, default False
        True for a progress bar, or a function to call after every epoch.
    memory : str or int, optional
        Memory limit of the process for a store, "4GB" by default.
    cluster : str, optional
        Address of a Dask cluster whose workers share the rows of a store.
    sample_weight : (n,) array, optional
        Weight of each node in the loss. Training and validation nodes of weight 0 are as if without
        a label; scores, thresholds and temperatures count the others once each.
    task : {"auto", "classification", "regression", "multilabel"}
        What the labels are; see :meth:`hoplite.Graph.for_task`.
    **options
        Settings of the model (:class:`hoplite.ModelConfig`) and of training
        (:class:`hoplite.TrainingConfig`), e.g. ``hops=20, lr=0.2``.

    Returns
    -------
    TrainingResult

    Examples
    --------
    >>> import hoplite
    >>> result = hoplite.train(hoplite.load("cora"), "sgc", hops=2, epochs=20)
    >>> result.test_accuracy > 0.6
    True
    """
    opened, registered = open_data(graph, task=task), {*MODELS}
    warn_of_float_classes(opened.labels, task)
    data, name, complete = with_default_model(opened, model, options)
    _, config = _resolve(data, name, complete)
    config.warn_unused()
    _check_store_options(data, memory=memory, cluster=cluster)
    check_flag("test", test)
    if record_test and not test:
        raise ConfigError("needs the test labels; leave out record_test or test.", "record_test")
    sets = node_sets(data, checked_weights(sample_weight, data.num_nodes))
    if not test:
        del sets["test"]
    seed_list, gain = as_seeds(seeds), None
    title = f"{data.name} {find_model(name).name}, {plural(len(seed_list), 'seed')}"
    log.info("training %s: %s", printable(title), data)
    if data.stored is None and (note := switch_note(find_model(name), complete)):
        log.info(note)
    compares = not options and data.stored is None
    if is_tables(opened):
        compares = config.optimizer == "path" and "hops" not in options
    with forget_on_failure(registered), watched(progress, training_bar, title) as report:
        defaults = _Defaults(opened, data, complete, sets, seed_list[0], report)
        if model is None and compares:
            name, complete = defaults.chosen(name)
        model_config, config = _resolve(data, name, complete)
        target = _task_of(data).with_loss(config.loss)
        outputs = target.outputs(data.labels, data.class_names)
        target = target.fitted(sets["train"].labels, outputs)
        runs = fit(
            data,
            model_config,
            [Run(config, seed) for seed in seed_list],
            sets,
            target,
            memory=memory,
            cluster=cluster,
            record_test=record_test,
            progress=defaults.next_stage(),
        )
        config = dataclasses.replace(config, refit=runs[0].model.training["refit"])  # as was done
        with contextlib.suppress(OutOfTimeError), time_limit(math.inf):  # whole models, or none
            gain = defaults.graph_gain(runs[0], config)
    losses = {
        str(candidate): math.inf if candidate.val is None else candidate.val
        for candidate, _ in defaults.tried
    }
    result = TrainingResult(data, runs[0].model.config, config, tuple(runs), target, losses, gain)
    log.info("trained %s: %r", printable(title), result)
    shortfall = result._shortfall()
    if shortfall is not None:
        warnings.warn(shortfall, HopliteWarning, stacklevel=2)
    return result


class _Defaults:
    """What a training without a model compares, and whether the graph helps."""

    def __init__(
        self,
        opened: NodeData,
        data: NodeData,
        options: dict[str, Any],
        sets: Mapping[str, NodeSet],
        seed: int,
        report: Report | None,
    ) -> None:
        self._opened, self._data, self._options = opened, data, options
        self._sets, self._seed, self._report = sets, seed, report
        self._tables, self._many = is_tables(opened), len(sets["train"]) > MAX_FOLDED
        self._stage, self._stages = 0, 1 + self._tables  # trainings, about
        self.tried: list[tuple[Candidate, ScoredRun | None]] = []

    def next_stage(self) -> Report | None:
        """The progress of the next training."""
        self._stage += 1
        return stage(self._report, self._stage - 1, max(self._stage, self._stages))

    def chosen(self, model: str | type) -> tuple[str | type, dict[str, Any]]:
        """The model and the options of the best candidate, or those that were given if none is.

        Beyond 10,000 training nodes of tables the features alone are judged, with and without the
        labels of neighbours, which is much cheaper.
        """
        candidates = [c for c in default_candidates(self._data, self._options) if c.default]
        plain = [c for c in candidates if not c.options.get("neighbour_labels")]
        reads_labels = len(plain) < len(candidates)
        cheap = self._tables and self._many
        if cheap:
            plain = [dataclasses.replace(plain[0], options=self._options | {"hops": 0})]
        if len(plain) == 1 and not reads_labels:
            return model, self._options
        self._stages += len(plain) + reads_labels
        for candidate in plain:
            self._try(candidate)
        best = default_choice(candidate for candidate, _ in self.tried)
        if best is not None and reads_labels:
            self._try(best.with_labels())
            best = default_choice(candidate for candidate, _ in self.tried)
        if best is None:
            return model, self._options
        if cheap:
            return model, best.options | {"hops": self._options["hops"]}
        return best.model, best.options

    def _try(self, candidate: Candidate) -> None:
        data = self._opened if self._many and self._tables else self._data
        graph = data.in_memory().with_split(Split(self._sets["train"].nodes))
        comparison = Comparison(graph, class_weight=self._options.get("class_weight"))
        train = partial(self._validated_run, data, candidate.model, candidate.options)
        self.tried.append(comparison.evaluate(candidate, train))

    def _validated_run(
        self, data: NodeData, model: str | type, options: dict[str, Any]
    ) -> ScoredRun:
        """One run as folds, a holdout or the validation nodes judge it; nothing more is trained."""
        model_config, config = _resolve(data, model, options)
        config = dataclasses.replace(config, refit=False)
        parts = {name: part for name, part in self._sets.items() if name != "test"}
        (run,) = fit(
            data,
            model_config,
            [Run(config, self._seed)],
            parts,
            _task_of(data),
            score=("val",),
            progress=self.next_stage(),
            quiet=True,
            final=False,
        )
        return run

    def graph_gain(self, run: ScoredRun, config: TrainingConfig) -> GraphGain | None:
        """What the graph adds to the features of tables: in the best run that uses it, if any."""
        results = [
            (candidate, scored)
            for candidate, scored in self.tried
            if candidate.ranks and scored is not None
        ]
        if not run.model.config.reads_neighbours and not self._many:
            joined = [pair for pair in results if pair[0].hops]
            run = max(joined, key=lambda pair: pair[0].rank)[1] if joined else run
        if not self._tables or not run.model.config.reads_neighbours or "val" not in run.outputs:
            return None
        alone = [scored for candidate, scored in results if self._many and not candidate.hops]
        options = {"hops": 0, "class_weight": config.class_weight, "loss": config.loss}
        features = (
            alone[0]
            if alone
            else self._validated_run(without_log_degree(self._opened), HopBlocks, options)
        )
        return GraphGain.of(features, run)


def _check_store_options(data: NodeData, **options: Any) -> None:
    """ConfigError if options for hop stores are given for a graph in memory."""
    names = [name for name, value in options.items() if value is not None]
    if data.stored is None and names:
        raise ConfigError(
            "is only used with hop stores; leave it out, or build one with "
            f"{by_interface('hoplite.propagate(...)', '`hoplite propagate`')} and train on it.",
            names[0],
        )


def _resolve(
    data: NodeData, model: str | type, options: dict[str, Any]
) -> tuple[ModelConfig, TrainingConfig]:
    """The settings of a training on ``data``; those of a hop store are its own by default."""
    store = data.stored
    if store is not None:
        names = find_model(model).settings()
        stored = {name: getattr(store, name) for name in {"hops", "operator", "basis"} & names}
        options = stored | ({"dropout": 0.0} if "dropout" in names else {}) | options
    return split_options(model, options)


def _task_of(data: NodeData) -> Task:
    """The task of the data's labels; GraphError if there is nothing to learn from."""
    task = task_of(data.labels)
    if not task.labels.is_known(data.labels).any():
        if data.preparation is None:
            raise GraphError("the graph has no labels; pass labels=... or graph.with_labels(...).")
        reason = f": {data.split.note}" if data.split.note else ""
        raise GraphError(
            f"there are no labels to learn from{reason}; label some nodes, or choose the label "
            f"column with {option_name('label')}."
        )
    if not data.split.train.size:
        raise GraphError(
            "the training set is empty; use graph.with_split(Split(train=[...])), or write 'train' "
            "for some nodes in the column split of the table."
        )
    return task


def plan(graph: Any, model: str | None = None, **options: Any) -> Plan:
    """Explain in which order :func:`train` would evaluate the products of a model.

    Parameters
    ----------
    graph, model, **options
        As for :func:`hoplite.train`.

    Returns
    -------
    Plan
        ``order`` is "weights-first" or "hops-first"; ``explain()`` returns the reasons as text.

    Examples
    --------
    >>> chosen = plan("pubmed", "sgc", hops=10, dropout=0)
    >>> chosen.order
    'hops-first'
    >>> print(chosen.explain())  # doctest: +ELLIPSIS
    hops-first: it needs less work
      weights first  ...
    """
    opened, chosen, options = with_default_model(open_data(graph), model, options)
    data = opened.in_memory()
    model_config, training_config = split_options(chosen, options)
    outputs = task_of(data.labels).outputs(data.labels, data.class_names)
    built = build_model(
        model_config.fitted(data), data.num_features, outputs, data.relation_weights
    )
    if not isinstance(built, LinearModel):
        raise ConfigError(f"is {chosen!r}, but only linear models have evaluation orders.", "model")
    whole = model_config.standardize or training_config.consistency
    nodes = None if whole else data.split.train
    return plan_order(built, Propagation.of(data, built.config), training_config, nodes)


def as_seeds(seeds: Any) -> list[int]:
    """Return seeds as a list, from their number (0, 1, 2, ...) or from a sequence."""
    if isinstance(seeds, list | tuple | range | np.ndarray):
        for seed in seeds:
            check_number("seeds", seed, 0, MAX_SEED, whole=True)
        if not len(seeds) or len(set(seeds)) < len(seeds):
            raise ConfigError(f"is {seeds!r}; pass at least one seed, and no duplicates.", "seeds")
        return [int(seed) for seed in seeds]
    check_number("seeds", seeds, 1, MAX_RUNS, whole=True)
    return list(range(int(seeds)))
