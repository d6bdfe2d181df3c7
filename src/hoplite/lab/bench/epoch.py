"""`epoch`: one epoch on Cora (training step and validation), against PyTorch Geometric's layers.

Ours runs through hoplite.train, a single seed, and includes a share of its set-up; a peer's epoch
does not include building its model. TAGConv learns one weight matrix per hop where LGC learns one
coefficient: it is the peer's layer closest to LGC, and is timed with edge_index, its usual input,
and with a CSR adjacency. The other pairs are given for orientation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from hoplite.datasets import load
from hoplite.graph import Graph
from hoplite.lab.bench import peers as pyg
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Figure,
    Goal,
    Outcome,
    interleave,
    timed,
    using_threads,
)
from hoplite.peers import find
from hoplite.training import train

SETTINGS: dict[str, Any] = {"lr": 0.2, "weight_decay": 5e-4, "dropout": 0.5}


@dataclass(frozen=True)
class EpochSize:
    """Hops of LGC and TAGConv, our epochs per sample, and the effort per pair."""

    hops: int
    epochs: int
    effort: Effort
    slow_peer_alone: bool = True  # time TAGConv with one thread, too
    ms: float = 3.0  # the goal with one thread
    speedup: float = 100.0  # the goal over TAGConv


QUICK = EpochSize(20, 100, Effort(3, 5), slow_peer_alone=False)
FULL = EpochSize(20, 300, Effort(7, 120))


@dataclass(frozen=True)
class Duel:
    """Our sample, and the epochs of peers that are timed in turn with it."""

    case: str
    threads: int
    ours: Callable[[], float]
    peers: dict[str, Callable[[], float]] = field(default_factory=dict)
    warm_up: Callable[[], float] | None = None  # of the peers; by default an epoch of each
    goal: Goal | None = None  # of our own time
    ratio_goals: dict[str, Goal] = field(default_factory=dict)

    def figures(self, context: Context, effort: Effort) -> list[Figure]:
        contestants = [
            Contestant(self.case, self.ours),
            *[Contestant(name, timed(epoch), self.warm_up) for name, epoch in self.peers.items()],
        ]
        with using_threads(self.threads):
            samples = interleave(contestants, effort, context.report)
        alone = [samples.figure(self.case, self.case, goal=self.goal)]
        beside = [
            samples.figure(self.case, self.case, name, goal=self.ratio_goals.get(name))
            for name in self.peers
        ]
        return alone + beside if self.goal is not None or not beside else beside


def our_epoch(graph: Graph, model: str, epochs: int, **options: Any) -> Callable[[], float]:
    """A sample: seconds per epoch of one run that trains for ``epochs``, through hoplite.train."""

    def sample() -> float:
        result = train(graph, model, epochs=epochs, patience=epochs, **(SETTINGS | options))
        return result.ms_per_epoch / 1e3

    return sample


def run(context: Context, size: EpochSize, graph: Graph | None = None) -> Outcome:
    """Time LGC with one thread and with all, other models with all, and the peers beside them."""
    graph = load("cora") if graph is None else graph
    nn = find("torch_geometric.nn")
    notes = [] if nn is not None else [pyg.missing_note("PyTorch Geometric")]
    duels = _lgc_duels(context, size, graph, nn) + _orientation(context, size, graph, nn)
    figures: list[Figure] = []
    for index, duel in enumerate(duels):
        inner = Context(
            context.threads,
            context.bandwidth,
            lambda what, share, index=index: context.report(what, (index + share) / len(duels)),
        )
        figures += duel.figures(inner, size.effort)
    return Outcome(figures, notes)


def _lgc_duels(context: Context, size: EpochSize, graph: Graph, nn: Any) -> list[Duel]:
    """LGC against TAGConv, with one thread and with all."""
    duels = []
    for threads in sorted({1, context.threads}):
        peers: dict[str, Callable[[], float]] = {}
        goals: dict[str, Goal] = {}
        warm_up = None
        if nn is not None and (threads == context.threads or size.slow_peer_alone):
            data = pyg.PygData(graph)
            for csr in (False, True):
                name = f"TAGConv K={size.hops}" + (", CSR" if csr else "")
                torch.manual_seed(0)
                peers[name] = pyg.training_epoch(data, pyg.tag(nn, data, size.hops), csr=csr)
            # an epoch of all hops takes seconds; one hop loads the same code
            warm_up = pyg.training_epoch(data, pyg.tag(nn, data, 1))
            goals = {f"TAGConv K={size.hops}": Goal.ratio_at_least(size.speedup)}
        duels.append(
            Duel(
                f"lgc, {size.hops} hops, {_threads(threads)}",
                threads,
                our_epoch(graph, "lgc", size.epochs, hops=size.hops),
                peers,
                warm_up,
                Goal.at_most(size.ms, "ms") if threads == 1 else None,
                goals,
            )
        )
    return duels


def _orientation(context: Context, size: EpochSize, graph: Graph, nn: Any) -> list[Duel]:
    """Other models beside the peers' layers of the same degree."""
    two: dict[str, Any] = {"hops": 2}
    chosen: list[tuple[str, str, dict[str, Any], str, Callable[..., torch.nn.Module]]] = [
        ("sgc, 2 hops", "sgc", two, "SGConv K=2", lambda data: pyg.sgc(nn, data, 2)),
        (
            "lgc, chebyshev, 2 hops",
            "lgc",
            two | {"operator": "laplacian", "basis": "chebyshev"},
            "ChebConv K=3",
            lambda data: pyg.cheb(nn, data, 2),
        ),
        ("gcn", "gcn", {}, "GCNConv, 2 layers", lambda data: pyg.gcn(nn, data)),
    ]
    duels = []
    for case, model, options, name, build in chosen:
        peers: dict[str, Callable[[], float]] = {}
        if nn is not None:
            data = pyg.PygData(graph)
            torch.manual_seed(0)
            peers[name] = pyg.training_epoch(data, build(data))
        ours = our_epoch(graph, model, size.epochs, **options)
        duels.append(Duel(f"{case}, {_threads(context.threads)}", context.threads, ours, peers))
    return duels


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"
