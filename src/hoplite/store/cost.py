"""What hop features cost, told from the sizes alone: bytes, passes over S, operations.

With n nodes, e entries of the adjacency (two per edge), d columns of X, k hops, p panels:

    A = 8 (n + 1) + 8 e      the adjacency        S = A + 8 n      the operator with its diagonal
    X = 4 n d                hop 0                H = b n d        a later hop of b = 4 or 2 bytes

    files      S + X + k H
    read       5 A + 3 X + (1 + passes) S      passes: p where S stays in memory, p k where not
    written    S + X + k H
    flops      2 k (e + n) d
    gathered   k ((e + n) (4 d + 8) + 4 n d)   bytes, if no row of X were found in a cache

A is also read for its checksum, its degrees and its weights, X and S for theirs. On a cluster the
reads of S and X by panels, and the writes of the hops, go through the network, and nothing else
does. Docs: scale.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.store.layout import LEAST_USE, Sizes, panel_width, part_entries


@dataclass(frozen=True)
class Cost:
    """Bytes, unless said otherwise."""

    graph: int
    operator: int
    files: int
    panels: int  # a number
    passes: int  # over S, a number
    read: int
    written: int
    shared: int  # read and written by the panels' tasks: the network's share on a cluster
    flops: int  # a number
    gathered: int


def cost(
    nodes: int,
    entries: int,
    columns: int,
    hops: int,
    memory: int,
    *,
    number_bytes: int = 4,
    workers: int = 1,
    longest_row: int = 0,
) -> Cost:
    """The cost of `hoplite propagate` on a graph on disk within ``memory`` (of each worker).

    >>> here = cost(232_965, 114_615_892, 602, 2, 4 * 10**9)
    >>> here.panels, here.passes, round(here.files / 1e9, 2), round(here.flops / 1e9)
    (1, 1, 2.6, 277)
    """
    sizes, room = Sizes.of(nodes, entries, longest_row, columns), memory - LEAST_USE
    width = panel_width(sizes, room, workers)
    panels = -(-columns // width)
    fits = part_entries(sizes, width, room) >= sizes.entries
    adjacency = 8 * (nodes + 1) + 8 * entries
    operator, features = adjacency + 8 * nodes, 4 * nodes * columns
    kept = number_bytes * nodes * columns * hops
    passes = panels * (1 if fits else hops)
    return Cost(
        graph=adjacency + features,
        operator=operator,
        files=operator + features + kept,
        panels=panels,
        passes=passes,
        read=5 * adjacency + 3 * features + (1 + passes) * operator,
        written=operator + features + kept,
        shared=passes * operator + features + kept,
        flops=2 * hops * (entries + nodes) * columns,
        gathered=hops * ((entries + nodes) * (4 * columns + 8) + features),
    )
