"""``hoplite.search``: every configuration of a space, several seeds each, and the best of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import GRIDS, PROTOCOLS, TrainingConfig, check_number
from hoplite.errors import ConfigError, GraphError, GridError, check_choice, option_name, warn
from hoplite.formatting import printable
from hoplite.graph import Graph
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.reading import is_graph_set, load_graphs
from hoplite.labels import AUTO, warn_of_float_classes
from hoplite.machine import VERSION
from hoplite.models import find_model, split_options
from hoplite.models.settings import DEFAULT_MODEL, address_of, without_idle
from hoplite.progress import search_bar, watched
from hoplite.search.executors import Executor, find_executor
from hoplite.search.graphs import GraphSearchResult, graph_trials
from hoplite.search.results import SearchResult, rank
from hoplite.search.space import read_space
from hoplite.search.trials import FinishedTrial, SearchFile, Trial
from hoplite.store import open_data
from hoplite.tasks import task_of
from hoplite.training.fit import MIN_LABELS
from hoplite.training.results import as_seeds
from hoplite.training.scoring import check_after

log = logging.getLogger("hoplite.search")


@dataclass(frozen=True)
class SearchProgress:
    """The number of finished trials of a search.

    Parameters
    ----------
    done, total : int
        Numbers of finished trials and of all trials.

    Examples
    --------
    >>> SearchProgress(3, 4).share
    0.75
    """

    done: int
    total: int

    @property
    def share(self) -> float:
        """The share of the trials that is done, 0 to 1."""
        return self.done / self.total


def search(
    data: Any,
    model: str | type | None = None,
    *,
    grid: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "default",
    seeds: int | Sequence[int] = 5,
    out: str | os.PathLike[str] | None = None,
    protocol: str = "validation",
    samples: int | None = None,
    sample_seed: int = 0,
    workers: int | None = None,
    executor: str = "threads",
    cluster: str | None = None,
    progress: bool | Callable[[SearchProgress], None] | None = False,
    task: str = AUTO,
    **options: Any,
) -> SearchResult:
    """Train every configuration of a grid with several seeds, and choose the best.

    Parameters
    ----------
    data : Graph, GraphSet, path, or other data that :func:`hoplite.train` accepts
        Not a hop store. A set of graphs is searched with one seed, as its models are solved.
    model : str or type, default "lgc"
        For a set of graphs a family, or "auto", the default: all families of the grid.
    grid : str, path, mapping or list of mappings, default "default"
        A name (``"paper"``, ``"default"``, ...), a TOML file, or the options themselves, such as
        ``{"hops": [2, 5], "lr": 0.2}``. For a set of graphs, a table or mapping for each family:
        ``{"colours": {"depth": [1, 2]}}``; or a list, as for :func:`hoplite.train_graphs`.
    seeds : int or sequence of int, default 5
    out : path, optional
        Folder of the search's file, ``search.sqlite``, and of the chosen ``model``. Trials that the
        file has are not trained again: the same call continues after a crash, several processes may
        share the file, and a larger grid trains only what is new in it.
    protocol : {"validation", "test"}
        ``"test"`` chooses by the test accuracy, as in the paper's appendix; that is optimistic.
    samples, sample_seed : int, optional
        Number of configurations to draw at random instead of training all, and the seed of the
        draw. If the grid has fewer, all of them are trained.
    workers : int, optional
        Trials at a time; by default as many as there are cores.
    executor : {"threads", "processes"}
        Type of the workers. In a script, processes need ``if __name__ == "__main__":``.
    cluster : str, optional
        Train on a Dask cluster instead: ``tcp://HOST:PORT`` or ``local:N``.
    progress : bool or callable
        True for a bar; or called with a :class:`SearchProgress`.
    **options
        Settings of the model and of training that hold for all configurations, whatever the grid
        says.

    Returns
    -------
    SearchResult

    Examples
    --------
    >>> import hoplite
    >>> grid = {"hops": [1, 2], "lr": 0.2}
    >>> result = hoplite.search("cora", "sgc", grid=grid, seeds=1, epochs=5)
    >>> len(result.rows())
    2
    """
    check_choice("protocol", protocol, PROTOCOLS)
    crew, test = find_executor(executor, workers, cluster), protocol == "test"
    result_type: Callable[..., SearchResult] = SearchResult
    screen, cut, seed_list = None, None, [0]
    if is_graph_set(data):
        if cluster is not None or test:
            argument = "protocol" if cluster is None else "cluster"
            raise ConfigError(
                "is only for nodes, but this is a set of graphs; leave it out.", argument
            )
        name = str(model or AUTO)
        trials = graph_trials(name, grid, options)
        if samples is not None:
            check_number("samples", samples, 1, whole=True)
            order = np.random.default_rng(sample_seed).permutation(len(trials))
            trials = [trials[place] for place in sorted(order[:samples])]
        trained = load_graphs(data, task=task)
        result_type, graph = partial(GraphSearchResult, graphs=trained), trained.table
        check_split(graph)
        facts, title = set_facts(trained), f"{trained.name} {name}"
    else:
        family, seed_list = find_model(model or DEFAULT_MODEL), as_seeds(seeds)
        space = read_space(grid)  # mistakes are reported before any work
        graph = trained = open_data(data, task=task).in_memory()
        warn_of_float_classes(graph.labels, task)
        name, dataset = family.name, graph.name
        if isinstance(data, str | os.PathLike):
            dataset = str(data)
        if samples is None:
            configurations = space.configurations(dataset, name, options)
        else:
            configurations = space.sample(dataset, name, samples, sample_seed, options)
            if len(configurations) < samples:
                log.info("the grid has only %d configurations", len(configurations))
        configurations = _checked(graph, name, configurations, protocol)
        # replacing a value of one of Hoplite's own grids is no surprise
        of_grid = () if grid in GRIDS else space.sections.get("any", ())
        for option in sorted(options.keys() & of_grid):
            warn(f"{option_name(option, options[option])} replaces the values of the grid.")
        screen = space.screen(dataset, name, options)
        cut = space.cut(dataset, name, options)
        address = address_of(family)
        trials = [Trial(address, config, seed) for config in configurations for seed in seed_list]
        facts, title = file_facts(graph), f"{dataset} {name}"
    log.info("%d trials of %s", len(trials), printable(title))
    with watched(progress, search_bar, title) as report, SearchFile(out, facts) as file:
        run = partial(run_trials, file, trained, executor=crew, report=report)
        screened, ranked = _run_in_stages(run, trials, screen, test=test)
    result = result_type(
        protocol=protocol,
        name=name,
        graph=graph,
        trials=[*screened, *ranked],
        ranking=rank(ranked, len(seed_list), protocol),
        seeds=seed_list,
        facts=facts,
        cut=cut,
        folder=None if out is None else Path(out),
    )
    if out is not None and not test:
        _ = result.model  # trains and saves it, unless it is saved already
    log.info("chose %s", result.best.options)
    return result


def _run_in_stages(
    run: Callable[..., list[FinishedTrial]], trials: list[Trial], screen: int | None, *, test: bool
) -> tuple[list[FinishedTrial], list[FinishedTrial]]:
    """Trials that were only screened, and those that are ranked.

    All are ranked unless there are more than ``screen`` configurations, and several seeds: then
    those of the ``screen`` configurations that are best with the first seed.
    """
    first = [trial for trial in trials if trial.seed == trials[0].seed]
    if screen is None or screen >= len(first) or len(first) == len(trials):
        return [], run(trials, test=test)
    finished = run(first, total=len(first) + screen * (len(trials) // len(first) - 1))
    best = [configuration.options for configuration in rank(finished, 1)[:screen]]
    ranked = [trial for trial in trials if trial.options in best]
    screened = [screening for screening in finished if screening.trial not in ranked]
    return screened, run(ranked, before=len(screened), test=test)


def run_trials(
    file: SearchFile,
    graph: Any,
    trials: Sequence[Trial],
    executor: Executor,
    report: Callable[[SearchProgress], None] | None = None,
    *,
    test: bool = False,
    before: int = 0,
    total: int | None = None,
) -> list[FinishedTrial]:
    """Train the ``trials`` that ``file`` does not have, and return all with their scores.

    ``before`` and ``total`` are for a progress bar that shows more than these trials.
    """
    queue = file.queue(trials, test=test)

    def watch() -> None:
        if report is not None:
            report(SearchProgress(before + queue.done(), total or before + len(trials)))

    watch()
    if queue.done() < len(trials):
        executor.run(queue, graph, watch)
    watch()
    return [finished for finished in queue.finished() if finished is not None]


def file_facts(graph: Graph) -> dict[str, Any]:
    """The facts in the file of a search: only the same graph and version may continue it."""
    return {"dataset": graph.name, "data": fingerprint(graph), "version": VERSION}


def set_facts(graphs: GraphSet) -> dict[str, Any]:
    """The same for a set of graphs."""
    parts = [fingerprint(part) for part in (graphs.table, *(block for _, block in graphs.blocks()))]
    data = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]
    return {"dataset": graphs.name, "data": data, "version": VERSION}


def full_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of a model to options of ``train``.

    Parameters
    ----------
    model : str
        Name of the model.
    options : mapping
        Options that differ from the defaults.

    Returns
    -------
    dict
        All options of the model.

    Examples
    --------
    >>> full_options("sgc", {"hops": 3})["hops"]
    3
    """
    config, training = split_options(model, dict(options))
    full = without_idle(model, dataclasses.asdict(config) | dataclasses.asdict(training))
    return json.loads(json.dumps(full))  # as they are when they are read from a file


def _checked(
    graph: Graph, model: str, configurations: list[dict[str, Any]], protocol: str
) -> list[dict[str, Any]]:
    """Every configuration in full, once; an error if they cannot be compared on ``graph``."""
    full = [full_options(model, options) for options in configurations]
    full = list({json.dumps(c): c for c in full}.values())  # one basis may have two spellings
    task = task_of(graph.labels)
    check_split(graph, test=protocol == "test")
    if protocol == "test" and not task.exclusive:
        raise ConfigError(
            f"protocol 'test' requires classes, but these are labels for {task.labels.task}; "
            "leave it out."
        )
    check_comparable(full)
    if protocol == "test" and full[0].get("refit"):
        raise ConfigError(
            f"{option_name('refit', True)} cannot be combined with "
            f"{option_name('protocol', 'test')}, which compares models "
            "trained on the training labels only; leave out one of them."
        )
    if any(configuration.get("correct_smooth") for configuration in full):
        check_after(TrainingConfig(correct_smooth=True), task)
    return full


def check_comparable(configurations: Sequence[Mapping[str, Any]]) -> None:
    """GridError unless all full options have one monitor and one refit."""
    for name in ("monitor", "refit"):
        if len({c[name] for c in configurations if name in c}) > 1:
            raise GridError(
                f"{name} has several values, whose validation scores cannot be compared; pass one "
                "value."
            )


def check_split(graph: Graph, *, test: bool = False) -> None:
    """GraphError unless the split has training nodes (for ``test``, the others, too).

    Without validation nodes, folds of the training nodes compare, if these are enough.
    """
    needed = ["train", *(["val"] if len(graph.split.train) < MIN_LABELS else [])]
    for part in ("train", "val", "test") if test else needed:
        if not getattr(graph.split, part).size:
            raise GraphError(
                f"the graph's split has no {part} nodes, which a search requires; "
                "add some to the split."
            )


def fingerprint(graph: Graph) -> str:
    """A digest of everything in the graph that training reads."""
    digest = hashlib.sha256(repr(graph.loop_weight).encode())
    features: Any = graph.features
    matrices = [graph.adjacency, *(relation.adjacency for relation in graph.relations)]
    matrices += [features] if sp.issparse(features) else []
    parts = [part for m in matrices for part in (m.indptr, m.indices, m.data)]
    parts += [] if sp.issparse(features) else [features]
    parts += [graph.labels, graph.split.train, graph.split.val, graph.split.test]
    parts += [np.frombuffer(relation.name.encode(), np.uint8) for relation in graph.relations]
    for part in parts:
        array = np.ascontiguousarray(part)
        if array.dtype.kind in "iu":  # the width of an index does not matter
            array = array.astype(np.int64)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
