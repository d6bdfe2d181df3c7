"""An external sort of edges into a symmetric CSR matrix, in memory that does not grow with them.

1. Edges go to buckets (files) by the range that their source is in, in the order they come.
2. Bucket by bucket, repeated edges are merged: F, the rows of the directed matrix. Its transpose
   goes to buckets by target.
3. Bucket by bucket, A = max(F, F^T), without the diagonal.

A bucket that turned out too large is cut again. Every step is SciPy's on the same rows in the same
order as ``Graph.from_edges``, so the numbers are its numbers, to the bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.csr import index_type, row_ranges
from hoplite.errors import DatasetError
from hoplite.io.array_files import CsrFiles, growing_csr

BUCKETS = 64
LEAST_BUCKET = 1 << 16  # bytes; smaller files are not worth their names
WORK = 16  # bytes of memory per byte of a bucket while it is merged


class Buckets:
    """Files of (row, column, value) records, one for each of some ranges of rows."""

    def __init__(self, folder: Path, start: int, stop: int, nodes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        kind = index_type(nodes)
        self.record = np.dtype([("row", kind), ("column", kind), ("value", np.float32)])
        self._folder = folder
        count = min(BUCKETS, stop - start)
        self._cuts = start + (stop - start) * np.arange(count + 1, dtype=np.int64) // max(count, 1)

    def add(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Append records, keeping the order of those that fall into one bucket."""
        records = np.empty(len(rows), self.record)
        records["row"], records["column"], records["value"] = rows, columns, values
        self.add_records(records)

    def add_records(self, records: np.ndarray) -> None:
        bucket = np.searchsorted(self._cuts, records["row"], side="right") - 1
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(len(self._cuts)))
        for i in np.flatnonzero(np.diff(ends)).tolist():
            part = np.ascontiguousarray(records[order[ends[i] : ends[i + 1]]])
            with self._path(i).open("ab") as file:
                file.write(part.view(np.uint8).data)

    def drain(self, most_bytes: int, nodes: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Every range of rows with its records, in ascending order; the files are removed."""
        for i, (start, stop) in enumerate(zip(self._cuts, self._cuts[1:], strict=False)):
            start, stop, path = int(start), int(stop), self._path(i)
            size = path.stat().st_size if path.exists() else 0
            if size <= most_bytes or stop - start == 1:
                records = np.fromfile(path, self.record) if size else np.empty(0, self.record)
                path.unlink(missing_ok=True)
                yield start, stop, records
                continue
            finer = Buckets(self._folder / f"{start}", start, stop, nodes)
            step = max(1, most_bytes // self.record.itemsize)
            with path.open("rb") as file:
                while (records := np.fromfile(file, self.record, step)).size:
                    finer.add_records(records)
            path.unlink()
            yield from finer.drain(most_bytes, nodes)

    def _path(self, i: int) -> Path:
        return self._folder / f"{i:03d}.bin"


def sort_edges(
    batches: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]],
    folder: Path,
    nodes: int,
    room: int,
    note: Callable[[float], None],
) -> None:
    """Write the adjacency of the edges (sources, targets, weights or None) as CSR in ``folder``.

    ``room`` is the memory for the sort; ``note`` hears the share of it that is done after the
    edges have been read.
    """
    parts = folder / ".parts"
    shutil.rmtree(parts, ignore_errors=True)
    most, weighted = max(LEAST_BUCKET, room // WORK), False
    outgoing = Buckets(parts / "out", 0, nodes, nodes)
    for sources, targets, weights in batches:
        weighted = weights is not None
        values = np.ones(len(sources), np.float32) if weights is None else weights
        outgoing.add(sources, targets, values)
    incoming = Buckets(parts / "in", 0, nodes, nodes)
    kind = index_type(nodes)
    (parts / "merged").mkdir(parents=True, exist_ok=True)
    with growing_csr(parts / "merged", kind, np.float32) as append:
        for start, stop, records in outgoing.drain(most, nodes):
            merged = _merged(records, start, stop, nodes)
            if not weighted:
                merged.data[:] = 1
            elif not np.isfinite(merged.data).all():
                raise DatasetError(
                    "the weights of a repeated edge add up to infinity; make them smaller."
                )
            append(merged)
            rows = np.repeat(np.arange(start, stop), np.diff(merged.indptr))
            incoming.add(merged.indices, rows, merged.data)
            note(0.5 * stop / nodes)
    most_entries = max(1 << 12, most // outgoing.record.itemsize)
    with CsrFiles(parts / "merged") as forward, growing_csr(folder, kind, np.float32) as append:
        for start, stop, records in incoming.drain(most, nodes):
            backward = _merged(records, start, stop, nodes)
            for low, high in row_ranges(forward, most_entries, start, stop):
                rows = forward.read(low, high).to_scipy(nodes)
                both = sp.csr_array(rows.maximum(backward[low - start : high - start]))
                append(_without_diagonal(both, low))
            note(0.5 + 0.5 * stop / nodes)
    shutil.rmtree(parts, ignore_errors=True)


def _merged(records: np.ndarray, start: int, stop: int, nodes: int) -> sp.csr_array:
    """The records as rows ``start`` to ``stop`` of a matrix, repeated entries summed."""
    places = (records["row"] - start, np.ascontiguousarray(records["column"]))
    values = np.ascontiguousarray(records["value"])
    return sp.coo_array((values, places), shape=(stop - start, nodes)).tocsr()


def _without_diagonal(rows: sp.csr_array, start: int) -> sp.csr_array:
    numbers = np.repeat(np.arange(start, start + rows.shape[0]), np.diff(rows.indptr))
    rows.data[rows.indices == numbers] = 0
    rows.eliminate_zeros()
    return rows
