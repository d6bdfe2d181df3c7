"""The training loop: one run is one training on one thread, and several runs use several threads.

Runs are independent: masks depend on (seed, step) alone, and shared data is constant. So a run
gives the same bits alone or with others, for any number of threads.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hoplite.config import MAX_SEED, TrainingConfig, check_number
from hoplite.engine.backend import get_num_threads, one_blas_thread, use_threads
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, GraphError, HopliteError, HopliteWarning
from hoplite.machine import available_memory
from hoplite.models.base import Model, Weights
from hoplite.models.labelprop import LabelModel
from hoplite.models.linear import LinearModel
from hoplite.models.neighbours import neighbour_columns
from hoplite.models.settings import check_batch
from hoplite.tasks import DEFAULT_TASK, Metric, Task, find_task
from hoplite.tasks.conformal import MAX_NUMBERS
from hoplite.training.linear import LinearObjective
from hoplite.training.objective import LabelObjective, Measured, Objective, Problem
from hoplite.training.optimizers import LBFGS, Adam
from hoplite.training.path import PENALTIES, PenaltyPath, path_patience
from hoplite.training.sets import NodeSet, shuffled_batches

Result = TypeVar("Result")
LOWEST = -np.finfo(np.float64).max
POLL_SECONDS = 0.1  # between two reports on runs in threads


class OutOfTimeError(HopliteError):
    """A training reached its time limit before it had a result."""


_limit: ContextVar[tuple[float, bool]] = ContextVar("limit", default=(math.inf, False))


@contextlib.contextmanager
def time_limit(seconds: float, *, keep_best: bool = False) -> Iterator[None]:
    """End trainings within the block after ``seconds``, with an OutOfTimeError.

    The time is checked in every step, and in every evaluation of L-BFGS. With ``keep_best``, a run
    that has finished an epoch (or a penalty) ends with the best one so far instead. A nested block
    ends no later than the outer one.
    """
    token = _limit.set((min(time.monotonic() + seconds, _limit.get()[0]), keep_best))
    try:
        yield
    finally:
        _limit.reset(token)


def check_time() -> None:
    """Raise OutOfTimeError if the surrounding :func:`time_limit` is exceeded."""
    if time.monotonic() > _limit.get()[0]:
        raise OutOfTimeError("the time limit was reached.")


def keeps_best() -> bool:
    """Whether a run that is out of time keeps its best epoch."""
    return _limit.get()[1]


@dataclass(frozen=True)
class Run:
    """One training: its settings and its seed.

    Parameters
    ----------
    config : TrainingConfig
        Settings of training.
    seed : int
        Seed of the initial weights and of dropout.
    last : int, optional
        The last epoch, if it is known in advance.
    start : dict of ndarray, optional
        For the optimizer "path": solve only for the last penalty, from these weights.
    rows : int, optional
        Number of training nodes of the run that chose the penalty, if it is another run.

    Examples
    --------
    >>> Run(TrainingConfig(lr=0.2), seed=1).seed
    1
    """

    config: TrainingConfig
    seed: int
    last: int | None = None
    start: Weights | None = None
    rows: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Runs with equal keys have equal results: an optimum does not depend on the seed."""
        settings = (self.config, self.last, id(self.start))
        return settings if self.config.optimizer == "path" else (id(self),)

    def with_config(self, **settings: Any) -> Run:
        """The same with other ``settings``."""
        return replace(self, config=replace(self.config, **settings))

    @property
    def epochs(self) -> int:
        """Maximum number of epochs; for "path", the number of penalties (1 with a start)."""
        if self.config.optimizer != "path":
            return self.config.epochs
        return 1 if self.start is not None else min(self.config.epochs, PENALTIES)

    def patience(self, rows: int) -> int:
        """Epochs without improvement before the run stops; ``rows`` counts training nodes."""
        patience = self.config.patience
        return min(patience, path_patience(rows)) if self.config.optimizer == "path" else patience


@dataclass(frozen=True)
class RunResult:
    """The result of one run: the weights of its best epoch, and its curves.

    A run that ``diverged`` was stopped because a loss or a weight became infinite or NaN. Its best
    epoch is an earlier one. If there is none, ``best_epoch`` is 0, the weights are the initial ones
    and the run has no score.

    Attributes
    ----------
    run : Run
        Settings and seed.
    weights : dict of ndarray
        The weights of the best epoch.
    best_epoch, epochs : int
        The best epoch, and the number of epochs.
    diverged : bool
        Whether the run was stopped because it diverged.
    history : dict of ndarray
        Loss and metrics by epoch: ``train_loss``, ``val_accuracy``, ...
    seconds : float
        Time of the run.
    """

    run: Run
    weights: Weights
    best_epoch: int
    epochs: int
    diverged: bool
    history: dict[str, np.ndarray]  # per epoch: {train,val[,test]}_{loss, and the task's metrics}
    seconds: float
    outputs: Sequence[np.ndarray] = ()  # of optimizer "path": of the validation nodes, per epoch
    path: Sequence[Weights] = ()  # and the weights, per epoch, if they are few
    trained_epochs: int = 0  # in ``seconds``, also those of other trainings that led to this one

    def best(self, curve: str) -> float:
        """The value of a curve of the history at the best epoch; NaN if there is none."""
        return at_best(self.history, curve, self.best_epoch)


def costs(trainings: Sequence[RunResult]) -> dict[str, Any]:
    """The total seconds and epochs of all ``trainings``."""
    return {
        name: sum(getattr(result, name) for result in trainings)
        for name in ("seconds", "trained_epochs")
    }


def at_best(history: dict[str, np.ndarray], curve: str, best_epoch: int) -> float:
    """The value of a curve at the best epoch (counted from 1); NaN if there is none."""
    values = history.get(curve)
    return np.nan if values is None or not best_epoch else float(values[best_epoch - 1])


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of several runs."""

    done: int  # epochs of all runs that are finished or were saved by early stopping
    total: int
    epoch: int  # epoch of the run that is farthest
    epochs: int  # maximum per run
    running: int
    val_score: float  # the figure that chooses the epoch: mean of the runs' best; NaN if unknown


Report = Callable[[TrainingProgress], None]


def stage(progress: Report | None, index: int, count: int) -> Report | None:
    """The progress of training ``index`` of ``count``, as a part of the overall ``progress``."""
    if progress is None:
        return None
    report = progress

    def report_stage(state: TrainingProgress) -> None:
        done = index * state.total + state.done
        report(replace(state, done=done, total=count * state.total))

    return report_stage


class _State:
    """The state of a run in training: its curves, its best epoch, and whether to continue."""

    def __init__(self, run: Run, objective: Objective, problem: Problem) -> None:
        task = problem.task
        self.run, self.objective, self.problem = run, objective, problem
        self.monitor: Metric = task.monitor(run.config.monitor)
        self.curves: dict[str, list[float]] = {
            f"{part}_{name}": [] for part in problem.parts for name in task.curves
        }
        self.validated = "val" in problem.parts
        self.patience = run.patience(len(problem.train))
        self.monitored = f"val_{self.monitor.name}"
        self.computes_monitor = self.validated and self.monitored not in self.curves
        if self.computes_monitor:
            self.curves[self.monitored] = []
        self.best = objective.weights()
        self.best_epoch, self.best_rank, self.best_loss = -1, -math.inf, math.inf
        self.epochs, self.diverged, self.running = 0, False, True
        self.outputs: list[np.ndarray] = []
        self.path: list[Weights] = []

    def record(self, part: str, measured: Measured) -> None:
        """Add an epoch to the curves of a part."""
        self.curves[f"{part}_loss"].append(measured.loss)
        figures = self.problem.task.measured(measured.tally)
        for metric, value in zip(self.problem.task.metrics, figures, strict=True):
            self.curves[f"{part}_{metric.name}"].append(float(value))

    def record_outputs(self, outputs: dict[str, np.ndarray]) -> None:
        """Add an epoch to the curves of the scored parts."""
        if self.run.config.optimizer == "path" and "val" in outputs:
            self.outputs.append(outputs["val"])
            if 2 * sum(value.size for value in self.best.values()) <= MAX_NUMBERS:
                self.path.append(self.objective.weights())
        for part, logits in outputs.items():
            self.record(part, self.objective.measure(logits, self.problem.parts[part]))
        if self.computes_monitor:
            logits, value = outputs["val"], math.nan
            if np.isfinite(logits).all():  # targets of classes are the labels
                labels = self.problem.parts["val"].targets
                value = self.problem.task.figure(self.monitor.name, labels, logits)
            self.curves[self.monitored].append(value)

    def skip_outputs(self, epoch: int) -> None:
        """Add an epoch without validation; the run diverged if its loss is not finite."""
        for name, values in self.curves.items():
            if not name.startswith("train_"):
                values.append(math.nan)
        self.epochs, self.diverged = epoch + 1, not math.isfinite(self.curves["train_loss"][-1])
        self.running = not self.diverged

    def choose(self, epoch: int, epochs: int) -> None:
        """Keep the weights if the epoch is the best so far, and decide whether to continue."""
        config, curves = self.run.config, self.curves
        self.epochs = epoch + 1
        rank, loss = float(epoch), 0.0  # without validation nodes the last epoch counts
        if self.validated:
            rank = float(self.monitor.rank(curves[self.monitored][-1]))
            loss = curves["val_loss"][-1]
            rank = LOWEST if math.isnan(rank) else rank  # undefined values are all equal
        self.diverged = not (
            math.isfinite(curves["train_loss"][-1] + loss)
            and all(np.isfinite(values).all() for values in self.objective.params.values())
        )
        better = rank > self.best_rank
        if config.tie != "first":
            better |= rank == self.best_rank and loss < self.best_loss
        if better and not self.diverged:
            self.best, self.best_rank, self.best_loss = self.objective.weights(), rank, loss
            self.best_epoch = epoch
        patient = not self.validated or epoch - self.best_epoch < self.patience
        last = min(self.run.last or epochs, epochs)
        self.running = not self.diverged and patient and epoch + 1 < last

    def result(self, seconds: float) -> RunResult:
        """The result of the run."""
        history = {name: np.array(values) for name, values in self.curves.items()}
        return RunResult(
            self.run, self.best, self.best_epoch + 1, self.epochs, self.diverged, history, seconds,
            self.outputs, self.path, self.epochs,
        )  # fmt: skip


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # divergence is a result
def train_run(
    model: Any,
    problem: Problem,
    states: list[_State],
    stop: threading.Event,
    run: Run,
    report: Callable[[], None],
) -> RunResult:
    """Train one run to its end, or until ``stop``; its state joins ``states``."""
    check_time()
    state = _State(run, objective_of(model, problem, run), problem)
    states.append(state)
    check_time()
    started = time.perf_counter()  # without the set-up, which runs share
    objective = state.objective
    config, filters = run.config, objective.params.keys() - set(objective.map_weights)
    adam = Adam(objective.params, config, filters) if config.optimizer == "adam" else None
    solver: LBFGS | PenaltyPath | None = None
    if config.optimizer == "lbfgs":
        solver = LBFGS(objective.params, config, filters)
    elif config.optimizer == "path" and isinstance(objective, LinearObjective):
        skipped = 0 if run.start is None else config.epochs - 1
        solver = PenaltyPath(objective, run.start, skipped, run.rows)
    epochs = run.epochs if objective.learns else 1
    steps = 0

    def closure() -> tuple[float, Weights]:
        check_time()
        measured, gradients = objective.gradient(epoch)
        evaluated.append(measured)
        return measured.loss, gradients

    for epoch in range(epochs):
        evaluated: list[Measured] = []
        try:
            if solver is not None:
                solver.step(closure)
            elif adam is not None:
                for batch in shuffled_batches(len(problem.train), config.batch, run.seed, epoch):
                    check_time()
                    measured, gradients = objective.gradient(steps, batch)
                    adam.step(gradients)
                    share = 1.0 if batch is None else len(batch) / len(problem.train)
                    evaluated.append(Measured(share * measured.loss, measured.tally))
                    steps += 1
        except OutOfTimeError:
            if not state.validated or state.best_epoch < 0 or not keeps_best():
                raise  # without validation, a few epochs are not a result
            break
        if solver is not None:
            state.record("train", evaluated[-1 if config.optimizer == "path" else 0])
        else:
            tally = sum((batch.tally for batch in evaluated[1:]), evaluated[0].tally)
            state.record("train", Measured(sum(batch.loss for batch in evaluated), tally))
        last = epoch + 1 >= min(run.last or epochs, epochs)
        if last or not state.validated or (epoch + 1) % config.validate_every == 0:
            state.record_outputs(objective.outputs(None if last else epoch + 1))
            state.choose(epoch, epochs)
        else:
            state.skip_outputs(epoch)
        report()
        if not state.running or stop.is_set():
            break
    state.running = False
    return state.result(time.perf_counter() - started)


def objective_of(model: Any, problem: Problem, run: Run) -> Objective:
    """The objective that a run minimises; other types of models provide their own."""
    if isinstance(model, LinearModel):
        return LinearObjective(model, problem, run.config, run.seed)
    if isinstance(model, LabelModel):
        return LabelObjective(model, problem)
    return model.objective(problem, run.config, run.seed)


def with_neighbours(model: Model, source: Any, train: NodeSet, task: Task) -> Any:
    """``source`` with the labels of neighbours in ``train``, if the model uses them."""
    if not model.config.neighbour_labels:
        return source
    labelled, outputs = train.counted().distinct(), model.num_classes
    targets = task.targets(labelled.labels, outputs)
    columns = neighbour_columns(source.adjacency, labelled.nodes, targets, outputs, source.dtype)
    return source.with_neighbours(columns)


def train_runs(
    model: Model,
    source: Any,
    runs: Sequence[Run],
    sets: dict[str, NodeSet],
    *,
    progress: Report | None = None,
    task: str | Task = DEFAULT_TASK,
) -> list[RunResult]:
    """Train several runs of one model.

    Parameters
    ----------
    model : Model
        The model, see :func:`hoplite.models.build_model`.
    source : Propagation or HopRows
        A graph in memory, or rows of hop features in files.
    runs : sequence of Run
        Settings and seeds; one run is trained per thread.
    sets : dict of NodeSet
        "train"; "val" for early stopping and the best epoch (without it, the last epoch is kept);
        "test" only to record its curves, which influence nothing.
    progress : callable, optional
        Called with a :class:`TrainingProgress`.
    task : str or Task
        What the labels are.

    Returns
    -------
    list of RunResult
        In the order of ``runs``.

    Examples
    --------
    >>> import hoplite
    >>> from hoplite.engine.propagation import Propagation
    >>> from hoplite.models import build_model
    >>> from hoplite.training import NodeSet
    >>> graph = hoplite.load("cora")
    >>> nodes = NodeSet(graph.split.train, graph.labels[graph.split.train])
    >>> model = build_model(hoplite.model_config("lgc", hops=2), 1433, 7)
    >>> runs = [Run(TrainingConfig(epochs=3), seed) for seed in (0, 1)]
    >>> results = train_runs(model, Propagation(graph, hops=2), runs, {"train": nodes})
    >>> [result.epochs for result in results]
    [3, 3]
    """
    if not runs:
        raise ConfigError("runs is empty; pass at least one run.")
    if not len(sets["train"]):
        raise GraphError("the training set is empty; it needs at least one labelled node.")
    if model.config.hops != source.hops or model.config.basis != str(source.basis):
        raise ConfigError(
            f"the propagation has {source.hops} hops ({source.basis}) but the model has "
            f"{model.config.hops} ({model.config.basis}); use one configuration for both."
        )
    sets = {name: part for name, part in sets.items() if len(part)}
    for part in sets.values():
        part.check(source.num_nodes)
    task = find_task(task)
    for run in runs:
        check_number("seed", run.seed, 0, MAX_SEED, whole=True)
        check_batch(model.config, run.config)
        task.check_consistency(run.config.consistency)
        task.monitor(run.config.monitor)
    source = with_neighbours(model, source, sets["train"], task)
    problem = Problem.of(source, task, sets, model.num_classes)
    states: list[_State] = []
    stop, most = threading.Event(), max(run.epochs for run in runs)
    requested, runs = runs, list({run.key: run for run in reversed(runs)}.values())[::-1]
    train = partial(train_run, model, problem, states, stop)

    def report() -> None:
        if progress is not None:
            progress(_progress(states, len(runs), most))

    threads = min(len(runs), get_num_threads(), _runs_that_fit(model, problem, runs))
    with one_blas_thread:
        if threads > 1:
            jobs = [partial(train, run, lambda: None) for run in runs]
            results = in_threads(jobs, threads, report, stop)
        else:
            results = [train(run, report) for run in runs]
    _warn_of_divergence(results)
    by_key = {run.key: result for run, result in zip(runs, results, strict=True)}
    return [replace(by_key[run.key], run=run) for run in requested]


def in_threads(
    jobs: Sequence[Callable[[], Result]],
    threads: int,
    watch: Callable[[], None],
    stop: threading.Event,
) -> list[Result]:
    """Run the jobs on ``threads`` threads, which share the engine's threads.

    This thread calls ``watch`` regularly. An error sets ``stop`` and cancels waiting jobs.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="hoplite-run") as pool:
        try:
            with use_threads(max(1, get_num_threads() // threads)):
                futures = [pool.submit(copy_context().run, job) for job in jobs]
            wait_for(futures, watch)
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def wait_for(futures: Iterable[Future[Any]], watch: Callable[[], None]) -> None:
    """Wait for all futures and call ``watch`` regularly; the first error is raised at once."""
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, POLL_SECONDS)
        for future in done:
            future.result()
        watch()


def _runs_that_fit(model: Model, problem: Problem, runs: Sequence[Run]) -> int:
    """How many runs fit in a quarter of the free memory at a time.

    One if the rows come from files; the run then uses all threads of the engine.
    """
    if not isinstance(problem.source, Propagation):
        return 1
    weights = sum(math.prod(shape) for shape in model.shapes().values())
    columns = max(model.signal_columns(), 1)
    draws = max(run.config.draws for run in runs)
    numbers = 6 * weights + 8 * draws * problem.source.num_nodes * columns
    return max(1, available_memory() // 4 // (problem.source.dtype.itemsize * numbers))


def _progress(states: Sequence[_State], runs: int, epochs: int) -> TrainingProgress:
    states = list(states)
    done = sum(state.epochs if state.running else epochs for state in states)
    best = [float(s.monitor.rank(s.best_rank)) for s in states if s.best_epoch >= 0]
    validated = bool(states) and states[0].validated
    value = float(np.mean(best)) if validated and best else math.nan
    running = runs - sum(not state.running for state in states)
    farthest = max((state.epochs for state in states), default=0)
    return TrainingProgress(done, runs * epochs, farthest, epochs, running, value)


def _warn_of_divergence(results: Sequence[RunResult]) -> None:
    """Warn about runs that stopped because a loss or a weight was no longer finite."""
    by_epoch: dict[int, list[int]] = {}
    for result in results:
        if result.diverged:
            by_epoch.setdefault(result.epochs, []).append(result.run.seed)
    for epoch, seeds in by_epoch.items():
        warnings.warn(
            f"training diverged at epoch {epoch} for seeds {seeds}; the best epoch before that is "
            "used, if there is one; try a lower learning rate or fewer hops.",
            HopliteWarning,
            stacklevel=3,
        )


def require_result(results: Sequence[RunResult]) -> None:
    """Raise HopliteError if every run diverged in its first epoch."""
    if not any(result.best_epoch for result in results):
        count = "the run" if len(results) == 1 else f"all {len(results)} runs"
        raise HopliteError(
            f"{count} diverged in the first epoch, so there is no model; try a lower learning "
            "rate, fewer hops, another operator, basis 'chebyshev', or smaller features."
        )
