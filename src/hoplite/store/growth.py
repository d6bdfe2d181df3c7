"""Nodes and edges that arrive later: of the hops of a store only what they change is computed.

Let T be the nodes whose row of the adjacency changes: the ends of new edges, and the new nodes. Let
B_0 = T and B_{i+1} = B_i and all neighbours of it, in the grown graph. Then

    S changes in the rows of B_1 at most, and P_i = p_i(S) X in those of B_i, for i = 1 .. k.

S_uv is a function of A_uv and of the degrees of u and v. If u is not in B_1, row u of A is the old
one, and no neighbour v of u is in T, so that no degree in it changed either: row u of S is the old
one. P_0 = X changes in the new nodes, which are in T. Suppose that P_i changes within B_i, P_{i-1}
within B_{i-1}, and let u be outside of B_{i+1}. It is outside of B_1, so that row u of S is old and
has its places at u and its neighbours, none of which is in B_i; hence in P_{i+1} = (a S + b) P_i -
g P_{i-1} all that row u is made of is as it was. Every node of B_1 is needed: the degree of a node
of T changes, and with it the entries of S in the rows of all its neighbours.

So hop i is computed in the rows of B_i, from hop i - 1 in those of B_{i+1}, of which the files have
what is not in B_{i-1}. A row is the same sum in the same order as in a full computation, and the
new store is bit for bit the same as one built from the grown graph.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.bases import find_basis
from hoplite.csr import CsrRows, PatchedRows, adjacency_digest, features_digest, rows_of
from hoplite.engine.polynomial import next_hop
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.files import sync_folder
from hoplite.io.extend import NewNodes, NewTables
from hoplite.io.node_files import write_nodes
from hoplite.machine import parse_bytes, release_memory, used_memory
from hoplite.progress import steps_bar, watched
from hoplite.store import files
from hoplite.store.building import Progress, disk_errors, lock_folder, log, run_panel
from hoplite.store.cost import RESERVE, Sizes, check_room, prepared_entries
from hoplite.store.store import HopStore
from hoplite.structural import links_among, log_degrees_of, structural_count

READ, OPERATOR_MADE, FEATURES_MADE = 0.2, 0.4, 0.5  # share of the work that is done by then
MAX_SHARE = 0.5  # share of the rows; if more of them change, all are computed
ARRAYS = 5  # arrays of the changed rows that a hop needs at once
ENTRY_BYTES = 24  # bytes of an entry of S while rows of it are taken


def update_store(
    new: Any,
    out: str | os.PathLike[str],
    *,
    memory: str | int = "4GB",
    progress: bool | Progress | None = False,
    **options: Any,
) -> HopStore:
    """Add the nodes and edges of ``new`` to the store in ``out``.

    Parameters
    ----------
    new : folder of node and edge tables, or a pair (nodes, edges) of frames
        As :func:`hoplite.io.extend` takes them; it is held in memory. The columns are prepared
        as those of the store were. Tables that were added already are left alone.
    out : path
        The folder of a complete store. It stays valid until the update is complete; after an
        interruption, the same call continues.
    memory, progress
        As in :func:`propagate`.
    **options
        ``label``, ``id`` and ``unknown_nodes`` of tables.

    Returns
    -------
    HopStore

    Notes
    -----
    Only rows within k hops of new nodes and edges are computed, if these are few. The result equals
    the store of the extended graph, byte for byte if the blocks are the same. Labels and split
    stay; new nodes have the labels and the split of their table.

    Examples
    --------
    >>> import tempfile, numpy as np, pyarrow as pa
    >>> from hoplite import Graph, propagate
    >>> path = Graph.from_edges([(0, 1), (1, 2)], np.eye(3), feature_names=["a", "b", "c"])
    >>> more = pa.table({"id": [3], "a": [0.0], "b": [0.0], "c": [8.0]})
    >>> edges = pa.table({"source": [3, 0], "target": [2, 3]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = propagate(path, folder, hops=1, operator="adjacency")
    ...     update_store((more, edges), folder).read(2, 4, hops=[1])[0].round(3).tolist()
    [[0.0, 0.5, 4.0], [0.5, 0.0, 0.5]]
    """
    folder, budget = Path(out), parse_bytes(memory)
    HopStore.open(folder)  # an error if there is none: a folder is not made here
    log.info("adding to the store %s", folder)
    with (
        disk_errors(folder),
        lock_folder(folder),
        watched(progress, steps_bar, f"update {folder}") as bar,
    ):
        store, report = HopStore.open(folder).require_complete(), bar or (lambda what, share: None)
        report(f"reading {new if isinstance(new, str | Path) else 'new nodes and edges'}", 0.0)
        tables = NewTables(new, store, **options)
        digest = tables.digest
        if digest not in store.manifest.added:
            _Update(store, tables, budget, report).run(digest)
    grown = HopStore.open(folder)
    log.info("the store %s has %d nodes now, %d before", folder, grown.num_nodes, store.num_nodes)
    return grown


class _Update:
    """The next version of a store, which becomes valid when its manifest is written."""

    def __init__(self, store: HopStore, tables: NewTables, budget: int, report: Progress) -> None:
        self._store, self._old, self._budget, self._report = store, store.manifest, budget, report
        self._old_blocks = files.Blocks(store.data, store.manifest)
        adjacency, names = store.adjacency_rows, store.feature_names
        if adjacency is None:
            raise StoreError(
                f"{store.folder} does not store all of its edges, because some vanish in its "
                "operator; build a store of the extended graph."
            )
        structural = structural_count(names) is not None or bool(log_degrees_of(store))
        if structural or links_among(names, store.preparation) is not None:
            raise StoreError(
                f"{store.folder} has structural features, which change everywhere with every new "
                "edge; build a store of the extended graph."
            )
        self._new = tables.read(weighted=adjacency.weighted)
        self._changed, rows = changed_rows(adjacency, self._new)
        self._adjacency = PatchedRows(adjacency, self._changed, rows)

    def run(self, digest: str) -> None:
        """Build the version and make it valid, if there is a new node or edge at all."""
        if not len(self._changed):  # all of them may have been dropped
            return
        store, new, adjacency, report = self._store, self._new, self._adjacency, self._report
        # the old rows of X are checked on the way
        features = (store.feature_rows(*block) for block in self._old.row_blocks)
        self._manifest = manifest = dataclasses.replace(
            self._old,
            nodes=adjacency.rows,
            entries=adjacency.entries,
            longest_row=int(np.diff(adjacency.indptr(0, adjacency.rows)).max(initial=0)),
            graph=adjacency_digest(adjacency)[0],
            features=features_digest(chain(features, [new.features]), self._old.columns),
            added=(*self._old.added, digest),
            version=self._old.version + 1,
        )
        self._data = data = store.folder / manifest.data
        data.mkdir()
        widest = max((last - first for first, last in manifest.panels), default=1)
        release_memory()
        room = check_room(Sizes.of_manifest(manifest), widest, used_memory(), self._budget)

        def note(share: float) -> None:
            report("making the operator", READ + (OPERATOR_MADE - READ) * share)

        entries = prepared_entries(room - 16 * manifest.nodes)
        edges = files.write_operator(data, adjacency, manifest, entries, note)
        labels, old_ids = np.concatenate([store.labels, new.labels]), store.node_ids
        numbered = old_ids is None or old_ids.integers
        integers = numbered and (new.integer_ids or not new.count)
        ids = chain(range(store.num_nodes) if old_ids is None else old_ids, new.ids.tolist())
        ids = ids if new.count or old_ids is not None else None
        write_nodes(data, labels, new.grown_split(store.split), ids, integers=integers)
        files.write_record(data, edges)
        report("writing the features", OPERATOR_MADE)
        balls = list(self._balls(manifest.hops + 1))
        local = self._local(balls, widest, room)
        nodes = np.arange(self._old.nodes, manifest.nodes)
        for panel, (first, last) in enumerate(manifest.panels):
            self._write_hop(0, panel, nodes, self._new.features[:, first:last])
            if local is None:
                run_panel(store.folder, manifest, panel, self._budget, self._note)
            else:
                self._compute(panel, balls, local)
        for place, _, _ in os.walk(data):
            sync_folder(Path(place))
        shutil.rmtree(store.folder / files.GRAPH, ignore_errors=True)  # tables of the graph before
        manifest.write(store.folder)
        shutil.rmtree(store.data, ignore_errors=True)

    def _balls(self, radius: int) -> Iterator[np.ndarray]:
        """B_0 = T, B_1, .. B_radius, sorted."""
        inside = np.zeros(self._adjacency.rows, bool)
        inside[self._changed] = True
        ball = rim = self._changed
        yield ball
        for _ in range(radius):
            for _, rows in rows_of(self._adjacency, rim):
                inside[rows.indices] = True
            inside[ball] = False
            rim = np.flatnonzero(inside)
            inside[ball] = True
            ball = np.flatnonzero(inside)
            yield ball

    def _local(self, balls: list[np.ndarray], width: int, room: int) -> sp.csr_array | None:
        """The rows of B_k and the columns of B_{k+1} of S; None if everything is computed again.

        It is None where that is no more work, where memory is too small for the local way, and for
        half precision, where the files lack the exact values from which the next hop is computed.
        """
        hops, n = self._manifest.hops, self._adjacency.rows
        rows, columns = balls[hops], balls[hops + 1]
        if self._manifest.dtype != "float32" or len(columns) > MAX_SHARE * n:
            return None
        left = room - RESERVE - ARRAYS * 4 * width * len(columns) - 4 * n
        place = np.full(n, -1, np.int32)
        place[columns] = np.arange(len(columns), dtype=np.int32)
        parts, entries = [sp.csr_array((0, len(columns)), dtype=np.float32)], 0
        for _, part in rows_of(files.stored_operator(self._data, n), rows):
            entries += part.nnz
            if ENTRY_BYTES * entries > left:
                return None
            shape = (part.shape[0], len(columns))
            parts.append(sp.csr_array((part.data, place[part.indices], part.indptr), shape))
        return sp.csr_array(sp.vstack(parts, format="csr"))

    def _write_hop(self, hop: int, panel: int, nodes: np.ndarray, values: np.ndarray) -> None:
        """A hop in which the rows of ``nodes`` are ``values`` now; other blocks are linked."""
        old, new = self._old_blocks, files.Blocks(self._data, self._manifest)
        checksums, record = old.record(hop, panel).crc32, files.PanelRecord()
        step = self._manifest.rows_per_block
        for block, (start, stop) in enumerate(self._manifest.row_blocks):
            low, high = np.searchsorted(nodes, [start, stop])
            if low == high:
                record.crc32.append(checksums[block])
                _link(old.path(hop, block, panel), new.path(hop, block, panel))
                continue
            whole = np.empty(new.shape(block, panel), np.float32)
            if start < self._old.nodes:
                old.check(hop, block, panel, whole[: min(step, self._old.nodes - start)])
            whole[nodes[low:high] - start] = values[low:high]
            new.write(hop, block, panel, whole, record)
        new.close_panel(hop, panel, record)

    def _compute(self, panel: int, balls: list[np.ndarray], local: sp.csr_array) -> None:
        """Hops 1 to k of a panel in the rows of B_1 to B_k."""
        manifest, hops = self._manifest, self._manifest.hops
        first, last = manifest.panels[panel]
        region = balls[hops + 1]
        before = now = np.zeros((len(region), last - first), np.float32)
        is_new = region >= self._old.nodes
        self._take(0, panel, balls[min(2, hops + 1)], region, now)
        now[is_new] = self._new.features[region[is_new] - self._old.nodes, first:last]
        for hop, step in enumerate(find_basis(manifest.basis).steps(hops), 1):
            places = np.searchsorted(region, balls[hop])
            part = SparseMatrix(local[np.searchsorted(balls[hops], balls[hop])], symmetric=False)
            changed = before[places]
            next_hop(part, step, now, changed, own=now[places], out=changed)
            self._write_hop(hop, panel, balls[hop], changed)
            before, now = now, np.zeros_like(now)
            if hop < hops:
                others = np.setdiff1d(balls[min(hop + 2, hops + 1)], balls[hop], assume_unique=True)
                self._take(hop, panel, others, region, now)
            now[places] = changed
            self._note(panel, hop)

    def _take(
        self, hop: int, panel: int, nodes: np.ndarray, region: np.ndarray, out: np.ndarray
    ) -> None:
        """Fill the rows of ``out``, which are those of ``region``, of old nodes with the files'."""
        step = self._old.rows_per_block
        nodes = nodes[nodes < self._old.nodes]
        for block in np.unique(nodes // step).tolist():
            members = nodes[nodes // step == block]
            rows = self._old_blocks.read(hop, block, panel, members - block * step)
            out[np.searchsorted(region, members)] = rows

    def _note(self, panel: int, hop: int) -> None:
        panels, hops = len(self._manifest.panels), self._manifest.hops
        share = FEATURES_MADE + (1 - FEATURES_MADE) * (panel * hops + hop) / (panels * hops)
        self._report(f"{self._manifest.name}: hop {hop} of panel {panel + 1}/{panels}", share)


def changed_rows(adjacency: CsrRows, new: NewNodes) -> tuple[np.ndarray, sp.csr_array]:
    """T, sorted, and the rows of T of the adjacency of all nodes, as ``Graph.from_edges`` adds up.

        F = A + new edges, in the direction in which they are written,    A' = max(F, F^T)

    F differs from the symmetric A only where both ends are in T.
    """
    n = new.before + new.count
    ends = [new.sources, new.targets, np.arange(new.before, n)]
    nodes = np.unique(np.concatenate(ends))
    old = [rows for _, rows in rows_of(adjacency, nodes[nodes < new.before])]
    rows = sp.coo_array(sp.vstack(old)) if old else sp.coo_array((0, n), dtype=np.float32)
    weights = np.ones(len(new.sources), np.float32) if new.weights is None else new.weights
    values = np.concatenate([rows.data, weights])
    where = (
        np.concatenate([rows.row, np.searchsorted(nodes, new.sources)]),
        np.concatenate([rows.col, new.targets]),
    )
    forward = sp.coo_array((values, where), shape=(len(nodes), n)).tocsr()
    if new.weights is None and (rows.data == 1).all():
        forward.data[:] = 1
    inner = sp.csr_array(forward[:, nodes])
    both = sp.coo_array(inner.maximum(inner.T))
    forward.data[np.isin(forward.indices, nodes)] = 0
    grown = sp.csr_array((both.data, (both.row, nodes[both.col])), (len(nodes), n)) + forward
    grown.data[grown.indices == np.repeat(nodes, np.diff(grown.indptr))] = 0
    grown.eliminate_zeros()
    grown.sort_indices()
    return nodes, grown


def _link(source: Path, target: Path) -> None:
    """The same file by another name, or a copy where a disk has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
