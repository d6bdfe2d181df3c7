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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import ConfigError, GridError, nearest_hint
from hoplite.graph import Graph
from hoplite.models import Model, all_settings, build_model, find_model, split_options
from hoplite.search.results import ConfigurationScores
from hoplite.search.run import check_comparable, full_options
from hoplite.search.space import list_products, parse_toml, read_dimension, read_grid, read_text
from hoplite.tasks import Metric, task_of


@dataclass(frozen=True)
class Candidate:
    """Options of ``train`` for ``model``; ``listed`` are those that its table names."""

    position: int  # in the order of trial
    model: str
    options: dict[str, Any]
    listed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What tells it from the others.

        >>> str(Candidate(0, "ppr", {"hops": 10, "weight_decay": 1e-5}, ("hops", "weight_decay")))
        'ppr: hops 10, weight decay 1e-05'
        """
        values = (f"{name.replace('_', ' ')} {_format(self.options[name])}" for name in self.listed)
        return f"{self.model}: {', '.join(values)}".removesuffix(": ")

    def simplicity(self, graph: Graph) -> tuple[int, int, int]:
        """The smaller, the simpler: learned numbers, then hops, then the place in the file.

        A map of d features to m outputs is d m numbers, and a filter is a few; so a fixed filter is
        simpler than a learned one, that simpler than one for every class, and hop blocks, a map for
        every hop, are the least simple.
        """
        model = self.build(graph)
        learned = sum(math.prod(shape) for shape in model.shapes().values())
        return learned, model.config.hops, self.position

    def build(self, graph: Graph) -> Model:
        """The model; ConfigError if it is not one for this graph."""
        config, training = split_options(self.model, self.options)
        task = task_of(graph.labels)
        task.check_consistency(training.consistency)
        outputs = task.outputs(graph.labels, graph.class_names)
        return build_model(config, graph.num_features, outputs, graph.relation_weights)


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_candidates(
    source: str | Path | None = None,
    fixed: Mapping[str, Any] | None = None,
    graph: Graph | None = None,
) -> tuple[list[Candidate], list[str]]:
    """The candidates of a file, by default Hoplite's own, in their order.

    ``fixed`` options replace the file's wherever the model has them. Candidates that they make
    equal are tried once. Those that they, or the ``graph``, make impossible are left out: the
    second value says why.

    >>> candidates, _ = list_candidates()
    >>> candidates[0].model, candidates[0].options["hops"]
    ('sgc', 0)
    """
    fixed = dict(fixed or {})
    check_fixed(fixed)
    name = "auto" if source is None else str(source)
    tables = _parse(read_grid("auto") if source is None else read_text("candidates", source), name)
    models = list(dict.fromkeys(model for model, _ in tables))
    for option in fixed:
        if not any(option in find_model(model).settings() for model in models):
            raise ConfigError(
                f"{option} is given, but none of the candidates has it ({', '.join(models)}); "
                "leave it out, or train a model that has it."
            )
    candidates: dict[str, Candidate] = {}
    settings: list[dict[str, Any]] = []
    left_out: dict[str, ConfigError] = {}
    for model, listed in ((model, one) for model, table in tables for one in table):
        try:
            full_options(model, listed)
        except ConfigError as error:
            raise GridError(f"candidates {name}, {model}: {error}") from error
        own = find_model(model).settings()
        options = listed | {key: value for key, value in fixed.items() if key in own}
        candidate = Candidate(len(candidates), model, options, tuple(listed))
        try:
            settings.append(full_options(model, options))
            if graph is not None:
                candidate.build(graph)
        except ConfigError as error:
            left_out.setdefault(f"{model}: {error}", error)
        else:
            candidates.setdefault(f"{model} {settings[-1]}", candidate)
    if not candidates:
        raise next(iter(left_out.values()))
    check_comparable(settings)
    return list(candidates.values()), list(left_out)


def check_fixed(fixed: Mapping[str, Any]) -> None:
    """ConfigError for an option that is unknown, or whose value no model takes."""
    known = all_settings()
    for name, value in fixed.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not an option of train.{nearest_hint(name, known)}")
        known[name].metadata["check"](name, value)


def _parse(text: str, name: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """For every table its model and its configurations."""
    content = parse_toml(text, f"candidates {name}")
    tables = content.pop("try", None)
    content.pop("note", None)
    if content or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise GridError(
            f"candidates {name} is not a file of candidates; give tables [[try]], and nothing else "
            "but a note."
        )
    parsed = []
    for number, table in enumerate(tables):
        where = f"candidates {name}, table {number + 1}"
        if not isinstance(table.get("model"), str):
            raise GridError(f"{where} has no model; add one, such as model = 'ppr'.")
        model = find_model(table.pop("model")).name
        branch = {key: read_dimension(key, value, where) for key, value in table.items()}
        parsed.append((model, list_products([branch], where)))
    return parsed


@dataclass(frozen=True)
class Finalist:
    """A candidate with its scores of one rung."""

    candidate: Candidate
    rung: int
    result: ConfigurationScores

    @property
    def order(self) -> tuple[float, ...]:
        """What sorts them, the best first; of equals, the first in the file."""
        return *self.result.order, self.candidate.position


def decide(
    finalists: Sequence[Finalist], graph: Graph, monitor: Metric
) -> tuple[Finalist, Finalist, float]:
    """The simplest of the finalists that are as good as the best; the best; what counts as equal.

    A finalist is as good as the best if the best's lead in mean score over the r seeds is at most

        max( sqrt(s_best^2 / r + s_other^2 / r),  1 / n_val )

    that is the standard error of the difference by the seeds, and, of shares of the nodes such as
    the accuracy, one validation node. Simple is what :meth:`Candidate.simplicity` says.

    Why not the binomial error of one accuracy: all finalists are judged on the same nodes, and are
    wrong at mostly the same ones, which says nothing of their difference. What does is the number
    D of nodes where only one of two is right, with an error of sqrt(D) / n_val: a lead of one node
    is never more than that, whatever D is, and larger ones may be.
    """
    best = min(finalists, key=lambda one: one.order)
    node = 1 / len(graph.split.val) if monitor.percent else 0.0
    equal, margins = [], []
    for one in [one for one in finalists if one.result.lost == best.result.lost]:
        margin = max(_error(best.result.scores, one.result.scores), node)
        lead = float(np.nanmean(best.result.scores) - np.nanmean(one.result.scores))
        if one is best or lead <= margin + 1e-9:
            equal.append(one)
            margins.append(margin)
    chosen = min(equal, key=lambda one: one.candidate.simplicity(graph))
    return chosen, best, margins[equal.index(chosen)]


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """Standard error of the difference of two means over the seeds; 0 for a single seed."""
    if len(one) < 2:
        return 0.0
    error = math.sqrt((np.nanvar(one, ddof=1) + np.nanvar(other, ddof=1)) / len(one))
    return error if math.isfinite(error) else 0.0
