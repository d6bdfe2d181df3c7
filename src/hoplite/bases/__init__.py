"""The bases of polynomials, and how a text names one: ``chebyshev``, or with settings ``NAME:A,B``.

A basis is a three-term recurrence (:mod:`hoplite.bases.base`), one file each. Its line in ``KNOWN``
is all that it takes to be usable in every command, in stores, on clusters, in bounds and in
explanations.
"""

from __future__ import annotations

import functools

from hoplite.bases.base import Basis
from hoplite.bases.chebyshev import Chebyshev
from hoplite.bases.jacobi import Jacobi
from hoplite.bases.legendre import Legendre
from hoplite.bases.monomial import Monomial
from hoplite.bases.optimal import Optimal
from hoplite.bases.recurrence import Recurrence
from hoplite.errors import ConfigError, nearest_hint

KNOWN: tuple[type[Basis], ...] = (
    Monomial,
    Chebyshev,
    Legendre,
    Jacobi,
    Recurrence,
    Optimal,
)
EXAMPLES = tuple(kind.example_text() for kind in KNOWN if not kind.of_signal)  # one of each


def find_basis(text: str | Basis, argument: str = "basis") -> Basis:
    """The basis that ``text`` names; ConfigError, with the known ones, if there is none.

    >>> find_basis("chebyshev")
    Chebyshev()
    >>> str(find_basis("chebyshev"))
    'chebyshev'
    """
    if isinstance(text, Basis):
        return text
    if not isinstance(text, str):
        raise ConfigError(f"{argument} is {text!r}; it must be one of {_spellings()}.")
    return _find(text, argument)


def basis_choices() -> str:
    """The known ones for a help text.

    >>> "chebyshev" in basis_choices()
    True
    """
    *others, last = (kind.spelling() for kind in KNOWN)
    return f"{', '.join(others)} or {last}"


def basis_words() -> tuple[str, ...]:
    """A text for each of the known ones, with an example's settings where it has any.

    >>> "jacobi:1,0.5" in basis_words()
    True
    """
    return tuple(kind.example_text() for kind in KNOWN)


@functools.lru_cache(maxsize=256)
def _find(text: str, argument: str) -> Basis:
    name, colon, rest = text.partition(":")
    kinds = {kind.name: kind for kind in KNOWN}
    if name not in kinds:
        hint = nearest_hint(name, kinds)
        raise ConfigError(f"{argument} is {text!r}; it must be one of {_spellings()}.{hint}")
    kind = kinds[name]
    found = kind.read(rest if colon else None)
    if found is None:
        raise ConfigError(
            f"{argument} is {text!r}; write it as {kind.spelling()}"
            + (f", such as {kind.example_text()}." if kind.settings else ", which has no settings.")
        )
    return found


def _spellings() -> str:
    return ", ".join(kind.spelling() for kind in KNOWN)
