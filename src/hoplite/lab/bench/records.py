"""What a benchmark says: figures with their goals, notes and facts; all of it plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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

    @property
    def passed(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        value = self.ratio if self.goal is not None and self.goal.of_ratio else self.ours
        if self.goal is None or value is None:
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
