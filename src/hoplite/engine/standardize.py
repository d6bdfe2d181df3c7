"""Standardised outputs, the paper's setting for Reddit: every column has mean 0 and deviation 1.

    H^ = (V - mean) / sd       mean and sd over all n nodes, column by column;  V, H^: n x m

With G = dLoss/dH^, 0 at nodes without a loss, the gradient is 0 nowhere:

    dV = (G - mean(G) - H^ * mean(G * H^)) / sd
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np


class Moments(NamedTuple):
    """Number of rows, their mean, and the sum of squared distances from it: (m,) each, float64."""

    rows: int
    mean: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Of a signal (rows, m)."""
        rows = len(values)
        mean = values.mean(axis=0, dtype=np.float64) if rows else np.zeros(values.shape[1])
        return cls(rows, mean, np.square(values - mean).sum(axis=0))

    def merged(self, other: Moments) -> Moments:
        """Those of the rows of both."""
        rows = self.rows + other.rows
        gap = other.mean - self.mean
        share = other.rows / max(rows, 1)
        squares = self.squares + other.squares + gap**2 * (self.rows * share)
        return Moments(rows, self.mean + gap * share, squares)


class Standardized(NamedTuple):
    """The mean and the deviation (m,) that are taken from the columns of a signal.

    >>> scale = Standardized.of(np.array([[1.0], [3.0]]))
    >>> scale.apply(np.array([[1.0], [5.0]])).ravel().tolist()
    [-1.0, 3.0]
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Of a signal (n, m) on all nodes."""
        return cls.from_moments(Moments.of(values), values.dtype)

    @classmethod
    def from_moments(cls, found: Moments, dtype: np.dtype) -> Self:
        """From moments of all nodes; a constant column is divided by the rounding error of 1."""
        deviation = np.sqrt(found.squares / max(found.rows, 1))
        least = np.finfo(dtype).eps
        return cls(found.mean.astype(dtype), np.maximum(deviation, least).astype(dtype))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """H^ of some rows of V."""
        return (values - self.mean) / self.deviation

    def gradient_means(
        self, gradient: np.ndarray, standardized: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """mean(G) and mean(G * H^) over all nodes.

        The second is 0 for a constant column, which stays one.
        """
        first = gradient.mean(axis=0, dtype=np.float64)
        second = (gradient * standardized).mean(axis=0, dtype=np.float64)
        constant = self.deviation <= np.finfo(self.deviation.dtype).eps
        return first, np.where(constant, 0.0, second)

    def gradient(
        self, gradient: np.ndarray, standardized: np.ndarray, means: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """dV of some rows, from their G and H^ and the means over all nodes."""
        first, second = (mean.astype(standardized.dtype) for mean in means)
        return (gradient - first - standardized * second) / self.deviation

    def by_signal(self, gradient: np.ndarray, values: np.ndarray) -> np.ndarray:
        """dV of all rows, from their G and V."""
        standardized = self.apply(values)
        means = self.gradient_means(gradient, standardized)
        return self.gradient(gradient, standardized, means)
