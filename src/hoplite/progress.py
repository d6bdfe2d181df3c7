"""Progress bars on standard error: of the commands, and in Python with ``progress=True``.

A terminal has a live bar, a notebook one in its cell, both with the time that is left; anything
else, such as a log, a line with an estimate of it as soon as the work looks like more than ten
seconds, and then a line a minute. Long work takes ``progress`` as True, False, or a function to
call with how far it is.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from hoplite.errors import ConfigError
from hoplite.formatting import printable

LINE_SECONDS = 60.0  # between two lines where there is no bar
LONG_SECONDS = 10.0  # work that is longer has an estimate
ESTIMATE_SECONDS = 3.0  # until the first estimate
REDRAW_SECONDS = 0.2  # between two states of a bar in a notebook

Steps = Callable[[str, float], None]  # takes what is being done, and the share that is done
Report = TypeVar("Report", bound=Callable[..., None])


@contextlib.contextmanager
def watched(
    progress: bool | Report | None,
    bar: Callable[[str], AbstractContextManager[Any]],
    title: str,
) -> Iterator[Report | None]:
    """The function to report to: ``progress`` itself, that of a ``bar`` for True, or None.

    >>> with watched(False, steps_bar, "work") as report:
    ...     print(report)
    None
    """
    if progress is True:
        with bar(title) as report:
            yield report
    elif progress is None or progress is False or callable(progress):
        yield progress or None
    else:
        raise ConfigError(f"is {progress!r}; it must be True, False or a function.", "progress")


@contextlib.contextmanager
def training_bar(title: str) -> Iterator[Callable[[Any], None]]:
    """A bar over seeds and epochs; yields the function that takes a ``TrainingProgress``."""
    with steps_bar(title) as report:

        def report_training(state: Any) -> None:
            known = state.val_score == state.val_score
            score = f", validation score {state.val_score:z.3f}" if known else ""
            report(f"{title}, epoch {state.epoch}{score}", state.done / state.total)

        yield report_training


@contextlib.contextmanager
def search_bar(title: str) -> Iterator[Callable[[Any], None]]:
    """A bar over the runs of a search; yields the function that takes a ``SearchProgress``."""
    with steps_bar(title) as report:
        yield lambda s: report(f"{title}, {s.done:,} of {s.total:,} runs done", s.share)


@contextlib.contextmanager
def steps_bar(title: str) -> Iterator[Steps]:
    """A bar over any steps; yields the function to report to."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    bar = progress.Progress(
        progress.TextColumn("{task.description}", style="bold", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(printable(title), total=1.0)
    started = printed = time.monotonic()
    estimated = False
    with _in_cell(bar) if console.is_jupyter else bar:

        def report(what: str, share: float) -> None:
            nonlocal printed, estimated
            bar.update(task, description=printable(what), completed=share)
            now = time.monotonic()
            if console.is_jupyter and now - printed > REDRAW_SECONDS:
                printed = now
                bar.refresh()
                return
            left = time_left(now - started, share)
            is_long = not estimated and left is not None and now - started + left > LONG_SECONDS
            if not console.is_terminal and (is_long or now - printed > LINE_SECONDS):
                printed, estimated = now, estimated or is_long
                line = what if what.startswith(title) else f"{title}: {what}"
                line += f" ({share:.0%})" if left is None else f" ({share:.0%}, {about(left)} left)"
                print(printable(line), file=sys.stderr, flush=True)

        yield report


def time_left(elapsed: float, share: float) -> float | None:
    """Seconds that are left where ``share`` took ``elapsed``; None if it is too early to say.

    >>> time_left(10.0, 0.2), time_left(0.5, 0.2)
    (40.0, None)
    """
    if elapsed < ESTIMATE_SECONDS or not 0 < share <= 1:
        return None
    return elapsed * (1 - share) / share


def about(seconds: float) -> str:
    """
    >>> about(39.6), about(400.0)
    ('about 40 s', 'about 7 min')
    """
    return f"about {seconds:.0f} s" if seconds < 120 else f"about {seconds / 60:.0f} min"


@contextlib.contextmanager
def _in_cell(bar: Any) -> Iterator[None]:
    """The bar as the output of a notebook's cell, without widgets; its last state stays."""
    from IPython.display import display

    handle: Any = display(bar, display_id=True)
    bar.refresh = lambda: handle.update(bar)
    try:
        yield
    finally:
        handle.update(bar)
