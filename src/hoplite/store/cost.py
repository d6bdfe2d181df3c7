"""What the work of a store takes: memory, files, passes over S and operations.

Memory decides the width of a panel, the rows of a block and the part of S that is held:

- panels: two of n x w float32, hop i - 1 and hop i: 8 n w bytes, twice as many without the C++
  core;
- S: a range of its rows, 8 or 12 bytes an entry; all of it where that fits;
- packing: the product copies 64 bytes a node when S is dense: 64 n bytes;
- reserve: threads, a block on its way to the disk, the allocator's own; more of it while planning,
  because the work of preparing leaves some memory in use.

What the process already holds when it plans, the imported libraries among it, counts first.

The cost follows from the sizes alone. With n nodes, e entries of the adjacency (two per edge), d
columns of X, k hops, p panels:

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

from hoplite.csr import MAX_INT32
from hoplite.engine.backend import has_native
from hoplite.errors import plural
from hoplite.machine import check_memory
from hoplite.store.files import Manifest

MIN_USE, USE_STEP = 140 * 10**6, 60 * 10**6
RESERVE, PLANNED_RESERVE = 24 * 10**6, 56 * 10**6
BLOCK_BYTES = 8 * 10**6  # size of a block over all its panels; an update writes whole blocks
PREPARED_ENTRY = 80  # bytes per entry while S is made
PACKED_DEGREE = 12  # entries per column from which on the product packs its columns
MIN_ENTRIES = 1 << 16  # a smaller range of S is not worth a product
VECTOR = 16  # columns that share a cache line


@dataclass(frozen=True)
class Sizes:
    """The counts that decide; ``entries`` and ``longest_row`` are of S."""

    nodes: int
    entries: int
    longest_row: int
    columns: int

    @classmethod
    def of(cls, nodes: int, entries: int, longest_row: int, columns: int) -> Sizes:
        """The sizes for counts of an adjacency; S may also have a diagonal."""
        return cls(nodes, entries + nodes, longest_row + 1, columns)

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> Sizes:
        return cls.of(manifest.nodes, manifest.entries, manifest.longest_row, manifest.columns)

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of S: its value and its column."""
        return 8 if self.nodes < 2**31 else 12

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel's column: two hops, and NumPy's sums if there is no C++ core."""
        return (8 if has_native() else 16) * self.nodes

    def part_bytes(self, entries: int) -> int:
        """Memory of a product with a part of S: the part and what the product packs."""
        packed = 64 * self.nodes if entries >= PACKED_DEGREE * self.nodes else 0
        whole = 24 * self.nodes if entries >= self.entries else 24 * min(self.nodes, 1 << 20)
        return entries * self.entry_bytes + whole + packed

    @property
    def least_part(self) -> int:
        return min(self.entries, max(self.longest_row, MIN_ENTRIES))

    def least(self, width: int, reserve: int) -> int:
        """The smallest number of bytes, beyond what is held already, that works."""
        panels = self.panel_bytes * width + self.part_bytes(self.least_part)
        making = 16 * self.nodes + PREPARED_ENTRY * max(self.longest_row, MIN_ENTRIES)
        return reserve + max(panels, making, 24 * self.columns)


def planned_use(held: int) -> int:
    """The memory in use that a new store is planned with: rounded, so that it is cut as before.

    >>> planned_use(111_234_567), planned_use(158_000_000)
    (140000000, 200000000)
    """
    return MIN_USE + -(-max(0, held - MIN_USE) // USE_STEP) * USE_STEP


def rows_per_block(sizes: Sizes, room: int) -> int:
    """Rows of a block: a power of two, so that all its columns are about 8 MB or fit in memory."""
    most = min(BLOCK_BYTES, room // 16) // (4 * max(sizes.columns, 1))
    return 1 << max(0, min(most, sizes.nodes).bit_length() - 1)


def panel_width(sizes: Sizes, room: int, workers: int = 1) -> int:
    """Columns of a panel, all panels about equally wide, as many as keep ``workers`` busy.

    >>> panel_width(Sizes.of(10**5, 10**6, 100, 400), 200 * 10**6)
    144
    >>> panel_width(Sizes.of(10**5, 10**6, 100, 400), 200 * 10**6, workers=4)
    112
    """
    room -= PLANNED_RESERVE
    whole = sizes.part_bytes(sizes.entries)
    part = whole if whole <= room // 3 else min(room // 8, whole)
    part = max(part, sizes.part_bytes(sizes.least_part))
    most = max(1, min((room - part) // max(sizes.panel_bytes, 1), sizes.columns))
    panels = -(-sizes.columns // most)
    panels = min(-(-panels // workers) * workers, max(panels, -(-sizes.columns // VECTOR)))
    width = -(-sizes.columns // max(panels, 1))
    rounded = -(-width // VECTOR) * VECTOR
    return max(1, rounded if rounded <= most else width)


def part_entries(sizes: Sizes, width: int, room: int) -> int:
    """Entries of S that fit in memory with two panels of ``width`` columns; all if possible."""
    left = room - RESERVE - sizes.panel_bytes * width
    if sizes.entries < MAX_INT32 and sizes.part_bytes(sizes.entries) <= left:
        return sizes.entries
    entries = (left - sizes.part_bytes(0)) // sizes.entry_bytes
    if entries >= PACKED_DEGREE * sizes.nodes:
        entries = max(
            PACKED_DEGREE * sizes.nodes - 1, entries - 64 * sizes.nodes // sizes.entry_bytes
        )
    return max(min(entries, sizes.entries - 1, MAX_INT32 - 1), sizes.least_part)


def prepared_entries(room: int) -> int:
    """Entries of the adjacency from which S is made at a time."""
    return max(MIN_ENTRIES, room // (4 * PREPARED_ENTRY))


def check_room(
    sizes: Sizes, width: int, held: int, memory: int, *, reserve: int = RESERVE, peak: int = 0
) -> int:
    """Bytes beyond the ``held`` ones; ConfigError with the least that works if too few.

    ``peak`` is what was held at the worst moment up to now.
    """
    least = max(held + sizes.least(width, reserve), peak)
    check_memory(memory, least, held, f"this graph, with {plural(width, 'feature')} at a time,")
    return memory - held


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
    sizes, room = Sizes.of(nodes, entries, longest_row, columns), memory - MIN_USE
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
