"""The comparison table as a report: a section for each group of problems."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from experiments.paper import Score
from experiments.report import NOTHING, Report, Section, Table
from experiments.results import Column, Difference, Figure, LinearTable

PUBLISHED = Path(__file__).with_name("published.toml")
QUOTED = {
    "linear": "published, best linear",
    "anchor": "published, not linear",
    "reach": "to reach",
}


def linear_report(table: LinearTable) -> Report:
    """The whole report."""
    groups: dict[str, list[Column]] = {}
    for column in table.columns:
        if any(one.problem == column.name for one in table.figures):
            groups.setdefault(column.group, []).append(column)
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    sections = [_section(table, name, columns, published) for name, columns in groups.items()]
    absent = f"Left out, as their graph has no file: {', '.join(table.absent)}."
    return Report(
        title="Linear graph convolutions on many graphs",
        headline=headline(table, published),
        findings=[
            *table.protocol,
            "Published figures are quoted from their papers, whose protocols are not all this one; "
            "none is measured here.",
            *[table.note] * bool(table.note),
            *[absent] * bool(table.absent),
        ],
        sections=sections,
        command=table.command,
        date=table.provenance.date or "an unknown date",
        machine=table.provenance.machine,
    )


def headline(table: LinearTable, published: dict[str, Any]) -> str:
    """How many figures there are, and how many of those to reach are reached, as shown."""
    goals = {name: one["reach"] for name, one in published.items() if "reach" in one}
    best = {name: _best(table, name) for name in goals}
    known = {name: value for name, value in best.items() if value is not None}
    reached = sum(value >= goals[name] for name, value in known.items())
    methods = {one.method for one in table.figures}
    return (
        f"{len(table.figures)} figures of {len(methods)} methods. In {reached} of {len(known)} "
        "columns with a figure to reach, the best test mean of all linear classifiers reaches it, "
        "rounded to one decimal; as a maximum over methods that is read on the test set, it is "
        "slightly optimistic."
    )


def _best(table: LinearTable, problem: str) -> float | None:
    """The best test mean of the linear methods, in percent."""
    linear = {row.name for row in table.rows if row.linear}
    means = [
        round(100 * one.test_mean, 1)
        for one in table.figures
        if one.problem == problem and one.method in linear and one.test_mean is not None
    ]
    return max(means, default=None)


def _section(
    table: LinearTable, group: str, columns: list[Column], published: dict[str, Any]
) -> Section:
    names = ["method", *[column.title for column in columns]]
    best = {column.name: _best(table, column.name) for column in columns}
    rows, effort, chosen = [], [], []
    for row in table.rows:
        figures = [table.figure(row.name, column.name) for column in columns]
        if any(figures):
            title = row.title if row.linear else f"{row.title} (not linear)"
            rows.append([title, *[_score(one, row.linear, best) for one in figures]])
            effort.append([row.title, *map(_effort, figures)])
            chosen += [
                [row.title, column.title, settings(one)]
                for column, one in zip(columns, figures, strict=True)
                if one is not None
            ]
    rows.append(["majority", *[_majority(table, column) for column in columns]])
    for key, title in QUOTED.items():
        cells = [_quoted(published.get(column.name, {}).get(key)) for column in columns]
        rows += [[title, *cells]] if {*cells} != {NOTHING} else []
    score = {"roc_auc": "ROC AUC", "accuracy": "Test accuracy"}[columns[0].score]
    caption = f"{score} in percent, mean ± population standard deviation; ★ is the best linear "
    caption += "classifier, and below a score is its difference from "
    caption += f"{table.reference}, split by split, with its 95 % t-interval."
    cost = "Milliseconds of an epoch and seconds of a whole training of the chosen setting, while "
    cost += "the other workers trained; settings that were tried, and processor minutes."
    tables = [Table(caption, names, rows), Table(cost, names, effort, folded=True)]
    if columns[0].searched:
        what = "Chosen settings, of those that the method's grid names"
        tables.append(Table(what, ["method", "problem", "settings"], chosen, folded=True))
    return Section(group, columns[0].group_title, columns[0].words, tables=tables)


def _score(one: Figure | None, linear: bool, best: dict[str, float | None]) -> str:
    if one is None:
        return NOTHING
    if one.test_mean is None:
        return "diverged"
    score = Score.of_shares(one.test_mean, one.test_std)
    star = " ★" if linear and round(score.mean, 1) == best[one.problem] else ""
    below = "" if one.difference is None else f"\n{difference(one.difference)}"
    return f"{score}{star}{below}"


def difference(found: Difference | None, *, every: bool = False) -> str:
    """In points, with its interval; ``every``: the one for all pairs at once.

    >>> difference(Difference(to="lgc", splits=20, pairs=9, mean=0.001, low=-0.001, high=0.002,
    ...                       low_all=-0.01, high_all=0.02))
    '+0.10 (-0.10 to +0.20)'
    """
    if found is None:
        return NOTHING
    ends = (found.low_all, found.high_all) if every else (found.low, found.high)
    low, high = (f"{100 * end:+.2f}" for end in ends)
    return f"{100 * found.mean:+.2f} ({low} to {high})"


def settings(one: Figure) -> str:
    """What was chosen, of what the method's grid names."""
    found = {name: one.config[name] for name in one.changed if name in one.config} | one.reading
    return ", ".join(f"{name} = {value}" for name, value in found.items()) or "defaults"


def _majority(table: LinearTable, column: Column) -> str:
    known = [one.baseline for one in table.figures if one.problem == column.name and one.baseline]
    return f"{100 * known[0]:.1f}" if known else NOTHING


def _quoted(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value['figure']:.1f} ({value['by']})" if isinstance(value, dict) else f"{value:.1f}"


def _effort(one: Figure | None) -> str:
    if one is None:
        return NOTHING
    times = f"{one.ms_per_epoch or 0:.3g} ms, {one.seconds or 0:.3g} s"
    return f"{times}; {one.tried:,}, {one.search_seconds / 60:.2g} min"
