"""Text for people: safe for terminals, tables for notebooks and terminals, and plain numbers.

Names come from files of strangers. A terminal obeys escape sequences, carriage returns and marks of
direction, so :func:`printable` shows them by their numbers; nothing in a name is mark-up.
"""

from __future__ import annotations

import html
import math
import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hoplite.errors import plural as plural

MAX_NAME = 80  # characters of a name in a sentence or a table
MAX_FACT = 300  # characters of a fact
MAX_ROWS = 12  # maximum number of rows of a table; the rest is counted
NOTHING = "\u2013"  # an en dash
MINUS = "\u2212"  # as wide as a plus
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, formats, half characters, line separators
_JOINERS = "\u200c\u200d"  # some scripts need them, and they only join letters


def printable(text: str) -> str:
    r"""``text`` as one line that changes nothing on a terminal.

    >>> print(printable("a\x1b]0;b\x07\n\u202ec é"))
    a\x1b]0;b\x07\n\u202ec é
    """
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in _HIDDEN and c not in _JOINERS else c
        for c in text
    )


def short(name: object, longest: int = MAX_NAME) -> str:
    """A name of at most ``longest`` characters, cut in its middle.

    >>> short("renormalized", 7), short(17)
    ('ren…zed', '17')
    """
    name = str(name)
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def signed(value: float | None, digits: int = 1) -> str:
    """A number with its sign.

    >>> signed(0.4), signed(-1.25), signed(-0.0)
    ('+0.4', '−1.2', '+0.0')
    """
    if value is None:
        return NOTHING
    text = f"{abs(value):.{digits}f}"
    return f"{MINUS if value < 0 and float(text) != 0 else '+'}{text}"


def number(value: Any, digits: int = 3) -> str:
    """A number in few digits; a dash for anything else.

    >>> number(0.0123456), number(1234.5), number(None), number(float("nan"))
    ('0.0123', '1,234', '–', '–')
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NOTHING
    whole = isinstance(value, int) or abs(value) >= 1000
    return (f"{value:,.0f}" if whole else f"{value:.{digits}g}").replace("-", MINUS)


def listing(parts: Sequence[str], last: str = "and") -> str:
    """
    >>> listing(["a"]), listing(["a", "b", "c"]), listing(["a", "b"], "or")
    ('a', 'a, b and c', 'a or b')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


@dataclass(frozen=True)
class Table:
    """Cells of text; the first column is names, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    @property
    def first_rows(self) -> list[list[str]]:
        """The first rows, with short names; the last one says how many more there are."""
        rows = [[_cell(value) for value in row] for row in self.rows[:MAX_ROWS]]
        more = len(self.rows) - len(rows)
        return rows + ([[f"and {more:,} more", *[""] * (len(self.columns) - 1)]] if more else [])


@dataclass(frozen=True)
class Description:
    """What an object shows of itself: a title, facts with their names, tables, and notes.

    >>> "<bdi>a &amp; b</bdi>" in Description("a & b").html()
    True
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def html(self) -> str:
        """HTML without colours, for light and dark pages."""
        parts = [f"<strong><bdi>{html.escape(printable(self.title))}</bdi></strong>"]
        if self.facts:
            rows = [[name, _fact(value)] for name, value in self.facts.items()]
            parts.append(f"<table>{_html_rows(rows, 'left')}</table>")
        for table in self.tables:
            title = f"<caption>{_escaped(_cell(table.title))}</caption>" if table.title else ""
            head = "".join(_th(_cell(column), "col") for column in table.columns)
            rows = _html_rows(table.first_rows, "right")
            parts.append(f"<table>{title}<tr>{head}</tr>{rows}</table>")
        parts += [f"<p>{html.escape(printable(note))}</p>" for note in self.notes]
        return f"<div class='hoplite'>{''.join(parts)}</div>"

    def rich(self) -> Any:
        """A renderable for Rich."""
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
            parts.append(rich_table([_cell(column) for column in table.columns], table.first_rows))
        return Group(*parts, *(Text(printable(note)) for note in self.notes))


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """A table for Rich; the first column is text, the others are figures. Names are not mark-up."""
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable()
    for i, column in enumerate(columns):
        widths = [len(row[i]) for row in rows if " ± " in row[i]]  # which should not break
        justify = "right" if i else "left"
        table.add_column(Text(printable(column)), justify=justify, min_width=max(widths, default=1))
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    return table


class Described:
    """An object that notebooks and Rich show by its :meth:`_describe`."""

    @abstractmethod
    def _describe(self) -> Description:
        """The facts and tables to show."""

    def _repr_html_(self) -> str:
        return self._describe().html()

    def __rich__(self) -> Any:
        return self._describe().rich()


def _cell(value: str) -> str:
    return short(printable(value))


def _fact(value: str) -> str:
    return short(printable(value), MAX_FACT)


def _escaped(text: str) -> str:
    """Isolated, so that a name written from right to left turns nothing around it."""
    return f"<bdi>{html.escape(text)}</bdi>"


def _th(text: str, scope: str) -> str:
    return f"<th scope='{scope}' style='text-align:left'>{_escaped(text)}</th>"


def _html_rows(rows: Sequence[Sequence[str]], align: str) -> str:
    cells = [
        "".join(f"<td style='text-align:{align}'>{_escaped(cell)}</td>" for cell in row[1:])
        for row in rows
    ]
    pairs = zip(rows, cells, strict=True)
    return "".join(f"<tr>{_th(_cell(row[0]), 'row')}{rest}</tr>" for row, rest in pairs)
