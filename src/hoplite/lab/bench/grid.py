"""`grid`: the paper's whole grid of LGC on Cora, 27 configurations x 7 degrees x 5 seeds."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

from hoplite.datasets import load
from hoplite.errors import HopliteWarning
from hoplite.graph import Graph
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.many import fit_lgc, paper_runs
from hoplite.lab.bench.measure import using_threads
from hoplite.lab.bench.records import Figure, Goal, Outcome


@dataclass(frozen=True)
class GridSize:
    """The degrees, seeds and epochs of the grid."""

    hops: tuple[int, ...] = (2, 5, 10, 20, 40, 60, 80)
    seeds: int = 5
    epochs: int = 500
    patience: int = 100
    minutes: float | None = 6.0  # the goal


FULL = GridSize()


def run(context: Context, size: GridSize, graph: Graph | None = None) -> Outcome:
    """Train every run of the grid once, with early stopping, and give the wall time."""
    graph = load("cora") if graph is None else graph
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
            means = np.reshape(
                [result.best("val_accuracy") for result in results], (-1, size.seeds)
            ).mean(1)
            config = runs[int(means.argmax()) * size.seeds].config
            settings = f"lr {config.lr:g}, weight decay {config.weight_decay:g}"
            best = max(best, (float(means.max()), hops, f"{settings}, dropout {config.dropout:g}"))
    seconds = time.perf_counter() - started
    count = len(runs) * len(size.hops)
    goal = None if size.minutes is None else Goal.at_most(size.minutes, "min")
    figures = [
        Figure(f"{count} runs of lgc, k in {_listed(size.hops)}", seconds / 60, "min", goal=goal),
        Figure("per run and epoch, mean over the grid", 1e3 * seconds / epochs, "ms"),
    ]
    note = f"best mean validation accuracy {best[0]:.1%} at {best[1]} hops, {best[2]}."
    return Outcome(figures, [note], {"run_epochs": float(epochs), "seconds": seconds})


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(str(value) for value in values)
