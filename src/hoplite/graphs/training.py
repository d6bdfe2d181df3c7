"""Training of graphs: a family of features, and a linear map by the pipeline of nodes.

The rows Phi of the graphs are nodes without edges, so solving, tasks, folds, calibration, scores
and files are those of :func:`hoplite.train`. ``auto`` tries families and their settings, and the
validation graphs choose, or folds of the training graphs where there are none.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoplite.config import TrainingConfig
from hoplite.errors import ConfigError, GraphError, HopliteError, HopliteWarning, nearest_hint
from hoplite.formatting import Described, Description, Table
from hoplite.graph import Split
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.model import GraphModel, PooledGraphs
from hoplite.graphs.pooling import Pooling, find_family
from hoplite.labels import label_type, warn_of_float_classes
from hoplite.models.settings import TRAINING
from hoplite.training.fit import MAX_FOLDED, fold_numbers
from hoplite.training.results import TrainingResult
from hoplite.training.results import train as train_nodes
from hoplite.training.scoring import ScoredRun, number

AUTO = "auto"
HEAD = {"hops": 0, "optimizer": "path"}  # settings of the linear map
# What auto tries: a family and the values of its settings, all combinations.
GRID: tuple[dict[str, Any], ...] = (
    {"model": "colours", "depth": [1, 2, 4]},
    {"model": "hops", "hops": [1, 3]},
    {"model": "pool", "hops": [0, 2], "structure": ["add"]},
    {"model": "fourier", "hops": [1], "frequency": [1.0, 2.0]},
)


@dataclass(frozen=True)
class Candidate:
    """A family with its settings, and the validation loss that it reached."""

    family: str
    settings: Any
    loss: float = float("nan")
    accuracy: float = float("nan")

    @property
    def title(self) -> str:
        """Its name, with the settings that are not defaults."""
        settings, defaults = (
            dataclasses.asdict(values).items() for values in (self.settings, type(self.settings)())
        )
        return " ".join([self.family, *(f"{k}={v}" for k, v in settings if (k, v) not in defaults)])


@dataclass(frozen=True, eq=False, repr=False)
class GraphResult(Described):
    """A trained model of graphs with its scores; :func:`train_graphs` returns it.

    Parameters
    ----------
    graphs : GraphSet
        The data.
    result : TrainingResult
        The training of the linear map; its nodes are the graphs.
    model : GraphModel
        The trained model.
    candidates : tuple of Candidate
        What ``auto`` tried, best first.
    seconds : float
        Time of the training.

    Examples
    --------
    >>> import hoplite
    >>> pair = hoplite.Graph.from_edges([(0, 1)], [[1.0], [2.0]])
    >>> path = hoplite.Graph.from_edges([(0, 1), (1, 2)], [[1.0], [2.0], [1.0]])
    >>> graphs = hoplite.load_graphs([pair, path] * 4, labels=["pair", "path"] * 4)
    >>> result = hoplite.train_graphs(graphs, "hops", epochs=5)
    >>> result.summary()["graphs"]
    8
    """

    graphs: GraphSet
    result: TrainingResult
    model: GraphModel
    candidates: tuple[Candidate, ...] = ()
    seconds: float = field(default=float("nan"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)  # test_accuracy, metrics, plots and the rest

    def summary(self) -> dict[str, Any]:
        """Everything but weights and curves.

        Returns
        -------
        dict
            Values for JSON.
        """
        pooling = self.model.pooling
        own = {"model": pooling.name} | dataclasses.asdict(pooling.settings)
        return self.result.summary() | {
            "dataset": self.graphs.name,
            "graphs": len(self.graphs),
            "model": pooling.name,
            "config": own | dataclasses.asdict(self.result.training_config),
            "candidates": {one.title: number(one.loss) for one in self.candidates},
            "seconds": self.seconds,
        }

    def _describe(self) -> Description:
        described = self.result._describe()
        facts = {"model": repr(self.model), "graphs": repr(self.graphs)}
        tables, rows = [*described.tables], [["candidate", "validation loss", "accuracy %"]]
        for candidate in self.candidates:
            accuracy = f"{100 * candidate.accuracy:.1f}"
            rows.append([candidate.title, f"{candidate.loss:.4f}", accuracy])
        if self.candidates:
            columns, *rows = rows if self.result.task.exclusive else [row[:2] for row in rows]
            tables.append(Table(columns, rows))
        return Description("GraphResult", facts, tables, described.notes)


def train_graphs(
    graphs: GraphSet,
    model: str | None = None,
    *,
    grid: Sequence[Mapping[str, Any]] | None = None,
    test: bool = True,
    task: str = AUTO,
    progress: Callable[[str, float], None] | None = None,
    **options: Any,
) -> GraphResult:
    """Train a model of whole graphs and score it on the validation and test graphs.

    Parameters
    ----------
    graphs : GraphSet
        See :func:`hoplite.load_graphs`.
    model : {"auto", "hops", "pool", "colours", "fourier"}, default "auto"
        The family of features, see :mod:`hoplite.graphs.pooling`. "auto" takes the candidate with
        the lowest loss on the validation graphs, or out of fold if there are none. One that fails
        has an infinite loss; if all do, the first error is raised.
    grid : sequence of dict, optional
        For "auto": what it tries. Each has a family under ``model``, and values of its settings, or
        lists of them.
    test : bool, default True
        False leaves the test graphs unread.
    task : {"auto", "classification", "regression", "multilabel"}
    progress : callable, optional
        Called with what is done and its share.
    **options
        Settings of the family (``depth=4``) and of :class:`hoplite.TrainingConfig`.

    Returns
    -------
    GraphResult

    Examples
    --------
    >>> import hoplite, numpy as np
    >>> rings = [hoplite.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> stars = [hoplite.Graph.from_edges([(0, i) for i in range(1, n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> graphs = hoplite.load_graphs(rings + stars, labels=["ring"] * 8 + ["star"] * 8)
    >>> result = hoplite.train_graphs(graphs, "colours", depth=1)
    >>> result.model.predict(graphs)[[0, -1]].tolist()
    [0, 1]
    """
    start, note = time.perf_counter(), progress or (lambda what, share: None)
    warn_of_float_classes(graphs.table.labels, task)
    graphs, options = _with_holdout(graphs.for_task(task), options)
    training = {name: value for name, value in options.items() if name in TRAINING}
    own = {name: value for name, value in options.items() if name not in TRAINING}
    if model is not None and model != AUTO:
        if grid is not None:
            raise ConfigError(f"requires model='auto', but model is {model!r}.", "grid")
        candidates, (chosen,) = (), candidates_of([{"model": model}], own)
    else:
        tried, failures = [], []
        untried = candidates_of(GRID if grid is None else grid, own)
        for position, candidate in enumerate(untried):
            note(candidate.title, position / (len(untried) + 1))
            try:
                run = compare(graphs, candidate, training)
                loss, accuracy = run.selection_scores[1], run.selection_accuracy
                tried.append(dataclasses.replace(candidate, loss=loss, accuracy=accuracy))
            except HopliteError as error:
                failures.append(error)
                tried.append(dataclasses.replace(candidate, loss=math.inf))
        if len(failures) == len(tried):
            raise failures[0]
        candidates = tuple(sorted(tried, key=lambda c: (math.isnan(c.loss), c.loss)))
        chosen = candidates[0]
    note(chosen.title, 1 - 1 / (len(candidates) + 1))
    result, pooling = _trained(graphs, chosen, training, test=test)
    names = None if graphs.feature_names is None else tuple(graphs.feature_names)
    trained = GraphModel(result.model, pooling, names, graphs.preparation)
    seconds = time.perf_counter() - start
    return GraphResult(graphs, result, trained, candidates, seconds)


def candidates_of(grid: Sequence[Mapping[str, Any]], fixed: Mapping[str, Any]) -> list[Candidate]:
    """The candidates of a grid, with ``fixed`` settings where a family has them.

    >>> grid = [{"model": "colours", "depth": [1, 2]}]
    >>> [candidate.title for candidate in candidates_of(grid, {})]
    ['colours depth=1', 'colours depth=2']
    """
    entries = [*grid] if isinstance(grid, Iterable) else []
    if not all(isinstance(entry, Mapping) and "model" in entry for entry in entries):
        entries = []
    candidates, families, unknown = [], {}, {*fixed}
    for entry in entries:
        family = find_family(entry["model"])
        families[family.name] = names = [
            field.name for field in dataclasses.fields(family.Settings)
        ]
        used = {name: value for name, value in fixed.items() if name in names}
        unknown -= {*used}
        own = {name: _values(value) for name, value in entry.items() if name != "model"}
        if wrong := {*own} - {*names}:
            raise _unknown_setting(min(wrong), {family.name: names})
        own |= {name: _values(value) for name, value in used.items()}
        candidates += [
            Candidate(family.name, family.Settings(**dict(zip(own, values, strict=True))))
            for values in itertools.product(*own.values())
        ]
    if not candidates:
        raise ConfigError(
            "has nothing to try; pass a list of dictionaries, each with a model, such as "
            "[{'model': 'colours', 'depth': [1, 2]}].",
            "grid",
        )
    if unknown:
        raise _unknown_setting(min(unknown), families)
    return [*dict.fromkeys(candidates)]


def _values(value: Any) -> list[Any]:
    """The values of a setting to try: those of a list, or the only one."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _unknown_setting(name: str, families: Mapping[str, list[str]]) -> ConfigError:
    """``families`` has the names of the settings of each family."""
    known = [*dict.fromkeys(itertools.chain.from_iterable(families.values()))]
    return ConfigError(
        f"{name!r} is not a setting of {', '.join(families)}; the settings are: "
        f"{', '.join(known)}.{nearest_hint(name, [*known, *TRAINING])}"
    )


def _with_holdout(graphs: GraphSet, options: dict[str, Any]) -> tuple[GraphSet, dict[str, Any]]:
    """The set with the split that a training uses: one fold of many labels validates.

    Up to 10,000 graphs folds validate, and the family is fitted to each.
    """
    split, folds = graphs.table.split, options.get("folds", TrainingConfig.folds)
    if split.val.size or folds < 2 or len(split.train) <= MAX_FOLDED:
        return graphs, options
    inside = fold_numbers(graphs.table.labels[split.train], folds, 0) == 0
    parts = split.train[~inside], split.train[inside], split.test
    return graphs.with_split(Split(*parts, note="holdout")), {"refit": True} | options


def _trained(
    graphs: GraphSet, candidate: Candidate, training: Mapping[str, Any], *, test: bool
) -> tuple[TrainingResult, Pooling]:
    family, train = find_family(candidate.family), graphs.table.split.train
    if not graphs.sizes[train].any():
        raise GraphError(
            f"{graphs.name} has no training graph with a label and nodes; label some of its graphs."
        )
    pooling = family.fit(graphs, train, candidate.settings)
    pooled = PooledGraphs.of(graphs, pooling)
    about: dict[str, Any] = {"test": test, "task": label_type(pooled.labels).task}
    return train_nodes(pooled, "sgc", **about, **(HEAD | dict(training))), pooling


def compare(graphs: GraphSet, candidate: Candidate, training: Mapping[str, Any]) -> ScoredRun:
    """A candidate's run, for comparisons: test graphs are not read, and nothing is refitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        quick = dict(training) | {"refit": False, "calibrate": False}
        graphs, quick = _with_holdout(graphs, quick)
        return _trained(graphs, candidate, quick, test=False)[0].best_run
