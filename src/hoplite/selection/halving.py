"""``auto``: successive halving over the linear models, by validation.

Three rungs, of n0 >= n1 >= n2 candidates, in the order of :mod:`hoplite.selection.trials`:

    rung 0    n0 candidates, one seed, 100 epochs   the n1 best go on
    rung 1    n1 candidates, one seed, 300 epochs   the n2 best go on
    rung 2    n2 finalists, all seeds, all epochs   the simplest of equals is chosen

A rung that would let everybody through is left out. The chosen one is trained again, and only then
the test nodes are read: the rungs train on a graph whose split has none.

The choice is a function of (n0, n1, n2), the seeds, the options and the graph, on any machine. With
a time budget, what was finished when the time was up decides these three numbers: n0 is the number
of candidates of the tables that rung 0 had time for; n1 and n2 are the usual ones, or fewer if time
is short. They are recorded, and ``trials="48/16/6"`` repeats the choice.

    DIR/auto/plan.json           the settings and the sizes so far; another one is refused
    DIR/auto/rung-0/00-sgc/      a ledger for each table of each rung, for each finalist
    DIR/auto/auto.json           what was tried and why one was chosen
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import ConfigError, HopliteError, HopliteWarning, plural
from hoplite.files import without_nan
from hoplite.formatting import Described, Description
from hoplite.graph import Graph, Split
from hoplite.labels import AUTO
from hoplite.machine import VERSION
from hoplite.models import split_options
from hoplite.models.saved import CHOICE, check_target
from hoplite.models.trained import TrainedModel
from hoplite.progress import steps_bar, watched
from hoplite.selection.budget import (
    Clock,
    OutOfTimeError,
    Sizes,
    parse_seconds,
    parse_trials,
    usual_sizes,
)
from hoplite.selection.cells import full_options, graph_digest
from hoplite.selection.ledger import SETTINGS, Ledger
from hoplite.selection.plan import (
    FORMAT,
    PLAN,
    RESULT,
    Plan,
    choice_folder,
    opened_plan,
    write,
)
from hoplite.selection.ranking import candidates
from hoplite.selection.runner import SearchProgress, check_validated, run_search
from hoplite.selection.shown import auto_shown
from hoplite.selection.simplest import Scored, decide
from hoplite.selection.trials import Trial, check_fixed, list_trials, possible, warn_of_idle
from hoplite.store import open_data
from hoplite.tasks import Metric, task_of
from hoplite.tasks.base import title_of
from hoplite.training.optimizers import LBFGS_ITERATIONS
from hoplite.training.results import TrainingResult, as_seeds, number, train

log = logging.getLogger("hoplite.search")

BUDGET = "60s"
EPOCHS = (100, 300)  # of the first two rungs: with dropped nodes a model learns slowly
STEPS = {"lbfgs": LBFGS_ITERATIONS}  # of an epoch, where it is more than one
# Shares of the budget: no table of rung 0 begins after the first, and what is being trained stops
# at the second; rung 1 is made to end by the third and stops at the fourth; all ends by the last.
FIRST, FIRST_STOP, SECOND, SECOND_STOP, LAST = 0.35, 0.45, 0.6, 0.7, 0.93
LEAST_SHARE = 0.2  # of the budget that the race has, however long it took to begin
LEAST_EPOCHS = 20  # of the chosen one: with fewer it would be no model
SLOWER = 1.3  # an estimate of time, times this: the machine may become busier

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Tried:
    """One line of what was tried: how far a candidate came, its validation score, its time."""

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
    """What ``auto`` chose, and what it tried."""

    trained: TrainingResult  # the chosen one, with its test scores
    chosen: Trial
    tried: list[Tried]  # those that came furthest first
    sizes: Sizes
    why: str
    monitor: Metric
    budget: float | None
    seconds: float
    shortened: list[str]  # what the time did not allow
    left_out: list[str]  # candidates that the given options, or the graph, make impossible

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
        """The choice as plain values, without a word of the test nodes."""
        return without_nan(
            {
                "chosen": self.chosen.model,
                "options": self.chosen.options,
                "why": self.why,
                "trials": self.trials,
                "budget": self.budget,
                "seconds": self.seconds,
                "monitor": self.monitor.name,
                "shortened": self.shortened,
                "left_out": self.left_out,
                "tried": [dataclasses.asdict(one) for one in self.tried],
            }
        )

    def __repr__(self) -> str:
        return f"AutoResult({self.chosen}; {plural(self.sizes[0], 'trial')})"

    def _describe(self) -> Description:
        return auto_shown(self)


def auto(
    graph: Any,
    *,
    budget: str | float | None = None,
    trials: int | str | None = None,
    seeds: int | Sequence[int] = 5,
    out: str | os.PathLike[str] | None = None,
    candidates: str | Path | None = None,
    progress: bool | Tell | None = False,
    task: str = AUTO,
    **options: Any,
) -> AutoResult:
    """Choose a linear model for ``graph`` and train it: successive halving by validation.

    Parameters
    ----------
    graph : all that :func:`hoplite.train` takes but a hop store, with validation nodes
    budget : wall time such as "60s" (the default), "5m" or a number of seconds
    trials : how many candidates instead, such as 48, or in each rung, such as "48/16/6"
    seeds : of the finalists and of the chosen one
    out : folder of the model; how it was chosen is in its ``auto``. The same call goes on there
    candidates : a TOML file of what is tried, see docs/searching.md; None for Hoplite's own
    progress : True for a bar on standard error, or in a notebook; or called with what is being
        done and the share that is done
    task, options : as for ``train``; an option holds for all candidates that have it

    >>> import hoplite
    >>> found = hoplite.auto("cora", trials=4, seeds=1, epochs=20, hops=2)
    >>> found.trials, len(found.tried), [one.rung for one in found.tried]
    ('4/3/3', 4, [2, 2, 2, 0])
    """
    check_fixed(options)  # not all that ``run`` takes is one
    if out is not None:
        there = (Path(out) / CHOICE / PLAN).is_file()  # then the model is this call's own
        check_target(Path(out), overwrite=there)
    with watched(progress, steps_bar, "choosing a model") as tell:
        result = run(
            graph, budget=budget, trials=trials, seeds=seeds, out=out, candidates=candidates,
            progress=tell, task=task, **options,
        )  # fmt: skip
    log.info("%s", result.why)
    if out is not None:
        kept = result.trained.summary() | {"auto": result.summary()}
        result.model.save(Path(out), overwrite=True, result=kept)
    return result


def run(
    graph: Any,
    *,
    budget: str | float | None = None,
    trials: int | str | None = None,
    seeds: int | Sequence[int] = 5,
    out: str | os.PathLike[str] | None = None,
    candidates: str | Path | None = None,
    progress: Tell | None = None,
    task: str = AUTO,
    spent: float = 0.0,
    anew: bool = False,
    **options: Any,
) -> AutoResult:
    """:func:`auto` without saving the model; ``spent`` seconds of the budget are gone already.

    These are the start of a process; what an earlier call has used is in its folder.

    With ``anew``, a choice that is finished or of other settings is removed from ``out`` first.
    """
    if budget is not None and trials is not None:
        raise ConfigError(
            f"budget is {budget!r} and trials is {trials!r}; give one of them: a time, or a number "
            "of candidates."
        )
    asked = None if trials is None else parse_trials(trials)
    seconds = parse_seconds(BUDGET if budget is None else budget) if trials is None else None
    chosen_seeds, (listed, left_out) = as_seeds(seeds), list_trials(candidates, options)
    data = open_data(graph, task=task).in_memory()
    check_validated(data)
    listed, impossible = possible(listed, data)
    left_out += impossible
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # of classes: it was told before
        blind = data.with_split(Split(data.split.train, data.split.val))
    plan = Plan(
        format=FORMAT,
        hoplite=VERSION,
        graph=graph_digest(blind),
        budget=seconds,
        trials=None if asked is None else list(asked),
        seeds=chosen_seeds,
        options=options,
        candidates=[f"{one.model} {json.dumps(one.options, default=str)}" for one in listed],
    )
    with choice_folder(out) as folder:
        plan = opened_plan(folder, plan, anew=anew)
        racing = None  # what is decided stays so, however late it is
        if seconds is not None and not plan.final and not (folder / RESULT).exists():
            # to end, a process needs about half of what it needed to begin
            racing = max(seconds - 1.5 * spent, LEAST_SHARE * seconds)
        race = _Race(blind, listed, folder, plan, Clock(racing, plan.spent), progress or _silent)
        choice, why = race.run()
        final = race.last_training(choice)
        race.tell(f"{choice.model}, the chosen one", 0.97)
        trained = train(data, choice.model, **final)
        result = AutoResult(
            trained=trained,
            chosen=choice,
            tried=race.tried(choice, trained),
            sizes=race.sizes,
            why=why,
            monitor=race.monitor,
            budget=seconds,
            seconds=race.clock.elapsed + spent,
            shortened=race.plan.shortened,
            left_out=left_out,
        )
        race.keep()
        write(folder / RESULT, result.summary())
    return result


class _Race:
    """The rungs of one choice in one folder."""

    def __init__(
        self, graph: Graph, trials: list[Trial], folder: Path, plan: Plan, clock: Clock, tell: Tell
    ) -> None:
        self.graph, self.trials, self.folder = graph, trials, folder
        self.plan, self.clock, self._tell = plan, clock, tell
        self.known: dict[int, list[Scored]] = {}  # by position, rung after rung
        self.slowest = 0.0  # seconds of an epoch and run that could not be finished
        monitor = str(trials[0].options.get("monitor", "auto"))
        self.monitor = task_of(graph.labels).monitor(monitor)

    @property
    def sizes(self) -> Sizes:
        n0, n1, n2 = self.plan.sizes
        return n0, n1, n2

    def run(self) -> tuple[Trial, str]:
        """Train the rungs; the chosen trial and the sentence that says why."""
        if self.plan.trials is not None:
            asked = [min(size, len(self.trials)) for size in self.plan.trials]
            self.keep(sizes=asked)
        standing = self._first()
        warn_of_idle(self.plan.options, [one.model for one in self.trials[: self.sizes[0]]])
        standing = self._second(standing)
        finalists = self._finals(standing)
        n0 = self.sizes[0]
        if not finalists:
            return standing[0], (
                f"{standing[0]} was chosen: the best of {plural(n0, 'candidate')} tried, and the "
                "only one that was left for the last rung."
                if n0 > 1
                else f"{standing[0]} was chosen: the only candidate that was tried."
            )
        chosen, best, margin = decide(finalists, self.graph, self.monitor)
        what, of = title_of(self.monitor.name), f"{len(finalists)} finalists of {n0} tried"
        score, first = self._shown(chosen), self._shown(best)
        if chosen is best:
            return chosen.trial, (
                f"{chosen.trial} was chosen: its validation {what} {score} is the best of {of}, "
                "and no simpler one is as good."
            )
        learned, others = (one.trial.simplicity(self.graph)[0] for one in (chosen, best))
        simpler = (
            f"it learns {learned:,} numbers instead of {others:,}"
            if learned < others
            else f"it has {_hops(chosen.trial)} hops instead of {_hops(best.trial)}"
            if _hops(chosen.trial) < _hops(best.trial)
            else "it stands earlier in the list of candidates"
        )
        return chosen.trial, (
            f"{chosen.trial} was chosen: its validation {what} {score} is within "
            f"{self._unit(margin)} of the best of {of} ({best.trial}: {first}), and it is the "
            f"simpler one: {simpler}."
        )

    def _shown(self, one: Scored) -> str:
        return self._unit(self.monitor.rank(float(np.nanmean(one.scores))))

    def _unit(self, value: float) -> str:
        return f"{100 * value:.1f} %" if self.monitor.percent else f"{value:.3g}"

    def _first(self) -> list[Trial]:
        """Rung 0: those that were tried, best first."""
        if self.plan.sizes:
            n0, n1, _ = self.plan.sizes
            if n0 == n1 and not self._finished(0, self.trials[0]):  # a budget may have ranked them
                return self.trials[:n0]
            found = []
            for trials in _by_table(self.trials[:n0]):
                found += self._train(0, trials, lambda: None)
            return self._ranked(found)
        found, stopped = [], ""
        for trials in _by_table(self.trials):
            if found and self.clock.left(FIRST) < 0 and not self._finished(0, trials[0]):
                stopped = f"{len(found)} of {len(self.trials)} candidates were tried"
                break
            try:
                found += self._train(0, trials, lambda: self.clock.check(FIRST_STOP))
            except OutOfTimeError:
                stopped = f"{len(found) or 1} of {len(self.trials)} candidates were tried"
                break
        standing = self._ranked(found) or self.trials[:1]
        self.keep(sizes=list(usual_sizes(len(standing))), shortened=stopped)
        return standing

    def _second(self, standing: list[Trial]) -> list[Trial]:
        """Rung 1: the best of ``standing`` that go to it, best first."""
        n0, n1, n2 = self.sizes
        if self.clock.budget is not None and n1 > n2 and not self._decided(1):
            left, fits, needed = self.clock.left(SECOND), 0, 0.0
            for trial in standing[:n1]:
                needed += SLOWER * self._rate(trial) * self._epochs(trial, 1)
                fits += needed <= left
            if fits < n1:
                n1 = max(fits, n2)
                self.keep(sizes=[n0, n1, n2], shortened=f"rung 1 had {_some(n1, n2)}")
        if n1 == n2:
            return standing[:n1]
        found = []
        try:
            for trials in _by_table(sorted(standing[:n1], key=lambda one: one.position)):
                found += self._train(1, trials, lambda: self.clock.check(SECOND_STOP))
        except OutOfTimeError:
            for one in found:  # as if it had never been
                self.known[one.trial.position].pop()
            self.keep(sizes=[n0, n2, n2], shortened="rung 1 had no time")
            return standing[:n2]
        return self._ranked(found)

    def _finals(self, standing: list[Trial]) -> list[Scored]:
        """Rung 2: the finalists with all seeds; none if there is only one, so nothing to choose."""
        n0, n1, n2 = self.sizes
        found: list[Scored] = []
        if n2 == 1:
            return found
        dearest = 0.0
        for trial in standing[:n2]:
            begun = time.monotonic()

            def check(begun: float = begun, dearest: float = dearest) -> None:
                self.clock.check(LAST, max(dearest, time.monotonic() - begun))

            try:
                if found and not self._finished(2, trial):
                    self.clock.check(LAST, SLOWER * dearest)
                found += self._train(2, [trial], check)
            except OutOfTimeError:
                break
            dearest = max(dearest, time.monotonic() - begun, found[-1].seconds)
        if len(found) < n2:
            left = max(1, len(found))
            sizes = [n0, left, left] if n1 == n2 else [n0, n1, left]
            self.keep(sizes=sizes, shortened=f"{left} of {plural(n2, 'finalist')} had time")
            found = found if left > 1 else []
        if found and all(one.figures.lost == len(one.figures.val) for one in found):
            raise HopliteError(
                "every finalist diverged, so there is nothing to choose; give a lower lr, or other "
                "options."
            )
        return found

    def last_training(self, trial: Trial) -> dict[str, Any]:
        """The options of the chosen one's training, within what is left of the budget.

        If it is certain to take longer, there are fewer seeds, and if one is too many, too few
        epochs. Its sizes are recorded first, so that it is the same again, whatever happens.
        """
        config = split_options(trial.model, trial.options)[1]
        seeds, epochs = self.plan.seeds, config.epochs
        fewer, most, told = len(seeds), epochs, ""
        if self.clock.budget is not None and not self._finished(2, trial):  # else time is set aside
            runs = max(0.0, self.clock.left(LAST)) / max(self._rate(trial), 1e-9)  # run-epochs
            fewer = min(len(seeds), max(1, int(runs // min(epochs, config.patience + EPOCHS[1]))))
            most = min(epochs, max(LEAST_EPOCHS, int(runs))) if fewer == 1 else epochs
            if (fewer, most) != (len(seeds), epochs):
                told = f"the chosen one has {plural(fewer, 'seed')} and at most {most} epochs"
        if not self.plan.final:
            self.keep(final={"seeds": fewer, "epochs": most}, shortened=told)
        final = self.plan.final
        return trial.options | {"epochs": final["epochs"], "seeds": seeds[: final["seeds"]]}

    def tried(self, choice: Trial, trained: TrainingResult) -> list[Tried]:
        """Every candidate that was tried, those that came furthest first, then the best."""
        lines = []
        for trial in self.trials[: self.sizes[0]]:
            rungs, last = self.known.get(trial.position, []), None
            if rungs:
                last, val = rungs[-1], self.monitor.rank(float(np.mean(rungs[-1].scores)))
            elif trial == choice:  # alone, so without a rung
                val = float(np.mean([run.best(f"val_{self.monitor.name}") for run in trained.runs]))
            else:
                continue
            lines.append(
                (
                    (-last.rung, *last.order) if last else (0,),
                    Tried(
                        candidate=str(trial),
                        model=trial.model,
                        options=trial.options,
                        rung=last.rung if last else 0,
                        val=number(val),
                        seeds=len(last.scores) if last else len(trained.runs),
                        seconds=sum(one.seconds for one in rungs),
                        chosen=trial == choice,
                    ),
                )
            )
        return [line for _, line in sorted(lines, key=lambda pair: pair[0])]

    def tell(self, what: str, share: float) -> None:
        """Say what is being done; with a budget, the share is that of the time."""
        if self.clock.budget is not None:
            share = self.clock.elapsed / self.clock.budget
        self._tell(what, min(1.0, share))

    def keep(
        self,
        *,
        sizes: list[int] | None = None,
        shortened: str = "",
        final: dict[str, int] | None = None,
    ) -> None:
        """Write down what was decided, and the time."""
        told = [*self.plan.shortened, *([shortened] if shortened else [])]
        self.plan = dataclasses.replace(
            self.plan,
            sizes=self.plan.sizes if sizes is None else sizes,
            shortened=told,
            final=self.plan.final if final is None else final,
            spent=self.clock.elapsed,
        )
        write(self.folder / PLAN, self.plan)

    def _decided(self, rung: int) -> bool:
        """Whether an earlier call began this rung, with the sizes that it had."""
        return (self.folder / f"rung-{rung}").exists()

    def _ledger(self, rung: int, first: Trial) -> Path:
        """The folder of a batch: of a table, and in the last rung of a finalist."""
        number = f"{first.table:02d}" if rung < 2 else f"{first.position:03d}"
        return self.folder / f"rung-{rung}" / f"{number}-{first.model}"

    def _finished(self, rung: int, first: Trial) -> bool:
        """Whether all of a batch is recorded: then it is only read, and the clock has no say."""
        folder = self._ledger(rung, first)
        return (folder / SETTINGS).is_file() and not Ledger.read(folder).waiting()

    def _ranked(self, found: list[Scored]) -> list[Trial]:
        return [one.trial for one in sorted(found, key=lambda one: one.order)]

    def _epochs(self, trial: Trial, rung: int) -> int:
        """How many epochs a rung gives it: of L-BFGS fewer, as it makes many steps in one."""
        config = split_options(trial.model, trial.options)[1]
        if rung == len(EPOCHS):
            return config.epochs
        return min(config.epochs, math.ceil(EPOCHS[rung] / STEPS.get(config.optimizer, 1)))

    def _rate(self, trial: Trial) -> float:
        """Seconds of an epoch and run, as they were last seen."""
        seen = [one for one in self.known.get(trial.position, []) if one.epochs]
        return seen[-1].seconds / seen[-1].epochs if seen else self.slowest

    def _train(self, rung: int, trials: list[Trial], check: Callable[[], None]) -> list[Scored]:
        """Train candidates of one model together, or read what the ledger has of them."""
        model, first = trials[0].model, trials[0]
        seeds = self.plan.seeds if rung == 2 else self.plan.seeds[:1]
        configurations = [one.options | {"epochs": self._epochs(one, rung)} for one in trials]
        work = sum(one["epochs"] for one in configurations) * len(seeds)
        begun = time.monotonic()

        def look(state: SearchProgress) -> None:
            self.tell(f"rung {rung}: {model}", self._share(rung, first, state.share))
            if state.done < state.total:
                try:
                    check()
                except OutOfTimeError:
                    done = max(state.share * work, 1.0)
                    self.slowest = (time.monotonic() - begun) / done
                    raise

        ledger = run_search(
            self.graph,
            model,
            configurations,
            self._ledger(rung, first),
            seeds=seeds,
            progress=look,
        )
        runs = ledger.runs()
        figures = [
            (full_options(model, one.options), one) for one in candidates(ledger)
        ]  # two candidates may be one with so few epochs
        found = []
        for trial, options in zip(trials, configurations, strict=True):
            wanted = full_options(model, options)
            one = next(one for full, one in figures if full == wanted)
            own = [run for run in runs if run.configuration == one.position]
            seconds, epochs = sum(run.seconds for run in own), sum(run.epochs for run in own)
            found.append(Scored(trial, rung, one, seconds, epochs))
            self.known.setdefault(trial.position, []).append(found[-1])
        self.keep()
        return found

    def _share(self, rung: int, trial: Trial, share: float) -> float:
        """About how much of all the work is done when ``share`` of a batch of a rung is."""
        if not self.plan.sizes:
            return 0.0
        sizes = self.sizes
        works = [0.4 * (sizes[0] > sizes[1]), 0.25 * (sizes[1] > sizes[2]), 0.35 * (sizes[2] > 1)]
        total = sum(works) or 1.0
        among = sum(len(scored) > 0 and scored[-1].rung == rung for scored in self.known.values())
        within = min(1.0, (among + share) / sizes[rung])
        return 0.95 * (sum(works[:rung]) + works[rung] * within) / total


def _hops(trial: Trial) -> int:
    return split_options(trial.model, trial.options)[0].hops


def _some(n1: int, n2: int) -> str:
    return "no time" if n1 == n2 else f"time for {n1} candidates"


def _by_table(trials: Sequence[Trial]) -> list[list[Trial]]:
    return [list(group) for _, group in itertools.groupby(trials, key=lambda one: one.table)]


def _silent(what: str, share: float) -> None:
    """Nobody watches."""
