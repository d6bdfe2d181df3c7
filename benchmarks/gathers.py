"""The rows that the sparse products of an epoch gather.

A product of a sparse matrix with a dense signal gathers one row of the signal for each entry of the
matrix, and the rows are scattered, so gathering them is what a fast product spends its time on. The
engine's products are counted in one epoch of a real training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from benchmarks.training import Trainer
from hoplite.engine.backend import uses_native
from hoplite.engine.sparse import SparseMatrix

Shape = tuple[int, int, int]  # rows, columns and entries, by which a matrix is known


@dataclass
class Tally:
    """The products of an epoch: how often each matrix was passed over, by the signal's width."""

    passes: dict[tuple[Shape, int], float] = field(default_factory=dict)

    def add(self, matrix: SparseMatrix, width: int, passes: float) -> None:
        """Count products of ``matrix`` with signals of ``width`` columns."""
        shape = *matrix.shape, matrix.nnz
        self.passes[shape, width] = self.passes.get((shape, width), 0.0) + passes

    def without(self, other: Tally) -> Tally:
        """What this one has more than another."""
        left = {key: count - other.passes.get(key, 0.0) for key, count in self.passes.items()}
        return Tally({key: count for key, count in left.items() if count > 0})

    @property
    def gathers(self) -> int:
        """Gathered rows."""
        return round(sum(passes * shape[2] for (shape, _), passes in self.passes.items()))

    @property
    def bytes(self) -> int:
        """Of all gathered rows, in float32."""
        total = sum(passes * shape[2] * width for (shape, width), passes in self.passes.items())
        return round(4 * total)


class _Counted:
    """The matrix of the C++ core; its products are counted."""

    def __init__(self, matrix: SparseMatrix, handle: Any, tally: Tally) -> None:
        self._matrix, self._handle, self._tally = matrix, handle, tally

    def __getattr__(self, name: str) -> Any:
        kernel, count = getattr(self._handle, name), COUNTS[name]

        def counted(*arguments: Any) -> Any:
            plain = [one._handle if isinstance(one, _Counted) else one for one in arguments]
            width, passes = count(*arguments)
            self._tally.add(self._matrix, width, passes)
            return kernel(*plain)

        return counted


# Width of the gathered rows, and passes over the matrix, from the arguments of each kernel.
COUNTS: dict[str, Callable[..., tuple[int, float]]] = {
    "spmm": lambda signal, *_: (signal.shape[1], 1.0),
    "times": lambda transposed, dense, *_: (dense.shape[1], 1.0),
    "polynomial": lambda table, signal, scales, *_: (signal.shape[1], len(scales) - 1.0),
    "polynomial_adjoint": lambda table, gradient, signal, scales, *_: (
        signal.shape[1],
        len(scales) - 1.0,
    ),
    "gather_hops": lambda table, rows, signal, out, *_: (signal.shape[1], len(out) - 1.0),
    "scatter_hops": lambda table, rows, gathered, *_: (gathered.shape[2], len(gathered) - 1.0),
}


@contextmanager
def counting() -> Iterator[Tally]:
    """Count the products of the C++ core within the block."""
    tally, handle = Tally(), SparseMatrix.handle.fget
    assert handle is not None
    counted = property(lambda matrix: _Counted(matrix, handle(matrix), tally))
    with patch.object(SparseMatrix, "handle", counted):
        yield tally


def epoch_tally(trainer: Trainer) -> Tally | None:
    """The products of one epoch amid others; None where NumPy computes, or torch."""
    if not uses_native():
        return None
    tallies = []
    for epochs in (3, 4):  # what only the first and the last do is in both
        with counting() as tally:
            trainer.train(epochs)
        tallies.append(tally)
    found = tallies[1].without(tallies[0])
    return found if found.passes else None
