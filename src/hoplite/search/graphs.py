"""Searches on sets of graphs: candidates are families of features with their settings.

The linear map on the features is solved, so one seed is enough. Trials, their file and workers are
those of the searches on nodes.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hoplite.errors import GraphError, GridError
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.model import GraphModel
from hoplite.graphs.pooling import find_family
from hoplite.graphs.training import (
    AUTO,
    GRID,
    HEAD,
    Candidate,
    GraphResult,
    candidates_of,
    compare,
    train_graphs,
)
from hoplite.models import split_options
from hoplite.models.settings import TRAINING
from hoplite.search.executors import scores_of, train_trial
from hoplite.search.results import SearchResult, changed_command
from hoplite.search.space import parse_toml, read_text
from hoplite.search.trials import FinishedTrial, Scores, Trial

DEFAULT = "default"  # the grid that ``auto`` tries, too
FAILED = Scores(None, None, None, 0, 0, diverged=True)


def graph_trials(model: str, grid: Any, options: Mapping[str, Any]) -> list[Trial]:
    """A trial for every candidate of the grid; ``options`` hold for all.

    Parameters
    ----------
    model : str
        A family, or "auto": all of the grid.
    grid : str, path, mapping or list of mappings
        ``"default"``; a TOML file with a table for each family, such as ``[colours]`` and ``depth =
        [1, 2]``; the same as a mapping; or the settings of the one family ``model``. Or several
        grids, each with its family under ``model``, as for :func:`hoplite.train_graphs`.
    """
    entries = _entries(grid, model)
    training = {name: value for name, value in options.items() if name in TRAINING}
    settings = {name: value for name, value in options.items() if name not in TRAINING}
    matches = [entry for entry in entries if model in (AUTO, entry.get("model", model))]
    if entries and not matches:  # a family that the grid does not have, at its defaults
        matches = [{"model": model}]
    full = dataclasses.asdict(split_options("sgc", HEAD | training)[1])
    trials = []
    for candidate in candidates_of(matches, settings):
        options = {"model": candidate.title} | dataclasses.asdict(candidate.settings) | full
        # as they are when they are read from the search's file
        trials.append(Trial(candidate.family, json.loads(json.dumps(options)), 0))
    return trials


def _entries(grid: Any, model: str) -> list[dict[str, Any]]:
    if grid == DEFAULT:
        return [dict(entry) for entry in GRID]
    if isinstance(grid, str | Path):
        grid = parse_toml(read_text("grid", grid, [DEFAULT]), f"grid {grid}")
    if isinstance(grid, Mapping):
        if all(isinstance(table, Mapping) for table in grid.values()):
            return [{"model": name} | dict(table) for name, table in grid.items()]
        if model == AUTO:
            raise GridError("the grid has no family, e.g. colours; add one, or pass model.")
    family = {} if model == AUTO else {"model": model}
    entries = grid if isinstance(grid, list | tuple) else [grid]
    return [family | dict(entry) if isinstance(entry, Mapping) else {} for entry in entries]


@train_trial.register
def _(graphs: GraphSet, trial: Trial, *, test: bool, check: Any) -> FinishedTrial:
    """Train one candidate; it has no scores if the set does not suit it."""
    check()
    start = time.perf_counter()
    training = {name: trial.options[name] for name in TRAINING}
    settings = {n: v for n, v in trial.options.items() if n not in ("model", *TRAINING)}
    candidate = Candidate(trial.model, find_family(trial.model).Settings(**settings))
    try:
        scores = scores_of(compare(graphs, candidate, training), training["monitor"])
    except GraphError:
        scores = FAILED
    return FinishedTrial(trial, scores, None, time.perf_counter() - start)


@dataclass(frozen=True, eq=False, repr=False)
class GraphSearchResult(SearchResult):
    """The outcome of a search on a set of graphs; its nodes are the graphs."""

    graphs: GraphSet = field(kw_only=True)

    @cached_property
    def trained(self) -> GraphResult:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The chosen candidate, trained again and scored on the test graphs."""
        return train_graphs(self.graphs, self._family, **self._changed)

    @property
    def varied(self) -> list[str]:
        """The candidate, by its title."""
        return ["model"]

    def command(self, dataset: str, reading: Mapping[str, Any]) -> str:
        """The ``hoplite train`` command that repeats the choice."""
        return changed_command(dataset, self._family, self._changed, reading)

    @property
    def _changed(self) -> dict[str, Any]:
        """The settings of the choice that are not defaults."""
        defaults = dataclasses.asdict(find_family(self._family).Settings())
        defaults |= dataclasses.asdict(split_options("sgc", HEAD)[1])
        options = {name: v for name, v in self.best.options.items() if name != "model"}
        return {name: v for name, v in options.items() if v != defaults[name]}

    @property
    def _family(self) -> str:
        return self.best.options["model"].split()[0]

    def _load(self, folder: Path) -> tuple[Any, dict[str, Any]]:
        model = GraphModel.load(folder)
        return model, model.head.training

    def _with(self, model: Any, scores: dict[str, Any]) -> Any:
        return dataclasses.replace(model, head=super()._with(model.head, scores))
