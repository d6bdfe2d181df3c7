"""What one option of a space may be, a list of choices or a distribution, and their products.

A *branch* is a dictionary from options to dimensions; a space has one, or one for each gate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.errors import GridError, nearest_hint
from hoplite.models import all_settings

_KIND_NAMES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
MOST_CONFIGURATIONS = 100_000
_MOST_REPEATS = 100_000  # so many draws in a row without anything new: there is nothing new
_MOST_WHOLE = 2**53
_PARTS = ("low", "high", "log", "integer")


@dataclass(frozen=True)
class Choices:
    """One of ``values``, each as likely as the others."""

    values: tuple[Any, ...]

    @property
    def size(self) -> float:
        """Number of different values."""
        return float(len(self.values))

    def support(self) -> tuple[list[Any], np.ndarray]:
        """Every value and its probability, shape (size,)."""
        return list(self.values), np.full(len(self.values), 1 / len(self.values))

    def draw(self, generator: np.random.Generator) -> Any:
        """One value at random."""
        return self.values[int(generator.integers(len(self.values)))]


@dataclass(frozen=True)
class Distribution:
    """A number of [low, high]: uniform, or uniform in its logarithm.

    Whole numbers i have the probability of the interval [i, i + 1) within [low, high + 1), so all
    are equally likely unless ``log``.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False

    @property
    def size(self) -> float:
        """Number of different values: infinite unless they are whole numbers."""
        return float(self.high - self.low + 1) if self.integer else math.inf

    def support(self) -> tuple[list[Any], np.ndarray]:
        """Every whole number and its probability, shape (size,)."""
        ends = np.arange(self.low, self.high + 2, dtype=np.float64)
        widths = np.diff(np.log(ends) if self.log else ends)
        return list(range(int(self.low), int(self.high) + 1)), widths / widths.sum()

    def draw(self, generator: np.random.Generator) -> Any:
        """One value at random."""
        low, high = self.low, self.high + 1 if self.integer else self.high
        if self.log:
            low, high = math.log(low), math.log(high)
        share = generator.random()
        value = (1 - share) * low + share * high
        value = math.exp(value) if self.log else value
        value = min(max(value, self.low), self.high)  # a logarithm and back may overstep by a bit
        return math.floor(value) if self.integer else value

    def __str__(self) -> str:
        flags = "".join(f", {name} = true" for name in ("log", "integer") if getattr(self, name))
        return f"{{low = {self.low:g}, high = {self.high:g}{flags}}}"


Dimension = Choices | Distribution


def check_option(name: str, where: str) -> None:
    """Raise GridError unless ``name`` is a setting of a model or of its training."""
    known = all_settings()
    if name not in known:
        why = "is chosen for the whole search" if name == "model" else "is not an option"
        raise GridError(f"{where}: {name!r} {why}; leave it out.{nearest_hint(name, known)}")


def read_dimension(name: str, given: Any, where: str) -> Dimension:
    """The dimension that ``given``, a value of a TOML file, stands for.

    >>> read_dimension("hops", [2, 5], "[cora]")
    Choices(values=(2, 5))
    >>> read_dimension("lr", {"low": 0.001, "high": 1, "log": True}, "[cora]")
    Distribution(low=0.001, high=1.0, log=True, integer=False)
    """
    check_option(name, where)
    if isinstance(given, dict):
        return _read_distribution(name, given, where)
    values = [_read_value(name, v, where) for v in (given if isinstance(given, list) else [given])]
    if not values:
        raise GridError(f"{where}: {name} is an empty list; give it one value or more.")
    seen = set()
    for value in values:
        if value in seen:
            raise GridError(f"{where}: {name} has {value!r} twice; name each value once.")
        seen.add(value)
    return Choices(tuple(values))


def _read_distribution(name: str, given: dict[str, Any], where: str) -> Distribution:
    for part in given:
        if part not in _PARTS:
            raise GridError(
                f"{where}: {name} has the part {part!r}; a distribution has low, high, and "
                f"optionally log and integer.{nearest_hint(part, _PARTS)}"
            )
    kind = _type_of(name)
    if kind not in (int, float):
        raise GridError(
            f"{where}: {name} is {_KIND_NAMES[kind]}, so it has no distribution; list its values."
        )
    for part in ("low", "high"):
        if part not in given:
            raise GridError(f"{where}: the distribution of {name} has no {part}; add it.")
    for part in ("log", "integer"):
        if not isinstance(given.get(part, False), bool):
            raise GridError(
                f"{where}: {name}.{part} is {shorten(given[part])}; write true or false."
            )
    if kind is int and given.get("integer") is False:
        raise GridError(f"{where}: {name} is a whole number; leave integer = false out.")
    integer = given.get("integer", kind is int)
    low, high = (
        _read_value(name, given[part], where, int if integer else float) for part in ("low", "high")
    )
    if not low < high:
        raise GridError(
            f"{where}: {name} goes from low = {low!r} to high = {high!r}; low must be smaller."
        )
    log = given.get("log", False)
    if log and low <= 0:
        raise GridError(
            f"{where}: {name} has low = {low!r} with log = true; only numbers larger than 0 have "
            "a logarithm."
        )
    return Distribution(low, high, log, integer)


def _read_value(name: str, value: Any, where: str, kind: type | None = None) -> Any:
    """``value`` as the option's type; a whole number will do for a number."""
    kind = kind or _type_of(name)
    if kind is float and type(value) is int and abs(value) <= _MOST_WHOLE:
        value = float(value)
    largest = _MOST_WHOLE if kind is int else math.inf
    if type(value) is not kind or (kind in (int, float) and not abs(value) < largest):
        wanted = _KIND_NAMES[kind] + (" that is finite" if kind is float else "")
        raise GridError(f"{where}: {name} is {shorten(value)}; it must be {wanted}.")
    return value


def _type_of(option: str) -> type:
    return type(all_settings()[option].default)


def shorten(value: Any) -> str:
    """``value`` for a message, at most 60 characters of it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of nested tables
        return "a very long value"
    return text if len(text) <= 60 else f"{text[:60]}..."


def count_configurations(branches: Sequence[Mapping[str, Dimension]]) -> float:
    """Number of configurations; infinite if a dimension is continuous."""
    return sum(math.prod((d.size for d in branch.values()), start=1.0) for branch in branches)


def list_configurations(
    branches: Sequence[Mapping[str, Dimension]],
) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Every configuration, the last option varying fastest, and its probability, shape (size,)."""
    listed: list[dict[str, Any]] = []
    probabilities = []
    for branch in branches:
        supports = [dimension.support() for dimension in branch.values()]
        product = itertools.product(*(values for values, _ in supports))
        listed.extend(dict(zip(branch, values, strict=True)) for values in product)
        weights = np.full(1, 1 / len(branches))
        for _, shares in supports:
            weights = np.outer(weights, shares).ravel()
        probabilities.append(weights)
    return listed, np.concatenate(probabilities)


def draw_configurations(
    branches: Sequence[Mapping[str, Dimension]], count: int, generator: np.random.Generator
) -> list[dict[str, Any]]:
    """``count`` different configurations at random, or all of them, shuffled, if there are fewer.

    A branch is as likely as the others, and so is each of a list's values.
    """
    if count_configurations(branches) <= MOST_CONFIGURATIONS:
        listed, weights = list_configurations(branches)
        if len(listed) <= count:
            return [listed[i] for i in generator.permutation(len(listed))]
        return [listed[i] for i in generator.choice(len(listed), count, replace=False, p=weights)]
    drawn: dict[str, dict[str, Any]] = {}
    repeats = 0
    while len(drawn) < count and repeats < _MOST_REPEATS:
        branch = branches[int(generator.integers(len(branches)))]
        config = {name: dimension.draw(generator) for name, dimension in branch.items()}
        repeats = repeats + 1 if repr(config) in drawn else 0
        drawn[repr(config)] = config
    return list(drawn.values())
