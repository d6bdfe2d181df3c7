"""The tasks of a store: hop i of one panel of columns, from hop i - 1.

    H_{i+1} = (a_i S + b_i) H_i - g_i H_{i-1}    with the numbers of the basis (hoplite.bases)

A task reads what it needs from the files of the store and writes the blocks that are missing, so it
may be repeated, stopped at any moment, and run in any process that sees the folder. While a hop is
being computed, the hop before it goes to the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hoplite.bases import Step, find_basis
from hoplite.csr_rows import CsrFiles, row_ranges
from hoplite.engine.polynomial import next_hop
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.memory import parse_bytes, release_memory, used_memory
from hoplite.store.blocks import Blocks
from hoplite.store.errors import AGAIN, DamagedBlock, clear_disk_errors
from hoplite.store.layout import Sizes, check_room, part_entries
from hoplite.store.manifest import read_manifest
from hoplite.store.operator_files import FOLDER


def run_task(
    folder: str | os.PathLike[str], panel: int, hop: int, *, memory: str | int = "4GB"
) -> bool:
    """Compute hop ``hop`` of one panel of a prepared store, unless it is there; whether it was not.

    The hops before it must be there. A store in half precision starts again from hop 0, because
    what it keeps is rounded; there :func:`run_panel` does all hops of a panel at the cost of one.
    """
    return bool(run_panel(folder, panel, [hop], memory=memory))


def run_panel(
    folder: str | os.PathLike[str],
    panel: int,
    hops: Sequence[int] | None = None,
    *,
    memory: str | int = "4GB",
    note: Callable[[int, int], None] | None = None,
) -> list[int]:
    """Compute the missing ones of ``hops`` (1 to k if None) of one panel; the hops computed.

    ``memory`` is the peak of the whole process, as in :func:`propagate`; ``note`` hears of every
    panel and hop that is done.
    """
    folder, budget = Path(folder), parse_bytes(memory)
    blocks = Blocks(folder, read_manifest(folder))
    manifest = blocks.manifest
    if not 0 <= panel < len(manifest.panels):
        raise StoreError(
            f"panel {panel} is asked for but {folder} has {len(manifest.panels)}; count from 0."
        )
    wanted = range(1, manifest.hops + 1) if hops is None else sorted(set(hops))
    if wanted and not 1 <= wanted[0] <= wanted[-1] <= manifest.hops:
        raise StoreError(
            f"hops {wanted[0]} to {wanted[-1]} are asked for but {folder} has hops 1 to "
            f"{manifest.hops} to compute."
        )
    missing = [hop for hop in wanted if not blocks.finished(hop, panel)]
    if not missing:
        return []
    sizes, width = (
        Sizes.of_manifest(manifest),
        manifest.panels[panel][1] - manifest.panels[panel][0],
    )
    release_memory()
    room = check_room(sizes, width, used_memory(), budget)
    with clear_disk_errors(folder), _operator(folder, sizes, width, room) as multiply:
        try:
            _compute(blocks, panel, missing, multiply, note or (lambda panel, hop: None))
        except DamagedBlock as error:
            error.block.unlink(missing_ok=True)  # so that it counts as missing from now on
            raise
    return missing


Multiply = Callable[[np.ndarray, np.ndarray, Step], None]


@contextlib.contextmanager
def _operator(folder: Path, sizes: Sizes, width: int, room: int) -> Iterator[Multiply]:
    """Yield multiply(x, y, (a, b, g)): y = (a S + b) x - g y."""
    most = part_entries(sizes, width, room)
    try:
        files = CsrFiles(folder / FOLDER, lambda error: _damaged_operator(folder, error))
    except (OSError, ValueError) as error:
        raise _damaged_operator(folder, error) from error
    with files:
        if files.rows != sizes.nodes:
            raise _damaged_operator(folder, ValueError("it has another number of rows"))
        whole = most >= sizes.entries
        ranges = [(0, files.rows)] if whole else list(row_ranges(files, most))
        kept = _part(files, 0, files.rows) if whole else None

        def multiply(x: np.ndarray, y: np.ndarray, step: Step) -> None:
            for start, stop in ranges:  # no name holds a part while the next is being read
                own, out = x[start:stop], y[start:stop]
                next_hop(kept or _part(files, start, stop), step, x, out, own=own, out=out)

        yield multiply


def _damaged_operator(folder: Path, error: Exception) -> StoreError:
    again = AGAIN.format(folder=folder)
    return StoreError(f"the operator of {folder} is missing or damaged ({error}); {again}.")


def _part(files: CsrFiles, start: int, stop: int) -> SparseMatrix:
    """Rows of S."""
    return SparseMatrix(files.read(start, stop).to_scipy(files.rows), symmetric=False)


def _compute(
    blocks: Blocks,
    panel: int,
    missing: list[int],
    multiply: Multiply,
    note: Callable[[int, int], None],
) -> None:
    manifest = blocks.manifest
    first, last = manifest.panels[panel]
    now, before = (np.empty((manifest.nodes, last - first), np.float32) for _ in range(2))
    steps = list(find_basis(manifest.basis).steps(manifest.hops))
    exact, at = manifest.dtype == "float32", -1
    with _Writer(blocks, panel, note) as writer:
        for hop in missing:
            if exact and at != hop - 1:
                writer.wait()
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
                # what was being written is ``before`` now, and is written over next
                writer.wait()
            writer.start(hop, now)


class _Writer:
    """Writes one hop at a time, beside the computation."""

    def __init__(self, blocks: Blocks, panel: int, note: Callable[[int, int], None]) -> None:
        self._blocks, self._panel, self._note = blocks, panel, note
        self._pool = ThreadPoolExecutor(1)
        self._running: tuple[int, Future[None]] | None = None

    def start(self, hop: int, values: np.ndarray) -> None:
        """Write ``values``, which must not change until :meth:`wait`."""
        task = self._pool.submit(self._blocks.write_panel, hop, self._panel, values)
        self._running = (hop, task)

    def wait(self) -> None:
        """Until the hop is on the disk; its error, if any, comes out here."""
        if self._running is not None:
            (hop, task), self._running = self._running, None
            task.result()
            self._note(self._panel, hop)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)
