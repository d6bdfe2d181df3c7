"""ids.npy, next to a graph or hops on disk: the ids of the nodes as text, in order.

It is one array of bytes: the texts in UTF-8, one after the other, then where each of them ends, as
int64. So any range of ids is read without the others.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.io.array_files import NpyRows, growing_npy

IDS = "ids.npy"
ROWS = 1 << 16  # ids worked on at a time


class IdFile(Sequence[Any]):
    """The ids of ``nodes`` nodes in a file, read when they are asked for, some rows at a time.

    ``integers`` says that they are numbers. What is wrong with the file, ``damaged`` turns into the
    error that is raised.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        nodes: int,
        *,
        integers: bool,
        damaged: Callable[[Exception], Exception] = lambda error: ValueError(str(error)),
    ) -> None:
        self.integers = integers
        self._path, self._nodes, self._damaged = Path(path), nodes, damaged

    def __len__(self) -> int:
        return self._nodes

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            node = range(self._nodes)[place]
            return self[node : node + 1][0]
        start, stop, step = place.indices(self._nodes)
        if step != 1:
            return [self[node] for node in range(start, stop, step)]
        texts = self.text(start, stop)
        try:
            return [int(text) for text in texts] if self.integers else texts
        except ValueError as error:
            raise self._damaged(error) from error

    def text(self, start: int, stop: int) -> list[str]:
        """The ids of the nodes from ``start`` to ``stop`` (excluded) as text."""
        if start >= stop:
            return []
        try:
            with NpyRows(self._path) as file:
                size = len(file) - 8 * self._nodes
                if size < 0 or file.dtype != np.uint8 or len(file.shape) != 1:
                    raise ValueError(f"it does not contain {self._nodes:,} ids")
                first = max(start - 1, 0)
                ends = file.read(size + 8 * first, size + 8 * stop).view("<i8")
                ends = ends if start else np.concatenate([[0], ends])
                if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > size:
                    raise ValueError("its ids end outside of it")
                if stop == self._nodes and ends[-1] != size:
                    raise ValueError("it has another length than its ids")
                content = file.read(int(ends[0]), int(ends[-1])).tobytes()
            cuts = (ends - ends[0]).tolist()
            return [content[a:b].decode() for a, b in itertools.pairwise(cuts)]
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._nodes, ROWS):
            yield from self[start : start + ROWS]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The first node of this id; ValueError if there is none."""
        last = self._nodes if stop is None else stop
        found = next((i for i, name in enumerate(self) if name == value and start <= i < last), -1)
        if found < 0:
            raise ValueError(f"{value!r} is not an id")
        return found


def id_pieces(ids: Sequence[Any]) -> Iterator[list[str]]:
    """The ids as text, :data:`ROWS` at a time."""
    for start in range(0, len(ids), ROWS):
        yield id_text(ids, start, start + ROWS)


def id_text(ids: Sequence[Any], start: int, stop: int) -> list[str]:
    """The ids of the nodes from ``start`` to ``stop`` (excluded) as text."""
    if isinstance(ids, IdFile):
        return ids.text(start, min(stop, len(ids)))
    return [str(name) for name in ids[start:stop]]


def write_ids(path: str | os.PathLike[str], ids: Sequence[Any]) -> None:
    """Write ``ids`` as the whole file ``path``."""
    write_id_pieces(path, id_pieces(ids))


def write_id_pieces(path: str | os.PathLike[str], pieces: Iterable[Sequence[Any]]) -> None:
    """As :func:`write_ids`, of ids that come in pieces."""
    with growing_npy(path, np.uint8, ()) as append:
        ends, size = [np.empty(0, np.int64)], 0
        for piece in pieces:
            texts = [str(name).encode() for name in piece]
            ends.append(size + np.cumsum([len(text) for text in texts], dtype=np.int64))
            size = int(ends[-1][-1]) if len(texts) else size
            append(np.frombuffer(b"".join(texts), np.uint8))
        append(np.concatenate(ends).astype("<i8").view(np.uint8))


def all_integers(ids: Sequence[Any]) -> bool:
    """Whether the ids are numbers, so that text of theirs may be read as such again."""
    if isinstance(ids, IdFile):
        return ids.integers
    return all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in ids)
