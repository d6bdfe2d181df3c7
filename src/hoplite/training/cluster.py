"""Training from a hop store on a Dask cluster: every worker sums its own rows.

A step sends the filter, which is small, to the workers, and each returns the sums of its groups of
ranges (:mod:`hoplite.training.stored`), which are added here in their order. So the bits are those
of one process, whatever the number of workers. They keep the rows that they have read; when one is
lost, another reads its rows.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from hoplite.cluster import connect
from hoplite.config import TrainingConfig
from hoplite.engine.evaluation import Order
from hoplite.errors import ConfigError, StoreError
from hoplite.files import atomic_write
from hoplite.memory import parse_bytes
from hoplite.models.base import Weights
from hoplite.models.linear import LinearModel
from hoplite.node_data import StoredHops
from hoplite.store import HopStore
from hoplite.training.stored import (
    HopRows,
    Job,
    RowForm,
    Shelf,
    StoredOrder,
    StoredRows,
    Sums,
    free_room,
    most_rows,
    run_bytes,
)

SEEN_SECONDS = 60.0  # until then a shared folder shows on a worker what was written here


class ClusterRows(HopRows):
    """The rows of a hop store, summed by the workers of a cluster; close it at the end.

    Parameters
    ----------
    store : HopStore
        In a folder that all workers see under the same path.
    model : LinearModel
    where : str
        ``tcp://HOST:PORT`` or ``local:N``, see :func:`hoplite.cluster.connect`.
    memory : str or int, default "4GB"
        Peak of this process, and of every worker.
    training : TrainingConfig, optional
    """

    def __init__(
        self,
        store: StoredHops,
        model: LinearModel,
        where: str,
        *,
        memory: str | int = "4GB",
        training: TrainingConfig | None = None,
    ) -> None:
        training = training or TrainingConfig(dropout=0)
        if not isinstance(model, LinearModel):
            raise ConfigError(
                f"model is {model.name!r} but a cluster trains linear models; leave out cluster."
            )
        if training.batch:
            raise ConfigError(
                f"batch is {training.batch} but a cluster takes all rows in every step; set batch "
                "to 0, or leave out cluster."
            )
        super().__init__(store, model, memory=memory, training=training)
        stack = ExitStack()
        self._cluster = stack.enter_context(connect(where, store.folder, parse_bytes(memory)))
        self.close = weakref.finalize(self, stack.close)  # at the latest when nobody needs it
        size = self._cluster.size
        needed = run_bytes(store, model, training, -(-most_rows(store, model) // size))
        self._memory = parse_bytes(memory), needed
        self._homes: list[str | None] = [None] * size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def order(self, model: LinearModel, nodes: np.ndarray | None = None) -> StoredOrder:
        form, places = RowForm.of(model), self._indices(nodes)
        rows = self._shelf.rows(np.sort(places), form)
        return ClusterOrder(self, rows, places, self._shared(form, nodes))

    def map(self, arguments: list[tuple[Any, ...]]) -> list[list[Sums]]:
        """What :func:`work` gives for each of the arguments, of at most as many as workers."""
        whole = [(*self._memory, *own) for own in arguments]
        return self._cluster.map(f"{__name__}:work", whole, self._homes)

    def _shared(self, form: RowForm, nodes: np.ndarray | None) -> tuple[str, str, str, RowForm]:
        """What workers need to know of the rows; the nodes are in a file."""
        token, path = str(self._cluster.new_file()), ""
        if nodes is not None:
            path = token
            with atomic_write(path) as file:
                np.save(file, np.sort(nodes))
        return str(self._store.folder.absolute()), token, path, form

    def _signal(self, model: LinearModel, weights: Weights, nodes: np.ndarray) -> np.ndarray:
        return self.order(model, nodes).evaluate(model.filter(weights)).values


class ClusterOrder(StoredOrder):
    """The rows of some nodes, on the workers of a cluster."""

    def __init__(
        self,
        source: ClusterRows,
        rows: StoredRows,
        nodes: np.ndarray,
        shared: tuple[str, str, str, RowForm],
    ) -> None:
        super().__init__(rows, nodes)
        self._source, self._shared = source, shared

    def part(self, rows: np.ndarray) -> Order:
        return Order.part(self, rows)

    def _run(self, job: Job) -> Sums:
        shards, ranges = self._rows.shards, self._rows.ranges
        size = min(len(self._source._homes), len(shards))
        ends = [len(shards) * i // size for i in range(size + 1)]
        arguments = []
        for first, last in itertools.pairwise(ends):
            rows = slice(ranges[shards[first].start].start, ranges[shards[last - 1].stop - 1].stop)
            arguments.append((*self._shared, first, last, job.cut(rows)))
        return job.combine(itertools.chain.from_iterable(self._source.map(arguments)))


class _Known:
    """What a worker remembers of the training that it works for."""

    def __init__(self) -> None:
        self.training = ""
        self.shelf: Shelf | None = None
        self.rows: dict[str, StoredRows] = {}


_known = _Known()


def work(
    memory: int,
    needed: int,
    folder: str,
    token: str,
    path: str,
    form: RowForm,
    first: int,
    last: int,
    job: Job,
    tell: Callable[[Any], None],
) -> list[Sums]:
    """Run on a worker: the sums of the groups ``first`` to ``last`` (excluded) of some rows."""
    training = token.rpartition("-")[0]
    if _known.training != training:
        _known.__init__()
        store = HopStore.open(folder)
        room = free_room(store, len(form.hops), memory, needed)
        _known.training, _known.shelf = training, Shelf(store, room, len(form.hops))
    assert _known.shelf is not None
    if token not in _known.rows:
        nodes = _read_nodes(Path(path)) if path else np.arange(_known.shelf.store.num_nodes)
        _known.rows[token] = _known.shelf.rows(nodes, form)
    rows = _known.rows[token]
    return list(rows.results(job, rows.shards[first:last]))


def _read_nodes(path: Path) -> np.ndarray:
    deadline = time.monotonic() + SEEN_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise StoreError(f"{path} does not appear here; check that all machines share it.")
        time.sleep(0.1)
    return np.load(path)
