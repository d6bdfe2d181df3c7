"""Your own graph: a folder with a node table and an edge table, each CSV or Parquet."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hoplite.datasets.splits import stratified_split
from hoplite.datasets.table_features import read_features
from hoplite.datasets.table_files import (
    as_number,
    as_text,
    check_columns,
    find_table,
    is_text,
    pc,
    read_table,
)
from hoplite.errors import DatasetError, HopliteWarning, nearest_hint
from hoplite.graph import Graph, Split
from hoplite.graph_checks import UNKNOWN_LABEL

NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("source", "target", "weight")
PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
MOST_NUMBERS = 100  # as classes, unless they are integers that repeat
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)


def read_tables(folder: str | Path, *, seed: int = 0) -> Graph:
    """Read ``nodes.csv|parquet`` and ``edges.csv|parquet`` from ``folder``.

    Nodes: ``id`` (text or integers, unique), optional ``label`` (text or numbers, empty where
    unknown), optional ``split`` (train, val, test, or empty); every other column is a feature:
    numbers and booleans as they are, lists of them as ``column[0]``, ``column[1]``, ..., dates as
    days since 1970-01-01, times and durations as seconds, text one-hot under the names
    ``column=value``, a missing text as zeros. Edges: ``source``, ``target`` (ids), optional
    ``weight``; direction is ignored and further columns too. White space around a text does not
    count.

    Classes are sorted by name, by number if all are integers. Labels without a split get a
    stratified one made with ``seed``; a split without labels means nothing and is dropped. A
    test node without a label is left out of the split, with a warning.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; give one with a node and an edge table.")
    nodes_path, edges_path = find_table(folder, "nodes"), find_table(folder, "edges")
    nodes = read_table(nodes_path, text=NODE_COLUMNS)
    edges = read_table(edges_path, text=EDGE_COLUMNS)
    check_columns(nodes, NODE_COLUMNS[:1], NODE_COLUMNS[1:], nodes_path, "taken as a feature")
    check_columns(edges, EDGE_COLUMNS[:2], EDGE_COLUMNS[2:], edges_path, "ignored")

    ids = _read_ids(nodes, nodes_path)
    labels, class_names = _read_labels(nodes, nodes_path)
    features, feature_names = read_features(
        nodes, [c for c in nodes.column_names if c not in NODE_COLUMNS], ids, nodes_path
    )
    ends = [_read_ends(edges, column, ids, edges_path, nodes_path) for column in EDGE_COLUMNS[:2]]
    return Graph.from_edges(
        np.column_stack(ends),
        features,
        labels,
        weights=_read_weights(edges, edges_path),
        split=_read_split(nodes, labels, ids, nodes_path, seed),
        class_names=class_names,
        feature_names=feature_names,
        node_ids=_plain_ids(ids, nodes, nodes_path),
        name=folder.resolve().name,
    )


def _read_ids(nodes: pa.Table, path: Path) -> pa.Array:
    ids = as_text(nodes["id"], "id", path)
    if not len(ids):
        raise DatasetError(f"{path} has no rows; give one row per node.")
    _refuse_gaps(ids, "id", path)
    if len(pc.unique(ids)) < len(ids):
        first: dict[str, int] = {}
        for row, name in enumerate(ids.to_pylist()):
            if first.setdefault(name, row) != row:
                raise DatasetError(
                    f"{path} has the id {name!r} in data rows {first[name] + 1} and {row + 1}; "
                    "give each node one row."
                )
    return ids


def _plain_ids(ids: pa.Array, nodes: pa.Table, path: Path) -> tuple[Any, ...]:
    """Integers where the table has integers: all ids like 7 in CSV (but not 007), or by type."""
    names = ids.to_pylist()
    if path.suffix != ".csv" and is_text(nodes["id"].type):
        return tuple(names)
    if all(_INTEGER.fullmatch(name) for name in names):
        numbers = [int(name) for name in names]
        if all(i in _INT64 and str(i) == name for i, name in zip(numbers, names, strict=True)):
            return tuple(numbers)
    return tuple(names)


def _read_labels(nodes: pa.Table, path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    if "label" not in nodes.column_names:
        return np.full(nodes.num_rows, UNKNOWN_LABEL), ()
    text = as_text(nodes["label"], "label", path, fractions=True)
    names = sorted_classes(pc.unique(text).drop_null().to_pylist())
    check_classes(names, len(text) - text.null_count, path)
    codes = pc.index_in(text, value_set=pa.array(names, pa.large_string()))
    return pc.fill_null(codes, UNKNOWN_LABEL).to_numpy().astype(np.int64), tuple(names)


def sorted_classes(names: list[str]) -> list[str]:
    """By name, or by number if all are integers."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_classes(names: list[str], labelled: int, path: Path) -> None:
    """Refuse a measurement as label: more than 100 numbers, with fractions or hardly a repeat."""
    rare = labelled < 2 * len(names)
    if len(names) <= MOST_NUMBERS:
        return
    if any(math.isnan(as_number(name)) for name in names):
        if rare:
            warnings.warn(
                f"column 'label' of {path} has {len(names):,} different values for {labelled:,} "
                "labelled nodes; each becomes a class, so give another column if it is a key.",
                HopliteWarning,
                stacklevel=4,
            )
    elif rare or not all(_INTEGER.fullmatch(name) for name in names):
        raise DatasetError(
            f"column 'label' of {path} has {len(names):,} different numbers for {labelled:,} "
            "labelled nodes, which is a measurement and no class; group them into classes, or "
            "rename the column."
        )


def _read_split(nodes: pa.Table, labels: np.ndarray, ids: pa.Array, path: Path, seed: int) -> Split:
    if "label" not in nodes.column_names:
        return Split(note="none: there is no label column")
    if "split" not in nodes.column_names:
        return stratified_split(labels, seed)
    words = pc.utf8_lower(as_text(nodes["split"], "split", path))
    part = np.full(len(words), -1)
    for word in pc.unique(words).drop_null().to_pylist():
        rows = pc.fill_null(pc.equal(words, word), False).to_numpy(zero_copy_only=False)
        if word not in PARTS:
            node = ids[int(np.flatnonzero(rows)[0])].as_py()
            raise DatasetError(
                f"column 'split' of {path} has {word!r} for node {node!r}; it must be train, "
                f"val, test or empty.{nearest_hint(word, PARTS)}"
            )
        part[rows] = PARTS[word]
    if (part < 0).all():
        return stratified_split(labels, seed)
    unlabelled = labels == UNKNOWN_LABEL
    unknown = np.flatnonzero((part >= 0) & (part < 2) & unlabelled)
    if unknown.size:
        named = ", ".join(repr(ids[int(row)].as_py()) for row in unknown[:3])
        raise DatasetError(
            f"{path} has {unknown.size:,} nodes for train or val without a label (first: {named}); "
            "leave their split empty, or give them a label."
        )
    hidden = (part == 2) & unlabelled
    if hidden.any():
        warnings.warn(
            f"{path} has no label for {hidden.sum():,} of {(part == 2).sum():,} test nodes; "
            "they are left out of the split, but still predicted.",
            HopliteWarning,
            stacklevel=3,
        )
        part[hidden] = -1
    return Split(*(np.flatnonzero(part == i) for i in range(3)), note="from the split column")


def _read_ends(
    edges: pa.Table, column: str, ids: pa.Array, path: Path, nodes_path: Path
) -> np.ndarray:
    names = as_text(edges[column], column, path)
    _refuse_gaps(names, column, path)
    found = pc.index_in(names, value_set=ids)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
        raise DatasetError(
            f"column {column!r} of {path} names {names[row].as_py()!r} in data row {row + 1}, "
            f"which is no id in {nodes_path.name}; add that node or remove the edge."
        )
    return found.to_numpy().astype(np.int64)


def _read_weights(edges: pa.Table, path: Path) -> np.ndarray | None:
    if "weight" not in edges.column_names:
        return None
    column = edges["weight"]
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is refused
        weights = _numbers(column, path).astype(np.float32)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DatasetError(
            f"column 'weight' of {path} has {column[row].as_py()!r} in data row {row + 1}; "
            "give a finite number that is at least 0, or remove the edge."
        )
    return weights


def _numbers(column: pa.ChunkedArray, path: Path) -> np.ndarray:
    """The column in float64, NaN where there is no number."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy().astype(np.float64)
    text = as_text(column, "weight", path)
    try:
        return text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # which does not say in which row, so look one by one
        return np.array([as_number(word) for word in text.to_pylist()], np.float64)


def _refuse_gaps(text: pa.Array, column: str, path: Path) -> None:
    if text.null_count:
        row = int(np.flatnonzero(text.is_null().to_numpy(zero_copy_only=False))[0])
        raise DatasetError(
            f"column {column!r} of {path} is empty in data row {row + 1}; "
            "fill it or remove the row."
        )
