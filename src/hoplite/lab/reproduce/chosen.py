"""Jobs, a model on a dataset each, and their chosen models, trained again and looked at.

One training per job gives its accuracies, loss curves and coefficients. It is kept in a
file of its own, so an interrupted run goes on after it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hoplite import __version__
from hoplite.errors import HopliteError
from hoplite.files import lock, open_lock
from hoplite.graph import Graph
from hoplite.json_files import read_json, write_json
from hoplite.lab.reproduce.gates import gated_coefficients
from hoplite.lab.results import Count, Curve, Share
from hoplite.models import LinearModel
from hoplite.models.trained import TrainedModel
from hoplite.selection.workers import train_in_processes
from hoplite.training.results import Figures, train
from hoplite.training.scoring import number

POLYNOMIAL = ("sgc", "egc", "lgc", "hlgc")
CURVES_ON = "cora"  # the dataset whose loss curves are shown, as in the paper


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
    figures: Figures | None = None  # earlier versions kept none


class Training(Protocol):
    """A training whose result is kept in ``folder / f"{name}.json"``."""

    @property
    def name(self) -> str: ...

    def kept(self, folder: Path) -> Any:
        """What an earlier run kept for the same settings, or None."""
        ...

    def run(self, folder: Path) -> Any:
        """Train, keep the result and return it."""
        ...


@dataclass(frozen=True)
class Examination:
    """The training of a job's chosen options, with what the report shows of it."""

    graph: Graph
    job: Job
    options: dict[str, Any]
    seeds: list[int]

    @property
    def name(self) -> str:
        return self.job.name

    def kept(self, folder: Path) -> Seen | None:
        try:
            found = read_json(folder / f"{self.name}.json", Seen)
        except (OSError, ValueError):
            return None
        same = (found.hoplite, found.config, found.seeds) == (__version__, self.options, self.seeds)
        return found if same else None

    def run(self, folder: Path) -> Seen:
        """Train ``options`` with all seeds, read the test set, and keep what the report shows."""
        graph, job, options, seeds = self.graph, self.job, self.options, self.seeds
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
            figures=result.figures(),
        )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.name}.json", found, indent=None)
        return found


def result_of(task: Training, folder: Path) -> Any:
    """What is kept of a training, or what it gives now."""
    return task.kept(folder) or task.run(folder)


def train_all(
    tasks: Sequence[Training],
    folder: Path,
    workers: int,
    report: Callable[[str, float], None],
) -> Iterator[Any]:
    """The results of all, in their order; what is not kept is trained, in ``workers`` processes.

    ``report`` hears the name of one that is not finished and the share that is.
    """
    work = Trainings(folder, tasks)
    left = work.waiting()
    processes = min(workers, len(left))

    def look() -> None:
        left[:] = [i for i in left if tasks[i].kept(folder) is None]
        if left:
            report(tasks[left[0]].name, 1 - len(left) / len(tasks))

    if processes > 1:
        folder.mkdir(parents=True, exist_ok=True)
        train_in_processes(work, processes, look)
    for task in tasks:
        look()
        yield result_of(task, folder)


@dataclass(frozen=True)
class Trainings:
    """Tasks that processes share: who is at one holds a lock on a file, which ends with it."""

    folder: Path
    tasks: Sequence[Training]

    def waiting(self) -> list[int]:
        """Those that are not finished."""
        return [i for i, task in enumerate(self.tasks) if task.kept(self.folder) is None]

    def work(self) -> None:
        """Train until none is left that nobody has."""
        for index in self.waiting():
            task = self.tasks[index]
            try:
                with self._locked(task) as locked:
                    if locked is not False and task.kept(self.folder) is None:
                        task.run(self.folder)
            except OSError as error:
                raise HopliteError(
                    f"cannot write to {self.folder}: {error.strerror}. What was finished is kept; "
                    "the same command continues."
                ) from error

    def tidy(self) -> None:
        """Remove the locks, and what killed processes left; not what another command is at."""
        for task in self.tasks:
            with self._locked(task) as locked:
                if locked:
                    for left in self.folder.glob(f".{task.name}.json.*tmp"):
                        left.unlink(missing_ok=True)
                    self._lock_of(task).unlink(missing_ok=True)

    def _lock_of(self, task: Training) -> Path:
        return self.folder / f".{task.name}.lock"

    @contextlib.contextmanager
    def _locked(self, task: Training) -> Iterator[bool | None]:
        """Whether the task is this process's alone; None if nobody can know."""
        handle = open_lock(self._lock_of(task))
        try:
            yield lock(handle, wait=False)
        finally:
            os.close(handle)


def hop_coefficients(model: TrainedModel, graph: Graph) -> tuple[np.ndarray, np.ndarray | None]:
    """c_0 .. c_k as they act, (k + 1,): for hLGC the mean of the gated ones, with their spread.

    The mean and spread are over the nodes of the split, and over classes or features where these
    have gates of their own.
    """
    if issubclass(model.config.kind, LinearModel):
        return model.coefficients_, None
    split = graph.split
    nodes = np.concatenate([split.train, split.val, split.test])
    moments = [
        (hop.mean(dtype=np.float64), hop.std(dtype=np.float64))
        for hop in gated_coefficients(model, graph, nodes)
    ]
    means, spreads = np.array(moments).T
    return means, spreads


def _rounded(values: np.ndarray) -> Curve:
    """Six digits are plenty for a plot; what is not finite is left out."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values).tolist()]
