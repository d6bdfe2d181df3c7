"""hoplite.train: a graph in, trained and scored models out."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from hoplite.config import MAX_SEED, TrainingConfig, check_flag, check_number
from hoplite.engine.orders import Plan
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, GraphError, HopliteWarning, check_choice, plural, some_of
from hoplite.formatting import Described, Description, Table, printable
from hoplite.graph import NodeData
from hoplite.labels import AUTO, CLASSES, kind_of
from hoplite.models import (
    HopBlocks,
    LinearModel,
    ModelConfig,
    build_model,
    default_options,
    find_model,
    split_options,
)
from hoplite.models.pictures import (
    WORDS,
    Judged,
    check_picture,
    confusion_figure,
    history_figure,
    predicted_figure,
    reliability_figure,
)
from hoplite.models.settings import DEFAULT_MODEL, TABLE_OPTIONS
from hoplite.models.trained import TrainedModel, split_facts
from hoplite.progress import training_bar, watched
from hoplite.store import open_data
from hoplite.structural import with_log_degree
from hoplite.tasks import LOSS, Evaluation, Metric, Task, task_of
from hoplite.tasks.base import title_of
from hoplite.training.fit import fit
from hoplite.training.folds import MAX_FOLDED, MIN_LABELS
from hoplite.training.gain import GraphGain
from hoplite.training.limits import OutOfTimeError
from hoplite.training.linear import plan_order
from hoplite.training.runs import Report, Run, TrainingProgress, stage
from hoplite.training.scoring import (
    PROTOCOL,
    SCORED,
    ScoredRun,
    accuracy_of,
    clearly_worse,
    comparable_loss,
    number,
)
from hoplite.training.sets import NodeSet, checked_weights, node_sets

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

log = logging.getLogger("hoplite.training")

MAX_RUNS = 100_000
RARE_SHARE = 0.5  # a class with less than this part of its even share of the nodes is rare
NO_HOPS = "0 hops"
RARE_CLASS = 0.2  # of two: with a smaller share of the training nodes it has a threshold
PPR_OPTIONS = {"hops": 5, "operator": "adjacency"}  # of the candidates for tables
LGC_OPTIONS = {
    "hops": 5, "start": "lowpass", "optimizer": "lbfgs", "lr": 1.0, "weight_decay": 0.006,
    "dropout": 0.0, "monitor": "loss",
}  # fmt: skip
MAX_COMPARED = 20_000  # training nodes of graphs for which models are compared
MIN_SHARE = 0.2  # of the nodes that must have training labels for it
GRAPH_CANDIDATES: dict[str, tuple[str | type, dict[str, Any]]] = {
    "LGC": (DEFAULT_MODEL, {}),
    "0 hops": ("blocks", {"hops": 0}),
    "2 hops": ("blocks", {"hops": 2, "operator": "random_walk"}),
    "PPR": ("ppr", PPR_OPTIONS),
}
PART_TITLES = {"val": "validation", "test": "test"}
RESAMPLES, COVERED = 100, (5, 95)  # bootstrap samples, and percentiles of intervals


class Spread(NamedTuple):
    """Mean and (population) standard deviation of a figure over the runs."""

    mean: float
    std: float


@dataclass(frozen=True)
class Figures:
    """Figures of the ``nodes`` ("test", or "val" without any) as plain values; None for NaN.

    ``mean`` and ``std`` are over the runs; ``classes``, ``confusion`` and ``reliability`` of the
    run with ``seed``, which was chosen.
    """

    nodes: str
    seed: int
    mean: dict[str, float | None]
    std: dict[str, float | None]
    baseline: dict[str, float | None]
    classes: dict[str, dict[str, float | None]] = field(default_factory=dict)
    confusion: list[list[int]] | None = None
    reliability: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingResult(Described):
    """The result of :func:`hoplite.train`: the runs of one configuration, with their scores.

    Attributes
    ----------
    model : TrainedModel
        The model of the best run.
    test_score, val_score : float
        Mean score over the runs: accuracy, R^2 or micro F1.
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
            figure, loss = run.judged
            value = np.nan_to_num(monitor.rank(figure), nan=-np.inf)
            first = self.training_config.tie == "first"
            return value, 0.0 if first else -np.nan_to_num(loss, nan=np.inf)

        return max([run for run in self.runs if run.best_epoch], key=rank)

    @property
    def judged_part(self) -> str:
        """The part whose scores count: "test", or "val" if no test node was scored."""
        return "test" if any("test" in run.outputs for run in self.runs) else "val"

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
        return not self.graph.split.val.size and self._validated == len(self.graph.split.train)

    @property
    def held_out(self) -> int:
        """Number of training nodes that validated before the model was trained on all nodes."""
        return 0 if self.graph.split.val.size or self.out_of_fold else self._validated

    @property
    def _validated(self) -> int:
        return len(self.best_run.outputs.get("val", ((),))[0])

    def intervals(self, part: str = "val") -> dict[str, tuple[float, float]]:
        """90 % confidence intervals of the scores of the best run, by resampling nodes.

        They show how the scores of this model would vary for other nodes.

        Parameters
        ----------
        part : {"val", "test"}

        Returns
        -------
        dict
            From the name of a metric to the ends of its interval; empty for more than 10,000 nodes.
        """
        run, rng = self.best_run, np.random.default_rng(0)
        check_choice("part", part, SCORED)
        labels, logits = run.outputs.get(part, (np.empty(0), np.empty(0)))
        if not 0 < len(labels) <= MAX_FOLDED:
            return {}
        samples = rng.integers(0, len(labels), (RESAMPLES, len(labels)))
        figures = [
            run.task.evaluate(labels[rows], logits[rows], run.model.class_names).figures
            for rows in samples
        ]
        ends = {
            name: np.nanpercentile([one[name] for one in figures], COVERED)
            for name in figures[0]
            if np.isfinite([one[name] for one in figures]).any()
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

    def figures(self) -> Figures | None:
        """All scores as plain values; None if no node was scored."""
        nodes = self.judged_part
        best, baseline = self.best_run.metrics(nodes), self.baseline(nodes)
        if best is None or baseline is None:
            return None
        spreads, values = self.metrics(nodes), best.as_dict()
        return Figures(
            nodes,
            self.best_run.seed,
            {name: number(spread.mean) for name, spread in spreads.items()},
            {name: number(spread.std) for name, spread in spreads.items()},
            {name: number(value) for name, value in baseline.figures.items()},
            values.get("classes", {}),
            values.get("confusion"),
            best.reliability,
        )

    def unvalidated(self) -> str | None:
        """A sentence if there are validation nodes, but none of some class that was trained on."""
        labels, split = self.graph.labels, self.graph.split
        trained, seen = (kind_of(labels).held(labels[part]) for part in (split.train, split.val))
        names = [self.graph.class_names[c] for c in np.setdiff1d(trained, seen)]
        if not names or not split.val.size:
            return None
        return f"no validation node is of class {some_of(map(repr, names))}; label more of them."

    def shortfall(self) -> str | None:
        """A sentence if the chosen model is no better than the baseline, by validation nodes.

        It is judged by the figure that chose the epoch, or the task's score where that was the
        loss of steps; by the ROC AUC if the settings trade accuracy for rare classes.
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
        return (
            f"on the validation nodes the model is no better than {self.task.unknowing}: "
            f"{title_of(metric.name)} {reached[metric.name]:z.3f} against "
            f"{baseline[metric.name]:z.3f}; look at the features, their scale and the settings."
        )

    @property
    def test_score(self) -> float:
        """Mean test score over the runs: accuracy, R^2 or micro F1; NaN if a run has no result."""
        return float(self._all(f"test_{self.task.score.name}").mean())

    @property
    def val_score(self) -> float:
        """Mean validation score over the runs, as :attr:`test_score`."""
        return float(self._all(f"val_{self.task.score.name}").mean())

    @property
    def test_accuracy(self) -> float:
        """:attr:`test_score` for classes; AttributeError for other tasks."""
        return accuracy_of(self.task, self.test_score, "test")

    @property
    def val_accuracy(self) -> float:
        """:attr:`val_score` for classes; AttributeError for other tasks."""
        return accuracy_of(self.task, self.val_score, "val")

    def _all(self, score: str) -> np.ndarray:
        return np.array([run.scores[score] for run in self.runs])

    def __repr__(self) -> str:
        score = self.task.score
        val, test = (score.shown(self._all(f"{p}_{score.name}").mean()) for p in SCORED)
        how = f", {PROTOCOL}" if self.training_config.refit else ""
        return (
            f"TrainingResult({self.model_config.model} on {self.graph.name}, "
            f"{plural(len(self.runs), 'run')}{how}, {score.name.replace('_', ' ')}: "
            f"validation {val}, test {test})"
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
        return confusion_figure(self._judged(part, "plot_confusion"))

    def plot_reliability(self, part: str = "test") -> Figure:
        """Plot the reliability diagram of the best model on the test (or "val") nodes."""
        return reliability_figure(self._judged(part, "plot_reliability"))

    def plot_predicted(self, part: str = "test") -> Figure:
        """Plot predicted against true numbers of the test (or "val") nodes."""
        return predicted_figure(self._judged(part, "plot_predicted"))

    def _judged(self, part: str, picture: str) -> Judged:
        """What a ``picture`` shows of ``part``."""
        check_picture(self.task, picture)
        run = self.best_run
        if check_choice("part", part, SCORED) not in run.outputs:
            raise GraphError(
                f"there are no {part} nodes with predictions to plot; pass the other part, 'val' "
                "or 'test'."
            )
        who = f"{len(run.outputs[part][0]):,} {WORDS.get(part, part)} nodes"
        return Judged(run.task, *run.outputs[part], self.model.class_names, who)

    @property
    def ms_per_epoch(self) -> float:
        """Milliseconds per run and epoch: training, validation, and a share of the set-up."""
        seconds = sum(run.seconds for run in self.runs)
        again = sum(run.best_epoch for run in self.runs) if self.training_config.refit else 0
        return 1000 * seconds / (again + sum(run.epochs for run in self.runs))

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
            "intervals": self.intervals(self.judged_part),
            "unvalidated": self.unvalidated(),
            "diverged": sum(run.diverged for run in self.runs),
            "epochs_mean": float(np.mean([run.epochs for run in self.runs])),
            "ms_per_epoch": self.ms_per_epoch,
            "runs": [run.summary() for run in self.runs],
        }


def _described(result: TrainingResult) -> Description:
    """Every figure beside the baseline's, over the runs; the classes where one of them is rare."""
    spreads = {part: found for part in PART_TITLES if (found := result.metrics(part))}
    parts = [*spreads]
    last = parts[-1] if parts else "val"  # the test nodes, where there are some
    baseline = result.baseline(last)
    tables = []
    if baseline is not None and parts:
        titles = PART_TITLES | ({"val": "out of fold"} if result.out_of_fold else {})
        titles |= {"val": "held out"} if result.held_out else {}
        columns = ["figure", *[titles[part] for part in parts], "90 % interval", "baseline"]
        intervals = result.intervals(last)
        rows = [
            [title_of(name), *[_spread(spreads[part][name], len(result.runs)) for part in parts],
             _interval(intervals.get(name)), f"{baseline[name]:z.3f}"]
            for name in spreads[last]
        ]  # fmt: skip
        tables = [Table(columns, rows)]
    run = result.best_run
    facts = {
        "model": f"{result.model_config.kind.title}, {result.model_config.size()}",
        "graph": f"{result.graph.name}, {result.graph.num_nodes:,} nodes",
        "runs": f"{plural(len(result.runs), 'seed')}, {result.ms_per_epoch:.3g} ms an epoch",
        "chosen": f"seed {run.seed}, epoch {run.best_epoch} of {run.epochs}",
    }
    if result.candidates:
        losses = [f"{name} {loss:.4g}" for name, loss in result.candidates.items()]
        facts["compared by loss"] = ", ".join(losses)
    if result.graph_gain is not None:
        facts["does the graph help?"] = result.graph_gain.describe()
    diverged = sum(one.diverged for one in result.runs)
    if diverged:
        facts["diverged"] = plural(diverged, "run")
    sentences = filter(None, (result.unvalidated(), result.shortfall()))
    notes = [sentence[0].upper() + sentence[1:] for sentence in sentences]
    return Description("TrainingResult", facts, [*tables, *_classes(result, last)], notes)


def _classes(result: TrainingResult, part: str) -> list[Table]:
    """Those of the chosen run, if one of them has far fewer nodes than the others."""
    found = result.best_run.metrics(part)
    if found is None or not found.classes:
        return []
    support = [one["support"] for one in found.classes.values()]
    if min(support) >= RARE_SHARE * sum(support) / len(support):
        return []
    figures = ("precision", "recall", "f1")
    rows = [
        [name, *[f"{one[figure]:.3f}" for figure in figures], f"{one['support']:,.0f}"]
        for name, one in sorted(found.classes.items(), key=lambda pair: pair[1]["support"])
    ]
    title = f"Classes of the {PART_TITLES[part]} nodes, the rarest first"
    return [Table(["class", "precision", "recall", "F1", "nodes"], rows, title)]


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

    Without validation nodes, folds of the training nodes choose; see :mod:`hoplite.training.folds`.
    All labelled nodes of tables without a split are training nodes.

    Parameters
    ----------
    graph : Graph, str, path, graph of another library, pair of data frames, or HopStore
        What to train on; see :func:`hoplite.open_data`. For a store its own hops, operator and
        basis are the defaults, and dropout 0.
    model : str or type, optional
        A model's name, such as "lgc" (docs/models.md), or a class of your own
        (docs/your-own-model.md). If None, for node and edge tables
        ``"blocks"`` with ``operator="random_walk"`` and logarithms of degrees as more features,
        and 2 hops, or with folds as many of 0 to 2, or PPR, as has the lowest loss. Labels
        of neighbours are added where they lower it. For graphs ``"lgc"``; without any option, and
        with up to 20,000 training nodes, LGC, PPR or hop blocks of 0 or 2 hops, whichever has the
        lowest validation loss.
    seeds : int or sequence of int, default 1
        How many seeds (0, 1, ...) to train, or which.
    record_test : bool, default False
        Keep test curves in the history; they never choose anything.
    test : bool, default True
        False leaves the test nodes unread, e.g. while you compare settings.
    progress : bool or callable, default False
        True for a progress bar, or a function to call after every epoch.
    memory : str or int, optional
        Peak memory of the process for a store, "4GB" by default.
    cluster : str, optional
        Address of a Dask cluster whose workers share the rows of a store.
    sample_weight : (n,) array, optional
        Weight of each node in the loss.
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
    asked, opened = {"model": model, **options}, open_data(graph, task=task)
    data, model, options = with_default_model(opened, model, options)
    model_config, config = _resolve(data, model, options)
    config.warn_of_nothing()
    _check_store_options(data, memory=memory, cluster=cluster)
    check_flag("test", test)
    sets = node_sets(data, checked_weights(sample_weight, data.num_nodes))
    if not test:
        del sets["test"]
    chosen, judged = as_seeds(seeds), {}
    compares = config.optimizer == "path" and asked["model"] is None and "hops" not in asked
    features = opened if len(sets["train"]) > MAX_FOLDED else data
    title = f"{data.name} {model_config.model}, {plural(len(chosen), 'seed')}"
    log.info("training %s: %s", printable(title), data)
    gain = None
    with watched(progress, training_bar, title) as report:
        count = 1 + is_tables(opened)  # trainings, about
        if compares:
            count += 1 + max(1, len(_candidates(features, model, options)))
            stages = _stages(report, count)
            judged, model, options = _compared(features, model, options, sets, chosen[0], stages)
            model_config, config = _resolve(data, model, options)
        elif asked["model"] is None and not options and data.stored is None:
            stages = _stages(report, count + len(GRAPH_CANDIDATES))
            judged, model, options = _compared_for_graphs(data, sets, chosen[0], stages)
            model_config, config = _resolve(data, model, options)
        else:
            stages = _stages(report, count)
        losses = {name: comparable_loss(run) for name, run in judged.items()}
        learned = _fitted_task(data, config, sets)
        runs = fit(
            data,
            model_config,
            [Run(config, seed) for seed in chosen],
            sets,
            learned,
            **_names(data, learned),
            memory=memory,
            cluster=cluster,
            record_test=record_test,
            progress=next(stages, None),
        )
        config = dataclasses.replace(config, refit=runs[0].model.training["refit"])  # as was done
        if is_tables(opened):
            alone = judged.pop(NO_HOPS, None)
            many = len(sets["train"]) > MAX_FOLDED  # of whom only features alone were judged
            others = [] if many or _uses_edges(runs[0]) else [*judged.values()]
            best = min(others, key=comparable_loss, default=runs[0])
            alone = alone if many else None
            with contextlib.suppress(OutOfTimeError):  # the model counts, and there is one
                gain = _graph_gain(opened, best, config, sets, alone, next(stages, None))
    result = TrainingResult(data, runs[0].model.config, config, tuple(runs), learned, losses, gain)
    log.info("trained %s: %r", printable(title), result)
    shortfall = result.shortfall()
    if shortfall is not None:
        warnings.warn(shortfall, HopliteWarning, stacklevel=2)
    return result


def _names(data: NodeData, task: Task) -> dict[str, Any]:
    """What :func:`fit` needs to know of the outputs of ``data``."""
    outputs = task.outputs(data.labels, data.class_names)
    names = task.output_names(data.class_names) or [str(c) for c in range(outputs)]
    return {"names": names, "class_texts": data.class_names, "split": data.split}


def _fitted_task(data: NodeData, config: TrainingConfig, sets: Mapping[str, NodeSet]) -> Task:
    task = _task_of(data).with_loss(config.loss)
    return task.fitted(sets["train"].labels, task.outputs(data.labels, data.class_names))


def _stages(progress: Report | None, count: int) -> Iterator[Report | None]:
    """The progress of one training after another, of ``count`` that are one piece of work."""
    return (stage(progress, index, count) for index in range(count))


def _judged(
    data: NodeData,
    model: str | type,
    options: dict[str, Any],
    sets: Mapping[str, NodeSet],
    seed: int,
    progress: Report | None = None,
) -> ScoredRun:
    """One run as folds, a holdout or the validation nodes judge it; nothing more is trained."""
    model_config, config = _resolve(data, model, options)
    config = dataclasses.replace(config, refit=False)
    parts = {name: part for name, part in sets.items() if name != "test"}
    task, run = _fitted_task(data, config, sets), Run(config, seed)
    options = _names(data, task) | {"score": ("val",), "quiet": True, "final": False}
    options["progress"] = progress
    return fit(data, model_config, [run], parts, task, **options)[0]


def _compared(
    data: NodeData,
    model: str | type,
    options: dict[str, Any],
    sets: Mapping[str, NodeSet],
    seed: int,
    stages: Iterator[Report | None],
) -> tuple[dict[str, ScoredRun], str | type, dict[str, Any]]:
    """The candidates for tables as they were judged, and the model and options of the best.

    The best of :func:`_candidates` is judged with the labels of neighbours, too. Beyond 10,000
    training nodes the features alone are judged with and without them, which is much cheaper; then
    ``data`` has no column for the degree.
    """
    candidates = _candidates(data, model, options)
    judged = {
        name: _judged(data, *one, sets, seed, next(stages, None))
        for name, one in candidates.items()
    }
    base, many = plural(options["hops"], "hop"), len(data.split.train) > MAX_FOLDED
    if judged:
        base = min(judged, key=lambda name: comparable_loss(judged[name]))
        hopped = base != NO_HOPS and "LGC" in judged
        if hopped and not clearly_worse(judged["LGC"], judged[base]):
            base = "LGC"
        model, options = candidates[base]
    elif many:
        base = NO_HOPS
    enough = len(data.split.train) >= MIN_LABELS and "neighbour_labels" not in options
    if not enough or not data.in_memory().num_edges:
        return judged, model, options
    cheap = options | ({"hops": 0} if many else {})
    if base not in judged:
        judged[base] = _judged(data, model, cheap, sets, seed, next(stages, None))
    labels, name = {"neighbour_labels": True}, f"{base} and labels"
    judged[name] = _judged(data, model, cheap | labels, sets, seed, next(stages, None))
    helps = comparable_loss(judged[name]) < comparable_loss(judged[base])
    return judged, model, options | (labels if helps else {})


def _compared_for_graphs(
    data: NodeData, sets: Mapping[str, NodeSet], seed: int, stages: Iterator[Report | None]
) -> tuple[dict[str, ScoredRun], str | type, dict[str, Any]]:
    """The candidates for graphs as they were judged, and the model and options of the best.

    LGC is best where labels are few and neighbours alike. Hop blocks and PPR have scaled columns,
    and 0 hops are the features alone, where neighbours are unlike. Only LGC where few of the nodes
    or very many train.
    """
    least = max(MIN_LABELS, MIN_SHARE * data.num_nodes)
    if not least <= len(data.split.train) <= MAX_COMPARED:
        return {}, DEFAULT_MODEL, {}
    skipped = {"PPR"} if data.relation_weights else set[str]()
    candidates = {name: one for name, one in GRAPH_CANDIDATES.items() if name not in skipped}
    judged = {
        name: _judged(data, *one, sets, seed, next(stages, None))
        for name, one in candidates.items()
    }
    best = min(judged, key=lambda name: comparable_loss(judged[name]))
    return judged, *candidates[best]


def _candidates(
    data: NodeData, model: str | type, options: dict[str, Any]
) -> dict[str, tuple[str | type, dict[str, Any]]]:
    """The models and options for tables that folds compare, by name; none without folds.

    They are hop blocks of 0 hops, which are the features alone, up to the default; and PPR and LGC,
    whose one map for all hops is better where labels are few and neighbours alike. LGC is chosen
    unless another is better by more than a standard error, or the features alone are the best.
    """
    if data.split.val.size or not MIN_LABELS <= len(data.split.train) <= MAX_FOLDED:
        return {}
    candidates: dict[str, tuple[str | type, dict[str, Any]]] = {
        plural(hops, "hop"): (model, options | {"hops": hops})
        for hops in range(options["hops"] + 1)
    }
    if options.keys() <= find_model("ppr").settings() and not data.relation_weights:
        candidates["PPR"] = "ppr", _with_defaults(options, PPR_OPTIONS)
        if not sp.issparse(data.in_memory().features):
            candidates["LGC"] = "lgc", _with_defaults(options, LGC_OPTIONS)
    return candidates


def _with_defaults(options: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``options`` with a candidate's ``own`` ones where these are the defaults for tables."""
    free = {k: v for k, v in own.items() if options.get(k) == TABLE_OPTIONS.get(k)}
    return options | free


def _uses_edges(run: ScoredRun) -> bool:
    config = run.model.config
    return getattr(config, "hops", 1) > 0 or config.neighbour_labels


def _graph_gain(
    data: NodeData,
    best: ScoredRun,
    config: TrainingConfig,
    sets: Mapping[str, NodeSet],
    alone: ScoredRun | None,
    progress: Report | None,
) -> GraphGain | None:
    """What the graph adds to the features of ``data`` in the run ``best``.

    ``alone`` is a run on the features, trained here if it is None. The result is None for a model
    without hops, or if no node was judged.
    """
    if not _uses_edges(best) or "val" not in best.outputs:
        return None
    if alone is None:
        options = {"hops": 0, "class_weight": config.class_weight, "loss": config.loss}
        alone = _judged(data, HopBlocks, options, sets, best.seed, progress)
    return GraphGain.of(alone, best)


def _check_store_options(data: NodeData, **options: Any) -> None:
    """ConfigError if options for hop stores are given for a graph in memory."""
    given = [name for name, value in options.items() if value is not None]
    if data.stored is None and given:
        raise ConfigError(
            f"{given[0]} is only for hop stores; build one with `hoplite propagate` and train on "
            "it."
        )


def is_tables(data: NodeData) -> bool:
    """Whether ``data`` is in memory and its features come from named columns."""
    made = data.preparation
    return made is not None and bool(made.fitted or made.transformer) and data.stored is None


def with_default_model(
    data: NodeData, model: str | type | None, options: Mapping[str, Any]
) -> tuple[NodeData, str | type, dict[str, Any]]:
    """``data``, ``model`` and ``options``, with the defaults for the data if ``model`` is None.

    They are those of :func:`hoplite.models.default_options`. With hop blocks logarithms of degrees
    are more features, and if one of two classes is rare, its threshold is the best by F1.
    """
    if model is not None:
        return data, model, dict(options)
    name, chosen = default_options(options, tables=is_tables(data))
    if issubclass(find_model(name), HopBlocks):
        data = with_log_degree(data.in_memory())
        if _is_rare(data) and (data.split.val.size or options.get("folds", 2) > 1):
            chosen = {"threshold": "f1"} | chosen
    return data, name, chosen


def _is_rare(data: NodeData) -> bool:
    """Whether there are two classes and one of them has few of the training nodes, but some."""
    labels = data.labels[data.split.train]
    if kind_of(labels) is not CLASSES or len(data.class_names) != 2 or len(labels) < MIN_LABELS:
        return False
    return 0 < np.bincount(labels, minlength=2).min() < RARE_CLASS * len(labels)


def _resolve(
    data: NodeData, model: str | type, options: dict[str, Any]
) -> tuple[ModelConfig, TrainingConfig]:
    """The settings of a training on ``data``; those of a hop store are its own by default."""
    store = data.stored
    if store is not None:
        own = find_model(model).settings()
        known = {name: getattr(store, name) for name in {"hops", "operator", "basis"} & own}
        options = known | ({"dropout": 0.0} if "dropout" in own else {}) | options
    return split_options(model, options)


def _task_of(data: NodeData) -> Task:
    """The task of the data's labels; GraphError if there is nothing to learn from."""
    task = task_of(data.labels)
    if not task.known(data.labels).any():
        column = None if data.preparation is None else data.preparation.options.label
        where = f"column {column!r} has" if column else "the graph has"
        raise GraphError(
            f"{where} no labels to learn from; give some nodes a label, or name the column that "
            "has them (--label, label= in Python)."
        )
    if not data.split.train.size:
        raise GraphError("the training set is empty; give the graph a split with training nodes.")
    return task


def plan(graph: Any, model: str | None = None, **options: Any) -> Plan:
    """The evaluation order of the steps of ``train`` with these arguments, and why.

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
        raise ConfigError(f"model is {chosen!r}, but only linear models have evaluation orders.")
    whole = model_config.standardize or training_config.consistency
    nodes = None if whole else data.split.train
    return plan_order(built, Propagation.of(data, built.config), training_config, nodes)


def as_seeds(seeds: Any) -> list[int]:
    """How many seeds (0, 1, 2, ...) or which, as a list."""
    if isinstance(seeds, list | tuple | range | np.ndarray):
        for seed in seeds:
            check_number("seeds", seed, 0, MAX_SEED, whole=True)
        if not len(seeds) or len(set(seeds)) < len(seeds):
            raise ConfigError(f"seeds is {seeds!r}; give at least one, and none twice.")
        return [int(seed) for seed in seeds]
    check_number("seeds", seeds, 1, MAX_RUNS, whole=True)
    return list(range(int(seeds)))
