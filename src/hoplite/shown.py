"""What objects show of themselves in notebooks and terminals: facts and small tables, as text.

One description, three renderings: HTML for notebooks (``_repr_html_``), Rich for terminals
(``rich.print``), and plain text. All names come from strangers, so nothing in them is mark-up.
"""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hoplite.printable import printable

LONGEST = 80  # characters of a name in a sentence or a table
FACT = 300  # characters of a fact
MOST_ROWS = 12  # of a table; what follows is counted


def short(name: object, longest: int = LONGEST) -> str:
    """A name of at most ``longest`` characters; what is cut is cut from its middle.

    >>> short("renormalized", 7), short(17)
    ('ren…zed', '17')
    """
    name = str(name)
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column is names, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @property
    def cut(self) -> list[list[str]]:
        """The rows that are shown, names shortened, and in the last one how many are not."""
        rows = [[_cell(value) for value in row] for row in self.rows[:MOST_ROWS]]
        more = len(self.rows) - len(rows)
        return rows + ([[f"and {more:,} more", *[""] * (len(self.columns) - 1)]] if more else [])


@dataclass(frozen=True)
class Shown:
    """A title, facts with their names, tables, and sentences below.

    >>> print(Shown("Pets", {"nodes": "3"}, [Table(["class", "nodes"], [["<b>", "2"]])]).text())
    Pets
      nodes  3
      class  nodes
      <b>        2
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Plain text, in columns."""
        lines = [printable(self.title)]
        lines += _aligned([[name, _fact(value)] for name, value in self.facts.items()], left=2)
        for table in self.tables:
            lines += [f"  {_cell(table.title)}"] if table.title else []
            lines += _aligned([[_cell(c) for c in table.columns], *table.cut], left=1)
        return "\n".join([*lines, *(f"  {printable(note)}" for note in self.notes)])

    def html(self) -> str:
        """A piece of HTML without colours of its own, for light and dark pages alike."""
        parts = [f"<strong><bdi>{html.escape(printable(self.title))}</bdi></strong>"]
        if self.facts:
            rows = [
                f"<tr>{_th(name, 'row')}<td style='text-align:left'>"
                f"{_escaped(value, FACT)}</td></tr>"
                for name, value in self.facts.items()
            ]
            parts.append(f"<table>{''.join(rows)}</table>")
        for table in self.tables:
            head = "".join(_th(column, "col") for column in table.columns)
            rows = [
                f"<tr>{_th(row[0], 'row')}"
                + "".join(f"<td style='text-align:right'>{_escaped(c)}</td>" for c in row[1:])
                + "</tr>"
                for row in table.cut
            ]
            title = f"<caption>{_escaped(table.title)}</caption>" if table.title else ""
            parts.append(f"<table>{title}<tr>{head}</tr>{''.join(rows)}</table>")
        parts += [f"<p>{html.escape(printable(note))}</p>" for note in self.notes]
        return f"<div class='hoplite'>{''.join(parts)}</div>"

    def rich(self) -> Any:
        """What Rich prints."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        parts: list[Any] = [Text(printable(self.title), style="bold")]
        if self.facts:
            grid = RichTable.grid(padding=(0, 2))
            for name, value in self.facts.items():
                grid.add_row(Text(name, style="dim"), Text(_fact(value)))
            parts.append(grid)
        for table in self.tables:
            if table.title:  # a line of its own, which may be longer than the table is wide
                parts.append(Text(_cell(table.title), style="italic"))
            drawn, rows = RichTable(), table.cut
            for i, column in enumerate(table.columns):
                whole = any(" ± " in row[i] for row in rows)
                justify = "right" if i else "left"
                drawn.add_column(Text(_cell(column)), justify=justify, no_wrap=whole)
            for row in rows:
                drawn.add_row(*map(Text, row))
            parts.append(drawn)
        return Group(*parts, *(Text(printable(note)) for note in self.notes))


class Displayed:
    """An object that notebooks and Rich show as :meth:`_shown` describes it."""

    @abstractmethod
    def _shown(self) -> Shown:
        """What is shown."""

    def _repr_html_(self) -> str:
        return self._shown().html()

    def __rich__(self) -> Any:
        return self._shown().rich()


def _cell(value: str) -> str:
    return short(printable(value))


def _fact(value: str) -> str:
    return short(printable(value), FACT)


def _escaped(text: str, longest: int = LONGEST) -> str:
    """Isolated, so that a name that is written from the right turns nothing around it."""
    return f"<bdi>{html.escape(short(printable(text), longest))}</bdi>"


def _th(text: str, scope: str) -> str:
    return f"<th scope='{scope}' style='text-align:left'>{_escaped(text)}</th>"


def _aligned(rows: list[list[str]], left: int) -> list[str]:
    """Rows as lines of columns, of which the first ``left`` begin at the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
