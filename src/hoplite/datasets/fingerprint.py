"""Fingerprints of a graph's parts that do not depend on where and in which pieces they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from hoplite.datasets.csr_rows import CsrRows, index_type, row_ranges

PIECE = 1 << 20  # entries hashed at a time


def adjacency_digest(matrix: CsrRows) -> tuple[str, int]:
    """SHA-256 of a square CSR matrix, and the entries of its longest row.

    >>> import scipy.sparse as sp
    >>> from hoplite.datasets.csr_rows import CsrMemory
    >>> edge = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> adjacency_digest(CsrMemory(edge)) == adjacency_digest(CsrMemory(edge.copy()))
    True
    """
    parts = [hashlib.sha256() for _ in range(3)]
    kind, longest = "", 0
    for start, stop in row_ranges(matrix, PIECE):
        rows = matrix.read(start, stop)
        lengths = np.diff(rows.indptr)
        longest = max(longest, int(lengths.max(initial=0)))
        kind = rows.values.dtype.str
        arrays = (lengths, rows.indices.astype(index_type(matrix.rows), copy=False), rows.values)
        for part, array in zip(parts, arrays, strict=True):
            part.update(np.ascontiguousarray(array).data)
    text = f"{matrix.rows} {kind} " + " ".join(part.hexdigest() for part in parts)
    return hashlib.sha256(text.encode()).hexdigest(), longest


def features_digest(pieces: Iterable[np.ndarray], columns: int) -> str:
    """SHA-256 of dense float32 rows, whatever the pieces they come in."""
    digest = hashlib.sha256(f"{columns} float32 ".encode())
    for piece in pieces:
        digest.update(np.ascontiguousarray(piece, np.float32).data)
    return digest.hexdigest()
