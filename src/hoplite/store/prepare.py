"""What a store needs before its first task: the manifest, S, hop 0, labels, split and ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.array_files import write_npy
from hoplite.datasets.id_files import IDS, all_integers, ids_crc32, write_ids
from hoplite.datasets.splits import PARTS, split_crc32, write_split
from hoplite.errors import StoreError
from hoplite.graph_checks import CSR
from hoplite.memory import peak_memory, used_memory
from hoplite.node_data import GraphData
from hoplite.store.blocks import Blocks, PanelSums, crc
from hoplite.store.layout import (
    PLANNED_RESERVE,
    Sizes,
    check_room,
    panel_width,
    planned_use,
    prepared_entries,
    rows_per_block,
)
from hoplite.store.manifest import FILE, Manifest, read_manifest
from hoplite.store.operator_files import has_operator, write_operator
from hoplite.store.store import LABELS, SPLIT, HopStore

SHARES = {"operator": 0.5, "features": 0.5}


def adopt_manifest(
    folder: Path,
    data: GraphData,
    settings: dict[str, Any],
    budget: int,
    workers: int,
    *,
    loaded: bool,
) -> Manifest:
    """The manifest of this work: the one in ``folder`` if it is of the same work, or a new one.

    A new one has a multiple of ``workers`` panels, unless they would become too narrow.
    It is written before anything else, so that no block is ever of unknown origin. ``loaded`` says
    that the memory of ``data`` is free again once the store is prepared.
    """
    loading_peak, releasable = (peak_memory(), _held(data)) if loaded else (0, 0)
    identity = data.fingerprint()
    found = read_manifest(folder) if (folder / FILE).exists() else None
    split, ids = data.split, data.node_ids
    wanted: dict[str, Any] = {
        "name": data.name,
        "graph": identity.graph,
        "features": identity.features,
        "nodes": data.num_nodes,
        "columns": data.num_features,
        **{setting: settings[setting] for setting in ("operator", "basis", "dtype")},
        "loop_weight": settings.get("loop_weight") or (found or data).loop_weight,
    }
    if found is not None:
        _refuse_another(folder, found, wanted)
    entries = data.adjacency_rows.entries
    sizes = Sizes.of(data.num_nodes, entries, identity.longest_row, data.num_features)
    held = planned_use(used_memory() - releasable)
    if found is None:
        making = used_memory() + sizes.least(0, PLANNED_RESERVE)  # S is made while X is still held
        taken = max(loading_peak, making)
        room = check_room(sizes, 1, held, budget, reserve=PLANNED_RESERVE, taken=taken)
        width, rows = panel_width(sizes, room, workers), rows_per_block(sizes, room)
        columns = range(0, sizes.columns, width)
        panels = tuple((first, min(first + width, sizes.columns)) for first in columns)
    else:
        panels, rows = found.panels, found.rows_per_block
        widest = max((last - first for first, last in panels), default=1)
        check_room(sizes, widest, held, budget, taken=loading_peak)
    try:
        manifest = Manifest(
            **wanted,
            entries=entries,
            longest_row=identity.longest_row,
            hops=max(settings["hops"], found.hops if found else 0),
            rows_per_block=rows,
            panels=panels,
            class_names=data.class_names,
            feature_names=data.feature_names,
            labels_crc32=crc(data.labels),
            split_crc32=split_crc32(split),
            split_note=split.note,
            ids_crc32=None if ids is None else ids_crc32(ids),
            integer_ids=ids is not None and all_integers(ids),
            preparation=data.preparation,
            error=found.error if found and found.hops >= settings["hops"] else (),
            added=found.added if found else (),
        )
    except ValueError as error:
        raise StoreError(
            f"{folder} cannot hold this work: {error}; use fewer hops, or more --memory."
        ) from error
    if found != manifest:
        manifest.write(folder)
    return manifest


def _refuse_another(folder: Path, found: Manifest, wanted: dict[str, Any]) -> None:
    if (found.graph, found.nodes) != (wanted["graph"], wanted["nodes"]):
        raise StoreError(
            f"{folder} holds the hops of another graph ({found.name}, {found.nodes:,} nodes, "
            f"{found.entries // 2:,} edges) than {wanted['name']}; give another --out."
        )
    if (found.features, found.columns) != (wanted["features"], wanted["columns"]):
        raise StoreError(
            f"{folder} holds the hops of other features of {found.name} ({found.columns:,} "
            "columns, with other values); give another --out."
        )
    for setting in ("operator", "basis", "dtype"):
        before, now = getattr(found, setting), wanted[setting]
        if before != now:
            raise StoreError(
                f"{folder} holds hops with {setting} {before}, not {now}; give another --out, "
                f"or --{setting} {before}."
            )
    if found.loop_weight != wanted["loop_weight"]:
        raise StoreError(
            f"{folder} holds hops with self-loops of weight {found.loop_weight:g}, but prepare has "
            f"{wanted['loop_weight']:g}; give another --out, or the model that it was made for."
        )


def prepare(
    store: HopStore, data: GraphData, budget: int, tell: Callable[[str, float], None]
) -> None:
    """Write what is missing of the operator, hop 0, the labels, the split and the ids."""
    folder, manifest = store.folder, store.manifest
    if not has_operator(folder, manifest.nodes):
        entries = prepared_entries(budget - used_memory() - 16 * manifest.nodes)
        write_operator(
            folder,
            data.adjacency_rows,
            manifest.operator,
            manifest.basis,
            manifest.loop_weight,
            entries,
            lambda share: tell("making the operator", SHARES["operator"] * share),
        )
    _write_features(
        store,
        data,
        lambda share: tell("writing the features", SHARES["operator"] + SHARES["features"] * share),
    )
    _write_labels(store, data)
    _write_ids(store, data)


def _write_features(store: HopStore, data: GraphData, note: Callable[[float], None]) -> None:
    """Hop 0: X, cut into blocks, X read once from top to bottom."""
    manifest, blocks = store.manifest, Blocks(store.folder, store.manifest)
    panels = [i for i in range(len(manifest.panels)) if not blocks.finished(0, i)]
    if not panels:
        return
    (store.folder / "hops" / "h0").mkdir(parents=True, exist_ok=True)
    sums = {panel: PanelSums("float32") for panel in panels}
    for block, (start, stop) in enumerate(manifest.row_blocks):
        rows = data.feature_rows(start, stop)
        for panel in panels:
            first, last = manifest.panels[panel]
            part = np.ascontiguousarray(rows[:, first:last])
            blocks.write(0, block, panel, part, sums[panel])
        note(stop / manifest.nodes)
    for panel in panels:
        blocks.close_panel(0, panel, sums[panel])


def _write_ids(store: HopStore, data: GraphData) -> None:
    fresh, ids = HopStore(store.folder, store.manifest), data.node_ids
    if ids is None:
        return
    try:
        fresh.node_ids  # noqa: B018 - reading them is the check
    except StoreError:
        write_ids(store.folder / IDS, ids)


def _write_labels(store: HopStore, data: GraphData) -> None:
    fresh, split = HopStore(store.folder, store.manifest), data.split
    try:
        fresh.labels  # noqa: B018 - reading them is the check
    except StoreError:
        write_npy(store.folder / LABELS, data.labels)
    try:
        same = all(
            np.array_equal(getattr(fresh.split, part), getattr(split, part)) for part in PARTS
        )
    except StoreError:
        same = False
    if not same:
        write_split(store.folder / SPLIT, split)


def _held(data: GraphData) -> int:
    """Bytes of the arrays of a graph that is in memory."""
    graph = data.in_memory()
    arrays = [getattr(graph.adjacency, part) for part in CSR]
    sparse = sp.issparse(graph.features)
    arrays += [getattr(graph.features, part) for part in CSR] if sparse else [graph.features]
    return sum(array.nbytes for array in arrays)
