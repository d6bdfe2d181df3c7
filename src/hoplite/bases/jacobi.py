"""Jacobi polynomials: orthogonal on [-1, 1] with the weight (1 - x)^a (1 + x)^b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.bases.base import Basis, Step
from hoplite.errors import ConfigError

MOST = 1000.0  # beyond, the polynomials of a few hops leave the range of numbers


@dataclass(frozen=True)
class Jacobi(Basis):
    """P_1(x) = ((a + b + 2) x + a - b) / 2, and with s = 2n + a + b

        2n (n + a + b) (s - 2) P_n(x)
            = (s - 1) (s (s - 2) x + a^2 - b^2) P_{n-1}(x) - 2 (n + a - 1) (n + b - 1) s P_{n-2}(x)

    a, b > -1; the larger a, the more weight has the end -1, and the larger b, the end 1.

    >>> Jacobi(1.0, 0.0).values(np.array([-1.0, 1.0]), 2).tolist()
    [[1.0, -1.0, 1.0], [1.0, 2.0, 3.0]]
    """

    a: float
    b: float

    name = "jacobi"
    domain = (-1.0, 1.0)
    settings = "A,B"
    example = "1,0.5"

    def __post_init__(self) -> None:
        for name in ("a", "b"):  # plain numbers, whose text reads back
            object.__setattr__(self, name, float(getattr(self, name)))
        if not all(-1 < value <= MOST for value in (self.a, self.b)):
            raise ConfigError(
                f"basis is jacobi with the numbers {self.a:g} and {self.b:g}; both must be larger "
                f"than -1 and at most {MOST:g}."
            )

    def step(self, i: int) -> Step:
        # a + 1 and b + 1 are exact near -1, where sums of a and b are all rounding
        a, b = self.a + 1, self.b + 1
        if i == 0:
            return (a + b) / 2, (a - b) / 2, 0.0
        s = 2 * i + a + b
        below = 2 * (i + 1) * (i - 1 + a + b)
        before = 2 * (i - 1) + a + b  # s - 2
        return (
            (s - 1) * s / below,
            (s - 1) * (a - b) * (a + b - 2) / (below * before),
            2 * (i - 1 + a) * (i - 1 + b) * s / (below * before),
        )

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        """On all of [-1, 1]. With n = i, q = max(a, b), and if q >= -1/2

            |P_n(x)| <= (1 + q) (2 + q) .. (n + q) / n!        reached at an end

        (Szegő, Orthogonal Polynomials, 7.32.1). Else |P_n(x)|^2 is at most

            f(x) = P_n(x)^2 + (1 - x^2) P_n'(x)^2 / (n (n + a + b + 1))

        whose slope is 2 (a - b + (a + b + 1) x) P_n'(x)^2 / (n (n + a + b + 1)): it rises up to
        y = (b - a) / (a + b + 1) and falls behind it, so f(y) is the bound.
        """
        a, b, n = self.a, self.b, np.arange(1.0, hops + 1)
        with np.errstate(over="ignore"):
            if max(a, b) >= -0.5:
                return np.concatenate([[1.0], np.cumprod((n + max(a, b)) / n)])
        y = (b - a) / (a + b + 1)
        values = self.values(np.array([y]), hops)[0]
        slopes = (n + a + b + 1) / 2 * Jacobi(a + 1, b + 1).values(np.array([y]), hops)[0, :-1]
        values[1:] = np.hypot(values[1:], slopes * np.sqrt((1 - y * y) / (n * (n + a + b + 1))))
        return values
