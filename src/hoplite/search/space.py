"""Spaces of settings: the TOML files that say what a search tries, and their configurations.

    [any]              every dataset without a section of its own
    [cora]             one dataset
    [cora.hlgc]        one model: its keys replace the dataset's
    [cora.hlgc.node]   one gate of hLGC: its keys replace the model's

``extends = "paper"``, above all sections, takes what the file does not say from a built-in space.
Below them are options of ``train``: ``lr = [0.2, 0.02]``, ``lr = 0.2``, or a distribution,
``lr = {low = 1e-3, high = 1.0, log = true}``. ``screen = 4`` makes the search one of two stages,
see :func:`hoplite.search`.
"""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hoplite.config import GRIDS, check_number
from hoplite.errors import ConfigError, GridError, check_choice, nearest_hint, option_name
from hoplite.files import read_regular
from hoplite.formatting import listing
from hoplite.models import MODELS, all_settings, find_model, idle_settings, split_options

MAX_CONFIGURATIONS = 100_000
MAX_BYTES = 1 << 17  # maximum size of a file: deep nesting takes its square in time
MAX_INT = 2**53  # whole numbers below it are exact in a float
MAX_REPEATS = 10_000  # draws in a row without a new configuration: there are no more
SHARED = {"hops", "hidden", "heads", "bias", "order"}  # of a dataset: for the models that have them


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of [low, high]: uniform, or uniform in its logarithm.

    A whole number i has the probability of the interval [i, i + 1) within [low, high + 1), so all
    are equally likely unless ``log``.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError("low must be smaller than high, and both must be finite")
        if self.log and self.low <= 0:
            raise ValueError("a logarithmic distribution must be larger than 0")
        if self.integer and self.low % 1 + self.high % 1:
            raise ValueError("low and high must be whole numbers")

    @property
    def size(self) -> float:
        """Number of different values: infinite unless they are whole numbers."""
        return self.high - self.low + 1 if self.integer else math.inf

    def draw(self, generator: np.random.Generator) -> Any:
        """One value at random."""
        low, high = self.low, self.high + self.integer
        if self.log:
            low, high = math.log(low), math.log(high)
        share = generator.random()
        value = (1 - share) * low + share * high
        value = math.exp(value) if self.log else value
        value = min(max(value, self.low), self.high)  # a logarithm and back may overstep by a bit
        return math.floor(value) if self.integer else value


Dimension = tuple[Any, ...] | Distribution  # equally likely values, or a distribution
# A table of a file, checked: options to dimensions, "cut" and "screen", and tables of its own
Section = dict[str, Any]
Dataset = str | Path
Options = Mapping[str, Any]
Configurations = list[dict[str, Any]]


@dataclass(frozen=True)
class Space:
    """The settings that a search tries, for each dataset and model; :func:`read_space` returns it.

    Parameters
    ----------
    name : str
        Name of the grid, or the path of its file.
    sections : mapping
        The settings of each dataset; "any" is for all others.

    Examples
    --------
    >>> read_space({"hops": [1, 2], "lr": 0.2}).configurations("cora", "sgc")
    [{'hops': 1, 'lr': 0.2}, {'hops': 2, 'lr': 0.2}]
    """

    name: str
    sections: Mapping[str, Section]

    def configurations(
        self, dataset: Dataset, model: str, fixed: Options | None = None
    ) -> Configurations:
        """The full product, checked, as options of ``train``; the file's last key varies fastest.

        Dimensions of the dataset that the model does not have (``hops`` of a two-layer model,
        ``hidden`` of a linear one) are left out.

        Parameters
        ----------
        dataset, model : str
            Names of the dataset and of the model.
        fixed : mapping, optional
            Options that replace the file's.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> space = read_space("paper")
        >>> len(space.configurations("cora", "lgc")), len(space.configurations("cora", "gcn"))
        (189, 108)
        >>> space.configurations("cora", "lgc", {"hops": 3})[0]
        {'lr': 0.2, 'weight_decay': 0.005, 'dropout': 0.0, 'hops': 3}
        """
        products = list_products(self._branches(dataset, model, fixed), f"grid {self.name}")
        return self._checked(dataset, model, fixed, products)

    def sample(
        self, dataset: Dataset, model: str, count: int, seed: int, fixed: Options | None = None
    ) -> Configurations:
        """Different configurations at random, checked; all, shuffled, if there are not enough.

        Parameters
        ----------
        dataset, model, fixed
            As for :meth:`configurations`.
        count : int
            Number of configurations.
        seed : int
            Seed of the draws.

        Returns
        -------
        list of dict
        """
        check_number("samples", count, 1, MAX_CONFIGURATIONS, whole=True)
        check_number("seed", seed, 0, whole=True)
        generator = np.random.default_rng(int(seed))
        branches = self._branches(dataset, model, fixed)
        if _size(branches) <= MAX_CONFIGURATIONS and not any(map(_distributions, branches)):
            products = list_products(branches, f"grid {self.name}")
            order = generator.permutation(len(products))[:count]
            return self._checked(dataset, model, fixed, [products[i] for i in order])
        drawn: dict[str, dict[str, Any]] = {}
        repeats = 0
        while len(drawn) < count and repeats < MAX_REPEATS:
            branch = branches[int(generator.integers(len(branches)))]
            config = {name: _draw(dimension, generator) for name, dimension in branch.items()}
            repeats = repeats + 1 if repr(config) in drawn else 0
            drawn[repr(config)] = config
        return self._checked(dataset, model, fixed, list(drawn.values()))

    def cut(self, dataset: Dataset, model: str, fixed: Options | None = None) -> str | None:
        """What the grid leaves out for a model, and why, in its own words.

        Parameters
        ----------
        dataset, model, fixed
            As for :meth:`configurations`.

        Returns
        -------
        str or None
        """
        return self._tables(dataset, model, fixed)[0].get("cut")

    def screen(self, dataset: Dataset, model: str, fixed: Options | None = None) -> int | None:
        """How many configurations a first stage leaves.

        Parameters
        ----------
        dataset, model, fixed
            As for :meth:`configurations`.

        Returns
        -------
        int or None
            None if there is only one stage.

        Examples
        --------
        >>> space = parse_space("[any]\\nhops = 2\\n[any.hlgc.feature]\\nscreen = 4")
        >>> space.screen("cora", "hlgc", {"gate": "feature"}), space.screen("cora", "lgc")
        (4, None)
        """
        return self._tables(dataset, model, fixed)[0].get("screen")

    def _section(self, dataset: Dataset) -> Section:
        names = [str(dataset).lower(), Path(dataset).absolute().name.lower().removesuffix(".npz")]
        for name in (*names, "any"):
            if name in self.sections:
                return self.sections[name]
        sections = ", ".join(f"[{name}]" for name in self.sections) or "none"
        advice = f"add [{names[1]}] or [any]"
        for model in (name for name in self.sections if name in MODELS):
            advice = f"write [any.{model}] instead of [{model}]"
        raise GridError(
            f"grid {self.name} has no section for {str(dataset)!r}; {advice}. Its sections are: "
            f"{sections}."
        )

    def _tables(self, dataset: Dataset, model: str, fixed: Options | None) -> list[Section]:
        """The merged tables of a model: one, or one for each of the variants that are tried."""
        family, outer = find_model(model), self._section(dataset)
        if self.name == "published" and model not in outer:  # [any] is for other graphs
            models = listing([name for name in outer if isinstance(outer[name], dict)])
            raise GridError(
                f"grid 'published' has settings for {models} only, not for {model}; use "
                f"{option_name('grid', 'default')} or paper."
            )
        idle, inner = idle_settings(model) & (SHARED | family.idle), outer.get(model, {})
        for name in fixed or {}:
            check_option(name, "the fixed options")
        options = {name: (value,) for name, value in (fixed or {}).items()}
        merged = {k: v for k, v in outer.items() if k not in idle} | inner | options
        tables, variant = [merged], family.variant
        if variant is not None:
            values = merged.get(variant)
            values = values if isinstance(values, tuple) else (getattr(family.Settings, variant),)
            for value in values:
                check_choice(variant, value, family.variants())
            tables = [merged | inner.get(v, {}) | options | {variant: (v,)} for v in values]
        return [{k: v for k, v in table.items() if not isinstance(v, dict)} for table in tables]

    def _branches(self, dataset: Dataset, model: str, fixed: Options | None) -> list[Section]:
        """The dimensions of a model: one dictionary, or one for each variant that is tried."""
        tables = self._tables(dataset, model, fixed)
        return [{k: v for k, v in t.items() if k not in ("cut", "screen")} for t in tables]

    def _checked(
        self, dataset: Dataset, model: str, fixed: Options | None, configurations: Configurations
    ) -> Configurations:
        """The configurations themselves, or the error of the first that the model cannot take."""
        options: dict[str, Any] = {}
        try:
            for options in configurations:
                split_options(model, options)
        except ConfigError as error:
            split_options(model, dict(fixed or {}))  # a mistake in these is not the file's
            values = ", ".join(f"{name} = {value!r}" for name, value in options.items())
            raise GridError(
                f"grid {self.name}, {model} on {dataset}: {error} (configuration: {values})"
            ) from error
        return configurations


def list_products(branches: Sequence[Mapping[str, Any]], where: str) -> Configurations:
    """Every configuration of the branches, the last option varying fastest."""
    for name in itertools.chain(*map(_distributions, branches)):
        raise GridError(
            f"{where}: {name} is a distribution; draw from it with {option_name('samples')}."
        )
    if (size := _size(branches)) > MAX_CONFIGURATIONS:
        raise GridError(
            f"{where} has {size:,.0f} configurations; draw from them with {option_name('samples')}."
        )
    return [
        dict(zip(branch, values, strict=True))
        for branch in branches
        for values in itertools.product(*branch.values())
    ]


def _distributions(branch: Mapping[str, Dimension]) -> list[str]:
    return [name for name, dimension in branch.items() if isinstance(dimension, Distribution)]


def _size(branches: Sequence[Mapping[str, Dimension]]) -> float:
    return sum(
        math.prod(d.size if isinstance(d, Distribution) else len(d) for d in branch.values())
        for branch in branches
    )


def _draw(dimension: Dimension, generator: np.random.Generator) -> Any:
    if isinstance(dimension, Distribution):
        return dimension.draw(generator)
    return dimension[int(generator.integers(len(dimension)))]


def read_space(source: Any) -> Space:
    """Read a grid by name, from a TOML file, or from a mapping of options.

    Parameters
    ----------
    source : str, path or mapping
        A grid that is included, such as ``"paper"``; the path of a TOML file (write ``./paper`` for
        a file with the name of an included grid); or the options themselves, as below ``[any]`` in
        a file. Tuples, ranges and arrays are lists of values.

    Returns
    -------
    Space

    Raises
    ------
    ConfigError
        If there is no such grid, or it is invalid.

    Examples
    --------
    >>> read_space("paper").name
    'paper'
    >>> read_space({"hops": range(1, 3), "lr": 0.2}).configurations("cora", "sgc")
    [{'hops': 1, 'lr': 0.2}, {'hops': 2, 'lr': 0.2}]
    """
    if isinstance(source, Mapping):
        sequences = (tuple, range, np.ndarray)
        table = {
            k: np.array(v).tolist() if isinstance(v, sequences) else v for k, v in source.items()
        }
        return Space("of options", {"any": _read_section(table, "grid", MODELS)})
    if source in GRIDS:
        return parse_space(read_grid(str(source)), str(source))
    return parse_space(read_text("grid", source, GRIDS), str(source))


def read_grid(name: str) -> str:
    """The text of a file that comes with Hoplite."""
    grids = resources.files("hoplite.search") / "grids"
    return (grids / f"{name}.toml").read_text(encoding="utf-8")


def read_text(argument: str, source: Any, names: Sequence[str] = ()) -> str:
    """The text of a TOML file; ConfigError if it cannot be read.

    ``names`` are those of Hoplite's own files, for the message.
    """
    allowed = f"{', '.join(names)}, or the path of a TOML file" if names else "a TOML file's path"
    if not isinstance(source, str | os.PathLike):
        allowed = f"a dictionary, {allowed}" if names else allowed
        raise ConfigError(f"has type {type(source).__name__}; it must be {allowed}.", argument)
    try:
        return read_regular(Path(source), MAX_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: also a path with a null character
        if not os.path.lexists(Path(source)):
            raise ConfigError(
                f"is {str(source)!r}, which does not exist; it must be {allowed}."
                f"{nearest_hint(source, names)}",
                argument,
            ) from error
        reason = error.strerror if isinstance(error, OSError) else error
        raise GridError(
            f"{argument} {str(source)!r} cannot be read: {reason}; pass a TOML file in UTF-8."
        ) from error


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The tables of a TOML file; GridError if it is not valid."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of too many digits
        raise GridError(f"{what} is not valid TOML: {error}.") from error


def parse_space(text: str, name: str = "grid") -> Space:
    r"""Read a grid from TOML text.

    Parameters
    ----------
    text : str
        TOML, see docs/searching.md.
    name : str, default "grid"
        Name of the grid in messages and results.

    Returns
    -------
    Space

    Examples
    --------
    >>> parse_space("[any]\nhops = [2, 5]").configurations("cora", "sgc")
    [{'hops': 2}, {'hops': 5}]
    """
    tables = parse_toml(text, f"grid {name}")
    tables.pop("note", None)
    base = tables.pop("extends", None)
    if base not in (None, *GRIDS):
        raise GridError(
            f"grid {name}: extends is {_short(base)}; it must be one of {', '.join(GRIDS)}."
        )
    sections: dict[str, Section] = dict(read_space(base).sections) if base else {}
    for key, table in tables.items():
        if not isinstance(table, dict) or (key in all_settings() and {"low", "high"} & set(table)):
            raise GridError(
                f"grid {name}: {key!r} is outside of a section; move it to [any] or to the "
                "section of a dataset, e.g. [cora]."
            )
        section = _read_section(table, f"grid {name}, [{key}]", MODELS)
        sections[key.lower()] = sections.get(key.lower(), {}) | section
    return Space(name, sections)


def _read_section(table: dict[str, Any], where: str, below: Collection[str]) -> Section:
    """One table, checked; ``below`` are the names that its own tables may have."""
    section: Section = {}
    for key, value in table.items():
        if key == "cut" and not isinstance(value, str):
            raise GridError(f"{where}: cut is {_short(value)}; it must be a string.")
        if key == "screen" and (type(value) is not int or value < 1):
            raise GridError(
                f"{where}: screen is {_short(value)}; it must be an integer of at least 1."
            )
        if key in ("cut", "screen"):
            section[key] = value
        elif key in below and isinstance(value, dict):
            variants = MODELS[key].variants() if key in MODELS else ()
            inner = f"{where[:-1]}.{key}]" if where.endswith("]") else f"{where}, {key}"
            section[key] = _read_section(value, inner, variants)
        elif isinstance(value, dict) and key not in all_settings():
            raise GridError(
                f"{where} has an unknown table {key!r}; it may have: "
                f"{', '.join(below) or 'none'}.{nearest_hint(key, [*below, *all_settings()])}"
            )
        else:
            section[key] = read_dimension(key, value, where)
    return section


def check_option(name: str, where: str) -> None:
    """Raise GridError unless ``name`` is a setting of a model or of its training."""
    settings = all_settings()
    if name in ("model", "seeds", "task"):
        raise GridError(f"{where}: {name!r} is set for the whole search; leave it out.")
    if name not in settings:
        hint = nearest_hint(name, settings)
        raise GridError(
            f"{where}: {name!r} is not an option{f'.{hint}' if hint else '; leave it out.'}"
        )


def read_dimension(name: str, value: Any, where: str) -> Dimension:
    """The dimension that ``value``, of a TOML file, stands for.

    >>> read_dimension("hops", [2, 5], "[cora]")
    (2, 5)
    >>> read_dimension("lr", {"low": 0.001, "high": 1, "log": True}, "[cora]")
    Distribution(low=0.001, high=1.0, log=True, integer=False)
    """
    check_option(name, where)
    field = all_settings()[name]
    type_ = str if field.metadata["choices"] else type(field.default)
    if isinstance(value, dict):
        try:
            if type_ not in (int, float):
                raise ValueError("it is not a numeric option; list its values")
            return msgspec.convert(
                {**value, **({"integer": True} if type_ is int else {})}, Distribution
            )
        except (ValueError, RecursionError, OverflowError) as error:
            keys = Distribution.__struct_fields__
            unknown = [repr(key) for key in value if key not in keys]
            what = f"unknown key {unknown[0]}; use {listing(keys, 'or')}" if unknown else error
            raise GridError(f"{where}: the distribution of {name}: {what}.") from error
    values = value if isinstance(value, list) else [value]
    if not values:
        raise GridError(f"{where}: {name} is an empty list; it needs at least one value.")
    if type_ is str and type(field.default) is float:  # names, or numbers
        types = [float if type(item) in (int, float) else str for item in values]
    else:
        types = [type_] * len(values)
    pairs = zip(types, values, strict=True)
    return tuple(dict.fromkeys(_read_value(name, type_, item, where) for type_, item in pairs))


def _read_value(name: str, type_: type, value: Any, where: str) -> Any:
    """``value`` as the option's type; a whole number will do for a number."""
    if type_ is float and type(value) is int and abs(value) < MAX_INT:
        value = float(value)
    largest = MAX_INT if type_ is int else math.inf
    if type(value) is not type_ or (type_ in (int, float) and not abs(value) < largest):
        names = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}
        raise GridError(f"{where}: {name} is {_short(value)}; it must be {names[type_]}.")
    return value


def _short(value: Any) -> str:
    """``value`` for a message, at most 60 characters of it."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of nested tables
        return "a very long value"
    return text if len(text) <= 60 else f"{text[:60]}..."
