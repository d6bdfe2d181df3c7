"""Upper bounds of E max_f sum_i |eps' g_i[:, f]|, signs eps independent and fair.

g_i: (L, d) is the i-th hop's features on the nodes, already times the largest coefficient, so the
sum is the supremum over all coefficients. h_f(eps) below is the sum for one feature. The proofs
are in docs/theory.md, under the functions' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

COVER = 16  # points per degree: the maximum of a polynomial is at most 0.5 % above theirs
ROUNDING = 1e-12  # relative; sums of a few thousand terms are better than that


@dataclass(frozen=True)
class Columns:
    """What the bounds need to know of g: one entry per feature (and hop).

    gram : (d, k + 1, k + 1), products ``g_i[:, f]' g_j[:, f]``
    absolute : (d,), ``sum_i ||g_i[:, f]||_1``
    spread : (d,), ``sum_l (sum_i |g_i[l, f]|)^2``
    copies : how many independent vectors of signs every feature meets
    """

    gram: np.ndarray
    absolute: np.ndarray
    spread: np.ndarray
    copies: int = 1

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], copies: int = 1) -> Columns:
        """From blocks (k + 1, L, some features)."""
        parts = []
        for block in blocks:
            by_feature = np.ascontiguousarray(block.transpose(2, 0, 1))
            sizes = np.abs(by_feature).sum(axis=1)
            gram = by_feature @ by_feature.transpose(0, 2, 1)
            parts.append((gram, sizes.sum(axis=1), (sizes**2).sum(axis=1)))
        if not parts:
            return cls(np.zeros((0, 1, 1)), np.zeros(0), np.zeros(0), copies)
        gram, absolute, spread = (np.concatenate(part) for part in zip(*parts, strict=True))
        return cls(gram, absolute, spread, copies)

    @property
    def norms(self) -> np.ndarray:
        """``||g_i[:, f]||_2``: (d, k + 1)."""
        return np.sqrt(np.diagonal(self.gram, axis1=1, axis2=2))

    @property
    def count(self) -> int:
        """Features times copies."""
        return len(self.absolute) * self.copies


def most(columns: Columns) -> float:
    """max_f sum_i ||g_i[:, f]||_1: no signs give more."""
    return float(columns.absolute.max(initial=0.0)) * (1 + ROUNDING)


def massart_bound(columns: Columns) -> float:
    """sum_i max_f ||g_i[:, f]||_2 sqrt(2 ln 2d): Massart's lemma, hop by hop."""
    if not columns.count:
        return 0.0
    largest = columns.norms.max(axis=0).sum()
    return float(largest) * math.sqrt(2 * math.log(2 * columns.count)) * (1 + ROUNDING)


def hopwise_bound(columns: Columns, blocks: Iterable[np.ndarray]) -> float:
    """sum_i min over s of 1/s ln sum_f 2 prod_l cosh(s g_i[l, f]): (*) for every hop by itself.

    s comes from the form with exp(s^2/2 ||g_i[:, f]||^2) in place of the product, which needs the
    norms alone; ``blocks`` are then read once.
    """
    norms = columns.norms
    if not norms.size:
        return 0.0
    # (s v)^2, not s^2 v^2: of late hops of egc v is so small that s^2 is infinite
    chosen = np.array([_best(lambda s, v=hop: (s * v) ** 2 / 2, hop**2) for hop in norms.T])
    used = chosen > 0
    if not used.any():
        return 0.0
    sums, tops = np.zeros(int(used.sum())), np.zeros(int(used.sum()))
    for block in blocks:
        parts = np.stack(
            [
                _ln_cosh(s * hop).sum(axis=0)
                for s, hop in zip(chosen[used], block[used], strict=True)
            ]
        )
        higher = np.maximum(tops, parts.max(axis=1, initial=0.0))
        sums = sums * np.exp(tops - higher) + np.exp(parts - higher[:, None]).sum(axis=1)
        tops = higher
    logarithms = math.log(2 * columns.copies) + tops + np.log(sums)
    return float((logarithms / chosen[used]).sum()) * (1 + ROUNDING)


def _ln_cosh(values: np.ndarray) -> np.ndarray:
    """ln cosh, without overflow.

    >>> _ln_cosh(np.array([0.0, 1000.0])).round(6).tolist()
    [0.0, 999.306853]
    """
    sizes = np.abs(values)
    return sizes + np.log1p(np.exp(-2 * sizes)) - math.log(2)


def chernoff_bound(columns: Columns) -> float:
    """min over s > 0 of 1/s ln sum_f E exp(s h_f), with for each f the smaller of

        s sum_i ||g_i[:, f]||_2 + s^2/2 sum_l (sum_i |g_i[l, f]|)^2     (mean, bounded differences)
        (k + 1) ln 2 + s^2/2 sum_ij |g_i[:, f]' g_j[:, f]|              (every pattern of signs)

    as the logarithm of the expectation.
    """
    means, patterns = columns.norms.sum(axis=1), columns.gram.shape[1] * math.log(2)
    widths = np.abs(columns.gram).sum(axis=(1, 2))

    def logarithms(s: float) -> np.ndarray:
        return np.minimum(s * means + s * s / 2 * columns.spread, patterns + s * s / 2 * widths)

    return _smallest(logarithms, columns, float(widths.max(initial=0.0)))


def covering_bound(columns: Columns) -> float:
    """For coefficients t^i, -1 <= t <= 1 (g_i holds a^i / i!): E sup_t max_f |eps' sum_i t^i g_i|.

    A polynomial of degree k is at most 1 / cos(k pi / 2N) times its largest value at the points
    cos(n pi / N), n = 0 .. N. There the sum is one vector per point and feature, so

        1 / cos(k pi / 2N) * min over s of 1/s ln sum_{n, f} 2 exp(s^2/2 v_nf)

    with v_nf = ||sum_i t_n^i g_i[:, f]||^2.
    """
    degree = columns.gram.shape[1] - 1
    points, factor = chebyshev_points(degree, COVER)
    powers = points[:, None] ** np.arange(degree + 1)
    squares = np.einsum("ni,fij,nj->nf", powers, columns.gram, powers, optimize=True).clip(0)
    largest = float(squares.max(initial=0.0))
    flat = squares.ravel()
    return factor * _smallest(lambda s: math.log(2) + s * s / 2 * flat, columns, largest)


def chebyshev_points(degree: int, per_degree: int) -> tuple[np.ndarray, float]:
    """Points t_n in [-1, 1], and the factor by which a polynomial may exceed its values there.

    >>> points, factor = chebyshev_points(1, 2)
    >>> points.round(6).tolist(), round(factor, 4)
    ([1.0, 0.0, -1.0], 1.4142)
    """
    count = max(degree * per_degree, 1)
    points = np.cos(np.pi * np.arange(count + 1) / count)
    return points, 1 / math.cos(math.pi * degree / (2 * count))


def _smallest(logarithms: Callable[[float], np.ndarray], columns: Columns, width: float) -> float:
    """min over s of 1/s (ln copies + ln sum exp(logarithms)); every s gives a bound."""
    if width <= 0:
        return 0.0
    s = _best(logarithms, np.array([width]))
    terms = logarithms(s)
    top = float(terms.max())
    total = math.log(columns.copies) + top + math.log(np.exp(terms - top).sum())
    return total / s * (1 + ROUNDING)


def _best(logarithms: Callable[[float], np.ndarray], squares: np.ndarray) -> float:
    """The s that about minimises 1/s ln sum exp(logarithms(s)); 0 if all ``squares`` are 0."""
    width = float(squares.max(initial=0.0))
    if width <= 0:
        return 0.0

    def value(exponent: float) -> float:
        s = math.exp(exponent) / math.sqrt(width)
        terms = logarithms(s)
        top = float(terms.max())
        return (math.log(2) + top + math.log(np.exp(terms - top).sum())) / s

    found = minimize_scalar(value, bounds=(-7.0, 5.0), method="bounded")
    return math.exp(float(found.x)) / math.sqrt(width)
