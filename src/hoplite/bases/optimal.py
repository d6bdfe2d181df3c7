"""The optimal basis of a graph's features: polynomials that make its hops orthonormal, by Lanczos.

With M the n x n operator, symmetric, and X: n x d the features, they are orthonormal for

    <p, q> = tr(X^T p(M) q(M) X) / tr(X^T X)

so p_i(M) X and p_j(M) X, i != j, are orthogonal as vectors of n d numbers, and all are as long as
X. OptBasisGNN has such a basis for each column of X Theta, another one in every step; here a basis
is a three-term recurrence and only that, so it is one for all columns, that of the mean spectral
measure of the features, and is found once, before training.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from hoplite.bases.base import Basis, Product, Step
from hoplite.bases.recurrence import Recurrence
from hoplite.errors import ConfigError

ROUNDING = 2.0**-24  # of float32, in which most hop features are computed
MOST_OVERLAP = 0.01  # of a hop with one before it, where they should be orthogonal


@dataclass(frozen=True)
class Optimal(Basis):
    """No numbers of its own: :meth:`fitted` finds them, and they are a Recurrence from then on.

    >>> swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> found = Optimal().fitted(lambda block: swap @ block, [np.array([[1.0], [0.0]])], 3)
    >>> str(found)  # X and M X are orthogonal, and M^2 X is X again
    'recurrence:1,0,0/0,0,0/0,0,0'
    """

    name = "optimal"
    domain = Recurrence.domain
    of_signal = True

    def fitted(self, product: Product, blocks: Iterable[np.ndarray], hops: int) -> Recurrence:
        """The numbers of ``hops`` steps, with the inner product <V, W> = sum of V_uf W_uf:

            V_0 = X / ||X||,        W = M V_i - g V_{i-1} - b V_i,    b = <M V_i, V_i>
            V_{i+1} = W / ||W||     a_i = 1 / ||W||,  b_i = -b / ||W||,  g_i = g / ||W||

        and g = ||W|| for the next step. Where W is 0, all polynomials of the features are
        combinations of p_0 .. p_i; near there a recurrence magnifies its rounding. So where, in
        float32, V_{i+1} would overlap with an earlier one by more than a hundredth, the further
        polynomials are 0: their numbers are, and their hops add nothing. Two matrices of the size
        of X are in memory, in float64.
        """
        now = [np.array(block, dtype=np.float64) for block in blocks]
        scale = max((float(np.abs(block).max(initial=0.0)) for block in now), default=0.0)
        steps: list[Step] = []
        if scale:
            _divide(now, scale)  # so that no square is too large or too small for a number
            _divide(now, _length(now))
        before, g = [np.zeros((0, 0))] * len(now), 0.0
        overlaps = _Overlaps()
        while scale and len(steps) < max(hops, 1):  # one step at least, for a text
            b = 0.0
            for i, block in enumerate(now):
                ahead = product(block)
                if g:
                    ahead -= g * before[i]
                b += float((ahead * block).sum())
                before[i] = ahead
            for block, ahead in zip(now, before, strict=True):
                ahead -= b * block
            length = _length(before)
            if not length or overlaps.add(b, length) > MOST_OVERLAP:
                break
            _divide(before, length)
            steps.append((1 / length, -b / length, g / length))
            now, before, g = before, now, length
        return Recurrence((*steps, *[(0.0, 0.0, 0.0)] * (max(hops, 1) - len(steps))))

    def step(self, i: int) -> Step:
        self._refuse()

    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            f"basis is {self.name!r}, which has no numbers before it is fitted to a graph in "
            "memory; train there, and take the basis of the trained model's configuration."
        )


class _Overlaps:
    """How far rounding makes <V_i, V_j>, j < i, differ from 0, by Simon's recurrence

        g_{i+1} w_{i+1,j} = g_{j+1} w_{i,j+1} + (b_j - b_i) w_{i,j} + g_j w_{i,j-1} - g_i w_{i-1,j}
                            + rounding (g_{i+1} + g_{j+1}),     w_{i,i} = 1,  g_{i+1} = ||W||

    (The Lanczos algorithm with partial reorthogonalization, Mathematics of Computation 42, 1984).
    """

    def __init__(self) -> None:
        self._b: list[float] = []
        self._g = [0.0]
        self._now, self._before = [1.0], [0.0]

    def add(self, b: float, g: float) -> float:
        """The largest of the next hop's, whose step has these numbers."""
        self._b.append(b)
        self._g.append(g)
        i, now, found = len(self._b) - 1, self._now, []
        for j in range(i):
            value = self._g[j + 1] * now[j + 1] + (self._b[j] - b) * now[j]
            value += self._g[j] * now[j - 1] - self._g[i] * self._before[j]
            found.append((value + math.copysign(ROUNDING * (self._g[j + 1] + g), value)) / g)
        found.append(ROUNDING / g)
        self._now, self._before = [*found, 1.0], now
        return max(map(abs, found))


def _length(blocks: list[np.ndarray]) -> float:
    """||V||; sums of NumPy, unlike those of BLAS, have the same bits for any number of threads."""
    return math.sqrt(sum(float((block * block).sum()) for block in blocks))


def _divide(blocks: list[np.ndarray], by: float) -> None:
    for block in blocks:
        block /= by
