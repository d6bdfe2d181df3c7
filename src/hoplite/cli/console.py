"""What the commands share: JSON and tables on standard output, the rest on standard error."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from hoplite.cli.completion import some_dataset
from hoplite.config import TABLE_FORMATS
from hoplite.errors import ConfigError, HopliteWarning, check_choice
from hoplite.json_files import without_nan
from hoplite.printable import FALLBACK, printable

if TYPE_CHECKING:  # it needs torch, which takes a second to import
    from hoplite.selection import SearchProgress
    from hoplite.training.runs import TrainingProgress

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

TELL_SECONDS = 60.0

_out = Console()
_err = Console(stderr=True)


def print_json(values: dict[str, Any]) -> None:
    """One JSON object on standard output; null for numbers that are not finite."""
    _write(json.dumps(without_nan(values), indent=2, allow_nan=False), sys.stdout)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output; the first column is text, the others are figures."""
    table = Table(title=_text(title, "table.title"), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(_text(column), justify="right" if index else "left")
    for row in rows:
        table.add_row(*map(_text, row))
    _out.print(table)


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


@contextlib.contextmanager
def training_bar(title: str) -> Iterator[Callable[[TrainingProgress], None]]:
    """A live bar over seeds and epochs on standard error; yields the function to report to."""
    columns = (
        TextColumn("epoch {task.fields[epoch]}, {task.fields[running]} running"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with _bar(title, *columns, total=None, epoch=0, running=0, score="") as (update, tell):

        def report(state: TrainingProgress) -> None:
            known = state.val_score == state.val_score
            score = f"validation {state.val_score:.3f}" if known else ""
            update(
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
    """A live bar over the runs of a search, with the time left; yields whom to report to."""
    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[done]} runs done"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    started, first = time.monotonic(), -1.0
    with _bar(title, *columns, done="0", left="") as (update, tell):

        def report(state: SearchProgress) -> None:
            nonlocal first
            if first < 0:
                first = state.share  # what an earlier call had done says nothing of the speed
            gained, left = state.share - first, ""
            if gained > 0.001:
                seconds = (time.monotonic() - started) * (1 - state.share) / gained
                left = f"{_duration(seconds)} left"
            done = f"{state.done:,} of {state.total:,}"
            update(completed=state.share, done=done, left=left)
            tell(f"{state.share:.0%}, {done} runs done, {left}")

        yield report


@contextlib.contextmanager
def steps_bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """A live bar over unlike steps on standard error; yields the function to report to."""
    with _bar(title, TimeElapsedColumn(), TimeRemainingColumn()) as (update, tell):

        def report(what: str, share: float) -> None:
            update(description=printable(what), completed=share)
            tell(f"{what} ({share:.0%})")

        yield report


@contextlib.contextmanager
def _bar(
    title: str, *columns: ProgressColumn, total: float | None = 1.0, **fields: Any
) -> Iterator[tuple[Callable[..., None], _LineAMinute]]:
    """A bar, to update, and a line a minute that tells the same where there is no terminal."""
    with ProgressBar(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        *columns,
        console=_err,
        transient=True,
        disable=not _err.is_terminal,
    ) as bar:
        task = bar.add_task(printable(title), total=total, **fields)
        yield functools.partial(bar.update, task), _LineAMinute(title)


class _LineAMinute:
    """Tells on standard error what a bar would show, where there is no terminal for it."""

    def __init__(self, title: str) -> None:
        self._title, self._told = title, time.monotonic()

    def __call__(self, text: str) -> None:
        if not _err.is_terminal and time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            print_note(f"{self._title}: {text}")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
