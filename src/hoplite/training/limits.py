"""A limit on the time of trainings, for callers with a budget."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from contextvars import ContextVar

from hoplite.errors import HopliteError


class OutOfTimeError(HopliteError):
    """A training reached its time limit before it had a result."""


_limit: ContextVar[tuple[float, bool]] = ContextVar("limit", default=(math.inf, False))


@contextlib.contextmanager
def time_limit(seconds: float, *, keep_best: bool = False) -> Iterator[None]:
    """Trainings within the block end after ``seconds``, with an OutOfTimeError.

    The time is checked in every step, and in every evaluation of L-BFGS. With ``keep_best`` a run
    that has finished an epoch, or a penalty, ends with the best one so far instead.
    """
    token = _limit.set((time.monotonic() + seconds, keep_best))
    try:
        yield
    finally:
        _limit.reset(token)


def check_time() -> None:
    """OutOfTimeError if the time of the surrounding :func:`time_limit` is over."""
    if time.monotonic() > _limit.get()[0]:
        raise OutOfTimeError("the time limit was reached.")


def keeps_best() -> bool:
    """Whether a run that is out of time keeps its best epoch."""
    return _limit.get()[1]
