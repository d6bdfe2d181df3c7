"""The Rademacher complexity E max_f sum_i |eps' g_i[:, f]|, signs eps independent and fair.

g_i: (L, d) is the i-th hop's features on the nodes, already times the largest coefficient, so the
sum is the supremum over all coefficients. h_f(eps) below is the sum for one feature. Here are upper
bounds on it, with proofs in docs/theory.md under the functions' names, and the value itself: the
mean over signs, drawn or all of them. At the end: what is lost when EGC's series is cut.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from hoplite.config import MAX_HOPS, check_hops, check_number
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.io import load
from hoplite.operators import find_operator

COVER = 16  # points per degree: the maximum of a polynomial is at most 0.5 % above theirs
ROUNDING = 1e-12  # relative; sums of a few thousand terms are better than that
SERIES_ROUNDING = 1e-9  # relative, to stay above the truncation error however it is rounded
DRAWS = 2000
MAX_EXACT_BITS = 20
CHUNK_ELEMENTS = 2**24  # numbers in a temporary array
COARSE, FINE = 4, 64  # points per degree: to find the candidates, and to refine them


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


def trivial_bound(columns: Columns) -> float:
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
    logarithms = np.full(int(used.sum()), -np.inf)
    for block in blocks:
        pairs = zip(chosen[used], block[used], strict=True)
        parts = np.stack([_ln_cosh(s * hop).sum(axis=0) for s, hop in pairs])
        logarithms = np.logaddexp(logarithms, logsumexp(parts, axis=1))
    logarithms += math.log(2 * columns.copies)
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
    return (math.log(columns.copies) + float(logsumexp(logarithms(s)))) / s * (1 + ROUNDING)


def _best(logarithms: Callable[[float], np.ndarray], squares: np.ndarray) -> float:
    """The s that about minimises 1/s ln sum exp(logarithms(s)); 0 if all ``squares`` are 0."""
    width = float(squares.max(initial=0.0))
    if width <= 0:
        return 0.0

    def value(exponent: float) -> float:
        s = math.exp(exponent) / math.sqrt(width)
        return (math.log(2) + float(logsumexp(logarithms(s)))) / s

    minimum = minimize_scalar(value, bounds=(-7.0, 5.0), method="bounded")
    return math.exp(float(minimum.x)) / math.sqrt(width)


@dataclass(frozen=True)
class Estimate:
    """A value with a confidence interval.

    Attributes
    ----------
    value, low, high : float
        The estimate and the ends of its interval.
    confidence : float
        Probability with which the interval contains the true value.
    draws : int
        Number of sign vectors.
    exact : bool
        Whether all sign vectors were computed. The interval is then a point, or for egc contains
        only the error of the maximisation over beta.

    Examples
    --------
    >>> Estimate(0.5, 0.4, 0.6, confidence=0.95, draws=100, exact=False).scaled(2).high
    1.2
    """

    value: float
    low: float
    high: float
    confidence: float
    draws: int
    exact: bool

    def scaled(self, factor: float) -> Estimate:
        """Multiply the value and its interval by a factor.

        Parameters
        ----------
        factor : float
            A factor of 0 or more.

        Returns
        -------
        Estimate
        """
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
    exact = bits <= MAX_EXACT_BITS and 2 ** (bits - 1) <= draws
    count = 2 ** (bits - 1) if exact else int(draws)
    rows = count * outputs
    drawn = np.random.default_rng(int(seed)).integers(0, 2, (rows, size), dtype=np.int8)
    signs = _every_sign(bits).reshape(rows, size) if exact else 2 * drawn - 1
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
    n, half = len(sample), risk / 2
    by_flips = math.sqrt(2 * outputs * float(flips @ flips) * math.log(2 / half) / n)
    logarithm = math.log(4 / half)
    by_sample = math.sqrt(
        2 * float(sample.var(ddof=1)) * logarithm / n
    ) + 7 * largest * logarithm / (3 * (n - 1))
    return min(by_flips, by_sample)


def truncation_error(beta: float, norm: float, hops: int, signal_norm: float = 1.0) -> float:
    """Bound the error of a truncated exponential series, as in the paper.

        ||exp(beta S) Z - sum_{i<=k} beta^i/i! S^i Z||_2
            <= x^(k+1) / (k+1)! * ||Z||_2 / (1 - x / (k+2)),    x = |beta| norm < k + 2

    Parameters
    ----------
    beta : float
        The diffusion rate.
    norm : float
        ``||S||_2`` or more, see :func:`spectral_norm`.
    hops : int
        k.
    signal_norm : float, default 1.0
        ``||Z||_2`` or more, Z = X Theta.

    Returns
    -------
    float

    Raises
    ------
    ConfigError
        If x is not less than k + 2.

    Examples
    --------
    >>> round(truncation_error(1.0, 1.0, 3), 4)  # 1/4! / (1 - 1/5)
    0.0521
    """
    check_number("beta", beta, -math.inf)
    check_number("norm", norm, 0)
    check_number("signal_norm", signal_norm, 0)
    hops = check_hops(hops)
    x = abs(float(beta)) * float(norm)
    if hops + 2 <= x:
        raise ConfigError(
            f"is {hops} but the bound needs hops + 2 > |beta| norm = {x:g}; "
            f"use at least {max(math.floor(x) - 1, 0):.6g} hops.",
            "hops",
        )
    if x == 0 or signal_norm == 0:
        return 0.0
    logarithm = (hops + 1) * math.log(x) - math.lgamma(hops + 2) - math.log1p(-x / (hops + 2))
    logarithm += math.log(signal_norm)
    return math.exp(logarithm) * (1 + SERIES_ROUNDING) if logarithm < 709 else math.inf


def hops_for(tolerance: float, beta: float, norm: float = 1.0, signal_norm: float = 1.0) -> int:
    """Find the smallest number of hops k for which :func:`truncation_error` reaches a tolerance.

    Parameters
    ----------
    tolerance : float
        Largest acceptable error.
    beta, norm, signal_norm : float
        As for :func:`truncation_error`.

    Returns
    -------
    int

    Examples
    --------
    >>> hops_for(1e-6, beta=1.0), hops_for(1e-6, beta=1.0, norm=2.0)
    (9, 13)
    """
    check_number("tolerance", tolerance, 0, open_ends="l")
    check_number("beta", beta, -math.inf)
    check_number("norm", norm, 0)
    x = abs(float(beta)) * float(norm)
    # From x - 2 on the error falls with every hop, so the first that fits can be bisected.
    if x >= MAX_HOPS or truncation_error(beta, norm, MAX_HOPS, signal_norm) > tolerance:
        raise ConfigError(
            f"|beta| norm is {x:g}, for which {MAX_HOPS:,} hops do not reach the tolerance "
            f"{tolerance:g}; use a smaller beta."
        )
    first = max(0, math.floor(x) - 1)

    def fits(hops: int) -> bool:
        return truncation_error(beta, norm, hops, signal_norm) <= tolerance

    return first + bisect_left(range(first, MAX_HOPS), True, key=fits)


def spectral_norm(graph: Graph | str, operator: str = "renormalized") -> float:
    """Bound the spectral norm ``||S||_2``: 1 for renormalized and adjacency, 2 for laplacian.

    Parameters
    ----------
    graph : Graph, or its name or path
        The graph.
    operator : str, default "renormalized"
        The operator S.

    Returns
    -------
    float
        The spectral norm, or slightly more; never less.

    Notes
    -----
    With D the degrees, D^-1/2 A D^-1/2 is similar to D^-1 A, whose absolute row sums
    are 1 (or 0 for an isolated node), so no eigenvalue exceeds 1 in absolute value; the vector
    D^1/2 1 has the eigenvalue 1. The same holds for A + I. The eigenvalues of L = I - D^-1/2 A
    D^-1/2 are therefore in [0, 2]; 2 is one of them exactly if a component with an edge is
    bipartite. Without any edge, adjacency is 0 and laplacian is the identity.

    Examples
    --------
    >>> path = Graph.from_edges([(0, 1)], features=[[1.0], [2.0]])
    >>> spectral_norm(path), spectral_norm(path, "laplacian")
    (1.0, 2.0)
    """
    return find_operator(operator).norm(load(graph) if isinstance(graph, str) else graph)
