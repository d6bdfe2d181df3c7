"""`large-cost`: the cost model of docs/scale.md against what stores of three sizes take."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Any

from hoplite.datasets.disk_graph import DiskGraph
from hoplite.lab.bench.child import ask
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.large import graph_folder
from hoplite.lab.bench.records import Figure, Goal, Outcome
from hoplite.store.cost import cost


@dataclass(frozen=True)
class CostSize:
    """``reddit-like`` at these scales, with a budget each, and the hops."""

    scales: tuple[tuple[float, int], ...]
    hops: int


QUICK = CostSize(((0.005, 10**9), (0.01, 10**9), (0.02, 10**9)), 2)
FULL = CostSize(((1 / 16, 500 * 10**6), (1 / 4, 10**9), (1.0, 10**9)), 4)


def run(context: Context, size: CostSize) -> Outcome:
    """Bytes and seconds, measured / expected, for a store of each size."""
    figures, facts = [], {}
    for number, (scale, memory) in enumerate(size.scales):
        context.report(f"a store of scale {scale:g}", number / len(size.scales))
        folder, out = graph_folder(context, scale), context.folder / "store"
        with DiskGraph(folder) as graph:
            nodes, entries, columns = graph.nodes, graph.adjacency.entries, graph.features
            longest = graph.longest_row
        expected = cost(nodes, entries, columns, size.hops, memory, longest_row=longest)
        task: dict[str, Any] = {"hops": size.hops, "memory": memory, "threads": context.threads}
        found = ask("store", folder=str(folder), out=str(out), **task)
        files = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        shutil.rmtree(out)
        what = f"{nodes:,} nodes, {entries / 1e6:.3g}M entries, {memory / 1e9:g} GB:"
        exact = Goal.between(0.95, 1.05)
        seconds = expected.gathered / context.bandwidth
        figures += [
            Figure(f"{what} files, {files / 1e9:.2f} GB", files / expected.files, "x", goal=exact),
            Figure(
                f"{what} read, {found['read'] / 1e9:.2f} GB",
                found["read"] / expected.read,
                "x",
                goal=exact,
            ),
            Figure(
                f"{what} written, {found['written'] / 1e9:.2f} GB",
                found["written"] / expected.written,
                "x",
                goal=exact,
            ),
            Figure(f"{what} peak memory / budget", found["peak"] / memory, "x"),
            Figure(
                f"{what} {found['seconds']:.1f} s / (gathered bytes / bandwidth)",
                found["seconds"] / seconds,
                "x",
            ),
        ]
        facts |= {f"{scale:g}_{name}": float(value) for name, value in asdict(expected).items()}
        facts |= {f"{scale:g}_measured_{name}": float(value) for name, value in found.items()}
    notes = [
        f"{size.hops} hops; x is measured / expected. The time is beside the bytes of X that the "
        "products would gather without any cache, at the bandwidth above: below 1 the caches help "
        "more than the disk, the making of S and the checksums cost."
    ]
    return Outcome(figures, notes, facts)
