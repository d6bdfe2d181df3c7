"""Training from a hop store on a Dask cluster: every worker sums its own rows.

A step sends the filter, which is small, to the workers, and each returns the sums of its groups of
ranges (:mod:`hoplite.training.stored`), which are added here in order. So the bits are those of one
process, for any number of workers. Workers keep the rows that they have read. If a worker is lost,
Dask computes its :class:`Share` on another worker, which reads the rows again.
"""

from __future__ import annotations

import itertools
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.evaluation import Order
from hoplite.errors import ConfigError, StoreError
from hoplite.files import atomic_write
from hoplite.graph import StoredHops
from hoplite.machine import parse_bytes
from hoplite.models.base import Weights
from hoplite.models.linear import LinearModel
from hoplite.store import HopStore
from hoplite.store.cluster import Cluster, connect, wait_until
from hoplite.training.stored import (
    HopRows,
    Job,
    RowForm,
    Shelf,
    StoredOrder,
    StoredRows,
    Sums,
    free_room,
    max_rows,
    run_bytes,
)

SHARED_SECONDS = 60.0  # maximum delay until a worker sees files written here


class ClusterRows(HopRows):
    """The rows of a hop store, summed by the workers of a cluster; close it at the end.

    Parameters
    ----------
    store : HopStore
        In a folder that all workers can read under the same path.
    model : LinearModel
    training : TrainingConfig
    where : str
        ``tcp://HOST:PORT`` or ``local:N``, see :func:`hoplite.store.cluster.connect`.
    memory : str or int, default "4GB"
        Memory limit of this process and of each worker.
    """

    def __init__(
        self,
        store: StoredHops,
        model: LinearModel,
        training: TrainingConfig,
        where: str,
        *,
        memory: str | int = "4GB",
    ) -> None:
        if not isinstance(model, LinearModel):
            raise ConfigError(
                f"is {model.name!r} but a cluster only trains linear models; leave out cluster.",
                "model",
            )
        if training.batch:
            raise ConfigError(
                f"is {training.batch} but a cluster uses all rows in every step; set batch "
                "to 0, or leave out cluster.",
                "batch",
            )
        super().__init__(store, model, training, memory=memory)
        stack, budget = ExitStack(), parse_bytes(memory)
        self._cluster = stack.enter_context(connect(where, store.folder, budget))
        self.close = weakref.finalize(self, stack.close)  # also if it is never called
        rows = -(-max_rows(store, model) // self._cluster.size)
        self._memory = budget, run_bytes(store, model, training, rows)

    def order(self, model: LinearModel, nodes: np.ndarray | None = None) -> StoredOrder:
        form, places = RowForm.of(model), self._indices(nodes)
        path = self._cluster.new_file()
        if nodes is not None:
            with atomic_write(path) as file:
                np.save(file, np.sort(nodes))
        folder, is_part = str(self._store.folder.absolute()), nodes is not None
        facts = folder, str(path), is_part, *self._memory, form
        return ClusterOrder(self._cluster, self._shelf.rows(np.sort(places), form), places, facts)

    def _signal(self, model: LinearModel, weights: Weights, nodes: np.ndarray) -> np.ndarray:
        return self.order(model, nodes).evaluate(model.filter(weights)).values


class ClusterOrder(StoredOrder):
    """The rows of some nodes, on the workers of a cluster; ``facts`` are those of a Share."""

    def __init__(
        self, cluster: Cluster, rows: StoredRows, nodes: np.ndarray, facts: tuple[Any, ...]
    ) -> None:
        super().__init__(rows, nodes)
        self._cluster, shards, ranges = cluster, rows.shards, rows.ranges
        size = min(cluster.size, len(shards))
        ends = [len(shards) * i // size for i in range(size + 1)] if size else []
        self._shares: list[tuple[slice, Any]] = []  # the rows, and a future of the Share
        for first, last in itertools.pairwise(ends):
            part = slice(ranges[shards[first].start].start, ranges[shards[last - 1].stop - 1].stop)
            self._shares.append((part, cluster.submit(Share, *facts, first, last)))

    def part(self, rows: np.ndarray) -> Order:
        return Order.part(self, rows)

    def _run(self, job: Job) -> Sums:
        futures = [
            self._cluster.submit(sum_share, share, job.cut(part)) for part, share in self._shares
        ]
        results = dict(self._cluster.results(futures))
        return job.combine(itertools.chain.from_iterable(results[i] for i in range(len(futures))))


@dataclass(frozen=True)
class Share:
    """The groups ``first`` to ``last`` (excluded) of some rows, in the memory of a worker.

    ``path`` identifies the rows; if these are not all nodes, it is a file with their indices.
    ``memory`` is the memory limit of the worker in bytes, and ``needed`` what training needs of it.
    """

    folder: str
    path: str
    is_part: bool
    memory: int
    needed: int
    form: RowForm
    first: int
    last: int

    def __sizeof__(self) -> int:
        return 1 << 30  # so that Dask does not move it: the rows are in the worker's memory

    def rows(self) -> StoredRows:
        """The rows, which this worker keeps between calls."""
        training = self.path.rpartition("-")[0]
        if training not in _shelves:
            _shelves.clear()
            _rows.clear()
            store, hops = HopStore.open(self.folder), len(self.form.hops)
            _shelves[training] = Shelf(
                store, free_room(store, hops, self.memory, self.needed), hops
            )
        if self.path not in _rows:
            shelf = _shelves[training]
            nodes = self._nodes() if self.is_part else np.arange(shelf.store.num_nodes)
            _rows[self.path] = shelf.rows(nodes, self.form)
        return _rows[self.path]

    def _nodes(self) -> np.ndarray:
        if not wait_until(Path(self.path).exists, SHARED_SECONDS):
            raise StoreError(
                f"{self.path} did not appear; check that all machines share this folder."
            )
        return np.load(self.path)


# on a worker: the store of the current training, and its rows by path
_shelves: dict[str, Shelf] = {}
_rows: dict[str, StoredRows] = {}


def sum_share(share: Share, job: Job) -> list[Sums]:
    """Run on a worker: the sums of the groups of ``share``."""
    rows = share.rows()
    return list(rows.results(job, rows.shards[share.first : share.last]))
