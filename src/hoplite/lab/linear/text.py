"""The second table as text: LINEAR.md, and compact tables for the terminal."""

from __future__ import annotations

import os

from hoplite.files import atomic_write_text
from hoplite.lab.linear.results import LinearTable
from hoplite.lab.linear.view import Entry, Section, coming, headline, sections, settings
from hoplite.lab.report.findings import machine_line
from hoplite.lab.report.text import code_span, grid, plain_text
from hoplite.lab.results import Results
from hoplite.words import NOTHING, number, plural

QUOTED = (
    "Published figures are quoted from their papers, whose protocols are not all this one; none is "
    "measured here."
)
EFFORT = (
    "Milliseconds of an epoch and seconds of a whole training of the chosen setting, as they were "
    "while the other workers trained; settings that were tried, and processor minutes of their "
    "search."
)


def write_markdown(table: LinearTable, out: str | os.PathLike[str]) -> None:
    """Write :func:`markdown` as the file ``out``, completely or not at all."""
    atomic_write_text(out, markdown(table))


def markdown(table: LinearTable) -> str:
    """The page; every text of the table is escaped."""
    made = table.provenance
    versions = ", ".join(f"{name} {value}" for name, value in made.machine.versions.items())
    found = sections(table)
    parts = [
        "# The second table: linear graph convolutions",
        f"Written by {code_span(table.command)} on {plain_text(made.date or 'an unknown date')}; "
        "do not edit.",
        _coming(table),
        f"**{plain_text(headline(table))}**",
        plain_text(table.note),
        "\n".join(f"- {plain_text(line)}" for line in table.protocol),
        "\n".join(f"- {line}" for line in _facts(table, versions)),
        *(part for section in found for part in _section(table, section)),
        *_effort(found),
        *_chosen(table, found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(table: LinearTable, versions: str) -> list[str]:
    machine = machine_line(Results(provenance=table.provenance))
    lines = [
        f"Machine: {plain_text(machine)}; the last call took {number(table.minutes)} minutes, and "
        "went on from what earlier ones had left.",
        f"Versions: {plain_text(versions or 'unknown')}",
        QUOTED,
    ]
    if table.left_out:
        left = plain_text(", ".join(table.left_out))
        lines.append(f"Left out, as no file of their graph was given: {left}.")
    return lines


def _coming(table: LinearTable) -> str:
    if not table.missing:
        return ""
    told = (
        f"Still to come: {plural(table.missing, 'figure')}. {code_span(table.command)} continues."
    )
    lines = [f"- {plain_text(line)}" for line in coming(table)]
    return "\n".join([f"**{told}**", *([""] if lines else []), *lines])


def _section(table: LinearTable, section: Section) -> list[str]:
    columns = ["method", *[plain_text(column.title) for column in section.columns]]
    rows = [
        [_label(row.title, row.linear), *[_cell(entry) for entry in entries]]
        for row, entries in section.rows
    ]
    rows += [[*map(plain_text, section.majority_row())]]
    rows += [
        [f"*{plain_text(row[0])}*", *map(plain_text, row[1:])] for row in section.quoted_rows()
    ]
    parts = [
        f"## {plain_text(section.title)}",
        f"{plain_text(section.words)} {section.measure}; the best linear classifier in bold, "
        "methods that are none in italics.",
        grid(columns, rows),
    ]
    differences = section.difference_rows()
    if differences:
        title = next((r.title for r in table.rows if r.name == table.reference), table.reference)
        parts += [
            f"### Minus {plain_text(title)}, split by split",
            "Mean of the difference in points, with its 95 % t-interval.",
            grid(columns, [[*map(plain_text, row)] for row in differences]),
        ]
    return parts


def _effort(found: list[Section]) -> list[str]:
    parts = ["## Effort", EFFORT] if found else []
    for section in found:
        columns = ["method", *[plain_text(column.title) for column in section.columns]]
        rows = [[*map(plain_text, row)] for row in section.effort_rows()]
        parts += [f"### {plain_text(section.title)}", grid(columns, rows)]
    return parts


def _chosen(table: LinearTable, found: list[Section]) -> list[str]:
    parts = ["## What was chosen", "Settings that are not the model's defaults."] if found else []
    for section in found:
        if not all(column.searched for column in section.columns):
            continue
        rows = [
            [plain_text(row.title), plain_text(column.title),
             plain_text(settings(entry.figure)), _validation(entry)]
            for row, entries in section.rows
            for column, entry in zip(section.columns, entries, strict=True)
            if entry is not None
        ]  # fmt: skip
        columns = ["method", "problem", "settings", "validation"]
        parts += [f"### {plain_text(section.title)}", grid(columns, rows)]
    return parts


def _validation(entry: Entry) -> str:
    known = [value for value in entry.figure.val if value is not None]
    return f"{100 * sum(known) / len(known):.1f}" if known else NOTHING


def _label(title: str, linear: bool) -> str:
    return plain_text(title) if linear else f"*{plain_text(title)}*"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return NOTHING
    return f"**{entry.score}**" if entry.best else entry.score


def terminal_tables(table: LinearTable) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of every section."""
    return [
        (
            f"{section.title}: {section.measure}",
            ["method", *[column.title for column in section.columns]],
            [
                *(
                    [row.title, *[entry.score if entry else NOTHING for entry in entries]]
                    for row, entries in section.rows
                ),
                section.majority_row(),
                *section.quoted_rows(),
            ],
        )
        for section in sections(table)
    ]
