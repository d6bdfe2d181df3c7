"""`epoch`: one epoch on Cora and Pubmed (training step and validation), beside the peers'.

A peer is the same model in plain torch, written with care, or PyTorch Geometric's layers as they
come; see :mod:`hoplite.lab.bench.peers`. The strongest peer of a case stands first. Plain torch
runs with one thread and with all, and the faster of both counts; where a case names its threads,
both sides have as many. Set-up does not count, on either side. Where nothing is dropped, the model
is a linear layer on features that are made once, and set-up is a figure of its own.

The notes give the rows that an epoch of ours gathers, and the time that a plain loop takes for them
(:mod:`hoplite.lab.bench.gathers`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from hoplite.graph import Graph
from hoplite.lab.bench import peers
from hoplite.lab.bench.gathers import epoch_tally
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed
from hoplite.lab.bench.training import Trainer
from hoplite.peers import find
from hoplite.words import plural

OURS = "hoplite"
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

    def trainer(self, graph: Graph) -> Trainer:
        """Our own training."""
        return Trainer(graph, self.model, dropout=self.dropout, **self.size)


@dataclass(frozen=True)
class EpochSize:
    """The cells, our epochs per sample, and the effort per cell."""

    cells: tuple[Cell, ...]
    epochs: int
    effort: Effort


TORCH, ROWS = "plain torch", "plain torch, S^k X kept"
CELLS = (
    Cell("cora", "lgc", 20, threads=1, ratios={TORCH: 3.5}),
    Cell("cora", "lgc", 20, ratios={"TAGConv K=20": 100}),
    Cell("cora", "dgc", 100, ms=1.76),
    Cell("cora", "sgc", 2),
    Cell("cora", "sgc", 2, dropout=0, ratios={ROWS: 2}),
    Cell("cora", "gcn", ratios={TORCH: 0.95}),
    Cell("pubmed", "sgc", 10, ms=5),
    Cell("pubmed", "sgc", 2, dropout=0, ratios={ROWS: 4}),
    Cell("pubmed", "sgc", 10, dropout=0, ratios={ROWS: 1}),
    Cell("pubmed", "egc", 20, ms=4.5, ratios={TORCH: 3.5}),
    Cell("pubmed", "lgc", 20, ms=4.5, ratios={TORCH: 3.5}),
    Cell("pubmed", "gcn", ratios={TORCH: 0.95}),
)
FULL = EpochSize(CELLS, 300, Effort(7, 60))
# dense X takes seconds an epoch on Pubmed, and so does TAGConv with one thread
QUICK = EpochSize(
    tuple(replace(c, layers=c.dataset == "cora" and not c.threads) for c in CELLS), 50, Effort(3, 2)
)


def run(context: Context, size: EpochSize) -> Outcome:
    """Time every cell, ours in turn with the peers."""
    graphs = {name: context.load(name) for name in {cell.dataset: None for cell in size.cells}}
    found, cells = [], merged(size.cells, context.threads)
    for index, cell in enumerate(cells):
        part = context.part(index, len(cells), f"{cell.dataset}, {cell.model}: ")
        found.append(run_cell(part, cell, size, graphs[cell.dataset]))
    known = find("torch_geometric.nn") is not None
    return Outcome(
        [figure for one in found for figure in one.figures],
        [note for one in found for note in one.notes]
        + ([] if known else [peers.missing_note("PyTorch Geometric")]),
        {name: fact for one in found for name, fact in one.facts.items()},
    )


def merged(cells: Sequence[Cell], threads: int) -> list[Cell]:
    """The cells; with one thread for all, a cell that asks for one and its twin are the same."""
    found: dict[str, Cell] = {}
    for cell in cells:
        case = cell.case(cell.threads or threads)
        if case in found:
            twin = found[case]
            cell = replace(cell, ms=cell.ms or twin.ms, ratios=twin.ratios | cell.ratios)
        found[case] = cell
    return list(found.values())


def run_cell(context: Context, cell: Cell, size: EpochSize, graph: Graph) -> Outcome:
    """One cell: figures beside the peers, and how far our epoch is from the plain loop."""
    data, builders = peers.PeerData(graph), cell.rivals()
    torch.manual_seed(0)
    trainer = cell.trainer(graph)
    epochs = {name: peer_epoch(build(data)) for name, build in builders.items()}
    figures = _beside(context, cell, size, "", lambda: trainer.epoch(size.epochs), epochs)
    notes, facts = _limit(context, cell, trainer, figures[0].ours)
    if not cell.dropout:
        set_ups = {
            name: timed(lambda build=build: build(peers.PeerData(graph)).epoch())
            for name, build in builders.items()
        }
        ours = timed(lambda: cell.trainer(graph).train(1))
        first = replace(cell, ms=None, ratios=cell.set_up_ratios)
        figures += _beside(context, first, size, ": set-up and first epoch", ours, set_ups)
    return Outcome(figures, notes, facts)


def _beside(
    context: Context,
    cell: Cell,
    size: EpochSize,
    what: str,
    ours: Callable[[], float],
    rivals: dict[str, Callable[[], float]],
) -> list[Figure]:
    """Our figure alone, if it has a goal or no peer, and beside each peer, the strongest first."""
    threads = cell.threads or context.threads
    contestants, titles = [Contestant(OURS, ours)], {}
    for name, sample in rivals.items():
        tried = {threads} if cell.threads or not name.startswith(peers.FAST) else {1, threads}
        for count in sorted(tried):
            title = name if len(tried) == 1 else f"{name} ({plural(count, 'thread')})"
            titles.setdefault(name, []).append(title)
            contestants.append(Contestant(title, sample, threads=count))
    samples = context.race(contestants, size.effort, threads)
    case = f"{cell.case(threads)}{what}"
    goals = {name: Goal.ratio_at_least(least) for name, least in cell.ratios.items()}
    figures = [
        samples.figure(case, OURS, min(tried, key=samples.median), goals.get(name))
        for name, tried in titles.items()
    ]
    figures.sort(key=lambda figure: figure.ratio or 0.0)
    goal = None if cell.ms is None else Goal.at_most(cell.ms, "ms")
    return [samples.figure(case, OURS, goal=goal)] * (goal is not None or not rivals) + figures


def _limit(
    context: Context, cell: Cell, trainer: Trainer, ms: float
) -> tuple[list[str], dict[str, float]]:
    """The gathered rows of an epoch and the time of the plain loop, as a note and as facts."""
    threads = cell.threads or context.threads
    tally = epoch_tally(trainer)
    if tally is None:
        return [], {}
    case, seconds = cell.case(threads), tally.seconds(threads)
    widths = ", ".join(f"{width}" for width in sorted({width for _, width in tally.passes}))
    note = f"{case}: an epoch gathers {tally.gathers / 1e6:.3g}M rows of {widths} numbers"
    facts = {f"{case}, gathers": float(tally.gathers)}
    if seconds is None:
        return [f"{note}; there is no C compiler for a plain loop."], facts
    limit = 1e3 * seconds
    facts[f"{case}, gather loop ms"] = limit
    return [f"{note}; a plain loop takes {limit:.3g} ms, {limit / ms:.0%} of the epoch."], facts


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
