"""The operands that scripts/fuzz_native.py calls the core with, and how results are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

GUARD = 64  # elements before and behind every output, which must stay as they were
GROWTH = 4.5  # each hop of a random recurrence is at most this much larger than those before
UNITS = {np.float32: 2e-6, np.float64: 4e-15}  # rounding error of one step


def core() -> Any:
    from hoplite.engine.backend import native

    assert native is not None
    return native


class Finding(Exception):
    """A fault of the core."""


class Random:
    """The operands of one call; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.real = self.pick([np.float32, np.float64])
        self._outputs: list[tuple[np.ndarray, int, int]] = []

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def size(self, largest: int) -> int:
        """Mostly small, often 0, 1 or near a multiple of 4."""
        case = self.rng.random()
        if case < 0.08:
            return 0
        if case < 0.2:
            return 1
        if case < 0.5:
            near = 4 * int(self.rng.integers(1, 18)) + int(self.rng.integers(-1, 2))
            return min(largest, near)
        return int(self.rng.integers(0, largest + 1))

    def nodes(self) -> int:
        """The size of a graph; from about 2000 nodes on a product is shared by threads."""
        return int(self.rng.integers(1500, 4000)) if self.chance(0.06) else self.size(70)

    def array(self, *shape: int, dtype: Any = None) -> np.ndarray:
        """Random numbers, somewhere in a larger array."""
        count, before = int(np.prod(shape, dtype=np.int64)), int(self.rng.integers(0, 17))
        whole = np.zeros(before + count, dtype or self.real)
        whole[before:] = self.rng.standard_normal(count) * (self.rng.random(count) < 0.9)
        return whole[before:].reshape(shape)

    def output(self, *shape: int, dtype: Any = None) -> np.ndarray:
        """An array to write to; :meth:`check_guards` looks at the memory around it."""
        count, before = int(np.prod(shape, dtype=np.int64)), GUARD + int(self.rng.integers(0, 17))
        whole = np.full(before + count + GUARD, 12345, dtype or self.real)
        self._outputs.append((whole, before, before + count))
        return whole[before : before + count].reshape(shape)

    def columns(self, rows: int, width: int, *, output: bool = False) -> np.ndarray:
        """Some columns of a wider array."""
        left, right = self.size(5), self.size(5)
        make = self.output if output else self.array
        return make(rows, left + width + right)[:, left : left + width]

    def check_guards(self) -> None:
        for whole, first, last in self._outputs:
            if not (np.all(whole[:first] == 12345) and np.all(whole[last:] == 12345)):
                raise Finding("it wrote outside of its output")

    def csr(self, rows: int, columns: int, *, square: bool = False) -> Any:
        """The native matrix, SciPy's, and that of absolute values; unsorted, with repetitions."""
        rng = self.rng
        nnz = int(rng.integers(0, min(rows * columns, 6 * rows) + 1))
        row, column = rng.integers(0, max(rows, 1), nnz), rng.integers(0, max(columns, 1), nnz)
        if self.chance(0.3):
            row = np.minimum(row, rows // 3)  # a hub and empty rows
        if square and self.chance(0.5):
            row, column = np.concatenate([row, column]), np.concatenate([column, row])
        row = np.sort(row)
        values = rng.standard_normal(len(row))
        largest = np.bincount(row, np.abs(values), max(rows, 1)).max(initial=1)
        values = (values / largest).astype(self.real)  # so that hops do not grow
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows)[:rows])])
        indices = column.astype(self.pick([np.int32, np.int64]))
        exact = values.astype(np.float64)
        matrices = [
            sp.coo_array((v, (row, column)), shape=(rows, columns)).tocsr()
            for v in (exact, abs(exact))
        ]
        return core().Csr(indptr.astype(np.int64), indices, values, columns), *matrices

    def recurrence(self, hops: int) -> np.ndarray:
        """The table of a basis: powers, Chebyshev polynomials, or any other."""
        case, table = self.rng.random(), np.zeros((hops, 3))
        table[:, 0] = 1
        if case < 0.3:
            table[1:] = 2, 0, 1
        elif case < 0.7:
            table[:] = self.rng.uniform([0.1, -1, -1], [2, 1, 1], (hops, 3))
            table *= self.rng.random((hops, 3)) < 0.8
            table[:1, 2] = 0
        return table

    def compare(self, result: np.ndarray, expected: np.ndarray, size: Any, steps: int = 1) -> None:
        """Equal up to the rounding of terms whose absolute values add up to ``size``."""
        if result.shape != expected.shape:
            raise Finding(f"its shape is {result.shape} instead of {expected.shape}")
        error = np.abs(result.astype(np.float64) - expected)
        if not np.all(error <= UNITS[self.real] * (8 + 4 * steps) * (np.abs(size) + 1)):
            raise Finding(f"it is off by {error.max():.3g} of {np.abs(expected).max():.3g}")

    def call(self, function: Callable[..., None], *outputs: np.ndarray) -> None:
        """Call with some threads and again with one: the bits must be the same.

        ``function`` takes the outputs and the number of threads.
        """
        function(*outputs, int(self.rng.integers(1, 5)))
        again = [np.full(out.shape, 54321, out.dtype) for out in outputs]
        function(*again, 1)
        for first, second in zip(outputs, again, strict=True):
            if first.tobytes() != second.tobytes():
                raise Finding("its bits depend on the threads")
