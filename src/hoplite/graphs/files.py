"""Sets of graphs in files: one ``.npz`` file, or a folder for what is larger than memory.

A folder has the features (n, d) and the block-diagonal matrix (n, n) of all graphs in ``.npy``
files, which are read and checked a range at a time, and what there is one of for each graph in
``graphs.npz``. Nothing is unpickled.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import check_number
from hoplite.errors import ConfigError, DatasetError, GraphError
from hoplite.files import atomic_write, parse_json, reading, to_json
from hoplite.graph import PARTS, Graph, Split
from hoplite.graphs.graph_set import GraphSet
from hoplite.io.array_files import (
    CsrFiles,
    NpyRows,
    NpzFile,
    growing_csr,
    growing_npy,
    npz_arrays,
)
from hoplite.io.npz import narrow, open_npz
from hoplite.labels import known_labels
from hoplite.preparation import Preparation

COMMON = ("class_names", "feature_names", "preparation")
ADVICE = "load the parts in the same way"
FILE, FEATURES = "graphs.npz", "features.npy"
MAX_NODES = 10**8  # maximum number of nodes of a file without features
MAX_DENSE = 1 << 26  # values of features with tags


def write_graph_files(folder: str | Path, parts: Iterable[GraphSet]) -> None:
    """Write graphs that come in several sets, such as one for each file, into one folder.

    Parameters
    ----------
    folder : path
        It is made if it does not exist; ``graphs.npz`` is written last.
    parts : iterable of GraphSet
        With the same features, preparation and class names; only one is in memory at a time. Their
        splits are kept; if none has one, all graphs with a label train. Ids are kept if all parts
        have them; those of graphs must differ.
    """
    folder, parts = Path(folder), iter(parts)
    first = next(parts, None)
    if first is None:
        raise DatasetError("there are no graph sets to write; pass at least one.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    tables, nodes = [], 0
    with (
        growing_csr(folder, np.int64, np.float32) as append_edges,
        growing_npy(folder / FEATURES, np.float32, (first.num_features,)) as append_features,
    ):
        for part in itertools.chain([first], parts):
            for name in COMMON:
                if getattr(part, name) != getattr(first, name):
                    raise GraphError(f"{part.name} and {first.name} differ in {name}; {ADVICE}.")
            for _, block in part.blocks(part.num_features):
                matrix, end = block.adjacency, nodes + block.num_nodes
                entries = matrix.data, matrix.indices.astype(np.int64) + nodes, matrix.indptr
                append_edges(sp.csr_array(entries, shape=(block.num_nodes, end)))
                append_features(block.feature_rows(0, block.num_nodes))
                nodes = end
            tables.append(_graph_arrays(part))
    names = [name for name in tables[0] if all(name in table for table in tables)]
    arrays = {name: np.concatenate([table[name] for table in tables]) for name in names}
    ids = Counter(arrays.get("graph_ids", np.empty(0, "U1")).tolist())
    if ids and ids.most_common(1)[0][1] > 1:
        raise GraphError(f"two graphs have the id {ids.most_common(1)[0][0]!r}; rename one.")
    arrays["name"] = np.array(first.name)
    _write_arrays(folder / FILE, arrays | _common_arrays(first))


def open_graph_files(folder: Path) -> GraphSet:
    """The set in a folder of :func:`write_graph_files`; features and edges stay on disk."""
    with reading(folder, "set of graphs", "write it again"), npz_arrays(folder / FILE) as file:
        edges, features = CsrFiles(folder, partial(_damaged, folder)), NpyRows(folder / FEATURES)
        counts = _counts(file, "node_counts")
        if counts.sum(dtype=np.float64) != edges.rows or len(features) != edges.rows:
            raise ValueError("the number of nodes does not match")
        if features.dtype != np.float32 or len(features.shape) != 2:
            raise ValueError(f"{FEATURES} has type {features.dtype} and shape {features.shape}")
        name = str(file.read("name", "U", 0)) if "name" in file else folder.name
        graphs = _read_set(file, edges, features, counts, name)
        return graphs if graphs.table.split.train.size else graphs.with_split(None)


def _damaged(folder: Path, error: Exception) -> Exception:
    return GraphError(f"{folder} is damaged ({error}); write it again.")


def write_graphs(path: str | Path, graphs: GraphSet) -> None:
    """Write a set of graphs to a ``.npz`` file, which :func:`hoplite.load_graphs` reads.

    Parameters
    ----------
    path : path
        The file to write.
    graphs : GraphSet

    Notes
    -----
    The arrays are ``node_counts`` and ``edge_counts`` (G,), ``edge_source`` and ``edge_target``
    (e,) within a graph, ``edge_weights`` if there are any, ``node_attributes`` (n, d),
    ``graph_labels``, ``class_names``, ``feature_names``, ``graph_ids``, ``node_ids`` (n,), and
    ``split`` (G,): 0 training, 1 validation, 2 test, 3 none of them, and ``preparation``, how
    columns were prepared, as JSON. Ids become text.

    Examples
    --------
    >>> import tempfile
    >>> from hoplite import Graph, load_graphs
    >>> pair = Graph.from_edges([(0, 1)], [[1.0], [2.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_graphs(f"{folder}/pairs.npz", load_graphs([pair, pair], labels=["a", "b"]))
    ...     load_graphs(f"{folder}/pairs.npz").class_names
    ('a', 'b')
    """
    if not isinstance(graphs, GraphSet):
        raise GraphError(f"graphs has type {type(graphs).__name__}; use hoplite.load_graphs first.")
    block = graphs.block(0, len(graphs))  # of a set on disk, too
    upper = sp.csr_array(sp.triu(block.adjacency, k=1, format="csr"))
    rows, columns = upper.nonzero()
    owner = np.searchsorted(graphs.offsets, rows, "right") - 1
    arrays = _graph_arrays(graphs) | {
        "edge_counts": narrow(np.bincount(owner, minlength=len(graphs))),
        "edge_source": narrow(rows - graphs.offsets[owner]),
        "edge_target": narrow(columns - graphs.offsets[owner]),
        "node_attributes": block.feature_rows(0, block.num_nodes),
    }
    if (upper.data != 1).any():
        arrays["edge_weights"] = upper.data
    _write_arrays(Path(path), arrays | _common_arrays(graphs))


def read_npz_graphs(path: Path, *, split: int | None = None) -> GraphSet:
    """Read a ``.npz`` file of :func:`write_graphs`.

    Also ``node_tags`` (n,) are features, as one-hot columns, and ``class_values`` and
    ``tag_values`` are names. ``split`` chooses one of several splits: (splits, G).
    """
    with open_npz(path, "write it with hoplite.graphs.write_graphs") as file:
        counts, links = _counts(file, "node_counts"), _counts(file, "edge_counts")
        ends = [file.read(f"edge_{end}", "iu", 1).astype(np.int64) for end in ("source", "target")]
        if len(counts) != len(links) or links.sum(dtype=np.float64) != len(ends[0]):
            raise ValueError("node_counts, edge_counts and edge_source do not match")
        owner = np.repeat(np.arange(len(counts)), links)
        for end in ends:
            if len(end) != len(owner) or ((end < 0) | (end >= counts[owner])).any():
                raise ValueError("an edge ends outside of its graph")
        tags = file.read("node_tags", "iu", 1)[:, None] if "node_tags" in file else None
        values = file.read("tag_values", "iu", 1) if "tag_values" in file else None
        numbers = file.read("node_attributes", "f", 2) if "node_attributes" in file else None
        known = tags is None or values is None or 0 <= tags.min() <= tags.max() < len(values)
        if not known:
            raise ValueError("node_tags and tag_values do not match")
        rows = [len(array) for array in (tags, numbers) if array is not None]
        if counts.sum(dtype=np.float64) > min(rows, default=MAX_NODES):
            raise ValueError("node_counts are too large")
        offsets = np.append(0, np.cumsum(counts))
        features, names = tag_features(int(offsets[-1]), tags, numbers, values)
        weights = file.read("edge_weights", "f", 1) if "edge_weights" in file else None
        pairs = np.column_stack([end + offsets[owner] for end in ends])
        block = Graph.from_edges(pairs, features, weights=weights)
        return _read_set(file, block.adjacency, block.features, counts, path.stem, split, names)


def tag_features(
    nodes: int,
    tags: np.ndarray | None,
    numbers: np.ndarray | None,
    values: np.ndarray | None = None,
) -> tuple[Any, list[str]]:
    """X and its names: one-hot columns for every column of tags, then the numbers.

    Tags are names or, with ``values``, the places of their names there. X is sparse where it has
    tags and more than ``MAX_DENSE`` values.
    """
    columns: list[Any] = []
    names: list[str] = []
    for j, tag in enumerate([] if tags is None else tags.T):
        own, codes = np.unique(tag, return_inverse=True)
        columns.append(sp.eye_array(len(own), dtype=np.float32, format="csr")[codes])
        names += [f"tag{j or ''}={value}" for value in (own if values is None else values[own])]
    if numbers is not None:
        columns.append(numbers)
        names += [f"attribute{j}" for j in range(numbers.shape[1])]
    if any(column.shape[0] != nodes for column in columns):
        raise ValueError(f"the node features do not have {nodes:,} rows")
    if tags is None:
        return np.empty((nodes, 0), np.float32) if numbers is None else numbers, names
    whole = sp.csr_array(sp.hstack([sp.csr_array(column) for column in columns]))
    return whole.toarray() if nodes * len(names) <= MAX_DENSE else whole, names


def _graph_arrays(graphs: GraphSet) -> dict[str, np.ndarray]:
    """What a file has one of for each graph or node, of several labels (G, m)."""
    parts = np.full(len(graphs), len(PARTS), np.uint8)
    for number, part in enumerate(PARTS):
        parts[getattr(graphs.table.split, part)] = number
    arrays = {"node_counts": narrow(graphs.sizes), "graph_labels": graphs.table.labels}
    return arrays | {"split": parts} | _text_arrays(graphs, "graph_ids", "node_ids")


def _common_arrays(graphs: GraphSet) -> dict[str, np.ndarray]:
    """What all parts of a folder have in common."""
    arrays = _text_arrays(graphs, "class_names", "feature_names")
    if graphs.preparation is not None:
        arrays["preparation"] = np.array(to_json(graphs.preparation, indent=None))
    return arrays


def _text_arrays(graphs: GraphSet, *names: str) -> dict[str, np.ndarray]:
    texts = {name: getattr(graphs, name) for name in names}
    return {name: np.array([*map(str, values)]) for name, values in texts.items() if values}


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]


def _read_set(
    file: NpzFile,
    adjacency: Any,
    features: Any,
    counts: np.ndarray,
    name: str,
    split: int | None = None,
    feature_names: list[str] | None = None,
) -> GraphSet:
    """The set of these graphs with the labels, names and split of the file."""
    labels = file.read("graph_labels", "iuf", 1, 2) if "graph_labels" in file else None
    class_names = _texts(file, "class_names")
    if class_names is None and "class_values" in file:
        class_names = [*map(str, file.read("class_values", "iu", 1).tolist())]
    graphs = GraphSet(
        adjacency,
        features,
        np.append(0, np.cumsum(counts)),
        labels,
        Split(),
        class_names,
        _texts(file, "feature_names") or feature_names,
        _texts(file, "graph_ids"),
        _texts(file, "node_ids"),
        name,
        _preparation(file),
    )
    if labels is None:
        return graphs
    if "split" not in file:
        if split is not None:
            raise ConfigError(f"is {split}, but {name} has no split; leave it out.", "split")
        return graphs.with_split(None)
    parts = np.atleast_2d(file.read("split", "iu", 1, 2))
    if parts.shape[1] != len(counts):
        raise ValueError("split does not have one column per graph")
    check_number("split", split or 0, 0, len(parts) - 1, whole=True)
    row = np.where(known_labels(graphs.table.labels), parts[split or 0], len(PARTS))
    note = f"split {split or 0} of {name}"
    chosen = Split(*(np.flatnonzero(row == number) for number in range(len(PARTS))), note=note)
    return graphs.with_split(chosen)


def _counts(file: NpzFile, name: str) -> np.ndarray:
    counts = file.read(name, "iu", 1).astype(np.int64)
    if counts.min(initial=0) < 0:
        raise ValueError(f"{name} has negative numbers")
    return counts


def _preparation(file: NpzFile) -> Preparation | None:
    if "preparation" not in file:
        return None
    return parse_json(str(file.read("preparation", "U", 0)).encode(), Preparation)


def _texts(file: NpzFile, name: str) -> list[str] | None:
    return file.read(name, "U", 1).tolist() if name in file else None
