"""Dense products whose bits depend on nothing but their operands.

BLAS runs on one thread (:data:`hoplite.engine.backend.one_blas_thread`). Large operands are cut
into ranges of rows that depend on their shape alone; the engine's threads share the ranges, and
sums over them are taken in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import TypeVar

import numpy as np

from hoplite.engine.backend import get_num_threads, one_blas_thread, thread_pool

RANGE_NUMBERS = 1 << 20  # of the left operand in one range of rows
Result = TypeVar("Result")


def row_ranges(rows: int, columns: int) -> list[slice]:
    """Ranges of rows of about 2^20 numbers each.

    >>> row_ranges(3, 1 << 19)
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(1, RANGE_NUMBERS // max(columns, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def each_range(work: Callable[[slice], Result], rows: int, columns: int) -> Iterator[Result]:
    """``work`` of every range of rows, on the engine's threads; the results in order."""
    if rows * columns <= RANGE_NUMBERS:
        with one_blas_thread:
            yield work(slice(0, rows))
        return
    ranges, threads = row_ranges(rows, columns), get_num_threads()
    with one_blas_thread:
        if threads == 1:
            yield from map(work, ranges)
            return
        pool = thread_pool(threads)
        ahead = [pool.submit(copy_context().run, work, part) for part in ranges[: 2 * threads]]
        for i in range(len(ranges)):
            if i + 2 * threads < len(ranges):
                more = ranges[i + 2 * threads]
                ahead.append(pool.submit(copy_context().run, work, more))
            yield ahead[i].result()


def product(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """``left @ right``: (rows, d) and (d, m) -> (rows, m)."""
    if out is None:
        out = np.empty((left.shape[0], right.shape[1]), left.dtype)

    def work(part: slice) -> None:
        np.matmul(left[part], right, out=out[part])

    for _ in each_range(work, *left.shape):
        pass
    return out


def transposed_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left.T @ right``: (rows, d) and (rows, m) -> (d, m), summed over the ranges in order."""
    total: np.ndarray | None = None
    for part in each_range(lambda rows: left[rows].T @ right[rows], *left.shape):
        total = part if total is None else np.add(total, part, out=total)
    return np.zeros((left.shape[1], right.shape[1]), left.dtype) if total is None else total
