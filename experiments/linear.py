"""The comparison table: every linear model, and some that are not, on many graphs.

A cell of the table is a method on a problem. No search reads the test set: settings are compared by
the mean of their validation scores, then of their validation losses. On a problem with one split
every setting is trained with a few seeds; on ten splits on the first few of them, and the best
settings on all ten, split s with seed s. Only then the test nodes are scored, once.
"""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import hoplite
from benchmarks.machine import describe
from experiments import results as schema
from experiments.methods import Method, Plan, Protocol, Setting, chosen_methods, read_methods
from experiments.problems import GROUPS, PROBLEMS, RANDOM, Problem, chosen_problems
from experiments.results import LINEAR, RESULTS, load_results, mean_and_std, paired, write_results
from experiments.trainings import CORES, Report, Scores, Training, Trainings, by_validation, opened
from hoplite import ConfigError
from hoplite.models import find_model


@dataclass
class Cell:
    """A method on a problem, while its settings are searched and the chosen one is tested."""

    name: str  # of the method
    method: Method
    problem: Problem
    protocol: Protocol
    settings: list[Setting]
    searches: dict[tuple[int, int], Scores] = field(default_factory=dict)  # by setting and split
    chosen: int = 0

    def search(self, setting: int, split: int) -> Training:
        """A setting on a split, without the test nodes."""
        seeds = range(self.protocol.seeds) if self.problem.splits == 1 else [split]
        return replace(self.training(self.settings[setting], split, seeds), test=False)

    def training(self, setting: Setting, split: int, seeds: Sequence[int], **more: Any) -> Training:
        model = find_model(self.method.model)
        name = self.method.model if ":" in self.method.model else model.name
        about = {"split": split, "reading": setting.reading, **more}
        return Training(self.problem.name, name, setting.options, tuple(seeds), **about)

    def screen(self) -> list[tuple[int, int]]:
        """Every setting on the first splits."""
        splits = range(min(self.protocol.screen_splits, self.problem.splits))
        return [(i, split) for i in range(len(self.settings)) for split in splits]

    def finalists(self) -> list[tuple[int, int]]:
        """The best settings of the screen on all splits; none if the screen chooses."""
        if self.protocol.screen == 1:
            return []
        best = self.ranked({setting for setting, _ in self.searches})[: self.protocol.screen]
        return [(i, split) for i in best for split in range(self.problem.splits)]

    def ranked(self, settings: set[int]) -> list[int]:
        """Settings, the best on validation first."""
        parts = {
            i: [scores for (setting, _), scores in self.searches.items() if setting == i]
            for i in settings
        }
        return sorted(settings, key=lambda i: (*by_validation(parts[i]), i))

    def choose(self, finalists: set[int]) -> None:
        """By validation alone."""
        self.chosen = self.ranked(finalists or {setting for setting, _ in self.searches})[0]

    def tests(self, variants: dict[str, dict[str, Any]]) -> dict[str, list[Training]]:
        """The trainings of the chosen setting, by column."""
        best, protocol, problem = self.settings[self.chosen], self.protocol, self.problem
        if problem.splits > 1:
            splits = range(problem.splits)
            return {problem.name: [self.training(best, split, [split]) for split in splits]}
        seeds, random = range(protocol.final_seeds), protocol.random
        columns = {problem.name: [self.training(best, 0, seeds)]}
        if self.method.again:
            columns[f"{problem.dataset}-{RANDOM}"] = [
                self.training(best, split, [split], random=random.sizes())
                for split in range(random.splits)
            ]
            for name, options in variants.items():
                changed = replace(best, options=best.options | options)
                columns[f"{problem.dataset}-{name}"] = [self.training(changed, 0, seeds)]
        return columns

    def figure(self, column: str, trainings: list[Training], parts: list[Scores]) -> schema.Figure:
        """The tested setting as an entry of the table."""
        test = [value for one in parts for value in one.test]
        mean, std = mean_and_std(test)
        baseline, _ = mean_and_std([one.baseline for one in parts])
        epochs = [count for one in parts for count in one.epochs]
        seconds = [count for one in parts for count in one.seconds]
        searches = self.searches.values()
        chosen = self.settings[self.chosen]
        return schema.Figure(
            method=self.name,
            problem=column,
            reading=chosen.reading,
            config=trainings[0].options,
            splits=[one.split for one in trainings for _ in one.seeds],
            seeds=[seed for one in trainings for seed in one.seeds],
            val=[value for one in parts for value in one.val],
            test=test,
            test_mean=mean,
            test_std=std,
            baseline=baseline,
            tried=len(self.settings),
            runs=sum(len(one.val) for one in searches),
            diverged=sum(one.diverged for one in searches),
            search_seconds=sum(one.cpu_seconds for one in searches),
            epochs=float(np.mean(epochs)),
            ms_per_epoch=1000 * sum(seconds) / max(sum(epochs), 1),
            seconds=float(np.mean(seconds)),
            hoplite=hoplite.__version__,
            changed=[name for name in chosen.own if name in chosen.options],
        )


def linear_table(
    out: str | os.PathLike[str],
    *,
    graphs: str | os.PathLike[str] | None = None,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    workers: int = CORES,
    methods: str | os.PathLike[str] | None = None,
    report: Report = lambda what, share: None,
) -> schema.LinearTable:
    """Make the comparison table in ``out``, or go on with it, and return it.

    Parameters
    ----------
    out : path
        Gets ``linear.json`` and ``trainings.sqlite``, in which every training is kept.
    graphs : path, optional
        Folder with the ``.npz`` files of graphs that do not come with Hoplite; problems whose file
        is missing are left out, and named.
    datasets, models : list of str, optional
        Only these problems, datasets or groups, and only these methods; what ``out`` has of others
        stays.
    workers : int
        Processes.
    methods : path, optional
        A file like ``methods.toml``.
    report : function of str and float
        Shows what is being done, and the share of it that is finished.
    """
    folder, place = Path(out), None if graphs is None else Path(graphs)
    if place is not None and not place.is_dir():
        raise ConfigError(f"graphs is {str(graphs)!r}, which is not a folder of .npz files.")
    if (folder / RESULTS).exists():
        raise ConfigError(f"{folder} has results of the paper's experiments; give another folder.")
    plan, problems = read_methods(methods), chosen_problems(datasets)
    names = chosen_methods(plan, models)
    cells = {one.name: _cells(plan, names, one, place) for one in problems}
    if not any(cells.values()):
        raise ConfigError("there is nothing to train; give the files of the graphs (--graphs).")
    out_name = folder.name if folder.is_absolute() else str(folder)
    command = ["python", "-m", "experiments", "linear", "--out", out_name]
    command += ["--methods", f"experiments/{Path(methods).name}"] if methods else []
    command += ["--graphs", place.name] if place else []
    today = datetime.date.today().isoformat()
    table = schema.LinearTable(
        command=shlex.join(command),
        provenance=schema.Provenance(today, describe(workers, floats=None)),
        note=plan.note,
        reference=plan.reference,
        protocol=protocol_words(plan),
        rows=[schema.Row(name, m.title, m.model, m.linear) for name, m in plan.methods.items()],
        columns=columns(plan),
        absent=[name for name, group in cells.items() if not group],
    )
    if (folder / LINEAR).exists():
        table = _with_kept(table, load_results(folder, schema.LinearTable))
    with opened(folder / "trainings.sqlite", place, workers, report) as trainings:
        for group in cells.values():
            figures = _run_problem(trainings, group, plan)
            made = {(one.method, one.problem) for one in figures}
            kept = [one for one in table.figures if (one.method, one.problem) not in made]
            table = compared(replace(table, figures=[*kept, *figures]))
            write_results(table, folder)
    return table


def _cells(plan: Plan, names: list[str], problem: Problem, graphs: Path | None) -> list[Cell]:
    """The methods of a problem, with the settings whose graph has a file."""
    cells = []
    for name in names:
        if plan.methods[name].takes(problem):
            settings = plan.settings(name, problem)
            settings = [one for one in settings if problem.path(graphs, one.reading) is not None]
            protocol = plan.protocol_of(problem)
            if settings:
                cells.append(Cell(name, plan.methods[name], problem, protocol, settings))
    return cells


def _run_problem(trainings: Trainings, cells: list[Cell], plan: Plan) -> list[schema.Figure]:
    """The three stages, each for all methods at once: screen, finalists, test."""
    final: dict[int, set[int]] = {}
    for stage in (Cell.screen, Cell.finalists):
        wanted = [(cell, pair) for cell in cells for pair in stage(cell)]
        scores = trainings.run([cell.search(*pair) for cell, pair in wanted])
        final = {}
        for (cell, pair), one in zip(wanted, scores, strict=True):
            cell.searches[pair] = one
            final.setdefault(id(cell), set()).add(pair[0])
    tests: list[tuple[Cell, str, list[Training]]] = []
    for cell in cells:
        cell.choose(final.get(id(cell), set()))
        tests += [(cell, *column) for column in cell.tests(plan.variants).items()]
    scores = iter(trainings.run([one for *_, group in tests for one in group]))
    return [
        cell.figure(column, group, [next(scores) for _ in group]) for cell, column, group in tests
    ]


def _with_kept(table: schema.LinearTable, old: schema.LinearTable) -> schema.LinearTable:
    """With figures of an earlier call, but of methods and columns that are as they were."""
    models = {row.name: row.model for row in old.rows}
    rows = {row.name for row in table.rows if row.model == models.get(row.name)}
    names = {column.name for column in table.columns}
    kept = [one for one in old.figures if one.method in rows and one.problem in names]
    return replace(table, figures=kept, command=old.command or table.command)


def compared(table: schema.LinearTable) -> schema.LinearTable:
    """The table with differences from the reference, where both were trained on several splits.

    The intervals for all pairs at once are of the pairs of one problem.
    """
    figures = []
    for one in table.figures:
        base = table.figure(table.reference, one.problem)
        pairs = sum(other.problem == one.problem for other in table.figures) - 1
        several = len({*one.splits}) > 1
        if base is not None and base is not one and several and one.splits == base.splits:
            difference = paired(one.test, base.test, pairs, to=table.reference)
            one = replace(one, difference=difference)
        figures.append(one)
    order = {column.name: i for i, column in enumerate(table.columns)}
    methods = {row.name: i for i, row in enumerate(table.rows)}
    figures.sort(key=lambda one: (order[one.problem], methods[one.method]))
    return replace(table, figures=figures)


def columns(plan: Plan) -> list[schema.Column]:
    """The problems, and those that are made of the public splits."""
    groups = {name: (group["title"], group["text"]) for name, group in GROUPS.items()}
    for name, options in plan.variants.items():
        with_what = ", ".join(f"{key} = {str(value).lower()}" for key, value in options.items())
        groups[name] = (
            f"The public splits, {name}",
            "Another protocol, not to be compared with the others: the settings that were chosen "
            f"on the public split, trained once more with {with_what}.",
        )
    found = []
    for group, about in groups.items():
        again = group == RANDOM or group in plan.variants
        for one in PROBLEMS.values():
            if again and one.splits == 1:
                name = f"{one.dataset}-{group}"
                found.append(schema.Column(name, one.title, group, *about, one.score, False))
            elif not again and one.groups[0] == group:
                found.append(schema.Column(one.name, one.title, group, *about, one.score))
    return found


def protocol_words(plan: Plan) -> list[str]:
    """The protocol in sentences, and where it differs."""
    one, other = plan.protocol_of(), plan.protocol.get("on", {})
    different = "; ".join(
        f"{name}: {', '.join(f'{key} = {value}' for key, value in table.items())}"
        for name, table in other.items()
    )
    return [
        "No search reads the test set: settings are compared by the mean validation score, equal "
        "ones by the validation loss. Then the test set is read, once.",
        f"On a public split every setting is trained with {one.seeds} seeds, and the chosen one "
        f"with {one.final_seeds}. On ten splits, split s with seed s, every setting is trained on "
        f"the first {one.screen_splits}, and the best {one.screen} on all ten. On "
        f"{one.random.splits} random splits, the settings of the public split are trained.",
        *[f"Other values for some problems: {different} (screen = 1: the first splits choose)."]
        * bool(other),
    ]
