"""`scaling`: the cost of k hops against the number of edges and against k; both must be linear.

Edges are added in two ways: to the same nodes, where all sizes meet the same caches and the slope
is that of the work; and together with nodes, at the same degree, where X outgrows the caches one
after another, which the slope then shows. A slope is the exponent p of time ~ size^p, least squares
on logarithms.

One thread is used, caches are warm and the fastest round counts: this is about the work, and
whatever else runs on the machine would bend the line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Figure,
    Goal,
    Outcome,
    timed,
)
from hoplite.lab.bench.product import power_law_matrix


@dataclass(frozen=True)
class ScalingSize:
    """Graph sizes at a fixed number of hops, and numbers of hops on the middle one."""

    nodes: int  # of the middle graph, and of all in the series with the same nodes
    nonzeros: tuple[int, ...]
    hops: tuple[int, ...]
    fixed_hops: int
    columns: int
    effort: Effort

    @property
    def middle(self) -> int:
        return self.nonzeros[len(self.nonzeros) // 2]


QUICK = ScalingSize(10_000, (250_000, 1_000_000), (2, 4, 8, 16), 4, 32, Effort(15, 4))
FULL = ScalingSize(
    50_000, (1_000_000, 4_000_000, 16_000_000), (2, 4, 8, 16), 4, 32, Effort(15, 180)
)
SLOPE = Goal.between(0.85, 1.15)
GROWING = "entries, nodes growing alike"


@dataclass(frozen=True)
class Point:
    """k hops on one graph."""

    matrix: SparseMatrix
    columns: int
    hops: int

    @property
    def name(self) -> str:
        nodes, entries = self.matrix.shape[0], self.matrix.nnz / 1e6
        return f"{nodes:,} nodes, {entries:.3g}M entries, {self.hops} hops"

    @property
    def steps(self) -> int:
        """Entries times hops: what the time should be proportional to."""
        return self.matrix.nnz * self.hops

    @cached_property
    def propagate(self) -> Callable[[], np.ndarray]:
        X = np.random.default_rng(0).random((self.matrix.shape[1], self.columns), np.float32)
        return hops_of(self.matrix, X, self.hops)

    def sample(self) -> float:
        """Seconds of the hops, with caches as the hops themselves leave them."""
        self.propagate()
        return timed(self.propagate)()


def fitted_slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of seconds ~ sizes^p.

    >>> round(fitted_slope([1, 2, 4], [3, 6, 12]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run(context: Context, size: ScalingSize) -> Outcome:
    """Time the hops on every graph and for every k, in turn, and fit the slopes."""
    context.report("making the graphs", 0.0)
    series = _series(size)
    points = {point.name: point for part in series.values() for point in part}
    contestants = [Contestant(name, point.sample) for name, point in points.items()]
    samples = context.race(contestants, size.effort, threads=1)
    figures = []
    for title, part in series.items():
        seconds = [samples.fastest(point.name) for point in part]
        figures += [
            Figure(
                f"{point.name}, per entry and hop",
                1e9 * time / point.steps,
                "ns",
                rounds=samples.rounds,
            )
            for point, time in zip(part, seconds, strict=True)
        ]
        slope = fitted_slope([point.steps for point in part], seconds)
        goal = None if title == GROWING else SLOPE  # caches are not the work
        figures.append(Figure(f"slope over {title}", slope, "", goal=goal, rounds=samples.rounds))
    notes = [
        f"{size.columns} columns, 1 thread, the fastest round; slope 1 is linear.",
        f"over {GROWING}: X grows out of the caches, so a row of it costs more.",
    ]
    return Outcome(figures, notes)


def _series(size: ScalingSize) -> dict[str, list[Point]]:
    def graph(nodes: int, nonzeros: int) -> SparseMatrix:
        return SparseMatrix.from_scipy(power_law_matrix(nodes, nonzeros))

    same = {count: graph(size.nodes, count) for count in size.nonzeros}
    middle = same[size.middle]
    alike = {
        count: middle if count == size.middle else graph(size.nodes * count // size.middle, count)
        for count in size.nonzeros
    }
    return {
        "entries, nodes the same": [Point(S, size.columns, size.fixed_hops) for S in same.values()],
        GROWING: [Point(S, size.columns, size.fixed_hops) for S in alike.values()],
        "hops": [Point(middle, size.columns, hops) for hops in size.hops],
    }


def hops_of(matrix: SparseMatrix, X: np.ndarray, hops: int) -> Callable[[], np.ndarray]:
    """S^hops X as a function that reuses two buffers, as propagation does."""
    buffers = [np.empty_like(X), np.empty_like(X)]

    def propagate() -> np.ndarray:
        signal = X
        for hop in range(hops):
            signal = spmm(matrix, signal, out=buffers[hop % 2])
        return signal

    return propagate
