"""The one pipeline from data to scored models; train, the estimators and search all call it.

resolve the settings -> weigh the nodes -> build -> train -> refit -> score

A refit trains again on training and validation labels, for the epochs that validation chose. It is
another protocol: validation nodes choose the epochs and all settings, in a first training on the
training labels alone, and are learned from only then. So their figures are those of the first
training, and the test nodes judge the second model.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, HopliteWarning
from hoplite.graph import NodeData, Split
from hoplite.models import ModelConfig, build_model
from hoplite.models.alignment import check_neighbours
from hoplite.tasks import Task
from hoplite.training.folds import count_folds, cross_validate, hold_out
from hoplite.training.limits import OutOfTimeError, keeps_best
from hoplite.training.runs import Report, Run, RunResult, require_result, stage, train_runs
from hoplite.training.scoring import SCORED, ScoredRun, check_after, scored_run
from hoplite.training.sets import NodeSet, union, weighted_sets
from hoplite.training.stored import HopRows


@dataclass(frozen=True)
class Fitted:
    """What all runs of a training share, once it is set up.

    Parameters
    ----------
    data : NodeData
    config : ModelConfig
        With the numbers of a basis that is fitted to the data.
    model : Model
    source : Propagation, HopRows or ClusterRows
        Where outputs come from.
    task : Task
        Fitted to the labels of the training nodes.
    sets : dict of NodeSet
        The nodes of every part with their weights.
    names : sequence of str
        Of the outputs.
    split : Split or None
        The data's own, if the sets are those of it.
    """

    data: NodeData
    config: ModelConfig
    model: Any
    source: Any
    task: Task
    sets: dict[str, NodeSet]
    names: tuple[str, ...]
    split: Split | None


def fit(
    data: NodeData,
    config: ModelConfig,
    runs: Sequence[Run],
    sets: Mapping[str, NodeSet],
    task: Task,
    *,
    names: Sequence[str],
    class_texts: Sequence[str] | None = None,
    split: Split | None = None,
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
        They share all settings that decide about weights of nodes and the loss.
    sets : dict of NodeSet
        "train", "val" and "test", with the nodes' own weights.
    names, class_texts : sequence of str
        Names of the outputs, and of the classes in ``class_weight`` if these are others.
    memory, cluster
        For hop stores: the peak of this process, and the address of a Dask cluster.
    record_test : bool
        Keep test curves in the history.
    score : sequence of str
        The parts whose outputs are read at the end, "val" and "test"; nothing reads the others.
    quiet : bool
        Warn of nothing; divergence is in the results.
    final : bool
        Without validation nodes: whether the model is trained on all nodes, after folds or a
        holdout have chosen; False if only their scores matter.

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
        training, texts = runs[0].config, class_texts or names
        task = task.with_loss(training.loss).fitted(sets["train"].labels, len(names))
        weighted = weighted_sets(sets, task, training, texts)
        validated, folds = len(sets.get("val", ())) > 0, count_folds(training, sets)
        training.check_validated(validated or folds > 0, "give the graph some")
        task.check_calibrate(training.calibrate)
        check_after(training, task, stored=data.stored is not None)
        if training.optimizer == "path" and data.stored is not None:
            raise ConfigError("is 'path', which requires a graph; use adam.", "optimizer")
        if data.stored is None:
            config = config.fitted(data.in_memory())
        else:
            check_neighbours(config)
        model = build_model(config, data.num_features, len(names), data.relation_weights)
        source = _source(data, model, config, training, memory, cluster)
        if isinstance(source, HopRows):
            stack.callback(source.close)
        shared = Fitted(data, config, model, source, task, weighted, tuple(names), split)
        if folds:
            weigh = partial(weighted_sets, task=task, config=training, names=texts)
            crossed = cross_validate(
                model, source, runs, sets["train"], task, weigh, folds=folds, progress=progress,
                fitted_to=partial(_fitted_to, shared), final=final,
            )  # fmt: skip
            results = [one.result for one in crossed]
            if not quiet:
                require_result(results)
            return [scored_run(shared, one.result, None, score, one) for one in crossed]
        trained = {name: part for name, part in shared.sets.items() if name != "test"}
        if record_test and "test" in shared.sets:
            trained["test"] = shared.sets["test"]
        report = stage(progress, 0, 1 + training.refit)
        results = train_runs(
            shared.model, shared.source, runs, trained, progress=report, task=shared.task
        )
        if not quiet:
            require_result(results)
        again = _refit(shared, results, sets, texts, stage(progress, 1, 2))
        return [*map(scored_run, repeat(shared), results, again, repeat(score))]


def _fitted_to(shared: Fitted, nodes: np.ndarray) -> tuple[Any, Any]:
    """The model and the propagation of a graph whose features are fitted to these nodes."""
    before = shared.data.in_memory()
    graph = before.fitted_to(nodes)
    if graph is before:
        return shared.model, shared.source
    model = build_model(shared.config, graph.num_features, len(shared.names))
    return model, Propagation.of(graph, shared.config)


def _source(
    data: NodeData,
    model: Any,
    config: ModelConfig,
    training: TrainingConfig,
    memory: str | int | None,
    cluster: str | None,
) -> Any:
    if data.stored is None:
        return Propagation.of(data.in_memory(), config)
    if cluster is None:
        return HopRows(data.stored, model, memory=memory or "4GB", training=training)
    from hoplite.training.cluster import ClusterRows

    return ClusterRows(data.stored, model, cluster, memory=memory or "4GB", training=training)


def _refit(
    shared: Fitted,
    results: Sequence[RunResult],
    sets: Mapping[str, NodeSet],
    class_texts: Sequence[str],
    progress: Report | None,
) -> list[RunResult | None]:
    """Every run with a result trained again on training and validation labels, if it is asked."""
    found: list[RunResult | None] = [None] * len(results)
    chosen = [i for i, result in enumerate(results) if result.best_epoch]
    config = results[0].run.config
    if not config.refit or not chosen:
        return found
    both = union(sets["train"], sets["val"])
    both = weighted_sets({"train": both}, shared.task, config, class_texts)["train"]
    runs = [_again(results[i], len(shared.sets["train"])) for i in chosen]
    try:
        again = train_runs(
            shared.model, shared.source, runs, {"train": both}, progress=progress, task=shared.task
        )
    except OutOfTimeError:
        if not keeps_best():
            raise
        return found
    require_result(again)
    for i, result in zip(chosen, again, strict=True):
        if result.best_epoch:  # otherwise the first model is kept
            found[i] = dataclasses.replace(result, run=results[i].run)
    return found


def _again(result: RunResult, rows: int) -> Run:
    """The run of ``result`` again, from its seed, for its own best epochs.

    One that was solved is solved for the best penalty, from the weights that it had.
    """
    config = dataclasses.replace(result.run.config, epochs=result.best_epoch)
    start = result.weights if config.optimizer == "path" else None
    return Run(config, result.run.seed, start=start, rows=rows)
