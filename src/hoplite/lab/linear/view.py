"""The second table arranged for people: a section for each group of problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hoplite.lab.linear.results import Column, Figure, LinearTable, Published, Row, published
from hoplite.lab.paper import Score
from hoplite.lab.report.view import interval, milliseconds, setting
from hoplite.lab.report.view import score as shown
from hoplite.words import NOTHING, number, plural, signed

QUOTED = (
    ("linear", "published, best linear"),
    ("anchor", "published, not linear"),
    ("reach", "to reach"),
)


@dataclass(frozen=True)
class Entry:
    """A cell of a section."""

    figure: Figure
    best: bool  # of the linear methods of its column

    @property
    def score(self) -> str:
        """Mean and deviation in percent.

        >>> shown(Score(81.25, 0.5))
        '81.2 ± 0.50'
        """
        mean, std = self.figure.test_mean, self.figure.test_std
        return "diverged" if mean is None else shown(Score(100 * mean, 100 * (std or 0.0)))

    @property
    def difference(self) -> str:
        """From the reference in points, with its 95 % interval; empty if there is none."""
        found = self.figure.difference
        return "" if found is None else f"{signed(100 * found.mean, 2)} ({interval(found)})"


@dataclass(frozen=True)
class Section:
    """The problems of a group, with a row for every method that has a figure there."""

    name: str
    title: str
    words: str
    columns: list[Column]
    rows: list[tuple[Row, list[Entry | None]]]
    majority: list[float | None]
    quoted: list[Published]

    @property
    def measure(self) -> str:
        """What the figures are."""
        names = {column.score for column in self.columns}
        what = "ROC AUC" if names == {"roc_auc"} else "Test accuracy"
        return f"{what} in percent, mean ± population standard deviation"

    def majority_row(self) -> list[str]:
        return ["majority", *[NOTHING if v is None else f"{100 * v:.1f}" for v in self.majority]]

    def quoted_rows(self) -> list[list[str]]:
        """What others published, and what is to be reached; rows without a figure are left out."""
        rows = []
        for name, title in QUOTED:
            cells = [_quoted(getattr(one, name)) for one in self.quoted]
            rows += [[title, *cells]] if any(cell != NOTHING for cell in cells) else []
        return rows

    def difference_rows(self) -> list[list[str]]:
        """Of the methods with a difference from the reference."""
        rows = [
            [row.title, *[(entry and entry.difference) or NOTHING for entry in entries]]
            for row, entries in self.rows
        ]
        return [row for row in rows if any(cell != NOTHING for cell in row[1:])]

    def effort_rows(self) -> list[list[str]]:
        """What a training of the chosen setting and the search cost."""
        return [[row.title, *map(_effort, entries)] for row, entries in self.rows]


def sections(table: LinearTable) -> list[Section]:
    """Those that have a figure."""
    found, known = [], published()
    linear = {row.name for row in table.rows if row.linear}
    for name in dict.fromkeys(column.group for column in table.columns):
        columns = [
            column
            for column in table.columns
            if column.group == name and any(one.problem == column.name for one in table.figures)
        ]
        if not columns:
            continue
        best = {}
        for column in columns:
            own = [
                round(100 * one.test_mean, 1)
                for one in table.figures
                if one.problem == column.name and one.method in linear and one.test_mean is not None
            ]
            best[column.name] = max(own, default=None)

        def entry(row: Row, column: Column, best: Mapping[str, float | None] = best) -> Any:
            figure = table.figure(row.name, column.name)
            if figure is None:
                return None
            mean = figure.test_mean
            top = mean is not None and row.linear and round(100 * mean, 1) == best[column.name]
            return Entry(figure, top)

        rows = [(row, [entry(row, column) for column in columns]) for row in table.rows]
        found.append(
            Section(
                name=name,
                title=columns[0].group_title,
                words=columns[0].words,
                columns=columns,
                rows=[(row, entries) for row, entries in rows if any(entries)],
                majority=[_majority(table, column) for column in columns],
                quoted=[known.get(column.name, Published()) for column in columns],
            )
        )
    return found


def settings(figure: Figure) -> str:
    """What was chosen, without the defaults; with them, if an earlier version wrote it."""
    names = figure.config if figure.changed is None else figure.changed
    told = [setting(name, figure.config[name]) for name in names if name in figure.config]
    reading = [setting(name, value) for name, value in figure.reading.items()]
    return ", ".join([*reading, *told]) or "defaults"


def headline(table: LinearTable) -> str:
    """How many figures there are, and how many are to be reached and are, as they are shown."""
    reached = total = 0
    for section in sections(table):
        for i, one in enumerate(section.quoted):
            if one.reach is not None:
                entries = [cells[i] for row, cells in section.rows if row.linear and cells[i]]
                means = [entry.figure.test_mean for entry in entries if entry is not None]
                known = [round(100 * mean, 1) for mean in means if mean is not None]
                total += 1
                reached += max(known, default=0.0) >= one.reach
    figures = plural(len(table.figures), "figure")
    methods = plural(len({one.method for one in table.figures}), "method")
    return (
        f"{figures} of {methods}. In {reached} of {total} columns with a figure to reach, the best "
        "test mean of all linear classifiers reaches it, rounded to one decimal; as a maximum over "
        "methods that is read on the test set, it is slightly optimistic."
    )


def coming(table: LinearTable) -> list[str]:
    """The methods whose figures are still to come, column by column."""
    titles = {row.name: row.title for row in table.rows}
    return [
        f"{column}: {', '.join(titles.get(name, name) for name in methods)}"
        for column, methods in table.coming.items()
    ]


def _majority(table: LinearTable, column: Column) -> float | None:
    known = (one.baseline for one in table.figures if one.problem == column.name)
    return next((value for value in known if value is not None), None)


def _quoted(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f}" if isinstance(value, float) else f"{value.figure:.1f} ({value.by})"


def _effort(entry: Entry | None) -> str:
    if entry is None:
        return NOTHING
    one = entry.figure
    parts = [f"{milliseconds(one.ms_per_epoch)} ms", f"{number(one.seconds)} s"]
    return f"{', '.join(parts)}; {one.tried:,}, {number(one.search_seconds / 60, 2)} min"
