"""From what the caller names to a Source: in memory if that is small, otherwise on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hoplite.datasets import load
from hoplite.datasets.disk_graph import DiskGraph, is_disk_graph
from hoplite.datasets.load import NAMES
from hoplite.datasets.table_import import import_tables
from hoplite.datasets.table_reader import find_table, has_table, table_bytes
from hoplite.graph import Graph
from hoplite.store.memory import release_memory, used_memory
from hoplite.store.sources import DiskSource, MemorySource, Source
from hoplite.store.store import GRAPH

# Tables in memory take several times the bytes of their files, and the reader of CSV its own.
TABLE_SHARE, READER_BYTES = 16, 128 * 10**6


@contextlib.contextmanager
def opened(
    source: Any, out: Path, budget: int, seed: int, tell: Callable[[str, float], None]
) -> Iterator[Source]:
    """The graph that ``source`` is or names; what was loaded for it is free again afterwards."""
    if isinstance(source, Graph):
        yield MemorySource(source)
    elif isinstance(source, DiskGraph):
        yield DiskSource(source)
    elif _is_folder(source) and is_disk_graph(Path(source)):
        with DiskGraph(source) as graph:
            yield DiskSource(graph)
    elif large_tables(source, budget):
        import_tables(source, out / GRAPH, memory=budget - used_memory(), seed=seed, progress=tell)
        release_memory()
        with DiskGraph(out / GRAPH) as graph:
            yield DiskSource(graph)
    else:
        tell(f"loading {source}", 0.0)
        loaded = MemorySource(load(source, seed=seed), ours=True)
        release_memory()
        yield loaded


def large_tables(source: Any, budget: int) -> bool:
    """Whether ``source`` is a folder of tables that are better imported than loaded."""
    folder = Path(source) if _is_folder(source) else None
    if folder is None or not (has_table(folder, "nodes") and has_table(folder, "edges")):
        return False
    size = sum(table_bytes(find_table(folder, stem)) for stem in ("nodes", "edges"))
    return TABLE_SHARE * size + READER_BYTES > budget - used_memory()


def _is_folder(source: Any) -> bool:
    """Whether ``load`` would take it for a folder: a name wins over a folder called the same."""
    if isinstance(source, str) and source.lower().partition(":")[0] in ("", *NAMES):
        return False
    return isinstance(source, str | Path) and Path(source).is_dir()
