"""What a finished search says: its ranking under one of two protocols, and the chosen settings.

The protocols share nothing but the trained runs.

validation  the configuration with the best mean validation accuracy; then, and only then, that
            one is trained again and scored on the test set, once
test        the configuration with the best mean test accuracy: an upper bound that is biased by
            the choice itself, as in the paper's appendix
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoplite.errors import (
    ConfigError,
    HopliteError,
    IdleWarning,
    LedgerError,
    check_choice,
    plural,
)
from hoplite.files import read_json, write_json
from hoplite.formatting import Described, Description
from hoplite.graph import Graph
from hoplite.models import all_settings, idle_settings, model_defaults, without_idle
from hoplite.models.saved import CONFIG_FILE
from hoplite.models.trained import TrainedModel
from hoplite.plots.base import figure
from hoplite.plots.history import scores
from hoplite.selection.ledger import Count, Ledger, RecordedRun, Settings
from hoplite.selection.shown import search_repr, search_shown
from hoplite.tasks import Metric, Task, find_task, task_of
from hoplite.tasks.base import title_of
from hoplite.training.results import Figures, TrainingResult, number, train

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MODEL = "model"  # the folder of the chosen model, in that of the ledger
PROTOCOLS = ("validation", "test")
BIASED = "biased: chosen on the test set, so an upper bound and no estimate"


def check_protocol(protocol: str) -> str:
    """Return ``protocol`` if it is one of the two."""
    return check_choice("protocol", protocol, PROTOCOLS)


@dataclass(frozen=True)
class Candidate:
    """A configuration's figures over its seeds; ``test`` is empty outside of the test protocol.

    An accuracy is NaN where the run diverged before it had a finite result. Where nodes have no
    classes, ``val`` are the ``scores``.
    """

    position: int  # in the ledger's configurations
    options: dict[str, Any]
    val: tuple[float, ...]
    val_loss: float  # mean at the best epochs; infinite if a run has none
    test: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()  # of the monitor, larger is better, if not the accuracy

    @property
    def lost(self) -> int:
        """Runs without a finite result."""
        return sum(math.isnan(value) for value in self.val)

    @property
    def val_mean(self) -> float:
        return float(np.mean(self.val))

    @property
    def test_mean(self) -> float:
        return float(np.mean(self.test))


def rank(ledger: Ledger, protocol: str) -> list[Candidate]:
    """The configurations of a finished search that have all seeds, best first.

    Equal means are common, as the sets are small. Then the lower mean validation loss goes first,
    then the earlier in the grid; under the test protocol the higher validation accuracy before.
    Configurations of which runs have no finite result come last, those with more such runs later.
    """
    test = check_protocol(protocol) == "test"
    if ledger.waiting(test=test):
        raise LedgerError(f"the search in {ledger.folder} is not finished; run it again first.")
    found = candidates(ledger, test)
    if all(candidate.lost == len(candidate.val) for candidate in found):
        raise HopliteError(
            f"every run of the search in {ledger.folder} diverged, so there is nothing to choose; "
            "search lower learning rates, fewer hops or another operator, in another folder."
        )
    if test:
        return sorted(found, key=lambda c: (c.lost, -_exact(c.test), -_exact(c.val), c.val_loss))
    return sorted(found, key=by_validation)


def by_validation(candidate: Candidate) -> tuple[float, float, float]:
    """What sorts candidates, those of several ledgers too, the best first."""
    score = _exact(candidate.scores or candidate.val)
    return candidate.lost, -score, candidate.val_loss


def candidates(ledger: Ledger, test: bool = False) -> list[Candidate]:
    """The configurations that have finished runs, in the order of the ledger."""
    runs = ledger.runs(test=test)
    hidden = ledger.test_accuracies() if test else []
    numbers: dict[int, list[int]] = {}
    for i, run in enumerate(runs):
        numbers.setdefault(run.configuration, []).append(i)
    return [
        Candidate(
            position=position,
            options=ledger.settings.configurations[position],
            val=tuple(_known(_reached(runs[i])) for i in of_one),
            val_loss=float(np.mean([_known(runs[i].val_loss, math.inf) for i in of_one])),
            test=tuple(_known(hidden[i]) for i in of_one) if test else (),
            scores=_scores([runs[i].val_score for i in of_one]),
        )
        for position, of_one in sorted(numbers.items())
    ]


def _reached(run: RecordedRun) -> float | None:
    return run.val_score if run.val_accuracy is None else run.val_accuracy


def _scores(values: list[float | None]) -> tuple[float, ...]:
    """What the monitor said of every run; empty where that is the accuracy."""
    return () if all(value is None for value in values) else tuple(map(_known, values))


def _exact(values: tuple[float, ...]) -> float:
    """Their sum, the same whatever the order: means that are equal must compare as equal."""
    return round(math.fsum(value for value in values if not math.isnan(value)), 9)


def _known(value: float | None, otherwise: float = math.nan) -> float:
    return otherwise if value is None else value


@dataclass(frozen=True)
class Summary:
    """``validation.json`` or ``test.json``: the choice and its figures; std is over the seeds (n).

    None stands for what is no finite number.
    """

    protocol: str
    biased: str | None
    dataset: str
    model: str
    configurations: Count
    runs: Count
    diverged: Count
    cut: str | None
    seeds: list[Count]
    config: dict[str, Any]
    val_mean: float | None
    val_std: float | None
    test_mean: float | None
    test_std: float | None
    val: list[float | None]
    test: list[float | None]
    cpu_minutes: float
    hoplite: str
    score: str = "accuracy"  # what val and test are
    monitor: str = "accuracy"  # what configurations were compared by, and its mean
    monitor_mean: float | None = None
    figures: Figures | None = None  # all others of the chosen one


@dataclass(frozen=True, eq=False, repr=False)
class SearchResult(Described):
    """What a search found under one protocol.

    ``test`` holds the chosen configuration's test accuracies, a value per seed: under
    ``validation`` of its models trained anew, the first and only time the test set is read.
    """

    protocol: str
    ledger: Ledger
    ranking: list[Candidate]  # best first
    val: tuple[float, ...]
    test: tuple[float, ...]
    cut: str | None = None
    graph: Graph | None = None
    trained: TrainingResult | None = None  # the chosen configuration, if it was trained just now
    figures: Figures | None = None  # all that is told of it

    @cached_property
    def model(self) -> TrainedModel:
        """The chosen configuration's model of the seed that is best on validation.

        It is the one that was trained just now, or the one in the ledger's folder, or is trained.
        """
        folder, settings = self.ledger.folder / MODEL, self.ledger.settings
        if self.trained is not None:
            return self.trained.model
        if self.protocol == "validation" and (folder / CONFIG_FILE).is_file():
            return TrainedModel.load(folder)
        return _trained(self.graph, settings, self.best).model

    def save_model(self) -> Path | None:
        """Keep the model in the ledger's folder as ``model``; where it is kept.

        What was chosen on the test set is an upper bound and no model to use: None then.
        """
        folder = self.ledger.folder / MODEL
        if self.protocol != "validation":
            return None
        if self.trained is not None or not (folder / CONFIG_FILE).is_file():  # killed meanwhile
            self.model.save(folder, overwrite=True)
        return folder

    @property
    def task(self) -> Task:
        """What was searched for; of a ledger alone, classes."""
        return find_task() if self.graph is None else task_of(self.graph.labels)

    @property
    def monitor(self) -> Metric:
        """What the configurations were compared by under ``validation``."""
        return self.task.monitor(self.best.options.get("monitor", "auto"))

    def monitored(self, candidate: Candidate) -> float:
        """Mean of :attr:`monitor` over the seeds of a configuration."""
        return self.monitor.rank(float(np.mean(candidate.scores or candidate.val)))

    @property
    def best(self) -> Candidate:
        """The chosen configuration."""
        return self.ranking[0]

    @property
    def test_accuracy(self) -> float:
        """Mean test accuracy of the chosen configuration, or score of the task without classes."""
        return float(np.mean(self.test))

    def plot(self) -> Figure:
        """What validation says of every setting, in their order: mean and deviation over the seeds.

        The chosen one has a colour of its own. It needs the extra ``plot``.
        """
        each = [
            self.monitor.rank(np.array(candidate.scores or candidate.val))
            for candidate in self.ranking
        ]
        varied = self.varied
        told = [
            ", ".join(f"{name} {candidate.options[name]}" for name in varied) or "the one setting"
            for candidate in self.ranking
        ]
        drawn = scores(
            [float(values.mean()) for values in each],
            [float(values.std()) for values in each],
            told,
            f"validation {title_of(self.monitor.name)}",
        )
        settings = self.ledger.settings
        title = f"{settings.model} on {settings.dataset}: {plural(len(each), 'setting')}"
        if self.protocol == "test":
            title += ", in the order of the test set (biased)"
        return figure(drawn, title)

    @property
    def varied(self) -> list[str]:
        """The options in which the ranked configurations differ."""
        first = self.best.options
        return [
            name
            for name, value in first.items()
            if any(other.options.get(name) != value for other in self.ranking)
        ]

    def summary(self) -> Summary:
        """The choice as it is kept and shown."""
        settings = self.ledger.settings
        return Summary(
            protocol=self.protocol,
            biased=BIASED if self.protocol == "test" else None,
            dataset=settings.dataset,
            model=settings.model,
            configurations=settings.screened or len(settings.configurations),
            runs=sum(len(stage.runs()) for stage in self.ledger.stages),
            diverged=sum(run.diverged for stage in self.ledger.stages for run in stage.runs()),
            cut=self.cut,
            seeds=settings.seeds,
            config=self.best.options,
            val_mean=number(float(np.mean(self.val))),
            val_std=number(float(np.std(self.val))),
            test_mean=number(self.test_accuracy),
            test_std=number(float(np.std(self.test))),
            val=[number(value) for value in self.val],
            test=[number(value) for value in self.test],
            cpu_minutes=self.ledger.cpu_seconds() / 60,
            hoplite=settings.hoplite,
            score=self.task.score.name,
            monitor=self.monitor.name,
            monitor_mean=number(self.monitored(self.best)),
            figures=self.figures,
        )

    def __repr__(self) -> str:
        return search_repr(self)

    def _describe(self) -> Description:
        return search_shown(self)

    def table(self) -> pa.Table:
        """Every run as a row: its configuration, seed and figures (no test but in ``test``)."""
        return runs_table(self.ledger, self.protocol)


def choose(graph: Graph, ledger: Ledger, protocol: str, *, cut: str | None = None) -> SearchResult:
    """The result of a finished ledger; kept in its folder as ``validation.json`` or ``test.json``.

    Under ``validation`` this reads the test set for the chosen configuration, and if the file is
    there already, not even that.
    """
    ranking, graph = rank(ledger, protocol), graph.with_loop_weight(ledger.settings.loop_weight)
    best = ranking[0]
    path = ledger.folder / f"{protocol}.json"
    kept = _kept(path, best, ledger.settings)
    if kept is not None:
        val, test = (tuple(map(_known, values)) for values in (kept.val, kept.test))
        return SearchResult(protocol, ledger, ranking, val, test, cut, graph, None, kept.figures)
    val, test, trained, figures = best.val, best.test, None, None
    if protocol == "validation":
        settings = ledger.settings
        trained = _trained(graph, settings, best)
        name, figures = trained.task.score.name, trained.figures()
        val, test = (
            tuple(run.scores[f"{part}_{name}"] for run in trained.runs) for part in ("val", "test")
        )
    result = SearchResult(protocol, ledger, ranking, val, test, cut, graph, trained, figures)
    try:
        write_json(path, result.summary())
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}.") from error
    return result


def runs_table(ledger: Ledger, protocol: str = "validation") -> pa.Table:
    """Every recorded run as a row, in the grid's order; ``stage`` is there if there are two."""
    test = check_protocol(protocol) == "test"
    screen, configurations = ledger.screen, ledger.settings.configurations
    rows = [dataclasses.asdict(run) for run in ledger.runs(test=test)]
    if test:
        for row, accuracy in zip(rows, ledger.test_accuracies(), strict=True):
            row["test_accuracy"] = accuracy
    if screen is not None:
        before, configurations = configurations, screen.settings.configurations
        for row in rows:
            row |= {"configuration": configurations.index(before[row["configuration"]]), "stage": 2}
        unknown = dict.fromkeys(rows[0]) | {"stage": 1}
        rows += [unknown | dataclasses.asdict(run) for run in screen.runs()]
    rows.sort(key=lambda row: (row.get("stage", 0), row["configuration"], row["seed"]))
    return pa.Table.from_pylist(
        [
            {"configuration": row["configuration"], **configurations[row["configuration"]], **row}
            for row in rows
        ]
    )


def train_command(
    dataset: str,
    model: str,
    options: Mapping[str, Any],
    seeds: int,
    split_seed: int = 0,
    tables: Mapping[str, Any] | None = None,
) -> str:
    """The ``hoplite train`` command that repeats a configuration with the seeds 0, 1, ...

    ``tables`` are the options by which the dataset was read, None where they were not given.
    """
    try:
        usual = model_defaults(model)
    except ConfigError:  # a model of somebody's own, that is not known here
        usual = {name: field.default for name, field in all_settings().items()}
    idle = idle_settings(model)
    shown = {"hops", "hidden", "lr", "weight_decay", "dropout"}
    words = ["hoplite", "train", dataset, "--model", model]
    for name, value in options.items():
        if name not in idle and (name in shown or value != usual.get(name)):
            if isinstance(value, tuple | list):  # weights of classes
                value = ",".join(f"{class_}={weight:g}" for class_, weight in value)
            off = [f"--no-{name.replace('_', '-')}"]  # of a flag that is usually on
            words += off if value is False else _option(name, value)
    words += ["--split-seed", str(split_seed)] if split_seed else []
    for name, value in (tables or {}).items():
        words += [] if value is None else _option(name, value)
    return shlex.join([*words, "--seeds", str(seeds)])


def _option(name: str, value: Any) -> list[str]:
    """The words that give ``value``: of a flag its name alone, or nothing.

    >>> _option("split_index", 3), _option("directed", True), _option("directed", False)
    (['--split-index', '3'], ['--directed'], [])
    """
    flag = f"--{name.replace('_', '-')}"
    return [flag] * value if isinstance(value, bool) else [flag, str(value)]


def _trained(graph: Any, settings: Settings, chosen: Candidate) -> TrainingResult:
    """``chosen`` once more; a grid may hold settings that have no effect in some of its cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdleWarning)
        return train(graph, settings.model, seeds=settings.seeds, **chosen.options)


def _kept(path: Path, best: Candidate, settings: Settings) -> Summary | None:
    """What an earlier call kept for the same choice, if it is whole; None if the search grew."""
    try:
        summary = read_json(path, Summary)
    except (OSError, ValueError):
        return None
    if summary.configurations < len(settings.configurations):
        return None
    if without_idle(summary.model, summary.config) != best.options:
        raise LedgerError(
            f"{path} holds another choice than this search gives; delete it and run again."
        )
    return summary if len(summary.val) == len(summary.test) == len(settings.seeds) else None
