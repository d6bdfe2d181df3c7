"""A node table larger than memory: ids, labels, split and features, a batch of rows at a time."""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hoplite.datasets.array_files import NpyRows, growing_npy
from hoplite.datasets.disk_graph import IDS
from hoplite.datasets.external_features import FeatureColumns
from hoplite.datasets.splits import stratified_split
from hoplite.datasets.table_batches import Batch, TableReader
from hoplite.datasets.table_files import is_text, pc
from hoplite.datasets.tables import (
    _INT64,
    _INTEGER,
    NODE_COLUMNS,
    PARTS,
    check_classes,
    sorted_classes,
)
from hoplite.errors import DatasetError, HopliteWarning, nearest_hint
from hoplite.files import atomic_write
from hoplite.graph import Split
from hoplite.graph_checks import UNKNOWN_LABEL

ID_ROWS = 1 << 18  # ids written and read back at a time
DENSE_FORMS = 8  # share of the room that dense rows take: 1 / 8
FEATURES = "features.npy"
SCRATCH = ".columns"


class NodeTable:
    """What a pass over the node table leaves in memory: a few bytes a node."""

    def __init__(self, reader: TableReader) -> None:
        self._reader, self._path = reader, reader.path
        self._labels: list[np.ndarray] = []
        self._parts: list[np.ndarray] = []
        self._names: dict[str, int] = {}
        self.nodes = 0
        self.integer_ids = reader.is_csv or not is_text(reader.schema.field("id").type)

    def write(self, folder: Path, features: FeatureColumns, note: Callable[[int], None]) -> None:
        """Write ids and features of every row, and remember labels and parts of the split.

        A table too wide to read all columns at once is read in several passes, each of which writes
        its features to a file of its own; these are joined in the end.
        """
        groups = self._reader.groups(features.columns)
        if len(groups) == 1:
            rows = self._first_pass(folder, groups[0], note)
            self._write_features(folder / FEATURES, features, groups[0], rows)
            return
        with _scratch(folder) as place:
            parts = [place / f"{i}.npy" for i in range(len(groups))]
            for part, columns in zip(parts, groups, strict=True):
                first = part == parts[0]
                rows = self._first_pass(folder, columns, note) if first else self._pass(columns)
                self._write_features(part, features, columns, rows)
            self._join(parts, folder / FEATURES, features.width)

    def _pass(self, columns: list[str]) -> Iterator[tuple[pa.Table, pa.Array]]:
        """Rows of the table with these columns, and their ids."""
        for batch in self._reader.batches(["id", *columns]):
            yield batch.table, batch.filled_text("id", self._path)

    def _first_pass(
        self, folder: Path, columns: list[str], note: Callable[[int], None]
    ) -> Iterator[tuple[pa.Table, pa.Array]]:
        """What :meth:`_pass` gives, while ids, labels and parts of the split are taken along."""
        kind = pa.schema([("id", pa.large_string())])
        with (
            atomic_write(folder / IDS) as file,
            parquet.ParquetWriter(file, kind, compression="zstd") as ids,
        ):
            waiting = pa.chunked_array([], pa.large_string())
            for batch in self._reader.batches([*NODE_COLUMNS, *columns]):
                names = batch.filled_text("id", self._path)
                waiting = pa.chunked_array([*waiting.chunks, names], pa.large_string())
                while len(waiting) >= ID_ROWS:  # whatever the batches are, the file is the same
                    ids.write_table(pa.Table.from_arrays([waiting[:ID_ROWS]], schema=kind))
                    waiting = pa.chunked_array(
                        [pa.concat_arrays(waiting[ID_ROWS:].chunks or [names[:0]])]
                    )
                yield batch.table, names
                self.integer_ids = self.integer_ids and all(map(_is_integer, names.to_pylist()))
                self._add_labels(batch)
                self._add_parts(batch, names)
                self.nodes += len(names)
                note(self.nodes)
            if len(waiting):
                ids.write_table(pa.Table.from_arrays([waiting], schema=kind))
        if not self.nodes:
            raise DatasetError(f"{self._path} has no rows; give one row per node.")

    def _write_features(
        self,
        path: Path,
        features: FeatureColumns,
        columns: list[str],
        rows: Iterator[tuple[pa.Table, pa.Array]],
    ) -> None:
        width = features.width_of(columns)
        step = self._rows_at_once(width)
        with growing_npy(path, np.float32, (width,)) as append:
            for table, ids in rows:
                for start in range(0, len(ids), step):
                    piece = table.slice(start, step), columns, ids.slice(start, step)
                    append(features.dense(*piece))

    def _join(self, parts: list[Path], path: Path, width: int) -> None:
        """The files of the passes side by side."""
        step = self._rows_at_once(width)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(NpyRows(part)) for part in parts]
            append = stack.enter_context(growing_npy(path, np.float32, (width,)))
            for start in range(0, self.nodes, step):
                stop = min(start + step, self.nodes)
                append(np.concatenate([file.read(start, stop) for file in files], axis=1))

    def _rows_at_once(self, width: int) -> int:
        """One-hot features may be far wider than the text that they come from."""
        return max(1, self._reader.room // (DENSE_FORMS * 4 * max(width, 1)))

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The class of every node, and the names of the classes, sorted as ``load`` sorts them."""
        names = sorted_classes(list(self._names))
        if not names:
            return np.full(self.nodes, UNKNOWN_LABEL), ()
        place = {name: i for i, name in enumerate(names)}
        codes = np.array([*(place[name] for name in self._names), UNKNOWN_LABEL])
        labels = codes[np.concatenate(self._labels)]
        check_classes(names, int((labels != UNKNOWN_LABEL).sum()), self._path)
        return labels, tuple(names)

    def split(self, labels: np.ndarray, seed: int) -> Split:
        """The split of the table; a stratified one if it has none."""
        if "label" not in self._reader.names:
            return Split(note="none: there is no label column")
        part = np.concatenate(self._parts) if self._parts else np.full(1, -1)
        if (part < 0).all():
            return stratified_split(labels, seed)
        unlabelled = labels == UNKNOWN_LABEL
        unknown = np.flatnonzero((part >= 0) & (part < 2) & unlabelled)
        if unknown.size:
            raise DatasetError(
                f"{self._path} has {unknown.size:,} nodes for train or val without a label (first: "
                f"data row {unknown[0] + 1:,}); leave their split empty, or give them a label."
            )
        hidden = (part == 2) & unlabelled
        if hidden.any():
            warnings.warn(
                f"{self._path} has no label for {hidden.sum():,} of {(part == 2).sum():,} test "
                "nodes; they are left out of the split, but still predicted.",
                HopliteWarning,
                stacklevel=3,
            )
            part[hidden] = -1
        return Split(*(np.flatnonzero(part == i) for i in range(3)), note="from the split column")

    def _add_labels(self, batch: Batch) -> None:
        if "label" not in batch.table.column_names:
            return
        text = batch.text("label", self._path, fractions=True)
        values = pc.unique(text).drop_null()
        for name in values.to_pylist():
            self._names.setdefault(name, len(self._names))
        own = np.array([*(self._names[name] for name in values.to_pylist()), -1], np.int32)
        self._labels.append(own[_codes(text, values)])

    def _add_parts(self, batch: Batch, ids: pa.Array) -> None:
        if "split" not in batch.table.column_names or "label" not in batch.table.column_names:
            return
        words = pc.utf8_lower(batch.text("split", self._path))
        values = pc.unique(words).drop_null()
        for word in values.to_pylist():
            if word not in PARTS:
                node = ids[pc.index(words, pa.scalar(word, pa.large_string())).as_py()].as_py()
                raise DatasetError(
                    f"column 'split' of {self._path} has {word!r} for node {node!r}; it must be "
                    f"train, val, test or empty.{nearest_hint(word, PARTS)}"
                )
        own = np.array([*(PARTS[word] for word in values.to_pylist()), -1], np.int8)
        self._parts.append(own[_codes(words, values)])


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder for the passes of an import, without what a killed one has left there."""
    place = folder / SCRATCH
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def id_pieces(folder: Path) -> Callable[[], Iterator[pa.Array]]:
    """The ids that a pass has written, as often as they are asked for."""

    def pieces() -> Iterator[pa.Array]:
        with parquet.ParquetFile(folder / IDS) as file:
            for batch in file.iter_batches(ID_ROWS, use_threads=False):
                yield batch.column(0)

    return pieces


def feature_columns(reader: TableReader) -> list[str]:
    """The columns that are features: all but the special ones."""
    return [name for name in reader.names if name not in NODE_COLUMNS]


def _codes(text: pa.Array, values: pa.Array) -> np.ndarray:
    """The place of every text in ``values``, -1 for none."""
    return pc.fill_null(pc.index_in(text, value_set=values), -1).to_numpy()


def _is_integer(name: Any) -> bool:
    """Whether an id is written as a 64-bit integer is: 7, but not 007."""
    return bool(_INTEGER.fullmatch(name)) and int(name) in _INT64 and str(int(name)) == name
