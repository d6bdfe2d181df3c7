"""The work of the second table: searches on validation, the choice, and then, once, the test set.

A cell of the table is a method on a problem. Its trainings, each a file of its own in ``jobs``:

    PROBLEM.METHOD.search-00    every setting on split 0 (and the other splits of the screen)
    PROBLEM.METHOD.search-07    the settings that the screen left, on the splits behind it
    PROBLEM.METHOD.chosen       the choice, written before the test set is read
    PROBLEM.METHOD.test         the chosen setting on every split, with its test scores
    PROBLEM.METHOD.random       the same setting on random splits, and so for the variants

A search has a ledger in ``searches``, by which it goes on after a kill; it never sees test scores.
Settings are compared by the mean of their validation scores, then of their validation losses.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.datasets.splits import random_split
from hoplite.errors import HopliteError, HopliteWarning
from hoplite.graph import Graph
from hoplite.json_files import read_json, write_json
from hoplite.lab.linear.methods import Method, Protocol, Setting
from hoplite.lab.linear.problems import RANDOM, Problem, fingerprint
from hoplite.lab.reproduce.chosen import Trainings
from hoplite.lab.results import Amount, Count
from hoplite.models import find_model
from hoplite.selection import Ledger, run_search
from hoplite.selection.ledger import SETTINGS, RecordedRun
from hoplite.selection.workers import LOOK_SECONDS
from hoplite.training.results import ScoredRun, number, train
from hoplite.version import VERSION

JOBS, SEARCHES = "jobs", "searches"


@dataclass(frozen=True)
class Searched:
    """``search-00.json``: what validation says of settings on one split; None if one diverged."""

    hoplite: str
    data: str
    seeds: list[Count]
    settings: list[str]
    scores: list[float | None]
    losses: list[float | None]
    seconds: Amount
    runs: Count
    diverged: Count
    model: str = ""  # as the method names it; earlier versions do not tell


@dataclass(frozen=True)
class Choice:
    """``chosen.json``: what validation chose, before the test set was read."""

    hoplite: str
    data: str
    reading: dict[str, Any]
    config: dict[str, Any]
    val_score: float | None  # mean over splits or seeds of the search
    tried: Count
    finalists: Count  # of the last search
    runs: Count
    diverged: Count
    seconds: Amount  # of processor time, of all searches
    model: str = ""


@dataclass(frozen=True)
class Outcome:
    """``test.json``: the chosen setting, trained and scored; a value for each split or seed."""

    choice: Choice
    config: dict[str, Any]  # the choice's, or a variant's
    splits: list[Count]
    seeds: list[Count]
    val: list[float | None]
    test: list[float | None]
    baseline: float | None  # what knows the training labels alone, on the test nodes
    epochs: Amount
    ms_per_epoch: Amount | None
    seconds: Amount | None  # of a whole training
    sizes: dict[str, Count] = field(default_factory=dict)  # of splits that were made; or not told


@dataclass(frozen=True)
class Cell:
    """A method on a problem, with all that its trainings need."""

    method: Method
    problem: Problem
    settings: tuple[Setting, ...]
    protocol: Protocol
    graphs: Path | None
    unread: int = 0  # settings that are left out, as their graph has no file

    @property
    def name(self) -> str:
        return f"{self.problem.name}.{self.method.name}"

    @property
    def model(self) -> str:
        """The name of its model, which is then known in this process, too."""
        return find_model(self.method.model).name

    def made_by(self, model: str) -> bool:
        """Whether a file tells this model, or is of a time when files did not tell any."""
        return model in ("", self.method.model)

    @functools.cached_property
    def keys(self) -> list[str]:
        """Of the settings, in their order."""
        return [setting.key(self.model) for setting in self.settings]

    def data(self, reading: dict[str, Any]) -> str:
        """A fingerprint of the graph's file."""
        path = self.problem.path(self.graphs, reading)
        return "" if path is None else fingerprint(path)

    def graph(self, reading: dict[str, Any], split: int) -> Graph:
        return self.problem.graph(self.graphs, reading, split)

    @property
    def all_data(self) -> str:
        """A fingerprint of all files that its settings read."""
        return "+".join(dict.fromkeys(self.data(one.reading) for one in self.settings))

    @property
    def one_split(self) -> bool:
        return self.problem.splits == 1

    @property
    def screened(self) -> int:
        """Splits that every setting is trained on."""
        return min(self.protocol.screen_splits, self.problem.splits)

    def search_seeds(self, split: int) -> list[int]:
        """On the one public split several; else the split's own number."""
        return list(range(self.protocol.seeds)) if self.one_split else [split]

    @property
    def searched(self) -> int:
        """Splits with a search: if the screen leaves one setting, there is no more to compare."""
        return self.screened if self.protocol.screen == 1 else self.problem.splits

    def searches(self) -> list[Search]:
        return [Search(self, split) for split in range(self.searched)]

    def wanted(self, folder: Path, split: int) -> list[int]:
        """The settings that are trained on a split: all, or those that the screen leaves."""
        if split < self.screened:
            return list(range(len(self.settings)))
        return self.ranked(folder, range(self.screened))[: self.protocol.screen]

    def ranked(self, folder: Path, splits: Sequence[int]) -> list[int]:
        """The settings that were trained on all of ``splits``, best first."""
        found = [Search(self, split).read(folder) for split in splits]
        places = [{key: i for i, key in enumerate(one.settings)} for one in found]
        keys = self.keys
        known = [i for i, key in enumerate(keys) if all(key in place for place in places)]

        def rank(i: int) -> tuple[int, float, float, int]:
            at = [(one, place[keys[i]]) for one, place in zip(found, places, strict=True)]
            scores = [one.scores[p] for one, p in at]
            losses = [one.losses[p] for one, p in at]
            total = round(math.fsum(s for s in scores if s is not None), 9)
            loss = math.fsum(math.inf if x is None else x for x in losses)
            return scores.count(None), -total, loss, i

        return sorted(known, key=rank)

    def choose(self, folder: Path) -> Choice:
        """By validation alone, of the settings that every search has."""
        splits = range(self.searched)
        finalists = self.wanted(folder, self.searched - 1)  # not those of an earlier grid
        left = [i for i in self.ranked(folder, splits) if i in finalists]
        found = [Search(self, split).read(folder) for split in splits]
        best = self.settings[left[0]]
        scores = [one.scores[one.settings.index(self.keys[left[0]])] for one in found]
        known = [score for score in scores if score is not None]
        return Choice(
            hoplite=VERSION,
            data=self.all_data,
            reading=best.reading,
            config=best.options,
            val_score=float(np.mean(known)) if len(known) == len(scores) else None,
            tried=len(self.settings),
            finalists=len(left),
            runs=sum(one.runs for one in found),
            diverged=sum(one.diverged for one in found),
            seconds=sum(one.seconds for one in found),
            model=self.method.model,
        )


@dataclass(frozen=True)
class Search:
    """The settings of a cell on one split: validation scores, and nothing of the test set."""

    cell: Cell
    split: int

    @property
    def name(self) -> str:
        return f"{self.cell.name}.search-{self.split:02d}"

    @property
    def needs(self) -> list[Any]:
        """What must be finished before this one."""
        first = self.cell.screened
        return [] if self.split < first else [Search(self.cell, s) for s in range(first)]

    def read(self, folder: Path) -> Searched:
        return read_json(folder / f"{self.name}.json", Searched)

    def kept(self, folder: Path) -> Searched | None:
        """What an earlier run kept, if it has all that is wanted now."""
        found = _found(folder / f"{self.name}.json", Searched)
        cell = self.cell
        if found is None or not all(need.kept(folder) for need in self.needs):
            return None
        keys = [cell.keys[i] for i in cell.wanted(folder, self.split)]
        seeds = cell.search_seeds(self.split)
        same = (found.hoplite, found.data, found.seeds) == (VERSION, cell.all_data, seeds)
        same = same and cell.made_by(found.model)
        return found if same and {*keys} <= {*found.settings} else None

    def run(self, folder: Path) -> Searched:
        """Train what is wanted and not yet in a ledger."""
        cell, model = self.cell, self.cell.model
        wanted = [cell.settings[i] for i in cell.wanted(folder, self.split)]
        figures: dict[str, tuple[float | None, float | None]] = {}
        seconds, runs = 0.0, []
        ordered = sorted(wanted, key=lambda one: repr(sorted(one.reading.items())))
        for _, same in itertools.groupby(ordered, key=lambda one: one.reading):
            group = list(same)
            ledger = self._ledger(folder, group)
            settings = ledger.settings.configurations
            keys = [Setting(group[0].reading, options).key(model) for options in settings]
            recorded = ledger.runs()
            for position, key in enumerate(keys):
                own = [run for run in recorded if run.configuration == position]
                figures[key] = (_mean(own, _score), _mean(own, lambda run: run.val_loss))
            seconds += ledger.cpu_seconds()
            runs += recorded
        found = Searched(
            hoplite=VERSION,
            data=cell.all_data,
            seeds=cell.search_seeds(self.split),
            settings=list(figures),
            scores=[score for score, _ in figures.values()],
            losses=[loss for _, loss in figures.values()],
            seconds=seconds,
            runs=len(runs),
            diverged=sum(run.diverged for run in runs),
            model=cell.method.model,
        )
        write_json(folder / f"{self.name}.json", found, indent=None)
        return found

    def _ledger(self, folder: Path, group: list[Setting]) -> Ledger:
        """The ledger of settings that read the graph alike; what it has stays in it."""
        cell, reading = self.cell, group[0].reading
        seeds = cell.search_seeds(self.split)
        about = (VERSION, sorted(reading.items()), cell.data(reading), seeds)
        path = self._place(folder, about)  # where earlier versions kept that of any model
        if not (path / SETTINGS).is_file() or Ledger.read(path).settings.model != cell.model:
            path = self._place(folder, (*about, cell.method.model))
        options = [setting.options for setting in group]
        if (path / SETTINGS).is_file():
            options = [*Ledger.read(path).settings.configurations, *options]
        graph = cell.graph(reading, self.split)
        return run_search(graph, cell.model, options, path, seeds=seeds, protocol="validation")

    def _place(self, folder: Path, about: tuple[Any, ...]) -> Path:
        place = hashlib.sha256(repr(about).encode()).hexdigest()[:8]
        return folder.parent / SEARCHES / f"{self.name}-{place}"


@dataclass(frozen=True)
class Test:
    """The chosen setting on all splits; the choice is written, then the test nodes are read."""

    __test__ = False  # for pytest
    cell: Cell
    ending: str = "test"

    @property
    def problem(self) -> str:
        """The column."""
        return self.cell.problem.name

    @property
    def name(self) -> str:
        return f"{self.cell.name}.{self.ending}"

    @property
    def needs(self) -> list[Any]:
        return list(self.cell.searches())

    def kept(self, folder: Path) -> Outcome | None:
        found = _found(folder / f"{self.name}.json", Outcome)
        if found is None or not all(need.kept(folder) for need in self.needs):
            return None
        choice = self.choice(folder)
        before = (found.choice.hoplite, found.choice.data, found.choice.reading, found.config)
        after = (choice.hoplite, choice.data, choice.reading, self.config(choice))
        pairs = list(zip(found.splits, found.seeds, strict=True))
        same = before == after and pairs == self.pairs()
        same = same and self.cell.made_by(found.choice.model) and found.sizes in ({}, self.sizes())
        return found if same else None

    def choice(self, folder: Path) -> Choice:
        return self.cell.choose(folder)

    def config(self, choice: Choice) -> dict[str, Any]:
        return choice.config

    def pairs(self) -> list[tuple[int, int]]:
        """Split and seed of every training."""
        if self.cell.one_split:
            return [(0, seed) for seed in range(self.cell.protocol.final_seeds)]
        return [(split, split) for split in range(self.cell.problem.splits)]

    def sizes(self) -> dict[str, int]:
        """Of the splits, if they are made here."""
        return {}

    def graph(self, reading: dict[str, Any], split: int) -> Graph:
        return self.cell.graph(reading, split)

    def run(self, folder: Path) -> Outcome:
        choice = self.choice(folder)
        write_json(folder / f"{self.cell.name}.chosen.json", choice)
        model, config, score = self.cell.model, self.config(choice), self.cell.problem.score
        val, test, least, epochs, times = [], [], [], [], []
        groups = itertools.groupby(self.pairs(), key=lambda pair: pair[0])
        for split, pairs in groups if choice.val_score is not None else ():
            seeds = [seed for _, seed in pairs]
            result = train(self.graph(choice.reading, split), model, seeds=seeds, **config)
            for run in result.runs:
                val.append(_figure(run, "val", score))
                test.append(_figure(run, "test", score))
            majority = result.baseline()
            least.append(None if majority is None else number(majority[score]))
            epochs += [run.epochs for run in result.runs]
            times += [run.seconds for run in result.runs]
        found = Outcome(
            choice=choice,
            config=config,
            splits=[split for split, _ in self.pairs()],
            seeds=[seed for _, seed in self.pairs()],
            val=val or [None] * len(self.pairs()),
            test=test or [None] * len(self.pairs()),
            baseline=float(np.mean(least)) if least and None not in least else None,
            epochs=float(np.mean(epochs)) if epochs else 0.0,
            ms_per_epoch=1000 * sum(times) / sum(epochs) if times else None,
            seconds=float(np.mean(times)) if times else None,
            sizes=self.sizes(),
        )
        write_json(folder / f"{self.name}.json", found)
        return found


@dataclass(frozen=True)
class Again(Test):
    """The setting that was chosen on a public split, trained in another way."""

    options: tuple[tuple[str, Any], ...] = ()

    @property
    def problem(self) -> str:
        return f"{self.cell.problem.dataset}-{self.ending}"

    @property
    def needs(self) -> list[Any]:
        return [Test(self.cell)]

    def config(self, choice: Choice) -> dict[str, Any]:
        return choice.config | dict(self.options)


@dataclass(frozen=True)
class OnRandomSplits(Again):
    """The setting that was chosen on a public split, on random splits: split s with seed s."""

    ending: str = RANDOM

    def pairs(self) -> list[tuple[int, int]]:
        return [(s, s) for s in range(self.cell.protocol.random.splits)]

    def sizes(self) -> dict[str, int]:
        return self.cell.protocol.random.sizes()

    def graph(self, reading: dict[str, Any], split: int) -> Graph:
        graph = self.cell.graph(reading, 0)
        return graph.with_split(random_split(graph.labels, split, **self.sizes()))


Task = Search | Test


@dataclass(frozen=True)
class Stages(Trainings):
    """Trainings of which some need others; any number of processes share them."""

    def work(self, look: Callable[[], None] | None = None) -> None:
        """Train until all are finished, by whichever process; the first that can be comes first."""
        done: set[str] = set()
        while left := [task for task in self.tasks if not self._finished(task, done)]:
            if look is not None:
                look()
            if not any(self._try(task) for task in left if self._ready(task, done)):
                time.sleep(LOOK_SECONDS)  # the rest waits for others, or is in their hands

    def tidy(self) -> None:
        """Remove the locks, and what killed processes left; not what another command is at."""
        hidden = [path for path in self.folder.glob(".*") if path.name.endswith(".tmp")]
        for task in self.tasks:
            if self._lock_of(task).exists():
                with self._locked(task) as locked:
                    for path in hidden if locked else ():
                        if path.name.startswith(f".{task.name}.json."):
                            path.unlink(missing_ok=True)
                    if locked:
                        self._lock_of(task).unlink(missing_ok=True)

    def _finished(self, task: Any, done: set[str]) -> bool:
        if task.name not in done and task.kept(self.folder) is not None:
            done.add(task.name)
        return task.name in done

    def _ready(self, task: Any, done: set[str]) -> bool:
        return all(self._finished(need, done) for need in task.needs)

    def _try(self, task: Any) -> bool:
        """Whether it was trained here; False if another process is at it."""
        try:
            with self._locked(task) as locked:
                if locked is False or task.kept(self.folder) is not None:
                    return False
                with warnings.catch_warnings():  # a figure may be in them
                    warnings.simplefilter("ignore", HopliteWarning)
                    task.run(self.folder)
                return True
        except OSError as error:
            raise HopliteError(
                f"cannot write to {self.folder}: {error.strerror}. What was finished is kept; the "
                "same command continues."
            ) from error
        except HopliteError as error:
            raise HopliteError(f"{task.name}: {error}") from error


def _found(path: Path, kind: type[Any]) -> Any:
    """The file as a ``kind``; None if it is not there or not whole."""
    try:
        return read_json(path, kind) if path.exists() else None
    except (OSError, ValueError):
        return None


def _score(run: RecordedRun) -> float | None:
    return run.val_accuracy if run.val_score is None else run.val_score


def _mean(runs: list[RecordedRun], value: Callable[[RecordedRun], float | None]) -> float | None:
    """None if it is unknown of one."""
    found = [value(run) for run in runs]
    known = [one for one in found if one is not None]
    return float(np.mean(known)) if known and len(known) == len(found) else None


def _figure(run: ScoredRun, part: str, name: str) -> float | None:
    """None if the run has no result, or there are no such nodes."""
    return number(run.task.figure(name, *run.outputs[part])) if part in run.outputs else None


def tasks_of(cell: Cell, variants: dict[str, dict[str, Any]]) -> Iterator[Task]:
    """The trainings of a cell, in an order in which each has what it needs."""
    yield from cell.searches()
    yield Test(cell)
    if cell.one_split and cell.method.again:
        yield OnRandomSplits(cell)
        for name, options in variants.items():
            yield Again(cell, name, tuple(options.items()))
