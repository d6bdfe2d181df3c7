"""The one pipeline from data to scored models; train, the estimators and search all call it.

resolve the settings -> weigh the nodes -> build -> train -> refit -> score

A refit trains again on the training and validation labels, for the number of epochs that
validation chose. The validation nodes first select the epoch and settings for a model trained on
the training labels alone, and only then join the training set. Validation scores therefore describe
the first model, test scores the second.

**Cross-validation** replaces validation nodes if there are none. The N training nodes are split
into k folds. Fold f is validated by a model trained on the other folds, so each node gets outputs
from a model that has not seen its label: its **out-of-fold** outputs. The best epoch (for optimizer
"path" the best penalty) is chosen on the mean of the folds' validation curves, and the final model
is trained on all N nodes up to that epoch. With

    d_f = loss of fold f at an epoch - loss of fold f at the best epoch

a path takes the strongest penalty with mean(d) <= sd(d) / sqrt(k), the one-standard-error rule: the
simplest of the models that the data cannot distinguish.

The metrics, the threshold, the temperature and the scores of prediction sets are computed from the
out-of-fold outputs. For iteratively trained models (Adam, L-BFGS), each fold is retrained up to the
epoch chosen by the other k - 1 folds: choosing among many epochs by a fold's own labels would make
even random labels look predictable. A path has few penalties, so all folds simply use the final
one.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, HopliteWarning
from hoplite.graph import NodeData, Split
from hoplite.labels import label_type
from hoplite.models import ModelConfig, build_model
from hoplite.models.alignment import check_neighbours
from hoplite.models.base import Weights
from hoplite.tasks import LOSS, Metric, Task
from hoplite.tasks.conformal import MAX_NUMBERS
from hoplite.training.runs import (
    OutOfTimeError,
    Report,
    Run,
    RunResult,
    costs,
    keeps_best,
    require_result,
    stage,
    train_runs,
    with_neighbours,
)
from hoplite.training.scoring import SCORED, ScoredRun, check_after, scored_run
from hoplite.training.sets import NodeSet, union, weighted_sets
from hoplite.training.stored import HopRows

MIN_LABELS = 10  # labels that cross-validation requires
MAX_FOLDED = 10_000  # most labels for cross-validation; with more, one fold is held out


@dataclass(frozen=True)
class Fitted:
    """What all runs of a training share.

    Parameters
    ----------
    data : NodeData
    config : ModelConfig
        With the numbers of a basis that is fitted to the data.
    model : Model
    source : Propagation, HopRows or ClusterRows
        Computes the outputs.
    task : Task
        Fitted to the labels of the training nodes.
    sets : dict of NodeSet
        The weighted nodes of each part.
    names : sequence of str
        Names of the outputs.
    split : Split or None
        The split of the data, if the sets come from it.
    weigh : callable
        Multiplies the weights of nodes by the weights of their classes.
    """

    data: NodeData
    config: ModelConfig
    model: Any
    source: Any
    task: Task
    sets: dict[str, NodeSet]
    names: tuple[str, ...]
    split: Split | None
    weigh: Callable[[Mapping[str, NodeSet]], dict[str, NodeSet]]


def fit(
    data: NodeData,
    config: ModelConfig,
    runs: Sequence[Run],
    sets: Mapping[str, NodeSet],
    task: Task,
    *,
    names: Sequence[str] | None = None,
    class_texts: Sequence[str] | None = None,
    memory: str | int | None = None,
    cluster: str | None = None,
    record_test: bool = False,
    score: Sequence[str] = SCORED,
    progress: Report | None = None,
    quiet: bool = False,
    final: bool = True,
) -> list[ScoredRun]:
    """Train ``runs`` on the sets and score them.

    Parameters
    ----------
    data : NodeData
        A graph, or a hop store.
    config : ModelConfig
    runs : sequence of Run
        All have the same loss and class weights.
    sets : dict of NodeSet
        "train", "val" and "test", with the nodes' own weights.
    names, class_texts : sequence of str
        Names of the outputs, and names of the classes in ``class_weight`` if they differ. By
        default those of the data.
    memory, cluster
        For hop stores: memory limit of this process, and address of a Dask cluster.
    record_test : bool
        Keep test curves in the history.
    score : sequence of str
        The parts to score at the end, of "val" and "test".
    quiet : bool
        Suppress warnings; the results say which runs diverged.
    final : bool
        Without validation nodes: whether to train on all nodes after cross-validation or a
        holdout. False if only the scores are needed.

    Returns
    -------
    list of ScoredRun
        In the order of ``runs``.
    """
    with ExitStack() as stack:
        if quiet:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", HopliteWarning)
        runs, sets = hold_out(runs, sets, stored=data.stored is not None, final=final)
        training, stored, split = runs[0].config, data.stored is not None, None
        if names is None:
            class_texts, split = data.class_names, data.split
            count = task.outputs(data.labels, class_texts)
            names = task.output_names(class_texts) or [str(c) for c in range(count)]
        task = task.with_loss(training.loss).fitted(sets["train"].labels, len(names))
        weigh = partial(weighted_sets, task=task, config=training, names=class_texts or names)
        weighted, folds = weigh(sets), count_folds(training, sets)
        validated = folds > 0 or len(sets.get("val", ())) > 0
        _check_settings(training, task, validated=validated, stored=stored)
        if stored:
            check_neighbours(config)
        else:
            config = config.fitted(data.in_memory())
        model = build_model(config, data.num_features, len(names), data.relation_weights)
        source = _source(data, model, training, memory, cluster)
        if isinstance(source, HopRows):
            stack.callback(source.close)
        shared = Fitted(data, config, model, source, task, weighted, tuple(names), split, weigh)
        if folds:
            if record_test:
                raise ConfigError(
                    "requires validation nodes; otherwise leave it out.", "record_test"
                )
            crossed = cross_validate(shared, runs, sets["train"], folds, progress, final=final)
            if not quiet:
                require_result([run.result for run in crossed])
            return [scored_run(shared, run.result, None, score, run) for run in crossed]
        trained = {k: part for k, part in weighted.items() if k != "test" or record_test}
        report = stage(progress, 0, 1 + training.refit)
        results = train_runs(model, source, runs, trained, progress=report, task=task)
        if not quiet:
            require_result(results)
        again = _refit(shared, results, sets, stage(progress, 1, 2))
        return [*map(scored_run, repeat(shared), results, again, repeat(score))]


def _check_settings(config: TrainingConfig, task: Task, *, validated: bool, stored: bool) -> None:
    """Raise ConfigError, before any work, if the settings do not suit the data or the task."""
    config.check_validated(validated, "pass data with such a split")
    task.check_calibrate(config.calibrate)
    check_after(config, task, stored=stored)
    if config.optimizer == "path" and stored:
        raise ConfigError("is 'path', which requires a graph; use adam or lbfgs.", "optimizer")


def _fitted_to(shared: Fitted, nodes: np.ndarray) -> tuple[Any, Any]:
    """The model and the propagation of a graph whose features are fitted to these nodes."""
    before = shared.data.in_memory()
    graph = before.fitted_to(nodes)
    if graph is before:
        return shared.model, shared.source
    model = build_model(shared.config, graph.num_features, len(shared.names))
    return model, Propagation.of(graph, shared.config)


def _source(
    data: NodeData, model: Any, training: TrainingConfig, memory: Any, cluster: str | None
) -> Any:
    if data.stored is None:
        return Propagation.of(data.in_memory(), model.config)
    memory = memory or "4GB"
    if cluster is None:
        return HopRows(data.stored, model, training, memory=memory)
    from hoplite.training.cluster import ClusterRows

    return ClusterRows(data.stored, model, training, cluster, memory=memory)


def _refit(
    shared: Fitted,
    results: Sequence[RunResult],
    sets: Mapping[str, NodeSet],
    progress: Report | None,
) -> list[RunResult | None]:
    """Train the runs again on training and validation labels, if ``refit`` is set."""
    refitted: list[RunResult | None] = [None] * len(results)
    chosen = [i for i, result in enumerate(results) if result.best_epoch]
    if not results[0].run.config.refit or not chosen:
        return refitted
    both = shared.weigh({"train": union(sets["train"], sets["val"])})
    runs = [_refit_run(results[i], len(shared.sets["train"])) for i in chosen]
    try:
        again = train_runs(
            shared.model, shared.source, runs, both, progress=progress, task=shared.task
        )
    except OutOfTimeError:
        if not keeps_best():
            raise
        return refitted
    require_result(again)
    for i, result in zip(chosen, again, strict=True):
        if result.best_epoch:  # otherwise the first model is kept
            refitted[i] = dataclasses.replace(result, run=results[i].run)
    return refitted


def _refit_run(result: RunResult, rows: int) -> Run:
    """The run that repeats ``result`` from its seed, up to its best epoch.

    With optimizer "path", it is solved for the best penalty, from the weights of ``result``.
    """
    config = dataclasses.replace(result.run.config, epochs=result.best_epoch)
    start = result.weights if config.optimizer == "path" else None
    return Run(config, result.run.seed, start=start, rows=rows)


class CrossValidated(NamedTuple):
    """The final training, with the mean curves of the folds, and the out-of-fold outputs (N, m).

    ``folds`` (N,) is the fold of each node. ``weights`` are those of each fold's model; empty if
    they are too large, or if the models have other features or use labels of neighbours.
    """

    result: RunResult
    outputs: np.ndarray
    folds: np.ndarray
    weights: tuple[Weights, ...] = ()


def fold_numbers(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each node, 0 .. folds - 1: (n,).

    Folds are stratified: the nodes of each class are shuffled and assigned to the folds in turn.
    Labels that are not classes count as a single class.

    >>> fold_numbers(np.array([0, 0, 0, 0, 1, 1]), 2, seed=0).tolist()
    [1, 0, 0, 1, 1, 0]
    """
    rng = np.random.default_rng([seed, folds])
    shuffled = rng.permutation(len(labels))
    groups = label_type(labels).groups(labels)[shuffled]
    numbers = np.empty(len(labels), np.int64)
    numbers[shuffled[np.argsort(groups, kind="stable")]] = np.arange(len(labels)) % folds
    return numbers


def _folds_of(train: NodeSet, folds: int, seed: int) -> np.ndarray:
    """The fold of each row; repeated rows of a node are in the same fold."""
    _, first, rows = np.unique(train.nodes, return_index=True, return_inverse=True)
    return fold_numbers(np.asarray(train.labels)[first], folds, seed)[rows]


def hold_out(
    runs: Sequence[Run], sets: Mapping[str, NodeSet], *, stored: bool, final: bool
) -> tuple[list[Run], dict[str, NodeSet]]:
    """Hold out one fold of the training nodes where cross-validation is not possible.

    This applies to more than 10,000 training nodes, to Correct and Smooth, whose settings need the
    outputs of all nodes at once, and to a hop store, which would be read for every fold.

    Parameters
    ----------
    runs : sequence of Run
        The seed of the first one assigns nodes to folds, for all runs.
    sets : dict of NodeSet
    stored : bool
        Whether rows come from a hop store.
    final : bool
        Whether the model is trained again, on all nodes.

    Returns
    -------
    runs, sets
        Unchanged if there are validation nodes. If a fold is held out, the sets have a "val" part,
        and the runs refit if ``final``.
    """
    config, train, parts = runs[0].config, sets["train"], dict(sets)
    folds = count_folds(config, sets)
    if not folds:
        return list(runs), parts
    holds_out = len(train) > MAX_FOLDED or config.correct_smooth or stored
    if holds_out:
        inside = _folds_of(train, folds, runs[0].seed) == 0
        parts |= {"train": train.at(~inside), "val": train.at(inside)}
    refit = holds_out and final  # folds end with a training on all nodes
    return [run.with_config(refit=refit) for run in runs], parts


def count_folds(config: TrainingConfig, sets: Mapping[str, NodeSet]) -> int:
    """The number of folds: 0 with validation nodes or too few labels, at most one per node."""
    count = len(np.unique(sets["train"].nodes))
    if len(sets.get("val", ())) or count < MIN_LABELS:
        return 0
    return min(config.folds, count)


def cross_validate(
    shared: Fitted,
    runs: Sequence[Run],
    train: NodeSet,
    folds: int,
    progress: Report | None = None,
    *,
    final: bool = True,
) -> list[CrossValidated]:
    """Choose the epoch of every run by cross-validation, and train it on all nodes of ``train``.

    Parameters
    ----------
    shared : Fitted
    runs : sequence of Run
        The seed of the first one assigns nodes to folds, for all runs.
    train : NodeSet
        With the nodes' own weights.
    folds : int
        k, at least 2.
    final : bool
        False keeps the model of the first fold instead of training on all nodes.
    """
    task, numbers = shared.task, _folds_of(train, folds, runs[0].seed)
    parts: list[Fold] = []
    trained: list[list[RunResult]] = []  # the runs of every fold
    stages = 2 * folds + final
    for number in range(folds):
        inside = numbers == number
        sets = shared.weigh({"train": train.at(~inside), "val": train.at(inside)})
        fold = Fold(inside, sets["train"], *_fitted_to(shared, train.nodes[~inside]))
        parts.append(fold)
        report = stage(progress, number, stages)
        trained.append(train_runs(fold.model, fold.source, runs, sets, progress=report, task=task))
    chosen = []
    for results in zip(*trained, strict=True):
        check_monitored(results, task)
        chosen.append(choose_epoch(results, task))
    trained = [
        _at_epoch_of_others(fold, trained, task, number, stage(progress, folds + number, stages))
        for number, fold in enumerate(parts)
    ]
    finals = trained[0]
    if final:
        ends = zip(runs, chosen, strict=True)
        whole = [run.with_config(epochs=max(epoch, 1)) for run, epoch in ends]
        sets, report = shared.weigh({"train": train}), stage(progress, stages - 1, stages)
        finals = train_runs(shared.model, shared.source, whole, sets, progress=report, task=task)
    alike = final and not shared.config.neighbour_labels
    alike = alike and all(fold.source is shared.source for fold in parts)
    crossed = []
    for run, result, epoch, *results in zip(runs, finals, chosen, *trained, strict=True):
        outputs = np.empty((len(train), shared.model.num_classes), shared.source.dtype)
        for fold, of_fold in zip(parts, results, strict=True):
            outputs[fold.inside] = fold.outputs(of_fold, epoch, train.nodes, task)
        weights = _fold_weights(results, epoch) if alike else ()
        joined = _joined(run, result, results, epoch)
        crossed.append(CrossValidated(joined, outputs, numbers, weights))
    return crossed


@dataclass(frozen=True)
class Fold:
    """A fold, whose model is trained on the other folds.

    Parameters
    ----------
    inside : ndarray of bool (N,)
        The nodes of the fold.
    learned : NodeSet
        The nodes of the other folds, with their weights.
    model : Model
    source : Propagation
        With features fitted to the other folds.
    """

    inside: np.ndarray
    learned: NodeSet
    model: Any
    source: Any

    def outputs(self, result: RunResult, epoch: int, nodes: np.ndarray, task: Task) -> np.ndarray:
        """The outputs of its nodes: those of ``epoch``, or else those of the weights of ``result``.

        ``nodes`` are the nodes of all folds.
        """
        if result.outputs:
            return result.outputs[epoch - 1]
        source = with_neighbours(self.model, self.source, self.learned, task)
        return self.model.logits(result.weights, source)[nodes[self.inside]]


def _at_epoch_of_others(
    fold: Fold,
    trained: Sequence[list[RunResult]],
    task: Task,
    number: int,
    progress: Report | None,
) -> list[RunResult]:
    """The runs of a fold, with the weights of the epoch that the other folds choose.

    Runs that have the outputs of all epochs, or no result, are unchanged.
    """
    results, again = list(trained[number]), {}
    for i, (own, *others) in enumerate(
        zip(results, *trained[:number], *trained[number + 1 :], strict=True)
    ):
        epoch = 0 if own.outputs else choose_epoch(others, task)
        if epoch and own.best_epoch not in (0, epoch):
            again[i] = dataclasses.replace(own.run, last=epoch)
    if again:
        runs, sets = [*again.values()], {"train": fold.learned}
        repeated = train_runs(fold.model, fold.source, runs, sets, progress=progress, task=task)
        for i, result in zip(again, repeated, strict=True):
            spent = costs([results[i], result])
            results[i] = dataclasses.replace(results[i], weights=result.weights, **spent)
    return results


def _fold_weights(parts: Sequence[RunResult], epoch: int) -> tuple[Weights, ...]:
    """The weights of the folds' models; empty if they are too large to store, or unknown."""
    if parts[0].outputs and not all(part.path for part in parts):
        return ()
    kept = tuple(part.path[epoch - 1] if part.path else part.weights for part in parts)
    size = sum(value.size for weights in kept for value in weights.values())
    return kept if 0 < size <= MAX_NUMBERS else ()


def choose_epoch(parts: Sequence[RunResult], task: Task) -> int:
    """The best epoch, from 1, on the mean of the folds' curves; 0 if a fold has no result.

    For optimizer "path", the first one that is at most one standard error worse. Epochs that are
    not finite in all folds are ignored, and so are folds without a finite value; if nothing is
    left, it is the first epoch.
    """
    config = parts[0].run.config
    monitor = task.monitor(config.monitor)
    if not all(part.best_epoch for part in parts):
        return 0
    ranks, epochs = _finite_curves(parts, monitor)
    if not ranks.size:
        return 1
    best = int(ranks.mean(axis=0).argmax())
    if config.optimizer != "path" or monitor is not LOSS or len(ranks) == 1:
        return int(epochs[best])
    worse = ranks[:, [best]] - ranks  # (folds, epochs)
    error = worse.std(axis=0, ddof=1) / np.sqrt(len(ranks))
    return int(epochs[(worse.mean(axis=0) <= error).argmax()])


def check_monitored(parts: Sequence[RunResult], task: Task) -> None:
    """Raise ConfigError if the monitor is not defined in any fold, so it cannot choose an epoch."""
    name = parts[0].run.config.monitor
    if not _finite_curves(parts, task.monitor(name))[0].size and parts[0].best_epoch:
        raise ConfigError(
            f"is {name!r}, which is not defined on the nodes of any of the {len(parts)} folds; use "
            "fewer folds, or 'loss'.",
            "monitor",
        )


def _finite_curves(parts: Sequence[RunResult], monitor: Metric) -> tuple[np.ndarray, np.ndarray]:
    """The monitor's validation curves (folds, epochs), larger is better, and the epochs, from 1.

    Only folds with a finite value, and epochs that are finite in all of these folds.
    """
    epochs = min(part.epochs for part in parts)
    curves = [part.history[f"val_{monitor.name}"][:epochs] for part in parts]
    ranks = np.asarray(monitor.rank(np.array(curves)), np.float64)
    finite = np.isfinite(ranks)
    ranks = ranks[finite.any(axis=1)]
    kept = np.flatnonzero(np.isfinite(ranks).all(axis=0))
    return ranks[:, kept], 1 + kept


def _joined(run: Run, result: RunResult, parts: Sequence[RunResult], epoch: int) -> RunResult:
    """The final training, with the folds' mean validation curves and the total costs."""
    trainings = parts if result is parts[0] else [*parts, result]
    epochs = min(part.epochs for part in parts)
    curves = parts[0].history
    history = {
        name: np.mean([part.history[name][:epochs] for part in parts], axis=0) for name in curves
    }
    return dataclasses.replace(
        result,
        run=run,
        best_epoch=epoch if result.best_epoch else 0,
        epochs=epochs,
        diverged=result.diverged or any(part.diverged for part in parts),
        history=history,
        **costs(trainings),
    )
