"""What a basis is: a three-term recurrence with the interval that it is meant for.

    p_0(x) = 1,    p_{i+1}(x) = (a_i x + b_i) p_i(x) - g_i p_{i-1}(x),    g_0 = 0

The table (k, 3) of its numbers (a_i, b_i, g_i), i = 0 .. k - 1, is all that the loops of
:mod:`hoplite.propagation.polynomial`, of the C++ core and of the store know of it. With M the n x n
operator in the form that the basis needs and X: n x w they compute

    hops      H_0 = X,        H_{i+1} = (a_i M + b_i I) H_i - g_i H_{i-1}              p_i(M) X
    adjoint   A_k = Z_k,      A_i = Z_i + (a_i M + b_i I) A_{i+1} - g_{i+1} A_{i+2}    (Clenshaw)
              A_{k+1} = 0,    A_0 = sum_i p_i(M) Z_i    for Z_0 .. Z_k: n x w

A recurrence with a ``domain`` [l, u] is evaluated on it: an operator S with its spectrum in [c, d]
is mapped there first, M = (S - middle I) / half. One without takes S as it is, M = S.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

Step = tuple[float, float, float]  # a_i, b_i, g_i
Product = Callable[[np.ndarray], np.ndarray]  # M times a signal


@dataclass(frozen=True)
class Basis(ABC):
    """Polynomials p_0, p_1, ... of an operator. Bases that are spelt alike are equal.

    A new one is a frozen dataclass, whose fields are its settings, with a ``name``, a ``domain``,
    :meth:`step` and :meth:`largest`; its line in ``hoplite.bases`` makes it known everywhere.
    """

    name: ClassVar[str]
    domain: ClassVar[tuple[float, float] | None]
    settings: ClassVar[str] = ""  # how they are written behind the name, for people
    example: ClassVar[str] = ""  # of settings
    powers: ClassVar[bool] = False  # p_i(S) = S^i: what SGC, EGC and the paper's theorems are about
    of_signal: ClassVar[bool] = False  # its numbers come from M and X, see fitted

    @abstractmethod
    def step(self, i: int) -> Step:
        """a_i, b_i and g_i: what leads from p_i, and p_{i-1} before it, to p_{i+1}."""

    @abstractmethod
    def largest(self, low: float, high: float, hops: int) -> np.ndarray:
        """Upper bounds of ``|p_i|`` on [low, high], to rounding, i = 0 .. hops: (hops + 1,).

        The interval lies in the domain, if there is one. infinity is a bound, too.
        """

    def fitted(self, product: Product, blocks: Iterable[np.ndarray], hops: int) -> Basis:
        """The basis with numbers for ``hops`` hops; itself, unless it is one ``of_signal``.

        ``product`` is that with M, in the form that the basis needs, and ``blocks`` are X: n x d, a
        few columns at a time.
        """
        return self

    def check_hops(self, hops: int) -> None:
        """Raise ConfigError if there is no step for each of them; most bases have all."""
        return

    def growth(self, norm: float, hops: int) -> np.ndarray:
        """Upper bounds of ``||p_i(M)||``, i = 0 .. hops, in any norm in which M has ``norm``.

        t_0 = 1,    t_{i+1} = (|a_i| norm + |b_i|) t_i + |g_i| t_{i-1}
        """
        found, before = [1.0], 0.0
        for a, b, g in self.steps(hops):
            ahead = (abs(a) * norm + abs(b)) * found[-1] + (abs(g) * before if g else 0.0)
            before = found[-1]
            found.append(ahead)
        return np.array(found)

    def largest_text(self, low: float, high: float, hops: int) -> str:
        """The largest of :meth:`largest`, for people."""
        return f"{self.largest(low, high, hops).max():.3g}"

    def mapping(self, low: float, high: float) -> tuple[float, float]:
        """middle and half with which (x - middle) / half takes [low, high] to the domain.

        >>> from hoplite.bases import find_basis
        >>> find_basis("chebyshev").mapping(0.0, 2.0), find_basis("monomial").mapping(0.0, 2.0)
        ((1.0, 1.0), (0.0, 1.0))
        """
        if self.domain is None:
            return 0.0, 1.0
        first, last = self.domain
        half = (high - low) / (last - first)
        return low - first * half, half

    def mapped(self, low: float, high: float) -> tuple[float, float]:
        """Where the points [low, high] of a spectrum lie for this basis."""
        return (low, high) if self.domain is None else self.domain

    def values(self, points: np.ndarray, hops: int) -> np.ndarray:
        """p_i at points of the domain: (p,) -> (p, hops + 1).

        >>> from hoplite.bases import find_basis
        >>> find_basis("chebyshev").values(np.array([0.5]), 3).tolist()
        [[1.0, 0.5, -0.5, -1.0]]
        """
        points = np.asarray(points, dtype=np.float64)
        found = [np.ones_like(points)]
        for a, b, g in self.steps(hops):
            ahead = (a * points + b) * found[-1]
            found.append(ahead - g * found[-2] if g else ahead)
        return np.moveaxis(np.stack(found), 0, -1)

    def table(self, hops: int) -> np.ndarray:
        """The steps 0 .. hops - 1: (hops, 3), float64, computed once and read-only."""
        return _table(self, hops)

    def steps(self, hops: int) -> Iterator[Step]:
        """The same as plain numbers, one step after the other."""
        return map(tuple, self.table(hops).tolist())

    @classmethod
    def read(cls, text: str | None) -> Basis | None:
        """The basis of these settings, None without; None if they are not written so."""
        try:
            numbers = [] if text is None else [float(part) for part in text.split(",")]
        except ValueError:
            return None
        return cls(*numbers) if len(numbers) == len(dataclasses.fields(cls)) else None

    @classmethod
    def spelling(cls) -> str:
        """How it is written, with letters for its settings."""
        return f"{cls.name}:{cls.settings}" if cls.settings else cls.name

    @classmethod
    def example_text(cls) -> str:
        """One that :func:`hoplite.bases.find_basis` takes."""
        return f"{cls.name}:{cls.example}" if cls.example else cls.name

    @property
    def title(self) -> str:
        """The same for people, who need not read every number."""
        return str(self)

    def __str__(self) -> str:
        """The one text that stands for it in files and messages."""
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return f"{self.name}:{','.join(map(short_number, values))}" if values else self.name


@functools.lru_cache(maxsize=32)
def _table(basis: Basis, hops: int) -> np.ndarray:
    found = np.array([basis.step(i) for i in range(hops)], dtype=np.float64).reshape(hops, 3)
    found.flags.writeable = False
    return found


def short_number(value: float) -> str:
    """The shortest text that reads back as this number.

    >>> short_number(1.0), short_number(-0.25)
    ('1', '-0.25')
    """
    return repr(int(value)) if value == int(value) else repr(value)
