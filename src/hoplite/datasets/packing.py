"""Sparse matrices as small integers that compress well.

A compressed row (or column) holds increasing indices. Stored are the number of entries per row
and, entry by entry, how many positions were skipped since the entry before it: mostly small
numbers, so one or two bytes each, and few distinct ones.
"""

from __future__ import annotations

import numpy as np

from hoplite.sparse_checks import check_csr


def narrow(values: np.ndarray) -> np.ndarray:
    """The same integers in the smallest type that holds them all; unsigned if none is negative.

    >>> narrow(np.array([0, 300])).dtype, narrow(np.array([-1, 6])).dtype
    (dtype('uint16'), dtype('int8'))
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    kind = "u" if low >= 0 else "i"
    for size in (1, 2, 4):
        dtype = np.dtype(f"{kind}{size}")
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values.astype(f"{kind}8")


def pack_indices(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts per row and skips per entry, of a compressed matrix with sorted, unique indices.

    >>> pack_indices(np.array([0, 2, 3]), np.array([1, 4, 0]))
    (array([2, 1], dtype=uint8), array([1, 2, 0], dtype=uint8))
    """
    indices = indices.astype(np.int64)
    counts = np.diff(indptr)
    before = np.concatenate([[-1], indices[:-1]])
    before[indptr[:-1][counts > 0]] = -1
    return narrow(counts), narrow(indices - before - 1)


def unpack_indices(
    counts: np.ndarray, skips: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Undo :func:`pack_indices`; ``ValueError`` unless every index is below ``limit``.

    >>> unpack_indices(np.array([2, 1]), np.array([1, 2, 0]), limit=5)
    (array([0, 2, 3]), array([1, 4, 0]))
    """
    _check_naturals(counts)
    _check_naturals(skips)
    # Bounds before sums, so that the sums cannot overflow.
    if counts.max(initial=0) > skips.size or skips.max(initial=0) >= max(limit, 1):
        raise ValueError("an index is out of range")
    counts, steps = counts.astype(np.int64), skips.astype(np.int64) + 1
    indptr = np.concatenate([[0], np.cumsum(counts)])
    if indptr[-1] != skips.size:
        raise ValueError("the counts do not add up to the number of entries")
    running = np.concatenate([[0], np.cumsum(steps)])
    indices = running[1:] - 1 - np.repeat(running[indptr[:-1]], counts)
    check_csr(indptr, indices, indices, (counts.size, limit))
    return indptr, indices


def _check_naturals(values: np.ndarray) -> None:
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.min(initial=0) < 0:
        raise ValueError("indices are not a list of natural numbers")
