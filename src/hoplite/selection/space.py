"""Spaces of settings: the TOML files that say what a search tries, and their configurations.

    [any]              every dataset without a section of its own
    [cora]             one dataset
    [cora.hlgc]        one model: its keys replace the dataset's
    [cora.hlgc.node]   one gate of hLGC: its keys replace the model's

``extends = "paper"``, above all sections, takes what the file does not say from a built-in space.
Below them stand options of ``train``: ``lr = [0.2, 0.02]``, ``lr = 0.2``, or a distribution,
``lr = {low = 1e-3, high = 1.0, log = true}``. ``screen = 4`` makes the search one of two stages,
see :func:`hoplite.selection.run_search`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, GridError, check_choice, nearest_hint
from hoplite.files import read_regular
from hoplite.models import MODELS, all_settings, find_model, idle_settings, split_options
from hoplite.selection.dimensions import (
    MOST_CONFIGURATIONS,
    Choices,
    Dimension,
    check_option,
    count_configurations,
    draw_configurations,
    list_configurations,
    read_dimension,
    shorten,
)

MOST_BYTES = (
    1 << 17
)  # of a file; the paper's needs 2,000, and deep nesting takes its square in time
PAPER_DATASETS = ("cora", "citeseer", "pubmed", "reddit")
BUILT_IN = ("paper", "reduced", "quick", "published", "usual")
SHARED = {"hops", "hidden", "heads", "bias", "order"}  # of a dataset: for the models that have them


@dataclass(frozen=True)
class Layer:
    """One table of a space file: its dimensions, its note of what was cut, and its own tables."""

    dimensions: Mapping[str, Dimension]
    cut: str | None
    screen: int | None
    inner: Mapping[str, Layer]


@dataclass(frozen=True)
class Space:
    """What a search tries, for each dataset and model; made by :func:`read_space`."""

    name: str
    note: str
    sections: Mapping[str, Layer]

    def configurations(
        self, dataset: str | Path, model: str, fixed: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The full product, checked, as options of ``train``; the file's last key varies fastest.

        ``fixed`` options replace the file's. Dimensions of the dataset that the model does not
        have (``hops`` of a two-layer model, ``hidden`` of a linear one) are left out.

        >>> space = read_space("paper")
        >>> len(space.configurations("cora", "lgc")), len(space.configurations("cora", "gcn"))
        (189, 108)
        >>> space.configurations("cora", "lgc", {"hops": 3})[0]
        {'lr': 0.2, 'weight_decay': 0.005, 'dropout': 0.0, 'hops': 3}
        """
        branches = self._branches(dataset, model, fixed)
        for name, dimension in (pair for branch in branches for pair in branch.items()):
            if not isinstance(dimension, Choices):
                raise GridError(
                    f"space {self.name}: {name} is the distribution {dimension}, which has no "
                    "list of values; draw from it with --samples, or list values."
                )
        size = count_configurations(branches)
        if size > MOST_CONFIGURATIONS:
            raise GridError(
                f"space {self.name}: {model} has {size:,.0f} configurations on {dataset}, more "
                f"than {MOST_CONFIGURATIONS:,}; draw from them with --samples, or list less."
            )
        return self._checked(dataset, model, fixed, list_configurations(branches)[0])

    def sample(
        self,
        dataset: str | Path,
        model: str,
        count: int,
        seed: int,
        fixed: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """``count`` different configurations at random, checked; all, shuffled, if there are fewer.

        The same seed gives the same draws.

        >>> read_space("paper").sample("cora", "sgc", 1, seed=0, fixed={"hops": 2})
        [{'lr': 0.05, 'weight_decay': 5e-06, 'dropout': 0.5, 'hops': 2}]
        """
        check_number("samples", count, 1, MOST_CONFIGURATIONS, whole=True)
        check_number("seed", seed, 0, whole=True)
        generator = np.random.default_rng(int(seed))
        drawn = draw_configurations(self._branches(dataset, model, fixed), count, generator)
        return self._checked(dataset, model, fixed, drawn)

    def cut(
        self, dataset: str | Path, model: str, fixed: Mapping[str, Any] | None = None
    ) -> str | None:
        """What the file says was left out for this model and why; the innermost table's word."""
        first = self._variants(dataset, model, fixed)[0]
        words = [layer.cut for layer in self._layers(dataset, model, first) if layer.cut]
        return words[-1] if words else None

    def screen(
        self, dataset: str | Path, model: str, fixed: Mapping[str, Any] | None = None
    ) -> int | None:
        """How many configurations a first stage leaves; None if there is one stage.

        >>> space = parse_space("[any]\\nhops = 2\\n[any.hlgc.feature]\\nscreen = 4")
        >>> space.screen("cora", "hlgc", {"gate": "feature"}), space.screen("cora", "lgc")
        (4, None)
        """
        found = {}
        for variant in self._variants(dataset, model, fixed):
            said = [layer.screen for layer in self._layers(dataset, model, variant)]
            found[variant] = next(filter(None, reversed(said)), None)
        if len(set(found.values())) > 1:
            sizes = ", ".join(f"{size or 'all'} of {name}" for name, size in found.items())
            raise GridError(
                f"space {self.name}: the first stage of {model} on {dataset} would leave {sizes}; "
                "give them one screen, or search them one by one."
            )
        return next(iter(found.values()))

    def _layers(self, dataset: str | Path, model: str, variant: str | None = None) -> list[Layer]:
        """The tables that hold for a model, outermost first."""
        find_model(model)
        names = [str(dataset).lower(), Path(dataset).absolute().name.lower().removesuffix(".npz")]
        found = next((name for name in [*names, "any"] if name in self.sections), None)
        if found is None:
            there = ", ".join(f"[{name}]" for name in self.sections) or "none"
            raise GridError(
                f"space {self.name} has no section for {str(dataset)!r}; add [{names[1]}] or "
                f"[any]. Its sections are: {there}.{nearest_hint(names[1], self.sections)}"
            )
        layers = [self.sections[found]]
        for name in (model, variant):
            if name is not None and name in layers[-1].inner:
                layers.append(layers[-1].inner[name])
        return layers

    def _variants(
        self, dataset: str | Path, model: str, fixed: Mapping[str, Any] | None
    ) -> list[str | None]:
        """The variants that a model is tried with: the fixed one, the file's, or the default."""
        kind, name = find_model(model), find_model(model).variant
        if name is None:
            return [None]
        if fixed and name in fixed:
            return [check_choice(name, fixed[name], kind.variants())]
        layers = self._layers(dataset, model)
        listed = [layer.dimensions[name] for layer in layers if name in layer.dimensions]
        if not listed:
            return [getattr(kind.Settings, name)]
        return [check_choice(name, value, kind.variants()) for value in listed[-1].support()[0]]

    def _branches(
        self, dataset: str | Path, model: str, fixed: Mapping[str, Any] | None
    ) -> list[dict[str, Dimension]]:
        """The dimensions of a model: one dictionary, or one for each variant that is tried."""
        branches = []
        for variant in self._variants(dataset, model, fixed):
            outer, *inner = self._layers(dataset, model, variant)
            idle = idle_settings(model) & (SHARED | find_model(model).idle)
            branch = {k: v for k, v in outer.dimensions.items() if k not in idle}
            for layer in inner:
                branch.update(layer.dimensions)
            if variant is not None:
                branch[str(find_model(model).variant)] = Choices((variant,))
            for name, value in (fixed or {}).items():
                check_option(name, "the fixed options")
                branch[name] = Choices((value,))
            branches.append(branch)
        return branches

    def _checked(
        self,
        dataset: str | Path,
        model: str,
        fixed: Mapping[str, Any] | None,
        chosen: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        """The configurations themselves, or the error of the first that the model cannot take."""
        options: dict[str, Any] = {}
        try:
            for options in chosen:
                split_options(model, options)
        except ConfigError as error:
            split_options(model, dict(fixed or {}))  # a mistake in these is not the file's
            values = ", ".join(f"{name} = {value!r}" for name, value in options.items())
            raise GridError(
                f"space {self.name}, {model} on {dataset}: {error} (configuration: {values})"
            ) from error
        return chosen


def usual_space(dataset: str | Path) -> str:
    """The space of a search that names none: the paper's for its datasets, else ``usual``."""
    return "paper" if str(dataset).lower() in PAPER_DATASETS else "usual"


def read_space(source: str | Path | Mapping[str, Any]) -> Space:
    """A space that comes with Hoplite, such as ``"paper"``, or that of a TOML file.

    A built-in name wins over a file that is called the same; write ``./paper`` for the file. Or
    the options themselves, what a file has below ``[any]``; tuples, ranges and arrays are lists.

    >>> read_space("paper").name
    'paper'
    >>> read_space({"hops": range(1, 3), "lr": 0.2}).configurations("cora", "sgc")
    [{'hops': 1, 'lr': 0.2}, {'hops': 2, 'lr': 0.2}]
    """
    if isinstance(source, Mapping):
        several = tuple | range | np.ndarray
        listed = {
            k: np.array(v).tolist() if isinstance(v, several) else v for k, v in source.items()
        }
        return Space("grid", "", {"any": _read_layer(listed, "grid [any]", tuple(MODELS))})
    if source in BUILT_IN:
        grids = resources.files("hoplite.selection") / "grids"
        return parse_space((grids / f"{source}.toml").read_text(encoding="utf-8"), str(source))
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"space is a {type(source).__name__}; give its name, its path, or a dict of options."
        )
    try:
        text = read_regular(Path(source), MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(
            f"space {str(source)!r} does not exist; give {', '.join(BUILT_IN)} or the path of a "
            f"TOML file.{nearest_hint(source, BUILT_IN)}"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: also a path with a null character
        why = error.strerror if isinstance(error, OSError) else error
        raise GridError(
            f"space {str(source)!r} cannot be read: {why}; give {', '.join(BUILT_IN)} or the "
            "path of a TOML file in UTF-8."
        ) from error
    return parse_space(text, str(source))


def parse_space(text: str, name: str = "space") -> Space:
    """The space that ``text``, in TOML, describes; ``name`` is for messages and results.

    >>> parse_space("[any]\\nhops = [2, 5]").configurations("cora", "sgc")
    [{'hops': 2}, {'hops': 5}]
    """
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of too many digits
        raise GridError(f"space {name} is not valid TOML: {error}.") from error
    note = tables.pop("note", "")
    if not isinstance(note, str):
        raise GridError(f"space {name}: note is {shorten(note)}; it must be a text.")
    base = tables.pop("extends", None)
    if base not in (None, *BUILT_IN):
        raise GridError(
            f"space {name}: extends is {shorten(base)}; it must be one of {', '.join(BUILT_IN)}."
        )
    sections: dict[str, Layer] = {}
    for key, table in tables.items():
        if not isinstance(table, dict) or (key in all_settings() and {"low", "high"} & set(table)):
            raise GridError(
                f"space {name}: {key!r} stands outside of a section; put it below [any] or below "
                "the name of a dataset, such as [cora]."
            )
        if key.lower() in sections:
            raise GridError(f"space {name} has two sections [{key.lower()}]; join them.")
        sections[key.lower()] = _read_layer(table, f"space {name}, [{key}]", tuple(MODELS))
    for key, below in read_space(base).sections.items() if base else ():
        sections[key] = below if key not in sections else _joined(below, sections[key])
    return Space(name, note, sections)


def _joined(below: Layer, above: Layer) -> Layer:
    """A table of the space that is extended, with what stands above it replacing its values."""
    dimensions, inner = {**below.dimensions, **above.dimensions}, {**below.inner, **above.inner}
    return Layer(dimensions, above.cut or below.cut, above.screen or below.screen, inner)


def _read_layer(
    table: dict[str, Any], where: str, below: tuple[str, ...], model: str = ""
) -> Layer:
    """One table; ``below`` are the names that its own tables may have."""
    dimensions: dict[str, Dimension] = {}
    inner: dict[str, Layer] = {}
    cut = table.get("cut")
    if not isinstance(cut, str | None):
        raise GridError(f"{where}: cut is {shorten(cut)}; it must be a text.")
    screen = table.get("screen")
    if screen is not None and (type(screen) is not int or screen < 1):
        raise GridError(f"{where}: screen is {shorten(screen)}; it must be a number from 1 on.")
    for key, value in table.items():
        if key in ("cut", "screen"):
            continue
        if key in below and isinstance(value, dict):
            variants = MODELS[key].variants() if key in MODELS else ()
            inner[key] = _read_layer(value, f"{where[:-1]}.{key}]", variants, model or key)
        elif isinstance(value, dict) and key not in all_settings():
            allowed = f"{', '.join(below)}" if below else "none"
            raise GridError(
                f"{where} has a table {key!r}; the tables that it may have are: "
                f"{allowed}.{nearest_hint(key, [*below, *all_settings()])}"
            )
        elif _changes_nothing(model, key, value, chosen=not below):
            raise GridError(f"{where}: {key} changes nothing here; leave it out.")
        else:
            dimensions[key] = read_dimension(key, value, where)
    return Layer(dimensions, cut, screen, inner)


def _changes_nothing(model: str, option: str, value: Any, chosen: bool) -> bool:
    """Whether ``model`` has no such ``option`` but its default, or its variant is ``chosen``."""
    idle = option in idle_settings(model) and value != all_settings()[option].default
    return idle or (chosen and model in MODELS and option == MODELS[model].variant)
