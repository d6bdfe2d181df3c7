"""Progress bars on standard error: of the commands, and in Python of ``progress=True``.

A terminal has a live bar, a notebook one in its cell, which needs no widgets; anything else, such
as a log, a line a minute. What works long takes ``progress`` as True, False, or a function that it
calls with how far it is; :func:`watched` makes such a function of the first two.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hoplite.errors import ConfigError
from hoplite.printable import FALLBACK, printable

if TYPE_CHECKING:
    from rich.progress import Progress as ProgressBar
    from rich.progress import ProgressColumn

TELL_SECONDS = 60.0  # between two lines where there is no bar
REDRAW_SECONDS = 0.2  # between two states of a bar in a notebook

Steps = Callable[[str, float], None]  # told what is being done, and the share that is done
Told = TypeVar("Told", bound=Callable[..., None])


class TrainingState(Protocol):
    """As :class:`hoplite.training.runs.TrainingProgress`."""

    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def val_score(self) -> float: ...


class SearchState(Protocol):
    """As :class:`hoplite.search.SearchProgress`."""

    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def share(self) -> float: ...


@contextlib.contextmanager
def watched(
    progress: bool | Told | None,
    bar: Callable[[str], AbstractContextManager[Any]],
    title: str,
) -> Iterator[Told | None]:
    """Whom to report to: the function ``progress``, a ``bar`` for True, nobody for False.

    >>> with watched(False, steps_bar, "work") as report:
    ...     print(report)
    None
    """
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with bar(title) as report:
            yield report
    elif callable(progress):
        yield progress
    else:
        raise ConfigError(
            f"progress is {progress!r}; give True for a bar, False, or a function to call."
        )


@contextlib.contextmanager
def training_bar(title: str) -> Iterator[Callable[[TrainingState], None]]:
    """A live bar over seeds and epochs on standard error; yields the function to report to."""
    from rich.progress import TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch {task.fields[epoch]}, {task.fields[running]} running"),
        TextColumn("{task.fields[score]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with _bar(title, *columns, total=None, epoch=0, running=0, score="") as (update, tell):

        def report(state: TrainingState) -> None:
            known = state.val_score == state.val_score
            score = f"validation {state.val_score:z.3f}" if known else ""
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
def search_bar(title: str) -> Iterator[Callable[[SearchState], None]]:
    """A live bar over the trials of a search, with the time left; yields whom to report to."""
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[percent]:>3}%"),
        TextColumn("{task.fields[done]} trials done"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    started, first = time.monotonic(), -1.0
    with _bar(title, *columns, percent=0, done="0", left="") as (update, tell):

        def report(state: SearchState) -> None:
            nonlocal first
            if first < 0:
                first = state.share  # what an earlier call had done says nothing of the speed
            gained, left = state.share - first, ""
            if gained > 0.001 and state.share < 1:
                seconds = (time.monotonic() - started) * (1 - state.share) / gained
                left = f"{_duration(seconds)} left"
            done = f"{state.done:,} of {state.total:,}"
            percent = int(100 * state.share)  # 100 only when nothing is left
            update(completed=state.share, percent=percent, done=done, left=left)
            tell(f"{percent}%, {done} trials done, {left}".rstrip(", "))

        yield report


@contextlib.contextmanager
def steps_bar(title: str) -> Iterator[Steps]:
    """A live bar over unlike steps on standard error; yields the function to report to."""
    from rich.progress import TimeElapsedColumn, TimeRemainingColumn

    with _bar(title, TimeElapsedColumn(), TimeRemainingColumn()) as (update, tell):

        def report(what: str, share: float) -> None:
            update(description=printable(what), completed=share)
            tell(f"{what} ({share:.0%})")

        yield report


@contextlib.contextmanager
def _bar(
    title: str, *columns: ProgressColumn, total: float | None = 1.0, **fields: Any
) -> Iterator[tuple[Callable[..., None], Callable[[str], None]]]:
    """A bar, to update, and a line a minute that tells the same where there is none."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as ProgressBar

    console = Console(stderr=True)
    bar = ProgressBar(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(printable(title), total=total, **fields)
    update = functools.partial(bar.update, task)
    if console.is_jupyter:
        with _in_a_cell(bar) as redraw:
            yield (lambda **state: redraw(update(**state))), lambda text: None
    else:
        with bar:
            yield update, _LineAMinute(title, silent=console.is_terminal)


@contextlib.contextmanager
def _in_a_cell(bar: ProgressBar) -> Iterator[Callable[[object], None]]:
    """The bar as the output of a cell, drawn anew now and then; what is left is its last state."""
    from IPython.display import display

    shown: Any = display(bar, display_id=True)
    drawn = time.monotonic()

    def redraw(_: object) -> None:
        nonlocal drawn
        if time.monotonic() - drawn > REDRAW_SECONDS:
            drawn = time.monotonic()
            shown.update(bar)

    try:
        yield redraw
    finally:
        shown.update(bar)


class _LineAMinute:
    """Tells on standard error what a bar would show, where there is no terminal for it."""

    def __init__(self, title: str, *, silent: bool) -> None:
        self._title, self._silent, self._told = title, silent, time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._silent and time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            encoding = sys.stderr.encoding or "utf-8"
            line = printable(f"{self._title}: {text}").encode(encoding, FALLBACK).decode(encoding)
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()


def _duration(seconds: float) -> str:
    """Rounded up, so that what is left is never nothing."""
    minutes, seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
