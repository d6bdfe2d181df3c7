"""`epoch`: one epoch on Cora and Pubmed (training step and validation), beside the peers'.

A peer is the same model in plain torch, written with care, or PyTorch Geometric's layers as they
come; see :mod:`hoplite.lab.bench.peers`. The strongest peer of a case stands first. Ours runs
through hoplite.train, a single seed. Set-up does not count, on either side; where nothing is
dropped, so that SGC is a linear layer on features that are made once, it is a figure of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hoplite.graph import Graph
from hoplite.lab.bench import peers
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed
from hoplite.peers import find
from hoplite.training import train
from hoplite.words import plural

SETTINGS: dict[str, Any] = {"lr": 0.2, "weight_decay": 5e-4, "dropout": 0.5}
EPOCHS = 500
PEER_SECONDS = 0.1  # a sample of a peer takes at least this, or one epoch


@dataclass(frozen=True)
class Cell:
    """A model on a dataset: goals for our epoch and for its ratio to a peer, and who takes part."""

    dataset: str
    model: str
    hops: int | None = None
    dropout: float = 0.5
    threads: int | None = None  # as many as the whole run
    ms: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)  # by the peer's name
    set_up_ratios: dict[str, float] = field(default_factory=dict)  # of set-up and first epoch
    layers: bool = True  # PyTorch Geometric's, too

    @property
    def size(self) -> dict[str, int]:
        return {} if self.hops is None else {"hops": self.hops}

    def case(self, threads: int) -> str:
        """
        >>> Cell("cora", "sgc", 2, dropout=0).case(1)
        'cora, sgc, 2 hops, no dropout, 1 thread'
        """
        parts = [self.dataset, self.model, *[f"{self.hops} hops"] * (self.hops is not None)]
        return ", ".join([*parts, *["no dropout"] * (not self.dropout), plural(threads, "thread")])

    def rivals(self) -> dict[str, peers.Build]:
        """The peers by name."""
        found = peers.plain(self.model, self.dropout, **self.size)
        return found | (peers.layers(self.model, self.dropout, **self.size) if self.layers else {})

    def laps(self, graph: Graph, count: int) -> tuple[float, float]:
        """Of our own training, see :func:`laps`."""
        return laps(graph, self.model, count, dropout=self.dropout, **self.size)


@dataclass(frozen=True)
class EpochSize:
    """The cells, our epochs per sample, and the effort per cell."""

    cells: tuple[Cell, ...]
    epochs: int
    effort: Effort


ROWS = {"plain torch, S^k X kept": 1.0}
CELLS = (
    Cell("cora", "lgc", 20, threads=1, ms=3),
    Cell("cora", "lgc", 20, ratios={"TAGConv K=20": 100}),
    Cell("cora", "sgc", 2),
    Cell("cora", "sgc", 2, dropout=0, ratios=ROWS),
    Cell("cora", "gcn"),
    Cell("pubmed", "sgc", 10, ms=5),
    Cell("pubmed", "sgc", 10, dropout=0, ratios=ROWS),
    Cell("pubmed", "egc", 20, ms=6),
    Cell("pubmed", "lgc", 20, ms=6),
    Cell("pubmed", "gcn"),
)
FULL = EpochSize(CELLS, 300, Effort(7, 60))
# dense X takes seconds an epoch on Pubmed, and so does TAGConv with one thread
QUICK = EpochSize(
    tuple(replace(c, layers=c.dataset == "cora" and not c.threads) for c in CELLS), 50, Effort(3, 2)
)


def run(context: Context, size: EpochSize) -> Outcome:
    """Time every cell, ours in turn with the peers."""
    graphs = {name: context.load(name) for name in {cell.dataset: None for cell in size.cells}}
    figures: list[Figure] = []
    # with one thread for all, the cell that asks for one stands for its twin as well
    alone = {(c.dataset, c.model): c.ms for c in size.cells if c.threads == context.threads}
    cells = [c for c in size.cells if c.threads is None or c.threads != context.threads]
    cells = [replace(c, ms=c.ms or alone.get((c.dataset, c.model))) for c in cells]
    for index, cell in enumerate(cells):
        part = context.part(index, len(cells), f"{cell.dataset}, {cell.model}: ")
        figures += _figures(part, cell, size, graphs[cell.dataset])
    known = find("torch_geometric.nn") is not None
    return Outcome(figures, [] if known else [peers.missing_note("PyTorch Geometric")])


def _figures(context: Context, cell: Cell, size: EpochSize, graph: Graph) -> list[Figure]:
    data, builders = peers.PeerData(graph), cell.rivals()
    torch.manual_seed(0)
    epochs = {name: peer_epoch(build(data)) for name, build in builders.items()}
    figures = _beside(context, cell, size, "", lambda: cell.laps(graph, size.epochs)[1], epochs)
    if cell.dropout:
        return figures
    set_ups = {
        name: timed(lambda build=build: build(peers.PeerData(graph)).epoch())
        for name, build in builders.items()
    }
    what, first = ": set-up and first epoch", replace(cell, ms=None, ratios=cell.set_up_ratios)
    return figures + _beside(context, first, size, what, lambda: cell.laps(graph, 1)[0], set_ups)


def _beside(
    context: Context,
    cell: Cell,
    size: EpochSize,
    what: str,
    ours: Callable[[], float],
    rivals: dict[str, Callable[[], float]],
) -> list[Figure]:
    """Our figure alone, if it has a goal or no peer, and beside each peer, the strongest first."""
    contestants = [Contestant("hoplite", ours)]
    contestants += [Contestant(name, sample) for name, sample in rivals.items()]
    samples = context.race(contestants, size.effort, cell.threads)
    case = f"{cell.case(cell.threads or context.threads)}{what}"
    goals = {name: Goal.ratio_at_least(least) for name, least in cell.ratios.items()}
    figures = [samples.figure(case, "hoplite", name, goals.get(name)) for name in rivals]
    figures.sort(key=lambda figure: figure.ratio or 0.0)
    goal = None if cell.ms is None else Goal.at_most(cell.ms, "ms")
    return [samples.figure(case, "hoplite", goal=goal)] * (goal is not None or not rivals) + figures


def peer_epoch(peer: peers.Peer) -> Callable[[], float]:
    """A sample: mean seconds of an epoch, over as many as PEER_SECONDS take, at least one."""
    epoch = peer.epoch

    def sample() -> float:
        started, count = time.perf_counter(), 0
        while not count or time.perf_counter() - started < PEER_SECONDS:
            epoch()
            count += 1
        return (time.perf_counter() - started) / count

    return sample


class _Enough(Exception):
    """Of epochs."""


def laps(graph: Graph, model: str, count: int, **options: Any) -> tuple[float, float]:
    """Seconds of set-up and first epoch, and of each of the count - 1 after it (NaN for none).

    The training is planned for as many epochs as the paper's, since the evaluation order depends on
    that, and stopped after ``count``.
    """
    ends = [time.perf_counter()]

    def progress(state: object) -> None:
        ends.append(time.perf_counter())
        if len(ends) > count:
            raise _Enough

    with suppress(_Enough):
        train(
            graph, model, epochs=EPOCHS, patience=EPOCHS, progress=progress, **(SETTINGS | options)
        )
    later = (ends[-1] - ends[1]) / (count - 1) if count > 1 else math.nan
    return ends[1] - ends[0], later
