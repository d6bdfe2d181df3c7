"""HopStore: the hop features p_i(S) X of a graph, in files that train anywhere."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, StoreError, plural
from hoplite.graph import Graph, cached_property
from hoplite.io.array_files import CsrFiles, NpyRows
from hoplite.io.node_files import NodeFiles
from hoplite.store import files


class HopStore(NodeFiles):
    """A folder of hop features; :func:`hoplite.propagate` writes it, :meth:`open` opens it.

    A store implements :class:`hoplite.NodeData` within bounded memory. It contains the hops 0 (X)
    to k, each of shape (n, d). :meth:`read` and :meth:`rows` return hop features;
    ``operator_rows``, ``adjacency_rows`` and ``node_ids`` read S, the edge weights and the ids in
    ranges of rows. Every file is compared with its checksum before it is first used.

    Attributes
    ----------
    hops : int
        k.
    operator, basis : str
        Names of S and of the basis polynomials.
    complete : bool
        Whether every block exists, with the right size.
    labels, split, class_names, node_ids
        As for :class:`hoplite.NodeData`.

    Examples
    --------
    >>> import hoplite, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = hoplite.propagate("cora", folder, hops=2)
    ...     store.read(0, 5).shape, store.complete
    ((3, 5, 1433), True)
    """

    def __init__(self, folder: Path, manifest: files.Manifest | None = None) -> None:
        if manifest is None:
            raise StoreError(f"use HopStore.open({str(folder)!r}) to open a hop store.")
        super().__init__(folder / manifest.data, manifest)
        self.folder, self.manifest = folder, manifest
        self.num_features, self.loop_weight = manifest.columns, manifest.loop_weight
        self.hops, self.operator, self.basis = manifest.hops, manifest.operator, manifest.basis
        self._blocks = files.Blocks(self.data, manifest)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> HopStore:
        """Open a store, complete or not.

        Parameters
        ----------
        folder : path

        Returns
        -------
        HopStore

        Raises
        ------
        StoreError
            If the folder is not a store.
        """
        folder = Path(folder)
        return cls(folder, files.read_manifest(folder))

    @property
    def stored(self) -> HopStore:
        """The store itself."""
        return self

    @cached_property
    def operator_rows(self) -> CsrFiles:
        """S in the form that the basis needs, a range of rows at a time."""
        with self._checked(files.OPERATOR, *self._record.operator_files):
            return files.stored_operator(self.data, self.num_nodes)

    @cached_property
    def adjacency_rows(self) -> files.StoredAdjacency | None:
        """The edge weights, a range of rows at a time; None if some weights became 0 in S."""
        operator, edges, weights = self.operator_rows, self._record.edges, None
        if files.WEIGHTS in self._record.crc32:
            with self._checked(files.WEIGHTS):
                weights = NpyRows(self.data / files.WEIGHTS)
        return None if edges is None else files.StoredAdjacency(operator, edges, weights)

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of X = p_0(S) X."""
        return self.read(start, stop, [0])[0]

    def in_memory(self) -> Graph:
        """Raises StoreError: a store is only for training, prediction and explanation."""
        raise StoreError(
            f"{self.folder} is a hop store, which only train, predict and explain accept; pass the "
            f"dataset that the store was built from ({self.name})."
        )

    @property
    def complete(self) -> bool:
        """Whether every block is there, with the right size."""
        return not self._unfinished(0)

    def missing(self) -> list[tuple[int, int]]:
        """The pairs (panel, hop) that are not computed yet."""
        return self._unfinished(1)

    def _unfinished(self, first_hop: int) -> list[tuple[int, int]]:
        hops, panels = range(first_hop, self.hops + 1), range(len(self.manifest.panels))
        begun = {hop for hop in hops if (self.data / f"hops/h{hop}").is_dir()}
        return [
            (panel, hop)
            for panel in panels
            for hop in hops
            if hop not in begun or not self._blocks.finished(hop, panel)
        ]

    def require_complete(self) -> HopStore:
        """Return the store itself; raise StoreError if it is incomplete."""
        unfinished = self._unfinished(0)
        if unfinished:
            panel, hop = unfinished[0]
            if self._blocks.record_path(hop, panel).exists():  # it was complete: what is damaged?
                for block in range(len(self.manifest.row_blocks)):
                    self._blocks.check(hop, block, panel)
            raise StoreError(
                f"{self.folder} is not complete (the first missing hop is {hop}); "
                f"{files.repeat_propagate()} to finish it."
            )
        return self

    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges (start, stop) of the blocks; reading along them is fastest."""
        return list(self.manifest.row_blocks)

    def read(self, start: int, stop: int, hops: Sequence[int] | None = None) -> np.ndarray:
        """Hop features of a range of rows.

        Parameters
        ----------
        start, stop : int
            The rows, ``stop`` excluded.
        hops : sequence of int, optional
            Which hops; all by default.

        Returns
        -------
        (hops, rows, features) float32 ndarray
        """
        check_number("start", start, 0, self.num_nodes, whole=True)
        check_number("stop", stop, start, self.num_nodes, whole=True)
        return self.rows(np.arange(start, stop), hops)

    def rows(
        self, nodes: np.ndarray | Sequence[int], hops: Sequence[int] | None = None
    ) -> np.ndarray:
        """Hop features of any nodes.

        Parameters
        ----------
        nodes : array of int
        hops : sequence of int, optional
            Which hops; all by default.

        Returns
        -------
        (hops, len(nodes), features) float32 ndarray
            In the order of ``nodes``.
        """
        index = np.asarray(nodes)
        if index.size == 0:
            index = np.empty(0, np.int64)
        if index.ndim != 1 or not np.issubdtype(index.dtype, np.integer):
            raise ConfigError(
                f"nodes has type {index.dtype} and shape {index.shape}; pass a list of integer "
                "node indices."
            )
        if index.size and not 0 <= index.min() <= index.max() < self.num_nodes:
            raise ConfigError(
                f"nodes goes from {index.min():,} to {index.max():,} but the store has "
                f"{plural(self.num_nodes, 'node')}, counted from 0."
            )
        chosen = list(range(self.hops + 1)) if hops is None else list(hops)
        for hop in chosen:
            check_number("hops", hop, 0, self.hops, whole=True)
        out = np.empty((len(chosen), len(index), self.num_features), np.float32)
        step = self.manifest.rows_per_block
        order = np.argsort(index // step, kind="stable")
        starts = np.unique(index[order] // step, return_index=True)[1]
        try:
            for places in np.split(order, starts[1:]) if len(index) else ():
                block = int(index[places[0]]) // step
                block_rows, where = _as_slice(index[places] - block * step), _as_slice(places)
                for panel, (left, right) in enumerate(self.manifest.panels):
                    for values, hop in zip(out, chosen, strict=True):
                        values[where, left:right] = self._blocks.read(hop, block, panel, block_rows)
        except files.DamagedBlock:
            if files.read_manifest(self.folder).version != self.manifest.version:
                raise StoreError(
                    f"nodes or edges were added to {self.folder} while it was being read; open it "
                    "again."
                ) from None
            raise
        return out

    def verify(self) -> list[str]:
        """Read the whole store and compare it with its checksums.

        Returns
        -------
        list of str
            A sentence for each problem; empty if there is none.
        """
        return [str(error) for error in self.damages()]

    def damages(self) -> Iterator[StoreError]:
        """The damages that :meth:`verify` reports."""
        # the split reads the labels
        parts = (partial(getattr, self, name) for name in ("split", "node_ids", "operator_rows"))
        blocks = (partial(self._blocks.check, *place) for place in self._blocks.positions())
        for check in itertools.chain[Callable[[], Any]](parts, blocks):
            try:
                check()
            except StoreError as error:
                yield error

    def size(self) -> int:
        """Size of all files of the store, in bytes."""
        return sum(path.stat().st_size for path in self.data.rglob("*") if path.is_file())

    def errors(self) -> tuple[dict[str, float], ...]:
        """The rounding errors of half precision.

        Returns
        -------
        tuple of dict
            For each hop: ``hop``, ``max_abs`` and ``relative`` (Frobenius norm).
        """
        errors = []
        for hop in range(1, self.hops + 1) if self.manifest.dtype != "float32" else ():
            panels = range(len(self.manifest.panels))
            records = [self._blocks.record(hop, panel) for panel in panels]
            error = sum(record.error for record in records)
            norm = sum(record.norm for record in records)
            largest = max((record.max_abs for record in records), default=0.0)
            relative = math.sqrt(error / norm) if norm else 0.0
            errors.append({"hop": hop, "max_abs": largest, "relative": relative})
        return tuple(errors)

    @cached_property
    def _record(self) -> files.FileRecord:
        try:
            return files.read_record(self.data)
        except (OSError, ValueError) as error:
            raise self._damaged(files.FILES, error) from error

    @property
    def _crc32(self) -> Mapping[str, int]:
        return self._record.crc32

    def _damaged(self, name: str, error: Exception) -> StoreError:
        return files.damaged(self.data / name, error)

    def __repr__(self) -> str:
        return (
            f"HopStore(nodes={self.num_nodes}, features={self.num_features}, hops={self.hops}, "
            f"{self.manifest.dtype})"
        )


def _as_slice(indices: np.ndarray) -> np.ndarray | slice:
    """Indices that follow one another as a slice, which is read and written faster."""
    first, stop = int(indices[0]), int(indices[-1]) + 1
    rising = stop - first == len(indices) and bool((np.diff(indices) == 1).all())
    return slice(first, stop) if rising else indices
