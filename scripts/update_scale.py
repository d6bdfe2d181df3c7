"""Write the projections of the cost model into docs/scale.md.

python scripts/update_scale.py            # or --check: fail if they are not up to date
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from pages import replaced

from hoplite.files import atomic_write_text
from hoplite.machine import format_bytes
from hoplite.store.cost import cost

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
HOPS = 4
MAKING = 35e-9  # seconds an entry of S takes to make, one thread: see large-hops


@dataclass(frozen=True)
class Graph:
    """A graph that is not here; ``entries`` are two for each edge."""

    name: str
    nodes: int
    entries: int
    columns: int


@dataclass(frozen=True)
class Machine:
    """One machine or several alike, with rates in bytes a second; ``memory`` is given to Hoplite.

    ``disk`` is the disk's rate of a single machine; of several it is that at which each of them
    reaches the storage that they share.
    """

    name: str
    memory: int
    bandwidth: float
    disk: float
    count: int = 1


PAPERS = Graph("ogbn-papers100M", 111_059_956, 2 * 1_615_685_872, 128)
TENFOLD = Graph("10 times that", 10 * PAPERS.nodes, 10 * PAPERS.entries, 128)
GB = 10**9
MACHINES = {
    PAPERS: (
        Machine("2 cores, 24 GB, disk 1 GB/s", 20 * GB, 34 * GB, 1 * GB),
        Machine("16 cores, 128 GB, NVMe 3 GB/s", 110 * GB, 150 * GB, 3 * GB),
        Machine("8 x (8 cores, 32 GB), 10 Gbit/s each", 26 * GB, 80 * GB, 1.2 * GB, 8),
    ),
    TENFOLD: (
        Machine("64 cores, 1 TB, NVMe 6 GB/s", 900 * GB, 300 * GB, 6 * GB),
        Machine("8 x (32 cores, 256 GB), 25 Gbit/s each", 220 * GB, 200 * GB, 3 * GB, 8),
        Machine("13 x (16 cores, 128 GB), 25 Gbit/s each", 110 * GB, 150 * GB, 3 * GB, 13),
    ),
}


def table() -> list[str]:
    lines = [
        "| graph | machine | panels | passes over S | files | disk or network | "
        "build S | products | transfer | total |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(graph, machine) for graph, chosen in MACHINES.items() for machine in chosen]
    return lines


def _row(graph: Graph, machine: Machine) -> str:
    found = cost(
        graph.nodes, graph.entries, graph.columns, HOPS, machine.memory, workers=machine.count
    )
    # the machine with most panels is the last to end; S and hop 0 are made by one of them
    share = -(-found.panels // machine.count) / found.panels
    making = MAKING * graph.entries
    products = found.gathered * share / machine.bandwidth
    alone = found.read + found.written - found.shared
    moving = (alone + found.shared * share) / machine.disk
    return (
        f"| {graph.name} | {machine.name} | {found.panels} | {found.passes} | "
        f"{format_bytes(found.files)} | {format_bytes(found.read + found.written)} | "
        f"{_duration(making)} | {_duration(products)} | {_duration(moving)} | "
        f"{_duration(making + products + moving)} |"
    )


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes >= 100:
        return f"{minutes / 60:.1f} h"
    return f"{minutes:.2g} min" if minutes < 10 else f"{minutes:.0f} min"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    updated = replaced(text, "projections", table())
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if updated == text else f"run python {sys.argv[0]}: {PAGE} is out of date")
    atomic_write_text(PAGE, updated)
