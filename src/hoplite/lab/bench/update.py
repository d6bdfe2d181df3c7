"""`large-update`: 1 % new edges in a hop store, against computing the grown graph anew.

The graph is local: n nodes on a ring, each joined to the nearest `degree`. The new nodes arrive in
one region of it, each with `degree` edges to random old nodes of that region. Both start from files
(the store, or the grown graph on disk) and end with a complete store; the new tables are in memory.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from hoplite.datasets.disk_graph import write_disk_graph
from hoplite.graph import Graph
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome
from hoplite.store import HopStore, propagate, update_store

UPDATE, ANEW = "update", "anew"
SHARE = 0.01  # of new edges, and of nodes: half of it


@dataclass(frozen=True)
class UpdateSize:
    """The ring, its hops, and what is asked there."""

    nodes: int
    degree: int
    features: int
    hops: int
    effort: Effort
    goals: bool = True

    @property
    def new(self) -> int:
        """New nodes, with ``degree`` edges each."""
        return round(SHARE * self.nodes / 2)


QUICK = UpdateSize(100_000, 10, 32, 4, Effort(2, 10), goals=False)
FULL = UpdateSize(500_000, 10, 128, 4, Effort(3, 300))


def run(context: Context, size: UpdateSize) -> Outcome:
    """Both in turn, and whether they agree."""
    context.report("making the graph", 0.0)
    place = context.folder / "update"
    new = _write_graphs(size, place)
    propagate(place / "old", place / "store", hops=size.hops)
    contestants = [
        Contestant(UPDATE, lambda: _update(place, new)),
        Contestant(ANEW, lambda: _anew(place, size.hops)),
    ]
    samples = context.race(contestants, size.effort)
    grown, made = (HopStore.open(place / name) for name in (UPDATE, ANEW))
    gaps = [np.abs(grown.read(*rows) - made.read(*rows)).max() for rows in made.row_blocks()]
    blocks = list((place / "store" / "hops").rglob("*.npy"))
    kept = [block.samefile(grown.folder / block.relative_to(place / "store")) for block in blocks]
    shutil.rmtree(place)
    goal = Goal.ratio_at_least(5) if size.goals else None
    case = f"{size.nodes:,} nodes, {size.features} features, {size.hops} hops, 1 % new edges"
    return Outcome(
        [
            samples.figure(case, UPDATE, ANEW, goal),
            Figure("largest difference", float(max(gaps)), "", goal=Goal.at_most(1e-6, "")),
        ],
        [
            f"a ring of near neighbours, degree {size.degree}; {size.new:,} new nodes with "
            f"{size.degree} edges each in a region of {2 * size.new:,} nodes.",
            f"{kept.count(False):,} of {len(kept):,} old blocks were written again.",
        ],
    )


def _write_graphs(size: UpdateSize, place: Path) -> tuple[pa.Table, pa.Table]:
    """The old and the grown graph on disk; the tables that are new."""
    rng, n, half = np.random.default_rng(0), size.nodes, size.degree // 2
    left = np.repeat(np.arange(n), half)
    right = (left + np.tile(np.arange(1, half + 1), n)) % n
    names = [f"x{j}" for j in range(size.features)]
    graph = Graph.from_edges(
        np.column_stack([left, right]),
        rng.standard_normal((n, size.features), np.float32),
        feature_names=names,
        node_ids=range(n),
    )
    ids, cells = np.arange(n, n + size.new), rng.standard_normal((size.new, size.features))
    nodes = pa.table({"id": ids} | {name: cells[:, j] for j, name in enumerate(names)})
    sources = np.repeat(ids, size.degree)
    targets = n // 2 + rng.integers(0, 2 * size.new, len(sources))
    edges = pa.table({"source": sources, "target": targets})
    write_disk_graph(graph, place / "old")
    write_disk_graph(graph.extended((nodes, edges)), place / "grown")
    return nodes, edges


def _update(place: Path, new: tuple[pa.Table, pa.Table]) -> float:
    """Seconds of an update of a store whose files are links to those of the old one."""
    shutil.rmtree(place / UPDATE, ignore_errors=True)
    shutil.copytree(place / "store", place / UPDATE, copy_function=os.link)
    started = time.perf_counter()
    update_store(new, place / UPDATE)
    return time.perf_counter() - started


def _anew(place: Path, hops: int) -> float:
    shutil.rmtree(place / ANEW, ignore_errors=True)
    started = time.perf_counter()
    propagate(place / "grown", place / ANEW, hops=hops)
    return time.perf_counter() - started
