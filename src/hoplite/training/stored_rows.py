"""Rows of a hop store as tensors: read ahead chunk by chunk, kept in memory while there is room.

Mini-batches take them in an order that is random, yet read from the disk in long pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from hoplite.errors import ConfigError
from hoplite.memory import release_memory
from hoplite.node_data import StoredHops

FEW_ROWS = 16  # up to one row in so many, single rows are read instead of the whole range
WINDOW = 8  # segments whose rows are shuffled among each other
RANGE_BYTES = 8 * 10**6  # of hop features read at a time where only some of the rows are wanted


class HeldRows:
    """Hop features (hops, rows, d) of some rows, in memory: one chunk."""

    def __init__(self, hops: Tensor) -> None:
        self._hops = hops

    def __len__(self) -> int:
        return self._hops.shape[1]

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        """The rows in order, a chunk at a time, each with the position of its first row."""
        yield 0, self._hops

    def pick(self, rows: Tensor) -> Tensor:
        """Some rows in memory, in the given order, which rises where they come from a store."""
        return self._hops.index_select(1, rows)


class Shelf:
    """What the rows of one store share: which hops, how much at a time, and room to keep some."""

    def __init__(self, store: StoredHops, hops: Sequence[int], chunk_rows: int, room: int) -> None:
        self.store, self.hops, self.chunk_rows = store, list(hops), chunk_rows
        self.reader = ThreadPoolExecutor(1)
        self._room = room

    def take(self, rows: int) -> bool:
        """Whether there is room to keep so many rows more, which is then taken."""
        size = 4 * len(self.hops) * self.store.num_features * rows
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def read(self, nodes: np.ndarray) -> Tensor:
        """Hop features of ``nodes``, in rising order: (hops, nodes, d)."""
        if len(nodes) and nodes[-1] + 1 - nodes[0] == len(nodes):  # a range: without a copy
            return torch.from_numpy(self.store.read(int(nodes[0]), int(nodes[-1]) + 1, self.hops))
        out = np.empty((len(self.hops), len(nodes), self.store.num_features), np.float32)
        row_bytes = 4 * max(out.shape[0] * out.shape[2], 1)
        step = max(1, min(self.chunk_rows, RANGE_BYTES // row_bytes))
        low = 0
        while low < len(nodes):
            first = int(nodes[low])
            high = int(np.searchsorted(nodes, first + step))
            part = nodes[low:high]
            span = int(part[-1]) + 1 - first
            if FEW_ROWS * len(part) < span:
                out[:, low:high] = self.store.rows(part, self.hops)
            else:
                found = self.store.read(first, first + span, self.hops)
                for hop, values in zip(out, found, strict=True):  # without another copy of all
                    np.take(values, part - first, axis=0, out=hop[low:high], mode="clip")
            low = high
        return torch.from_numpy(out)


class StoredRows:
    """The same of some nodes of a store, in rising order."""

    def __init__(self, shelf: Shelf, nodes: np.ndarray) -> None:
        _check_rising(nodes)
        self._shelf, self._nodes = shelf, nodes
        self._kept: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def chunks(self) -> Iterator[tuple[int, Tensor]]:
        release_memory()  # what was freed by other threads, which this one could not use
        step, ahead = self._shelf.chunk_rows, None
        for start in range(0, len(self), step):
            chunk = self._load(start) if ahead is None else ahead.result()
            ahead = None
            if start + step < len(self) and start + step not in self._kept:
                ahead = self._shelf.reader.submit(self._load, start + step)
            yield start, chunk

    def pick(self, rows: Tensor) -> Tensor:
        release_memory()
        wanted, step = rows.numpy(), self._shelf.chunk_rows
        _check_rising(wanted)
        cuts = np.searchsorted(wanted, np.arange(0, len(self) + step, step)).tolist()
        out = torch.empty(len(self._shelf.hops), len(wanted), self._shelf.store.num_features)
        for chunk, (low, high) in enumerate(itertools.pairwise(cuts)):
            if low == high:
                continue
            inside, kept = rows[low:high], self._keep(chunk * step)
            if kept is None:
                out[:, low:high] = self._shelf.read(self._nodes[inside.numpy()])
            else:
                out[:, low:high] = kept.index_select(1, inside - chunk * step)
        return out

    def _load(self, start: int) -> Tensor:
        kept = self._keep(start)
        return self._read(start) if kept is None else kept

    def _keep(self, start: int) -> Tensor | None:
        """A chunk that is kept, or is from now on; None if there is no room for it."""
        if start not in self._kept:
            rows = min(self._shelf.chunk_rows, len(self) - start)
            if not self._shelf.take(rows):
                return None
            self._kept[start] = self._read(start)
        return self._kept[start]

    def _read(self, start: int) -> Tensor:
        return self._shelf.read(self._nodes[start : start + self._shelf.chunk_rows])


def _check_rising(nodes: np.ndarray) -> None:
    if (np.diff(nodes) <= 0).any():
        raise ConfigError("nodes of a store must come in rising order, none twice; sort them.")


def shuffled_windows(
    count: int, batch: int, seed: int, epoch: int
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Positions 0 .. count - 1 in random order: windows, each with its batches.

    The positions are cut into segments of ``batch`` neighbours, the segments shuffled, and the
    rows of every 8 of them shuffled again. A window holds its positions in rising order; every
    position is in one batch of the epoch, and only one batch has fewer than ``batch``.

    >>> for window, batches in shuffled_windows(5, 2, seed=0, epoch=0):
    ...     print(window, [len(batch) for batch in batches])
    [0 1 2 3 4] [2, 2, 1]
    """
    batch = min(batch, count)
    generator = np.random.default_rng([seed, epoch])
    segments = generator.permutation(-(-count // batch))
    for first in range(0, len(segments), WINDOW):
        starts = np.sort(segments[first : first + WINDOW]) * batch
        window = (starts[:, None] + np.arange(batch)).ravel()
        window = window[window < count]
        order = window[generator.permutation(len(window))]
        yield window, [order[i : i + batch] for i in range(0, len(order), batch)]
