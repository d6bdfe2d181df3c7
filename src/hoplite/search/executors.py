"""The workers of a search: threads of this process, processes, or a Dask cluster.

A worker claims a trial, trains it and records it, until every trial of the queue is finished.
Kernels release Python's lock, so threads are the default. Processes are for models that spend their
time in Python, and the search continues if one of them is killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import multiprocessing
import pickle
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hoplite import machine
from hoplite.config import EXECUTORS, check_number
from hoplite.engine.backend import get_num_threads, set_num_threads
from hoplite.errors import ConfigError, HopliteWarning, SearchError, check_choice
from hoplite.files import atomic_write_bytes
from hoplite.io.npz import read_npz, write_npz
from hoplite.models import split_options
from hoplite.search.trials import FinishedTrial, Scores, SearchFile, Trial, TrialQueue
from hoplite.store.cluster import check_wanted, connect
from hoplite.tasks import task_of
from hoplite.training.fit import fit
from hoplite.training.runs import Run, in_threads, wait_for
from hoplite.training.scoring import SCORED, ScoredRun, number
from hoplite.training.sets import node_sets

POLL_SECONDS = 0.25
MAX_DEATHS = 3  # dead processes without a finished trial in between
Check = Callable[[], None]  # called in every epoch; raises to end the training


class Executor(Protocol):
    """Finishes all trials of a queue; ``watch`` is called now and then, and may raise to stop."""

    def run(self, queue: TrialQueue, graph: Any, watch: Check) -> None: ...


def find_executor(name: str, workers: int | None, cluster: str | None) -> Executor:
    """The executor of these arguments; without ``workers`` it uses every core."""
    check_choice("executor", name, EXECUTORS)
    if workers is not None:
        check_number("workers", workers, 1, 1024, whole=True)
    if cluster is not None:
        return Dask(cluster)
    return (Threads if name == "threads" else Processes)(workers or get_num_threads())


@functools.singledispatch
def train_trial(graph: Any, trial: Trial, *, test: bool, check: Check) -> FinishedTrial:
    """Train one trial and score it; only ``test`` reads the test nodes."""
    config, training = split_options(trial.model, trial.options)
    training = dataclasses.replace(training, refit=False)  # it learns from the nodes that compare
    (run,) = fit(
        graph,
        config,
        [Run(training, trial.seed)],
        node_sets(graph),
        task_of(graph.labels),
        score=SCORED if test else ["val"] if training.correct_smooth else [],
        progress=lambda _: check(),
        quiet=True,  # divergence is recorded instead
        final=test,
    )
    scores = scores_of(run, training.monitor)
    return FinishedTrial(trial, scores, number(run.test_accuracy) if test else None, run.seconds)


def scores_of(run: ScoredRun, monitor: str) -> Scores:
    """The scores of a run that a search stores."""
    figure, loss = run.selection_scores
    return Scores(
        score=number(run.task.monitor(monitor).rank(figure)),
        val_accuracy=number(run.selection_accuracy),
        val_loss=number(loss),
        best_epoch=run.best_epoch,
        epochs=run.epochs,
        diverged=run.diverged,
    )


def work(queue: TrialQueue, graph: Any, check: Check) -> None:
    """Train trials that no worker has until all are finished, also those of workers that died."""
    while True:
        claimed = queue.claim()
        if claimed is None:
            if queue.done() == len(queue.ids):
                return
            check()
            time.sleep(POLL_SECONDS)
            continue
        try:
            finished = train_trial(graph, claimed[1], test=queue.test, check=check)
        except BaseException:
            queue.release(claimed[0])
            raise
        queue.record(claimed[0], finished)


class _StopError(Exception):
    """Ends a training whose result is no longer wanted."""


def _until(event: Any) -> Check:
    def check() -> None:
        if event.is_set():
            raise _StopError

    return check


@dataclasses.dataclass(frozen=True)
class Threads:
    """``workers`` threads of this process, which share its cores."""

    workers: int

    def run(self, queue: TrialQueue, graph: Any, watch: Check) -> None:
        workers, stop = min(self.workers, len(queue.ids)), threading.Event()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # here, as filters are of all threads
            in_threads([partial(work, queue, graph, _until(stop))] * workers, workers, watch, stop)


@dataclasses.dataclass(frozen=True)
class Processes:
    """``workers`` processes of this machine, which end when this one does, however it ends."""

    workers: int

    def run(self, queue: TrialQueue, graph: Any, watch: Check) -> None:
        if queue.file.path is None:
            raise ConfigError(
                "executor 'processes' requires out, a folder that the processes share."
            )
        threads = max(1, get_num_threads() // self.workers)
        deaths, done = 0, queue.done()
        with tempfile.TemporaryDirectory(prefix="hoplite-") as folder:  # nobody else's
            path = Path(folder) / "graph"
            atomic_write_bytes(path, pickle.dumps(graph, pickle.HIGHEST_PROTOCOL))
            while done < len(queue.ids):
                try:
                    self._run(queue, path, threads, watch)
                except BrokenProcessPool as error:
                    deaths = deaths + 1 if queue.done() == done else 0
                    if deaths == MAX_DEATHS:
                        raise SearchError(
                            f"workers died {deaths} times before they finished anything, perhaps "
                            f"because there is too little memory for {self.workers} of them; "
                            "finished work is kept, so run it again to resume."
                        ) from error
                done = queue.done()

    def _run(self, queue: TrialQueue, graph: Path, threads: int, watch: Check) -> None:
        assert queue.file.path is not None
        context = multiprocessing.get_context("spawn")
        stop, workers = context.Event(), min(self.workers, len(queue.ids))
        with ProcessPoolExecutor(workers, context, machine.begin_worker, (stop,)) as pool:
            with machine.without_signals("SIGINT"):
                task = threads, graph, queue.file.path, queue.file.facts, queue.ids, queue.test
                futures = [pool.submit(_work, *task) for _ in range(workers)]
            try:
                wait_for(futures, watch)
            finally:
                stop.set()


def _work(
    threads: int, graph: Path, path: Path, facts: dict[str, Any], ids: list[int], test: bool
) -> None:
    """Run in a worker's process."""
    set_num_threads(threads)
    data = pickle.loads(graph.read_bytes())  # the process that started this one wrote it
    with SearchFile(path.parent, facts) as file, contextlib.suppress(_StopError):
        work(TrialQueue(file, ids, test=test), data, _until(machine.stop_event))


@dataclasses.dataclass(frozen=True)
class Dask:
    """The workers of a Dask cluster, which share the search's folder; this process records."""

    address: str

    def run(self, queue: TrialQueue, graph: Any, watch: Check) -> None:
        if queue.file.path is None:
            raise ConfigError("requires out, a folder that all machines share.", "cluster")
        with connect(self.address, queue.file.path.parent, memory=0) as cluster:
            path = cluster.new_file()
            write_npz(path, graph)
            while queue.done() < len(queue.ids):
                claimed = list(iter(queue.claim, None))
                arguments = [(path, graph.loop_weight, trial, queue.test) for _, trial in claimed]
                try:
                    for i, finished in cluster.map(train_remote, arguments, watch):
                        queue.record(claimed[i][0], finished)
                finally:
                    for number, _ in claimed:
                        queue.release(number)
                if not claimed:  # other processes have them
                    watch()
                    time.sleep(POLL_SECONDS)


def train_remote(path: Path, loop_weight: float, trial: Trial, test: bool) -> FinishedTrial:
    """Run on a worker of a cluster: train one trial."""
    graph = _read_graph(path).with_loop_weight(loop_weight)
    return train_trial(graph, trial, test=test, check=check_wanted)


@functools.lru_cache(maxsize=1)
def _read_graph(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # the process that leads has warned
        return read_npz(path)
