"""Output of the commands: JSON and tables on standard output, the rest on standard error.

``--help`` has its groups in a fixed order, whole paragraphs, and flags without types.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer import rich_utils
from typer.core import TyperCommand, TyperGroup

from hoplite.errors import HopliteWarning
from hoplite.files import without_nan
from hoplite.formatting import Description, printable, rich_table

rich_utils.OPTIONS_PANEL_TITLE = "Basics"
SETS_OF_GRAPHS = "Sets of graphs: --model auto (default), hops, pool, colours or fourier"
PANELS = (
    None,  # Basics
    "Model",
    "Training",
    "Unlabelled nodes",
    "Data",
    "Tables",
    "Output",
    "Large graphs",
    SETS_OF_GRAPHS,
)
_out = Console()
_warnings: set[str] = set()  # warnings that were printed


def prepare_streams() -> None:
    """Let standard output and error take any text, whatever their encoding, also if closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed from outside
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on standard output; null for numbers that are not finite."""
    print(json.dumps(without_nan(values), indent=2, allow_nan=False), flush=True)


def print_explanations(
    explanations: Sequence[tuple[dict[str, Any], Description]],
    pages: Sequence[Path | None],
    *,
    json: bool,
) -> None:
    """Explanations, each as JSON values and in words, with its page if it has one."""
    pairs = list(zip(explanations, pages, strict=True))
    if json:
        records = [values | {"out": page and str(page)} for (values, _), page in pairs]
        print_json(records[0] if len(records) == 1 else {"explanations": records})
        return
    for (_, description), page in pairs:
        print_description(description, whole=True)
        print_line(f"Page: {page}" if page else "For all details, use --out FILE.html or --json")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on standard output, see :func:`hoplite.formatting.rich_table`."""
    if title:  # a line of its own, which may be longer than the table is wide
        _out.print(Text(printable(title), "table.title"), soft_wrap=True)
    _out.print(rich_table(columns, rows))


def print_description(description: Description, *, whole: bool = False) -> None:
    """The tables and notes of an object's description on standard output.

    A ``whole`` one has its title, its facts, and all rows of its tables, too.
    """
    if whole:
        print_line(description.title)
        for name, text in description.facts.items():
            print_line(f"{name}: {text}")
    for table in description.tables:
        print_table(table.title, table.columns, table.rows if whole else table.first_rows)
    for note in description.notes:
        print_line(note)


def print_line(text: str) -> None:
    """A line of text on standard output."""
    print(printable(text), flush=True)


def print_note(text: str) -> None:
    """A line of text on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def report_and_fail(failure: object) -> None:
    """End with exit code 1 if saving failed; the scores have been printed before."""
    if failure is not None:
        print_note(f"error: {failure}")
        raise typer.Exit(1)


def print_error(sentence: str) -> None:
    """The error on standard error, and with --json as an object on standard output too."""
    print_note(f"error: {sentence}")
    if "--json" in sys.argv:
        with contextlib.suppress(OSError):  # standard output may be the error itself
            print_json({"error": sentence})


def show_warning(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
    """Hoplite's own warnings as one line, others as Python formats them."""
    if issubclass(category, HopliteWarning):
        if str(message) not in _warnings:  # a graph that is derived from another repeats its own
            print_note(f"warning: {message}")
        _warnings.add(str(message))
    else:
        for line in warnings.formatwarning(message, category, *place[:2]).splitlines():
            print_note(line)


def _lay_out(command: Any, ctx: Any) -> None:
    """Change how the help shows a command's options, not what they do."""
    text = inspect.cleandoc(command.help or "")
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    for parameter in command.get_params(ctx):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
            if not parameter.default:  # --no-x is for scripts
                parameter.secondary_opts = []
        elif isinstance(getattr(parameter, "show_default", None), str):  # in the same paragraph
            parameter.help += f" \\[default: {parameter.show_default}]"
            parameter.show_default = False
    command.params.sort(key=_panel_rank)


def _panel_rank(parameter: Any) -> int:
    """The place of an option's group; the groups of your own models come last."""
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


class _LaidOut:
    """Commands whose help is laid out by :func:`_lay_out`."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _lay_out(self, ctx)
        super().format_help(ctx, formatter)  # pyright: ignore[reportAttributeAccessIssue]


class Command(_LaidOut, TyperCommand):
    """A command of Hoplite."""


class Group(_LaidOut, TyperGroup):
    """Hoplite's list of commands."""
