"""Fair timing: contestants take turns (A, B, A, B, ...), so that a busy moment hits them all.

Every contestant is warmed up first. A contestant's figure is the median of its rounds; the ratio of
two is the median over the rounds of peer / ours, each taken within one round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from hoplite.lab.bench.records import Figure, Goal, Report
from hoplite.propagation.backend import get_num_threads, set_num_threads


@dataclass(frozen=True)
class Contestant:
    """Something that can be timed: ``sample`` returns seconds, and by default warms itself up."""

    name: str
    sample: Callable[[], float]
    warm_up: Callable[[], object] | None = None


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
        *,
        unit: str = "ms",
        scale: float = 1e3,
        goal: Goal | None = None,
    ) -> Figure:
        """Ours, alone or beside ``peer``, in ``unit``, of which one second has ``scale``."""
        return Figure(
            case=case,
            ours=scale * self.median(ours),
            unit=unit,
            peer=peer,
            theirs=None if peer is None else scale * self.median(peer),
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
        (contestant.warm_up or contestant.sample)()
    seconds: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    started = time.perf_counter()
    for turn in range(effort.rounds):
        if turn and time.perf_counter() - started > effort.seconds:
            break
        for index, contestant in enumerate(contestants):
            report(contestant.name, ((turn + 1) * len(contestants) + index) / steps)
            seconds[contestant.name].append(contestant.sample())
    return Samples(seconds)


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let Hoplite and torch use ``threads`` within a block."""
    before = get_num_threads()
    set_num_threads(threads)
    try:
        yield
    finally:
        set_num_threads(before)


def with_threads(threads: int, sample: Callable[[], float]) -> Callable[[], float]:
    """``sample`` taken with this number of threads."""

    def limited() -> float:
        with using_threads(threads):
            return sample()

    return limited
