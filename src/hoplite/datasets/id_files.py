"""ids.parquet, beside a graph or hops on disk: the ids of the nodes as text, in order."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hoplite.files import atomic_write, open_regular

IDS = "ids.parquet"
SCHEMA = pa.schema([("id", pa.large_string())])
ROWS = 1 << 16  # ids worked on at a time
ID_BYTES = 1 << 12  # most bytes of the file per node, on average
LEAST_BYTES = 1 << 20  # and beside them


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
        self._held: tuple[int, pa.Array] = (-1, pa.array([], pa.large_string()))

    def __len__(self) -> int:
        return self._nodes

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            node = range(self._nodes)[place]
            return self[node : node + 1][0]
        start, stop, step = place.indices(self._nodes)
        if step != 1:
            return [self[node] for node in range(start, stop, step)]
        return self._values(self.text(start, stop))

    def text(self, start: int, stop: int) -> pa.Array:
        """The ids of the nodes from ``start`` to ``stop`` (excluded) as text."""
        found = [pa.array([], pa.large_string())]
        stop = min(stop, self._nodes)
        while start < stop:
            group = bisect.bisect_right(self._starts, start) - 1
            found.append(self._read(group).slice(start - self._starts[group], stop - start))
            start += len(found[-1])
        return pa.concat_arrays(found)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._nodes, ROWS):
            yield from self[start : start + ROWS]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The first node of this id; ValueError if there is none."""
        last = self._nodes if stop is None else stop
        for place, found in enumerate(self):
            if found == value and start <= place < last:
                return place
        raise ValueError(f"{value!r} is no id")

    def _values(self, part: pa.Array) -> list[Any]:
        try:
            return [int(name) for name in part.to_pylist()] if self.integers else part.to_pylist()
        except (TypeError, ValueError) as error:
            raise self._damaged(error) from error

    @cached_property
    def _starts(self) -> list[int]:
        """The first node of every group of rows, and the number of nodes."""
        with self._opened() as file:
            rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            starts = [0, *itertools.accumulate(rows)]
            if not file.schema_arrow.equals(SCHEMA) or starts[-1] != self._nodes:
                raise ValueError(f"it does not hold {self._nodes:,} ids")
            return starts

    def _read(self, group: int) -> pa.Array:
        if self._held[0] != group:
            with self._opened() as file:
                table = file.read_row_group(group, columns=["id"])
                table.validate(full=True)
                column = table["id"].combine_chunks()
                rows = self._starts[group + 1] - self._starts[group]
                if column.null_count or len(column) != rows:
                    raise ValueError("some ids are missing")
                self._held = (group, column)
        return self._held[1]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[parquet.ParquetFile]:
        most = LEAST_BYTES + ID_BYTES * self._nodes
        try:
            with open_regular(self._path, most) as file, parquet.ParquetFile(file) as found:
                yield found
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._damaged(error) from error


def id_pieces(ids: Sequence[Any]) -> Iterator[pa.Array]:
    """The ids as text, :data:`ROWS` at a time."""
    for start in range(0, len(ids), ROWS):
        yield id_text(ids, start, start + ROWS)


def id_text(ids: Sequence[Any], start: int, stop: int) -> pa.Array:
    """The ids of the nodes from ``start`` to ``stop`` (excluded) as text."""
    if isinstance(ids, IdFile | JoinedIds):
        return ids.text(start, stop)
    return pa.array(map(str, ids[start:stop]), pa.large_string())


def write_ids(path: str | os.PathLike[str], ids: Sequence[Any]) -> None:
    """Write ``ids`` as the whole file ``path``."""
    with (
        atomic_write(path) as file,
        parquet.ParquetWriter(file, SCHEMA, compression="zstd") as table,
    ):
        for piece in id_pieces(ids):
            table.write_table(pa.Table.from_arrays([piece], schema=SCHEMA))


def ids_crc32(ids: Sequence[Any]) -> int:
    """CRC-32 of the ids as text, however they are kept.

    >>> ids_crc32(["a", "bc"]) == ids_crc32(["ab", "c"])
    False
    """
    lengths = texts = 0
    for piece in id_pieces(ids):
        _, offsets, content = piece.buffers()
        ends = np.frombuffer(offsets, np.int64)[piece.offset : piece.offset + len(piece) + 1]
        lengths = zlib.crc32(np.diff(ends).data, lengths)
        if content is not None:
            texts = zlib.crc32(memoryview(content)[int(ends[0]) : int(ends[-1])], texts)
    return zlib.crc32(np.array([lengths, texts], np.int64).data)


class JoinedIds(Sequence[Any]):
    """``old`` ids with ``new`` ones (text) behind them, all of them as text.

    >>> ids = JoinedIds([7, 8], pa.array(["x"], pa.large_string()))
    >>> len(ids), ids[1:3], ids[-1]
    (3, ['8', 'x'], 'x')
    """

    def __init__(self, old: Sequence[Any], new: pa.Array) -> None:
        self._old, self._new = old, new

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            node = range(len(self))[place]
            return self.text(node, node + 1)[0].as_py()
        start, stop, step = place.indices(len(self))
        return self.text(start, max(start, stop)).to_pylist()[::step]

    def text(self, start: int, stop: int) -> pa.Array:
        """The ids of the nodes from ``start`` to ``stop`` (excluded)."""
        count = len(self._old)
        first = id_text(self._old, min(start, count), min(stop, count))
        later = max(start - count, 0)
        return pa.concat_arrays([first, self._new.slice(later, max(0, stop - count - later))])


def all_integers(ids: Sequence[Any]) -> bool:
    """Whether the ids are numbers, so that text of theirs may be read as such again."""
    return all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in ids)
