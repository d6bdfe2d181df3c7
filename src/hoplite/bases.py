"""The bases of polynomials: three-term recurrences, each a class here that needs no other line.

    p_0(x) = 1,    p_{i+1}(x) = (a_i x + b_i) p_i(x) - g_i p_{i-1}(x),    g_0 = 0

The table (k, 3) of its numbers (a_i, b_i, g_i), i = 0 .. k - 1, is all that the loops of
:mod:`hoplite.engine.polynomial`, of the C++ core and of the store know of a basis. With M the n x n
operator in the form that the basis needs and X: n x w they compute

    hops      H_0 = X,        H_{i+1} = (a_i M + b_i I) H_i - g_i H_{i-1}              p_i(M) X
    adjoint   A_k = Z_k,      A_i = Z_i + (a_i M + b_i I) A_{i+1} - g_{i+1} A_{i+2}    (Clenshaw)
              A_{k+1} = 0,    A_0 = sum_i p_i(M) Z_i    for Z_0 .. Z_k: n x w

A recurrence with a ``domain`` [l, u] is evaluated on it: an operator S with its spectrum in [c, d]
is mapped there first, M = (S - middle I) / half. One without takes S as it is, M = S.

A text names a basis: ``chebyshev``, or with settings ``NAME:A,B``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hoplite.errors import ConfigError, nearest_hint

Step = tuple[float, float, float]  # a_i, b_i, g_i
Product = Callable[[np.ndarray], np.ndarray]  # M times a signal
MAX_JACOBI = 1000.0  # beyond, the polynomials of a few hops leave the range of numbers
MANY = 3  # steps, from which on a title counts them
ON = "..."  # behind the steps: the last one goes on
ROUNDING = 2.0**-24  # rounding of float32, in which most hop features are computed
MAX_OVERLAP = 0.01  # overlap of a hop with an earlier one, where they should be orthogonal


@dataclass(frozen=True)
class Basis(ABC):
    """Polynomials p_0, p_1, ... of an operator. Bases that are spelt alike are equal.

    A new one is a frozen dataclass, whose fields are its settings, with a ``name``, a ``domain``
    and :meth:`step`; it is then known in every command, in stores, on clusters, in bounds and in
    explanations.
    """

    name: ClassVar[str]
    domain: ClassVar[tuple[float, float] | None]
    settings: ClassVar[str] = ""  # how they are written behind the name, for people
    example: ClassVar[str] = ""  # example of settings
    powers: ClassVar[bool] = False  # p_i(S) = S^i: what SGC, EGC and the paper's theorems are about
    of_signal: ClassVar[bool] = False  # its numbers come from M and X, see fitted

    @abstractmethod
    def step(self, i: int) -> Step:
        """a_i, b_i and g_i: what leads from p_i, and p_{i-1} before it, to p_{i+1}."""

    def fitted(self, product: Product, blocks: Iterable[np.ndarray], hops: int) -> Basis:
        """The basis with numbers for ``hops`` hops; itself, unless it is one ``of_signal``.

        ``product`` is that with M, in the form that the basis needs, and ``blocks`` are X: n x d, a
        few columns at a time.
        """
        return self

    def check_hops(self, hops: int) -> None:
        """Raise ConfigError if there is no step for each of them; most bases have all."""
        return

    def mapping(self, low: float, high: float) -> tuple[float, float]:
        """middle and half with which (x - middle) / half takes [low, high] to the domain.

        >>> find_basis("chebyshev").mapping(0.0, 2.0), find_basis("monomial").mapping(0.0, 2.0)
        ((1.0, 1.0), (0.0, 1.0))
        """
        if self.domain is None:
            return 0.0, 1.0
        first, last = self.domain
        half = (high - low) / (last - first)
        return low - first * half, half

    def values(self, points: np.ndarray, hops: int) -> np.ndarray:
        """p_i at points of the domain: (p,) -> (p, hops + 1).

        >>> find_basis("chebyshev").values(np.array([0.5]), 3).tolist()
        [[1.0, 0.5, -0.5, -1.0]]
        """
        points = np.asarray(points, dtype=np.float64)
        polynomials = [np.ones_like(points)]
        for a, b, g in self.steps(hops):
            ahead = (a * points + b) * polynomials[-1]
            polynomials.append(ahead - g * polynomials[-2] if g else ahead)
        return np.moveaxis(np.stack(polynomials), 0, -1)

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
    table = np.array([basis.step(i) for i in range(hops)], dtype=np.float64).reshape(hops, 3)
    table.flags.writeable = False
    return table


def short_number(value: float) -> str:
    """The shortest text that reads back as this number.

    >>> short_number(1.0), short_number(-0.25)
    ('1', '-0.25')
    """
    return repr(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True)
class Monomial(Basis):
    """p_{i+1}(x) = x p_i(x), of S as it is.

    >>> Monomial().values(np.array([2.0]), 3).tolist()
    [[1.0, 2.0, 4.0, 8.0]]
    """

    name = "monomial"
    domain = None
    powers = True

    def step(self, i: int) -> Step:
        return 1.0, 0.0, 0.0


@dataclass(frozen=True)
class Chebyshev(Basis):
    """T_1(x) = x, then T_{i+1}(x) = 2 x T_i(x) - T_{i-1}(x); at most 1 on [-1, 1].

    >>> Chebyshev().values(np.array([-1.0, 1.0]), 2).tolist()
    [[1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    name = "chebyshev"
    domain = (-1.0, 1.0)

    def step(self, i: int) -> Step:
        return (2.0, 0.0, 1.0) if i else (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Legendre(Basis):
    """(i + 1) P_{i+1}(x) = (2 i + 1) x P_i(x) - i P_{i-1}(x); at most 1 on [-1, 1].

    >>> Legendre().values(np.array([0.0, 1.0]), 2).tolist()
    [[1.0, 0.0, -0.5], [1.0, 1.0, 1.0]]
    """

    name = "legendre"
    domain = (-1.0, 1.0)

    def step(self, i: int) -> Step:
        return (2 * i + 1) / (i + 1), 0.0, i / (i + 1)


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
        if not all(-1 < value <= MAX_JACOBI for value in (self.a, self.b)):
            raise ConfigError(
                f"is jacobi with parameters {self.a:g} and {self.b:g}; both must be larger "
                f"than -1 and at most {MAX_JACOBI:g}.",
                "basis",
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
                f"is a recurrence with {came}; it needs one or more steps A,B,G of finite "
                "numbers, and G must be 0 in the first.",
                "basis",
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
                f"is {hops} but basis defines only {len(self.numbers)} ({self.title}); use "
                f"fewer hops, or add steps (/{ON} repeats the last one).",
                "hops",
            )

    @property
    def title(self) -> str:
        if len(self.numbers) <= MANY:
            return str(self)
        return f"{self.name} of {len(self.numbers)} steps"

    def __str__(self) -> str:
        steps = [",".join(map(short_number, step)) for step in self.numbers]
        return f"{self.name}:{'/'.join(steps + [ON] * self.repeats)}"


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
            V_{i+1} = W / ||W||     a_i = 1 / ||W||,  b_i = - b / ||W||,  g_i = g / ||W||

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
            if not length or overlaps.add(b, length) > MAX_OVERLAP:
                break
            _divide(before, length)
            steps.append((1 / length, -b / length, g / length))
            now, before, g = before, now, length
        return Recurrence((*steps, *[(0.0, 0.0, 0.0)] * (max(hops, 1) - len(steps))))

    def step(self, i: int) -> Step:
        raise ConfigError(
            f"is {self.name!r}, which must first be fitted to a graph in memory; train on "
            "that graph and use the basis of the trained model's configuration.",
            "basis",
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
        i, now, overlaps = len(self._b) - 1, self._now, []
        for j in range(i):
            value = self._g[j + 1] * now[j + 1] + (self._b[j] - b) * now[j]
            value += self._g[j] * now[j - 1] - self._g[i] * self._before[j]
            overlaps.append((value + math.copysign(ROUNDING * (self._g[j + 1] + g), value)) / g)
        overlaps.append(ROUNDING / g)
        self._now, self._before = [*overlaps, 1.0], now
        return max(map(abs, overlaps))


def _length(blocks: list[np.ndarray]) -> float:
    """||V||; sums of NumPy, unlike those of BLAS, have the same bits for any number of threads."""
    return math.sqrt(sum(float((block * block).sum()) for block in blocks))


def _divide(blocks: list[np.ndarray], by: float) -> None:
    for block in blocks:
        block /= by


KNOWN: tuple[type[Basis], ...] = tuple(Basis.__subclasses__())
EXAMPLES = tuple(cls.example_text() for cls in KNOWN if not cls.of_signal)  # one of each


def find_basis(text: str | Basis, argument: str = "basis") -> Basis:
    """The basis that ``text`` names; ConfigError, with the known ones, if there is none.

    >>> find_basis("chebyshev")
    Chebyshev()
    >>> str(find_basis("chebyshev"))
    'chebyshev'
    """
    if isinstance(text, Basis):
        return text
    return _find(text if isinstance(text, str) else repr(text), argument)


def basis_choices() -> str:
    """The known ones for a help text.

    >>> "chebyshev" in basis_choices()
    True
    """
    *others, last = (cls.spelling() for cls in KNOWN)
    return f"{', '.join(others)} or {last}"


def basis_words() -> tuple[str, ...]:
    """A text for each of the known ones, with an example's settings where it has any.

    >>> "jacobi:1,0.5" in basis_words()
    True
    """
    return tuple(cls.example_text() for cls in KNOWN)


@functools.lru_cache(maxsize=256)
def _find(text: str, argument: str) -> Basis:
    name, colon, rest = text.partition(":")
    cls = {cls.name: cls for cls in KNOWN}.get(name)
    if cls is None:
        hint = nearest_hint(name, [cls.name for cls in KNOWN])
        raise ConfigError(f"is {text!r}; it must be {basis_choices()}.{hint}", argument)
    basis = cls.read(rest if colon else None)
    if basis is None:
        raise ConfigError(
            f"is {text!r}; it must have the form {cls.spelling()}"
            + (f", e.g. '{cls.example_text()}'." if cls.settings else ", which has no settings."),
            argument,
        )
    return basis
