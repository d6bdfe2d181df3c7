"""What goes into the training loop and what comes out of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hoplite.bases import find_basis
from hoplite.config import NEED_FEATURES, TrainingConfig
from hoplite.errors import ConfigError, GraphError, HopliteError, HopliteWarning
from hoplite.graph import PARTS
from hoplite.models import Model, ModelConfig, Weights
from hoplite.node_data import NodeData
from hoplite.operators import find_operator
from hoplite.propagation.engine import Propagation
from hoplite.propagation.orders import Plan, Problem, free_memory, make_plan
from hoplite.tasks import Task
from hoplite.training.distributed import ALONE, Team
from hoplite.training.streamed import StoredPropagation

AnyPropagation = Propagation | StoredPropagation  # of a graph, or the hop features in a store


@dataclass(frozen=True)
class Run:
    """One training: its settings, its seed, and the epoch that it ends with, if that is known."""

    config: TrainingConfig
    seed: int
    last: int | None = None


@dataclass(frozen=True)
class RunResult:
    """What one run gave: the weights of its best epoch and the curves that led there.

    A run that ``diverged`` was stopped, because a loss or a weight was no longer finite. Its best
    epoch is one before that; if there is none, ``best_epoch`` is 0, the weights are the first ones
    and no curve has a best value: the run has no result.
    """

    run: Run
    weights: Weights
    best_epoch: int
    epochs: int
    diverged: bool
    history: dict[str, np.ndarray]  # per epoch: {train,val[,test]}_{loss, and the task's metrics}
    seconds: float  # this run's share of the batch's time

    def best(self, curve: str) -> float:
        """The value of a curve of the history at the best epoch; NaN if there is none."""
        return at_best(self.history, curve, self.best_epoch)


def at_best(history: dict[str, np.ndarray], curve: str, best_epoch: int) -> float:
    """The value of a curve at the best epoch (counted from 1); NaN if there is none."""
    found = history.get(curve)
    return np.nan if found is None or not best_epoch else float(found[best_epoch - 1])


@dataclass(frozen=True)
class TrainingProgress:
    """How far a batch of runs is, for progress bars."""

    done: int  # run-epochs finished or saved by early stopping
    total: int
    epoch: int
    epochs: int  # at most, per run
    running: int
    val_score: float  # what chooses the epoch: mean of the runs' best so far; NaN if unknown

    def among(self, done: int, waiting: int) -> TrainingProgress:
        """This batch's progress as part of all: ``done`` runs came before, ``waiting`` follow."""
        runs = self.total // self.epochs
        return TrainingProgress(
            done=self.done + done * self.epochs,
            total=(runs + done + waiting) * self.epochs,
            epoch=self.epoch,
            epochs=self.epochs,
            running=self.running + waiting,
            val_score=self.val_score,
        )


@dataclass(frozen=True)
class NodeSet:
    """Nodes with their known labels, and what each counts in the loss: (n,), 1 if None."""

    nodes: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None = None

    def weighted(self, *factors: np.ndarray | None) -> NodeSet:
        """The set with the product of the ``factors`` as weights, divided by its mean.

        They are (n,), or (n, m) where each output has a weight.

        So twice the weight of a node is the node twice, and a penalty keeps its share.
        """
        product = product_of(factors)
        if product is None or not len(self):
            return self
        if not product.sum() > 0:
            raise GraphError("all weights of the training nodes are 0; give one a larger weight.")
        return NodeSet(self.nodes, self.labels, product / product.mean())

    def check(self, num_nodes: int) -> None:
        """Raise GraphError unless every node is in range and has a label."""
        nodes, labels = np.asarray(self.nodes), np.asarray(self.labels)
        if nodes.ndim != 1 or nodes.shape != labels.shape[:1]:
            raise GraphError(f"{nodes.shape} nodes with {labels.shape} labels; pass one each.")
        if nodes.size and (nodes.min() < 0 or nodes.max() >= num_nodes):
            outside = nodes.min() if nodes.min() < 0 else nodes.max()
            raise GraphError(f"node {outside} is not in 0 .. {num_nodes - 1}.")

    def __len__(self) -> int:
        return len(self.nodes)


def require_result(results: Sequence[RunResult]) -> None:
    """HopliteError if every run diverged before it had a finite result."""
    if not any(result.best_epoch for result in results):
        count = "the run" if len(results) == 1 else f"all {len(results)} runs"
        raise HopliteError(
            f"{count} diverged in the first epoch, so there is no model; try a lower learning "
            "rate, fewer hops, another operator, basis 'chebyshev', or smaller features."
        )


def node_sets(data: NodeData) -> dict[str, NodeSet]:
    """The ``train``, ``val`` and ``test`` nodes of a labelled graph's split."""
    parts = {name: getattr(data.split, name) for name in PARTS}
    return {name: NodeSet(nodes, data.labels[nodes]) for name, nodes in parts.items()}


def weighted_sets(
    parts: Mapping[str, NodeSet],
    task: Task,
    config: TrainingConfig,
    names: Sequence[str],
    sample_weight: np.ndarray | None = None,
) -> dict[str, NodeSet]:
    """``parts`` with the weights of their nodes: of their class, and of their own (all nodes').

    A part for scores whose weights are all 0 stays without.
    """
    seen, found = parts["train"].labels, {}
    for name, part in parts.items():
        of_class = task.node_weights(config.class_weight, seen, part.labels, names)
        own = None if sample_weight is None else sample_weight[part.nodes]
        each = product_of((of_class, own))
        idle = name != "train" and each is not None and not each.any()
        found[name] = part if idle else part.weighted(each)
    return found


def product_of(factors: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The product of weights of nodes, (n,) or (n, m) each; None if all are None.

    >>> product_of([np.array([2.0, 3.0]), None, np.array([[1.0, 5.0], [1.0, 1.0]])]).tolist()
    [[2.0, 10.0], [3.0, 3.0]]
    """
    given = [np.asarray(factor, np.float64) for factor in factors if factor is not None]
    if not given:
        return None
    axes, product = max(factor.ndim for factor in given), np.ones(1)
    for factor in given:
        product = product * factor.reshape(*factor.shape, *[1] * (axes - factor.ndim))
    return product


def checked_weights(sample_weight: Any, count: int) -> np.ndarray | None:
    """A weight for each of ``count`` nodes, or None; GraphError if they are anything else."""
    if sample_weight is None:
        return None
    found = np.asarray(sample_weight)
    if found.shape != (count,) or found.dtype.kind not in "biuf":
        raise GraphError(
            f"sample_weight has shape {found.shape} and type {found.dtype} for {count:,} nodes; "
            "pass one number each."
        )
    if not np.isfinite(found).all() or (found < 0).any():
        raise GraphError("sample_weight holds a negative number, NaN or infinity; use 0 or more.")
    return found.astype(np.float64)


def plan_runs(
    model: Model,
    propagation: Propagation,
    runs: Sequence[Run],
    rows: int,
    *,
    learns: bool = True,
) -> Plan:
    """The evaluation order for the steps of ``runs``, which need the outputs of ``rows`` nodes.

    Or, if nothing ``learns`` there, for scoring them: one pass, in which nothing is dropped.
    """
    features = propagation.features
    maps = propagation.slices if model.map_per_hop else 1
    problem = Problem(
        nodes=features.shape[0],
        features=features.shape[1],
        classes=model.num_classes,
        operator_nonzeros=propagation.nonzeros,
        feature_nonzeros=features.nnz,
        hops=min(propagation.hops, model.last_hop),
        kept_hops=1 if model.kept_hops == "last" or model.fixed else propagation.slices,
        rows=rows,
        epochs=runs[0].config.epochs,
        runs=len(runs) * (runs[0].config.draws if learns else 1),
        maps=maps,
        inputs=1 if model.input_weights else maps,
        dropout=learns and any(run.config.drops for run in runs),
        passes=2 if learns else 1,
        itemsize=features.dtype.itemsize,
    )
    order = "hops-first" if runs[0].config.batch else runs[0].config.order
    return make_plan(problem, order)


def team_of(source: AnyPropagation) -> Team:
    """The processes that train together: a graph's source is in one process."""
    return source.team if source.stored is True else ALONE


def order_of(
    model: Model,
    source: AnyPropagation,
    runs: Sequence[Run],
    rows: int,
    *,
    learns: bool = True,
) -> str:
    """The evaluation order for ``runs``; a store has hop features alone.

    See :func:`plan_runs`.
    """
    if source.stored is False:
        return plan_runs(model, source, runs, rows, learns=learns).order
    return "hops-first"


def check_stored(config: TrainingConfig) -> None:
    """Raise ConfigError unless hop features are enough for such a training."""
    for name in NEED_FEATURES:
        if getattr(config, name):
            raise ConfigError(
                f"{name} is {getattr(config, name)} but a store holds hop features, which were "
                f"propagated from features that none were dropped from; set {name} to 0, or train "
                "on the graph."
            )
    if config.order == "weights-first":
        raise ConfigError(
            "order is 'weights-first' but a store holds hop features; leave it out, or train on "
            "the graph."
        )


def batches_of(model: Model, source: AnyPropagation, runs: Sequence[Run]) -> list[list[int]]:
    """The positions of runs that train together, batch by batch.

    L-BFGS trains one at a time, and so do models that would gain nothing but the memory of every
    run's signals; so do mini-batches, which every run draws by itself. Runs
    without dropout have a batch of their own, because they may be evaluated hops first, and so have
    those with a consistency penalty, which need all nodes. No batch takes more than a quarter of
    the free memory, or than a store's source has room for.
    """
    config = runs[0].config
    if config.optimizer == "lbfgs" or not model.many_at_once or config.batch:
        return [[r] for r in range(len(runs))]
    if source.stored is False:
        most = max(1, free_memory() // 4 // run_bytes(model, source, config.draws))
    else:
        most = source.runs
    groups = [
        [r for r, run in enumerate(runs) if batch_kind(run.config) == kind]
        for kind in sorted({batch_kind(run.config) for run in runs}, reverse=True)
    ]
    return [group[i : i + most] for group in groups for i in range(0, len(group), most)]


def batch_kind(config: TrainingConfig) -> tuple[bool, bool]:
    """What runs of one batch share: whether they drop, and whether they use unlabelled nodes."""
    return config.drops, config.consistency > 0


def signal_size(model: Model, source: AnyPropagation) -> int:
    """Elements of one run's widest signal: nodes times propagated columns."""
    columns = model.num_classes if model.columns == "classes" else model.num_features
    return source.num_nodes * columns


def run_bytes(model: Model, propagation: Propagation, draws: int = 1) -> int:
    """About the memory of one run in a batch: weights, gradient, two moments, the best weights,
    and a dozen signals of each draw (for gates on features, and for a map per hop, one per hop)."""
    weights = sum(value.numel() for value in model.initial(torch.Generator()).values())
    per_hop = model.map_per_hop or model.columns != "classes"
    signals = 11 + propagation.slices if per_hop else 12
    signals *= draws * signal_size(model, propagation)
    return propagation.dtype.itemsize * ((5 + draws) * weights + signals)


def warn_of_overflow(config: ModelConfig, source: Propagation) -> None:
    """HopliteWarning if the hop features may be too large to learn from.

        bound = max_i max |p_i| max |X|        max |p_i| over the spectrum of S

    For powers it is ||S||^k: 1 for ``renormalized`` and ``adjacency`` and 2^k for ``laplacian``;
    Chebyshev polynomials are at most 1, whatever k. A training takes squares of what it
    finds there, so the bound must be below the root of the largest number: 1.8e19 for float32,
    1.3e154 for float64. It is an upper bound: what exceeds it may still train well.
    """
    basis = find_basis(config.basis)
    each = [basis.mapped(*find_operator(one).spectrum) for one in config.operators]
    ends = max(each, key=lambda ends: basis.largest(*ends, config.hops).max())
    growth, largest = float(basis.largest(*ends, config.hops).max()), source.features.largest()
    bound = math.log10(largest) + math.log10(growth) if largest else -math.inf
    limit = math.log10(torch.finfo(source.dtype).max) / 2
    if bound > limit:
        powers = f"{basis.largest_text(*ends, config.hops)} times " if growth > 1 else ""
        warnings.warn(
            f"hop features may be as large as {powers}{largest:.3g}, and beyond 1e{limit:.0f} "
            f"{str(source.dtype).removeprefix('torch.')} overflows in training; scale the "
            "features, or take fewer hops, another operator, or basis 'chebyshev'.",
            HopliteWarning,
            stacklevel=3,
        )
