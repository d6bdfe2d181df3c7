"""The sections of the results, made from what the jobs found.

Times per epoch are measured here: an epoch is a training step and a pass over the validation nodes;
set-up is shared out over the epochs, as in the paper. Settings are the chosen ones, but for the
degree k (or the hidden units): those are the paper's, so that both sides do the same work.
Contestants, among them the same models by others, take turns, so that a busy moment hits all.
"""

from __future__ import annotations

import datetime
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hoplite.errors import HopliteError, HopliteWarning
from hoplite.filters import frequency_response
from hoplite.graph import Graph
from hoplite.lab.bench import peers
from hoplite.lab.bench.epoch import peer_epoch
from hoplite.lab.bench.measure import Contestant, Effort, interleave, using_threads
from hoplite.lab.machine import Others
from hoplite.lab.paper import epoch_time
from hoplite.lab.reproduce.chosen import CURVES_ON, Job, Seen
from hoplite.lab.results import (
    Accuracy,
    Coefficients,
    LossCurves,
    Peer,
    Response,
    Spectrum,
    Timing,
)
from hoplite.models import MODELS, LinearModel, split_options, without_idle
from hoplite.selection import Ledger, runs_table, train_command
from hoplite.spectrum import spectral_density
from hoplite.training.results import train
from hoplite.version import build

SPECTRUM_POINTS = 201
SLOW = ("gat", "hlgc")
LAYERS = ("gcn",)  # of PyTorch Geometric, timed; those of the linear models take seconds an epoch
TIMED_GATE = "class"  # the paper's experimental section; `hoplite bench` has the others


@dataclass
class Found:
    """What is known of one job: its chosen options, what they gave, its entries of the table."""

    job: Job
    options: dict[str, Any]
    seen: Seen
    entries: list[Accuracy]
    ledger: Ledger | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What all sections say of it."""
        job = self.job
        return {
            "dataset": job.dataset,
            "model": job.model,
            "gate": job.gate,
            "config": self.options,
        }


def accuracy_entry(
    job: Job,
    protocol: str,
    options: dict[str, Any],
    seeds: list[int],
    val: Sequence[float | None],
    test: Sequence[float | None],
    **sizes: Any,
) -> Accuracy:
    """An accuracy from the figures of each seed; ``sizes`` tells of its search."""
    if any(value is None or not math.isfinite(value) for value in (*val, *test)):
        raise HopliteError(
            f"{job.name}: the chosen configuration diverges with one of the seeds {seeds}, so it "
            "has no mean accuracy; give a grid with lower learning rates."
        )
    known, read = np.array(val, np.float64), np.array(test, np.float64)
    return Accuracy(
        protocol=protocol,
        dataset=job.dataset,
        model=job.model,
        gate=job.gate,
        grid=job.grid,
        config=options,
        seeds=seeds,
        val_mean=float(known.mean()),
        val_std=float(known.std()),
        test_mean=float(read.mean()),
        test_std=float(read.std()),
        val=list(val),
        test=list(test),
        command=train_command(job.dataset, job.model, options, len(seeds)),
        date=datetime.date.today().isoformat(),
        hoplite=build(),
        **sizes,
    )


def loss_curves(found: list[Found]) -> list[LossCurves]:
    """Of the first seed, on the one dataset that they are shown for."""
    return [
        LossCurves(
            **one.about,
            seed=one.seen.seeds[0],
            best_epoch=one.seen.best_epoch,
            train_loss=one.seen.curves["train_loss"],
            val_loss=one.seen.curves["val_loss"],
            test_loss=one.seen.curves["test_loss"],
        )
        for one in found
        if one.job.dataset == CURVES_ON and one.seen.coefficients is not None
    ]


def coefficients(found: list[Found]) -> list[Coefficients]:
    """Of the models that learn them: SGC's only coefficient is 1."""
    entries = []
    for one in found:
        known = MODELS[one.job.model]
        fixed = issubclass(known, LinearModel) and known.facts.learned is None
        if one.seen.coefficients is None or fixed:
            continue
        runs = _aligned(one.seen.coefficients.runs)
        if len(runs):
            entries.append(
                Coefficients(
                    **one.about,
                    seeds=one.seen.seeds,
                    mean=runs.mean(axis=0).tolist(),
                    std=runs.std(axis=0).tolist(),
                    runs=runs.tolist(),
                    node_std=one.seen.coefficients.node_std,
                )
            )
    return entries


def spectrum(name: str, graph: Graph, found: list[Found], kept: Spectrum | None = None) -> Spectrum:
    """Density of the operator's eigenvalues, and each learned filter over them, after ``kept``."""
    points, density = spectral_density(graph, "renormalized", SPECTRUM_POINTS)
    responses = list(kept.responses) if kept and kept.points == points.tolist() else []
    for one in found:
        learned = one.seen.coefficients
        if one.job.dataset != name or learned is None:
            continue
        config = split_options(one.job.model, one.options)[0].fitted(graph)
        each = [
            _scaled(frequency_response(c, points, basis=config.basis, operator=config.operator))
            for c in _aligned(learned.runs)
        ]
        if each:
            responses.append(
                Response(
                    model=one.job.model,
                    gate=one.job.gate,
                    config=one.options,
                    mean=np.mean(each, axis=0).tolist(),
                    std=np.std(each, axis=0).tolist(),
                )
            )
    return Spectrum(
        dataset=name,
        operator="renormalized",
        points=points.tolist(),
        density=density.tolist(),
        responses=responses,
    )


def _aligned(runs: Any) -> np.ndarray:
    """The finite runs of (R, k + 1) with the signs that make their sums positive.

    A filter and its negative are one model, as Theta takes the other sign; a mean over seeds that
    fell to either side would say nothing.
    """
    values = np.array(runs, dtype=np.float64)  # None, a value that was not finite, becomes NaN
    values = values[np.isfinite(values).all(axis=1)]
    return values * np.where(values.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def _scaled(response: np.ndarray) -> np.ndarray:
    """The response over its largest size: only shapes can be compared."""
    largest = np.abs(response).max()
    return response / largest if largest > 0 else response


def all_runs(found: list[Found], kept: Path | None = None) -> pa.Table:
    """Every run of every search, after those of other models in the file ``kept``.

    Test accuracies are not among them.
    """
    tables = []
    if kept is not None and kept.exists():
        try:
            table = pq.read_table(kept)
            new = pa.array([*{one.job.model for one in found}])
            tables.append(table.filter(pc.invert(pc.is_in(table["model"], new))))
        except (OSError, KeyError, pa.ArrowException) as error:
            raise HopliteError(f"cannot read {kept}: {error}; delete it to go on.") from error
    for one in found:
        if one.ledger is not None:
            table = runs_table(one.ledger)
            for name in ("model", "dataset"):
                column = pa.array([getattr(one.job, name)] * len(table))
                table = table.add_column(0, name, column)
            tables.append(table)
    return pa.concat_tables(tables, promote_options="default")


@dataclass(frozen=True)
class TimingEffort:
    """How much is measured: epochs of a training, of a slow model's, and rounds."""

    epochs: int
    slow_epochs: int
    rounds: int


FULL = TimingEffort(epochs=200, slow_epochs=50, rounds=7)
QUICK = TimingEffort(epochs=30, slow_epochs=10, rounds=3)


def time_jobs(
    graph: Graph,
    chosen: list[Accuracy],
    effort: TimingEffort,
    report: Callable[[str, float], None],
) -> list[Timing]:
    """Times per epoch of models on one graph, with their chosen options."""
    threads = os.cpu_count() or 1
    gates = {one.model: one.gate for one in chosen}  # any, but the timed one if it is there
    gates |= {one.model: one.gate for one in chosen if one.gate == TIMED_GATE}
    jobs = []
    for one in chosen:
        if one.gate == gates[one.model]:
            job = Job(one.dataset, one.model, one.grid or "", one.gate)
            jobs.append((job, without_idle(job.model, one.config) | _paper_size(job)))
    epochs = {
        job.name: effort.slow_epochs if job.model in SLOW else effort.epochs for job, _ in jobs
    }

    def sample(job: Job, options: dict[str, Any], count: int) -> Callable[[], float]:
        def seconds() -> float:
            run = train(graph, job.model, **{**options, "epochs": count, "patience": count})
            return run.ms_per_epoch / 1000

        return seconds

    contestants = [
        Contestant(
            job.name,
            sample(job, options, epochs[job.name]),
            warm_up=sample(job, options, 2),
        )
        for job, options in jobs
    ]
    data, rivals = peers.PeerData(graph), {job.name: _rivals(job, options) for job, options in jobs}
    for own, builders in rivals.items():
        for name, make in builders.items():
            peer = make(data)
            contestants.append(Contestant(f"{own}: {name}", peer_epoch(peer), warm_up=peer.epoch))
    others = Others()
    with using_threads(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # a run may diverge; its time counts
        samples = interleave(contestants, Effort(effort.rounds, seconds=300.0), report)
    busy = others.share()
    entries = []
    for job, options in jobs:
        low, middle, high = np.percentile(samples.seconds[job.name], [25, 50, 75]).tolist()
        entries.append(
            Timing(
                dataset=job.dataset,
                model=job.model,
                gate=job.gate,
                config=options,
                threads=threads,
                epochs=epochs[job.name],
                ms_median=1000 * middle,
                ms_low=1000 * low,
                ms_high=1000 * high,
                repeats=samples.rounds,
                peers=[
                    Peer(name, 1000 * samples.median(f"{job.name}: {name}"))
                    for name in rivals[job.name]
                ],
                others=busy,
            )
        )
    return entries


def _rivals(job: Job, options: dict[str, Any]) -> dict[str, peers.Build]:
    """The same model by others, by name: in plain torch, and PyTorch Geometric's two layers."""
    size = {name: options[name] for name in ("hops", "hidden") if name in options}
    found = peers.plain(job.model, options["dropout"], **size)
    if job.model in LAYERS:
        layers = peers.layers(job.model, options["dropout"], **size)
        found |= {f"PyTorch Geometric, {name}": build for name, build in layers.items()}
    return found


def _paper_size(job: Job) -> dict[str, int]:
    """The degree or the hidden units of the paper's table of times."""
    paper = epoch_time(job.model, job.dataset)
    return {} if paper is None else paper.setting
