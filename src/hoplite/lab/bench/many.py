"""`many`: 135 runs of LGC on Cora as one wide problem, against the same runs one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hoplite.config import ModelConfig, TrainingConfig
from hoplite.datasets import load
from hoplite.errors import GraphError
from hoplite.graph import Graph
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.measure import Contestant, Effort, interleave, timed, using_threads
from hoplite.lab.bench.records import Goal, Outcome
from hoplite.models import build_model
from hoplite.propagation.engine import Propagation
from hoplite.training import NodeSet, Run, RunResult, TrainingProgress, fit_runs

LEARNING_RATES = (0.2, 0.05, 0.001)
WEIGHT_DECAYS = (5e-3, 5e-4, 5e-6)
DROPOUTS = (0.0, 0.2, 0.5)


@dataclass(frozen=True)
class ManySize:
    """Hops, seeds per configuration, epochs, and how many runs are made alone for how many epochs.

    Runs alone are short, so they get more epochs, among which their set-up is shared.
    """

    hops: int
    seeds: int
    epochs: int
    alone: int
    alone_epochs: int
    effort: Effort
    ms: float | None = 1.5  # per run and epoch, at most


QUICK = ManySize(20, 5, 6, 2, 50, Effort(3, 6))
FULL = ManySize(20, 5, 100, 5, 100, Effort(5, 300))


def paper_runs(seeds: int, epochs: int, patience: int) -> list[Run]:
    """The paper's grid of learning rate, weight decay and dropout, times ``seeds``.

    >>> len(paper_runs(5, 500, 100))
    135
    """
    return [
        Run(
            TrainingConfig(
                lr=lr, weight_decay=decay, dropout=rate, epochs=epochs, patience=patience
            ),
            seed,
        )
        for lr, decay, rate in itertools.product(LEARNING_RATES, WEIGHT_DECAYS, DROPOUTS)
        for seed in range(seeds)
    ]


def fit_lgc(
    graph: Graph,
    hops: int,
    runs: Sequence[Run],
    progress: Callable[[TrainingProgress], None] | None = None,
) -> list[RunResult]:
    """Train ``runs`` of LGC together on the graph's split."""
    labels = graph.labels
    if labels is None:
        raise GraphError("the graph has no labels; a training benchmark needs them.")
    train, val = (NodeSet(part, labels[part]) for part in (graph.split.train, graph.split.val))
    config = ModelConfig("lgc", hops)
    model = build_model(config, graph.num_features, graph.num_classes)
    propagation = Propagation(graph, config.operator, config.basis, hops)
    return fit_runs(model, propagation, runs, train, val, progress=progress)


def run(context: Context, size: ManySize, graph: Graph | None = None) -> Outcome:
    """Time the whole batch, and a sample of its runs alone, per run and epoch."""
    graph = load("cora") if graph is None else graph
    runs = paper_runs(size.seeds, size.epochs, size.epochs)  # patience: no run leaves early
    longer = paper_runs(size.seeds, size.alone_epochs, size.alone_epochs)
    chosen = longer[:: max(len(longer) // size.alone, 1)][: size.alone]
    together = timed(lambda: fit_lgc(graph, size.hops, runs))
    alone = timed(lambda: [fit_lgc(graph, size.hops, [run]) for run in chosen])
    contestants = [
        Contestant("together", lambda: together() / (len(runs) * size.epochs)),
        Contestant("one by one", lambda: alone() / (len(chosen) * size.alone_epochs)),
    ]
    with using_threads(context.threads):
        samples = interleave(contestants, size.effort, context.report)
    goal = None if size.ms is None else Goal.at_most(size.ms, "ms")
    case = f"{len(runs)} runs of lgc, {size.hops} hops, per run and epoch"
    notes = [
        f"{size.epochs} epochs without early stopping, set-up included; "
        f"one by one: {len(chosen)} of the runs, {size.alone_epochs} epochs each."
    ]
    return Outcome([samples.figure(case, "together", "one by one", goal=goal)], notes)
