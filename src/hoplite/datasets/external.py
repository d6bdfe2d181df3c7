"""Node and edge tables larger than memory become a graph on disk, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from hoplite.datasets.bucket_sort import sort_edges
from hoplite.datasets.disk_graph import FILE, DiskGraph, is_disk_graph, write_rest
from hoplite.datasets.external_features import FeatureColumns
from hoplite.datasets.external_nodes import NodeTable, feature_columns, id_pieces
from hoplite.datasets.table_batches import TableReader
from hoplite.datasets.table_files import check_columns, find_table
from hoplite.datasets.tables import EDGE_COLUMNS, NODE_COLUMNS, _numbers
from hoplite.datasets.text_keys import IdIndex
from hoplite.errors import ConfigError, DatasetError
from hoplite.files import remove_leftovers

NODE_BYTES = 64  # of memory per node: keys, their order, label and part, while they are made
LEAST_ROOM = 48 * 10**6
FEATURES_READ, EDGES_READ, SORTED = 0.4, 0.7, 0.95  # share of the work that is done by then


def import_tables(
    folder: str | Path,
    out: str | Path,
    *,
    memory: int,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
) -> None:
    """Read the tables of ``folder``, as :func:`read_tables` does, into a graph on disk in ``out``.

    The graph is the same, to the bit. ``memory`` is what the import may take, in bytes, beyond
    what the process holds already: about 64 bytes a node and a fixed rest, whatever the number of
    edges and features. An import of the same, unchanged tables that is there already is kept; one
    that was stopped starts again.
    """
    folder, out = Path(folder), Path(out)
    tell = progress or (lambda what, share: None)
    paths = [find_table(folder, stem) for stem in ("nodes", "edges")]
    stamp = [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]
    stamp.append(["seed", seed])
    if is_disk_graph(out):
        with DiskGraph(out) as found:
            if found.tables == stamp:
                return
        (out / FILE).unlink()
    if memory < LEAST_ROOM:
        raise ConfigError(
            f"memory leaves {memory / 1e6:.0f} MB for the import of {folder} but it needs "
            f"{LEAST_ROOM / 1e6:.0f} MB; give --memory that much more."
        )
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    nodes, edges = (
        TableReader(path, columns, memory // 2)
        for path, columns in zip(paths, (NODE_COLUMNS, EDGE_COLUMNS), strict=True)
    )
    for reader, special, required, others in (
        (nodes, NODE_COLUMNS, 1, "taken as a feature"),
        (edges, EDGE_COLUMNS, 2, "ignored"),
    ):
        empty = reader.schema.empty_table()
        check_columns(empty, special[:required], special[required:], reader.path, others)
    features = FeatureColumns(nodes, feature_columns(nodes))
    table = NodeTable(nodes)
    tell(f"importing {folder}, piece by piece: reading {nodes.path.name}", 0.0)
    table.write(
        out,
        features,
        lambda count: tell(f"importing {nodes.path.name}: {count:,} nodes", FEATURES_READ / 2),
    )
    need = NODE_BYTES * table.nodes + LEAST_ROOM
    if need > memory:
        raise ConfigError(
            f"memory leaves {memory / 1e6:.0f} MB for the import of {table.nodes:,} nodes but it "
            f"needs {need / 1e6:.0f} MB; give --memory that much more."
        )
    labels, class_names = table.labels()
    split = table.split(labels, seed)
    index = IdIndex(id_pieces(out), nodes.path)
    sort_edges(
        _edges(edges, index, nodes.path, tell),
        out,
        table.nodes,
        (memory - 40 * table.nodes) // 2,
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
        integer_ids=table.integer_ids,
        tables=stamp,
    )
    pa.default_memory_pool().release_unused()


def _edges(
    reader: TableReader, index: IdIndex, nodes_path: Path, tell: Callable[[str, float], None]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Source, target and weight of the edges, batch by batch."""
    weighted = "weight" in reader.names
    for batch in reader.batches([*EDGE_COLUMNS[:2], *(["weight"] if weighted else [])]):
        ends = []
        for column in EDGE_COLUMNS[:2]:
            names = batch.filled_text(column, reader.path)
            found = index.find(names)
            if found.min() < 0:
                row = int(np.flatnonzero(found < 0)[0])
                raise DatasetError(
                    f"column {column!r} of {reader.path} names {names[row].as_py()!r} in data row "
                    f"{batch.first + row + 1:,}, which is no id in {nodes_path.name}; "
                    "add that node or remove the edge."
                )
            ends.append(found)
        weights = None
        if weighted:
            weights = _weights(batch.table["weight"], batch.first, reader.path)
        yield ends[0], ends[1], weights
        tell(f"importing {reader.path.name}: {batch.first + len(ends[0]):,} edges", FEATURES_READ)


def _weights(column: pa.ChunkedArray, first: int, path: Path) -> np.ndarray:
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is refused
        weights = _numbers(column, path).astype(np.float32)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DatasetError(
            f"column 'weight' of {path} has {column[row].as_py()!r} in data row "
            f"{first + row + 1:,}; give a finite number that is at least 0, or remove the edge."
        )
    return weights
