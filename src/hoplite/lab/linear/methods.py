"""The rows of the second table, and what is tried of each: ``methods.toml``, read and checked.

    reference = "lgc"            the method that others are compared with, split by split
    [protocol]                   how often what is trained, see :class:`Protocol`
    [protocol.on.large]          other values for a group of problems, a dataset or a problem
    [common.any]                 settings of all methods that have them
    [common.heterophilous]       the same, on some problems
    [variants.NAME]              options with which the settings chosen on a public split are
                                 trained once more, in a table of their own
    [methods.NAME]               title, model, linear, again, only (some problems), grid
    [methods.NAME.on]            for a group, dataset or problem: a table replaces the grid's keys,
                                 a list of tables replaces the grid

A grid is a table, or a list of them: lists of values of options of ``train`` and of ``load`` (such
as ``structural`` or ``scale``), of which the full product is tried.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hoplite.config import check_flag, check_number
from hoplite.errors import ConfigError, GridError, check_choice, nearest_hint
from hoplite.files import read_regular
from hoplite.lab.linear.problems import NAMES, RANDOM, Problem
from hoplite.models import all_settings, find_model, idle_settings, split_options, usual_options
from hoplite.preparation import TableOptions
from hoplite.selection import full_options
from hoplite.selection.dimensions import (
    Choices,
    count_configurations,
    list_configurations,
    read_dimension,
)
from hoplite.structural import MOST as MOST_STRUCTURAL

MOST_BYTES = 1 << 17
MOST_SETTINGS = 1000  # of a method on a problem
Table = dict[str, Any]
Tables = Table | list[Table]
Count = Annotated[int, Meta(ge=1, le=1000)]


class RandomSplits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many, and their sizes."""

    splits: Count = 20
    per_class: Count = 20
    val: Count = 500
    test: Annotated[int, Meta(ge=1)] = 1000

    def sizes(self) -> dict[str, int]:
        """Of one split."""
        return {"per_class": self.per_class, "val": self.val, "test": self.test}


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often what is trained.

    ``seeds``: of every setting on a problem with one split; ``final_seeds``: of the chosen one.
    ``screen_splits``: splits that every setting is trained on; ``screen``: settings that are then
    trained on all splits; if it is 1, the screen chooses. ``random``: splits of the chosen setting,
    and their sizes.
    """

    seeds: Count = 3
    final_seeds: Count = 10
    screen_splits: Count = 2
    screen: Count = 4
    random: RandomSplits = RandomSplits()


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row: ``model`` is a name or ``package.module:Class``.

    ``again``: whether the setting chosen on a public split goes to random splits and variants, too.
    """

    model: str
    title: str
    linear: bool = True
    again: bool = True
    only: list[str] = []
    grid: Tables = {}
    on: dict[str, Tables] = {}
    name: str = ""

    def grids(self, problem: Problem) -> list[Table]:
        """Those of a problem."""
        found = self.grid if isinstance(self.grid, list) else [self.grid]
        for name in problem.names:
            over = self.on.get(name)
            if isinstance(over, list):
                found = over
            elif over is not None:
                found = [grid | over for grid in found]
        return found

    def takes(self, problem: Problem) -> bool:
        """Whether it is for this problem."""
        return not self.only or bool({*self.only} & {*problem.names})


class _File(msgspec.Struct, forbid_unknown_fields=True):
    methods: dict[str, Table]
    reference: str = ""
    note: str = ""
    protocol: Table = {}
    common: dict[str, Table] = {}
    variants: dict[str, Table] = {}


@dataclass(frozen=True)
class Setting:
    """One that is tried: how the graph is read, and options of ``train``."""

    reading: dict[str, Any]
    options: dict[str, Any]

    def key(self, model: str) -> str:
        """The same for the same setting, whichever defaults it names.

        >>> Setting({}, {"hops": 10}).key("lgc") == Setting({}, {"lr": 0.05}).key("lgc")
        True
        """
        own = usual_options(model) | self.options
        kept = {name: own[name] for name in sorted(own) if name not in idle_settings(model)}
        return json.dumps([sorted(self.reading.items()), kept], default=list)


@dataclass(frozen=True)
class Plan:
    """What a file of methods says."""

    note: str
    reference: str
    methods: dict[str, Method]
    variants: dict[str, Table]
    common: dict[str, Table]
    protocol_tables: Table
    own: bool = False  # whether it is the one that comes with Hoplite

    def protocol(self, problem: Problem) -> Protocol:
        """How often what is trained on this problem."""
        return _protocol(self.protocol_tables, problem.names)

    def settings(self, method: Method, problem: Problem) -> list[Setting]:
        """All that is tried of a method on a problem, each once, checked."""
        where = f"methods, {method.name} on {problem.name}"
        model = find_model(method.model).name
        idle = idle_settings(model)
        shared = {k: v for k, v in self._shared(problem).items() if k not in idle}
        found: dict[str, Setting] = {}
        for grid in method.grids(problem):
            for setting in _product({**shared, **grid, **problem.fixed}, where):
                _check_reading(problem, setting.reading, where)
                _check(model, setting.options, where)
                setting = Setting(setting.reading, full_options(model, setting.options))
                found.setdefault(setting.key(model), setting)
        for name, options in self.variants.items() if problem.splits == 1 else ():
            _check(model, next(iter(found.values())).options | options, f"{where}, variant {name}")
        if not 0 < len(found) <= MOST_SETTINGS:
            raise GridError(f"{where}: {len(found):,} settings; give 1 to {MOST_SETTINGS:,}.")
        return list(found.values())

    def columns(self, method: Method, problem: Problem, graphs: Path | None) -> list[str]:
        """Those that a method gets from a problem: none without a file of its graph.

        This needs no import of the method's model.
        """
        shared = self._shared(problem)
        readings = [one for grid in method.grids(problem) for one in _readings({**shared, **grid})]
        if not (method.takes(problem) and any(problem.path(graphs, one) for one in readings)):
            return []
        more = [RANDOM, *self.variants] if problem.splits == 1 and method.again else []
        return [problem.name, *(f"{problem.dataset}-{ending}" for ending in more)]

    def _shared(self, problem: Problem) -> Table:
        found: Table = {}
        for name in ("any", *problem.names):
            found |= self.common.get(name, {})
        return found


def read_methods(path: str | os.PathLike[str] | None = None) -> Plan:
    """The methods of a file, or of the one that comes with Hoplite.

    >>> plan = read_methods()
    >>> plan.reference in plan.methods
    True
    """
    if path is None:
        text = (resources.files("hoplite.lab.linear") / "methods.toml").read_text(encoding="utf-8")
        return replace(parse_methods(text), own=True)
    try:
        return parse_methods(read_regular(Path(path), MOST_BYTES).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise GridError(f"methods {str(path)!r} cannot be read: {why}.") from error


def parse_methods(text: str) -> Plan:
    """The plan that ``text``, in TOML, describes."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
        methods = {}
        for name, table in file.methods.items():
            if not re.fullmatch(r"[a-z0-9_]+", name):
                raise ValueError(f"{name!r} is no name of small letters, digits and _")
            one = msgspec.convert({"title": name} | table, Method)
            methods[name] = msgspec.structs.replace(one, name=name)
    except (ValueError, RecursionError) as error:  # msgspec's and tomllib's are ValueErrors
        raise GridError(f"methods cannot be read: {error}.") from error
    if not methods:
        raise GridError("methods has no method; add [methods.NAME].")
    if file.reference and file.reference not in methods:
        hint = nearest_hint(file.reference, methods)
        raise GridError(f"methods: reference is {file.reference!r}, which is none of them.{hint}")
    places = {
        "common": [name for name in file.common if name != "any"],
        "protocol.on": [*_elsewhere(file.protocol)],
    }
    for name, one in methods.items():
        places |= {f"{name}.only": one.only, f"{name}.on": [*one.on]}
    for where, names in places.items():
        for name in names:
            if name not in NAMES:
                hint = nearest_hint(name, NAMES)
                raise GridError(
                    f"methods, {where}: {name!r} is no problem, dataset or group.{hint}"
                )
    for name, options in file.variants.items():
        if not re.fullmatch(r"[a-z0-9_]+", name) or name == RANDOM or name in NAMES:
            raise GridError(f"methods: the variant {name!r} cannot be called so; choose another.")
        if not options:
            raise GridError(f"methods: the variant {name!r} has no options; add some.")
    for names in ((), *((name,) for name in _elsewhere(file.protocol))):
        _protocol(file.protocol, names)
    return Plan(file.note, file.reference, methods, file.variants, file.common, file.protocol)


def chosen_methods(plan: Plan, names: Sequence[str] | None) -> list[Method]:
    """All, or those of these names."""
    for name in names or ():
        check_choice("models", name, plan.methods)
    return [one for one in plan.methods.values() if names is None or one.name in names]


def changed_options(model: str, config: Mapping[str, Any]) -> list[str]:
    """The settings of ``config`` that are not the model's defaults.

    >>> changed_options("lgc", {"hops": 3, "lr": 0.05, "bias": True})
    ['hops', 'bias']
    """
    usual, idle = usual_options(model), idle_settings(model)
    # as JSON keeps them: a tuple is a list there
    same = {name for name, value in config.items() if _plain(usual.get(name)) == _plain(value)}
    return [name for name in config if name not in same and name not in idle]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _protocol(tables: Table, names: Sequence[str]) -> Protocol:
    try:
        found = {k: v for k, v in tables.items() if k != "on"}
        for name in names:
            found |= _elsewhere(tables).get(name, {})
        return msgspec.convert(found, Protocol)
    except ValueError as error:
        raise GridError(f"methods: protocol cannot be read: {error}.") from error


def _elsewhere(tables: Table) -> dict[str, Table]:
    """Other values of the protocol, by problem, dataset or group."""
    try:
        return msgspec.convert(tables.get("on", {}), dict[str, Table])
    except ValueError as error:
        raise GridError(
            f"methods: protocol cannot be read: {error}; write [protocol.on.NAME]."
        ) from error


def _product(grid: Mapping[str, Any], where: str) -> list[Setting]:
    """The full product of a grid; options that only ``load`` has say how the graph is read."""
    of_load = _of_load()
    branch = {k: read_dimension(k, v, where) for k, v in grid.items() if k not in of_load}
    for name, dimension in branch.items():
        if not isinstance(dimension, Choices):
            raise GridError(f"{where}: {name} is a distribution; list its values.")
    if count_configurations([branch]) > MOST_SETTINGS:
        raise GridError(f"{where}: more than {MOST_SETTINGS:,} settings; list less.")
    listed, _ = list_configurations([branch])
    return [Setting(reading, options) for reading in _readings(grid) for options in listed]


def _of_load() -> set[str]:
    return {"structural", "link", *TableOptions.names()} - all_settings().keys()


def _readings(grid: Mapping[str, Any]) -> list[Table]:
    """The ways of reading the graph that a grid has."""
    given = {name: value for name, value in grid.items() if name in _of_load()}
    lists = [value if isinstance(value, list) else [value] for value in given.values()]
    return [dict(zip(given, values, strict=True)) for values in itertools.product(*lists)]


def _check_reading(problem: Problem, reading: Mapping[str, Any], where: str) -> None:
    """As ``load`` will check it."""
    try:
        about = {name: value for name, value in reading.items() if name in TableOptions.names()}
        TableOptions(**about)
        for name in TableOptions.only_for_tables(about):
            if name not in problem.options:
                raise ConfigError(
                    f"{name} says how tables are read, which it is not; leave it out."
                )
        if "structural" in reading:
            check_number("structural", reading["structural"], 0, MOST_STRUCTURAL, whole=True)
        check_flag("link", reading.get("link", False))
    except ConfigError as error:
        raise GridError(f"{where}: {error}") from error


def _check(model: str, options: Mapping[str, Any], where: str) -> None:
    try:
        split_options(model, options)
    except ConfigError as error:
        values = ", ".join(f"{name} = {value!r}" for name, value in options.items())
        raise GridError(f"{where}: {error} (setting: {values})") from error
