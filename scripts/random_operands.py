"""The operands that scripts/fuzz_native.py calls the core with, and how results are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

GUARD = 64  # elements before and behind every output, which must stay as they were
GROWTH = 4.5  # no hop of a random recurrence is larger than the ones before by more


def core() -> Any:
    from hoplite.propagation.backend import native

    assert native is not None
    return native


def at(array: Any) -> int:
    return 0 if array is None else array.ctypes.data


class Finding(Exception):
    """What a call did that it must not do."""


class Random:
    """The operands of one call; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.real = self.pick([np.float32, np.float64])
        self._guarded: list[tuple[Any, Any, int, int]] = []

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def size(self, most: int) -> int:
        """Mostly small, often 0, 1 or near a multiple of 4."""
        kind = self.rng.random()
        if kind < 0.08:
            return 0
        if kind < 0.2:
            return 1
        if kind < 0.5:
            return min(
                most, max(0, 4 * int(self.rng.integers(1, 18)) + int(self.rng.integers(-1, 2)))
            )
        return int(self.rng.integers(0, most + 1))

    def array(self, *shape: int, dtype: Any = None, out: bool = False) -> Any:
        """An array anywhere in a larger one; what surrounds an output is checked later."""
        dtype = self.real if dtype is None else dtype
        count = int(np.prod(shape, dtype=np.int64))
        before = GUARD + int(self.rng.integers(0, 17)) if out else int(self.rng.integers(0, 17))
        whole = np.empty(before + count + (GUARD if out else 0), dtype)
        whole[:] = 12345 if out else 0
        inner = whole[before : before + count]
        if not out:
            inner[:] = self.rng.standard_normal(count) * (self.rng.random(count) < 0.9)
        else:
            self._guarded.append((whole, whole.copy(), before, before + count))
        return inner.reshape(shape)

    def check_guards(self) -> None:
        for whole, copy, first, last in self._guarded:
            for part in (slice(None, first), slice(last, None)):
                if not np.array_equal(whole[part], copy[part]):
                    raise Finding("it wrote outside of its output")

    def csr(self, rows: int, columns: int, *, symmetric: bool = False) -> Any:
        """The native matrix, SciPy's, and that of absolute values; unsorted, repeated."""
        rng = self.rng
        most = min(rows * columns, 6 * rows)
        nnz = int(rng.integers(0, most + 1)) if most else 0
        row, column = rng.integers(0, max(rows, 1), nnz), rng.integers(0, max(columns, 1), nnz)
        if rng.random() < 0.3:
            row = np.minimum(row, rows // 3)  # a hub or two, and empty rows
        values = rng.standard_normal(nnz)
        if symmetric:
            row, column = np.concatenate([row, column]), np.concatenate([column, row])
            values = np.tile(values, 2)
        order = np.argsort(row, kind="stable")
        row, column, values = row[order], column[order], values[order]
        sums = np.bincount(row, np.abs(values), max(rows, 1)).max(initial=1)
        values = (values / max(sums, 1)).astype(self.real)  # so that hops do not grow
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows)[:rows])])
        indices = column.astype(self.pick([np.int32, np.int64]))
        places, shape = (row, column), (rows, columns)
        exact = values.astype(np.float64)
        found = [sp.coo_array((v, places), shape=shape).tocsr() for v in (exact, abs(exact))]
        return core().Csr(indptr.astype(np.int64), indices, values, columns), *found

    def recurrence(self, hops: int) -> Any:
        """The table of a basis: powers, Chebyshev polynomials, or any other."""
        kind, table = self.rng.random(), np.zeros((hops, 3))
        table[:, 0] = 1
        if kind < 0.3:
            table[1:] = 2, 0, 1
        elif kind < 0.7:
            table[:] = self.rng.uniform([0.1, -1, -1], [2, 1, 1], (hops, 3))
            table *= self.rng.random((hops, 3)) < 0.8
            table[:1, 2] = 0
        return table

    def compare(self, found: Any, wanted: Any, size: Any, steps: int = 1) -> None:
        """Within rounding of the terms, whose absolute values add up to ``size``."""
        unit = {np.float32: 2e-6, np.float64: 4e-15}[self.real] * (8 + 4 * steps)
        gap = np.abs(found.astype(np.float64) - wanted)
        if found.shape != wanted.shape or not (gap <= unit * (np.abs(size) + 1)).all():
            raise Finding(f"it is off by {gap.max():.3g} where {np.abs(wanted).max():.3g} is right")

    def alike(self, call: Callable[[int, Any], None], *outs: Any) -> None:
        """Call into ``outs`` with some threads, and again with one: the bits are the same."""
        call(int(self.rng.integers(1, 5)), outs)
        again = [np.full(out.shape, 54321, out.dtype) for out in outs]
        call(1, again)
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(outs, again, strict=True)):
            raise Finding("its bits depend on the threads")
