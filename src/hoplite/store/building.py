"""propagate: the hop features of a graph, computed in bounded memory, kept in a folder.

A task is the hops of one panel of columns, each from the hop before it:

    H_{i+1} = (a_i S + b_i) H_i - g_i H_{i-1}    with the numbers of the basis (hoplite.bases)

It reads what it needs from the files of the store and writes the panels that are missing, so it may
be repeated, stopped at any moment, and run in any process that sees the folder. While a hop is
computed, the hop before it is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.bases import Step, find_basis
from hoplite.config import check_hops
from hoplite.csr import row_ranges
from hoplite.engine.polynomial import next_hop
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import HopliteWarning, StoreError, check_choice, option_name, plural
from hoplite.files import locked, remove_leftovers
from hoplite.graph import Graph, GraphData
from hoplite.io.array_files import check_crc32
from hoplite.io.node_files import all_integers, write_nodes
from hoplite.machine import format_bytes, parse_bytes, peak_memory, release_memory, used_memory
from hoplite.operators import find_operator
from hoplite.progress import steps_bar, watched
from hoplite.store import cost, files
from hoplite.store.cluster import Cluster, check_wanted, connect, wait_until
from hoplite.store.opening import opened_graph
from hoplite.store.store import HopStore

log = logging.getLogger("hoplite.store")

Progress = Callable[[str, float], None]
Multiply = Callable[[np.ndarray, np.ndarray, Step], None]
Note = Callable[[int, int], None]
# share of the work that is done when the graph is open, S is made, and X is written
OPENED, OPERATOR_MADE, PREPARED = 0.1, 0.15, 0.2
SHARED_SECONDS = 90.0  # until then a shared folder shows here what was written elsewhere


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
    seed: int | None = None,
    progress: bool | Progress | None = False,
    cluster: str | None = None,
    **options: Any,
) -> HopStore:
    """Compute the hop features p_0(S) X, ..., p_k(S) X of a graph and write them to a folder.

    Parameters
    ----------
    source : Graph, DiskGraph, or what :func:`hoplite.load` takes
        Tables that are large for ``memory`` are imported piece by piece, to ``out/graph``.
    out : path
        The folder of the store. An interrupted computation continues; damaged blocks are computed
        again; if ``hops`` is larger than before, hops are added.
    hops, operator, basis
        k, S and the polynomials p_i, as in a model.
    memory : str or int
        Memory limit of the process, such as ``"4GB"``, including the imported libraries; on a
        cluster also of each worker.
    dtype : {"float32", "float16", "bfloat16"}
        Data type of hops 1 to k; :meth:`HopStore.errors` has the rounding errors.
    seed : int, optional
        As for :func:`hoplite.load`.
    progress : bool or callable
        True for a bar on standard error, or in a notebook; or called with what is being done and
        the share that is done.
    cluster : str, optional
        Where the hops are computed: ``"tcp://HOST:PORT"`` of a running Dask scheduler whose workers
        share the folder, or ``"local:N"`` for N processes here (in a script, these need
        ``if __name__ == "__main__":``). If None, in this process.
    **options
        Options of tables, as for :func:`hoplite.load`.

    Returns
    -------
    HopStore

    Notes
    -----
    The files are the same, byte for byte, whatever the interruptions and the number of threads. In
    float32 they equal the hop features in memory bit for bit.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from hoplite import Graph
    >>> path = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = propagate(path, folder, hops=2, operator="adjacency")
    ...     (2 * store.read(0, 1, hops=[0, 2])).round(3).tolist()
    [[[2.0, 0.0, 0.0]], [[1.0, 0.0, 1.0]]]
    """
    hops, budget, folder = check_hops(hops), parse_bytes(memory), Path(out)
    find_operator(operator).require_symmetric("a hop store needs")
    check_choice("dtype", dtype, files.TYPES)
    chosen = find_basis(basis)
    chosen.table(hops)  # raises now, before any work, if the basis does not have as many hops
    settings: dict[str, Any] = {"operator": operator, "basis": str(chosen), "dtype": dtype}
    # to predict with a model, S must be the model's; otherwise it is the graph's own
    loop_weight = getattr(options.get("prepare"), "loop_weight", None)
    began, name = time.perf_counter(), source if isinstance(source, str | Path) else "a graph"
    log.info("propagating %s to %s: %d hops, %s, %s", name, folder, hops, operator, chosen)
    with (
        disk_errors(folder),
        lock_folder(folder),
        watched(progress, steps_bar, f"propagate {name}") as bar,
        connect(cluster, folder, budget) if cluster else contextlib.nullcontext() as workers,
    ):
        report = bar or (lambda what, share: None)
        before = used_memory()
        opening = opened_graph(
            source, folder, budget, seed, lambda what, x: report(what, OPENED * x), options
        )
        with opening as (graph, loaded):
            if isinstance(graph, Graph):
                graph.refuse_relations("a hop store")
            settings["loop_weight"] = loop_weight
            # what was loaded here is free again when the hops are computed
            held, peak = (before, peak_memory()) if loaded else (used_memory(), 0)
            use, size = (cost.planned_use(held), peak, budget), workers.size if workers else 1
            manifest = adopt_manifest(folder, graph, hops, settings, use, size)
            store = HopStore(folder, manifest)
            report("checking the store", OPENED)
            for damage in store.damages() if store.data.exists() else ():
                if isinstance(damage, files.DamagedBlock):
                    damage.path.unlink(missing_ok=True)  # so that it is made again
            prepare(store, graph, budget, report)
            del graph  # nothing may hold what is free from here on
        release_memory()
        if store.missing():
            _compute(store, budget, report, workers)
    log.info("the store %s is complete, after %.1f s", folder, time.perf_counter() - began)
    return HopStore.open(folder)


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Within the block, a full disk or another failure of ``folder``'s disk is a StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be used: {error.strerror or error}; finished work "
            "is kept."
        ) from error


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make ``folder``, hold it for this process, and remove what a killed one left unfinished."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; pass a folder as {option_name('out')}.")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / files.LOCK) as (_, ours):
        if ours is False:
            raise StoreError(
                f"another process is using {folder}; wait until it has finished, or "
                "use another folder."
            )
        _tidy(folder)
        try:
            yield
        except BaseException:
            if is_new and [path.name for path in folder.iterdir()] == [files.LOCK]:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _tidy(folder: Path) -> None:
    """Remove temporary files and all but the valid version; StoreError if there are other files."""
    if (folder / files.FILE).exists():
        current = files.read_manifest(folder).data
        for path in folder.glob("v[0-9]*"):
            if path.name != current:
                shutil.rmtree(path)
        for place, _, _ in os.walk(folder / current):
            remove_leftovers(Path(place))
    else:
        for path in folder.iterdir():
            if not path.name.startswith(".") and path.name != files.GRAPH:
                raise StoreError(
                    f"{folder} already contains {path.name!r}, which is not part of a hop store; "
                    "use another folder."
                )
    remove_leftovers(folder)


def adopt_manifest(
    folder: Path,
    data: GraphData,
    hops: int,
    settings: dict[str, Any],
    memory: tuple[int, int, int],
    workers: int,
) -> files.Manifest:
    """The manifest of this work: the one in ``folder`` if it is of the same work, or a new one.

    ``memory`` is what the process holds, its peak up to now, and the limit. A new manifest has
    a multiple of ``workers`` panels, unless they would become too narrow. It is written before
    anything else, so that no block is ever of unknown origin.
    """
    identity, (held, peak, limit) = data.fingerprint(), memory
    present = files.read_manifest(folder) if (folder / files.FILE).exists() else None
    entries = data.adjacency_rows.entries
    expected: dict[str, Any] = {
        "graph": identity.graph,
        "features": identity.features,
        "nodes": data.num_nodes,
        "columns": data.num_features,
        **settings,
        "loop_weight": settings["loop_weight"] or (present or data).loop_weight,
    }
    sizes = cost.Sizes.of(data.num_nodes, entries, identity.longest_row, data.num_features)
    if present is None:
        reserve = cost.PLANNED_RESERVE
        making = used_memory() + sizes.least(0, reserve)  # S is made while X is still held
        peak_use = max(peak, making)
        room = cost.check_room(sizes, 1, held, limit, reserve=reserve, peak=peak_use)
        width, rows = cost.panel_width(sizes, room, workers), cost.rows_per_block(sizes, room)
        columns = range(0, sizes.columns, width)
        panels = tuple((first, min(first + width, sizes.columns)) for first in columns)
    else:
        for name, value in expected.items():
            if getattr(present, name) != value:
                problem = f"was built with {name} {getattr(present, name)}, not {value}"
                if name in ("graph", "features", "nodes", "columns"):
                    size = f"{plural(present.nodes, 'node')}, {plural(present.columns, 'feature')}"
                    problem = f"is a hop store of {present.name} ({size}), and {data.name} is "
                    problem += "another graph, or its edges or features have changed"
                raise StoreError(f"{folder} {problem}; choose another folder.")
        panels, rows = present.panels, present.rows_per_block
        widest = max((last - first for first, last in panels), default=1)
        cost.check_room(sizes, widest, held, limit, peak=peak)
    try:
        manifest = files.Manifest(
            **expected,
            name=data.name,
            entries=entries,
            longest_row=identity.longest_row,
            hops=max(hops, present.hops if present else 0),
            rows_per_block=rows,
            panels=panels,
            class_names=data.class_names,
            feature_names=data.feature_names,
            split_note=data.split.note,
            preparation=data.preparation,
            added=present.added if present else (),
            version=present.version if present else 0,
        )
    except ValueError as error:
        raise StoreError(
            f"{error}; use fewer hops, or increase {option_name('memory')}."
        ) from error
    if present != manifest:
        manifest.write(folder)
    return manifest


def prepare(store: HopStore, data: GraphData, budget: int, report: Progress) -> None:
    """Write S, hop 0, the labels, the split and the ids, as far as they are missing."""
    manifest, blocks = store.manifest, files.Blocks(store.data, store.manifest)
    _warn_about_room(blocks)
    store.data.mkdir(exist_ok=True)
    try:
        record = files.read_record(store.data)
        check_crc32(store.data, record.crc32, *record.operator_files)
        edges = record.edges
    except (OSError, ValueError):
        entries = cost.prepared_entries(budget - used_memory() - 16 * manifest.nodes)
        span = OPERATOR_MADE - OPENED

        def note(share: float) -> None:
            report("making the operator", OPENED + span * share)

        edges = files.write_operator(store.data, data.adjacency_rows, manifest, entries, note)
    ids, integers = data.node_ids, all_integers(data.node_ids or ())
    write_nodes(store.data, data.labels, data.split, ids, integers=integers)
    files.write_record(store.data, edges)
    panels = [panel for panel in range(len(manifest.panels)) if not blocks.finished(0, panel)]
    records = {panel: files.PanelRecord() for panel in panels}
    for block, (start, stop) in enumerate(manifest.row_blocks if panels else ()):
        rows = data.feature_rows(start, stop)  # X is read once, from top to bottom
        for panel, record in records.items():
            first, last = manifest.panels[panel]
            blocks.write(0, block, panel, np.ascontiguousarray(rows[:, first:last]), record)
        share = stop / manifest.nodes
        report("writing the features", OPERATOR_MADE + (PREPARED - OPERATOR_MADE) * share)
    for panel, record in records.items():
        blocks.close_panel(0, panel, record)


def _warn_about_room(blocks: files.Blocks) -> None:
    """A disk that cannot hold the store is better known before hours of work than after."""
    places = (place for place in blocks.positions() if not blocks.has(*place))
    needed = sum(blocks.file_bytes(*place) for place in places)
    free = shutil.disk_usage(blocks.data.parent).free
    if needed > free:
        warnings.warn(
            f"the store needs {format_bytes(needed)} more but the disk of {blocks.data.parent} "
            f"has only {format_bytes(free)} free; the work will stop when the disk is full and "
            "can be resumed.",
            HopliteWarning,
            stacklevel=4,
        )


def _compute(store: HopStore, budget: int, report: Progress, workers: Cluster | None) -> None:
    """Compute the missing hops, here or on ``workers``."""
    tasks, count = store.missing(), len(store.manifest.panels)
    panels, done = sorted({panel for panel, _ in tasks}), set[tuple[int, int]]()

    def note(panel: int, hop: int) -> None:
        done.add((panel, hop))
        share = PREPARED + (1 - PREPARED) * (len(done) / len(tasks))
        report(f"{store.name}: hop {hop} of panel {panel + 1}/{count}", share)

    if workers is None:
        for panel in panels:
            run_panel(store.folder, store.manifest, panel, budget, note)
    else:
        compute_on(workers, store, panels, budget, note)


def compute_on(
    workers: Cluster, store: HopStore, panels: list[int], memory: int, note: Note
) -> None:
    """Compute the missing hops of ``panels`` on a cluster; a panel is a task.

    So a panel stays in the memory of one worker from hop to hop, and S is read once for it where it
    fits. What two workers write at the same time is the same: blocks are renamed into place, whole.
    Progress is read from the files.
    """
    blocks, waiting = files.Blocks(store.data, store.manifest), set(store.missing())

    def look() -> bool:
        for panel, hop in sorted(waiting):
            if blocks.finished(hop, panel):
                waiting.remove((panel, hop))
                note(panel, hop)
        return not waiting

    folder = str(store.folder.absolute())
    arguments = [(folder, store.manifest.version, panel, memory) for panel in panels]
    for _ in workers.map(compute_panel, arguments, look):
        look()
    if not wait_until(look, SHARED_SECONDS):
        raise StoreError(
            f"the workers have written all hops but {store.folder} is missing {len(waiting):,} "
            "panels; check that all machines share this folder."
        )
    _tidy(store.folder)  # what workers left that died while they wrote


def compute_panel(folder: str, version: int, panel: int, memory: int) -> None:
    """Run on a worker: the missing hops of one panel."""
    manifest = files.read_manifest(Path(folder))
    if manifest.version != version:
        raise StoreError(f"{folder} was changed by another process; run it again.")
    run_panel(Path(folder), manifest, panel, memory, lambda panel, hop: check_wanted())


def run_panel(folder: Path, manifest: files.Manifest, panel: int, memory: int, note: Note) -> None:
    """Compute the missing hops of one panel of the store in ``folder``.

    ``memory`` is the peak of the whole process in bytes; ``note`` is called with the panel and hop
    that are finished.
    """
    blocks = files.Blocks(folder / manifest.data, manifest)
    missing = [hop for hop in range(1, manifest.hops + 1) if not blocks.finished(hop, panel)]
    if not missing:
        return
    first, last = manifest.panels[panel]
    sizes = cost.Sizes.of_manifest(manifest)
    release_memory()
    room = cost.check_room(sizes, last - first, used_memory(), memory)
    multiply = _multiplication(blocks.data, sizes, last - first, room)
    _compute_hops(blocks, panel, missing, multiply, note)


def _multiplication(data: Path, sizes: cost.Sizes, width: int, room: int) -> Multiply:
    """The function multiply(x, y, (a, b, g)): y = (a S + b) x - g y."""
    matrix = files.stored_operator(data, sizes.nodes)
    entries = cost.part_entries(sizes, width, room)
    whole = entries >= sizes.entries
    ranges = [(0, matrix.rows)] if whole else list(row_ranges(matrix, entries))

    def part(start: int, stop: int) -> SparseMatrix:
        return SparseMatrix(matrix.read(start, stop), symmetric=False)

    kept = part(0, matrix.rows) if whole else None

    def multiply(x: np.ndarray, y: np.ndarray, step: Step) -> None:
        for start, stop in ranges:  # no name holds a part while the next is being read
            own, out = x[start:stop], y[start:stop]
            next_hop(kept or part(start, stop), step, x, out, own=own, out=out)

    return multiply


def _compute_hops(
    blocks: files.Blocks, panel: int, missing: list[int], multiply: Multiply, note: Note
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
