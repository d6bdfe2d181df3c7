"""Fair timing, and what a benchmark returns: figures with their goals, and notes.

Contestants take turns (A, B, A, B, ...) after a warm-up, so that a busy moment hits them all. A
contestant's figure is the median of its rounds; the ratio of two is the median over the rounds of
peer / ours, each taken within one round.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from hoplite import Graph, load
from hoplite.engine.backend import get_num_threads, use_threads


@dataclass(frozen=True)
class Goal:
    """The interval that a figure's own value, or its ratio to the peer, should lie in.

    >>> Goal.at_most(3, "ms").text, Goal.ratio_at_least(100).text
    ('<= 3 ms', '>= 100x')
    """

    text: str
    low: float = -math.inf
    high: float = math.inf
    of_ratio: bool = False

    @classmethod
    def at_most(cls, limit: float, unit: str = "") -> Goal:
        return cls(f"<= {limit:g} {unit}".rstrip(), high=limit)

    @classmethod
    def at_least(cls, limit: float, unit: str = "") -> Goal:
        return cls(f">= {limit:g} {unit}".rstrip(), low=limit)

    @classmethod
    def between(cls, low: float, high: float) -> Goal:
        return cls(f"{low:g} to {high:g}", low, high)

    @classmethod
    def ratio_at_least(cls, limit: float) -> Goal:
        return cls(f">= {limit:g}x", low=limit, of_ratio=True)


@dataclass(frozen=True)
class Figure:
    """One measured value of Hoplite, alone or with a peer's."""

    case: str
    ours: float
    unit: str
    peer: str | None = None
    theirs: float | None = None
    ratio: float | None = None  # theirs / ours, the median over the rounds: above 1, ours is faster
    goal: Goal | None = None
    judged: bool = True  # False if other programs kept the machine busy

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; None without one, or if it cannot be judged."""
        value = self.ratio if self.goal is not None and self.goal.of_ratio else self.ours
        if self.goal is None or value is None or not self.judged:
            return None
        return self.goal.low <= value <= self.goal.high


@dataclass(frozen=True)
class Outcome:
    """The figures of one benchmark and what one must know to read them."""

    figures: list[Figure]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Contestant:
    """Something that can be timed: ``sample`` returns seconds, and by default warms itself up."""

    name: str
    sample: Callable[[], float]
    warm_up: Callable[[], object] | None = None
    threads: int | None = None  # those of the race


@dataclass(frozen=True)
class Effort:
    """How often to measure: ``rounds``, but no new one is started once ``seconds`` are over."""

    rounds: int
    seconds: float = 60.0


class Samples:
    """The seconds of each contestant, round by round.

    >>> samples = Samples({"ours": [1.0, 2.0, 1.0], "peer": [4.0, 6.0, 5.0]})
    >>> samples.median("peer"), samples.ratio("ours", "peer")
    (5.0, 4.0)
    """

    def __init__(self, seconds: dict[str, list[float]]) -> None:
        self.seconds = seconds

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def fastest(self, name: str) -> float:
        return min(self.seconds[name])

    def ratio(self, ours: str, peer: str) -> float:
        """How many times longer the peer takes: the median of the rounds' ratios."""
        pairs = zip(self.seconds[ours], self.seconds[peer], strict=True)
        return median(theirs / own for own, theirs in pairs)

    def figure(
        self, case: str, ours: str, peer: str | None = None, goal: Goal | None = None
    ) -> Figure:
        """Ours in milliseconds, alone or with ``peer``."""
        milliseconds = 1e3 * self.median(ours)
        if peer is None:
            return Figure(case, milliseconds, "ms", goal=goal)
        theirs, ratio = 1e3 * self.median(peer), self.ratio(ours, peer)
        return Figure(case, milliseconds, "ms", peer, theirs, ratio, goal)


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A sample: run ``work`` once and return its wall time in seconds."""

    def sample() -> float:
        started = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - started
        del result  # freeing what was computed is not part of computing it
        return seconds

    return sample


def race(contestants: Sequence[Contestant], effort: Effort, threads: int) -> Samples:
    """Warm up and then measure all ``contestants`` in turn; at least one round is made."""
    for one in contestants:
        with using_threads(one.threads or threads):
            (one.warm_up or one.sample)()
    seconds: dict[str, list[float]] = {one.name: [] for one in contestants}
    started = time.perf_counter()
    for turn in range(effort.rounds):
        if turn and time.perf_counter() - started > effort.seconds:
            break
        for one in contestants:
            with using_threads(one.threads or threads):
                seconds[one.name].append(one.sample())
    return Samples(seconds)


@dataclass(frozen=True)
class Context:
    """What a benchmark runs with.

    Parameters
    ----------
    quick : bool
        Whether to measure at small sizes.
    threads : int
    bandwidth : float
        Of memory, measured with these threads, in bytes per second.
    report : function of str
        Shows what is being done.
    folder : Path
        For large files, which later benchmarks of the run may use.
    load : function of str
        The graph of a name.
    """

    quick: bool = False
    threads: int = field(default_factory=get_num_threads)
    bandwidth: float = 1e10
    report: Callable[[str], object] = lambda what: None
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    load: Callable[[str], Graph] = load

    def race(
        self, contestants: Sequence[Contestant], effort: Effort, threads: int | None = None
    ) -> Samples:
        """:func:`race` with these threads."""
        return race(contestants, effort, threads or self.threads)


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let Hoplite and torch use ``threads`` within a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with use_threads(threads):
            yield
    finally:
        torch.set_num_threads(before)
