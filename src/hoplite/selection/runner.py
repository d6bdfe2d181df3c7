"""A search: every configuration of a space, several seeds each, as cells of one ledger.

A cell is a batch of runs of one model shape that train together. Workers, processes that may come
and go, take the cells that nobody has yet; this process shows how far they all are.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, GraphError, plural
from hoplite.formatting import printable
from hoplite.graph import Graph
from hoplite.labels import AUTO
from hoplite.models import address_of, find_model
from hoplite.progress import search_bar, watched
from hoplite.selection.cells import CellWork, search_settings, train_on_cluster
from hoplite.selection.ledger import SCREEN, Ledger
from hoplite.selection.ranking import SearchResult, check_protocol, choose, rank
from hoplite.selection.space import read_space, usual_space
from hoplite.selection.workers import LOOK_SECONDS, train_in_processes
from hoplite.store import open_data
from hoplite.tasks import task_of
from hoplite.training.results import as_seeds

log = logging.getLogger("hoplite.search")


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is, for progress bars."""

    done: int  # runs, where some train together as many as their share of the epochs makes
    total: int
    share: float  # of the runs, 0 to 1; 1 only when all are recorded
    running: int  # cells that are being trained, in any process


def search(
    graph: Any,
    model: str | type = "lgc",
    *,
    grid: str | Path | Mapping[str, Any] | None = None,
    out: str | os.PathLike[str],
    protocol: str = "validation",
    seeds: int | Sequence[int] = 5,
    samples: int | None = None,
    sample_seed: int = 0,
    workers: int = 1,
    cluster: str | None = None,
    progress: bool | Callable[[SearchProgress], None] | None = False,
    task: str = AUTO,
    **fixed: Any,
) -> SearchResult:
    """Train a grid (or ``samples`` random draws from a space) and choose by ``protocol``.

    The result has the chosen ``model``; under ``validation`` it is also saved, as ``out/model``.

    The same call on the same ``out`` continues what was interrupted, and one with a larger grid
    trains what is new in it; see :func:`run_search`.
    ``grid`` is a known name, the path of a TOML file, or the options themselves, such as
    ``{"hops": [2, 5], "lr": 0.2}``. Without it it is the paper's, or on other graphs than the
    paper's ``"usual"``.
    ``graph`` is all that ``train`` takes; its ``fixed`` options hold for all configurations.
    ``progress`` is True for a bar on standard error, or in a notebook, or a function to call.
    """
    check_protocol(protocol)
    model = find_model(model).name
    space = None if grid is None else read_space(grid)  # a mistake in it is told before any work
    data = open_data(graph, task=task).in_memory()
    learned = task_of(data.labels)
    if protocol == "test" and not learned.exclusive:
        raise ConfigError(
            f"protocol is 'test', the paper's own way for classes, and these labels are for "
            f"{learned.labels.task}; leave it out."
        )
    name = str(graph) if isinstance(graph, str | os.PathLike) else data.name
    space = space or read_space(usual_space(name))
    if samples is None:
        configurations = space.configurations(name, model, fixed)
    else:
        configurations = space.sample(name, model, samples, sample_seed, fixed)
    log.info(
        "searching %s of %s on %s, in %s",
        plural(len(configurations), "configuration"), model, printable(name), out,
    )  # fmt: skip
    with watched(progress, search_bar, f"{name} {model}") as tell:
        ledger = run_search(
            data, model, configurations, out,
            seeds=seeds, screen=space.screen(name, model, fixed), protocol=protocol,
            workers=workers, cluster=cluster, progress=tell,
        )  # fmt: skip
    result = choose(data, ledger, protocol, cut=space.cut(name, model, fixed))
    result.save_model()
    log.info(
        "chose %s of %s: validation %s %.4f",
        result.best.options, plural(len(result.ranking), "configuration"), result.monitor.name,
        result.monitored(result.best),
    )  # fmt: skip
    return result


def run_search(
    graph: Graph,
    model: str,
    configurations: Sequence[Mapping[str, Any]],
    folder: str | os.PathLike[str],
    *,
    seeds: int | Sequence[int] = 5,
    screen: int | None = None,
    protocol: str = "validation",
    workers: int = 1,
    cluster: str | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
) -> Ledger:
    """Train every configuration with every seed, or continue to, and return the full ledger.

    With ``screen`` in two stages: all configurations with the first seed alone, then, with all
    seeds, the ``screen`` best of them by validation. The ledger that is returned holds only these;
    its :attr:`Ledger.screen` holds the first stage. Nothing else says which they are, so whoever
    continues finds the same ones. Where it would save nothing there is one stage.

    Parameters
    ----------
    graph : with labels and training and validation nodes (and test nodes for ``test``)
    model : the model that all configurations are of
    configurations : options of ``train``, as :meth:`Space.configurations` gives them
    folder : of the ledger; runs that it has are not trained again. It may be that of a search of
        some of the configurations, with the same seeds, in one stage
    screen : configurations that a first stage leaves; None to train all with all seeds
    protocol : with "validation" the test set is not read; "test" records test accuracies too
    workers : processes; with 1 the work is done in this one, with all its threads. In a script,
        more need the usual ``if __name__ == "__main__":``
    cluster : a Dask cluster to train on instead, whose workers share the folder:
        ``tcp://HOST:PORT`` or ``local:N``, see :func:`hoplite.cluster.connect`
    progress : called a few times per second
    """
    check_number("workers", workers, 1, 1024, whole=True)
    test = check_protocol(protocol) == "test"
    check_validated(graph, test)
    if test and any(one.get("refit") for one in configurations):
        raise ConfigError(
            "refit is True and protocol is 'test', which compares models that have learned from "
            "the training labels alone; leave one of them out."
        )
    name, seeds, folder = find_model(model).name, as_seeds(seeds), Path(folder)
    tell = progress or (lambda state: None)
    if screen is not None:
        check_number("screen", screen, 1, whole=True)
    if screen is None or screen >= len(configurations) or len(seeds) == 1:
        settings = search_settings(graph, name, configurations, seeds)
        return _train(graph, Ledger.open(folder, settings), test, workers, cluster, tell)
    settings = search_settings(graph, name, configurations, seeds[:1])
    size, total = len(settings.configurations), len(settings.configurations) + screen * len(seeds)

    def tell_of(before: int) -> Callable[[SearchProgress], None]:
        return lambda state: tell(
            replace(
                state,
                done=before + state.done,
                total=total,
                share=(before + state.share * state.total) / total,
            )
        )

    first = Ledger.open(folder / SCREEN, settings, grows=False)  # the second stage could not
    _train(graph, first, False, workers, cluster, tell_of(0))
    best = sorted(rank(first, "validation")[:screen], key=lambda one: one.position)
    settings = search_settings(graph, name, [one.options for one in best], seeds, screened=size)
    ledger = Ledger.open(folder, settings, grows=False)
    return _train(graph, ledger, test, workers, cluster, tell_of(size))


def _train(
    graph: Graph,
    ledger: Ledger,
    test: bool,
    workers: int,
    cluster: str | None,
    progress: Callable[[SearchProgress], None],
) -> Ledger:
    """Train what a ledger waits for, until nothing is left."""
    settings = ledger.settings
    graph = graph.with_loop_weight(settings.loop_weight)
    work = CellWork(graph, ledger, test, address_of(find_model(settings.model)))

    def look() -> None:
        shares = np.array([ledger.share(cell, test=test) for cell in range(ledger.count)])
        sizes = np.array([len(cell) for cell in settings.cells]) * len(settings.seeds)
        done, total = float(shares @ sizes), int(sizes.sum())
        progress(
            SearchProgress(
                done=int(done),
                total=total,
                share=done / total,
                running=int(((shares > 0) & (shares < 1)).sum()),
            )
        )

    work.tidy()
    look()
    workers = min(workers, len(ledger.waiting(test=test)))
    if cluster is not None and workers:
        train_on_cluster(cluster, work, look)
    elif workers == 1:
        work.work(look)
    elif workers > 1:
        train_in_processes(work, workers, look)
    while ledger.waiting(test=test):  # the rest is in the hands of other processes, or was
        time.sleep(LOOK_SECONDS)
        work.work(look)
        look()
    look()
    return ledger


def check_validated(graph: Graph, test: bool = False) -> None:
    """GraphError unless the split has training and validation nodes (for ``test``, test too)."""
    needed = ("train", "val", "test") if test else ("train", "val")
    for part in needed:
        if not getattr(graph.split, part).size:
            raise GraphError(
                f"the graph's split has no {part} nodes, but this search needs them; mark some."
            )
