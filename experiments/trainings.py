"""The runner: trainings of a method on a problem, each kept as a row of one SQLite file.

Every experiment is a list of :class:`Training`; what protocol chooses of them is the experiment's
own. A training that the file has is not repeated, so that a run that was killed goes on, and after
a change of a grid only what is new is trained. Only the process that started the run writes.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import threadpoolctl

import hoplite
from experiments.gates import hop_coefficients
from experiments.problems import PROBLEMS, fingerprint, on_random_split

CORES = os.cpu_count() or 1
CURVES_ON = "cora"  # the dataset whose loss curves are shown, as in the paper
Report = Callable[[str, float], object]  # what is being done, and the share of it that is finished


@dataclass(frozen=True)
class Training:
    """A model with its options on a split of a problem, once per seed.

    Parameters
    ----------
    problem, model : str
    options : dict
        Of ``hoplite.train``.
    seeds : tuple of int
    split : int, default 0
        The number of the problem's split; of a random one, if ``random`` has its sizes.
    reading : dict
        Options of ``hoplite.load``.
    test : bool, default True
        Whether the test nodes are scored. A search leaves them out of the graph.
    details : bool, default False
        Also loss curves and coefficients, for the report; on Cora with the test nodes' curves.
    """

    problem: str
    model: str
    options: dict[str, Any]
    seeds: tuple[int, ...]
    split: int = 0
    reading: dict[str, Any] = field(default_factory=dict)
    random: dict[str, int] = field(default_factory=dict)
    test: bool = True
    details: bool = False

    @property
    def name(self) -> str:
        return f"{self.problem}, {self.model}, split {self.split}"

    @property
    def curves(self) -> bool:
        """Whether the loss of the test nodes is recorded in every epoch."""
        return self.details and self.problem == f"{CURVES_ON}-public"

    def key(self, graphs: Path | None) -> str:
        """The same for the same training of the same version on the same file."""
        path = PROBLEMS[self.problem].path(graphs, self.reading)
        data = "" if path is None else fingerprint(path)
        about = json.dumps([hoplite.__version__, data, asdict(self)], sort_keys=True, default=str)
        return hashlib.sha256(about.encode()).hexdigest()

    def run(self, graphs: Path | None) -> Scores:
        """Train and score."""
        problem = PROBLEMS[self.problem]
        graph = problem.graph(graphs, self.reading, 0 if self.random else self.split)
        if self.random:
            graph = on_random_split(graph, self.split, self.random)
        if not self.test:
            graph = graph.with_split(
                hoplite.Split(graph.split.train, graph.split.val, np.array([], int))
            )
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hoplite.HopliteWarning)  # scores show it
            result = hoplite.train(
                graph, self.model, seeds=self.seeds, record_test=self.curves, **self.options
            )
        baseline = result.baseline() if self.test else None
        return Scores(
            val=[_score(run.val_metrics, problem.score) for run in result.runs],
            loss=[_finite(run.selection_scores[1]) for run in result.runs],
            test=[_score(run.test_metrics, problem.score) for run in result.runs],
            epochs=[run.epochs for run in result.runs],
            seconds=[run.seconds for run in result.runs],
            diverged=sum(run.diverged for run in result.runs),
            cpu_seconds=time.process_time() - started,
            baseline=_score(baseline, problem.score),
            details=_details(result, graph) if self.details else None,
        )


@dataclass(frozen=True)
class Details:
    """What the report shows of a chosen setting; curves are those of the first seed."""

    best_epoch: int
    curves: dict[str, Any]
    coefficients: list[list[float | None]]  # of every seed; empty if there are none
    node_std: list[float | None]  # the spread of gated ones over the nodes


@dataclass(frozen=True)
class Scores:
    """Scores from 0 to 1 and losses of every seed; None if it diverged or was not scored."""

    val: list[float | None]
    loss: list[float | None]
    test: list[float | None]
    epochs: list[int]
    seconds: list[float]
    diverged: int
    cpu_seconds: float
    baseline: float | None = None  # of what knows the training labels alone
    details: Details | None = None


def by_validation(parts: Sequence[Scores]) -> tuple[int, float, float]:
    """The rank of a setting by its trainings, lower is better: the mean score, then the loss."""
    values = [value for one in parts for value in one.val]
    known = [value for value in values if value is not None]
    losses = [np.inf if value is None else value for one in parts for value in one.loss]
    return values.count(None), -round(float(np.mean(known or [0.0])), 9), float(np.mean(losses))


class Trainings:
    """The file of trainings, and the processes that add to it.

    Parameters
    ----------
    path : Path
        The SQLite file.
    graphs : Path, optional
        The folder with the ``.npz`` files of graphs that do not come with Hoplite.
    pool : Executor, optional
        Where trainings run; in this process if None.
    report : function of str and float
    """

    def __init__(
        self,
        path: Path,
        graphs: Path | None = None,
        pool: Executor | None = None,
        report: Report = lambda what, share: None,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.graphs, self.report, self._pool = graphs, report, pool
        self._file = sqlite3.connect(path)
        with self._file:
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS trainings (key PRIMARY KEY, about TEXT, scores TEXT)"
            )

    def run(self, trainings: Sequence[Training]) -> list[Scores]:
        """The scores of all, in their order; what is not kept is trained."""
        keys = [one.key(self.graphs) for one in trainings]
        missing = {
            key: one for key, one in zip(keys, trainings, strict=True) if self._read(key) is None
        }
        for done, (key, scores) in enumerate(self._trained(missing), 1):
            one = missing[key]
            self.report(one.name, 1 - (len(missing) - done) / len(keys))
            row = key, json.dumps(asdict(one), default=str), msgspec.json.encode(scores).decode()
            with self._file:
                self._file.execute("INSERT OR REPLACE INTO trainings VALUES (?, ?, ?)", row)
        found = [self._read(key) for key in keys]
        return [one for one in found if one is not None]

    def _read(self, key: str) -> Scores | None:
        query = "SELECT scores FROM trainings WHERE key = ?"
        row = self._file.execute(query, (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Scores)

    def _trained(self, missing: dict[str, Training]) -> Iterator[tuple[str, Scores]]:
        if self._pool is None:
            for key, one in missing.items():
                self.report(one.name, 0.0)
                yield key, one.run(self.graphs)
            return
        futures: dict[Future[Scores], str] = {
            self._pool.submit(one.run, self.graphs): key for key, one in missing.items()
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


@contextmanager
def opened(path: Path, graphs: Path | None, workers: int, report: Report) -> Iterator[Trainings]:
    """:class:`Trainings` with ``workers`` processes of one thread each."""
    if workers == 1:
        yield Trainings(path, graphs, report=report)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_one_thread)
    try:
        yield Trainings(path, graphs, pool, report)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, which networks import later
    threadpoolctl.threadpool_limits(1)
    hoplite.set_num_threads(1)


def _score(metrics: Any, name: str) -> float | None:
    return None if metrics is None else _finite(metrics[name])


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _rounded(values: Any) -> list[float | None]:
    """Six digits are plenty for a plot; None for what is not finite."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values).tolist()]


def _details(result: hoplite.TrainingResult, graph: hoplite.Graph) -> Details:
    pairs = [hop_coefficients(run.model, graph) for run in result.runs if run.best_epoch]
    learned = [pair for pair in pairs if pair is not None]
    spreads = [spread for _, spread in learned if spread is not None]
    first = result.runs[0]
    names = ("train_loss", "val_loss", "test_loss")
    return Details(
        best_epoch=first.best_epoch,
        curves={name: _rounded(first.history[name]) for name in names if name in first.history},
        coefficients=[_rounded(mean) for mean, _ in learned],
        node_std=_rounded(np.mean(spreads, axis=0)) if spreads else [],
    )
