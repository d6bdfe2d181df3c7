"""The sparse product.

`spmm`     S @ X on a power-law graph, against torch's CSR product and SciPy
`scaling`  the cost of k hops against the number of edges and against k; both must be linear

Every contestant allocates its own result, as in use. torch gets int32 indices, its faster case;
SciPy has one thread only. The time is compared with the bytes that a product must move:

    compulsory   CSR once + X once + Y once: a cache that never misses twice
    gather       CSR once + one row of X per entry of S + Y once: no cache at all

A memory-bound product takes between the two, divided by the memory bandwidth. The share of the
gather roofline is its time divided by ours: beyond the caches, 1 is as fast as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp
import torch

from benchmarks.child import peak_share
from benchmarks.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed
from benchmarks.peers import csr_tensor, quietly
from hoplite import HopliteError
from hoplite.engine.sparse import SparseMatrix
from hoplite.engine.sparse import spmm as sparse_product

OURS, TORCH, SCIPY = "hoplite", "torch CSR", "SciPy (1 thread)"


@dataclass(frozen=True)
class Traffic:
    """The bytes of one product in float32: S is n x n with ``nonzeros``, X is n x columns.

    >>> Traffic(nodes=10, nonzeros=20, columns=4).compulsory
    568
    """

    nodes: int
    nonzeros: int
    columns: int

    @property
    def csr(self) -> int:
        return 8 * (self.nodes + 1) + 8 * self.nonzeros

    @property
    def dense(self) -> int:
        """X, and as much again for Y."""
        return 4 * self.nodes * self.columns

    @property
    def compulsory(self) -> int:
        return self.csr + 2 * self.dense

    @property
    def gather(self) -> int:
        return self.csr + 4 * self.nonzeros * self.columns + self.dense


@dataclass(frozen=True)
class Size:
    """A graph, a width, and the goals at this size: over torch, of memory, of the roofline."""

    nodes: int
    nonzeros: int
    columns: int
    effort: Effort
    speedup: float | None = None
    memory: float | None = None
    roofline: float | None = None
    with_scipy: bool = True


QUICK = Size(20_000, 1_000_000, 64, Effort(7, 5))
FULL = Size(233_000, 20_000_000, 128, Effort(9, 25), 3, 1.15)
REDDIT = Size(233_000, 115_000_000, 602, Effort(3, 60), 3.82, 1.15, 0.85, with_scipy=False)


def spmm(context: Context) -> Outcome:
    return run_size(context, QUICK if context.quick else FULL)


def spmm_reddit(context: Context) -> Outcome:
    return run_size(context, REDDIT)


def run_size(context: Context, size: Size) -> Outcome:
    """Time the product of every contestant, its peak memory, and its distance to the roofline."""
    expected = Traffic(size.nodes, size.nonzeros, size.columns)
    # for the generation of the graph, the operands, and two results to compare
    needed, free = 4 * expected.csr + 5 * expected.dense, psutil.virtual_memory().available
    if free < needed:
        note = (
            f"not run: it needs about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} are free."
        )
        return Outcome([], [note])
    context.report("making the graph")
    matrix = power_law_matrix(size.nodes, size.nonzeros)
    traffic = Traffic(size.nodes, matrix.nnz, size.columns)
    X = np.random.default_rng(0).random((size.nodes, size.columns), np.float32)
    products, notes = _products(matrix, X, size.with_scipy)
    check_agreement(products)  # and a warm-up
    context.report("products")
    samples = context.race(
        [Contestant(name, timed(one), lambda: None) for name, one in products.items()], size.effort
    )
    case = f"{size.nodes:,} nodes, {matrix.nnz / 1e6:.3g}M entries, {size.columns} columns"
    goals = {} if size.speedup is None else {TORCH: Goal.ratio_at_least(size.speedup)}
    figures = [
        samples.figure(case, OURS, name, goals.get(name)) for name in products if name != OURS
    ]
    context.report("peak memory")
    share = peak_share(matrix, size.columns, context.threads)
    if share is None:
        notes.append("this system does not report a process's peak memory.")
    else:
        goal = None if size.memory is None else Goal.at_most(size.memory, "x")
        figures.append(Figure("peak memory / (inputs + output)", share, "x", goal=goal))
    seconds, bandwidth = samples.median(OURS), context.bandwidth
    if size.roofline is not None:
        share, goal = traffic.gather / bandwidth / seconds, Goal.at_least(size.roofline)
        figures.append(Figure("share of the gather roofline", share, "", goal=goal))
    notes.append(
        f"{2 * matrix.nnz * size.columns / seconds / 1e9:.1f} GFLOP/s; compulsory traffic "
        f"{traffic.compulsory / 1e9:.2f} GB at {traffic.compulsory / seconds / 1e9:.1f} GB/s, "
        f"gather traffic {traffic.gather / 1e9:.2f} GB at "
        f"{traffic.gather / seconds / 1e9:.1f} GB/s. "
        f"Roofline at {bandwidth / 1e9:.1f} GB/s: {1e3 * traffic.compulsory / bandwidth:.1f} ms "
        f"(every byte once) to {1e3 * traffic.gather / bandwidth:.1f} ms (a row of X from memory "
        "for every entry of S)."
    )
    return Outcome(figures, notes)


Products = dict[str, Callable[[], Any]]


def _products(matrix: sp.csr_array, X: np.ndarray, with_scipy: bool) -> tuple[Products, list[str]]:
    """The same product by every contestant, ours first, and a note on one that is left out."""
    S, dense, notes = SparseMatrix.from_scipy(matrix), torch.from_numpy(X), []
    sparse = quietly(csr_tensor)(matrix)
    products: Products = {
        OURS: lambda: sparse_product(S, X),
        TORCH: quietly(lambda: sparse @ dense),
    }
    if with_scipy:
        products[SCIPY] = lambda: matrix @ X
    else:
        notes.append("SciPy, which has one thread, is left out at this size.")
    return products, notes


def check_agreement(products: Products) -> None:
    """HopliteError if a product differs from ours."""
    ours = products[OURS]()
    scale = float(np.abs(ours).max()) or 1.0
    for name, product in products.items():
        difference = 0.0 if name == OURS else float(np.abs(np.asarray(product()) - ours).max())
        if not difference <= 1e-3 * scale:
            raise HopliteError(
                f"the products of hoplite and {name} differ by {difference:.3g} where values reach "
                f"{scale:.3g}; their times cannot be compared."
            )


def power_law_matrix(nodes: int, nonzeros: int, *, seed: int = 0) -> sp.csr_array:
    """A symmetric n x n float32 operator D^-1/2 A D^-1/2 with about ``nonzeros`` entries.

    Both ends of nonzeros / 2 edges are drawn with probability ~ rank^-1/2 (Chung and Lu), so that
    degrees follow a power law with exponent 3; ranks are shuffled over the node numbers, weights
    are uniform in (0, 1), repeated edges are summed. An isolated node has D^-1/2 = 0.

    >>> S = power_law_matrix(100, 1000)
    >>> S.shape, S.dtype == np.float32, S.nnz <= 1000, bool(abs(S - S.T).max() < 1e-6)
    ((100, 100), True, True, True)
    """
    rng = np.random.default_rng(seed)
    pairs, number = nonzeros // 2, rng.permutation(nodes).astype(np.int32)

    def ends() -> np.ndarray:
        # P(rank < r) = sqrt(r / n), hence rank = n u^2
        draws = rng.random(pairs, dtype=np.float32)
        ranks = (np.float32(nodes) * draws * draws).astype(np.int32)
        return number[np.minimum(ranks, nodes - 1, out=ranks)]

    sources, targets = ends(), ends()
    weights = 1 - rng.random(pairs, dtype=np.float32)  # never 0
    places = (np.concatenate([sources, targets]), np.concatenate([targets, sources]))
    matrix = sp.coo_array((np.tile(weights, 2), places), shape=(nodes, nodes)).tocsr()
    del places, weights, sources, targets
    degrees = matrix.sum(axis=1, dtype=np.float64)
    roots = np.zeros(nodes, np.float32)
    np.power(degrees, -0.5, where=degrees > 0, out=roots, casting="same_kind")
    matrix.data *= roots[matrix.indices]
    matrix.data *= np.repeat(roots, np.diff(matrix.indptr))
    return sp.csr_array(matrix)


GRAPHS = (50_000, (10**6, 4 * 10**6, 16 * 10**6))  # nodes, and entries
QUICK_GRAPHS = (10_000, (250_000, 1_000_000))
COLUMNS, HOPS, DEGREES = 32, 4, (2, 4, 8, 16)  # the hops of the graphs, and those of the middle one


def hops_sample(matrix: SparseMatrix, hops: int) -> Callable[[], float]:
    """A sample: seconds of the hops, with two buffers that are reused, as in propagation."""
    X = np.random.default_rng(0).random((matrix.shape[1], COLUMNS), np.float32)
    buffers = [np.empty_like(X), np.empty_like(X)]

    def propagate() -> None:
        signal = X
        for hop in range(hops):
            signal = sparse_product(matrix, signal, out=buffers[hop % 2])

    def seconds() -> float:
        propagate()  # so that the caches are as the hops themselves leave them
        return timed(propagate)()

    return seconds


def fitted_slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The exponent p of seconds ~ sizes^p, by least squares on logarithms.

    >>> round(fitted_slope([1, 2, 4], [3, 6, 12]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def scaling(context: Context) -> Outcome:
    """Time the hops on every graph and for every k, in turn, and fit the slopes.

    Edges are added to the same nodes, so that all sizes meet the same caches. One thread, and the
    fastest round: this is about the work.
    """
    nodes, counts = QUICK_GRAPHS if context.quick else GRAPHS
    context.report("making the graphs")
    graphs = [SparseMatrix.from_scipy(power_law_matrix(nodes, count)) for count in counts]
    series = {
        "entries, nodes the same": [(S, HOPS) for S in graphs],
        "hops": [(graphs[len(counts) // 2], hops) for hops in DEGREES],
    }

    def name(S: SparseMatrix, hops: int) -> str:
        return f"{nodes:,} nodes, {S.nnz / 1e6:.3g}M entries, {hops} hops"

    points = {name(*point): point for part in series.values() for point in part}
    contestants = [Contestant(title, hops_sample(*point)) for title, point in points.items()]
    effort = Effort(15, 4) if context.quick else Effort(15, 25)
    samples, figures = context.race(contestants, effort, threads=1), []
    for title, part in series.items():
        seconds = {S.nnz * hops: samples.fastest(name(S, hops)) for S, hops in part}
        figures += [
            Figure(f"{name(S, hops)}, per entry and hop", 1e9 * time / steps, "ns")
            for (S, hops), (steps, time) in zip(part, seconds.items(), strict=True)
        ]
        slope = fitted_slope([*seconds], [*seconds.values()])
        figures.append(Figure(f"slope over {title}", slope, "", goal=Goal.between(0.85, 1.15)))
    return Outcome(figures, [f"{COLUMNS} columns, 1 thread, the fastest round; slope 1 is linear."])
