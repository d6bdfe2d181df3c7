"""HopStore: the hop features p_i(S) X of a graph, in files that train anywhere."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.csr_rows import CsrRows
from hoplite.datasets.disk_graph import DiskGraph, is_disk_graph, verify_disk_graph
from hoplite.datasets.id_files import IDS, IdFile, ids_crc32
from hoplite.datasets.splits import read_labels, read_split
from hoplite.errors import ConfigError, StoreError
from hoplite.graph import Graph, Split
from hoplite.node_data import cached_property
from hoplite.store.blocks import Blocks
from hoplite.store.errors import AGAIN
from hoplite.store.manifest import FILE, Manifest, read_manifest
from hoplite.store.operator_files import OperatorFiles, has_operator
from hoplite.store.staging import GRAPH, is_moving, settle

LABELS = "labels.npy"
SPLIT = "split.npz"


class HopStore:
    """A folder of hop features, see :func:`propagate`; open it with :meth:`open`.

    ``hops`` is k: there are hops 0 (X itself) to k, each of shape (n, d). It answers all that
    :class:`hoplite.NodeData` asks, from its files and in bounded memory: :meth:`read` and
    :meth:`rows` give hop features, ``operator_rows`` gives S in the form that the basis needs,
    ``adjacency_rows`` the edge weights and ``node_ids`` the ids, the last three a range of rows at
    a time; all of them are compared with their checksums before the first use.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self.name, self.num_nodes = manifest.name, manifest.nodes
        self.num_features, self.num_classes = manifest.columns, len(manifest.class_names)
        self.hops, self.operator, self.basis = manifest.hops, manifest.operator, manifest.basis
        self.class_names, self.feature_names = manifest.class_names, manifest.feature_names
        self.preparation, self.loop_weight = manifest.preparation, manifest.loop_weight
        self._blocks = Blocks(folder, manifest)
        self._seen: tuple[int, int] | None = None  # the manifest's file, known to be this one's

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> HopStore:
        """The store in ``folder``, complete or not; StoreError if there is none."""
        folder = Path(folder)
        settle(folder)
        return cls(folder, read_manifest(folder))

    @property
    def relation_weights(self) -> dict[str, float]:
        """None: directions and types of edges are not kept here."""
        return {}

    @property
    def stored(self) -> HopStore:
        """The store itself: its hop features are known."""
        return self

    @cached_property
    def operator_rows(self) -> OperatorFiles:
        """S in the form that the basis needs, a range of rows at a time."""
        damaged = partial(self._damaged, "operator")
        if not has_operator(self.folder, self.num_nodes):
            raise damaged()
        return OperatorFiles(self.folder, damaged)

    @cached_property
    def adjacency_rows(self) -> CsrRows | None:
        """The edge weights, a range of rows at a time; None in a store of version 0.1.0."""
        return self.operator_rows.adjacency()

    @cached_property
    def node_ids(self) -> Sequence[Any] | None:
        """The ids of the nodes, read when they are asked for; None if they have none."""
        checksum = self.manifest.ids_crc32
        if checksum is not None:
            integers, damaged = self.manifest.integer_ids, partial(self._damaged, IDS)
            path, n = self.folder / IDS, self.num_nodes
            ids = IdFile(path, n, integers=integers, damaged=damaged)
            if ids_crc32(ids) != checksum:
                raise self._damaged(IDS)
            return ids
        if not is_disk_graph(self.folder / GRAPH):
            return None
        with DiskGraph(self.folder / GRAPH) as graph:  # of version 0.1.0
            return graph.node_ids

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of X = p_0(S) X."""
        return self.read(start, stop, [0])[0]

    def in_memory(self) -> Graph:
        """StoreError: a store serves training, prediction and explanation, and nothing else."""
        raise StoreError(
            f"{self.folder} is a hop store, which train, predict and explain take; this needs the "
            f"graph itself: give the dataset that the store was made of ({self.name})."
        )

    @property
    def complete(self) -> bool:
        """Whether every block is there, with the right size."""
        return not self._unfinished(0)

    def missing(self) -> list[tuple[int, int]]:
        """The tasks (panel, hop) that are still to be done; hop 0 is no task."""
        return self._unfinished(1)

    def _unfinished(self, first_hop: int) -> list[tuple[int, int]]:
        hops, panels = range(first_hop, self.hops + 1), range(len(self.manifest.panels))
        begun = {hop for hop in hops if (self.folder / f"hops/h{hop}").is_dir()}
        return [
            (panel, hop)
            for panel in panels
            for hop in hops
            if hop not in begun or not self._blocks.finished(hop, panel)
        ]

    def require_complete(self) -> HopStore:
        """The store itself; StoreError, with the way to finish it, if a block is missing."""
        unfinished = self._unfinished(0)
        if unfinished:
            panel, hop = unfinished[0]
            raise StoreError(
                f"{self.folder} is not complete (a block of hop {hop}, panel {panel} is missing or "
                f"has the wrong size, the first of {len(unfinished):,} such places); "
                f"{AGAIN.format(folder=self.folder)}."
            )
        return self

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every node, -1 where unknown."""
        try:
            return read_labels(
                self.folder / LABELS,
                self.num_nodes,
                len(self.class_names),
                self.manifest.labels_crc32,
            )
        except (OSError, ValueError) as error:
            raise self._damaged(LABELS, error) from error

    @cached_property
    def split(self) -> Split:
        """The nodes of training, validation and test."""
        labels, manifest = self.labels, self.manifest
        try:
            return read_split(
                self.folder / SPLIT, labels, manifest.split_note, manifest.split_crc32
            )
        except (OSError, ValueError) as error:
            raise self._damaged(SPLIT, error) from error

    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges (start, stop) of the blocks; reading along them is fastest."""
        return list(self.manifest.row_blocks)

    def read(self, start: int, stop: int, hops: Sequence[int] | None = None) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of ``hops`` (all if None).

        float32 of shape (hops, rows, features).
        """
        check_number("start", start, 0, self.num_nodes, whole=True)
        check_number("stop", stop, start, self.num_nodes, whole=True)
        chosen = self._hops(hops)
        out = np.empty((len(chosen), stop - start, self.num_features), np.float32)
        step = self.manifest.rows_per_block
        for block in range(start // step, -(-stop // step)):
            first = block * step
            low, high = max(start, first), min(stop, first + step)
            for panel, (left, right) in enumerate(self.manifest.panels):
                for place, hop in enumerate(chosen):
                    rows = self._blocks.read(hop, block, panel, low - first, high - first)
                    out[place, low - start : high - start, left:right] = rows
        self._check_unchanged()
        return out

    def rows(
        self, nodes: np.ndarray | Sequence[int], hops: Sequence[int] | None = None
    ) -> np.ndarray:
        """The rows of ``nodes``, in that order: float32 of shape (hops, len(nodes), features)."""
        index = np.asarray(nodes)
        if index.size == 0:
            index = np.empty(0, np.int64)
        if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
            raise ConfigError(
                f"nodes has type {index.dtype} and shape {index.shape}; give node indices."
            )
        if index.size and not 0 <= index.min() <= index.max() < self.num_nodes:
            raise ConfigError(
                f"nodes goes from {index.min():,} to {index.max():,} but the store has "
                f"{self.num_nodes:,} nodes; count from 0."
            )
        chosen = self._hops(hops)
        out = np.empty((len(chosen), len(index), self.num_features), np.float32)
        step = self.manifest.rows_per_block
        for block in np.unique(index // step).tolist():
            places = np.flatnonzero(index // step == block)
            local = index[places] - block * step
            for panel, (left, right) in enumerate(self.manifest.panels):
                for place, hop in enumerate(chosen):
                    picked = self._blocks.pick(hop, block, panel, local)
                    out[place, places, left:right] = picked
        self._check_unchanged()
        return out

    def verify(self) -> list[str]:
        """Read the whole store; one sentence per damage, none if all is as it was written.

        Imported tables that are kept beside it, in ``graph``, are read too.
        """
        found = [str(error) for error in self.damages()]
        if is_disk_graph(self.folder / GRAPH):
            found += verify_disk_graph(self.folder / GRAPH)
        return found

    def damages(self) -> list[StoreError]:
        """The damages of the store itself that :meth:`verify` tells of."""
        found: list[StoreError] = []
        try:
            self.split  # noqa: B018 - reads the labels, too
        except StoreError as error:
            found.append(error)
        own_ids = self.manifest.ids_crc32 is not None
        for part in ("node_ids", "operator_rows") if own_ids else ("operator_rows",):
            try:
                getattr(self, part)
            except StoreError as error:
                found.append(error)
        for hop, block, panel in self._blocks.each():
            try:
                self._blocks.check(hop, block, panel)
            except StoreError as error:
                found.append(error)
        return found

    def size(self) -> int:
        """Bytes of all files of the hops and the operator."""
        folders = (self.folder / "hops", self.folder / "operator")
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)

    def errors(self) -> tuple[dict[str, float], ...]:
        """What half precision costs, per hop: ``hop``, ``max_abs``, ``relative`` (Frobenius)."""
        return tuple(dataclasses.asdict(found) for found in self.manifest.error)

    def _check_unchanged(self) -> None:
        """StoreError if what was just read may be of the store after an update.

        Blocks are replaced first, then the manifest, and then the update is over; so one that
        replaced a block before this either goes on now, or has replaced the manifest.
        """
        moving, found = is_moving(self.folder), (self.folder / FILE).stat()
        seen = found.st_ino, found.st_mtime_ns
        if not moving and seen == self._seen:
            return
        now, then = read_manifest(self.folder), self.manifest
        if moving or (now.graph, now.features) != (then.graph, then.features):
            raise StoreError(
                f"nodes or edges were added to {self.folder} while it was read; open it again."
            )
        self._seen = seen

    def _hops(self, hops: Sequence[int] | None) -> list[int]:
        chosen = list(range(self.hops + 1)) if hops is None else list(hops)
        for hop in chosen:
            check_number("hops", hop, 0, self.hops, whole=True)
        return chosen

    def _damaged(self, name: str, error: Exception | None = None) -> StoreError:
        again, why = AGAIN.format(folder=self.folder), "" if error is None else f" ({error})"
        return StoreError(f"{self.folder / name} is missing or damaged{why}; {again}.")

    def __repr__(self) -> str:
        return (
            f"HopStore(nodes={self.num_nodes}, features={self.num_features}, hops={self.hops}, "
            f"{self.manifest.dtype})"
        )
