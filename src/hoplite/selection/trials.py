"""The candidates of ``auto``: a TOML file of tables, each a model with values of its settings.

    [[try]]
    model = "ppr"
    hops = 10
    weight_decay = [1e-5, 5e-4]

A table is the product of its lists, the last key varying fastest. The order of the tables is the
order of trial: whoever tries N candidates tries the first N. Keys are the options of ``train``.
"""

from __future__ import annotations

import math
import os
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from hoplite.errors import ConfigError, GridError, HopliteWarning, nearest_hint, plural
from hoplite.files import read_regular
from hoplite.graph import Graph
from hoplite.models import Model, all_settings, build_model, find_model, split_options
from hoplite.selection.cells import full_options
from hoplite.selection.dimensions import (
    MOST_CONFIGURATIONS,
    Choices,
    count_configurations,
    list_configurations,
    read_dimension,
    shorten,
)
from hoplite.selection.space import MOST_BYTES
from hoplite.tasks import task_of

TABLES = "try"
BUILT_IN = "auto"
COMMON = ("monitor", "refit")  # without them, validation nodes do not compare candidates


@dataclass(frozen=True)
class Trial:
    """One candidate: options of ``train`` for ``model``."""

    position: int  # in the order of trial
    table: int  # of the file, from 0
    model: str
    options: dict[str, Any]
    told: tuple[str, ...] = ()  # the options that its table gives

    def __str__(self) -> str:
        """What tells it from the others.

        >>> str(Trial(0, 0, "ppr", {"hops": 10, "weight_decay": 1e-5}, ("hops", "weight_decay")))
        'ppr: hops 10, weight decay 1e-05'
        """
        shown = (f"{name.replace('_', ' ')} {_shown(self.options[name])}" for name in self.told)
        return f"{self.model}: {', '.join(shown)}".removesuffix(": ")

    def simplicity(self, graph: Graph) -> tuple[int, int, int]:
        """The smaller, the simpler: numbers that are learned, then hops, then place in the file.

        A map of d features to m outputs is d m numbers, and a filter is a few; so a fixed filter is
        simpler than a learned one, that simpler than one for every class, and hop blocks, a map for
        every hop, are the least simple.
        """
        built = self.built(graph)
        learned = sum(math.prod(shape) for shape in built.shapes().values())
        return learned, built.config.hops, self.position

    def built(self, graph: Graph) -> Model:
        """The model; ConfigError if it is not one for this graph."""
        config, _ = split_options(self.model, self.options)
        outputs = task_of(graph.labels).outputs(graph.labels, graph.class_names)
        return build_model(config, graph.num_features, outputs, graph.relation_weights)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_trials(
    source: str | Path | None = None, fixed: Mapping[str, Any] | None = None
) -> tuple[list[Trial], list[str]]:
    """The candidates of a file, those that come with Hoplite if none is given, in their order.

    ``fixed`` options replace the file's wherever the model has them. What they make equal is tried
    once, and what cannot be with them is left out: why is the second value.

    >>> trials, _ = list_trials()
    >>> trials[0].model, trials[0].options["hops"]
    ('sgc', 0)
    """
    fixed = dict(fixed or {})
    check_fixed(fixed)
    name, text = _read(source)
    listed = _parse(text, name)
    models = list(dict.fromkeys(model for model, _ in listed))
    for option in fixed:
        if not any(option in find_model(model).settings() for model in models):
            raise ConfigError(
                f"{option} is given, but none of the candidates has it ({', '.join(models)}); "
                "leave it out, or train a model that has it."
            )
    trials: dict[Any, Trial] = {}
    errors: list[tuple[str, ConfigError]] = []
    tables = [(t, model, options) for t, (model, table) in enumerate(listed) for options in table]
    for t, model, options in tables:
        own = find_model(model).settings()
        chosen = options | {option: value for option, value in fixed.items() if option in own}
        try:
            full = full_options(model, chosen)
        except ConfigError as error:
            if not fixed or not _works(model, options):
                raise GridError(f"candidates {name}, {model}: {error}") from error
            errors.append((f"{model}: {error}", error))
            continue
        key = model, tuple((option, repr(value)) for option, value in full.items())
        if key not in trials:
            trials[key] = Trial(len(trials), t, model, chosen, tuple(options))
    if not trials:
        raise errors[0][1]
    _check_common(list(trials.values()), name)
    return list(trials.values()), list(dict.fromkeys(told for told, _ in errors))


def possible(trials: Sequence[Trial], graph: Graph) -> tuple[list[Trial], list[str]]:
    """Those of ``trials`` that can be on the graph, and why the others are left out."""
    found: list[Trial] = []
    task = task_of(graph.labels)
    errors: dict[str, ConfigError] = {}
    for trial in trials:
        try:
            trial.built(graph)
            task.check_consistency(split_options(trial.model, trial.options)[1].consistency)
        except ConfigError as error:
            errors[f"{trial.model}: {error}"] = error
        else:
            found.append(replace(trial, position=len(found)))
    if not found:
        raise next(iter(errors.values()))
    return found, list(errors)


def warn_of_idle(options: Mapping[str, Any], models: Sequence[str]) -> None:
    """Warn of given options that none of the candidates, of ``models``, has."""
    idle = [o for o in options if not any(o in find_model(m).settings() for m in models)]
    if idle:
        warnings.warn(
            f"of {plural(len(models), 'candidate')} tried none has {' or '.join(idle)}, which is "
            "given; try more, or leave it out.",
            HopliteWarning,
            stacklevel=2,
        )


def _check_common(trials: Sequence[Trial], name: str) -> None:
    """GridError unless all candidates are judged alike."""
    for option in COMMON:
        values = [getattr(split_options(o.model, o.options)[1], option) for o in trials]
        for trial, value in zip(trials, values, strict=True):
            if value != values[0]:
                raise GridError(
                    f"candidates {name}: {option} is {values[0]!r} in table {trials[0].table + 1} "
                    f"and {value!r} in table {trial.table + 1}, but validation nodes compare only "
                    "what has the same; give one for all."
                )


def _works(model: str, options: Mapping[str, Any]) -> bool:
    try:
        split_options(model, options)
    except ConfigError:
        return False
    return True


def check_fixed(fixed: Mapping[str, Any]) -> None:
    """ConfigError for an option that is unknown, or whose value no model takes."""
    known = all_settings()
    for name, value in fixed.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not an option of train.{nearest_hint(name, known)}")
        known[name].metadata["check"](name, value)


def _read(source: str | Path | None) -> tuple[str, str]:
    if source is None:
        file = resources.files("hoplite.selection") / "grids" / f"{BUILT_IN}.toml"
        return BUILT_IN, file.read_text(encoding="utf-8")
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(f"candidates is a {type(source).__name__}; give the path of a file.")
    try:
        return str(source), read_regular(Path(source), MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: also a path with a null character
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"candidates {str(source)!r} cannot be read: {why}; give the path of a TOML file in "
            "UTF-8."
        ) from error


def _parse(text: str, name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """For every table its model and its configurations."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise GridError(f"candidates {name} is not valid TOML: {error}.") from error
    tables = content.pop(TABLES, None)
    content.pop("note", None)
    if content or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        what = f"has {shorten(min(content))}" if content else "has none"
        raise GridError(
            f"candidates {name} {what}; give tables [[{TABLES}]], and nothing else but a note."
        )
    found = []
    for number, table in enumerate(tables):
        where = f"candidates {name}, table {number + 1}"
        if not isinstance(table.get("model"), str):
            raise GridError(f"{where} has no model; add one, such as model = 'ppr'.")
        given = {key: value for key, value in table.items() if key != "model"}
        model = find_model(table["model"]).name
        dimensions = {key: read_dimension(key, value, where) for key, value in given.items()}
        for key, dimension in dimensions.items():
            if not isinstance(dimension, Choices):
                raise GridError(f"{where}: {key} is a distribution; list its values.")
        if count_configurations([dimensions]) > MOST_CONFIGURATIONS:
            raise GridError(f"{where} has more than {MOST_CONFIGURATIONS:,} candidates; list less.")
        found.append((model, list_configurations([dimensions])[0]))
    return found
