"""`many`: 135 runs of LGC on Cora as one wide problem, against the same runs one by one.

`grid`: the paper's whole grid of LGC on Cora, these 27 configurations x 7 degrees x 5 seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.errors import GraphError, HopliteWarning
from hoplite.graph import Graph
from hoplite.lab import paper
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Figure,
    Goal,
    Outcome,
    timed,
    using_threads,
)
from hoplite.models import ModelConfig, build_model
from hoplite.propagation.engine import Propagation
from hoplite.selection import read_space
from hoplite.training import NodeSet, Run, RunResult, TrainingProgress, fit_runs


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
    configurations = read_space("paper").configurations("cora", "lgc", {"hops": 2})
    return [
        Run(TrainingConfig(**settings, epochs=epochs, patience=patience), seed)
        for settings in ({k: v for k, v in one.items() if k != "hops"} for one in configurations)
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


def run_many(context: Context, size: ManySize) -> Outcome:
    """Time the whole batch, and a sample of its runs alone, per run and epoch."""
    graph = context.load("cora")
    runs = paper_runs(size.seeds, size.epochs, size.epochs)  # patience: no run leaves early
    longer = paper_runs(size.seeds, size.alone_epochs, size.alone_epochs)
    chosen = longer[:: max(len(longer) // size.alone, 1)][: size.alone]
    together = timed(lambda: fit_lgc(graph, size.hops, runs))
    alone = timed(lambda: [fit_lgc(graph, size.hops, [run]) for run in chosen])
    contestants = [
        Contestant("together", lambda: together() / (len(runs) * size.epochs)),
        Contestant("one by one", lambda: alone() / (len(chosen) * size.alone_epochs)),
    ]
    samples = context.race(contestants, size.effort)
    goal = None if size.ms is None else Goal.at_most(size.ms, "ms")
    case = f"{len(runs)} runs of lgc, {size.hops} hops, per run and epoch"
    notes = [
        f"{size.epochs} epochs without early stopping, set-up included; "
        f"one by one: {len(chosen)} of the runs, {size.alone_epochs} epochs each."
    ]
    return Outcome([samples.figure(case, "together", "one by one", goal=goal)], notes)


@dataclass(frozen=True)
class GridSize:
    """The degrees, seeds and epochs of the grid."""

    hops: tuple[int, ...]
    seeds: int = 5
    epochs: int = 500
    patience: int = 100
    minutes: float | None = 6.0  # the goal


GRID = GridSize(tuple(map(int, paper.grid("cora", "lgc")["hops"])))


def run_grid(context: Context, size: GridSize) -> Outcome:
    """Train every run of the grid once, with early stopping, and give the wall time."""
    graph = context.load("cora")
    runs = paper_runs(size.seeds, size.epochs, size.patience)
    epochs = 0
    best = (-1.0, 0, "")
    started = time.perf_counter()
    with using_threads(context.threads), warnings.catch_warnings():
        # high degrees with a high learning rate may diverge: that, too, is part of the grid
        warnings.simplefilter("ignore", HopliteWarning)
        for hops in size.hops:
            before = sum(size.hops[: size.hops.index(hops)])

            def share(done: float, hops: int = hops, before: int = before) -> None:
                part = (before + hops * done) / sum(size.hops)
                context.report(f"{len(runs)} runs, {hops} hops", part)

            share(0.0)
            results = fit_lgc(
                graph, hops, runs, lambda state, share=share: share(state.done / state.total)
            )
            epochs += sum(result.epochs for result in results)
            # seeds of one configuration are neighbours
            reached = [result.best("val_accuracy") for result in results]
            means = np.reshape(reached, (-1, size.seeds)).mean(axis=1)
            config = runs[int(means.argmax()) * size.seeds].config
            settings = f"lr {config.lr:g}, weight decay {config.weight_decay:g}"
            best = max(best, (float(means.max()), hops, f"{settings}, dropout {config.dropout:g}"))
    seconds = time.perf_counter() - started
    count = len(runs) * len(size.hops)
    goal = None if size.minutes is None else Goal.at_most(size.minutes, "min")
    figures = [
        Figure(
            f"{count} runs of lgc, k in {', '.join(map(str, size.hops))}",
            seconds / 60,
            "min",
            goal=goal,
        ),
        Figure("per run and epoch, mean over the grid", 1e3 * seconds / epochs, "ms"),
    ]
    note = f"best mean validation accuracy {best[0]:.1%} at {best[1]} hops, {best[2]}."
    return Outcome(figures, [note], {"run_epochs": float(epochs), "seconds": seconds})
