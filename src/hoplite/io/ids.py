"""The ids of nodes, next to a graph or hops on disk.

    ids.npy        integers as int64, or text in UTF-8, one after the other,
    id_ends.npy    and where each of the texts ends

Any range of ids is read without the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.io.array_files import NpyRows, growing_npy

IDS, ID_ENDS = "ids.npy", "id_ends.npy"
ROWS = 1 << 16  # ids worked on at a time


class StoredIds(Sequence[Any]):
    """The ids of ``nodes`` nodes in ``folder``, read when they are asked for, a range at a time.

    What is wrong with the files, ``damaged`` turns into the error that is raised.
    """

    def __init__(
        self, folder: Path, nodes: int, *, integers: bool, damaged: Callable[[Exception], Exception]
    ) -> None:
        self._folder, self._nodes, self._damaged = folder, nodes, damaged
        self.integers = integers

    def __len__(self) -> int:
        return self._nodes

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            node = range(self._nodes)[place]
            return self[node : node + 1][0]
        start, stop, step = place.indices(self._nodes)
        if step != 1:
            return [self[node] for node in range(start, stop, step)]
        try:
            return self._read(start, max(start, stop))
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._nodes, ROWS):
            yield from self[start : start + ROWS]

    def _read(self, start: int, stop: int) -> list[Any]:
        kind, shape = (np.int64, (self._nodes,)) if self.integers else (np.uint8, None)
        with NpyRows(self._folder / IDS) as ids:
            if ids.dtype != kind or (shape or ids.shape) != ids.shape:
                raise ValueError(f"{IDS} has type {ids.dtype} and shape {ids.shape}")
            if self.integers:
                return ids.read(start, stop).tolist()
            with NpyRows(self._folder / ID_ENDS) as file:
                if (file.dtype, file.shape) != (np.int64, (self._nodes + 1,)):
                    raise ValueError(f"{ID_ENDS} has type {file.dtype} and shape {file.shape}")
                ends = file.read(start, stop + 1)
            if (np.diff(ends) < 0).any():
                raise ValueError(f"{ID_ENDS} decreases")
            content = ids.read(int(ends[0]), int(ends[-1])).tobytes()
        cuts = (ends - ends[0]).tolist()
        return [content[a:b].decode() for a, b in itertools.pairwise(cuts)]


def write_ids(folder: Path, ids: Iterable[Any], *, integers: bool) -> list[str]:
    """Write ``ids``, as numbers or as text, and return the names of the files."""
    if integers:
        with growing_npy(folder / IDS, np.int64) as append:
            names = map(int, ids)
            while some := list(itertools.islice(names, ROWS)):
                append(np.array(some))
        return [IDS]
    with (
        growing_npy(folder / IDS, np.uint8) as append,
        growing_npy(folder / ID_ENDS, np.int64) as append_ends,
    ):
        append_ends(np.zeros(1, np.int64))
        end, names = 0, map(str, ids)
        while some := [name.encode() for name in itertools.islice(names, ROWS)]:
            append(np.frombuffer(b"".join(some), np.uint8))
            append_ends(end + np.cumsum([len(name) for name in some]))
            end += sum(map(len, some))
    return [IDS, ID_ENDS]


def all_integers(ids: Iterable[Any]) -> bool:
    """Whether the ids are whole numbers that fit 64 bits."""
    if isinstance(ids, StoredIds):
        return ids.integers
    return all(
        isinstance(name, int | np.integer)
        and not isinstance(name, bool)
        and -(2**63) <= name < 2**63
        for name in ids
    )
