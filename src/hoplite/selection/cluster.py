"""The cells of a search on a Dask cluster: a cell is a task, and the ledger says what is done.

The graph goes to the workers by a file in the ledger's folder, which they share.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hoplite.cluster import connect
from hoplite.datasets.npz import read_npz, write_npz
from hoplite.errors import LedgerError
from hoplite.graph import Graph
from hoplite.selection.cells import Task
from hoplite.selection.ledger import Ledger
from hoplite.selection.settings import graph_digest

GRAPH = "graph.npz"


def train_on(where: str, task: Task, look: Callable[[], None]) -> None:
    """Train the cells that nobody has finished on the cluster ``where``."""
    folder = task.folder.absolute()
    if not (folder / GRAPH).exists():
        try:
            write_npz(folder / GRAPH, task.graph)
        except OSError as error:
            raise LedgerError(f"cannot write to {folder}: {error.strerror}.") from error
    arguments = [(str(folder), cell, task.test) for cell in task.waiting()]
    with connect(where, folder, memory=0) as cluster:
        cluster.run(
            f"{__name__}:train_cell", arguments, lambda number, _: look(), lambda number: look()
        )


def train_cell(folder: str, cell: int, test: bool, tell: Callable[[Any], None]) -> None:
    """Run on a worker: train one cell, unless another process has it, or has finished it."""
    settings: dict[str, Any] = {**Ledger.read(folder).settings}
    graph = _graph(folder, settings["graph"])
    Task(graph, settings["model"], Path(folder), settings, test).work_on(cell, lambda: tell(cell))


@functools.lru_cache(maxsize=1)
def _graph(folder: str, digest: str) -> Graph:
    graph = read_npz(Path(folder) / GRAPH)
    if graph_digest(graph) != digest:
        raise LedgerError(f"{Path(folder) / GRAPH} is not the search's graph; delete it.")
    return graph
