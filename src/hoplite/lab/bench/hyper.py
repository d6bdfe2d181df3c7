"""`hyper`: one epoch of hLGC on Cora for each of its gates, k = 10, dropout 0.5.

A sample is a short training through hoplite.train; the time from the end of its first epoch to the
end of its last is divided by the epochs between, so that set-up, which hundreds of epochs share in
use, does not count for a few.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial

from hoplite.datasets import load
from hoplite.graph import Graph
from hoplite.lab.bench.epoch import SETTINGS
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Goal,
    Outcome,
    interleave,
    using_threads,
)
from hoplite.models.hlgc import GATES
from hoplite.training import train


@dataclass(frozen=True)
class HyperSize:
    """Hops, epochs per sample of each gate (at least 2), and the goal of each in ms."""

    hops: int
    epochs: dict[str, int]
    effort: Effort
    ms: dict[str, float] = field(
        default_factory=lambda: {"class": 15.0, "node": 250.0, "feature": 250.0}
    )


QUICK = HyperSize(10, {"class": 21, "node": 3, "feature": 3}, Effort(3, 4))
FULL = HyperSize(10, {"class": 100, "node": 20, "feature": 20}, Effort(5, 240))


def run(context: Context, size: HyperSize, graph: Graph | None = None) -> Outcome:
    """Time an epoch of each gate, in turn."""
    graph = load("cora") if graph is None else graph
    contestants = [
        Contestant(
            gate,
            partial(steady_epoch, graph, gate, size.hops, size.epochs[gate]),
            warm_up=partial(steady_epoch, graph, gate, size.hops, 1),
        )
        for gate in GATES
    ]
    with using_threads(context.threads):
        samples = interleave(contestants, size.effort, context.report)
    figures = [
        samples.figure(
            f"hlgc, gate {gate}, {size.hops} hops",
            gate,
            goal=Goal.at_most(size.ms[gate], "ms") if gate in size.ms else None,
        )
        for gate in GATES
    ]
    counts = ", ".join(f"{size.epochs[gate]} epochs of {gate}" for gate in GATES)
    return Outcome(figures, [f"a sample trains {counts}; set-up and first epoch do not count."])


def steady_epoch(graph: Graph, gate: str, hops: int, epochs: int) -> float:
    """Seconds per epoch after the first of a training of ``epochs`` (NaN if that is all)."""
    ends: list[float] = []
    train(
        graph,
        "hlgc",
        gate=gate,
        hops=hops,
        epochs=epochs,
        patience=epochs,
        progress=lambda state: ends.append(time.perf_counter()),
        **SETTINGS,
    )
    return (ends[-1] - ends[0]) / (epochs - 1) if epochs > 1 else math.nan
