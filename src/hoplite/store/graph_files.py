"""What a store keeps of its graph besides the hops: S, the edge weights, labels, split and ids.

    operator/{indptr,indices,values}.npy    S in the form that the basis needs; its numbers are
                                            those of :mod:`hoplite.operators`, to the bit
    operator/weights.npy                    the adjacency's, unless all of them are 1
    labels.npy  split.npz
    ids.npy  id_ends.npy                    see :mod:`hoplite.io.array_files`
    files.json                              written last: the CRC-32 of each of these files

A and S have the same places except for the diagonal, of which S has all or none: A is read from
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.csr import PIECE, CsrPiece, CsrRows, index_type, row_ranges
from hoplite.files import read_json, write_json
from hoplite.graph import Split
from hoplite.io.array_files import (
    CSR_ARRAYS,
    ID_ENDS,
    IDS,
    CsrFiles,
    NpyRows,
    check_crc32,
    file_crc32,
    growing_csr,
    growing_npy,
    write_ids,
    write_npy,
)
from hoplite.io.splits import write_split
from hoplite.operators import find_operator
from hoplite.store.manifest import Checksum, Count, Manifest

OPERATOR, FILES = "operator", "files.json"
LABELS, SPLIT = "labels.npy", "split.npz"
WEIGHTS = f"{OPERATOR}/weights.npy"
S_FILES = tuple(f"{OPERATOR}/{part}.npy" for part in CSR_ARRAYS)

Damaged = Callable[[Exception], Exception]


@dataclass(frozen=True)
class FileRecord:
    """files.json: the checksum of every file, by its name in the data folder.

    ``edges`` are the adjacency's entries, None where S has lost some that became 0.
    """

    crc32: dict[str, Checksum]
    edges: Count | None

    def check(self, data: Path, *names: str) -> None:
        """ValueError or OSError unless the files are what was written."""
        check_crc32(data, self.crc32, *names)

    def check_operator(self, data: Path) -> None:
        """ValueError or OSError unless S and the edge weights are what was written."""
        self.check(data, *S_FILES, *([WEIGHTS] if WEIGHTS in self.crc32 else []))


def read_record(data: Path) -> FileRecord:
    """files.json; ValueError or OSError if it is missing or damaged."""
    return read_json(data / FILES, FileRecord)


def write_record(data: Path, edges: int | None) -> None:
    """Write files.json, with the checksums of all files that exist."""
    names = [*S_FILES, WEIGHTS, LABELS, SPLIT, IDS, ID_ENDS]
    sums = {name: file_crc32(data / name) for name in names if (data / name).exists()}
    write_json(data / FILES, FileRecord(sums, edges))


def write_operator(
    data: Path,
    adjacency: CsrRows,
    manifest: Manifest,
    max_entries: int,
    note: Callable[[float], None],
) -> int | None:
    """Write S of ``adjacency``, and its weights; the number of edges, see :class:`FileRecord`.

    ``note`` is called with the finished share. See :meth:`hoplite.operators.Operator.rows` for the
    memory that it takes.
    """
    operator, n = find_operator(manifest.operator), adjacency.rows
    loop, entries, diagonal = operator.loop * manifest.loop_weight, 0, 0
    (data / OPERATOR).mkdir(parents=True, exist_ok=True)
    with growing_csr(data / OPERATOR, index_type(n), np.float32) as append:
        for start, made in operator.rows(adjacency, np.float32, loop, max_entries):
            rows = operator.in_basis(made, manifest.basis, start)
            append(rows)
            entries += rows.nnz
            nodes = np.repeat(np.arange(start, start + rows.shape[0]), np.diff(rows.indptr))
            diagonal += int(np.count_nonzero(rows.indices == nodes))
            note((start + rows.shape[0]) / n)
    ranges = partial(row_ranges, adjacency, PIECE)
    if all((adjacency.read(*ends).values == 1).all() for ends in ranges()):
        (data / WEIGHTS).unlink(missing_ok=True)
    else:
        with growing_npy(data / WEIGHTS, adjacency.read(0, 0).values.dtype) as append:
            for ends in ranges():
                append(adjacency.read(*ends).values)
    same = diagonal in (0, n) and entries - diagonal == adjacency.entries
    return adjacency.entries if same else None


class StoredOperator:
    """S, whose files are opened for every range of rows, so that threads may share it."""

    def __init__(self, data: Path, damaged: Damaged) -> None:
        self._open = partial(CsrFiles, data / OPERATOR, damaged)
        with self._open() as files:
            self.rows, self.entries = files.rows, files.entries

    def indptr(self, start: int, stop: int) -> np.ndarray:
        with self._open() as files:
            return files.indptr(start, stop)

    def read(self, start: int, stop: int) -> CsrPiece:
        with self._open() as files:
            return files.read(start, stop)


class StoredAdjacency:
    """The adjacency: the places of S without the diagonal, with the edge weights."""

    def __init__(
        self, operator: StoredOperator, edges: int, weights: Path | None, damaged: Damaged
    ):
        self._operator, self._weights, self._damaged = operator, weights, damaged
        self.rows, self.entries, self.weighted = operator.rows, edges, weights is not None
        self._diagonal = int(operator.entries > edges)  # entries a row

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._operator.indptr(start, stop) - self._diagonal * np.arange(start, stop + 1)

    def read(self, start: int, stop: int) -> CsrPiece:
        rows, indptr = self._operator.read(start, stop), self.indptr(start, stop)
        nodes = np.repeat(np.arange(start, stop), np.diff(rows.indptr))
        indices = rows.indices[rows.indices != nodes]
        values = np.ones(len(indices), np.float32)
        try:
            if self._weights is not None:
                with NpyRows(self._weights) as file:
                    values = file.read(int(indptr[0]), int(indptr[-1]))
            if len(indices) != indptr[-1] - indptr[0]:
                raise ValueError("the diagonal is not whole")
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        return CsrPiece(indptr - indptr[0], indices, values)


def write_nodes(
    data: Path, manifest: Manifest, labels: np.ndarray, split: Split, ids: Iterable[Any]
) -> None:
    """Write labels, split and, if the manifest has some, ids."""
    write_npy(data / LABELS, labels)
    write_split(data / SPLIT, split)
    if manifest.ids is not None:
        write_ids(data, ids, integers=manifest.ids == "integers")
