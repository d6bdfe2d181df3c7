"""A task of a store: the hops of one panel of columns, each from the hop before it.

    H_{i+1} = (a_i S + b_i) H_i - g_i H_{i-1}    with the numbers of the basis (hoplite.bases)

A task reads what it needs from the files of the store and writes the panels that are missing, so it
may be repeated, stopped at any moment, and run in any process that sees the folder. While a hop is
computed, the hop before it is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hoplite.bases import Step, find_basis
from hoplite.csr import row_ranges
from hoplite.engine.polynomial import next_hop
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.io.array_files import CsrFiles
from hoplite.machine import release_memory, used_memory
from hoplite.store.blocks import Blocks
from hoplite.store.graph_files import OPERATOR
from hoplite.store.layout import Sizes, check_room, part_entries
from hoplite.store.manifest import Manifest

Multiply = Callable[[np.ndarray, np.ndarray, Step], None]
Note = Callable[[int, int], None]


def run_panel(
    folder: Path, manifest: Manifest, panel: int, memory: int, note: Note | None = None
) -> None:
    """Compute the missing hops of one panel of the store in ``folder``.

    ``memory`` is the peak of the whole process in bytes; ``note`` is called with the panel and hop
    that are finished.
    """
    blocks = Blocks(folder / manifest.data, manifest)
    missing = [hop for hop in range(1, manifest.hops + 1) if not blocks.finished(hop, panel)]
    if not missing:
        return
    first, last = manifest.panels[panel]
    sizes = Sizes.of_manifest(manifest)
    release_memory()
    room = check_room(sizes, last - first, used_memory(), memory)
    with _operator(blocks.data, sizes, last - first, room) as multiply:
        _compute(blocks, panel, missing, multiply, note or (lambda panel, hop: None))


@contextlib.contextmanager
def _operator(data: Path, sizes: Sizes, width: int, room: int) -> Iterator[Multiply]:
    """Yield multiply(x, y, (a, b, g)): y = (a S + b) x - g y."""

    def damaged(error: Exception) -> StoreError:
        return StoreError(
            f"{data / OPERATOR} is missing or damaged ({error}); run the same `hoplite propagate` "
            "again to repair it."
        )

    entries = part_entries(sizes, width, room)
    try:
        files = CsrFiles(data / OPERATOR, damaged)
    except (OSError, ValueError) as error:
        raise damaged(error) from error
    with files:
        if files.rows != sizes.nodes:
            raise damaged(ValueError(f"it has {files.rows:,} rows, not {sizes.nodes:,}"))
        whole = entries >= sizes.entries
        ranges = [(0, files.rows)] if whole else list(row_ranges(files, entries))
        kept = _part(files, 0, files.rows) if whole else None

        def multiply(x: np.ndarray, y: np.ndarray, step: Step) -> None:
            for start, stop in ranges:  # no name holds a part while the next is being read
                own, out = x[start:stop], y[start:stop]
                next_hop(kept or _part(files, start, stop), step, x, out, own=own, out=out)

        yield multiply


def _part(files: CsrFiles, start: int, stop: int) -> SparseMatrix:
    """Rows of S."""
    return SparseMatrix(files.read(start, stop).to_scipy(files.rows), symmetric=False)


def _compute(
    blocks: Blocks, panel: int, missing: list[int], multiply: Multiply, note: Note
) -> None:
    manifest = blocks.manifest
    first, last = manifest.panels[panel]
    now, before = (np.empty((manifest.nodes, last - first), np.float32) for _ in range(2))
    steps = list(find_basis(manifest.basis).steps(manifest.hops))
    at, writing = -1, list[tuple[int, Future[None]]]()

    def wait() -> None:
        while writing:
            hop, task = writing.pop()
            task.result()
            note(panel, hop)

    with ThreadPoolExecutor(1) as pool:
        for hop in missing:
            if manifest.dtype == "float32" and at != hop - 1:
                wait()
                if steps[hop - 1][2]:  # g is not 0
                    blocks.load_panel(hop - 2, panel, before)
                blocks.load_panel(hop - 1, panel, now)
                at = hop - 1
            elif at < 0:  # the hops between are rounded on disk, so they are computed again
                blocks.load_panel(0, panel, now)
                at = 0
            while at < hop:
                multiply(now, before, steps[at])
                now, before, at = before, now, at + 1
                wait()  # what was being written is ``before`` now, and is written over next
            writing.append((hop, pool.submit(blocks.write_panel, hop, panel, now)))
        wait()
