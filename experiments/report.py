"""A report is sections of text, tables and figures; here it becomes a page, Markdown or plain text.

A cell of a table is text of one or more lines: the first one is the figure, the others explain it.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs
from rich.console import Console
from rich.markup import escape
from rich.table import Table as TerminalTable

from benchmarks.machine import Machine
from hoplite.files import atomic_write_text
from hoplite.plots import render

TEMPLATE = Path(__file__).with_name("report.html")
NOTHING = "\u2013"  # an en dash


@dataclass(frozen=True)
class PageFigure:
    """A plot of a page: Plotly's data and layout, a summary in words, and its numbers as a table.

    Parameters
    ----------
    id : str
        Of the element that holds it.
    heading, summary : str
    data, layout
        For Plotly; colours are names such as "@lgc/0.2" of the style sheet.
    columns, rows
        The numbers of the plot, as text.
    keys : list of (series, name, colour), default []
        What a legend switches on and off.
    height : str, default ""
        A length of CSS; that of the style sheet if empty.
    """

    id: str
    heading: str
    summary: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    keys: list[tuple[str, str, str]] = field(default_factory=list)
    height: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; ``folded`` away on the page, and not printed in the terminal."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the report; it may have a ``warning``, such as that its figures are biased."""

    id: str
    title: str
    text: str = ""
    warning: str = ""
    lines: Sequence[str] = ()
    figures: Sequence[PageFigure] = ()
    tables: Sequence[Table] = ()
    markdown: str = ""  # written by hand, for the Markdown alone


@dataclass(frozen=True)
class Report:
    """What there is to say, and where it comes from."""

    title: str
    headline: str
    findings: Sequence[str]
    sections: Sequence[Section]
    command: str
    date: str
    machine: Machine = field(default_factory=Machine)

    @property
    def versions(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.machine.versions.items())


def page(report: Report) -> str:
    """The report as one HTML page; every text is escaped."""
    plots = {section.id: section.figures for section in report.sections if section.figures}
    legends = {
        name: list(dict.fromkeys(key for figure in figures for key in figure.keys))
        for name, figures in plots.items()
    }
    specs = [
        {"id": figure.id, "data": figure.data, "layout": figure.layout}
        for figures in plots.values()
        for figure in figures
    ]
    return render(
        TEMPLATE.read_text(encoding="utf-8"),
        specs=specs,
        plotly=Markup(get_plotlyjs()) if specs else "",  # 4.7 MB
        report=report,
        legends=legends,
        anchors=[(section.id, section.title) for section in report.sections],
    )


def markdown(report: Report) -> str:
    """The report as Markdown, without its figures; every text is escaped."""
    parts = [
        f"# {plain(report.title)}",
        f"Written by {code(report.command)} on {plain(report.date)}; do not edit.",
        f"- Machine: {plain(report.machine.line)}\n- Versions: {plain(report.versions)}",
        f"**{plain(report.headline)}**",
        "\n".join(f"- {plain(line)}" for line in report.findings),
    ]
    for section in report.sections:
        if section.lines or section.tables or section.markdown:
            parts += [
                f"## {plain(section.title)}",
                f"**{plain(section.warning)}**" if section.warning else "",
                plain(section.text),
                "\n".join(f"- {plain(line)}" for line in section.lines),
                section.markdown.strip(),
            ]
        for table in section.tables:
            parts += [plain(table.caption), grid(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(report: Report, out: Path, name: str) -> None:
    """Write ``report.html`` and the Markdown file ``name`` to the folder ``out``."""
    atomic_write_text(out / "report.html", page(report))
    atomic_write_text(out / name, markdown(report))


def fill_template(module: str, **parts: object) -> str:
    """The Markdown of the file next to a ``module`` that has its name, with its ``{parts}``."""
    return Path(module).with_suffix(".md").read_text(encoding="utf-8").format(**parts)


def show(report: Report, console: Console | None = None) -> None:
    """Print the headline, the findings and the tables that are not folded."""
    output = console or Console(width=None if os.isatty(1) else 160)
    for section in report.sections:
        for table in section.tables:
            if not table.folded:
                if section.warning:
                    output.print(section.warning, markup=False, highlight=False)
                drawn = TerminalTable(*table.columns, title=section.title, title_justify="left")
                for row in table.rows:
                    drawn.add_row(*map(escape, row))
                output.print(drawn)
        for line in section.lines if section.tables else ():
            output.print(f"- {line}", markup=False, highlight=False)
    for line in (report.headline, *report.findings):
        output.print(line, markup=False, highlight=False)


def grid(table: Table) -> str:
    """A table of Markdown."""
    lines = [
        [plain(name) for name in table.columns],
        ["---", *["---:"] * (len(table.columns) - 1)],
        *([_cell(text, first=not i) for i, text in enumerate(row)] for row in table.rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str, *, first: bool) -> str:
    top, *rest = text.split("\n")
    top = plain(top) if first or not rest else f"**{plain(top)}**"
    return "<br>".join([top, *map(plain, rest)])


def plain(value: str) -> str:
    """Text that Markdown shows as it is.

    >>> plain("<b>a|b</b>")
    '&lt;b&gt;a\\\\|b&lt;/b&gt;'
    """
    value = html.escape(" ".join(value.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", value)


def code(value: str) -> str:
    """A code span around any text.

    >>> code("a ` b")
    '`` a ` b ``'
    """
    value = " ".join(value.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", value)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{value}{pad}{fence}"
