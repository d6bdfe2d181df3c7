"""Your own graph: a folder with a node table and an edge table, each CSV or Parquet."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hoplite.datasets.formats import Format
from hoplite.datasets.splits import stratified_split
from hoplite.datasets.table_features import FeatureColumns
from hoplite.datasets.table_reader import (
    Batch,
    TableReader,
    as_number,
    as_text,
    check_columns,
    find_table,
    has_table,
    is_text,
    pc,
)
from hoplite.datasets.text_keys import IdIndex
from hoplite.errors import DatasetError, HopliteWarning, nearest_hint
from hoplite.graph import Graph, Split
from hoplite.graph_checks import UNKNOWN_LABEL
from hoplite.preparation import Preparation, chosen_preparation

NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("source", "target", "weight")
SPLIT_WORDS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
MOST_NUMBERS = 100  # as classes, unless they are integers that repeat
MOST_WHOLE = 1000
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"

Edges = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]  # sources, targets, weights


def read_tables(folder: str | Path, *, seed: int = 0, prepare: Any = None, **options: Any) -> Graph:
    """Read ``nodes.csv|parquet`` and ``edges.csv|parquet`` from ``folder``.

    Nodes: ``id`` (text or integers, unique), optional ``label`` (text or numbers, empty where
    unknown), optional ``split`` (train, val, test, or empty); every other column is a feature:
    numbers, scaled; lists of them as ``column[0]``, ``column[1]``, ..., dates as days since
    1970-01-01, times and durations as seconds, text one-hot under the names ``column=value``, a
    missing text as zeros. Edges: ``source``, ``target`` (ids), optional ``weight``; direction is
    ignored and further columns too. White space around a text does not count.

    ``options`` are those of :class:`hoplite.TableOptions`, such as ``scale="robust"``. ``prepare``
    is a trained model, a graph or a Preparation whose preparation is taken as it is, or a fitted
    transformer of scikit-learn, which gets the feature columns as an Arrow table. What was fitted
    is the graph's ``preparation``; of a transformer only its kind is kept.

    Classes are sorted by name, by number if all are integers. Labels without a split get a
    stratified one made with ``seed``; a split without labels means nothing and is dropped. A
    test node without a label is left out of the split, with a warning. Without a feature column
    the graph has no features; :func:`hoplite.load` gives it structural ones.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; give one with a node and an edge table.")
    nodes, edges = (TableReader(find_table(folder, stem), None) for stem in ("nodes", "edges"))
    return graph_of(nodes, edges, seed, folder.resolve().name, prepare, options)


def tables_graph(
    nodes: pa.Table,
    edges: pa.Table,
    *,
    seed: int = 0,
    name: str = "graph",
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """The graph of two tables in memory, by the rules of :func:`read_tables`.

    >>> nodes = pa.table({"id": ["a", "b"], "age": [1, 2], "label": ["x", None]})
    >>> tables_graph(nodes, pa.table({"source": ["a"], "target": ["b"]})).node_ids
    ('a', 'b')
    """
    node_table, edge_table = (
        TableReader(Path(stem), None, table) for stem, table in (("nodes", nodes), ("edges", edges))
    )
    chosen = read_preparation(prepare, {**options, "id": "id", "label": "label"})
    return graph_of(node_table, edge_table, seed, name, prepare, {}, chosen)


def read_preparation(prepare: Any, options: dict[str, Any]) -> Preparation:
    """As :func:`chosen_preparation`; a transformer of the user's own leaves only the options."""
    return chosen_preparation(None if hasattr(prepare, "transform") else prepare, options)


def graph_of(
    nodes: TableReader,
    edges: TableReader,
    seed: int,
    name: str,
    prepare: Any,
    options: dict[str, Any],
    chosen: Preparation | None = None,
) -> Graph:
    """The graph of tables that are held; without a feature column it has no features yet.

    ``prepare`` and ``options`` are the user's, see :func:`read_tables`, and what they mean is
    ``chosen`` unless that is known already.
    """
    chosen = chosen or read_preparation(prepare, options)
    check_tables(nodes, edges, chosen, required=options.get("label") is not None)
    columns = feature_columns(nodes, chosen)
    own, some = hasattr(prepare, "transform"), bool(columns or chosen.columns)
    features = FeatureColumns(nodes, columns, chosen) if some and not own else None
    batch = next(nodes.batches(), None)
    if batch is None:
        raise DatasetError(f"{nodes.path} has no rows; give one row per node.")
    rows = NodeRows(nodes)
    ids = rows.add(batch)
    if own:
        matrix, names = transformed(prepare, nodes, batch.table, columns)
        preparation = Preparation(chosen.options, transformer=type(prepare).__name__)
    elif features is None:
        preparation = None
        matrix, names = np.empty((len(ids), 0)), ()
    else:
        matrix, names = features.smaller(batch.table, ids), features.names
        preparation = features.preparation
        features.warn_of_news()
    labels, class_names = rows.labels()
    index = IdIndex(lambda: [ids], nodes.path)
    pieces = list(read_edges(edges, index, nodes.path))
    pairs = [np.column_stack(piece[:2]) for piece in pieces]
    weights = [piece[2] for piece in pieces if piece[2] is not None]
    return Graph.from_edges(
        np.concatenate([np.empty((0, 2), np.int64), *pairs]),
        matrix,
        labels,
        weights=np.concatenate([np.empty(0, np.float32), *weights]) if weights else None,
        split=rows.split(labels, seed, lambda: [ids]),
        class_names=class_names,
        feature_names=names,
        node_ids=tuple((ids.cast(pa.int64()) if rows.integer_ids else ids).to_pylist()),
        name=name,
        preparation=preparation,
    )


def transformed(
    transformer: Any, nodes: TableReader, table: pa.Table, columns: list[str]
) -> tuple[Any, tuple[str, ...]]:
    """X and its names as a user's own fitted ``transformer`` makes them of the feature columns."""
    path = nodes.path
    try:
        table = csv.read_csv(path) if nodes.is_csv else table  # with types, not as text
        matrix = transformer.transform(table.select(columns))
        names = tuple(map(str, transformer.get_feature_names_out()))
    except Exception as error:  # which may be anything of the user's own
        raise DatasetError(
            f"prepare, a {type(transformer).__name__}, fails on {path}: "
            f"{(str(error).splitlines() or [type(error).__name__])[0].rstrip('.')}; "
            "fit it on the same columns first."
        ) from error
    return matrix, names


TABLES = Format(
    "nodes.csv and edges.csv (or .parquet)",
    lambda path: has_table(path, "nodes") or has_table(path, "edges"),
    lambda path, seed, _, **preparing: read_tables(path, seed=seed, **preparing),
    is_folder=True,
    columns=True,
)


def open_tables(
    folder: Path, room: int | None, prepare: Preparation, *, required: bool = False
) -> tuple[TableReader, TableReader]:
    """The node and the edge table of a folder, which have the columns that they need.

    The column of the labels may lack unless it is ``required``.
    """
    paths = [find_table(folder, stem) for stem in ("nodes", "edges")]
    nodes, edges = (TableReader(path, room) for path in paths)
    check_tables(nodes, edges, prepare, required=required)
    return nodes, edges


def check_tables(
    nodes: TableReader, edges: TableReader, prepare: Preparation, *, required: bool = False
) -> None:
    """Note which columns are special; DatasetError unless both have those that they need."""
    nodes.id, nodes.label = prepare.options.id, prepare.options.label
    needed = [nodes.id, *([nodes.label] if required else [])]
    special = (nodes.label, *NODE_COLUMNS[2:])
    check_columns(nodes.names, needed, special, nodes.path, "taken as a feature")
    check_columns(edges.names, EDGE_COLUMNS[:2], EDGE_COLUMNS[2:], edges.path, "ignored")


def feature_columns(nodes: TableReader, prepare: Preparation) -> list[str]:
    """The columns that are features: all but the special ones, or those that were asked for."""
    names = [name for name in nodes.names if name not in (nodes.id, nodes.label, "split")]
    drop, only = prepare.options.drop, prepare.options.only
    if prepare.columns is None:  # another table may lack what is not used
        for name in (*drop, *only):
            if name not in (names if only else nodes.names):
                raise DatasetError(
                    f"{'only' if only else 'drop'} has {name!r}, which is no feature column of "
                    f"{nodes.path}; name its columns.{nearest_hint(name, names)}"
                )
    return [name for name in names if name in only] if only else [n for n in names if n not in drop]


class NodeRows:
    """What the rows of a node table leave in memory besides features: a few bytes a node."""

    def __init__(self, reader: TableReader) -> None:
        self._path, self._columns = reader.path, reader.names
        self._id, self._label = reader.id, reader.label
        self._labels: list[np.ndarray] = []
        self._parts: list[np.ndarray] = []
        self._names: dict[str, int] = {}  # of the classes, in the order in which they came
        self.nodes = 0
        # integers where the table has integers: all ids like 7 in CSV (but not 007), or by type
        self.integer_ids = reader.is_csv or not is_text(reader.kinds[reader.id])

    def add(self, batch: Batch) -> pa.Array:
        """Take the next rows along; their ids."""
        ids = batch.filled_text(self._id)
        self.integer_ids = self.integer_ids and are_integers(ids)
        if self._label in self._columns:
            self._add_labels(batch.text(self._label, fractions=True))
            if "split" in self._columns:
                self._add_parts(pc.utf8_lower(batch.text("split")), ids)
        self.nodes += len(ids)
        return ids

    def _add_labels(self, text: pa.Array) -> None:
        values = pc.unique(text).drop_null()
        for name in values.to_pylist():
            self._names.setdefault(name, len(self._names))
        own = np.array([*(self._names[name] for name in values.to_pylist()), -1], np.int32)
        self._labels.append(own[_codes(text, values)])

    def _add_parts(self, words: pa.Array, ids: pa.Array) -> None:
        values = pc.unique(words).drop_null()
        for word in values.to_pylist():
            if word not in SPLIT_WORDS:
                node = ids[pc.index(words, pa.scalar(word, pa.large_string())).as_py()].as_py()
                raise DatasetError(
                    f"column 'split' of {self._path} has {word!r} for node {node!r}; it must be "
                    f"train, val, test or empty.{nearest_hint(word, SPLIT_WORDS)}"
                )
        own = np.array([*(SPLIT_WORDS[word] for word in values.to_pylist()), -1], np.int8)
        self._parts.append(own[_codes(words, values)])

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The class of every node, and the names of the classes, sorted."""
        names = sorted_classes(list(self._names))
        if not names:
            return np.full(self.nodes, UNKNOWN_LABEL), ()
        place = {name: i for i, name in enumerate(names)}
        codes = np.array([*(place[name] for name in self._names), UNKNOWN_LABEL])
        labels = codes[np.concatenate(self._labels)]
        check_classes(names, int((labels != UNKNOWN_LABEL).sum()), self._path, self._label)
        return labels, tuple(names)

    def split(
        self, labels: np.ndarray, seed: int, id_pieces: Callable[[], Iterable[pa.Array]]
    ) -> Split:
        """The split of the table, a stratified one if it has none; the ids are for errors."""
        if self._label not in self._columns:
            return Split(note="none: there is no label column")
        part = np.concatenate(self._parts) if self._parts else np.full(1, -1)
        if (part < 0).all():
            return stratified_split(labels, seed)
        unlabelled = labels == UNKNOWN_LABEL
        unknown = np.flatnonzero((part >= 0) & (part < 2) & unlabelled)
        if unknown.size:
            ids = pa.chunked_array(list(id_pieces())).take(pa.array(unknown[:3]))
            raise DatasetError(
                f"{self._path} has {unknown.size:,} nodes for train or val without a label (first: "
                f"{', '.join(map(repr, ids.to_pylist()))}); leave their split empty, or give them "
                "a label."
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


def _codes(text: pa.Array, values: pa.Array) -> np.ndarray:
    """The place of every text in ``values``, -1 for none."""
    return pc.fill_null(pc.index_in(text, value_set=values), -1).to_numpy()


def are_integers(ids: pa.Array) -> bool:
    """Whether all are written as 64-bit integers are: 7, but not 007."""
    if not pc.all(pc.match_substring_regex(ids, _PLAIN_INTEGER)).as_py():
        return False
    try:
        ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def sorted_classes(names: list[str]) -> list[str]:
    """By name, or by number if all are integers."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def check_classes(names: list[str], labelled: int, path: Path, column: str) -> None:
    """Refuse a measurement as label: more than 100 numbers with fractions, or thousands of them.

    A thousand whole numbers, or more, are a measurement where hardly any is repeated.
    """
    rare = labelled < 2 * len(names)
    if len(names) <= MOST_NUMBERS:
        return
    text = any(math.isnan(as_number(name)) for name in names)
    whole = all(_INTEGER.fullmatch(name) for name in names)
    if text or (whole and len(names) < MOST_WHOLE):
        if rare:
            warnings.warn(
                f"column {column!r} of {path} has {len(names):,} different values for {labelled:,} "
                "labelled nodes; each becomes a class, so give another column if it is a key.",
                HopliteWarning,
                stacklevel=4,
            )
    elif rare or not whole:
        raise DatasetError(
            f"column {column!r} of {path} has {len(names):,} different numbers for {labelled:,} "
            "labelled nodes, which is a measurement and no class; group them into classes, write "
            "them as text (such as c17) if they are classes, or rename the column."
        )


def read_edges(
    reader: TableReader,
    index: IdIndex,
    nodes_path: Path,
    note: Callable[[int], None] = lambda count: None,
) -> Iterator[Edges]:
    """Source, target and weight of the edges, batch by batch; ``note`` hears how many so far."""
    weighted = "weight" in reader.names
    for batch in reader.batches([*EDGE_COLUMNS[:2], *(["weight"] if weighted else [])]):
        ends = []
        for column in EDGE_COLUMNS[:2]:
            names = batch.filled_text(column)
            found = index.find(names)
            if found.min() < 0:
                row = int(np.flatnonzero(found < 0)[0])
                raise DatasetError(
                    f"column {column!r} of {reader.path} names {names[row].as_py()!r} in data row "
                    f"{batch.first + row + 1:,}, which is no id in {nodes_path.name}; "
                    "add that node or remove the edge."
                )
            ends.append(found)
        yield ends[0], ends[1], _weights(batch) if weighted else None
        note(batch.first + len(ends[0]))


def _weights(batch: Batch) -> np.ndarray:
    column = batch.table["weight"]
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is refused
        weights = _weight_numbers(column, batch.path).astype(np.float32)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DatasetError(
            f"column 'weight' of {batch.path} has {column[row].as_py()!r} in data row "
            f"{batch.first + row + 1:,}; give a finite number that is at least 0, or remove the "
            "edge."
        )
    return weights


def _weight_numbers(column: pa.ChunkedArray, path: Path) -> np.ndarray:
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
