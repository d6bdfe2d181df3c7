"""The Rademacher complexity itself: the mean of the supremum over signs, drawn or all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from hoplite.config import check_number
from hoplite.theory.bounds import chebyshev_points

DRAWS = 2000
MOST_EXACT_BITS = 20
CHUNK_ELEMENTS = 2**24  # numbers in a temporary array
COARSE, FINE = 4, 64  # points per degree: to find the candidates, and to settle them


@dataclass(frozen=True)
class Estimate:
    """A value with an interval that holds the truth with the given confidence.

    ``exact`` tells that every combination of signs was gone through; the interval is then as
    narrow as the maximisation over beta, a point for sgc and lgc.
    """

    value: float
    low: float
    high: float
    confidence: float
    draws: int
    exact: bool

    def scaled(self, factor: float) -> Estimate:
        return dataclasses.replace(
            self, value=factor * self.value, low=factor * self.low, high=factor * self.high
        )


def estimate(
    blocks: Callable[[], Iterable[np.ndarray]],
    size: int,
    features: int,
    *,
    exponential: bool,
    outputs: int,
    draws: int,
    seed: int,
    confidence: float,
    progress: Callable[[float], None] | None,
) -> Estimate:
    """E max_f h_f(eps) for blocks g: (k + 1, L, some of the ``features``), L = ``size``.

    h_f = sum_i |eps' g_i[:, f]|, or with ``exponential`` max over -1 <= t <= 1 of
    |sum_i t^i eps' g_i[:, f]|. With several ``outputs`` it is the largest of as many draws.

    The interval holds for every number of draws. It is the narrower of two, each for half of what
    may fail: a function of signs whose flip of sign l changes it by at most 2 r_l is sub-Gaussian
    with variance sum_l r_l^2 (McDiarmid), and the empirical Bernstein inequality of Maurer and
    Pontil, with the largest possible value as its range.
    """
    check_number("draws", draws, 2, whole=True)
    check_number("seed", seed, 0, whole=True)
    check_number("confidence", confidence, 0, 1, open_ends="lm")
    bits = size * outputs
    exact = bits <= MOST_EXACT_BITS and 2 ** (bits - 1) <= draws
    count = 2 ** (bits - 1) if exact else int(draws)
    signs = _every_sign(bits) if exact else _drawn_signs(count * outputs, size, int(seed))
    signs = signs.reshape(count * outputs, size)
    best, factor = np.zeros(count * outputs), 1.0
    flips, largest, done = np.zeros(size), 0.0, 0
    for block in blocks():
        sizes = np.abs(block).sum(axis=0)
        flips = np.maximum(flips, sizes.max(axis=1, initial=0.0))
        largest = max(largest, float(sizes.sum(axis=0).max(initial=0.0)))
        step = max(1, CHUNK_ELEMENTS // max(block.shape[0] * block.shape[2], size))
        for start in range(0, len(signs), step):
            part = slice(start, start + step)
            products = np.tensordot(signs[part].astype(np.float64), block, axes=(1, 1))
            if exponential:
                best[part], factor = _largest_on_interval(products, best[part])
            else:
                sums = np.abs(products).sum(axis=1)
                best[part] = np.maximum(best[part], sums.max(axis=1, initial=0.0))
            if progress is not None:
                part_done = min(1.0, (start + step) / len(signs))
                progress((done + part_done * block.shape[2]) / features)
        done += block.shape[2]
    sample = best.reshape(count, outputs).max(axis=1)
    mean = float(sample.mean())
    width = 0.0 if exact else _half_width(sample, flips, largest, outputs, 1 - confidence)
    high = min((mean + width) * factor, largest)
    return Estimate(mean, max(mean - width, 0.0), max(high, mean), confidence, count, exact)


def _every_sign(bits: int) -> np.ndarray:
    """All patterns of signs but for a common factor, which the supremum does not see."""
    numbers = np.arange(2 ** (bits - 1))[:, None] >> np.arange(bits)
    return (1 - 2 * (numbers & 1)).astype(np.int8)


def _drawn_signs(rows: int, size: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return 2 * generator.integers(0, 2, (rows, size), dtype=np.int8) - 1


def _largest_on_interval(products: np.ndarray, best: np.ndarray) -> tuple[np.ndarray, float]:
    """max over f and -1 <= t <= 1 of |sum_i t^i q_if|, and what it may be too low by, a factor.

    ``products`` is q: (draws, k + 1, features). Coarse points leave a few features that can hold
    the maximum; fine ones are tried on those alone.
    """
    degree = products.shape[1] - 1
    points, slack = chebyshev_points(degree, COARSE)
    powers = points[:, None] ** np.arange(degree + 1)
    coarse = np.zeros((products.shape[0], products.shape[2]))
    for row in powers:  # a point at a time keeps the temporary arrays small
        np.maximum(coarse, np.abs(np.einsum("i,rif->rf", row, products)), out=coarse)
    best = np.maximum(best, coarse.max(axis=1, initial=0.0))
    draws, features = np.nonzero(coarse * slack > best[:, None])
    points, slack = chebyshev_points(degree, FINE)
    powers = points[:, None] ** np.arange(degree + 1)
    step = max(1, CHUNK_ELEMENTS // len(points))
    for start in range(0, len(draws), step):
        rows = draws[start : start + step]
        candidates = products[rows, :, features[start : start + step]]
        np.maximum.at(best, rows, np.abs(candidates @ powers.T).max(axis=1))
    return best, slack


def _half_width(
    sample: np.ndarray, flips: np.ndarray, largest: float, outputs: int, risk: float
) -> float:
    n, each = len(sample), risk / 2
    by_flips = math.sqrt(2 * outputs * float(flips @ flips) * math.log(2 / each) / n)
    told = math.log(4 / each)
    by_sample = math.sqrt(2 * float(sample.var(ddof=1)) * told / n) + 7 * largest * told / (
        3 * (n - 1)
    )
    return min(by_flips, by_sample)
