"""The operator S as CSR files, made from the adjacency a range of rows at a time.

    indptr.npy, indices.npy, values.npy    S in the form that the basis needs; its numbers are those
                                           of :mod:`hoplite.operators`, to the bit
    weights.npy                            the adjacency's, unless all of them are 1
    crc32.json                             written last: checksums of the files

A and S have the same places beside the diagonal, of which S has all or none: A is read from both.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.array_files import NpyRows, growing_npy
from hoplite.csr_rows import CSR_ARRAYS, CsrFiles, CsrPiece, CsrRows, growing_csr, index_type
from hoplite.files import open_regular
from hoplite.json_files import read_json, write_json
from hoplite.operators import find_operator
from hoplite.store.manifest import Checksum, Count

FOLDER, WEIGHTS = "operator", "weights"
RECORD = "crc32.json"
PIECE = 1 << 22  # bytes


@dataclass(frozen=True)
class Checksums:
    """CRC-32 of each file of the operator; ``edges`` are the adjacency's entries.

    ``edges`` is None where the adjacency cannot be told from the files, as in version 0.1.0.
    """

    indptr: Checksum
    indices: Checksum
    values: Checksum
    weights: Checksum | None = None
    edges: Count | None = None


def has_operator(folder: Path, nodes: int, *, contents: bool = True) -> bool:
    """Whether the store in ``folder`` holds its operator, whole and (``contents``) unchanged."""
    try:
        record = read_json(folder / FOLDER / RECORD, Checksums)
        with CsrFiles(folder / FOLDER) as files:
            whole = files.rows == nodes
        weights = record.weights is not None
        return whole and (not contents or record == _checksums(folder, weights, record.edges))
    except (OSError, ValueError):
        return False


def write_operator(
    folder: Path,
    adjacency: CsrRows,
    operator: str,
    basis: str,
    loop_weight: float,
    most_entries: int,
    note: Callable[[float], None],
) -> None:
    """Write S, in the form that ``basis`` needs, of ``adjacency``; ``note`` hears the share done.

    ``loop_weight`` is that of the self-loops, if the operator has some.

    See :meth:`hoplite.operators.Operator.rows` for the memory that it takes.
    """
    chosen = find_operator(operator)
    loop = chosen.loop * loop_weight

    def made(noted: CsrRows) -> Iterator[tuple[int, sp.csr_array]]:
        for start, rows in chosen.rows(noted, np.float32, loop, most_entries):
            yield start, chosen.in_basis(rows, basis, start)

    write_rows(folder, adjacency, made, note)


def write_rows(
    folder: Path,
    adjacency: CsrRows,
    made: Callable[[CsrRows], Iterable[tuple[int, sp.csr_array]]],
    note: Callable[[float], None],
) -> None:
    """Write S, whose rows, with the number of the first, are ``made`` while A is read in order."""
    n, place = adjacency.rows, folder / FOLDER
    entries = diagonal = 0
    place.mkdir(parents=True, exist_ok=True)
    with (
        growing_csr(place, index_type(n), np.float32) as append,
        _noted_weights(adjacency, place / f"{WEIGHTS}.npy") as noted,
    ):
        for start, rows in made(noted):
            append(rows)
            entries += rows.nnz
            nodes = np.repeat(np.arange(start, start + rows.shape[0]), np.diff(rows.indptr))
            diagonal += int(np.count_nonzero(rows.indices == nodes))
            note((start + rows.shape[0]) / n)
    same = diagonal in (0, n) and entries - diagonal == adjacency.entries  # nothing became 0
    edges = adjacency.entries if same else None
    write_json(place / RECORD, _checksums(folder, not noted.unit, edges), indent=None)


class _NotedRows:
    """An adjacency whose weights are taken along when its rows are read for the first time."""

    def __init__(self, adjacency: CsrRows, append: Callable[[np.ndarray], None]) -> None:
        self._adjacency, self._append, self._next = adjacency, append, 0
        self._ones = 0  # entries before the first other one
        self.rows, self.entries, self.unit = adjacency.rows, adjacency.entries, True

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._adjacency.indptr(start, stop)

    def read(self, start: int, stop: int) -> CsrPiece:
        found = self._adjacency.read(start, stop)
        if start == self._next:
            self._next = stop
            if self.unit and not (found.values == 1).all():
                self.unit = False
                for first in range(0, self._ones, PIECE):
                    self._append(np.ones(min(PIECE, self._ones - first)))
            self._ones += len(found.values)
            if not self.unit:
                self._append(found.values)
        return found


@contextlib.contextmanager
def _noted_weights(adjacency: CsrRows, path: Path) -> Iterator[_NotedRows]:
    """The adjacency, of which reading all rows in order writes ``path``, unless all are 1."""
    kind = adjacency.read(0, 0).values.dtype
    with contextlib.suppress(_AllOnesError), growing_npy(path, kind) as append:
        noted = _NotedRows(adjacency, append)
        yield noted
        if noted.unit:
            path.unlink(missing_ok=True)
            raise _AllOnesError


class _AllOnesError(Exception):
    """There is nothing to write."""


class OperatorFiles:
    """S in the files of the store in ``folder``, which are opened for every range of rows."""

    def __init__(self, folder: Path, damaged: Callable[[Exception], Exception]) -> None:
        self._place, self._damaged = folder / FOLDER, damaged
        self._record = read_json(self._place / RECORD, Checksums)
        with CsrFiles(self._place, damaged) as files:
            self.rows, self.entries = files.rows, files.entries

    def indptr(self, start: int, stop: int) -> np.ndarray:
        with CsrFiles(self._place, self._damaged) as files:
            return files.indptr(start, stop)

    def read(self, start: int, stop: int) -> CsrPiece:
        with CsrFiles(self._place, self._damaged) as files:
            return files.read(start, stop)

    @property
    def weighted(self) -> bool:
        """Whether an edge has another weight than 1."""
        return self._record.weights is not None

    def adjacency(self) -> CsrRows | None:
        """The adjacency, None if it is not known."""
        return None if self._record.edges is None else _Adjacency(self, self._record)

    def weights(self, first: int, last: int) -> np.ndarray:
        """Entries of the adjacency from ``first`` to ``last`` (excluded)."""
        if self._record.weights is None:
            return np.ones(last - first, np.float32)
        try:
            with NpyRows(self._place / f"{WEIGHTS}.npy") as file:
                return file.read(first, last)
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error


class _Adjacency:
    """The places of S without the diagonal, with the weights."""

    def __init__(self, operator: OperatorFiles, record: Checksums) -> None:
        self._operator, self.rows, self.entries = operator, operator.rows, record.edges or 0
        self._diagonal = int(operator.entries > self.entries)  # entries a row

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._operator.indptr(start, stop) - self._diagonal * np.arange(start, stop + 1)

    def read(self, start: int, stop: int) -> CsrPiece:
        rows, indptr = self._operator.read(start, stop), self.indptr(start, stop)
        nodes = np.repeat(np.arange(start, stop), np.diff(rows.indptr))
        values = self._operator.weights(int(indptr[0]), int(indptr[-1]))
        return CsrPiece(indptr - indptr[0], rows.indices[rows.indices != nodes], values)


def _checksums(folder: Path, weights: bool, edges: int | None) -> Checksums:
    found = {}
    for part in (*CSR_ARRAYS, WEIGHTS) if weights else CSR_ARRAYS:
        checksum = 0
        with open_regular(folder / FOLDER / f"{part}.npy") as file:
            while piece := file.read(PIECE):
                checksum = zlib.crc32(piece, checksum)
        found[part] = checksum
    return Checksums(**found, edges=edges)
