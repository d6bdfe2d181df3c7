"""`spmm`: S @ X on a power-law graph, against torch's CSR product, SciPy and DGL.

Every contestant allocates its own result, as in use. torch gets int32 indices, its faster case.
SciPy has one thread only. The time is beside the bytes that a product must move:

    compulsory   CSR once + X once + Y once: a cache that never misses twice
    gather       CSR once + one row of X per entry of S + Y once: no cache at all

A memory-bound product takes between the two, divided by the memory bandwidth. A kernel that works
in column tiles reads the CSR once per tile, which neither bound counts. The share of the gather
roofline is its time divided by ours: beyond the caches, 1 is as fast as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp
import torch

from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import HopliteError
from hoplite.lab.bench.child import peak_share
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Figure,
    Goal,
    Outcome,
    timed,
)
from hoplite.lab.bench.peers import csr_tensor, dgl_product, missing_note, quietly

OURS = "hoplite"
TORCH = "torch CSR"
SCIPY = "SciPy (1 thread)"
DGL = "DGL"


@dataclass(frozen=True)
class Traffic:
    """The bytes and operations of one product: S is n x n with ``nonzeros``, X is n x columns.

    >>> Traffic(nodes=10, nonzeros=20, columns=4).compulsory
    568
    """

    nodes: int
    nonzeros: int
    columns: int
    number_bytes: int = 4
    index_bytes: int = 4

    @property
    def csr(self) -> int:
        return 8 * (self.nodes + 1) + self.nonzeros * (self.number_bytes + self.index_bytes)

    @property
    def dense(self) -> int:
        """X, and as much again for Y."""
        return self.nodes * self.columns * self.number_bytes

    @property
    def compulsory(self) -> int:
        return self.csr + 2 * self.dense

    @property
    def gather(self) -> int:
        return self.csr + self.nonzeros * self.columns * self.number_bytes + self.dense

    @property
    def flops(self) -> int:
        return 2 * self.nonzeros * self.columns

    def facts(self, seconds: float, bandwidth: float) -> dict[str, float]:
        """What a product that took ``seconds`` did, beside what ``bandwidth`` (B/s) allows."""
        return {
            "nonzeros": float(self.nonzeros),
            "gflop_per_s": self.flops / seconds / 1e9,
            "compulsory_gb": self.compulsory / 1e9,
            "compulsory_gb_per_s": self.compulsory / seconds / 1e9,
            "gather_gb": self.gather / 1e9,
            "gather_gb_per_s": self.gather / seconds / 1e9,
            "bandwidth_gb_per_s": bandwidth / 1e9,
            "roofline_ms_compulsory": 1e3 * self.compulsory / bandwidth,
            "roofline_ms_gather": 1e3 * self.gather / bandwidth,
        }


@dataclass(frozen=True)
class ProductSize:
    """A graph, a width, and what is asked of the product at this size."""

    nodes: int
    nonzeros: int
    columns: int
    effort: Effort
    speedup: float | None = None  # over torch CSR
    memory: float | None = None  # peak / (inputs + output), at most
    roofline: float | None = None  # share of the gather roofline, at least
    with_scipy: bool = True

    @property
    def needed_bytes(self) -> int:
        """Room for the generation of the graph, the operands, and two results to compare."""
        traffic = Traffic(self.nodes, self.nonzeros, self.columns)
        return 4 * traffic.csr + 5 * traffic.dense


QUICK = ProductSize(20_000, 1_000_000, 64, Effort(7, 5))
FULL = ProductSize(233_000, 20_000_000, 128, Effort(9, 120), speedup=3, memory=1.15)
REDDIT = ProductSize(
    233_000,
    115_000_000,
    602,
    Effort(5, 300),
    speedup=3.82,
    memory=1.15,
    roofline=0.85,
    with_scipy=False,
)


def run(context: Context, size: ProductSize) -> Outcome:
    """Time the product of every contestant, its peak memory, and its distance to the roofline."""
    room = psutil.virtual_memory().available
    if room < size.needed_bytes:
        needed, there = size.needed_bytes / 1e9, room / 1e9
        return Outcome(
            [], [f"not run: it needs about {needed:.1f} GB of memory and {there:.1f} are free."]
        )
    context.report("making the graph", 0.0)
    matrix = power_law_matrix(size.nodes, size.nonzeros)
    figures, notes = _race(context, size, matrix)
    context.report("peak memory", 0.95)
    share = peak_share(matrix, size.columns, context.threads)
    if share is None:
        notes.append("this system does not tell a process's peak memory.")
    else:
        goal = None if size.memory is None else Goal.at_most(size.memory, "x")
        figures.append(Figure("peak memory / (inputs + output)", share, "x", goal=goal))
    traffic = Traffic(size.nodes, matrix.nnz, size.columns)
    seconds = figures[0].ours / 1e3
    facts = traffic.facts(seconds, context.bandwidth)
    if size.roofline is not None:
        share = facts["roofline_ms_gather"] / figures[0].ours
        goal = Goal.at_least(size.roofline)
        figures.append(Figure("share of the gather roofline", share, "", goal=goal))
    notes.append(
        f"{facts['gflop_per_s']:.1f} GFLOP/s; "
        f"compulsory traffic {facts['compulsory_gb']:.2f} GB at "
        f"{facts['compulsory_gb_per_s']:.1f} GB/s, gather traffic {facts['gather_gb']:.2f} GB at "
        f"{facts['gather_gb_per_s']:.1f} GB/s. "
        f"Roofline at {facts['bandwidth_gb_per_s']:.1f} GB/s: "
        f"{facts['roofline_ms_compulsory']:.1f} ms (every byte once) to "
        f"{facts['roofline_ms_gather']:.1f} ms (a row of X from memory for every entry of S)."
    )
    return Outcome(figures, notes, facts)


def _race(
    context: Context, size: ProductSize, matrix: sp.csr_array
) -> tuple[list[Figure], list[str]]:
    """Time all products in turn and make sure that they agree."""
    X = np.random.default_rng(0).random((size.nodes, size.columns), np.float32)
    products, notes = _products(matrix, X, size.with_scipy)
    _check_agreement(products)
    contestants = [
        # agreeing was the warm-up
        Contestant(name, timed(product), warm_up=lambda: None)
        for name, product in products.items()
    ]
    samples = context.race(contestants, size.effort)
    case = f"{size.nodes:,} nodes, {matrix.nnz / 1e6:.3g}M entries, {size.columns} columns"
    goals = {TORCH: None if size.speedup is None else Goal.ratio_at_least(size.speedup)}
    figures = [
        samples.figure(case, OURS, name, goal=goals.get(name)) for name in products if name != OURS
    ]
    return figures, notes


def _products(
    matrix: sp.csr_array, X: np.ndarray, with_scipy: bool
) -> tuple[dict[str, Callable[[], Any]], list[str]]:
    """The same product by every contestant, ours first, and notes on those who are absent."""
    S, dense = SparseMatrix.from_scipy(matrix), torch.from_numpy(X)
    sparse = quietly(csr_tensor)(matrix)
    products: dict[str, Callable[[], Any]] = {
        OURS: lambda: spmm(S, X),
        TORCH: quietly(lambda: sparse @ dense),
    }
    notes = []
    if with_scipy:
        products[SCIPY] = lambda: matrix @ X
    else:
        notes.append("SciPy, which has one thread, is left out at this size.")
    dgl = dgl_product(matrix, dense)
    if dgl is None:
        notes.append(missing_note("DGL"))
    else:
        products[DGL] = dgl
    return products, notes


def _check_agreement(products: dict[str, Callable[[], Any]]) -> None:
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
    pairs = nonzeros // 2
    number = rng.permutation(nodes).astype(np.int32)

    def ends() -> np.ndarray:
        # P(rank < r) = sqrt(r / n), hence rank = n u^2
        draws = rng.random(pairs, dtype=np.float32)
        ranks = (np.float32(nodes) * draws * draws).astype(np.int32)
        return number[np.minimum(ranks, nodes - 1, out=ranks)]

    sources, targets = ends(), ends()
    weights = 1 - rng.random(pairs, dtype=np.float32)  # never 0
    places = (np.concatenate([sources, targets]), np.concatenate([targets, sources]))
    del sources, targets
    matrix = sp.coo_array((np.tile(weights, 2), places), shape=(nodes, nodes)).tocsr()
    del places, weights
    degrees = matrix.sum(axis=1, dtype=np.float64)
    roots = np.zeros(nodes, np.float32)
    np.power(degrees, -0.5, where=degrees > 0, out=roots, casting="same_kind")
    matrix.data *= roots[matrix.indices]
    matrix.data *= np.repeat(roots, np.diff(matrix.indptr))
    return sp.csr_array(matrix)
