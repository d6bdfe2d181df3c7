"""A million small graphs on disk: pooled hops and predictions in the memory of one range."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.child import ask
from benchmarks.measure import Context, Figure, Outcome
from hoplite.graph import Graph
from hoplite.graphs import GraphSet

GRAPHS, QUICK, AT_ONCE = 1_000_000, 10_000, 20_000
TAGS = 8


def parts(count: int, seed: int = 0) -> Iterator[GraphSet]:
    """Rings of 6 to 14 nodes with tags and a chord each; the label is whether it is long."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, AT_ONCE):
        sizes = rng.integers(6, 15, min(AT_ONCE, count - start))
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        nodes = np.arange(offsets[-1])
        first = np.repeat(offsets[:-1], sizes)
        following = first + (nodes - first + 1) % np.repeat(sizes, sizes)
        chord = offsets[:-1] + rng.integers(2, 5, len(sizes))
        edges = np.concatenate(
            [np.column_stack([nodes, following]), np.column_stack([offsets[:-1], chord])]
        )
        features = np.eye(TAGS, dtype=np.float32)[rng.integers(0, TAGS, len(nodes))]
        block = Graph.from_edges(edges, features)
        labels = (chord - offsets[:-1] == 3).astype(int)
        yield GraphSet(block.adjacency, features, offsets, labels, name="rings")


def small_graphs(context: Context) -> Outcome:
    """Seconds for each graph, and the peak of the process over what it has before."""
    count = QUICK if context.quick else GRAPHS
    folder = context.folder / f"rings-{count}"
    if not Path(folder, "graphs.npz").exists():
        context.report("making the graphs")
        ask("write_small_graphs", folder=str(folder), count=count)
    found = ask("pool_small_graphs", folder=str(folder), threads=context.threads)
    size = sum(path.stat().st_size for path in folder.iterdir())
    figures = [
        Figure("pooling 2 hops", 1e6 * found["pool"] / count, "us a graph"),
        Figure("predictions", 1e6 * found["predict"] / count, "us a graph"),
        Figure("memory for predictions", found["peak"] / 1e6, "MB"),
    ]
    return Outcome(figures, [f"{count:,} graphs are {size / 1e6:,.0f} MB on disk."])
