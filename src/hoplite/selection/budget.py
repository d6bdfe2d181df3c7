"""How long a choice may take, and how many trials it has."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

from hoplite.config import MAX_FLOAT
from hoplite.errors import ConfigError
from hoplite.selection.dimensions import MOST_CONFIGURATIONS

UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
KEPT = 3  # one of so many goes on from rung to rung
MOST_FINALISTS = 8
_TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*")

Sizes = tuple[int, int, int]


def parse_seconds(value: Any, argument: str = "budget") -> float:
    """The seconds that ``"60s"``, ``"1.5m"``, ``"2h"`` or a number means.

    >>> parse_seconds("60s"), parse_seconds("1.5m"), parse_seconds(7)
    (60.0, 90.0, 7.0)
    """
    seconds = 0.0
    if isinstance(value, str):
        found = _TIME.fullmatch(value.lower())
        if found is not None and found[2] in UNITS:
            seconds = float(found[1]) * UNITS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_FLOAT:
        seconds = float(value)
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"{argument} is {value!r}; give a time such as 60s, 5m or 1h, above 0, or seconds."
        )
    return seconds


def parse_trials(value: Any) -> Sizes:
    """How many candidates each rung trains: a number of the first, or of all three.

    A third goes on to the second rung, a ninth, 3 to 8, to the third.

    >>> parse_trials(48), parse_trials("48/16/2"), parse_trials(2)
    ((48, 16, 6), (48, 16, 2), (2, 2, 2))
    """
    parts: Sequence[Any]
    if isinstance(value, str):
        words = value.split("/")
        parts = [int(word) if re.fullmatch(r"[0-9]{1,9}", word) else 0 for word in words]
    else:
        parts = value if isinstance(value, list | tuple) else [value]
    whole = all(isinstance(part, int) and not isinstance(part, bool) for part in parts)
    if whole and len(parts) == 1 and 1 <= parts[0] <= MOST_CONFIGURATIONS:
        return usual_sizes(parts[0])
    if whole and len(parts) == 3 and MOST_CONFIGURATIONS >= parts[0] >= parts[1] >= parts[2] >= 1:
        return parts[0], parts[1], parts[2]
    raise ConfigError(
        f"trials is {value!r}; give how many candidates to try, such as 48, or how many in each of "
        "the three rungs, such as 48/16/6, none more than before."
    )


def usual_sizes(trials: int) -> Sizes:
    """The sizes of the rungs of so many trials."""
    least = min(trials, KEPT)
    second = max(least, math.ceil(trials / KEPT))
    last = max(least, min(MOST_FINALISTS, math.ceil(trials / KEPT**2)))
    return trials, second, last


class OutOfTimeError(Exception):
    """Raised within a training that must not go on; it is always caught."""


class Clock:
    """The time of a choice; ``spent`` seconds of it are gone already. Without a budget it waits."""

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self.budget = budget
        self._started = time.monotonic() - spent

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def left(self, share: float = 1.0) -> float:
        """Seconds until this share of the budget is used; infinite without one."""
        return math.inf if self.budget is None else share * self.budget - self.elapsed

    def check(self, share: float, reserve: float = 0.0) -> None:
        """OutOfTimeError when less than ``reserve`` seconds are left of a share of the budget."""
        if self.left(share) < reserve:
            raise OutOfTimeError
