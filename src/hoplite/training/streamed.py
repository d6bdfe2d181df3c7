"""Training from a hop store: outputs and gradients of many rows, a few rows at a time.

A model's filtered signal at a row depends on that row's hop features alone, so

    forward     H[tile] = filtered(weights, P[:, tile])               tile by tile; keeps only H
    backward    dL/dw = sum over tiles of (dH[tile]/dw)^T dL/dH[tile]     each tile computed again

are exact with the memory of H (rows x R x m) and of a few tiles. All that follows from H, like
standardisation over all nodes and the loss, is as in memory. Tiles are small enough for the cache;
a thread has tiles of its own, because sharing one would mean waiting for the other at each step.
Their gradients, summed in double precision, are

    linear models    H = (sum_i c_i P_i) Theta;  with G = dL/dH and M = sum_i c_i P_i
                     dTheta = M^T G,  dc_i = <P_i, G Theta^T>
    others           by automatic differentiation

Written out, the gradient of a linear model needs no outputs again, which saves a third of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from hoplite.bases import find_basis
from hoplite.config import TrainingConfig
from hoplite.errors import ConfigError
from hoplite.memory import parse_bytes, release_memory, show_bytes, used_memory
from hoplite.models import Model, Weights
from hoplite.models.alignment import check_stored
from hoplite.node_data import StoredHops
from hoplite.propagation.backend import MOST_THREADS, get_num_threads
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Filter, KnownRows
from hoplite.training.distributed import ALONE, Team
from hoplite.training.stored_rows import WINDOW, HeldRows, Shelf, StoredRows

Worker = Callable[[slice, Tensor], object]  # what is done with the rows of a tile
Total = Callable[[Tensor], Tensor]  # the sum of a tensor over the processes

TILE_BYTES = 3 * 10**6  # of hop features: about the cache of a core
CHUNK_BYTES = 32 * 10**6  # of hop features read at a time
RESERVE = 96 * 10**6  # threads, tiles with their gradients, the allocator's own
BLOCK = 1 << 13  # rows that are summed at a time, so that no copy of the signal is made
SIGNALS = 10  # as large as the outputs: these, their gradients, and what the loss makes of them
COPIES = {"adam": 24, "lbfgs": 224}  # of the weights: the loop's, the threads', 100 pairs


class StoredPropagation:
    """The rows of a hop store that this process of a team has, for one model.

    Parameters
    ----------
    store : the hop features, complete
    model : Model whose hops (at most the store's) are read; SGC reads the last of them alone
    memory : peak of this process, such as ``"4GB"``, the imported libraries included
    team : the processes among which the rows are divided
    training : the settings, some of which decide what there must be room for
    runs : trainings at the same time, at most; fewer if half of the room is too little for them

    Hop features that fit in ``memory`` beside the outputs stay there once they have been read.
    """

    dtype = torch.float32
    stored: ClassVar[Literal[True]] = True

    def __init__(
        self,
        store: StoredHops,
        model: Model,
        *,
        memory: str | int = "4GB",
        team: Team = ALONE,
        training: TrainingConfig | None = None,
        runs: int = 1,
    ) -> None:
        check_stored(store, model.config)
        self.hops, self.num_nodes = model.config.hops, store.num_nodes
        self.basis = find_basis(store.basis)
        self.team = team
        self.first, self.stop = team.shard(store.num_nodes)
        last = model.kept_hops == "last"
        wanted = [self.hops] if last else list(range(model.last_hop + 1))
        row_bytes = 4 * len(wanted) * max(store.num_features, 1)
        self.tile_rows = max(1, TILE_BYTES // row_bytes)
        least = 4 * min(self.tile_rows, 16) * row_bytes
        training = training or TrainingConfig(dropout=0)
        rows = self._most_rows(store, model.config.standardize)
        run_bytes = _run_bytes(model, training, rows, row_bytes)
        room = _room(parse_bytes(memory), run_bytes + least)
        self.runs = team.least(max(1, min(runs, room // (2 * run_bytes))))
        room -= self.runs * run_bytes
        chunk_rows = max(1, min(CHUNK_BYTES, room // 4) // row_bytes)
        self.tile_rows = min(self.tile_rows, chunk_rows)
        spare = room - 3 * chunk_rows * row_bytes  # one in use, one being read, one to pick from
        self._shelf = Shelf(store, wanted, chunk_rows, spare)

    def view(self, nodes: np.ndarray | None = None, *, hops_first: bool = True) -> StoredView:
        """The rows of ``nodes`` (in rising order), or all of this process."""
        if nodes is None:
            return self._all
        return StoredView(self, StoredRows(self._shelf, np.asarray(nodes, np.int64)))

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The threads beside the main one; they start when they are needed."""
        return ThreadPoolExecutor(MOST_THREADS)

    @cached_property
    def _all(self) -> StoredView:
        return StoredView(self, StoredRows(self._shelf, np.arange(self.first, self.stop)))

    def _most_rows(self, store: StoredHops, standardize: bool) -> int:
        """Rows of this process whose outputs are needed at the same time."""
        if standardize:
            return self.stop - self.first
        parts = (store.split.train, store.split.val, store.split.test)
        ends = [np.searchsorted(part, (self.first, self.stop)) for part in parts]
        return max(int(stop - first) for first, stop in ends)


class StoredView:
    """Outputs and gradients at some rows, tile by tile."""

    def __init__(self, owner: StoredPropagation, rows: HeldRows | StoredRows) -> None:
        self._owner, self._rows = owner, rows

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    def evaluate(
        self, model: Filter, weights: dict[str, Tensor], dropout: Dropout | None
    ) -> Tensor:
        """The model's filtered signal on the rows: (rows, R, m), differentiable in the weights."""
        if dropout is not None and dropout.active:
            raise ConfigError("hop features in a store cannot be dropped; set dropout to 0.")
        return _Streamed.apply(self, model, list(weights), *weights.values())  # pyright: ignore[reportReturnType]

    def std_mean(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Deviation and mean over all nodes of the store, of which the team has the rows."""
        return std_mean(values, self._owner.num_nodes, self._owner.team.total)

    def part(self, rows: Tensor, kept_hops: str = "all") -> StoredView:
        """Some of the rows, counted within the view, read into memory."""
        return StoredView(self._owner, HeldRows(self._rows.pick(rows)))

    def each_tile(self, workers: list[Worker]) -> None:
        """Let the workers, a thread each, do all tiles.

        A worker has every so manyth tile of a chunk, so that no sum depends on who is faster.
        """
        step, count = self._owner.tile_rows, len(workers)

        def share(place: int, start: int, chunk: Tensor) -> None:
            for low in range(place * step, chunk.shape[1], count * step):
                high = min(low + step, chunk.shape[1])
                workers[place](slice(start + low, start + high), chunk[:, low:high])

        for start, chunk in self._rows.chunks():
            others = [
                self._owner.pool.submit(copy_context().run, share, place, start, chunk)
                for place in range(1, count)
            ]
            share(0, start, chunk)
            for other in others:
                other.result()


class _Streamed(torch.autograd.Function):
    """The filtered signal of a view as a function of all weights."""

    @staticmethod
    def forward(
        ctx: Any, view: StoredView, model: Filter, names: list[str], *values: Tensor
    ) -> Tensor:
        ctx.view, ctx.model, ctx.names = view, model, names
        ctx.save_for_backward(*values)
        weights = dict(zip(names, values, strict=True))
        signal = values[0].new_empty(view.num_rows, values[0].shape[0], model.num_classes)

        def worker(tiles: Tiles) -> Worker:
            return lambda rows, hops: signal[rows].copy_(tiles.signal(hops))

        with _one_thread_each() as threads:
            view.each_tile([worker(tiles_for(model, weights)) for _ in range(threads)])
        return signal

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weights = dict(zip(ctx.names, ctx.saved_tensors, strict=True))

        def worker(tiles: Tiles) -> Worker:
            return lambda rows, hops: tiles.add_gradient(hops, gradients[0][rows])

        with _one_thread_each() as threads:
            tiles = [tiles_for(ctx.model, weights) for _ in range(threads)]
            ctx.view.each_tile([worker(one) for one in tiles])
        parts = zip(*[one.gradients() for one in tiles], strict=True)
        totals = [torch.stack(part).sum(dim=0) for part in parts]
        return None, None, None, *[total.to(gradients[0].dtype) for total in totals]


class Tiles:
    """One thread's work on tiles (hops, rows, d), for any model that needs hop features alone."""

    def __init__(self, model: Filter, weights: Weights) -> None:
        self._model = model
        self._weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        self._sums = [torch.zeros_like(v, dtype=torch.float64) for v in weights.values()]

    def signal(self, hops: Tensor) -> Tensor:
        """The filtered signal of a tile: (rows, R, m)."""
        with torch.no_grad():  # a new thread has gradients on
            return self._model.filtered(self._weights, KnownRows(hops), None)

    def add_gradient(self, hops: Tensor, outer: Tensor) -> None:
        """Add the weights' gradient at a tile, from that by its signal: (rows, R, m)."""
        with torch.enable_grad():
            inner = (self._model.filtered(self._weights, KnownRows(hops), None) * outer).sum()
        found = torch.autograd.grad(inner, list(self._weights.values()), allow_unused=True)
        for total, gradient in zip(self._sums, found, strict=True):
            if gradient is not None:  # the bias comes later, and some gates need hops
                total += gradient

    def gradients(self) -> list[Tensor]:
        """The sums so far, one per weight."""
        return self._sums


class LinearTiles(Tiles):
    """The same of a linear model, written out; SGC has only its last hop."""

    def __init__(self, model: Filter, weights: Weights) -> None:
        self._weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        with torch.enable_grad():
            every = model.coefficients(self._weights)
            self._learned = None if every is None else every[:, : model.last_hop + 1]
        self._theta = weights["theta"].detach()
        self._by_theta = torch.zeros_like(self._theta, dtype=torch.float64)
        self._coefficients = None if self._learned is None else self._learned.detach()
        shape = () if self._learned is None else self._learned.shape
        self._by_coefficients = torch.zeros(shape, dtype=torch.float64)

    def signal(self, hops: Tensor) -> Tensor:
        return (self._mixed(hops) @ self._theta).transpose(0, 1)

    def add_gradient(self, hops: Tensor, outer: Tensor) -> None:
        by_run = outer.transpose(0, 1)  # (R, rows, m)
        self._by_theta += self._mixed(hops).transpose(1, 2) @ by_run
        if self._coefficients is not None:
            by_mixed = by_run @ self._theta.transpose(1, 2)  # (R, rows, d)
            self._by_coefficients += by_mixed.flatten(1) @ hops.flatten(1).T

    def gradients(self) -> list[Tensor]:
        learned, values = self._learned, list(self._weights.values())
        found = [torch.zeros_like(value) for value in values]
        if learned is not None and learned.requires_grad:
            outer = self._by_coefficients.to(learned.dtype)
            # outer as an argument would make torch import SymPy: a second and 40 MB
            with torch.enable_grad():
                inner = (learned * outer).sum()
            parts = torch.autograd.grad(inner, values, allow_unused=True)
            found = [f if p is None else p for f, p in zip(found, parts, strict=True)]
        names = list(self._weights)
        found[names.index("theta")] = self._by_theta  # which no coefficient depends on
        return found

    def _mixed(self, hops: Tensor) -> Tensor:
        """sum_i c_i P_i of every run: (R or 1, rows, d)."""
        if self._coefficients is None:
            return hops[-1:]
        return torch.tensordot(self._coefficients, hops, dims=1)


def tiles_for(model: Filter, weights: Weights) -> Tiles:
    """What evaluates ``model`` with these weights."""
    if model.linear and not model.gated and not model.map_per_hop:
        return LinearTiles(model, weights)
    return Tiles(model, weights)


def std_mean(values: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor]:
    """Deviation and mean over ``count`` rows in all, (rows, R, m) -> (1, R, m), differentiable.

        mean = sum_r v_r / n,  std^2 = sum_r (v_r - mean)^2 / n

    ``total`` adds up what the processes have; one process has all: ``lambda part: part``.

    >>> std, mean = std_mean(torch.tensor([[[1.0]], [[3.0]]]), 2, lambda part: part)
    >>> float(std), float(mean)
    (1.0, 2.0)
    """
    return _StdMean.apply(values, count, total)  # pyright: ignore[reportReturnType]


class _StdMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor]:
        sums, squares = torch.zeros(2, 1, *values.shape[1:], dtype=torch.float64)
        for block in values.split(BLOCK):
            sums += block.sum(dim=0)
        mean = (total(sums) / count).to(values.dtype)
        for block in values.split(BLOCK):
            squares += (block - mean).square_().sum(dim=0)
        std = (total(squares) / count).sqrt().to(values.dtype)
        ctx.save_for_backward(values, std, mean)
        ctx.count, ctx.total = count, total
        return std, mean

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """dv = dmean / n + dstd (v - mean) / (n std), in one pass: a v + b."""
        values, std, mean = ctx.saved_tensors
        by_std, by_mean = (ctx.total(gradient) / ctx.count for gradient in gradients)
        a = torch.where(std > 0, by_std / std, 0.0)  # a constant column stays one
        return torch.addcmul(by_mean - a * mean, values, a), None, None


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """The number of threads that are set, while every operation uses only its own."""
    workers = get_num_threads()
    torch.set_num_threads(1)
    try:
        yield workers
    finally:
        torch.set_num_threads(workers)


def _run_bytes(model: Model, training: TrainingConfig, rows: int, row_bytes: int) -> int:
    """Memory of one run beside the hop features of all rows."""
    weights = sum(value.numel() for value in model.initial(torch.Generator()).values())
    signals = 4 * SIGNALS * rows * model.num_classes
    # the rows that are shuffled, and a batch of them with what is made of it
    batches = (WINDOW + 4) * min(training.batch, rows) * row_bytes
    if training.optimizer == "lbfgs":
        torch.optim.LBFGS([torch.zeros(1)])  # imports much of torch, which counts as in use
    return signals + batches + 4 * COPIES[training.optimizer] * weights


def _room(memory: int, least: int) -> int:
    """Bytes of ``memory`` that are still free; ConfigError if they are fewer than ``least``."""
    release_memory()
    held = used_memory() + RESERVE
    if memory < held + least:
        enough = -(-int(1.05 * (held + least)) // 10**7) * 10
        raise ConfigError(
            f"memory is {show_bytes(memory)} but this training needs {enough} MB at least, of "
            f"which {show_bytes(held)} are in use before it starts; give --memory {enough}MB or "
            "more."
        )
    return memory - held
