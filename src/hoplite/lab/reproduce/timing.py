"""Time per epoch of the chosen models, in turn with one peer that everybody knows.

An epoch is a training step and a pass over the validation nodes; set-up is shared out over the
epochs, as in the paper. Settings are the chosen ones, but for the degree k (or the hidden units):
those are the paper's, so that both sides do the same work. Contestants take turns, so that a busy
moment hits all of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.errors import HopliteWarning
from hoplite.graph import Graph
from hoplite.lab.bench import pyg
from hoplite.lab.bench.measure import Contestant, Effort, Samples, interleave, timed, using_threads
from hoplite.lab.report.paper import epoch_time
from hoplite.lab.reproduce.jobs import Job
from hoplite.peers import find
from hoplite.training.train import train

PEER = "PyTorch Geometric's GCN"  # two GCNConv layers, 16 hidden units
SLOW = ("gat", "hlgc")
TIMED_GATES = (None, "class")  # the paper's experimental section; `hoplite bench` has the others


@dataclass(frozen=True)
class TimingEffort:
    """How much is measured: epochs of a training, of a slow model's, and rounds."""

    epochs: int
    slow_epochs: int
    rounds: int
    peer_epochs: int = 5


FULL = TimingEffort(epochs=200, slow_epochs=50, rounds=7)
QUICK = TimingEffort(epochs=30, slow_epochs=10, rounds=3, peer_epochs=2)


def time_jobs(
    graph: Graph,
    jobs: list[tuple[Job, dict[str, Any]]],
    effort: TimingEffort,
    report: Callable[[str, float], None],
) -> list[dict[str, Any]]:
    """Entries of the results' ``timing`` section for models on one graph."""
    threads = os.cpu_count() or 1
    jobs = [(job, options | _paper_size(job)) for job, options in jobs if job.gate in TIMED_GATES]
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
    nn = find("torch_geometric.nn")
    if nn is not None:
        data = pyg.PygData(graph)
        epoch = pyg.training_epoch(data, pyg.gcn(nn, data))
        rounds = timed(lambda: [epoch() for _ in range(effort.peer_epochs)])
        contestants.append(Contestant(PEER, lambda: rounds() / effort.peer_epochs, epoch))
    with using_threads(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # a run may diverge; its time counts
        samples = interleave(contestants, Effort(effort.rounds, seconds=300.0), report)
    peer = None
    if nn is not None:
        peer = {"name": PEER, "ms_median": 1000 * samples.median(PEER)}
    return [
        {
            "dataset": job.dataset,
            "model": job.model,
            "gate": job.gate,
            "config": options,
            "threads": threads,
            "epochs": epochs[job.name],
            **_quartiles(samples, job.name),
            "peer": peer,
        }
        for job, options in jobs
    ]


def _paper_size(job: Job) -> dict[str, int]:
    """The degree or the hidden units of the paper's table of times."""
    paper = epoch_time(job.model, job.dataset)
    return {} if paper is None else paper.setting


def _quartiles(samples: Samples, name: str) -> dict[str, Any]:
    low, middle, high = np.percentile(1000 * np.array(samples.seconds[name]), [25, 50, 75])
    return {
        "ms_median": float(middle),
        "ms_low": float(low),
        "ms_high": float(high),
        "repeats": samples.rounds,
    }
