"""What the commands share: JSON and tables on standard output, the rest on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from hoplite.errors import HopliteWarning

if TYPE_CHECKING:  # it needs torch, which takes a second to import
    from hoplite.training.runs import Progress

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
DatasetArgument = Annotated[
    str,
    typer.Argument(
        help="A name (see `hoplite datasets`), or the path of a folder with node and edge tables, "
        "of Planetoid files, or of a .npz file."
    ),
]
SplitSeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of the split, for node tables without a `split` column.")
]

_out = Console()
_err = Console(stderr=True)


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output; the first column is text, the others are figures."""
    table = Table(title=escape(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    for row in rows:
        table.add_row(*[escape(cell) for cell in row])
    _out.print(table)


def print_line(text: str) -> None:
    """A line of text on standard output."""
    typer.echo(text)


def report_and_fail(failure: Exception | None) -> None:
    """After the figures were printed: end with exit code 1 if keeping them failed."""
    if failure is not None:
        typer.echo(f"error: {failure}", err=True)
        raise typer.Exit(1)


def print_error(sentence: str) -> None:
    """The error on standard error, and with --json as an object on standard output too."""
    typer.echo(f"error: {sentence}", err=True)
    if "--json" in sys.argv:
        with contextlib.suppress(OSError):  # which may be the error itself
            print_json({"error": sentence})


def show_warning(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
    """Hoplite's own warnings as one line, others as Python formats them."""
    if issubclass(category, HopliteWarning):
        typer.echo(f"warning: {message}", err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, *place[:2]), err=True)


@contextlib.contextmanager
def training_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A live bar over seeds and epochs on standard error; yields the function to report to."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]}, {task.fields[running]} running"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with ProgressBar(*columns, console=_err, transient=True, disable=not _err.is_terminal) as bar:
        task = bar.add_task(escape(title), total=None, epoch=0, running=0, score="")

        def report(state: Progress) -> None:
            known = state.val_accuracy == state.val_accuracy
            bar.update(
                task,
                completed=state.done,
                total=state.total,
                epoch=state.epoch,
                running=state.running,
                score=f"validation {state.val_accuracy:.1%}" if known else "",
            )

        yield report
