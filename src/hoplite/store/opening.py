"""From what a user names to node data: a hop store, a graph in memory, a graph on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hoplite.config import NAMES
from hoplite.errors import ConfigError, option_name
from hoplite.graph import Graph, GraphData, NodeData
from hoplite.io import load
from hoplite.io.disk_graph import DiskGraph, is_disk_graph
from hoplite.io.extend import extend_tables
from hoplite.io.sources import is_database, is_tables, table_bytes
from hoplite.io.splits import warn_of_unused_seed
from hoplite.io.tables import import_tables
from hoplite.labels import AUTO, check_task, label_type
from hoplite.machine import release_memory, used_memory
from hoplite.preparation import refuse_options
from hoplite.store.files import FILE, GRAPH
from hoplite.store.store import HopStore
from hoplite.structural import log_degrees_of

# Tables in memory take several times the bytes of their files, and the reader of CSV its own.
TABLE_SHARE, READER_BYTES = 16, 128 * 10**6


def open_data(
    source: Any,
    /,
    *,
    seed: int | None = None,
    split: int | None = None,
    structural: int | None = None,
    link: bool = False,
    prepare: Any = None,
    **options: Any,
) -> NodeData:
    """Open node data: a graph, or a hop store that stays on disk.

    Parameters
    ----------
    source : Graph, HopStore, str, path, graph of another library, or pair of data frames
        A hop store or its folder, a graph on disk, or whatever :func:`hoplite.load` accepts.
    seed, split, structural, link, prepare, **options
        As for :func:`hoplite.load`. A graph, a graph on disk and a hop store ignore ``seed``
        (with a warning) and ``prepare``, and accept only ``task`` of the others.

    Returns
    -------
    NodeData
        A :class:`hoplite.Graph` or a :class:`hoplite.HopStore`.

    Examples
    --------
    >>> open_data("cora")
    Graph(nodes=2708, edges=5278, features=1433, classes=7)
    """
    task, folder = check_task(options.get("task")), _folder(source)
    if hasattr(source, "stored"):
        data, name = source, source.name
    elif folder is not None and (folder / FILE).is_file():
        data, name = HopStore.open(folder), source
    elif folder is not None and is_disk_graph(folder):
        data, name = DiskGraph(folder).in_memory(), source
    else:
        options |= {"split": split, "structural": structural, "link": link}
        return load(source, seed=seed, prepare=prepare, **options)
    _refuse(name, {"split": split, "structural": structural, "link": link or None} | options)
    warn_of_unused_seed(data, seed)
    return _for_task(data, task)


def open_extended(
    source: Any, /, *news: Any, seed: int | None = None, prepare: Any = None, **options: Any
) -> tuple[Graph, np.ndarray]:
    """As :func:`open_data`, with the nodes and edges of ``news`` besides; which nodes these name.

    Each of them names its nodes or, if it has none, the ends of its edges. They are added one after
    the other, see :func:`hoplite.io.extend`; of tables, old and new edges are counted as those of
    one table.
    """
    table_options = {} if hasattr(source, "stored") else options
    data = open_data(source, seed=seed, prepare=prepare, **table_options)
    if data.stored is not None:
        raise ConfigError(
            f"{source} is a hop store; first add the nodes to it with "
            f"`hoplite propagate {news[0]} --update --out {source}`, then predict."
        )
    graph, tables = data.in_memory(), table_source(source)
    named, edge_tables = np.empty(0, np.int64), () if tables is None else (tables,)
    for new in news:
        graph, nodes = extend_tables(graph, new, tables=edge_tables, **options)
        named = np.union1d(named, nodes)
        edge_tables = (*edge_tables, new) if edge_tables else ()
    return graph, named


@contextlib.contextmanager
def opened_graph(
    source: Any,
    out: Path,
    budget: int,
    seed: int | None,
    report: Callable[[str, float], None],
    options: dict[str, Any],
) -> Iterator[tuple[GraphData, bool]]:
    """The graph that ``source`` is or names, in memory if that is small and otherwise on disk.

    With it, whether it was loaded into memory here, which is free again afterwards. Tables whose
    store is in ``out`` already are prepared as it says, unless ``options`` say more.
    """
    folder = _folder(source)
    if (out / FILE).is_file() and not options:
        options = {"prepare": HopStore.open(out)}
    if not isinstance(source, str | os.PathLike):
        data: Any = open_data(source, seed=seed, **options)
        yield data.in_memory() if data.stored else data, False
    elif folder is not None and is_disk_graph(folder):
        _refuse(source, {name: value for name, value in options.items() if name != "prepare"})
        graph = DiskGraph(folder)
        _for_task(graph, check_task(options.get("task")))
        warn_of_unused_seed(graph, seed)
        yield graph, False
    elif large_tables(source, budget, options):
        if options.get("structural") is not None:
            raise ConfigError(
                f"is {options['structural']}, but {source} is too large to compute "
                f"such features in memory; increase {option_name('memory')}.",
                "structural",
            )
        if log_degrees_of(options.get("prepare")):
            raise ConfigError(
                f"the model has the feature 'log degree', but {source} is too large to compute it "
                f"in memory; increase {option_name('memory')}."
            )
        import_tables(
            source,
            out / GRAPH,
            memory=budget - used_memory(),
            seed=seed,
            progress=report,
            **options,
        )
        release_memory()
        graph = DiskGraph(out / GRAPH)
        warn_of_unused_seed(graph, seed)
        yield graph, False
    else:
        report(f"loading {source}", 0.0)
        loaded = open_data(source, seed=seed, **options).in_memory()
        release_memory()
        yield loaded, True


def table_source(source: Any) -> Any:
    """``source`` if it names a node and an edge table, in a folder or a database, else None."""
    folder = _folder(source)
    if folder is None:
        return source if is_database(source) else None
    other = (folder / FILE).is_file() or is_disk_graph(folder)
    return folder if is_tables(folder) and not other else None


def large_tables(
    source: Any, budget: int, options: Mapping[str, Any] = MappingProxyType({})
) -> bool:
    """Whether ``source`` names tables that are better imported than loaded."""
    named = [name for name in (options.get("nodes"), options.get("edges")) if name]
    if table_source(source) is None and not named:
        return False
    return TABLE_SHARE * table_bytes(source, named) + READER_BYTES > budget - used_memory()


def _refuse(source: Any, options: dict[str, Any]) -> None:
    """ConfigError if there are ``options`` that a hop store or a graph on disk cannot follow."""
    for name in ("split", "structural", "link"):
        if options.get(name) is not None:
            raise ConfigError(
                f"is {options[name]}, but {source} already has its split and features; "
                "leave it out, or pass the dataset that it was built from.",
                name,
            )
    refuse_options(source, options)


def _for_task(data: NodeData, task: str) -> NodeData:
    """``data`` with labels for ``task``; ConfigError where they are on disk and for another."""
    if isinstance(data, Graph):
        return data.for_task(task)
    there = task if task == AUTO else label_type(data.labels).task
    if there != task:
        raise ConfigError(
            f"is {task!r}, but {data.name} has labels for {there}; leave it out, or build a store "
            f"with {option_name('task', task)}.",
            "task",
        )
    return data


def _folder(source: Any) -> Path | None:
    """The folder that ``source`` names: a known name wins over a folder called the same."""
    if isinstance(source, str) and source.lower().partition(":")[0] in ("", *NAMES):
        return None
    with contextlib.suppress(OSError):  # e.g. a name too long: load reports it
        if isinstance(source, str | os.PathLike) and Path(source).is_dir():
            return Path(source)
    return None
