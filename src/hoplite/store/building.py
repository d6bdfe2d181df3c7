"""propagate: the hop features of a graph, computed in bounded memory, kept in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hoplite.bases import find_basis
from hoplite.cluster import connect
from hoplite.config import check_hops
from hoplite.errors import HopliteWarning, check_choice
from hoplite.graph import Graph
from hoplite.memory import parse_bytes, release_memory, show_bytes
from hoplite.operators import find_operator
from hoplite.printable import printable
from hoplite.progress import steps_bar, watched
from hoplite.store.blocks import HEADER, TYPES, Blocks, storage
from hoplite.store.claim import claimed
from hoplite.store.errors import DamagedBlock, clear_disk_errors
from hoplite.store.manifest import DTYPES, HopError, Manifest
from hoplite.store.on_cluster import compute_on
from hoplite.store.opening import opened_graph
from hoplite.store.panel import run_panel
from hoplite.store.prepare import adopt_manifest, prepare
from hoplite.store.store import HopStore

log = logging.getLogger("hoplite.store")

Progress = Callable[[str, float], None]
Task = tuple[int, int]  # panel, hop
Note = Callable[[int, int], None]  # of a task that is done
Compute = Callable[[Path, list[Task], int, Note], None]
ATTEMPTS = 3  # how often damage that shows up in the middle is repaired in one go
OPENED, PREPARED = 0.1, 0.2  # share of the work that is done by then


def propagate(
    source: Any,
    /,
    out: str | os.PathLike[str],
    *,
    hops: int,
    operator: str = "renormalized",
    basis: str = "monomial",
    memory: str | int = "4GB",
    dtype: str = "float32",
    seed: int = 0,
    progress: bool | Progress | None = False,
    cluster: str | None = None,
    **options: Any,
) -> HopStore:
    """Compute p_0(S) X .. p_k(S) X of ``source`` and keep them in the folder ``out``.

    Parameters
    ----------
    source : Graph, DiskGraph, or what :func:`hoplite.load` takes
        Tables that are large for ``memory`` are imported piece by piece, to ``out/graph``.
    out : path
        The folder of the store. If it holds this work already, finished or not, the work goes on
        from there; a damaged block is computed anew. More hops than before are added.
    hops, operator, basis
        k, S and the polynomials p_i, as in a model.
    memory : str or int
        Peak of the whole process, such as ``"4GB"``, the imported libraries included; on a cluster
        of each worker, too.
    dtype : {"float32", "float16", "bfloat16"}
        How hops 1 to k are stored; what that costs is measured, see :meth:`HopStore.errors`.
    seed : int
        Of the split, for node tables without one.
    progress : bool or callable
        True for a bar on standard error, or in a notebook; or called with what is being done and
        the share that is done.
    cluster : str, optional
        Where the hops are computed: ``"tcp://HOST:PORT"`` of a running Dask scheduler whose workers
        share the folder, or ``"local:N"`` for N processes here (in a script, they need the usual
        ``if __name__ == "__main__":``). If None, in this process.
    options
        Of tables, as :func:`hoplite.load` takes them.

    The files are the same, byte for byte, however often the work was stopped and whatever the
    number of threads. In float32 they equal the hop features in memory to the bit.

    >>> import tempfile, numpy as np
    >>> from hoplite import Graph
    >>> path = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = propagate(path, folder, hops=2, operator="adjacency")
    ...     (2 * store.read(0, 1, hops=[0, 2])).round(3).tolist()
    [[[2.0, 0.0, 0.0]], [[1.0, 0.0, 1.0]]]
    """
    hops, budget, folder = check_hops(hops), parse_bytes(memory), Path(out)
    find_operator(operator).require_symmetric("what is read of a hop store needs")
    check_choice("dtype", dtype, DTYPES)
    chosen = find_basis(basis)
    chosen.table(hops)  # that it has the numbers is known before any work
    settings = {"hops": hops, "operator": operator, "basis": str(chosen), "dtype": dtype}
    # to predict with a model, S must be the model's; otherwise it is the graph's own
    settings["loop_weight"] = getattr(options.get("prepare"), "loop_weight", None)
    began, name = time.perf_counter(), source if isinstance(source, str | Path) else "a graph"
    log.info("propagating %s to %s: %d hops, %s, %s", name, folder, hops, operator, chosen)
    with (
        clear_disk_errors(folder),
        claimed(folder),
        watched(progress, steps_bar, f"propagate {name}") as report,
        _workers(cluster, folder, budget) as workers,
    ):
        tell = logged(report)
        for attempt in range(ATTEMPTS):
            try:
                _run(source, folder, settings, budget, seed, tell, options, *workers)
                break
            except DamagedBlock:  # it has been removed, so the next attempt computes it
                if attempt == ATTEMPTS - 1:
                    raise
    log.info("the store %s is complete, after %.1f s", folder, time.perf_counter() - began)
    return HopStore.open(folder)


def logged(report: Progress | None) -> Progress:
    """What tells ``report``, and the log of every new thing that is done."""
    last = ""

    def tell(what: str, share: float) -> None:
        nonlocal last
        if report is not None:
            report(what, share)
        if what != last and log.isEnabledFor(logging.DEBUG):
            log.debug("%s (%.0f %%)", printable(what), 100 * share)
        last = what

    return tell


@contextlib.contextmanager
def _workers(cluster: str | None, folder: Path, budget: int) -> Iterator[tuple[Compute, int]]:
    """What runs the tasks, and how many of them at a time."""
    if cluster is None:
        yield compute_here, 1
    else:
        with connect(cluster, folder, budget) as found:
            yield functools.partial(compute_on, found), found.size


def _run(
    source: Any,
    folder: Path,
    settings: dict[str, Any],
    budget: int,
    seed: int,
    tell: Progress,
    options: dict[str, Any],
    compute: Compute,
    workers: int,
) -> None:
    opening = opened_graph(
        source, folder, budget, seed, lambda what, x: tell(what, OPENED * x), options
    )
    with opening as (graph, loaded):
        if isinstance(graph, Graph):
            graph.refuse_relations("a hop store")
        manifest = adopt_manifest(folder, graph, settings, budget, workers, loaded=loaded)
        store = HopStore(folder, manifest)
        _remove_damaged(store, tell)
        _warn_about_room(Blocks(folder, manifest))
        gap = PREPARED - OPENED
        prepare(store, graph, budget, lambda what, x: tell(what, OPENED + gap * x))
        del graph  # nothing may hold what is free from here on
    release_memory()
    tasks, done = store.missing(), 0

    def note(panel: int, hop: int) -> None:
        nonlocal done
        done = min(done + 1, len(tasks))  # a worker that died may have told of some already
        place = f"hop {hop} of panel {panel + 1}/{len(manifest.panels)}"
        tell(f"{manifest.name}: {place}", PREPARED + (1 - PREPARED) * (done / len(tasks)))

    if tasks:
        compute(folder, tasks, budget, note)
    note_error(Blocks(folder, manifest))


def compute_here(folder: Path, tasks: list[Task], memory: int, note: Note) -> None:
    """Run the tasks in this process, panel by panel."""
    hops: dict[int, list[int]] = {}
    for panel, hop in tasks:
        hops.setdefault(panel, []).append(hop)
    for panel, wanted in hops.items():
        run_panel(folder, panel, wanted, memory=memory, note=note)


def _remove_damaged(store: HopStore, tell: Progress) -> None:
    """Remove the blocks that are not as they were written, so that they are made again."""
    if not (store.folder / "hops").exists():
        return
    tell("checking the store", OPENED)
    for damage in store.damages():
        if isinstance(damage, DamagedBlock):
            damage.block.unlink(missing_ok=True)


def note_error(blocks: Blocks) -> None:
    """Write what half precision costs, per hop, into the manifest."""
    manifest = blocks.manifest
    if manifest.dtype == "float32":
        return
    found = []
    for hop in range(1, manifest.hops + 1):
        records = [blocks.closed(hop, panel) for panel in range(len(manifest.panels))]
        error, norm = (sum(getattr(record, key) for record in records) for key in ("error", "norm"))
        relative = math.sqrt(error / norm) if norm else 0.0
        largest = max((record.max_abs or 0.0 for record in records), default=0.0)
        found.append(HopError(hop, largest, relative))
    if tuple(found) != manifest.error:
        dataclasses.replace(manifest, error=tuple(found)).write(blocks.folder)


def _warn_about_room(blocks: Blocks) -> None:
    """A disk that cannot hold the store is better known before hours of work than after."""
    manifest = blocks.manifest
    needed = sum(
        HEADER + stored_bytes(manifest, hop) * math.prod(blocks.shape(block, panel))
        for hop, block, panel in blocks.each()
        if not blocks.has(hop, block, panel)
    )
    free = shutil.disk_usage(blocks.folder).free
    if needed > free:
        warnings.warn(
            f"the store needs {show_bytes(needed)} more but the disk of {blocks.folder} has "
            f"{show_bytes(free)} free; the work will stop there and can be continued.",
            HopliteWarning,
            stacklevel=4,
        )


def stored_bytes(manifest: Manifest, hop: int) -> int:
    """Bytes of one number of a hop."""
    return TYPES[storage(manifest, hop)]().itemsize
