"""AutoClassifier: the scikit-learn estimator that chooses its model by validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from hoplite.config import check_class_weight, check_number
from hoplite.errors import ConfigError, GraphError, HopliteWarning
from hoplite.estimators import NodeClassifier, graph_of
from hoplite.graph import Graph, Split
from hoplite.search.candidates import check_fixed
from hoplite.search.halving import AutoResult, auto
from hoplite.tasks import Task
from hoplite.training.sets import NodeSet

TRIALS = 24


class AutoClassifier(NodeClassifier):
    """The linear model that is best on validation, and the simplest of equals: :func:`auto`.

    Parameters
    ----------
    graph : Graph, or a graph of another library as :func:`hoplite.open_data` takes it
    trials : how many candidates are tried, or how many in each rung, such as "48/16/6"
        24 if there is no budget. A fit is the same on every machine.
    budget : wall time such as "60s" instead
    seeds : int
        Runs of the finalists and of the chosen one: seed, seed + 1, ...
    held_out : float
        The share of every class of the nodes of ``fit`` that validates if it is given no
        ``validation``; at least one node of a class is trained on.
    candidates : a TOML file of what is tried, see docs/searching.md
    options : mapping of settings that hold for all candidates that have them
    seed : int
        Also of the nodes that are held out.

    Attributes
    ----------
    result_ : the AutoResult: what was tried and why one was chosen
    classes_, coefficients_, coef_, model_, history_, n_iter_ : as of the other classifiers, those
        of the chosen model's best run
    """

    def __init__(
        self,
        graph: Any,
        trials: int | str | None = None,
        *,
        budget: str | float | None = None,
        seeds: int = 3,
        held_out: float = 0.25,
        candidates: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.graph = graph
        self.trials = trials
        self.budget = budget
        self.seeds = seeds
        self.held_out = held_out
        self.candidates = candidates
        self.options = options
        self.seed = seed

    result_: AutoResult

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride] - searches weigh no samples
        self, nodes: Any, y: Any, validation: tuple[Any, Any] | None = None
    ) -> Self:
        """Choose by the classes ``y`` of ``nodes``: indices, or a boolean mask of all nodes.

        Without ``validation=(nodes, y)`` a part of every class is held out to choose by.
        """
        return super().fit(nodes, y, validation)

    def _fit(
        self,
        task: Task,
        train: NodeSet,
        val: NodeSet | None,
        sample_weight: Any,
        names: tuple[str, ...],
        texts: Sequence[str],
    ) -> None:
        check_number("seeds", self.seeds, 1, whole=True)
        check_number("seed", self.seed, 0, whole=True)
        trials = TRIALS if self.trials is None and self.budget is None else self.trials
        if not isinstance(self.options, Mapping | None):
            raise ConfigError(f"options is a {type(self.options).__name__}; give a mapping.")
        options = dict(self.options or {})
        check_fixed(options)
        if "class_weight" in options:  # by values of y, and the model may call them otherwise
            given = check_class_weight("class_weight", options["class_weight"])
            called = dict(zip(texts, names, strict=True)) if names else {}
            if not isinstance(given, str):
                given = tuple((called.get(value, value), weight) for value, weight in given)
            options["class_weight"] = given
        if val is None:
            train, val = self._parted(train)
        graph = graph_of(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # no estimator tells its figures
            labelled = _labelled(graph, [train, val], names)
            self.result_ = auto(
                labelled,
                trials=trials,
                budget=self.budget,
                seeds=range(self.seed, self.seed + self.seeds),
                candidates=self.candidates,
                **options,
            )
        self.model_ = self.result_.model
        best = self.result_.trained.best_run
        self._keep(graph, best.history, best.epochs)

    def _parted(self, given: NodeSet) -> tuple[NodeSet, NodeSet]:
        """The nodes to train on, and those of every class that are held out."""
        check_number("held_out", self.held_out, 0, 1, open_ends="lm")
        nodes, first = np.unique(given.nodes, return_index=True)  # a bootstrap has some twice
        labels = np.asarray(given.labels)[first]
        generator, held = np.random.default_rng(self.seed), []
        groups = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        if labels.ndim == 2:  # several labels a node: there are no classes to keep even
            groups = [np.arange(len(nodes))]
        for group in groups:
            count = min(len(group) - 1, max(1, round(self.held_out * len(group))))
            held.append(generator.permutation(group)[:count])
        chosen = np.isin(np.arange(len(nodes)), np.concatenate(held)) if held else np.zeros(0, bool)
        if not chosen.any():
            raise GraphError(
                "y has a single node of every class, so none can be held out to choose by; pass "
                "validation=(nodes, y), or more nodes."
            )
        return NodeSet(nodes[~chosen], labels[~chosen]), NodeSet(nodes[chosen], labels[chosen])


def _labelled(graph: Graph, parts: Sequence[NodeSet], names: tuple[str, ...]) -> Graph:
    """``graph`` with the labels of ``parts``, training and validation, and of no other node."""
    first = np.asarray(parts[0].labels)
    labels = np.full((graph.num_nodes, *first.shape[1:]), -1, dtype=first.dtype)
    for part in parts:
        labels[part.nodes] = part.labels
    train, val = (np.unique(part.nodes) for part in parts)
    return graph.with_labels(labels, names).with_split(Split(train, val))
