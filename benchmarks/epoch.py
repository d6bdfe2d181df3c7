"""One epoch of training: a step of the optimizer and the validation.

`epoch`         SGC, EGC, LGC, DGC and GCN on Cora and Pubmed, compared with the peers
`many`          two runs of LGC at once, in a thread each, compared with one run
`hyper`         hLGC with each gate
`family-epoch`  every linear model compared with LGC, and hop blocks compared with SIGN

A peer is the same model in plain torch, written with care, or PyTorch Geometric's layers as they
come; see :mod:`benchmarks.peers`. Plain torch runs with one thread and with all, and the faster of
both counts; where a case names its threads, both sides have as many. Set-up does not count, on
either side; where nothing is dropped, the model is a linear layer on features that are made once,
and set-up is a figure of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from benchmarks import peers
from benchmarks.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed
from benchmarks.training import Trainer
from hoplite import Graph, TrainingConfig
from hoplite.errors import plural
from hoplite.models import MODELS, LinearModel, model_defaults

OURS = "hoplite"
PEER_SECONDS = 0.1  # a sample of a peer takes at least this, or one epoch
TORCH, ROWS, SIGN = "plain torch", "plain torch, S^k X kept", "SIGN K=2"


@dataclass(frozen=True)
class Case:
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

    def title(self, threads: int) -> str:
        """
        >>> Case("cora", "sgc", 2, dropout=0).title(1)
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


CASES = (
    Case("cora", "lgc", 20, threads=1, ratios={TORCH: 3.5}),
    Case("cora", "lgc", 20, ratios={"TAGConv K=20": 100}),
    Case("cora", "dgc", 100, ms=1.76),
    Case("cora", "sgc", 2),
    Case("cora", "sgc", 2, dropout=0, ratios={ROWS: 2}),
    Case("cora", "gcn", ratios={TORCH: 0.95}),
    Case("pubmed", "sgc", 10, ms=5),
    Case("pubmed", "sgc", 2, dropout=0, ratios={ROWS: 4}),
    Case("pubmed", "sgc", 10, dropout=0, ratios={ROWS: 1}),
    Case("pubmed", "egc", 20, ms=4.5, ratios={TORCH: 3.5}),
    Case("pubmed", "lgc", 20, ms=4.5, ratios={TORCH: 3.5}),
    Case("pubmed", "gcn", ratios={TORCH: 0.95}),
)
# dense X takes seconds an epoch on Pubmed, and so does TAGConv with one thread
QUICK_CASES = tuple(replace(one, layers=one.dataset == "cora" and not one.threads) for one in CASES)
BLOCKS = Case("cora", "blocks", 2, dropout=0, ratios={SIGN: 2.0}, set_up_ratios={SIGN: 1.0})


def run(context: Context) -> Outcome:
    """Time every case, ours in turn with the peers."""
    epochs, effort = (50, Effort(3, 2)) if context.quick else (300, Effort(7, 10))
    return run_cases(context, QUICK_CASES if context.quick else CASES, epochs, effort)


def run_cases(context: Context, cases: Sequence[Case], epochs: int, effort: Effort) -> Outcome:
    """Time these cases, with ``epochs`` of ours in a sample."""
    graphs = {name: context.load(name) for name in {case.dataset: None for case in cases}}
    by_title = {case.title(case.threads or context.threads): case for case in cases}
    figures = []
    for case in by_title.values():  # on one thread, a case and its twin are one
        context.report(f"{case.dataset}, {case.model}")
        figures += run_case(context, case, graphs[case.dataset], epochs, effort)
    missing = peers.find("torch_geometric.nn") is None
    return Outcome(figures, [peers.missing_note("PyTorch Geometric")] * missing)


def run_case(
    context: Context, case: Case, graph: Graph, epochs: int, effort: Effort
) -> list[Figure]:
    """The figures of one case with its peers."""
    data, builders = peers.PeerData(graph), case.rivals()
    torch.manual_seed(0)
    trainer = case.trainer(graph)
    rivals = {name: peer_epoch(build(data)) for name, build in builders.items()}
    figures = _compared(context, case, effort, "", lambda: trainer.epoch(epochs), rivals)
    if not case.dropout:
        set_ups = {
            name: timed(lambda build=build: build(peers.PeerData(graph)).epoch())
            for name, build in builders.items()
        }
        ours = timed(lambda: case.trainer(graph).train(1))
        first = replace(case, ms=None, ratios=case.set_up_ratios)
        figures += _compared(context, first, effort, ": set-up and first epoch", ours, set_ups)
    return figures


def _compared(
    context: Context,
    case: Case,
    effort: Effort,
    what: str,
    ours: Callable[[], float],
    rivals: dict[str, Callable[[], float]],
) -> list[Figure]:
    """Our figure alone, if it has a goal or no peer, and with each peer, the strongest first."""
    threads = case.threads or context.threads
    contestants, titles = [Contestant(OURS, ours)], {}
    for name, sample in rivals.items():
        counts = {threads} if case.threads or not name.startswith(peers.FAST) else {1, threads}
        for count in sorted(counts):
            title = name if len(counts) == 1 else f"{name} ({plural(count, 'thread')})"
            titles.setdefault(name, []).append(title)
            contestants.append(Contestant(title, sample, threads=count))
    samples = context.race(contestants, effort, threads)
    title = f"{case.title(threads)}{what}"
    goals = {name: Goal.ratio_at_least(least) for name, least in case.ratios.items()}
    figures = [
        samples.figure(title, OURS, min(variants, key=samples.median), goals.get(name))
        for name, variants in titles.items()
    ]
    figures.sort(key=lambda figure: figure.ratio or 0.0)
    goal = None if case.ms is None else Goal.at_most(case.ms, "ms")
    return [samples.figure(title, OURS, goal=goal)] * (goal is not None or not rivals) + figures


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


def many(context: Context, hops: int = 20) -> Outcome:
    """Two runs at once against one run on one thread, per run and epoch."""
    epochs, effort = (50, Effort(3, 5)) if context.quick else (500, Effort(9, 20))
    one, two = "one run, 1 thread", "two runs"
    trainer = Trainer(context.load("cora"), "lgc", hops=hops)
    alone = timed(lambda: trainer.train(epochs))
    together = timed(lambda: trainer.train(epochs, seeds=2))
    samples = context.race(
        [
            Contestant(one, lambda: alone() / epochs, threads=1),
            Contestant(two, lambda: together() / (2 * epochs), threads=2),
        ],
        effort,
    )
    case = f"two runs of lgc at once, {hops} hops, 2 threads, per run and epoch"
    return Outcome(
        [samples.figure(case, two, one, goal=Goal.ratio_at_least(1.8))],
        [f"{epochs} epochs without early stopping; the first ones set up what runs share."],
    )


# dataset, gate, epochs of a sample, goal in ms
GATES = (
    ("cora", "node", 20, 250),
    ("cora", "class", 100, 15),
    ("cora", "feature", 20, 120),
    ("citeseer", "feature", 20, 400),
)


def hyper(context: Context, hops: int = 10) -> Outcome:
    """hLGC with each gate; set-up, which hundreds of epochs share in use, does not count."""
    contestants, goals = [], {}
    for dataset, gate, epochs, ms in GATES[:3] if context.quick else GATES:
        epochs = epochs // 5 if context.quick else epochs
        trainer = Trainer(context.load(dataset), "hlgc", gate=gate, hops=hops)
        case = f"{dataset}, hlgc, gate {gate}, {hops} hops"
        goals[case] = Goal.at_most(ms, "ms")
        sample, warm_up = partial(trainer.epoch, epochs), partial(trainer.epoch, 1)
        contestants.append(Contestant(case, sample, warm_up))
    samples = context.race(contestants, Effort(3, 4) if context.quick else Effort(5, 25))
    return Outcome([samples.figure(case, case, goal=goal) for case, goal in goals.items()])


CONSISTENCY: dict[str, Any] = {"dropout": 0.0, "drop_nodes": 0.5, "draws": 3, "consistency": 1.0}


def family(context: Context) -> Outcome:
    """Every linear model, in one race with LGC of as many hops; then hop blocks and SIGN.

    A goal of ``>= 0.5x`` says: at most twice LGC's epoch. A filter per class, and DropNode with
    consistency of three draws, may take five times as long.
    """
    epochs, effort = (10, Effort(3, 3)) if context.quick else (100, Effort(15, 30))
    graph = context.load("cora")
    models = [
        name
        for name, model in MODELS.items()
        if issubclass(model, LinearModel) and not model.source() and name != "lgc"
    ]
    contestants: dict[str, Contestant] = {}

    def add(model: str, what: str, **options: Any) -> str:
        """A contestant with this model, once; its name."""
        name = f"{model}, {options['hops']} hops{what}"
        if name not in contestants:
            trainer = Trainer(graph, model, **options)
            contestants[name] = Contestant(name, lambda: trainer.epoch(epochs))
        return name

    pairs = []
    for model in models:
        options = {"hops": model_defaults(model)["hops"], "dropout": TrainingConfig.dropout}
        least = 0.2 if model == "jacobiconv" else 0.5
        pairs.append((add("lgc", "", **options), add(model, "", **options), least))
    for model in ("ppr", "lgc"):
        hops = model_defaults(model)["hops"]
        plain = add("lgc", ", no dropout", hops=hops, dropout=0.0)
        own = add(model, ", consistency of 3 draws", hops=hops, **CONSISTENCY)
        pairs.append((plain, own, 0.2))
    samples = context.race(list(contestants.values()), effort)
    figures = [
        samples.figure(f"cora, {own}", own, reference, Goal.ratio_at_least(least))
        for reference, own, least in pairs
    ]
    blocks = run_cases(context, [BLOCKS], epochs, effort)
    note = f"a sample is {epochs} epochs; compared with lgc, 0.5x means twice LGC's epoch."
    return Outcome([*figures, *blocks.figures], [note, *blocks.notes])
