"""Graphs in ``.npz`` files: Hoplite's own, and plain arrays with the masks of several splits.

Nothing is unpickled, and no array is read before its size is known to fit.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import scipy.sparse as sp

from hoplite.csr import check_csr
from hoplite.errors import DatasetError
from hoplite.files import atomic_write, parse_json, reading
from hoplite.graph import PARTS, Graph, Split
from hoplite.io.array_files import NpzFile, npz_arrays
from hoplite.io.columns import prepared_matrix
from hoplite.io.node_files import Count, NodeFacts
from hoplite.io.splits import masked_split, refuse_split, stratified_split
from hoplite.labels import CLASSES, NUMBERS, SETS, label_type
from hoplite.preparation import (
    REFUSE,
    ListColumn,
    Preparation,
    TableOptions,
    chosen_preparation,
    refuse_options,
)

FORMAT, VERSION = "hoplite-graph", 1
LABELS = {CLASSES.task: "labels", NUMBERS.task: "label_values", SETS.task: "label_sets"}
FEATURE_ARRAY, LABEL_ARRAY, EDGE_ARRAY = "node_features", "node_labels", "edges"
USE_SETS = "use hoplite.load_graphs and hoplite.train_graphs"
MATRIX_OPTIONS = ("scale", "gaps", "directed")  # options of tables that also apply to plain arrays


@dataclass(frozen=True, kw_only=True)
class Meta(NodeFacts):
    """The description of the graph in a file of :func:`write_npz`."""

    format: str
    version: int
    edges: Count
    features: Count
    classes: Count
    split: dict[str, Count]
    row_normalize: bool
    node_ids: list[str | int] | None
    split_seed: Count | None = None


@contextlib.contextmanager
def open_npz(path: str | os.PathLike[str], advice: str = "") -> Iterator[NpzFile]:
    """Open a ``.npz`` file; anything wrong within the block is a DatasetError with ``advice``."""
    # a GraphError is a ValueError: the arrays do not make a graph
    with reading(path, "graph file", advice), npz_arrays(path) as file:
        yield file


def read_npz(
    path: str | os.PathLike[str],
    *,
    seed: int | None = None,
    split: int | None = None,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """Read a graph from a ``.npz`` file: one of :func:`write_npz`, or plain arrays.

    Public benchmarks use plain arrays:

    - ``node_features``: (n, d) numbers; optional;
    - ``node_labels``: (n,) integers, negative where unknown;
    - ``edges``: (e, 2) node indices; repeated pairs count once;
    - ``train_masks``, ``val_masks``, ``test_masks``: (splits, n) or (n,) booleans.

    Parameters
    ----------
    path : path
        The file.
    seed : int, default 0
        Seed of the stratified split of plain arrays without masks.
    split : int, optional
        Which split of the masks to use if there are several; the first by default.
    prepare : TrainedModel or Preparation, optional
        Prepare ``node_features`` as in training.
    scale, gaps : str, optional
        How to scale features and fill missing values, as for tables. By default features are used
        as they are.
    directed : bool, optional
        Keep the direction of edges.

    Returns
    -------
    Graph
        Without features if the file has none; :func:`hoplite.load` adds structural ones.

    Raises
    ------
    DatasetError
        If the file is damaged, or its arrays do not form a graph.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", node_features=np.eye(3), edges=[(0, 1), (1, 2)])
    ...     read_npz(f"{folder}/mine.npz")
    Graph(nodes=3, edges=2, features=3, classes=0)
    """
    with open_npz(path) as file:
        if "node_counts" in file:
            raise DatasetError(f"{path} is a set of graphs; {USE_SETS}.")
        if EDGE_ARRAY in file and "meta" not in file:
            return _read_plain(file, seed, split, prepare, options)
        refuse_split(path, split)
        refuse_options(path, options)
        return _read_own(file)


def read_meta(path: str | os.PathLike[str]) -> Meta:
    """Read the facts stored about a graph (counts, names, split sizes), without its arrays."""
    with open_npz(path) as file:
        return _read_meta(file)


def write_npz(path: str | os.PathLike[str], graph: Graph, *, row_normalize: bool = False) -> None:
    """Write a graph to a ``.npz`` file, which :func:`read_npz` and :func:`hoplite.load` read.

    The file is written completely or not at all, and the same graph gives the same bytes.

    Parameters
    ----------
    path : path
        The file to write.
    graph : Graph
        The graph.
    row_normalize : bool, default False
        Write the features as they are and divide each row by its sum when the file is read. Counts
        need much less space than their quotients.

    Examples
    --------
    >>> import tempfile
    >>> from hoplite import Graph
    >>> path = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3), node_ids=["a", "b", "c"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(f"{folder}/path.npz", path)
    ...     read_npz(f"{folder}/path.npz").node_ids
    ('a', 'b', 'c')
    """
    graph.refuse_relations("a .npz file")
    with atomic_write(path) as file:
        np.savez_compressed(file, **_arrays(graph, row_normalize))  # pyright: ignore[reportArgumentType]


def _read_plain(
    file: NpzFile, seed: int | None, split: int | None, prepare: Any, options: dict[str, Any]
) -> Graph:
    path = file.path
    settings = refuse_options(path, options, MATRIX_OPTIONS)
    if settings.get("directed") is False:
        del settings["directed"]
    labels = None
    if LABEL_ARRAY in file:
        labels = np.maximum(file.read(LABEL_ARRAY, "iu", 1).astype(np.int64), -1)
    if FEATURE_ARRAY in file or labels is None:
        with np.errstate(over="ignore"):  # too large for float32: infinite, which Graph rejects
            features = file.read(FEATURE_ARRAY, "fiub", 2).astype(np.float32, copy=False)
    else:
        features = np.empty((len(labels), 0), np.float32)
    if labels is not None and len(labels) != len(features):
        raise ValueError(f"there are {len(labels):,} labels for {len(features):,} nodes")
    edges = file.read(EDGE_ARRAY, "iu", 2)
    masks = {
        part: file.read(f"{part}_masks", "biu", 1, 2).astype(bool).T
        for part in PARTS
        if f"{part}_masks" in file
    }
    shapes = {mask.shape for mask in masks.values()}
    if len(shapes) > 1 or any(shape[0] != len(features) for shape in shapes):
        raise ValueError("the masks have different shapes; each must have one value per node")
    chosen = masked_split(masks, split, labels, f"from the masks of {path.name}")
    if chosen is None and labels is not None:
        chosen = stratified_split(labels, seed or 0)
    fitted = getattr(prepare, "preparation", prepare)
    fitted = fitted if isinstance(fitted, Preparation) else None
    directed = bool(settings.get("directed")) or (fitted is not None and fitted.options.directed)
    facts: dict[str, Any] = {}
    is_prepared = fitted is not None and any(c.name == FEATURE_ARRAY for c in fitted.fitted)
    if features.shape[1] and (settings or is_prepared):
        if [*settings] == ["directed"]:
            settings |= {"scale": "none", "gaps": REFUSE}
        features, facts["feature_names"], facts["preparation"] = prepared_matrix(
            FEATURE_ARRAY, features, chosen_preparation(prepare, settings)
        )
    elif features.shape[1]:  # so that a model of prepared features rejects these
        facts["feature_names"] = ListColumn(FEATURE_ARRAY, width=features.shape[1]).names()
    elif directed:  # so that a model keeps it
        facts["preparation"] = Preparation(TableOptions(directed=True), ())
    return Graph.from_edges(
        edges, features, labels, directed=directed, split=chosen, name=path.stem, **facts
    )


def _read_meta(file: NpzFile) -> Meta:
    meta = parse_json(file.read("meta", "u", 1).tobytes(), Meta)
    if meta.format != FORMAT or meta.version != VERSION:
        raise ValueError(f"it has the format {meta.format} {meta.version}, not {FORMAT} {VERSION}")
    if len(set(meta.class_names)) < len(meta.class_names):
        raise ValueError("it has duplicate class names")
    return meta


def _read_own(file: NpzFile) -> Graph:
    meta = _read_meta(file)
    n, d = meta.nodes, meta.features
    upper = sp.csr_array(_compressed(file, "edge", "weights", n, n), shape=(n, n))
    if "features" in file:
        features = file.read("features", "f", 2)
    else:
        columns = _compressed(file, "feature", "values", d, n)
        features = sp.csr_array(sp.csc_array(columns, shape=(n, d)))
    if features.shape != (n, d):
        raise ValueError(f"its features have shape {features.shape}")
    labels = next((name for name in LABELS.values() if name in file), LABELS[CLASSES.task])
    parts = (file.read(part, "iu", 1) for part in PARTS)
    return Graph(
        upper + upper.T,
        row_normalized(features) if meta.row_normalize else features,
        file.read(labels, "f" if labels == LABELS[NUMBERS.task] else "iu", 1, 2),
        split=Split(*parts, note=meta.split_note, seed=meta.split_seed),
        class_names=meta.class_names,
        feature_names=meta.feature_names,
        node_ids=meta.node_ids,
        name=meta.name,
        preparation=meta.preparation,
    )


def _compressed(
    file: NpzFile, what: str, values: str, rows: int, columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, indices and indptr of a matrix that :func:`_packed` made, checked."""
    counts, steps = (file.read(f"{what}_{part}", "iu", 1) for part in ("counts", "steps"))
    if len(steps) and not 0 <= steps.min() <= steps.max() < columns:
        raise ValueError(f"its {what}_steps are not between 0 and {columns - 1}")
    stored = file.read(f"{what}_{values}", "f", 0, 1)
    if stored.dtype not in (np.float32, np.float64):
        raise ValueError(f"its numbers have type {stored.dtype}")
    indptr = np.append(0, np.cumsum(counts, dtype=np.int64))
    indices = np.cumsum(steps, dtype=np.int64) % max(columns, 1)
    numbers = np.broadcast_to(stored, indices.shape).copy()
    check_csr(indptr, indices, numbers, (rows, columns))
    return numbers, indices, indptr


def _arrays(graph: Graph, row_normalize: bool) -> dict[str, np.ndarray]:
    upper = sp.csr_array(sp.triu(graph.adjacency, k=1, format="csr"))
    if len(set(graph.class_names)) < len(graph.class_names):
        raise DatasetError("class_names has duplicate names; make them unique.")
    meta = Meta(
        format=FORMAT,
        version=VERSION,
        name=graph.name,
        nodes=graph.num_nodes,
        edges=int(upper.nnz),
        features=graph.num_features,
        classes=graph.num_classes,
        split=graph.split.sizes(),
        split_note=graph.split.note,
        split_seed=graph.split.seed,
        row_normalize=bool(row_normalize),
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        node_ids=_plain_ids(graph.node_ids),
        preparation=None
        if row_normalize
        else graph.preparation,  # the stored features are not the prepared ones
    )
    facts = msgspec.to_builtins(meta)
    for name in ("preparation", "split_seed"):
        if facts[name] is None:
            del facts[name]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    arrays = {"meta": np.frombuffer(text.encode("ascii"), np.uint8)}
    arrays |= _packed(upper, "edge", "weights")
    if sp.issparse(graph.features):
        # By columns: values of one feature resemble each other, so they compress much better
        # next to each other (Pubmed's go from 3.4 MB to 2.0 MB).
        arrays |= _packed(sp.csc_array(graph.features), "feature", "values")
    else:
        arrays["features"] = graph.features
    type_ = label_type(graph.labels)
    arrays[LABELS[type_.task]] = graph.labels if type_ is NUMBERS else narrow(graph.labels)
    return arrays | {part: narrow(getattr(graph.split, part)) for part in PARTS}


def _packed(matrix: Any, what: str, values: str) -> dict[str, np.ndarray]:
    """The arrays of a compressed matrix, as small numbers, which compress well.

    They are the number of entries of each row and, modulo the number of columns, the step to each
    index from the one before it. Values that all have the same bits are stored once.
    """
    matrix.sort_indices()
    data, columns = matrix.data, matrix.shape[matrix.format == "csr"]
    steps = np.diff(matrix.indices.astype(np.int64), prepend=0) % max(columns, 1)
    bits = np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}")
    if bits.size and (bits == bits[0]).all():
        data = data[0]
    counts = np.diff(matrix.indptr)
    return {
        f"{what}_counts": narrow(counts),
        f"{what}_steps": narrow(steps),
        f"{what}_{values}": data,
    }


def _plain_ids(ids: Sequence[Any] | None) -> list[Any] | None:
    """Ids as JSON values, integers as integers."""
    if ids is None:
        return None
    values = [name.item() if isinstance(name, np.generic) else name for name in ids]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise DatasetError(
                f"node_ids contains {value!r}, but only strings and integers can be stored."
            )
    return values


def row_normalized(features: np.ndarray | sp.csr_array) -> np.ndarray | sp.csr_array:
    """Divide each row by its sum, so that it sums to 1; a row that sums to 0 stays as it is.

    Sums are taken in float64 and in column order, so equal input gives equal bits, whatever file
    it came from. The type of the values is kept.

    >>> row_normalized(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    if isinstance(features, np.ndarray):
        sums = features.sum(axis=1, dtype=np.float64, keepdims=True)
        return (features / np.where(sums == 0, 1, sums)).astype(features.dtype)
    matrix = sp.csr_array(features, copy=True)
    matrix.sort_indices()
    n = matrix.indptr.size - 1
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    sums = np.bincount(rows, weights=matrix.data, minlength=n)
    matrix.data = (matrix.data / np.where(sums == 0, 1, sums)[rows]).astype(matrix.dtype)
    return matrix


def narrow(values: np.ndarray) -> np.ndarray:
    """Convert integers to the smallest type that holds them all; unsigned if none is negative.

    >>> narrow(np.array([0, 300])).dtype, narrow(np.array([-1, 6])).dtype
    (dtype('uint16'), dtype('int8'))
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return values.astype(np.min_scalar_type(high if low >= 0 else min(low, -high - 1)))
