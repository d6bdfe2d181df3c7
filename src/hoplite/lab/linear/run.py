"""The second table, made: every method on every problem, by the protocol of ``trainings``."""

from __future__ import annotations

import datetime
import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hoplite.errors import ConfigError, HopliteError
from hoplite.lab.linear.methods import (
    Method,
    Plan,
    Protocol,
    RandomSplits,
    changed_options,
    chosen_methods,
    read_methods,
)
from hoplite.lab.linear.page import write_page
from hoplite.lab.linear.problems import (
    GROUPS,
    PROBLEMS,
    RANDOM,
    SPLITS,
    Problem,
    chosen_problems,
)
from hoplite.lab.linear.results import (
    FILE,
    Column,
    Figure,
    LinearTable,
    Row,
    mean_and_std,
    read_linear,
    write_linear,
)
from hoplite.lab.linear.text import write_markdown
from hoplite.lab.linear.trainings import JOBS, Cell, Outcome, Stages, Task, Test, tasks_of
from hoplite.lab.machine import Machine, describe
from hoplite.lab.reproduce.comparison import paired
from hoplite.lab.results import FILE as OTHER_TABLE
from hoplite.lab.results import Provenance
from hoplite.selection.workers import train_in_processes
from hoplite.words import listing, plural

CORES = os.cpu_count() or 1
WRITE_SECONDS = 10.0  # between two looks at what is finished
PAGE, MARKDOWN = "report.html", "LINEAR.md"

Report = Callable[[str, float], None]


def linear_table(
    out: str | os.PathLike[str],
    *,
    graphs: str | os.PathLike[str] | None = None,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    workers: int | None = None,
    methods: str | os.PathLike[str] | None = None,
    progress: Report | None = None,
) -> LinearTable:
    """Make the second table in ``out``, or go on with it, and return it.

    ``out`` gets ``linear.json``, ``LINEAR.md`` and ``report.html``, and below it every training in
    a file of its own: a call that was interrupted, in whatever way, is continued by the same call,
    and after a change of the methods only what is new is trained.

    Parameters
    ----------
    graphs : folder with the ``.npz`` files of the graphs that do not come with Hoplite; problems
        whose file is not there are left out, and named
    datasets : only these problems, datasets or groups of problems; what ``out`` has of others stays
    models : only these methods; what ``out`` has of others stays
    workers : processes, one per core if None. In a script, more than one need the usual
        ``if __name__ == "__main__":``
    methods : a file like Hoplite's own ``methods.toml``
    progress : called with what is being done and how far all of it is, 0 to 1
    """
    folder, report = Path(out), progress or (lambda what, share: None)
    started = time.monotonic()
    place = None if graphs is None else Path(graphs)
    if place is not None and not place.is_dir():
        raise ConfigError(f"graphs is {str(graphs)!r}, which is no folder; give one of .npz files.")
    if (folder / OTHER_TABLE).exists():
        raise ConfigError(
            f"{folder} holds a run of the paper's experiments; give the second table another "
            "folder, such as one below it."
        )
    plan = read_methods(methods)
    problems, rows = chosen_problems(datasets), chosen_methods(plan, models)
    cells = [
        cell
        for problem in problems
        for method in rows
        if (cell := _cell(plan, method, problem, place)) is not None
    ]
    if not cells:
        raise ConfigError(
            "there is nothing to train: no method is for these datasets, or their files are not "
            "in the folder of graphs (--graphs)."
        )
    tasks = [task for cell in cells for task in tasks_of(cell, plan.variants)]
    now = {(task.cell.method.name, task.problem) for task in tasks if isinstance(task, Test)}
    jobs = folder / JOBS
    try:
        jobs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    old = read_linear(folder) if (folder / FILE).exists() else LinearTable()
    some = datasets is not None or models is not None
    table = replace(
        old,
        command=_command(folder, place, methods) if not (some and old.command) else old.command,
        provenance=Provenance(datetime.date.today().isoformat(), _machine(workers or CORES)),
        note=plan.note,
        reference=plan.reference,
        protocol=_protocol_words(plan),
        rows=[Row(one.name, one.title, one.model, one.linear) for one in plan.methods.values()],
        columns=_columns(plan),
        figures=[one for one in _still_true(old, plan) if some and _place_of(one) not in now],
    )
    growing = _Growing(folder, jobs, table, tasks, _Whole(plan, place), report)
    work = Stages(jobs, tasks)
    growing.look()
    if growing.left:
        processes = min(workers or CORES, len(work.waiting()))
        if processes > 1:
            train_in_processes(work, processes, growing.look)
        else:
            work.work(growing.look)
            work.tidy()
    growing.gather()
    minutes = old.minutes + (time.monotonic() - started) / 60
    table = compared(replace(growing.table, minutes=minutes))
    _write(table, folder)
    try:
        write_page(table, folder / PAGE)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    report("done", 1.0)
    return table


def _write(table: LinearTable, folder: Path) -> None:
    write_linear(table, folder)
    try:
        write_markdown(table, folder / MARKDOWN)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def _place_of(figure: Figure) -> tuple[str, str]:
    return figure.method, figure.problem


def _still_true(old: LinearTable, plan: Plan) -> list[Figure]:
    """Figures of an earlier call whose method has its model, and whose splits have their sizes."""
    models = {row.name: row.model for row in old.rows}
    sizes = {
        f"{one.dataset}-{RANDOM}": plan.protocol(one).random.sizes()
        for one in PROBLEMS.values()
        if one.splits == 1
    }
    columns = {column.name for column in _columns(plan)}
    return [
        one
        for one in old.figures
        if one.method in plan.methods
        and plan.methods[one.method].model == models.get(one.method)
        and one.problem in columns
        and one.sizes in ({}, sizes.get(one.problem))
    ]


class _Whole:
    """What the whole table is to have, whichever part of it a call makes."""

    def __init__(self, plan: Plan, graphs: Path | None) -> None:
        self._expected: list[tuple[str, str]] = []
        self._absent: list[tuple[str, str]] = []  # the method is "" if the problem has no file
        for problem in PROBLEMS.values():
            there = problem.path(graphs, {}) is not None
            self._absent += [] if there else [("", problem.name)]
            for method in plan.methods.values():
                columns = plan.columns(method, problem, graphs)
                self._expected += [(method.name, column) for column in columns]
                if there and method.takes(problem) and not columns:
                    self._absent.append((method.name, problem.name))

    def told(self, table: LinearTable) -> LinearTable:
        """The table, with what is still to come and what has no file; never what has a figure."""
        known = {place for one in table.figures for place in (_place_of(one), ("", one.problem))}
        left = [place for place in self._expected if place not in known]
        coming: dict[str, list[str]] = {}
        for method, column in left:
            coming.setdefault(column, []).append(method)
        absent = [
            f"{method} on {problem}" if method else problem
            for method, problem in self._absent
            if (method, problem) not in known
        ]
        return replace(table, missing=len(left), coming=coming, absent=absent)


def _machine(threads: int) -> Machine:
    """This one; its bandwidth is not measured, as no time here is compared with another's."""
    return replace(describe(threads, floats=1), bandwidth_gb_s=None)


def _cell(plan: Plan, method: Method, problem: Problem, graphs: Path | None) -> Cell | None:
    """None if the method is not for the problem, or the files that it reads are not there."""
    if not method.takes(problem):
        return None
    settings = plan.settings(method, problem)
    readable = [one for one in settings if problem.path(graphs, one.reading) is not None]
    if not readable:
        return None
    unread = len(settings) - len(readable)
    return Cell(method, problem, tuple(readable), plan.protocol(problem), graphs, unread)


class _Growing:
    """The table while it is made: what is finished is in it, and on disk."""

    def __init__(
        self,
        folder: Path,
        jobs: Path,
        table: LinearTable,
        tasks: Sequence[Task],
        whole: _Whole,
        report: Report,
    ) -> None:
        self.table, self._whole = whole.told(table), whole
        _write(compared(self.table), folder)  # so that a report knows it from the start
        self.left = [task for task in tasks if isinstance(task, Test)]
        self._folder, self._jobs, self._report = folder, jobs, report
        self._waiting, self._count = list(tasks), len(tasks)
        self._looked = -WRITE_SECONDS

    def look(self) -> None:
        """Tell how far it is, and write what is new, now and then."""
        if time.monotonic() - self._looked >= WRITE_SECONDS:
            self._waiting = [task for task in self._waiting if task.kept(self._jobs) is None]
            self.gather()
            self._looked = time.monotonic()
        name = self._waiting[0].name if self._waiting else "report"
        self._report(name, 0.99 * (1 - len(self._waiting) / self._count))

    def gather(self) -> None:
        """Take in what was finished since."""
        pairs = [(task, task.kept(self._jobs)) for task in self.left]
        self.left = [task for task, outcome in pairs if outcome is None]
        new = [_figure(task, outcome) for task, outcome in pairs if outcome is not None]
        if new:
            table = replace(self.table, figures=[*self.table.figures, *new])
            self.table = self._whole.told(table)
            _write(compared(self.table), self._folder)


def _figure(task: Test, found: Outcome) -> Figure:
    mean, std = mean_and_std(found.test)
    return Figure(
        method=task.cell.method.name,
        problem=task.problem,
        reading=found.choice.reading,
        config=found.config,
        splits=found.splits,
        seeds=found.seeds,
        val=found.val,
        test=found.test,
        test_mean=mean,
        test_std=std,
        baseline=found.baseline,
        tried=found.choice.tried,
        finalists=found.choice.finalists,
        runs=found.choice.runs,
        diverged=found.choice.diverged,
        search_seconds=found.choice.seconds,
        epochs=found.epochs,
        ms_per_epoch=found.ms_per_epoch,
        seconds=found.seconds,
        hoplite=found.choice.hoplite,
        changed=changed_options(task.cell.model, found.config),
        sizes=found.sizes or task.sizes(),
        unread=task.cell.unread,
    )


def compared(table: LinearTable) -> LinearTable:
    """The table with differences from the reference, where both were trained on several splits.

    The intervals for all pairs at once are of the pairs of one problem.
    """
    figures = []
    for one in table.figures:
        base = table.figure(table.reference, one.problem)
        pairs = sum(other.problem == one.problem for other in table.figures) - 1
        difference = None
        if (
            base is not None
            and base is not one
            and len({*one.splits}) > 1
            and one.splits == base.splits
        ):
            difference = paired(one.test, base.test, pairs, to=table.reference)
        figures.append(replace(one, difference=difference))
    order = {name: i for i, name in enumerate(column.name for column in table.columns)}
    methods = {row.name: i for i, row in enumerate(table.rows)}
    figures.sort(key=lambda one: (order[one.problem], methods[one.method]))
    return replace(table, figures=figures)


def _columns(plan: Plan) -> list[Column]:
    """The problems, and those that are made of the public splits."""
    found = []
    for group in GROUPS.values():
        about = (group.name, group.title, group.words)
        if group.name == RANDOM:
            about = _about_random(plan)
        for one in PROBLEMS.values():
            if one.group == group.name:
                found.append(Column(one.name, one.title, *about, one.score))
            elif one.splits == 1 and group.name == RANDOM:
                found.append(Column(f"{one.dataset}-{RANDOM}", one.title, *about, one.score, False))
    for variant, options in plan.variants.items():
        told = ", ".join(f"{name} = {str(value).lower()}" for name, value in options.items())
        about = (
            variant,
            f"The public splits, {variant}",
            f"Another protocol, not to be compared with the others: the settings that were chosen "
            f"on the public split, trained once more with {told}.",
        )
        found += [
            Column(f"{one.dataset}-{variant}", one.title, *about, one.score, False)
            for one in PROBLEMS.values()
            if one.splits == 1
        ]
    return found


def _about_random(plan: Plan) -> tuple[str, str, str]:
    """The group of random splits, with the sizes that they have."""
    group = GROUPS[RANDOM]
    same = all(
        plan.protocol(one).random.sizes() == RandomSplits().sizes()
        for one in PROBLEMS.values()
        if one.splits == 1
    )
    title = f"{group.title} of the same sizes" if same else group.title
    sizes = _each(
        plan,
        1,
        lambda one: (
            f"{one.random.per_class} nodes a class to train, {one.random.val:,} to "
            f"validate, {one.random.test:,} to test"
        ),
    )
    return group.name, title, f"{group.words} {sizes[0].upper()}{sizes[1:]}."


def _each(plan: Plan, splits: int, words: Callable[[Protocol], str]) -> str:
    """What is true of the problems with so many splits; if not of all, with their titles."""
    found: dict[str, list[str]] = {}
    for one in PROBLEMS.values():
        if one.splits == splits:
            titles = found.setdefault(words(plan.protocol(one)), [])
            titles += [one.title] * (one.title not in titles)  # it may have several splits
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{said} ({listing(titles)})" for said, titles in found.items())


def _of_ten(one: Protocol) -> str:
    first = f"every setting is trained on the first {min(one.screen_splits, SPLITS)}"
    if one.screen == 1:
        return f"{first}, which choose"
    return f"{first} and the best {one.screen} on all ten, of which the best is chosen"


def _protocol_words(plan: Plan) -> list[str]:
    seeds = _each(
        plan,
        1,
        lambda one: (
            f"every setting is trained with {plural(one.seeds, 'seed')}, and the chosen "
            f"one with {one.final_seeds}"
        ),
    )
    random = _each(plan, 1, lambda one: plural(one.random.splits, "split"))
    return [
        "The grids are those of Hoplite's own methods.toml, as committed."
        if plan.own
        else "The grids are those of a file that was given (--methods).",
        "No search reads the test set: settings are compared by the mean validation score, equal "
        "ones by the validation loss. The choice is written down, and then the test set is read, "
        "once.",
        f"On a public split {seeds}.",
        f"On ten splits, split s with seed s, {_each(plan, SPLITS, _of_ten)}.",
        f"On random splits that nothing was chosen on, the settings of the public split are "
        f"trained: {random}.",
    ]


def _command(folder: Path, graphs: Path | None, methods: str | os.PathLike[str] | None) -> str:
    """The command that repeats this."""
    words = ["hoplite", "reproduce", "--table", "linear", "--out", _name(folder)]
    words += [] if graphs is None else ["--graphs", _name(graphs)]
    return shlex.join([*words, *([] if methods is None else ["--methods", _name(Path(methods))])])


def _name(path: Path) -> str:
    """A path as a command names it, without what is outside of the current folder."""
    name = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    return name.encode("utf-8", "replace").decode("utf-8")
