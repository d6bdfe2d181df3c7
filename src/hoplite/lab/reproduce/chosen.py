"""Jobs, a model on a dataset each, and their chosen models, trained again and looked at.

One training per job gives its accuracies, loss curves and coefficients. It is kept in a
file of its own, so an interrupted run goes on after it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hoplite import __version__
from hoplite.errors import HopliteError
from hoplite.files import lock, open_lock
from hoplite.graph import Graph
from hoplite.json_files import read_json, write_json
from hoplite.lab.results import Count, Curve, Share
from hoplite.models import build_model
from hoplite.models.trained import TrainedModel
from hoplite.propagation.engine import Propagation
from hoplite.selection.workers import train_in_processes
from hoplite.training.results import number, train

POLYNOMIAL = ("sgc", "egc", "lgc", "hlgc")
CURVES_ON = "cora"  # the dataset whose loss curves are shown, as in the paper
MODELS_SHARE = 0.8  # of all progress; the rest is timing, spectra and the report


@dataclass(frozen=True)
class Job:
    """One model on one dataset with the grid that it is searched over."""

    dataset: str
    model: str
    grid: str
    gate: str | None = None

    @property
    def name(self) -> str:
        """Of the job's files."""
        return "-".join(part for part in (self.dataset, self.model, self.gate) if part)

    @property
    def fixed(self) -> dict[str, Any]:
        """Options that all of the job's configurations share."""
        return {} if self.gate is None else {"gate": self.gate}


@dataclass(frozen=True)
class Learned:
    """Coefficients of every run, and for hLGC their spread."""

    runs: list[Curve]
    node_std: Curve | None


@dataclass(frozen=True)
class Seen:
    """What a job's training gave, and all that decides it; the file of a job."""

    hoplite: str
    config: dict[str, Any]
    seeds: list[Count]
    val: list[Share | None]
    test: list[Share | None]
    best_epoch: Count
    curves: dict[str, Curve]
    coefficients: Learned | None


def examine(
    graph: Graph, job: Job, options: dict[str, Any], seeds: list[int], folder: Path
) -> Seen:
    """Train ``options`` with all seeds, read the test set, and keep what the report shows."""
    path = folder / f"{job.name}.json"
    kept = _kept(path, options, seeds)
    if kept is not None:
        return kept
    shown = job.dataset == CURVES_ON and job.model in POLYNOMIAL
    result = train(graph, job.model, seeds=seeds, record_test=shown, **options)
    if not np.isfinite([result.val_accuracy, result.test_accuracy]).all():
        raise HopliteError(
            f"{job.name} diverged with the settings {options}; there is nothing to show of it."
        )
    first = result.runs[0]
    names = ("train_loss", "val_loss", "test_loss") if shown else ()
    learned = None
    if job.model in POLYNOMIAL:
        pairs = [hop_coefficients(run.model, graph) for run in result.runs]
        spreads = [spread for _, spread in pairs if spread is not None]
        node_std = _rounded(np.mean(spreads, axis=0)) if spreads else None
        learned = Learned([_rounded(mean) for mean, _ in pairs], node_std)
    found = Seen(
        hoplite=__version__,
        config=options,
        seeds=seeds,
        val=[number(run.val_accuracy) for run in result.runs],
        test=[number(run.test_accuracy) for run in result.runs],
        best_epoch=first.best_epoch,
        curves={name: _rounded(first.history[name]) for name in names},
        coefficients=learned,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, found, indent=None)
    return found


def examine_many(
    graphs: dict[str, Graph],
    tasks: list[tuple[Job, dict[str, Any]]],
    seeds: list[int],
    folder: Path,
    workers: int,
    report: Callable[[str, float], None],
) -> Iterator[tuple[Job, Seen]]:
    """Examine jobs with their options in ``workers`` processes; results come in the jobs' order."""
    work = _Examinations(graphs, tasks, seeds, folder)
    processes = min(workers, len(work.waiting()))

    def look() -> None:
        left = work.waiting()
        if left:
            report(tasks[left[0]][0].name, MODELS_SHARE * (1 - len(left) / len(tasks)))

    if processes > 1:
        folder.mkdir(parents=True, exist_ok=True)
        train_in_processes(work, processes, look)
    for job, options in tasks:
        look()
        yield job, examine(graphs[job.dataset], job, options, seeds, folder)


@dataclass(frozen=True)
class _Examinations:
    """Jobs that processes share: who examines one holds a lock on a file, which ends with it."""

    graphs: dict[str, Graph]
    tasks: list[tuple[Job, dict[str, Any]]]
    seeds: list[int]
    folder: Path

    def waiting(self) -> list[int]:
        """The jobs that are not examined."""
        return [
            index
            for index, (job, options) in enumerate(self.tasks)
            if _kept(self.folder / f"{job.name}.json", options, self.seeds) is None
        ]

    def work(self) -> None:
        """Examine jobs until none is left that nobody has."""
        for index in self.waiting():
            job, options = self.tasks[index]
            try:
                with self._locked(job) as locked:
                    if locked is not False:
                        examine(self.graphs[job.dataset], job, options, self.seeds, self.folder)
            except OSError as error:
                raise HopliteError(
                    f"cannot write to {self.folder}: {error.strerror}. What was finished is kept; "
                    "the same command continues."
                ) from error

    def tidy(self) -> None:
        """Remove the locks, and what killed processes left; not what another command is at."""
        for job, _ in self.tasks:
            with self._locked(job) as locked:
                if locked:
                    for left in self.folder.glob(f".{job.name}.json.*tmp"):
                        left.unlink(missing_ok=True)
                    self._lock_of(job).unlink(missing_ok=True)

    def _lock_of(self, job: Job) -> Path:
        return self.folder / f".{job.name}.lock"

    @contextlib.contextmanager
    def _locked(self, job: Job) -> Iterator[bool | None]:
        """Whether the job is this process's alone; None if nobody can know."""
        handle = open_lock(self._lock_of(job))
        try:
            yield lock(handle, wait=False)
        finally:
            os.close(handle)


def hop_coefficients(model: TrainedModel, graph: Graph) -> tuple[np.ndarray, np.ndarray | None]:
    """c_0 .. c_k as they act, (k + 1,): for hLGC the mean of the gated ones, with their spread.

    The mean and spread are over the nodes of the split (and over classes or features), which for
    the gates on features are all that fits into memory.
    """
    built = build_model(model.config, model.num_features, model.num_classes)
    if not built.gated:
        return model.coefficients_, None
    config, split = model.config, graph.split
    propagation = Propagation(graph, config.operator, config.basis, config.hops)
    nodes = np.concatenate([split.train, split.val, split.test])
    weights = {name: value.unsqueeze(0) for name, value in model.weights.items()}
    hops_first = built.columns == "features"
    view = propagation.view(nodes, hops_first=hops_first)
    found = [
        torch.std_mean(one.double(), correction=0) for one in built.node_coefficients(weights, view)
    ]
    spreads, means = (torch.stack(values).numpy() for values in zip(*found, strict=True))
    return means, spreads


def _kept(path: Path, options: dict[str, Any], seeds: list[int]) -> Seen | None:
    """What an earlier run kept for the same settings; anything else is made again."""
    try:
        found = read_json(path, Seen)
    except (OSError, ValueError):
        return None
    same = (found.hoplite, found.config, found.seeds) == (__version__, options, seeds)
    return found if same else None


def _rounded(values: np.ndarray) -> Curve:
    """Six digits are plenty for a plot; what is not finite is left out."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values).tolist()]
