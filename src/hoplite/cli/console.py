"""What the commands share: JSON and tables on standard output, the rest on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from hoplite.errors import ConfigError, HopliteWarning, check_choice

if TYPE_CHECKING:  # it needs torch, which takes a second to import
    from hoplite.selection.runner import SearchProgress
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

TELL_SECONDS = 60.0

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


def check_page(out: Path) -> None:
    """Raise ConfigError unless ``out`` can be an HTML page, before any work is done for it."""
    check_choice("the ending of --out", out.suffix.lower(), [".html", ".htm"])
    if not out.absolute().parent.is_dir() or out.is_dir():
        raise ConfigError(f"--out {out} cannot be a file there; give one in an existing folder.")


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
    """A live bar over seeds and epochs on standard error; yields the function to report to.

    Without a terminal a line a minute tells the same.
    """
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
        tell = _LineAMinute(title)

        def report(state: Progress) -> None:
            known = state.val_accuracy == state.val_accuracy
            score = f"validation {state.val_accuracy:.1%}" if known else ""
            bar.update(
                task,
                completed=state.done,
                total=state.total,
                epoch=state.epoch,
                running=state.running,
                score=score,
            )
            tell(f"{state.done / state.total:.0%}, epoch {state.epoch}, {score}".rstrip(", "))

        yield report


@contextlib.contextmanager
def search_bar(title: str) -> Iterator[Callable[[SearchProgress], None]]:
    """A live bar over the runs of a search, with the time left; yields the function to report to.

    Without a terminal a line a minute tells the same.
    """
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[done]} runs done"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    started, first, tell = time.monotonic(), -1.0, _LineAMinute(title)
    with ProgressBar(*columns, console=_err, transient=True, disable=not _err.is_terminal) as bar:
        task = bar.add_task(escape(title), total=1.0, done="0", left="")

        def report(state: SearchProgress) -> None:
            nonlocal first
            if first < 0:
                first = state.share  # what an earlier call had done says nothing of the speed
            gained, left = state.share - first, ""
            if gained > 0.001:
                seconds = (time.monotonic() - started) * (1 - state.share) / gained
                left = f"{_duration(seconds)} left"
            done = f"{state.done:,} of {state.total:,}"
            bar.update(task, completed=state.share, done=done, left=left)
            tell(f"{state.share:.0%}, {done} runs done, {left}")

        yield report


@contextlib.contextmanager
def steps_bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """A live bar over unlike steps on standard error; yields the function to report to.

    Without a terminal a line a minute tells the same.
    """
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with ProgressBar(*columns, console=_err, transient=True, disable=not _err.is_terminal) as bar:
        task, tell = bar.add_task(escape(title), total=1.0), _LineAMinute(title)

        def report(what: str, share: float) -> None:
            bar.update(task, description=escape(what), completed=share)
            tell(f"{what} ({share:.0%})")

        yield report


class _LineAMinute:
    """Tells on standard error what a bar would show, where there is no terminal for it."""

    def __init__(self, title: str) -> None:
        self._title, self._told = title, time.monotonic()

    def __call__(self, text: str) -> None:
        if not _err.is_terminal and time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            typer.echo(f"{self._title}: {text}", err=True)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
