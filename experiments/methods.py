"""The methods of the comparison table, and the grid of each: ``methods.toml``.

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
as ``structural`` or ``scale``); the full product is tried.
"""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from experiments.problems import NAMES, Problem
from hoplite import ConfigError, TableOptions
from hoplite.errors import GridError, check_choice
from hoplite.models import all_settings, find_model, idle_settings, split_options

FILE = Path(__file__).with_name("methods.toml")
MAX_SETTINGS = 1000  # of a method on a problem
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

    def grids(self, problem: Problem) -> list[Table]:
        """Those of a problem."""
        grids = self.grid if isinstance(self.grid, list) else [self.grid]
        for name in problem.names:
            over = self.on.get(name)
            if isinstance(over, list):
                grids = over
            elif over is not None:
                grids = [grid | over for grid in grids]
        return grids

    def takes(self, problem: Problem) -> bool:
        """Whether it is for this problem."""
        return not self.only or bool({*self.only} & {*problem.names})


@dataclass(frozen=True)
class Setting:
    """One that is tried: how the graph is read, options of ``train``, and those of the grid."""

    reading: Table
    options: Table
    own: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file of methods says."""

    methods: dict[str, Method]
    reference: str = ""
    note: str = ""
    protocol: Table = {}
    common: dict[str, Table] = {}
    variants: dict[str, Table] = {}

    def protocol_of(self, problem: Problem | None = None) -> Protocol:
        """How often what is trained on a problem."""
        values = {name: value for name, value in self.protocol.items() if name != "on"}
        for name in problem.names if problem else ():
            values |= self.protocol.get("on", {}).get(name, {})
        return msgspec.convert(values, Protocol)

    def settings(self, name: str, problem: Problem) -> list[Setting]:
        """All that is tried of a method on a problem, each once, checked."""
        method, where = self.methods[name], f"methods, {name} on {problem.name}"
        model = find_model(method.model).name
        shared: Table = {}
        for part in ("any", *problem.names):
            shared |= self.common.get(part, {})
        shared = {key: value for key, value in shared.items() if key not in idle_settings(model)}
        settings: dict[str, Setting] = {}
        for grid in method.grids(problem):
            for one in _product({**shared, **grid, **problem.fixed}, (*grid,)):
                settings.setdefault(repr((one.reading, one.options)), one)
                _check(model, one.options, where)
        if not 0 < len(settings) <= MAX_SETTINGS:
            raise GridError(f"{where}: {len(settings):,} settings; give 1 to {MAX_SETTINGS:,}.")
        return list(settings.values())


def read_methods(path: str | os.PathLike[str] | None = None) -> Plan:
    """The methods of a file, or of ``methods.toml`` here.

    >>> plan = read_methods()
    >>> plan.reference in plan.methods
    True
    """
    try:
        return parse_methods(Path(path or FILE).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise GridError(f"methods {str(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise GridError(f"methods {str(path)!r} cannot be read: {error}.") from error


def parse_methods(text: str) -> Plan:
    """The plan that ``text``, in TOML, describes."""
    try:
        content = tomllib.loads(text)
        for name, table in content.get("methods", {}).items():
            table.setdefault("title", name)
        plan = msgspec.convert(content, Plan)
        plan.protocol_of()
        for table in plan.protocol.get("on", {}).values():
            msgspec.convert(table, Protocol)
    except (ValueError, AttributeError, RecursionError) as error:
        raise GridError(f"methods cannot be read: {error}.") from error
    if plan.reference:
        check_choice("reference", plan.reference, plan.methods)
    places = [name for name in plan.common if name != "any"] + [*plan.protocol.get("on", {})]
    for one in plan.methods.values():
        places += [*one.only, *one.on]
    for name in places:
        check_choice("a name of problems in methods", name, NAMES)
    return plan


def chosen_methods(plan: Plan, names: Sequence[str] | None) -> list[str]:
    """All, or those with these names."""
    for name in names or ():
        check_choice("models", name, plan.methods)
    return [name for name in plan.methods if not names or name in names]


def _product(grid: Mapping[str, Any], own: tuple[str, ...]) -> list[Setting]:
    """The full product of a grid; options that only ``load`` has say how the graph is read."""
    lists = [value if isinstance(value, list) else [value] for value in grid.values()]
    of_load = {"structural", "link", *TableOptions.names()} - all_settings().keys()
    settings = []
    for values in itertools.islice(itertools.product(*lists), MAX_SETTINGS + 1):
        options = dict(zip(grid, values, strict=True))
        reading = {name: options.pop(name) for name in grid if name in of_load}
        settings.append(Setting(reading, options, own))
    return settings


def _check(model: str, options: Mapping[str, Any], where: str) -> None:
    try:
        split_options(model, options)
    except ConfigError as error:
        values = ", ".join(f"{name} = {value!r}" for name, value in options.items())
        raise GridError(f"{where}: {error} (setting: {values})") from error
