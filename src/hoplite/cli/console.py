"""What the commands share: JSON and tables on standard output, the rest on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hoplite.cli.completion import some_dataset
from hoplite.config import TABLE_FORMATS
from hoplite.errors import ConfigError, HopliteWarning, check_choice
from hoplite.json_files import without_nan
from hoplite.printable import FALLBACK, printable
from hoplite.progress import search_bar as search_bar
from hoplite.progress import steps_bar as steps_bar
from hoplite.progress import training_bar as training_bar

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
DatasetArgument = Annotated[
    str,
    typer.Argument(
        help="A name (see `hoplite datasets`), or the path of a folder with node and edge tables, "
        "of Planetoid files, of a .npz, .graphml or .mtx file or a list of edges, or of a hop "
        "store (see `hoplite propagate`).",
        autocompletion=some_dataset,
    ),
]
SplitSeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of the split, for node tables without a `split` column.")
]
SplitIndexOption = Annotated[
    int | None,
    typer.Option(min=0, help="Which split counts, from 0, of a .npz file that holds several."),
]
LinkOption = Annotated[
    bool,
    typer.Option("--link", help="Add the rows of the adjacency to the features (linear LINK)."),
]
StructuralOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Add degree, log degree and so many vectors of the operator to the features; without "
        "features 32.",
    ),
]

_out = Console()


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on standard output; null for numbers that are not finite."""
    _write(json.dumps(without_nan(values), indent=2, allow_nan=False), sys.stdout)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output; the first column is text, the others are figures.

    Its title is a line of its own, which may be longer than the table is wide.
    """
    head, body = [*map(_text, columns)], [[*map(_text, row)] for row in rows]
    if title:
        _out.print(_text(title, "table.title"), soft_wrap=True)
    table = Table()
    for index, (column, width) in enumerate(zip(head, _widths(head, body), strict=True)):
        table.add_column(column, justify="right" if index else "left", width=width)
    for row in body:
        table.add_row(*row)
    _out.print(table)


def _widths(head: list[Text], rows: list[list[Text]]) -> list[int | None]:
    """What a column must have so that no figure breaks where it has a deviation; else None.

    Rich takes the room that is missing from all columns alike; it is the names that can break.
    """
    free: list[int | None] = [None] * len(head)
    room = _out.width - 3 * len(head) - 1  # within the frame
    natural, least, fixed = 0, 0, list(free)
    for index, name in enumerate(head):
        cells = [row[index] for row in rows]
        longest = max([0, *[cell.cell_len for cell in cells]])
        word = max([0, *map(len, name.plain.split())])
        if any(" ± " in cell.plain or " +- " in cell.plain for cell in cells):
            fixed[index] = max(word, longest)
        natural += max(name.cell_len, longest)
        least += fixed[index] or word
    return fixed if least <= room < natural else free


def print_line(text: str) -> None:
    """A line of text on standard output."""
    _write(_encodable(printable(text), sys.stdout), sys.stdout)


def print_note(text: str) -> None:
    """A line of text on standard error."""
    _write(_encodable(printable(text), sys.stderr), sys.stderr)


def _text(text: str, style: str = "") -> Text:
    """What Rich takes as it is: its own mark-up in a name is no mark-up."""
    return Text(_encodable(printable(text), sys.stdout), style)


def _encodable(text: str, stream: TextIO) -> str:
    """``text`` as ``stream`` will show it, so that the columns of a table keep their width."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, FALLBACK).decode(encoding)


def _write(text: str, stream: TextIO) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def check_table(option: str, out: Path, dataset: str) -> None:
    """Raise ConfigError unless ``out`` can be a table, and replaces no file of the dataset."""
    check_choice(f"the ending of {option}", out.suffix.lower(), TABLE_FORMATS)
    place, target = (Path(os.path.realpath(path)) for path in (dataset, out))
    if target.exists() and (target == place or place in target.parents):
        raise ConfigError(
            f"{option} {out} is there already, among the files of {dataset}; give another name, "
            "so that none of them is lost."
        )


def report_and_fail(failure: Exception | None) -> None:
    """After the figures were printed: end with exit code 1 if keeping them failed."""
    if failure is not None:
        print_note(f"error: {failure}")
        raise typer.Exit(1)


def print_error(sentence: str) -> None:
    """The error on standard error, and with --json as an object on standard output too."""
    print_note(f"error: {sentence}")
    if "--json" in sys.argv:
        with contextlib.suppress(OSError):  # which may be the error itself
            print_json({"error": sentence})


def show_warning(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
    """Hoplite's own warnings as one line, others as Python formats them."""
    if issubclass(category, HopliteWarning):
        print_note(f"warning: {message}")
    else:
        for line in warnings.formatwarning(message, category, *place[:2]).splitlines():
            print_note(line)
