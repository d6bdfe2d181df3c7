"""``auto``: successive halving over the linear models, by validation.

Three rungs, of n0 >= n1 >= n2 candidates, in the order of their file:

    rung 0    n0 candidates, one seed, 100 epochs   the n1 best go on
    rung 1    n1 candidates, one seed, 300 epochs   the n2 best go on
    rung 2    n2 finalists, all seeds, all epochs   the simplest of equals is chosen

A rung of one candidate is left out. The chosen one is trained again, and only then
the test nodes are read: the rungs train on a graph whose split has none.

The choice is a function of (n0, n1, n2), the seeds, the options and the graph, on any machine. With
a time budget, the candidates that a rung had time for, in its order, decide these three numbers.
They are recorded, and ``trials="48/16/6"`` repeats the choice.

The candidates are a TOML file of tables, each a model with values of its settings:

    [[try]]
    model = "ppr"
    hops = 10
    weight_decay = [1e-5, 5e-4]

A table is the product of its lists, the last key varying fastest. The order of the tables is the
order of trial: whoever tries N candidates tries the first N. Keys are the options of ``train``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import re
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import (
    ConfigError,
    GridError,
    HopliteError,
    HopliteWarning,
    SearchError,
    nearest_hint,
    plural,
)
from hoplite.files import without_nan
from hoplite.formatting import Described, Description, Table
from hoplite.graph import Graph, Split
from hoplite.labels import AUTO
from hoplite.models import Model, address_of, all_settings, build_model, find_model, split_options
from hoplite.models.saved import CHOICE, check_target
from hoplite.models.trained import TrainedModel
from hoplite.progress import steps_bar, watched
from hoplite.search.executors import find_executor
from hoplite.search.results import TOP, ConfigurationScores, format_spread
from hoplite.search.run import check_comparable, check_split, full_options, open_file
from hoplite.search.space import (
    MAX_CONFIGURATIONS,
    list_products,
    parse_toml,
    read_dimension,
    read_grid,
    read_text,
)
from hoplite.search.trials import FILE, SearchFile, Trial
from hoplite.store import open_data
from hoplite.tasks import Metric, task_of
from hoplite.tasks.base import title_of
from hoplite.training.optimizers import LBFGS_ITERATIONS
from hoplite.training.results import TrainingResult, as_seeds, number, train

log = logging.getLogger("hoplite.search")

BUDGET = "60s"
EPOCHS = (100, 300)  # of the first two rungs: with dropped nodes a model learns slowly
SHARES = (0.35, 0.6, 0.75)  # of the budget, when each rung ends
MIN_EPOCHS = 20  # of the chosen one, however short the time
KEPT = 3  # one of so many goes on from rung to rung
MAX_FINALISTS = 8
UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}

Sizes = tuple[int, int, int]
Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Candidate:
    """Options of ``train`` for ``model``; ``listed`` are those that its table names."""

    position: int  # in the order of trial
    model: str
    options: dict[str, Any]
    listed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What tells it from the others.

        >>> str(Candidate(0, "ppr", {"hops": 10, "weight_decay": 1e-5}, ("hops", "weight_decay")))
        'ppr: hops 10, weight decay 1e-05'
        """
        values = (f"{name.replace('_', ' ')} {_format(self.options[name])}" for name in self.listed)
        return f"{self.model}: {', '.join(values)}".removesuffix(": ")

    def simplicity(self, graph: Graph) -> tuple[int, int, int]:
        """The smaller, the simpler: learned numbers, then hops, then the place in the file.

        A map of d features to m outputs is d m numbers, and a filter is a few; so a fixed filter is
        simpler than a learned one, that simpler than one for every class, and hop blocks, a map for
        every hop, are the least simple.
        """
        model = self.build(graph)
        learned = sum(math.prod(shape) for shape in model.shapes().values())
        return learned, model.config.hops, self.position

    def build(self, graph: Graph) -> Model:
        """The model; ConfigError if it is not one for this graph."""
        config, training = split_options(self.model, self.options)
        task = task_of(graph.labels)
        task.check_consistency(training.consistency)
        outputs = task.outputs(graph.labels, graph.class_names)
        return build_model(config, graph.num_features, outputs, graph.relation_weights)


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_candidates(
    source: str | Path | None = None,
    fixed: Mapping[str, Any] | None = None,
    graph: Graph | None = None,
) -> tuple[list[Candidate], list[str]]:
    """The candidates of a file, by default Hoplite's own, in their order.

    ``fixed`` options replace the file's wherever the model has them. Candidates that they make
    equal are tried once. Those that they, or the ``graph``, make impossible are left out: the
    second value says why.

    >>> candidates, _ = list_candidates()
    >>> candidates[0].model, candidates[0].options["hops"]
    ('sgc', 0)
    """
    fixed = dict(fixed or {})
    check_fixed(fixed)
    name = "auto" if source is None else str(source)
    tables = _parse(read_grid("auto") if source is None else read_text("candidates", source), name)
    models = list(dict.fromkeys(model for model, _ in tables))
    for option in fixed:
        if not any(option in find_model(model).settings() for model in models):
            raise ConfigError(
                f"{option} is given, but none of the candidates has it ({', '.join(models)}); "
                "leave it out, or train a model that has it."
            )
    candidates: dict[str, Candidate] = {}
    settings: list[dict[str, Any]] = []
    left_out: dict[str, ConfigError] = {}
    for model, listed in ((model, one) for model, table in tables for one in table):
        try:
            full_options(model, listed)
        except ConfigError as error:
            raise GridError(f"candidates {name}, {model}: {error}") from error
        own = find_model(model).settings()
        options = listed | {key: value for key, value in fixed.items() if key in own}
        candidate = Candidate(len(candidates), model, options, tuple(listed))
        try:
            settings.append(full_options(model, options))
            if graph is not None:
                candidate.build(graph)
        except ConfigError as error:
            left_out.setdefault(f"{model}: {error}", error)
        else:
            candidates.setdefault(f"{model} {settings[-1]}", candidate)
    if not candidates:
        raise next(iter(left_out.values()))
    check_comparable(settings)
    return list(candidates.values()), list(left_out)


def check_fixed(fixed: Mapping[str, Any]) -> None:
    """ConfigError for an option that is unknown, or whose value no model takes."""
    known = all_settings()
    for name, value in fixed.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not an option of train.{nearest_hint(name, known)}")
        known[name].metadata["check"](name, value)


def _parse(text: str, name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """For every table its model and its configurations."""
    content = parse_toml(text, f"candidates {name}")
    tables = content.pop("try", None)
    content.pop("note", None)
    if content or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise GridError(
            f"candidates {name} is not a file of candidates; give tables [[try]], and nothing else "
            "but a note."
        )
    parsed = []
    for position, table in enumerate(tables, start=1):
        where = f"candidates {name}, table {position}"
        if not isinstance(table.get("model"), str):
            raise GridError(f"{where} has no model; add one, such as model = 'ppr'.")
        model = find_model(table.pop("model")).name
        branch = {key: read_dimension(key, value, where) for key, value in table.items()}
        parsed.append((model, list_products([branch], where)))
    return parsed


@dataclass(frozen=True)
class Finalist:
    """A candidate with its scores of one rung."""

    candidate: Candidate
    rung: int
    result: ConfigurationScores

    @property
    def order(self) -> tuple[float, ...]:
        """What sorts them, the best first; of equals, the first in the file."""
        return *self.result.order, self.candidate.position


def decide(
    finalists: Sequence[Finalist], graph: Graph, monitor: Metric
) -> tuple[Finalist, Finalist, float]:
    """The simplest of the finalists that are as good as the best; the best; what counts as equal.

    A finalist is as good as the best if the best's lead in mean score over the r seeds is at most

        max( sqrt(s_best^2 / r + s_other^2 / r),  1 / n_val )

    that is the standard error of the difference by the seeds, and, of shares of the nodes such as
    the accuracy, one validation node. Simple is what :meth:`Candidate.simplicity` says.

    Why not the binomial error of one accuracy: all finalists are judged on the same nodes, and are
    wrong at mostly the same ones, which says nothing of their difference. What does is the number
    D of nodes where only one of two is right, with an error of sqrt(D) / n_val: a lead of one node
    is never more than that, whatever D is, and larger ones may be.
    """
    best = min(finalists, key=lambda one: one.order)
    judged = len(graph.split.val) or len(graph.split.train)  # in folds
    node = 1 / judged if monitor.percent else 0.0
    equal, margins = [], []
    for one in [one for one in finalists if one.result.lost == best.result.lost]:
        margin = max(_error(best.result.scores, one.result.scores), node)
        lead = float(np.nanmean(best.result.scores) - np.nanmean(one.result.scores))
        if one is best or lead <= margin + 1e-9:
            equal.append(one)
            margins.append(margin)
    chosen = min(equal, key=lambda one: one.candidate.simplicity(graph))
    return chosen, best, margins[equal.index(chosen)]


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """Standard error of the difference of two means over the seeds; 0 for a single seed."""
    if len(one) < 2:
        return 0.0
    error = math.sqrt((np.nanvar(one, ddof=1) + np.nanvar(other, ddof=1)) / len(one))
    return error if math.isfinite(error) else 0.0


def parse_seconds(value: Any) -> float:
    """The seconds that ``"60s"``, ``"1.5m"``, ``"2h"`` or a number means.

    >>> parse_seconds("60s"), parse_seconds("1.5m"), parse_seconds(7)
    (60.0, 90.0, 7.0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(value).lower())
    seconds = float(match[1]) * UNITS.get(match[2], 0) if match else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"budget is {value!r}; give a time such as 60s, 5m or 1h, above 0, or seconds."
        )
    return seconds


def parse_trials(value: Any) -> Sizes:
    """How many candidates each rung trains: a number of the first, or of all three.

    >>> parse_trials(48), parse_trials("48/16/2"), parse_trials(2)
    ((48, 16, 6), (48, 16, 2), (2, 2, 2))
    """
    match = re.fullmatch(r"([0-9]{1,9})(?:/([0-9]{1,9})/([0-9]{1,9}))?", str(value))
    if match is not None:
        n0 = int(match[1])
        n1, n2 = (int(match[2]), int(match[3])) if match[2] else default_sizes(n0)[1:]
        if MAX_CONFIGURATIONS >= n0 >= n1 >= n2 >= 1:
            return n0, n1, n2
    raise ConfigError(
        f"trials is {value!r}; give how many candidates to try, such as 48, or how many in each of "
        "the three rungs, such as 48/16/6, none more than before."
    )


def default_sizes(n0: int) -> Sizes:
    """A third goes on to the second rung, a ninth, 3 to 8, to the third."""
    least = min(n0, KEPT)
    last = min(MAX_FINALISTS, math.ceil(n0 / KEPT**2))
    return n0, max(least, math.ceil(n0 / KEPT)), max(least, last)


@dataclass(frozen=True)
class TriedCandidate:
    """How far a candidate came, its validation score, and its time."""

    candidate: str
    model: str
    options: dict[str, Any]
    rung: int
    val: float | None  # mean of the monitor over the seeds of its last rung
    seeds: int
    seconds: float
    chosen: bool = False


@dataclass(frozen=True, eq=False)
class AutoResult(Described):
    """What ``auto`` chose, and what it tried.

    Parameters
    ----------
    trained : TrainingResult
        The chosen one, with its test scores.
    chosen : Candidate
    candidates : list of TriedCandidate
        Those that came furthest first.
    sizes : tuple of int
        How many candidates each rung had.
    why : str
    monitor : Metric
    budget : float or None
    seconds : float
    budget_notes : list of str
        What the time did not allow.
    left_out : list of str
        Candidates that the given options, or the graph, make impossible.
    """

    trained: TrainingResult
    chosen: Candidate
    candidates: list[TriedCandidate]
    sizes: Sizes
    why: str
    monitor: Metric
    budget: float | None
    seconds: float
    budget_notes: list[str]
    left_out: list[str]

    @property
    def model(self) -> TrainedModel:
        """The chosen model, of the seed that is best on validation."""
        return self.trained.model

    @property
    def test_accuracy(self) -> float:
        """Of the chosen model, as :attr:`TrainingResult.test_accuracy`."""
        return self.trained.test_accuracy

    @property
    def val_accuracy(self) -> float:
        """Of the chosen model, as :attr:`TrainingResult.val_accuracy`."""
        return self.trained.val_accuracy

    @property
    def trials(self) -> str:
        """What repeats the choice: ``trials=result.trials``."""
        return "/".join(map(str, self.sizes))

    def summary(self) -> dict[str, Any]:
        """The choice as plain values, without the test nodes' scores."""
        names = ("why", "trials", "budget", "seconds", "budget_notes", "left_out")
        return without_nan(
            {
                "chosen": self.chosen.model,
                "options": self.chosen.options,
                "monitor": self.monitor.name,
                **{name: getattr(self, name) for name in names},
                "candidates": [dataclasses.asdict(one) for one in self.candidates],
            }
        )

    def __repr__(self) -> str:
        return f"AutoResult({self.chosen}; {plural(self.sizes[0], 'candidate')})"

    def _describe(self) -> Description:
        score = self.trained.task.score
        facts = {"chosen": str(self.chosen)}
        for part, name in (("val", "validation"), ("test", "test")):
            values = [run.scores[f"{part}_{score.name}"] for run in self.trained.runs]
            facts[f"{name} {title_of(score.name)}"] = format_spread(values)
        facts["tried"] = f"{plural(self.sizes[0], 'candidate')} in {self.seconds:.3g} s"
        rows = [
            [one.candidate, str(one.rung), self.monitor.shown(one.val)]
            for one in self.candidates[:TOP]
        ]
        table = Table(["candidate", "rung", f"validation {self.monitor.title}"], rows)
        return Description("AutoResult", facts, [table], [self.why, *self.budget_notes])


def auto(
    data: Any,
    *,
    budget: str | float | None = None,
    trials: int | str | None = None,
    seeds: int | Sequence[int] = 5,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    candidates: str | Path | None = None,
    progress: bool | Report | None = False,
    task: str = AUTO,
    **options: Any,
) -> AutoResult:
    """Choose a linear model for ``data`` and train it: successive halving by validation.

    Parameters
    ----------
    data : whatever :func:`hoplite.train` takes but a hop store, with validation nodes
    budget : str or float, default "60s"
        Wall time such as "60s", "5m" or a number of seconds.
    trials : int or str, optional
        How many candidates instead, such as 48, or in each rung, such as "48/16/6".
    seeds : int or sequence of int, default 5
        Of the finalists and of the chosen one.
    out : path, optional
        Folder of the model; ``auto/search.sqlite`` in it has all trials. The same call continues.
    overwrite : bool, default False
        Replace a model that is in ``out``, and start the choice anew.
    candidates : path, optional
        A TOML file of what is tried, see docs/searching.md; by default Hoplite's own.
    progress : bool or callable
        True for a bar; or called with what is being done and the share that is done.
    task, **options
        As for ``train``; an option holds for all candidates that have it.

    Examples
    --------
    >>> import hoplite
    >>> result = hoplite.auto("cora", trials=4, seeds=1, epochs=20, hops=2)
    >>> result.trials, [one.rung for one in result.candidates]
    ('4/3/3', [2, 2, 2, 0])
    """
    if budget is not None and trials is not None:
        raise ConfigError(f"is {budget!r} and trials is {trials!r}; give one of them.", "budget")
    sizes = None if trials is None else list(parse_trials(trials))
    seconds = parse_seconds(BUDGET if budget is None else budget) if trials is None else None
    folder = None if out is None else Path(out) / CHOICE
    if out is not None and folder is not None:
        resumed = (folder / FILE).is_file()  # then the model is this call's own
        check_target(Path(out), overwrite=overwrite or resumed)
    list_candidates(candidates, options)  # mistakes are reported before any work
    graph = open_data(data, task=task).in_memory()
    check_split(graph)
    listed, left_out = list_candidates(candidates, options, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # of classes: it was given before
        blind = graph.with_split(Split(graph.split.train, graph.split.val))
    names = [f"{one.model} {one.options}" for one in listed]
    call = {"trials": sizes, "seeds": as_seeds(seeds), "options": options, "candidates": names}
    call = json.loads(json.dumps(call, default=str))
    if overwrite and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    with (
        watched(progress, steps_bar, "choosing a model") as report,
        open_file(folder, blind) as file,
    ):
        plan = file.fact("plan", _Plan) or _Plan(call)
        for name in call:
            if plan.call.get(name) != call[name]:
                raise SearchError(
                    f"{folder} holds a choice with other settings: {name} differs. Give another "
                    "folder, or overwrite it."
                )
        if sizes is not None:
            plan.sizes, plan.rungs = [min(size, len(listed)) for size in sizes], len(SHARES)
        halving = _Halving(blind, listed, file, plan, seconds, report)
        chosen, why = halving.run()
        final = halving.last_training(chosen)
        halving.report(f"{chosen.model}, the chosen one", len(SHARES), 0)
        result = AutoResult(
            trained=train(graph, chosen.model, **final),
            chosen=chosen,
            candidates=halving.tried(chosen),
            sizes=(plan.sizes[0], plan.sizes[1], plan.sizes[2]),
            why=why,
            monitor=halving.monitor,
            budget=seconds,
            seconds=halving.elapsed(),
            budget_notes=plan.notes,
            left_out=left_out,
        )
    log.info("%s", result.why)
    if out is not None:
        kept = result.trained.summary() | {"auto": result.summary()}
        result.model.save(Path(out), overwrite=True, result=kept)
    return result


@dataclass
class _Plan:
    """What is decided so far, kept in the search's file."""

    call: dict[str, Any]
    sizes: list[int] = field(default_factory=list)  # decided up to ``rungs``
    rungs: int = 0
    notes: list[str] = field(default_factory=list)
    spent: float = 0.0
    final: dict[str, int] = field(default_factory=dict)  # seeds and epochs of the last training


class _OutOfTimeError(Exception):
    """Ends a rung whose time is over."""


class _Halving:
    """The rungs of one choice."""

    def __init__(
        self,
        graph: Graph,
        candidates: list[Candidate],
        file: SearchFile,
        plan: _Plan,
        budget: float | None,
        report: Report | None,
    ) -> None:
        self.graph, self.candidates, self.file, self.plan = graph, candidates, file, plan
        self.budget, self._report = budget, report
        self._started = time.monotonic() - plan.spent
        self.known: dict[int, list[Finalist]] = {}  # by position, rung after rung
        monitor = str(candidates[0].options.get("monitor", "auto"))
        self.monitor = task_of(graph.labels).monitor(monitor)

    def elapsed(self) -> float:
        """Seconds since the beginning, those of an interrupted call included."""
        return time.monotonic() - self._started

    def report(self, what: str, rung: int, share: float) -> None:
        """Say what is being done; with a budget, the share is that of the time."""
        share = (rung + share) / (len(SHARES) + 1)
        share = share if self.budget is None else min(1.0, self.elapsed() / self.budget)
        if self._report is not None:
            self._report(what, share)

    def keep(self) -> None:
        """Write down what is decided, and the time."""
        self.plan.spent = self.elapsed()
        self.file.keep_fact("plan", self.plan)

    def run(self) -> tuple[Candidate, str]:
        """Train the rungs; the chosen candidate and the sentence that says why."""
        plan, standing = self.plan, self.candidates
        finalists: list[Finalist] = []
        for rung in range(len(SHARES)):
            size = plan.sizes[rung] if plan.sizes else len(standing)
            if rung and size == 1:
                continue  # nobody is left to compare with
            scored = self._train(rung, standing[:size])
            if len(scored) < size:
                left = f"{len(scored)} of {plural(size, 'candidate')}"
                plan.notes.append(f"rung {rung} had time for {left}")
            if not plan.sizes:
                plan.sizes = list(default_sizes(len(scored)))
            plan.sizes[rung:] = [min(n, max(1, len(scored))) for n in plan.sizes[rung:]]
            plan.rungs = max(plan.rungs, rung + 1)
            self.keep()
            standing = [
                one.candidate for one in sorted(scored, key=lambda one: one.order)
            ] or standing
            finalists = scored if rung == len(SHARES) - 1 else []
        if len(finalists) < 2:
            of = plural(plan.sizes[0], "candidate")
            return standing[0], f"{standing[0]} was chosen: the best of {of}."
        if all(one.result.lost == len(one.result.val) for one in finalists):
            raise HopliteError(
                "every finalist diverged, so there is nothing to choose; give a lower lr, or other "
                "options."
            )
        return self._decided(finalists)

    def _decided(self, finalists: list[Finalist]) -> tuple[Candidate, str]:
        chosen, best, margin = decide(finalists, self.graph, self.monitor)
        of = f"{len(finalists)} finalists of {self.plan.sizes[0]} tried"
        what, score = title_of(self.monitor.name), self._score(chosen)
        start = f"{chosen.candidate} was chosen: its validation {what} {score} is"
        if chosen is best:
            return chosen.candidate, f"{start} the best of {of}, and no simpler one is as good."
        learned, hops, _ = chosen.candidate.simplicity(self.graph)
        others, more, _ = best.candidate.simplicity(self.graph)
        return chosen.candidate, (
            f"{start} within {margin:.3g} of the best of {of} ({best.candidate}: "
            f"{self._score(best)}), and it is simpler: it learns {learned:,} numbers with {hops} "
            f"hops, the best {others:,} with {more}."
        )

    def _score(self, one: Finalist) -> str:
        return f"{self.monitor.rank(float(np.nanmean(one.result.scores))):.3g}"

    def _train(self, rung: int, candidates: list[Candidate]) -> list[Finalist]:
        """Train candidates; those at the front of the list that had time, with their scores."""
        seeds = self.plan.call["seeds"] if rung == 2 else self.plan.call["seeds"][:1]
        trials = [
            Trial(address_of(find_model(one.model)), self._options(one, rung), seed)
            for one in candidates
            for seed in seeds
        ]
        queue = self.file.queue(trials)

        def late() -> bool:
            bounded = self.budget is not None and rung >= self.plan.rungs
            return bounded and self.elapsed() > SHARES[rung] * (self.budget or 0.0)

        def watch() -> None:
            self.report(f"rung {rung}", rung, queue.done() / len(trials))
            if late() and (rung > 0 or queue.done(1)):  # one candidate is always tried
                raise _OutOfTimeError

        todo = self.file.queue(trials[: int(rung == 0)]) if late() else queue
        if todo.done() < len(todo.ids):
            with contextlib.suppress(_OutOfTimeError):
                find_executor("threads", None, None).run(todo, self.graph, watch)
        scored, finished = [], queue.finished()
        for i, one in enumerate(candidates):
            own = [t for t in finished[i * len(seeds) : (i + 1) * len(seeds)] if t is not None]
            if len(own) < len(seeds):
                break
            scored.append(Finalist(one, rung, ConfigurationScores.of(i, own)))
            known = self.known.setdefault(one.position, [])
            known[:] = [*(other for other in known if other.rung < rung), scored[-1]]
        self.keep()
        return scored

    def _options(self, candidate: Candidate, rung: int) -> dict[str, Any]:
        """A rung's options: few epochs at first, of L-BFGS fewer, which makes many steps in one."""
        training = split_options(candidate.model, candidate.options)[1]
        epochs = training.epochs
        if rung < len(EPOCHS):
            steps = LBFGS_ITERATIONS if training.optimizer == "lbfgs" else 1
            epochs = min(epochs, math.ceil(EPOCHS[rung] / steps))
        return full_options(candidate.model, candidate.options | {"epochs": epochs})

    def last_training(self, chosen: Candidate) -> dict[str, Any]:
        """The options of the chosen one's training, within what is left of the budget.

        If it is sure to take longer, there are fewer seeds, and then fewer epochs. They are kept
        first, so that the same call gives the same model, whatever happens.
        """
        plan, epochs = self.plan, split_options(chosen.model, chosen.options)[1].epochs
        seeds = plan.call["seeds"]
        if not plan.final:
            whole = plan.final = {"seeds": len(seeds), "epochs": epochs}
            last = self.known[chosen.position][-1]
            if self.budget is not None and last.rung < 2:
                seconds = max(last.result.seconds, 1e-9) / max(1, last.result.epochs)  # of an epoch
                affordable = int(max(0.0, self.budget - self.elapsed()) / seconds)
                fewer = min(len(seeds), max(1, affordable // epochs))
                most = min(epochs, max(MIN_EPOCHS, affordable)) if fewer == 1 else epochs
                plan.final = {"seeds": fewer, "epochs": most}
                if plan.final != whole:
                    short = f"{plural(fewer, 'seed')} and at most {most} epochs"
                    plan.notes.append(f"the chosen one has {short}")
            self.keep()
        fewer = seeds[: plan.final["seeds"]]
        return chosen.options | {"epochs": plan.final["epochs"], "seeds": fewer}

    def tried(self, chosen: Candidate) -> list[TriedCandidate]:
        """Every candidate that was tried, those that came furthest first, then the best."""
        last = [rungs[-1] for rungs in self.known.values()]
        return [
            TriedCandidate(
                candidate=str(one.candidate),
                model=one.candidate.model,
                options=one.candidate.options,
                rung=one.rung,
                val=number(self.monitor.rank(float(np.mean(one.result.scores)))),
                seeds=len(one.result.scores),
                seconds=sum(rung.result.seconds for rung in self.known[one.candidate.position]),
                chosen=one.candidate == chosen,
            )
            for one in sorted(last, key=lambda one: (-one.rung, *one.order))
        ]
