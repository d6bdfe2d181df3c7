"""Candidates, that is models with options, and the one comparison that ``train`` and ``auto`` make.

All are scored on the same nodes, by outputs of models that have not seen their labels: those of
validation nodes, or out-of-fold ones. Test nodes are not read. With the score r_a of candidate a
(larger is better; by default minus the log loss, after the best temperature) and its scores r_a,g
without the nodes of group g, g = 1 .. G, the standard error of a difference is the jackknife's,

    e_ab^2 = (G - 1) / G sum_g (d_g - mean(d))^2,    d_g = r_a,g - r_b,g

so it is that of paired nodes. The same standard error is used to decide whether the graph helps,
i.e. how much a model with the graph gains over one on the features alone.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import TrainingConfig
from hoplite.errors import HopliteWarning
from hoplite.graph import NodeData
from hoplite.labels import CLASSES, label_type
from hoplite.models import HopBlocks, find_model, split_options
from hoplite.models.settings import DEFAULT_MODEL, TABLE_OPTIONS, default_options
from hoplite.structural import with_log_degree
from hoplite.tasks import LOSS, Metric, Task
from hoplite.tasks.base import title_of
from hoplite.tasks.evaluation import best_temperature
from hoplite.training.fit import MAX_FOLDED, MIN_LABELS
from hoplite.training.runs import OutOfTimeError
from hoplite.training.scoring import ScoredRun, judge, number
from hoplite.training.sets import NodeSet

log = logging.getLogger("hoplite.training")

Scores = Sequence[float] | np.ndarray

GROUPS = 20  # groups of nodes, for standard errors
RARE_CLASS = 0.2  # largest share of the training nodes that makes one of two classes rare
MAX_COMPARED = 20_000  # most training nodes of a graph for which models are compared
MIN_SHARE = 0.2  # smallest share of training nodes of a graph for which models are compared
LABELS = {"neighbour_labels": True}
MIN_LOSS = 1e-3  # smaller log losses are equal: at the lowest temperature, margins alone decide
PPR_OPTIONS = {"hops": 5, "operator": "adjacency"}
LGC_OPTIONS = {
    "hops": 5, "start": "lowpass", "optimizer": "lbfgs", "lr": 1.0, "weight_decay": 0.006,
    "dropout": 0.0, "monitor": "loss",
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """Options of ``train`` for ``model``, and what they gave on the validation nodes.

    Parameters
    ----------
    position : int
        In the order of trial, from 1.
    model, options
    listed : tuple of str
        The options that tell it from others.
    family : str
    default : bool
        Whether ``train`` compares it if no model is given.
    preferred : bool
        Whether ``train`` takes it unless another one is better by more than a standard error.
    val, score : float or None
        The monitor's value and the task's score, such as the accuracy; None if it failed.
    ranks : tuple of float
        The monitor's value such that larger is better, then that without each group of nodes.
    learned : int
        Numbers that it learns.
    seconds : float
    chosen : bool
    """

    position: int
    model: str
    options: dict[str, Any]
    listed: tuple[str, ...] = ()
    family: str = ""
    default: bool = False
    val: float | None = None
    score: float | None = None
    ranks: tuple[float, ...] = ()
    learned: int = 0
    seconds: float = 0.0
    chosen: bool = False
    preferred: bool = False

    def __str__(self) -> str:
        """The model and the settings in which it differs from other candidates.

        >>> str(Candidate(1, "ppr", {"hops": 10, "alpha": 0.1}, ("hops", "alpha")))
        'ppr: hops 10, alpha 0.1'
        """
        values = [(name.replace("_", " "), self.options[name]) for name in self.listed]
        texts = [f"{name} {v:g}" if isinstance(v, float) else f"{name} {v}" for name, v in values]
        return f"{self.model}: {', '.join(texts)}".removesuffix(": ")

    @property
    def rank(self) -> float:
        """The score by which it is compared, larger is better."""
        return self.ranks[0] if self.ranks else -math.inf

    @property
    def hops(self) -> int:
        """How far its outputs reach: 0 for the features alone."""
        config, _ = split_options(self.model, self.options)
        return max(config.hops, int(config.neighbour_labels))

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """The smaller, the simpler: learned numbers, then hops, then the place in the list."""
        return self.learned, self.hops, self.position

    def with_labels(self) -> Candidate:
        """The same model with the labels of neighbours."""
        listed = (*self.listed, *LABELS)
        options = self.options | LABELS
        return Candidate(0, self.model, options, listed, "labels of neighbours", self.default)

    def as_dict(self) -> dict[str, Any]:
        """For files: without the scores of groups."""
        values = {name: v for name, v in dataclasses.asdict(self).items() if name != "ranks"}
        return {"candidate": str(self)} | values


def without_groups(score: Callable[[np.ndarray], float], count: int) -> np.ndarray:
    """``score`` of a mask of all of ``count`` nodes, then of those without each group."""
    groups = np.arange(count) % GROUPS
    masks = [groups >= 0, *(groups != g for g in range(min(GROUPS, count)))]
    return np.array([score(mask) for mask in masks])


def standard_error(one: Scores, other: Scores) -> float:
    """The standard error of a difference, of scores that :func:`without_groups` returns."""
    differences = np.subtract(one[1:], other[1:])
    error = math.sqrt((len(differences) - 1) * differences.var()) if len(differences) else 0.0
    return error if math.isfinite(error) else 0.0


def as_good(one: Candidate, best: Candidate) -> bool:
    """Whether ``one`` is worse than ``best`` by at most a standard error."""
    return bool(one.ranks) and best.rank - one.rank <= standard_error(best.ranks, one.ranks)


@dataclass(frozen=True)
class Comparison:
    """Scores candidates for ``data`` by the same metric on the same nodes.

    Parameters
    ----------
    data : NodeData
    monitor : Metric
    class_weight
        Weights of the classes, as in training.
    """

    data: NodeData
    monitor: Metric = LOSS
    class_weight: Any = TrainingConfig.class_weight

    def evaluate(
        self, candidate: Candidate, train: Callable[[], ScoredRun]
    ) -> tuple[Candidate, ScoredRun | None]:
        """The candidate with its scores, and its run; without scores and None if training failed.

        Only OutOfTimeError is raised; after any other error the comparison goes on.
        """
        started, run = time.monotonic(), None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HopliteWarning)
                run = train()
            learned = sum(weights.size for weights in run.model.weights.values())
            candidate = dataclasses.replace(candidate, learned=learned)
            if "val" in run.outputs:
                candidate = self.scored(candidate, run.task, *run.outputs["val"])
                candidate = dataclasses.replace(candidate, score=number(run.val_score))
        except OutOfTimeError:
            raise
        except Exception as error:  # also of code that is not ours, such as a user's own model
            log.warning("%s failed: %s", candidate, error)
        return dataclasses.replace(candidate, seconds=time.monotonic() - started), run

    def scored(
        self, candidate: Candidate, task: Task, labels: np.ndarray, logits: np.ndarray
    ) -> Candidate:
        """The candidate with the scores of its outputs (nodes, m).

        Log losses of classes are those after the best temperature: models that are trained in steps
        until the accuracy is best may be over- or underconfident, which says nothing about their
        predicted classes. Losses of less than 0.001, as of classes that are separated without an
        error, rank the same.
        """
        seen, names = self.data.labels[self.data.split.train], self.data.class_names
        weights = task.node_weights(self.class_weight, seen, labels, names)
        part, least = NodeSet(labels, labels, weights), -math.inf
        if self.monitor is LOSS and task.exclusive:
            least = MIN_LOSS
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", HopliteWarning)  # about a temperature at its limit
                logits = logits / best_temperature(labels, logits)

        def value(mask: np.ndarray) -> float:
            return judge(task, self.monitor, part.at(mask), logits[mask])[0]

        values = without_groups(value, len(labels))
        if not math.isfinite(values[0]):
            return candidate
        compared = np.maximum(np.nan_to_num(values, nan=values[0]), least)
        ranks = self.monitor.rank(compared).tolist()
        score = number(judge(task, task.score, part, logits)[0])
        return dataclasses.replace(candidate, val=values[0], score=score, ranks=tuple(ranks))


def is_tables(data: NodeData) -> bool:
    """Whether ``data`` is in memory and its features come from named columns."""
    made = data.preparation
    return made is not None and bool(made.fitted or made.transformer) and data.stored is None


def with_default_model(
    data: NodeData, model: str | type | None, options: Mapping[str, Any]
) -> tuple[NodeData, str | type, dict[str, Any]]:
    """``data``, ``model`` and ``options``, with the defaults for the data if ``model`` is None.

    They are those of :func:`hoplite.models.settings.default_options`. With hop blocks logarithms of
    degrees are more features, and if one of two classes is rare, its threshold is the best by F1.
    """
    if model is not None:
        return data, model, dict(options)
    name, chosen = default_options(options, tables=is_tables(data))
    if issubclass(find_model(name), HopBlocks):
        data = with_log_degree(data.in_memory())
        if _is_rare(data) and (data.split.val.size or options.get("folds", 2) > 1):
            chosen = {"threshold": "f1"} | chosen
    return data, name, chosen


def _is_rare(data: NodeData) -> bool:
    """Whether there are two classes and one of them has few of the training nodes, but some."""
    labels = data.labels[data.split.train]
    if label_type(labels) is not CLASSES or len(data.class_names) != 2 or len(labels) < MIN_LABELS:
        return False
    return 0 < np.bincount(labels, minlength=2).min() < RARE_CLASS * len(labels)


def default_candidates(data: NodeData, options: Mapping[str, Any]) -> list[Candidate]:
    """What ``auto`` tries first, and ``train`` compares if no model is given: the ``default`` ones.

    They are hop blocks of 0 hops, which are the features alone, up to those of ``options``; PPR and
    LGC, whose one map for all hops is better where labels are few and neighbours alike; and for
    tables all of them with the labels of neighbours. Without folds, hop blocks are the default for
    tables; LGC is the default for graphs with few or very many training nodes.

    Parameters
    ----------
    data : NodeData
        The data that :func:`with_default_model` returns.
    options : dict
        The options that it returns, for hop blocks.
    """
    tables, count = is_tables(data), len(data.split.train)
    if tables:
        compares = not data.split.val.size and MIN_LABELS <= count <= MAX_FOLDED
    else:
        compares = max(MIN_LABELS, MIN_SHARE * data.num_nodes) <= count <= MAX_COMPARED
    plain, hops = dict(options if tables else TABLE_OPTIONS), ("hops",)
    found = []
    for i in range(plain["hops"] + 1):
        family = "hop blocks" if i else "features alone"
        default = compares or (tables and i == plain["hops"])  # the last is the default of tables
        found.append(Candidate(0, "blocks", plain | {"hops": i}, hops, family, default))
    own = _with_defaults(plain, PPR_OPTIONS)
    found.append(Candidate(0, "ppr", own, hops, "PageRank", compares))
    if not tables:  # the default of graphs
        listed = ("hops",) if "hops" in options else ()
        found.append(Candidate(0, DEFAULT_MODEL, dict(options), listed, "LGC", default=True))
    elif not sp.issparse(data.in_memory().features):
        own = _with_defaults(plain, LGC_OPTIONS)
        found.append(Candidate(0, "lgc", own, hops, "LGC", compares, preferred=True))
    if tables and count >= MIN_LABELS and data.in_memory().num_edges and not LABELS.keys() & plain:
        found += [one.with_labels() for one in found]
    return found


def _with_defaults(options: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """``options`` with a candidate's ``own`` ones where these are the defaults for tables."""
    return options | {k: v for k, v in own.items() if options.get(k) == TABLE_OPTIONS.get(k)}


def default_choice(scored: Iterable[Candidate]) -> Candidate | None:
    """The candidate that ``train`` takes if no model is given; None if no default one has scores.

    1. The best one without the labels of neighbours; among equally good ones, the simplest.
    2. The preferred one instead, which tables have, if it is worse by at most a standard error;
       but not if the best one has no hops.
    3. The same with the labels of neighbours, if that is better.
    """
    known = [one for one in scored if one.default and one.ranks]
    plain = [one for one in known if not LABELS.items() <= one.options.items()]
    if not plain:
        return None
    highest = max(one.rank for one in plain)
    best = min((one for one in plain if one.rank == highest), key=lambda one: one.simplicity)
    for one in plain:
        if one.preferred and best.hops and as_good(one, best):
            best = one
    same = [one for one in known if (one.model, one.options) == (best.model, best.options | LABELS)]
    return max([best, *same], key=lambda one: one.rank)


@dataclass(frozen=True)
class GraphGain:
    """What the graph adds to the features.

    Parameters
    ----------
    metric : str
        Name of the metric: the average precision of two classes, otherwise the task's score.
    baseline, features, graph : float
        The score without any model, of the features alone, and with the graph.
    error : float
        The standard error of ``graph - features``.
    """

    metric: str
    baseline: float
    features: float
    graph: float
    error: float

    @classmethod
    def of(cls, features: ScoredRun, graph: ScoredRun) -> GraphGain | None:
        """The gain between two runs; None unless both have outputs of the same nodes."""
        if "val" not in features.outputs or "val" not in graph.outputs:
            return None
        labels, task = graph.outputs["val"][0], graph.task
        if not np.array_equal(labels, features.outputs["val"][0]):
            return None
        metric = task.headline[-1] if task.exclusive and task.headline else task.score.name

        def scores(run: ScoredRun) -> np.ndarray:
            logits = run.outputs["val"][1]
            return without_groups(
                lambda mask: run.task.figure(metric, labels[mask], logits[mask]), len(labels)
            )

        alone, joined = scores(features), scores(graph)
        baseline = task.baseline(labels, graph.model.class_names)[metric]
        error = standard_error(joined, alone)
        return cls(metric, baseline, float(alone[0]), float(joined[0]), error)

    def summary(self) -> dict[str, Any]:
        """The scores as plain JSON values."""
        scores = {name: number(getattr(self, name)) for name in ("baseline", "features", "graph")}
        return {"metric": self.metric, **scores, "error": number(self.error)}

    def describe(self) -> str:
        """One line with all scores."""
        if math.isnan(self.baseline) or math.isnan(self.graph):
            return f"{title_of(self.metric)} is undefined: the validation nodes have a single class"
        gain = f"{self.graph - self.features:+z.3f} ± {self.error:.3f}"
        return (
            f"{title_of(self.metric)}: baseline {self.baseline:z.3f}, features alone "
            f"{self.features:z.3f}, with the graph {self.graph:z.3f} ({gain})"
        )
