"""Node and edge tables larger than memory become a graph on disk, in bounded memory."""

from __future__ import annotations

import contextlib
import shutil
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from hoplite.array_files import NpyRows, growing_npy
from hoplite.datasets.bucket_sort import sort_edges
from hoplite.datasets.disk_graph import FILE, IDS, DiskGraph, is_disk_graph, write_rest
from hoplite.datasets.table_features import FeatureColumns
from hoplite.datasets.table_reader import TableReader, find_table
from hoplite.datasets.tables import (
    NodeRows,
    create_nodes,
    feature_columns,
    open_tables,
    read_edges,
    with_unused,
)
from hoplite.datasets.text_keys import IdIndex
from hoplite.errors import ConfigError
from hoplite.files import atomic_write, remove_leftovers, to_json
from hoplite.preparation import AS_THEY_ARE, chosen_preparation

NODE_BYTES = 64  # of memory per node: keys, their order, label and part, while they are made
LEAST_ROOM = 48 * 10**6
FEATURES_READ, EDGES_READ, SORTED = 0.4, 0.7, 0.95  # share of the work that is done by then
MOST_VALUES = 10_000  # of a text column: each is a dense feature of every node
ID_ROWS = 1 << 18  # ids written and read back at a time
DENSE_FORMS = 8  # share of the room that dense rows take: 1 / 8
FEATURES = "features.npy"
SCRATCH = ".columns"


def import_tables(
    folder: str | Path,
    out: str | Path,
    *,
    memory: int,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
    prepare: Any = None,
    **options: Any,
) -> None:
    """Read the tables of ``folder``, as :func:`read_tables` does, into a graph on disk in ``out``.

    The graph is the same, to the bit. ``memory`` is what the import may take, in bytes, beyond
    what the process holds already: about 64 bytes a node and a fixed rest, whatever the number of
    edges and features (and the names of nodes that ``unknown_nodes="create"`` creates). An import
    of the same, unchanged tables that is there already is kept; one that was stopped starts again.
    """
    folder, out = Path(folder), Path(out)
    chosen = chosen_preparation(prepare, options)
    if chosen.options.directed or chosen.options.type:
        raise ConfigError(
            "directed and type keep directions and types of edges, which graphs on disk and hop "
            "stores do not know; train on tables in memory, or leave them out."
        )
    tell = progress or (lambda what, share: None)
    paths = [find_table(folder, stem) for stem in ("nodes", "edges")]
    stamp = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    stamp.append(["seed", seed])
    if chosen != AS_THEY_ARE:  # which is what earlier versions did
        stamp.append(["preparation", zlib.crc32(to_json(chosen).encode())])
    if is_disk_graph(out):
        with DiskGraph(out) as found:
            # what a store of it was fitted with, and now asks for, is what the import found
            fitted = chosen.columns is not None and found.preparation == chosen
            if found.tables == stamp or (fitted and found.tables[:3] == stamp[:3]):
                return
        (out / FILE).unlink()
    if memory < LEAST_ROOM:
        raise ConfigError(
            f"memory leaves {memory / 1e6:.0f} MB for the import of {folder} but it needs "
            f"{LEAST_ROOM / 1e6:.0f} MB; give --memory that much more."
        )
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    required = options.get("label") is not None
    nodes, edges = open_tables(folder, memory // 2, chosen, required=required)
    chosen = with_unused(chosen, edges)
    tell(f"importing {folder}, piece by piece: reading {nodes.path.name}", 0.0)
    create_nodes(nodes, edges, chosen)
    columns = feature_columns(nodes, chosen)
    features = FeatureColumns(nodes, columns, chosen, MOST_VALUES)
    rows = _NodeFiles(nodes, out, chosen.options.task).write(
        features,
        lambda count: tell(f"importing {nodes.path.name}: {count:,} nodes", FEATURES_READ / 2),
    )
    features.warn_of_news()
    need = NODE_BYTES * rows.nodes + LEAST_ROOM
    if need > memory:
        raise ConfigError(
            f"memory leaves {memory / 1e6:.0f} MB for the import of {rows.nodes:,} nodes but it "
            f"needs {need / 1e6:.0f} MB; give --memory that much more."
        )
    labels, class_names = rows.labels()
    split = rows.split(labels, seed, lambda: _id_pieces(out))
    index = IdIndex(lambda: _id_pieces(out), nodes.path)

    def note(count: int) -> None:
        tell(f"importing {edges.path.name}: {count:,} edges", FEATURES_READ)

    sort_edges(
        read_edges(edges, index, nodes.path, chosen, note),
        out,
        rows.nodes,
        (memory - 40 * rows.nodes) // 2,
        lambda share: tell("importing: sorting", EDGES_READ + (SORTED - EDGES_READ) * share),
    )
    tell("importing: checksums", SORTED)
    write_rest(
        out,
        labels,
        split,
        name=folder.resolve().name,
        class_names=class_names,
        feature_names=features.names,
        integer_ids=rows.integer_ids,
        tables=stamp,
        preparation=features.preparation,
    )
    pa.default_memory_pool().release_unused()


class _NodeFiles:
    """The passes over a node table that write ids and features to ``folder``."""

    def __init__(self, reader: TableReader, folder: Path, task: str) -> None:
        self._reader, self._folder, self._rows = reader, folder, NodeRows(reader, task)

    def write(self, features: FeatureColumns, note: Callable[[int], None]) -> NodeRows:
        """Write ids and features of every row; what else the rows say.

        A table too wide to read all columns at once is read in several passes, each of which writes
        its features to a file of its own; these are joined in the end.
        """
        groups = self._reader.groups(features.columns)
        with self._scratch() as place:
            parts = [self._folder / FEATURES]
            if len(groups) > 1:
                place.mkdir()
                parts = [place / f"{i}.npy" for i in range(len(groups))]
            for part, columns in zip(parts, groups, strict=True):
                first = part == parts[0]
                rows = self._first_pass(columns, note) if first else self._pass(columns)
                self._write_features(part, features, columns, rows)
            if len(groups) > 1:
                self._join(parts, features.width)
        return self._rows

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Where a folder for the passes can be; what a killed import left there goes."""
        place = self._folder / SCRATCH
        shutil.rmtree(place, ignore_errors=True)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _pass(self, columns: list[str]) -> Generator[tuple[pa.Table, pa.Array], None, None]:
        """Rows of the table with these columns, and their ids."""
        for batch in self._reader.batches([self._reader.id, *columns]):
            yield batch.table, batch.filled_text(self._reader.id)

    def _first_pass(
        self, columns: list[str], note: Callable[[int], None]
    ) -> Generator[tuple[pa.Table, pa.Array], None, None]:
        """What :meth:`_pass` gives, while ids, labels and parts of the split are taken along."""
        kind = pa.schema([("id", pa.large_string())])
        with (
            atomic_write(self._folder / IDS) as file,
            parquet.ParquetWriter(file, kind, compression="zstd") as ids,
        ):
            waiting = pa.chunked_array([], pa.large_string())
            special = self._reader.id, self._reader.label, "split"
            for batch in self._reader.batches([*special, *columns]):
                names = self._rows.add(batch)
                waiting = pa.chunked_array([*waiting.chunks, names], pa.large_string())
                while len(waiting) >= ID_ROWS:  # whatever the batches are, the file is the same
                    ids.write_table(pa.Table.from_arrays([waiting[:ID_ROWS]], schema=kind))
                    waiting = pa.chunked_array(
                        [pa.concat_arrays(waiting[ID_ROWS:].chunks or [names[:0]])]
                    )
                yield batch.table, names
                note(self._rows.nodes)
            if len(waiting):
                ids.write_table(pa.Table.from_arrays([waiting], schema=kind))

    def _write_features(
        self,
        path: Path,
        features: FeatureColumns,
        columns: list[str],
        rows: Generator[tuple[pa.Table, pa.Array], None, None],
    ) -> None:
        width = features.width_of(columns)
        step = self._rows_at_once(width)
        with contextlib.closing(rows), growing_npy(path, np.float32, (width,)) as append:
            for table, ids in rows:
                for start in range(0, len(ids), step):
                    piece = table.slice(start, step), columns, ids.slice(start, step)
                    append(features.dense(*piece))

    def _join(self, parts: list[Path], width: int) -> None:
        """The files of the passes side by side."""
        step, nodes = self._rows_at_once(width), self._rows.nodes
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(NpyRows(part)) for part in parts]
            append = stack.enter_context(growing_npy(self._folder / FEATURES, np.float32, (width,)))
            for start in range(0, nodes, step):
                stop = min(start + step, nodes)
                append(np.concatenate([file.read(start, stop) for file in files], axis=1))

    def _rows_at_once(self, width: int) -> int:
        """One-hot features may be far wider than the text that they come from."""
        return max(1, self._reader.room // (DENSE_FORMS * 4 * max(width, 1)))


def _id_pieces(folder: Path) -> Iterator[pa.Array]:
    """The ids that a pass has written."""
    with parquet.ParquetFile(folder / IDS) as file:
        for batch in file.iter_batches(ID_ROWS, use_threads=False):
            yield batch.column(0)
