"""Fair timing, and what a benchmark says: figures with their goals, notes and facts.

Contestants take turns (A, B, A, B, ...), so that a busy moment hits them all. Every contestant is
warmed up first. A contestant's figure is the median of its rounds; the ratio of two is the median
over the rounds of peer / ours, each taken within one round.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hoplite.datasets import load
from hoplite.engine.backend import get_num_threads, use_threads
from hoplite.graph import Graph

# A benchmark tells what it is doing and how much of it is done, from 0 to 1.
Report = Callable[[str, float], None]


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
    def at_most(cls, limit: float, unit: str) -> Goal:
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
    """One measured value of Hoplite, alone or beside a peer's."""

    case: str
    ours: float
    unit: str
    peer: str | None = None
    theirs: float | None = None
    ratio: float | None = None  # theirs / ours, the median over the rounds: above 1, ours is faster
    goal: Goal | None = None
    rounds: int = 1
    judged: bool = True  # whether the goal may be: not after a busy time

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; None without one, or if nobody can tell."""
        value = self.ratio if self.goal is not None and self.goal.of_ratio else self.ours
        if self.goal is None or value is None or not self.judged:
            return None
        return self.goal.low <= value <= self.goal.high

    def as_dict(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "ours": self.ours,
            "unit": self.unit,
            "peer": self.peer,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "goal": None if self.goal is None else self.goal.text,
            "passed": self.passed,
            "rounds": self.rounds,
        }


@dataclass(frozen=True)
class Outcome:
    """The figures of one benchmark and what one must know to read them."""

    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    def unjudged(self, why: str) -> Outcome:
        """The times alone, without ratios and verdicts, and a note that says why."""
        figures = [replace(figure, ratio=None, judged=False) for figure in self.figures]
        return replace(self, figures=figures, notes=[*self.notes, why])


@dataclass(frozen=True)
class Contestant:
    """Something that can be timed: ``sample`` returns seconds, and by default warms itself up.

    It runs with ``threads`` of its own, or with those of the race.
    """

    name: str
    sample: Callable[[], float]
    warm_up: Callable[[], object] | None = None
    threads: int | None = None


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

    @property
    def rounds(self) -> int:
        return len(next(iter(self.seconds.values())))

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def fastest(self, name: str) -> float:
        return min(self.seconds[name])

    def ratio(self, ours: str, peer: str) -> float:
        """How many times longer the peer takes: the median of the rounds' ratios."""
        pairs = zip(self.seconds[ours], self.seconds[peer], strict=True)
        return median(theirs / own for own, theirs in pairs)

    def figure(
        self,
        case: str,
        ours: str,
        peer: str | None = None,
        goal: Goal | None = None,
    ) -> Figure:
        """Ours in milliseconds, alone or beside ``peer``."""
        return Figure(
            case=case,
            ours=1e3 * self.median(ours),
            unit="ms",
            peer=peer,
            theirs=None if peer is None else 1e3 * self.median(peer),
            ratio=None if peer is None else self.ratio(ours, peer),
            goal=goal,
            rounds=self.rounds,
        )


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """A sample: run ``work`` once and return its wall time in seconds."""

    def sample() -> float:
        started = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - started
        del result  # freeing what was computed is not part of computing it
        return seconds

    return sample


def interleave(contestants: Sequence[Contestant], effort: Effort, report: Report) -> Samples:
    """Warm up and then measure all ``contestants`` in turn; at least one round is made."""
    steps = len(contestants) * (effort.rounds + 1)
    for index, contestant in enumerate(contestants):
        report(contestant.name, index / steps)
        with using_threads(contestant.threads or get_num_threads()):
            (contestant.warm_up or contestant.sample)()
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    started = time.perf_counter()
    for turn in range(effort.rounds):
        if turn and time.perf_counter() - started > effort.seconds:
            break
        for index, contestant in enumerate(contestants):
            report(contestant.name, ((turn + 1) * len(contestants) + index) / steps)
            with using_threads(contestant.threads or get_num_threads()):
                seconds[contestant.name].append(contestant.sample())
    return Samples(seconds)


@dataclass(frozen=True)
class Context:
    """Threads, the memory bandwidth measured with them (B/s), where to tell progress and to write.

    ``folder`` is for large files, which later benchmarks of the run may use; ``load`` gives the
    graph of a name.
    """

    threads: int
    bandwidth: float
    report: Report = lambda what, share: None
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    load: Callable[[str], Graph] = load

    def part(self, index: int, count: int, title: str = "") -> Context:
        """The context of step ``index`` of ``count``: its whole progress is that share of ours."""

        def report(what: str, share: float) -> None:
            self.report(f"{title}{what}", (index + share) / count)

        return replace(self, report=report)

    def race(
        self, contestants: Sequence[Contestant], effort: Effort, threads: int | None = None
    ) -> Samples:
        """:func:`interleave` with these threads."""
        with using_threads(threads or self.threads):
            return interleave(contestants, effort, self.report)


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
