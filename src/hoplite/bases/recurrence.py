"""Any three-term recurrence, by its numbers: what a fitted basis becomes, or one of your own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hoplite.bases.base import Basis, Step, short_number
from hoplite.errors import ConfigError

FINENESS = 8  # points for each degree; the bound is then at most 2 % above the largest value
MANY = 3  # steps, from which on a title counts them
ON = "..."  # behind the steps: the last one goes on


@dataclass(frozen=True)
class Recurrence(Basis):
    """The steps (a_0, b_0, g_0), (a_1, b_1, g_1), ... as they are; g_0 is 0.

    There are polynomials up to as many hops as there are steps, or, if the last step ``repeats``,
    of every degree. Written ``recurrence:1,0,0/2,0,1/...`` they are Chebyshev's.

    >>> Recurrence(((1.0, 0.0, 0.0), (2.0, 0.0, 1.0)), repeats=True).values(np.array([0.5]), 3)
    array([[ 1. ,  0.5, -0.5, -1. ]])
    >>> str(Recurrence(((0.1, 0.5, 0.0),)))
    'recurrence:0.1,0.5,0'
    """

    numbers: tuple[Step, ...]
    repeats: bool = False

    name = "recurrence"
    domain = (-1.0, 1.0)
    settings = "A,B,G/A,B,G/..."
    example = "1.1,-0.1,0/1.9,0.05,0.9/..."

    def __post_init__(self) -> None:
        # plain numbers, whose text reads back; 0.0 makes 0 of -0
        steps = tuple((float(a) + 0.0, float(b) + 0.0, float(g) + 0.0) for a, b, g in self.numbers)
        object.__setattr__(self, "numbers", steps)
        wrong = [step for step in steps if not np.isfinite(step).all()]
        if not steps or steps[0][2] or wrong:
            came = "no step" if not steps else f"the step {','.join(map(str, (wrong or steps)[0]))}"
            raise ConfigError(
                f"basis is a recurrence with {came}; give it one or more A,B,G of finite numbers, "
                "the first with a G of 0."
            )

    @classmethod
    def read(cls, text: str | None) -> Recurrence | None:
        parts = [] if text is None else text.split("/")
        repeats = parts[-1:] == [ON]
        try:
            steps = [tuple(map(float, part.split(","))) for part in parts[: len(parts) - repeats]]
        except ValueError:
            return None
        if not steps or any(len(step) != 3 for step in steps):
            return None
        return cls(tuple((a, b, g) for a, b, g in steps), repeats)

    def step(self, i: int) -> Step:
        self.check_hops(i + 1)
        return self.numbers[min(i, len(self.numbers) - 1)]

    def check_hops(self, hops: int) -> None:
        if hops > len(self.numbers) and not self.repeats:
            raise ConfigError(
                f"hops is {hops} but basis has the numbers of {len(self.numbers)} "
                f"({self.title}); use fewer hops, or add steps (/{ON} repeats the last one)."
            )

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        """From the values at N + 1 points cos(j pi / N) of the interval, N = 8 k, k the hops:

            max |p| <= max_j |p(x_j)| / cos(pi i / (2 N))        p of degree i < N

        (Ehlich and Zeller, Mathematische Zeitschrift 86, 1964).
        """
        count = FINENESS * max(hops, 1)
        points = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * np.arange(count + 1) / count)
        before, now, found = np.zeros_like(points), np.ones_like(points), [1.0]
        with np.errstate(over="ignore", invalid="ignore"):
            for i, (a, b, g) in enumerate(self.steps(hops), 1):
                before, now = now, (a * points + b) * now - g * before
                most = float(np.abs(now).max()) / math.cos(math.pi * i / (2 * count))
                found.append(math.inf if math.isnan(most) else most)
        return np.array(found)

    @property
    def title(self) -> str:
        if len(self.numbers) <= MANY:
            return str(self)
        return f"{self.name} of {len(self.numbers)} steps"

    def __str__(self) -> str:
        steps = [",".join(map(short_number, step)) for step in self.numbers]
        return f"{self.name}:{'/'.join(steps + [ON] * self.repeats)}"
