"""A search: every configuration of a space, several seeds each, as cells of one ledger.

A cell is a batch of runs of one model shape that train together. Workers, processes that may come
and go, take the cells that nobody has yet; this process shows how far they all are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import check_number, split_options
from hoplite.errors import ConfigError, GraphError, HopliteError, HopliteWarning, LedgerError
from hoplite.graph import Graph
from hoplite.models import build_model
from hoplite.propagation.backend import set_num_threads
from hoplite.propagation.engine import Propagation
from hoplite.selection.ledger import Claim, Ledger
from hoplite.selection.protocol import check_protocol
from hoplite.training.loop import fit_runs
from hoplite.training.runs import Run, node_sets, run_bytes
from hoplite.training.train import as_seeds, scored_run

CELL_RUNS = 45  # at most: more hardly train faster, and a crash costs less
CELL_BYTES = 2**30
LOOK_SECONDS = 0.25  # between two looks at the workers


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is, for progress bars."""

    done: int  # runs recorded
    total: int
    share: float  # of the work, 0 to 1, with what is being trained
    running: int  # cells that are being trained, in any process


def run_search(
    graph: Graph,
    model: str,
    configurations: Sequence[Mapping[str, Any]],
    folder: str | os.PathLike[str],
    *,
    seeds: int | Sequence[int] = 5,
    protocol: str = "validation",
    workers: int = 1,
    cluster: str | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
) -> Ledger:
    """Train every configuration with every seed, or continue to, and return the full ledger.

    Parameters
    ----------
    graph : with labels and training and validation nodes (and test nodes for ``test``)
    model : the model that all configurations are of
    configurations : options of ``train``, as :meth:`Space.configurations` gives them
    folder : of the ledger; runs that it has are not trained again
    protocol : with "validation" the test set is not read; "test" records test accuracies too
    workers : processes; with 1 the work is done in this one, with all its threads. In a script,
        more need the usual ``if __name__ == "__main__":``
    cluster : a Dask cluster to train on instead, whose workers share the folder:
        ``tcp://HOST:PORT`` or ``local:N``, see :func:`hoplite.cluster.connect`
    progress : called a few times per second
    """
    check_number("workers", workers, 1, 1024, whole=True)
    test = check_protocol(protocol) == "test"
    _check_split(graph, test)
    settings = _settings(graph, model, configurations, as_seeds(seeds))
    ledger = Ledger.open(folder, settings)
    task = Task(graph, model, Path(folder), settings, test)
    weights = task.cell_weights()

    def look() -> None:
        shares = np.array([ledger.share(cell, test=test) for cell in range(ledger.count)])
        sizes = np.array([len(cell) for cell in settings["cells"]]) * len(settings["seeds"])
        if progress is not None:
            progress(
                SearchProgress(
                    done=int(sizes[shares == 1].sum()),
                    total=int(sizes.sum()),
                    share=float(shares @ weights / weights.sum()),
                    running=int(((shares > 0) & (shares < 1)).sum()),
                )
            )

    ledger.tidy(test=test)
    look()
    workers = min(workers, len(ledger.waiting(test=test)))
    if cluster is not None and workers:
        from hoplite.selection.cluster import train_on  # which imports this file

        train_on(cluster, task, look)
    elif workers == 1:
        task.work(look)
    elif workers > 1:
        _run_workers(task, workers, look)
    while ledger.waiting(test=test):  # the rest is in the hands of other processes, or was
        time.sleep(LOOK_SECONDS)
        task.work(look)
        look()
    look()
    return ledger


@dataclass(frozen=True)
class Task:
    """What a worker needs to know; it travels to the worker's process."""

    graph: Graph
    model: str
    folder: Path
    settings: dict[str, Any]
    test: bool

    def work(self, look: Callable[[], None] | None = None) -> None:
        """Train cells until none is left that nobody has."""
        for cell in self.waiting():
            self.work_on(cell, look)

    def waiting(self) -> list[int]:
        """The cells that are not finished, those that take longest first."""
        weights, ledger = self.cell_weights(), Ledger(self.folder, self.settings)
        return sorted(ledger.waiting(test=self.test), key=lambda cell: -weights[cell])

    def work_on(self, cell: int, look: Callable[[], None] | None = None) -> None:
        """Train one cell, unless another process has it, or has finished it."""
        ledger = Ledger(self.folder, self.settings)
        with ledger.claim(cell) as claim:
            if claim is not None and not ledger.has(cell, test=self.test):
                self._train(ledger, cell, claim, look)

    def _train(
        self, ledger: Ledger, cell: int, claim: Claim, look: Callable[[], None] | None
    ) -> None:
        started = time.process_time()  # on a shared machine, waiting is not work
        positions = self.settings["cells"][cell]
        seeds = self.settings["seeds"]
        both = [self._configs(position) for position in positions]
        config = both[0][0]
        runs = [Run(training, seed) for _, training in both for seed in seeds]
        model = build_model(config, self.graph.num_features, self.graph.num_classes)
        propagation = Propagation(self.graph, config.operator, config.basis, config.hops)
        parts = node_sets(self.graph)
        parent, last_look = multiprocessing.parent_process(), 0.0

        def note(state: Any) -> None:
            nonlocal last_look
            if time.perf_counter() - last_look > LOOK_SECONDS:
                last_look = time.perf_counter()
                claim.note(min(0.999, max(0.001, state.done / state.total)))
                if look is not None:
                    look()
                if parent is not None and not parent.is_alive():  # killed: nobody waits for us
                    os._exit(1)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # divergence is recorded instead
            results = fit_runs(
                model, propagation, runs, parts["train"], parts["val"], progress=note
            )
        found = []
        for i, result in enumerate(results):
            best = result.best_epoch - 1
            loss = float(result.history["val_loss"][best])
            record = {
                "configuration": positions[i // len(seeds)],
                "seed": result.run.seed,
                "val_accuracy": result.val_accuracy,
                "val_loss": loss if np.isfinite(loss) else None,
                "best_epoch": result.best_epoch,
                "epochs": result.epochs,
                "diverged": result.diverged,
                "seconds": result.seconds,
            }
            if self.test:
                scored = scored_run(self.graph, config, result, propagation, parts["test"])
                record["test_accuracy"] = scored.test_accuracy
            found.append(record)
        ledger.record(cell, found, time.process_time() - started)

    def cell_weights(self) -> np.ndarray:
        """About how the cells' costs compare, for the order and the time left."""
        costs = []
        for cell in self.settings["cells"]:
            config, training = self._configs(cell[0])
            hops = config.hidden if config.model in ("gcn", "gat") else config.hops
            per_run = (20 + hops) * (3 if training.dropout else 1)
            costs.append(len(cell) * per_run)
        return np.array(costs, dtype=np.float64)

    def _configs(self, position: int) -> Any:
        return split_options(self.model, self.settings["configurations"][position])


def _run_workers(task: Task, workers: int, look: Callable[[], None]) -> None:
    context = multiprocessing.get_context("spawn")  # a fork would inherit OpenMP's dead threads
    threads = max(1, (os.cpu_count() or 1) // workers)
    processes = [
        context.Process(target=_worker, args=(task, threads), daemon=True) for _ in range(workers)
    ]
    try:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            time.sleep(LOOK_SECONDS)
            look()
    finally:
        started = [process for process in processes if process.pid is not None]
        for process in started:
            process.terminate()  # all of them before waiting for any; the finished do not mind
        for process in started:
            process.join()
    codes = [process.exitcode for process in processes if process.exitcode]
    if codes:
        raise LedgerError(
            f"{len(codes)} of {workers} workers ended early (exit code {codes[0]}); what was "
            f"finished is in {task.folder}, and the same command continues."
        )


def _worker(task: Task, threads: int) -> None:
    set_num_threads(threads)
    try:
        task.work()
    except KeyboardInterrupt:
        os._exit(130)  # the process that started this one says so
    except HopliteError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def _settings(
    graph: Graph, model: str, configurations: Sequence[Mapping[str, Any]], seeds: list[int]
) -> dict[str, Any]:
    """Everything that decides the results, as plain JSON values."""
    from hoplite import __version__

    if not configurations:
        raise ConfigError("configurations is empty; give at least one.")
    full = [full_options(model, options) for options in configurations]
    return {
        "hoplite": __version__,
        "dataset": graph.name,
        "graph": graph_digest(graph),
        "model": model,
        "seeds": seeds,
        "configurations": full,
        "cells": _cells(graph, model, full, len(seeds)),
    }


def full_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of ``train`` with all that were left out at their defaults."""
    config, training = split_options(model, dict(options))
    full = dataclasses.asdict(config) | dataclasses.asdict(training)
    del full["model"]
    return full


def _cells(
    graph: Graph, model: str, configurations: list[dict[str, Any]], seeds: int
) -> list[list[int]]:
    """Positions of the configurations that train together: of one shape, not too many."""
    groups: dict[Any, list[int]] = {}
    for position, options in enumerate(configurations):
        config, training = split_options(model, options)
        together = dataclasses.replace(training, lr=1.0, weight_decay=0.0, dropout=0.0)
        groups.setdefault((config, together, training.dropout == 0), []).append(position)
    cells = []
    for (config, training, _), positions in groups.items():
        shape = build_model(config, graph.num_features, graph.num_classes)
        propagation = Propagation(graph, config.operator, config.basis, config.hops)
        most = min(CELL_RUNS, CELL_BYTES // run_bytes(shape, propagation))
        if training.optimizer == "lbfgs" or model == "gat":  # these train one after the other
            most = 1
        step = max(1, most // seeds)
        cells += [positions[i : i + step] for i in range(0, len(positions), step)]
    return cells


def graph_digest(graph: Graph) -> str:
    """A fingerprint of everything in the graph that training reads."""
    features: Any = graph.features
    digest = hashlib.sha256()
    parts = [graph.adjacency.indptr, graph.adjacency.indices, graph.adjacency.data]
    if sp.issparse(features):
        parts += [features.indptr, features.indices, features.data]
    else:
        parts.append(np.asarray(features))
    parts += [graph.labels, graph.split.train, graph.split.val, graph.split.test]
    for part in parts:
        array = np.ascontiguousarray(part)
        if array.dtype.kind in "iu":  # the width of an index is no difference
            array = array.astype(np.int64)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _check_split(graph: Graph, test: bool) -> None:
    needed = ("train", "val", "test") if test else ("train", "val")
    for part in needed:
        if not getattr(graph.split, part).size:
            raise GraphError(
                f"the graph's split has no {part} nodes, but this search needs them; mark some."
            )
