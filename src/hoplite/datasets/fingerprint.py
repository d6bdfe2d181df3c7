"""Fingerprints of a graph's parts that do not depend on where and in which pieces they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from hoplite.datasets.csr_rows import CsrRows, Rows, index_type, row_ranges

PIECE = 1 << 20  # entries hashed at a time


class AdjacencyDigest:
    """SHA-256 of a square CSR matrix of ``nodes`` rows that come in pieces, in order."""

    def __init__(self, nodes: int) -> None:
        self._nodes, self._kind = nodes, ""
        self._parts = [hashlib.sha256() for _ in range(3)]
        self.longest_row = 0

    def add(self, rows: Rows) -> None:
        lengths = np.diff(rows.indptr)
        self.longest_row = max(self.longest_row, int(lengths.max(initial=0)))
        self._kind = rows.values.dtype.str
        indices = rows.indices.astype(index_type(self._nodes), copy=False)
        for part, array in zip(self._parts, (lengths, indices, rows.values), strict=True):
            part.update(np.ascontiguousarray(array).data)

    def digest(self) -> str:
        text = f"{self._nodes} {self._kind} " + " ".join(part.hexdigest() for part in self._parts)
        return hashlib.sha256(text.encode()).hexdigest()


def adjacency_digest(matrix: CsrRows) -> tuple[str, int]:
    """SHA-256 of a square CSR matrix, and the entries of its longest row.

    >>> import scipy.sparse as sp
    >>> from hoplite.datasets.csr_rows import CsrMemory
    >>> edge = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> adjacency_digest(CsrMemory(edge)) == adjacency_digest(CsrMemory(edge.copy()))
    True
    """
    found = AdjacencyDigest(matrix.rows)
    for start, stop in row_ranges(matrix, PIECE):
        found.add(matrix.read(start, stop))
    return found.digest(), found.longest_row


class FeaturesDigest:
    """SHA-256 of dense float32 rows that come in pieces, in order."""

    def __init__(self, columns: int) -> None:
        self._sum = hashlib.sha256(f"{columns} float32 ".encode())

    def add(self, rows: np.ndarray) -> None:
        self._sum.update(np.ascontiguousarray(rows, np.float32).data)

    def digest(self) -> str:
        return self._sum.hexdigest()


def features_digest(pieces: Iterable[np.ndarray], columns: int) -> str:
    """SHA-256 of dense float32 rows, whatever the pieces they come in."""
    found = FeaturesDigest(columns)
    for piece in pieces:
        found.add(piece)
    return found.digest()
