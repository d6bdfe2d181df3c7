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
new store is the same to the bit as one that is made of the grown graph.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.array_files import write_npy
from hoplite.arrivals import Arrivals, NewTables
from hoplite.bases import find_basis
from hoplite.csr_rows import (
    AdjacencyDigest,
    CsrFiles,
    CsrMemory,
    CsrRows,
    FeaturesDigest,
    PatchedRows,
    adjacency_digest,
    row_ranges,
    rows_of,
)
from hoplite.datasets.id_files import IDS, JoinedIds, ids_crc32, write_ids
from hoplite.datasets.splits import split_crc32, write_split
from hoplite.engine.polynomial import next_hop
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import StoreError
from hoplite.link import links_among
from hoplite.memory import parse_bytes, release_memory, used_memory
from hoplite.operators import find_operator
from hoplite.progress import steps_bar, watched
from hoplite.store import staging
from hoplite.store.blocks import Blocks, PanelSums, crc
from hoplite.store.building import Progress, compute_here, log, logged, note_error
from hoplite.store.claim import claimed
from hoplite.store.errors import AGAIN, clear_disk_errors
from hoplite.store.layout import (
    LEAST_ENTRIES,
    PREPARED_ENTRY,
    RESERVE,
    Sizes,
    check_room,
    prepared_entries,
)
from hoplite.store.operator_files import FOLDER, write_operator, write_rows
from hoplite.store.store import LABELS, SPLIT, HopStore
from hoplite.structural import has_log_degree, structural_count

READ, OPERATOR_MADE, FEATURES_MADE = 0.2, 0.4, 0.5  # share of the work that is done by then
MOST_SHARE = 0.5  # of the rows; if more of them change, all are computed
ARRAYS = 5  # of the changed rows, that a hop needs at once
ENTRY_BYTES = 24  # of an entry of S while rows of it are taken


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
        As :meth:`hoplite.Graph.extended` takes them; it is held in memory. The columns are prepared
        as those of the store were. Tables that were added already are left alone.
    out : path
        The folder of a complete store. It is the old one until the new one is complete; stopped or
        killed, the same call does what is left.
    memory, progress
        As in :func:`propagate`.
    options
        ``label``, ``id`` and ``unknown_nodes``, of tables.

    Only hops within k steps of what is new are computed, if these are few, and the files come out
    as if all had been: those of ``propagate(graph.extended(new))``, byte for byte, if it is cut
    into the same blocks. Labels and split stay, and new nodes get what ``new`` says of them.

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
    HopStore.open(folder)  # which says what is missing; a folder is not made here
    log.info("adding to the store %s", folder)
    with (
        clear_disk_errors(folder),
        claimed(folder),
        watched(progress, steps_bar, f"update {folder}") as report,
    ):
        store, tell = HopStore.open(folder).require_complete(), logged(report)
        tell(f"reading {new if isinstance(new, str | Path) else 'what is new'}", 0.0)
        tables = NewTables(new, store, **options)
        digest = tables.digest
        if digest not in store.manifest.added:
            update = _Update(store, tables, budget, tell)
            if update.brings_anything:
                update.run(digest)
    grown = HopStore.open(folder)
    log.info("the store %s has %d nodes now, %d before", folder, grown.num_nodes, store.num_nodes)
    return grown


class _Update:
    """One update of a store, up to and including its commit."""

    def __init__(self, store: HopStore, tables: NewTables, budget: int, tell: Progress) -> None:
        self._store, self._old, self._budget, self._tell = store, store.manifest, budget, tell
        adjacency = store.adjacency_rows
        if adjacency is None:
            raise StoreError(
                f"{store.folder} does not know its edge weights any more, as it was made by an "
                "earlier version; make it anew with `hoplite propagate`."
            )
        names = store.feature_names
        structural = structural_count(names) is not None or has_log_degree(store)
        if structural or links_among(names, store.preparation) is not None:
            raise StoreError(
                f"{store.folder} has structural features, which change everywhere with every edge; "
                "make a store of the grown graph with `hoplite propagate`."
            )
        self._new = tables.read(weighted=store.operator_rows.weighted)
        self._changed, rows = changed_rows(adjacency, self._new)
        self._adjacency = PatchedRows(adjacency, self._changed, rows)

    @property
    def brings_anything(self) -> bool:
        """Whether there is a new node or edge; all of them may have been dropped."""
        return len(self._changed) > 0

    def run(self, digest: str) -> None:
        folder, tell, adjacency = self._store.folder, self._tell, self._adjacency
        self._staged = staging.begin(folder)
        self._manifest = manifest = dataclasses.replace(
            self._old,
            nodes=adjacency.rows,
            entries=adjacency.entries,
            longest_row=int(np.diff(adjacency.indptr(0, adjacency.rows)).max(initial=0)),
            error=(),
            added=(*self._old.added, digest),
        )
        widest = max((last - first for first, last in manifest.panels), default=1)
        release_memory()
        room = check_room(Sizes.of_manifest(manifest), widest, used_memory(), self._budget)
        tell("making the operator", READ)
        with ThreadPoolExecutor(1) as beside:
            nodes = beside.submit(self._write_nodes)
            balls = list(self._balls(max(manifest.hops + 1, 3)))
            graph = self._write_operator(balls, room)
            self._manifest = manifest = dataclasses.replace(manifest, graph=graph, **nodes.result())
        tell("writing the features", OPERATOR_MADE)
        local = self._local(balls, widest, room)
        self._write_features(every=local is None)
        manifest.write(self._staged)
        if local is None:
            self._compute_all()
        else:
            for panel in range(len(manifest.panels)):
                self._compute(panel, balls, local)
        staging.commit(folder)

    def _write_nodes(self) -> dict[str, Any]:
        """Write labels, split and ids; what the manifest says of them, and of X."""
        store, new, old, staged = self._store, self._new, self._old, self._staged
        labels, split = np.concatenate([store.labels, new.labels]), new.grown_split(store.split)
        write_npy(staged / LABELS, labels)
        write_split(staged / SPLIT, split)
        found: dict[str, Any] = {"labels_crc32": crc(labels), "split_crc32": split_crc32(split)}
        if new.count:
            own = store.node_ids
            ids = JoinedIds(range(old.nodes) if own is None else own, new.ids)
            write_ids(staged / IDS, ids)
            integers = new.integer_ids and (old.integer_ids or own is None)
            found |= {"ids_crc32": ids_crc32(ids), "integer_ids": integers}
        return found | {"features": self._features_digest()}

    def _features_digest(self) -> str:
        """SHA-256 of X with the new rows; the old ones are compared with theirs on the way."""
        store, found = self._store, FeaturesDigest(self._old.columns)
        blocks = Blocks(store.folder, self._old)
        for block in range(len(self._old.row_blocks)):
            found.add(blocks.unchecked(0, block))
        if found.digest() != self._old.features:
            again = AGAIN.format(folder=store.folder)
            raise StoreError(f"hop 0 of {store.folder} is damaged; {again}.")
        found.add(self._new.features)
        return found.digest()

    def _balls(self, most: int) -> Iterator[np.ndarray]:
        """B_0 = T, B_1, .. B_most, sorted; none further than that all nodes are in one."""
        inside = np.zeros(self._adjacency.rows, bool)
        inside[self._changed] = True
        ball = rim = self._changed
        yield ball
        for _ in range(most):
            for _, rows in rows_of(self._adjacency, rim):
                inside[rows.indices] = True
            inside[ball] = False
            rim = np.flatnonzero(inside)
            inside[ball] = True
            ball = np.flatnonzero(inside)
            yield ball

    def _write_operator(self, balls: list[np.ndarray], room: int) -> str:
        """Write S, of which the rows of B_1 are made and the others copied; the digest of A.

        Where that is not less work, or needs too much memory, all of it is made.
        """
        manifest, adjacency = self._manifest, self._adjacency
        entries = sum(rows.nnz for _, rows in rows_of(adjacency, balls[2]))

        def note(share: float) -> None:
            self._tell("making the operator", READ + (OPERATOR_MADE - READ) * share)

        if PREPARED_ENTRY * entries > room or len(balls[2]) > MOST_SHARE * adjacency.rows:
            most = prepared_entries(room - 16 * manifest.nodes)
            how = manifest.operator, manifest.basis, manifest.loop_weight
            write_operator(self._staged, adjacency, *how, most, note)
            return adjacency_digest(adjacency)[0]
        digest = AdjacencyDigest(adjacency.rows)
        whole = PatchedRows(self._store.operator_rows, balls[1], self._operator_rows(balls))

        def made(noted: CsrRows) -> Iterator[tuple[int, sp.csr_array]]:
            for start, stop in row_ranges(whole, LEAST_ENTRIES * 8):
                digest.add(noted.read(start, stop))
                yield start, whole.read(start, stop).to_scipy(whole.rows)

        write_rows(self._staged, adjacency, made, note)
        return digest.digest()

    def _operator_rows(self, balls: list[np.ndarray]) -> sp.csr_array:
        """The rows of S of B_1: (len(B_1), n).

        They are those of the subgraph of B_3 with the rows of B_2: a row of B_1 has its places in
        B_2, whose degrees are all that it needs of others.
        """
        manifest, n = self._manifest, self._adjacency.rows
        _, first, second, third = balls[:4]
        parts = [rows for _, rows in rows_of(self._adjacency, second)]
        rows = sp.csr_array(sp.vstack(parts, format="csr")) if parts else sp.csr_array((0, n))
        lengths = np.zeros(len(third), np.int64)
        lengths[np.searchsorted(third, second)] = np.diff(rows.indptr)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.searchsorted(third, rows.indices).astype(np.int32)
        small = sp.csr_array((rows.data, places, ends), shape=(len(third), len(third)))
        operator, wanted = find_operator(manifest.operator), np.searchsorted(third, first)
        found = []
        loop = operator.loop * manifest.loop_weight
        for start, made in operator.rows(CsrMemory(small), np.float32, loop):
            low, high = np.searchsorted(wanted, [start, start + made.shape[0]])
            found.append(operator.in_basis(made, manifest.basis, start)[wanted[low:high] - start])
        chosen = sp.csr_array(sp.vstack(found, format="csr"))
        return sp.csr_array((chosen.data, third[chosen.indices], chosen.indptr), (len(first), n))

    def _local(self, balls: list[np.ndarray], width: int, room: int) -> sp.csr_array | None:
        """The rows of B_k and the columns of B_{k+1} of S; None if all is computed anew.

        So it is where that is no more work, or the memory is not enough for this way, and in half
        precision, in which the files do not have what the next hop is computed from.
        """
        hops, n = self._manifest.hops, self._adjacency.rows
        rows, columns = balls[hops], balls[hops + 1]
        if self._manifest.dtype != "float32" or len(columns) > MOST_SHARE * n:
            return None
        left = room - RESERVE - ARRAYS * 4 * width * len(columns) - 4 * n
        place = np.full(n, -1, np.int32)
        place[columns] = np.arange(len(columns), dtype=np.int32)
        parts, entries = [sp.csr_array((0, len(columns)), dtype=np.float32)], 0
        with CsrFiles(self._staged / FOLDER) as files:
            for _, part in rows_of(files, rows):
                entries += part.nnz
                if ENTRY_BYTES * entries > left:
                    return None
                shape = (part.shape[0], len(columns))
                parts.append(sp.csr_array((part.data, place[part.indices], part.indptr), shape))
        return sp.csr_array(sp.vstack(parts, format="csr"))

    def _write_features(self, *, every: bool) -> None:
        """Hop 0 of the blocks with new nodes; with ``every`` the other ones, too, by a link."""
        for panel, (first, last) in enumerate(self._manifest.panels):
            rows = np.ascontiguousarray(self._new.features[:, first:last])
            nodes = np.arange(self._new.before, self._manifest.nodes)
            self._write_hop(0, panel, nodes, rows)
        if every:
            blocks = Blocks(self._staged, self._manifest)
            for hop, block, panel in blocks.each():
                name = blocks.name(hop, block, panel)
                if hop == 0 and not (self._staged / name).exists():
                    _link(self._store.folder / name, self._staged / name)

    def _write_hop(self, hop: int, panel: int, nodes: np.ndarray, values: np.ndarray) -> None:
        """Write the blocks of a hop that change: the rows of ``nodes`` are ``values`` now."""
        old, new = Blocks(self._store.folder, self._old), Blocks(self._staged, self._manifest)
        checksums, sums = old.closed(hop, panel).crc32, PanelSums("float32")
        (self._staged / f"hops/h{hop}").mkdir(parents=True, exist_ok=True)
        step = self._manifest.rows_per_block
        for block, (start, stop) in enumerate(self._manifest.row_blocks):
            low, high = np.searchsorted(nodes, [start, stop])
            if low == high:
                sums.checksums.append(checksums[block])
                continue
            whole = np.empty(new.shape(block, panel), np.float32)
            if start < self._old.nodes:
                old.check(hop, block, panel, whole[: min(step, self._old.nodes - start)])
            whole[nodes[low:high] - start] = values[low:high]
            new.write(hop, block, panel, whole, sums)
        new.close_panel(hop, panel, sums)

    def _compute(self, panel: int, balls: list[np.ndarray], local: sp.csr_array) -> None:
        """Hops 1 to k of a panel in the rows of B_1 to B_k."""
        manifest, store, hops = self._manifest, self._store, self._manifest.hops
        first, last = manifest.panels[panel]
        region, kept = balls[hops + 1], Blocks(store.folder, self._old)
        before = now = np.zeros((len(region), last - first), np.float32)
        is_new = region >= self._old.nodes
        self._take(kept, 0, panel, balls[min(2, hops + 1)], region, now)
        now[is_new] = self._new.features[region[is_new] - self._old.nodes, first:last]
        for hop, step in enumerate(find_basis(manifest.basis).steps(hops), 1):
            places = np.searchsorted(region, balls[hop])
            part = SparseMatrix(local[np.searchsorted(balls[hops], balls[hop])], symmetric=False)
            made = before[places]
            next_hop(part, step, now, made, own=now[places], out=made)
            self._write_hop(hop, panel, balls[hop], made)
            before, now = now, np.zeros_like(now)
            if hop < hops:
                wanted = np.setdiff1d(balls[min(hop + 2, hops + 1)], balls[hop], assume_unique=True)
                self._take(kept, hop, panel, wanted, region, now)
            now[places] = made
            done = (panel * hops + hop) / (len(manifest.panels) * hops)
            place = f"hop {hop} of panel {panel + 1}/{len(manifest.panels)}"
            share = FEATURES_MADE + (1 - FEATURES_MADE) * done
            self._tell(f"{manifest.name}: {place}, {len(balls[hop]):,} rows", share)

    def _take(
        self, blocks: Blocks, hop: int, panel: int, nodes: np.ndarray, region: np.ndarray, out: Any
    ) -> None:
        """Fill the rows of ``out``, which are those of ``region``, of old nodes with the files'."""
        step = self._old.rows_per_block
        nodes = nodes[nodes < self._old.nodes]
        for block in np.unique(nodes // step).tolist():
            some = nodes[nodes // step == block]
            found = blocks.pick(hop, block, panel, some - block * step)
            out[np.searchsorted(region, some)] = found

    def _compute_all(self) -> None:
        """All hops, as for a new store."""
        manifest = self._manifest
        count = len(manifest.panels) * manifest.hops
        tasks = [(p, h) for p in range(len(manifest.panels)) for h in range(1, manifest.hops + 1)]

        def note(panel: int, hop: int) -> None:
            done = (panel * manifest.hops + hop) / count
            place = f"hop {hop} of panel {panel + 1}/{len(manifest.panels)}, all rows"
            self._tell(f"{manifest.name}: {place}", FEATURES_MADE + (1 - FEATURES_MADE) * done)

        compute_here(self._staged, tasks, self._budget, note)
        note_error(Blocks(self._staged, manifest))


def changed_rows(adjacency: CsrRows, new: Arrivals) -> tuple[np.ndarray, sp.csr_array]:
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
    outer = forward.tocoo()
    outside = ~np.isin(outer.col, nodes)
    places = (
        np.concatenate([outer.row[outside], both.row]),
        np.concatenate([outer.col[outside], nodes[both.col]]),
    )
    values = np.concatenate([outer.data[outside], both.data])
    found = sp.csr_array(sp.coo_array((values, places), shape=(len(nodes), n)))
    found.data[found.indices == np.repeat(nodes, np.diff(found.indptr))] = 0
    found.eliminate_zeros()
    found.sort_indices()
    return nodes, found


def _link(source: Path, target: Path) -> None:
    """The same file by another name, or a copy where a disk has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
