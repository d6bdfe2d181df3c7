"""Your own graph: a folder with a node table and an edge table, each CSV or Parquet."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hoplite.datasets.table_features import FeatureColumns
from hoplite.datasets.table_labels import COLUMNS, codes_in
from hoplite.datasets.table_reader import (
    Batch,
    TableReader,
    as_number,
    as_text,
    check_columns,
    empty_rows,
    find_table,
    has_table,
    is_text,
    pc,
)
from hoplite.datasets.text_keys import FindsIds, IdIndex
from hoplite.errors import ConfigError, DatasetError, HopliteWarning, nearest_hint
from hoplite.graph import Graph, Split
from hoplite.io.formats import Format
from hoplite.io.splits import stratified_split
from hoplite.labels import UNKNOWN_LABEL, known_labels
from hoplite.preparation import CREATE, ERROR, Preparation, chosen_preparation

NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("source", "target", "weight")
SPLIT_WORDS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
UNKNOWN_SHOWN = 3  # nodes without a row that a message names
_PLAIN_INTEGER = r"^(0|-?[1-9][0-9]{0,18})$"

Edges = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]  # sources, targets, weights


def read_tables(folder: str | Path, *, seed: int = 0, prepare: Any = None, **options: Any) -> Graph:
    """Read ``nodes.csv|parquet`` and ``edges.csv|parquet`` from ``folder``.

    Nodes: ``id`` (text or integers, unique), optional ``label`` (text or numbers, empty where
    unknown), optional ``split`` (train, val, test, or empty); every other column is a feature:
    numbers, scaled; lists of them as ``column[0]``, ``column[1]``, ..., dates as days since
    1970-01-01, times and durations as seconds, text one-hot under the names ``column=value``, a
    missing text as zeros. Edges: ``source``, ``target`` (ids), optional ``weight``; direction is
    ignored (unless ``directed``) and further columns too (but ``type``). White space around a text
    does not count. Columns that are called otherwise are named: ``id="account", source="payer"``.

    ``options`` are those of :class:`hoplite.TableOptions`, such as ``scale="robust"``, or
    ``unknown_nodes="drop"`` for edges that name nodes which the node table lacks. ``prepare``
    is a trained model, a graph or a Preparation whose preparation is taken as it is, or a fitted
    transformer of scikit-learn, which gets the feature columns as an Arrow table. What was fitted
    is the graph's ``preparation``; of a transformer only its kind is kept.

    ``task`` says what the labels are: "classification", "regression" or "multilabel" (``a|b``);
    without it they are classes, and what looks like a measurement is a DatasetError that asks.
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
    return graph_of(node_table, edge_table, seed, name, prepare, options)


def read_preparation(prepare: Any, options: dict[str, Any]) -> Preparation:
    """As :func:`chosen_preparation`; a transformer of the user's own leaves only the options."""
    return chosen_preparation(None if hasattr(prepare, "transform") else prepare, options)


def own_edges(options: dict[str, Any]) -> dict[str, Any]:
    """``options`` where edges come in no table of the user's, so that no column can be named."""
    for name in EDGE_COLUMNS:
        if options.get(name) is not None:
            raise ConfigError(
                f"{name} is {options[name]!r}, which names a column of an edge table, but there is "
                "none; leave it out."
            )
    return options | {name: name for name in EDGE_COLUMNS}


def edge_type(prepare: Any, options: Mapping[str, Any]) -> str:
    """The column of the types of edges, "" if these are not asked for."""
    return options.get("type") or read_preparation(prepare, {}).options.type


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
    chosen = with_unused(chosen, edges)
    create_nodes(nodes, edges, chosen)
    columns = feature_columns(nodes, chosen)
    own, some = hasattr(prepare, "transform"), bool(columns or chosen.columns)
    features = FeatureColumns(nodes, columns, chosen) if some and not own else None
    batch = next(nodes.batches(), None)
    if batch is None:
        raise DatasetError(f"{nodes.path} has no rows; give one row per node.")
    rows = NodeRows(nodes, chosen.options.task)
    ids = rows.add(batch)
    if own:
        matrix, names = transformed(prepare, nodes, batch.table, columns)
        preparation = dataclasses.replace(chosen, transformer=type(prepare).__name__)
    elif features is None:
        preparation = dataclasses.replace(chosen, columns=())  # which columns edges have, at least
        matrix, names = np.empty((len(ids), 0)), ()
    else:
        matrix, names = features.smaller(batch.table, ids), features.names
        preparation = features.preparation
        features.warn_of_news()
    labels, class_names = rows.labels()
    index = IdIndex(lambda: [ids], nodes.path)
    typed, types = chosen.options.type, list[pa.Array]()
    pieces = list(read_edges(edges, index, nodes.path, chosen, types=types))
    pairs = [np.column_stack(piece[:2]) for piece in pieces]
    weights = [piece[2] for piece in pieces if piece[2] is not None]
    return Graph.from_edges(
        np.concatenate([np.empty((0, 2), np.int64), *pairs]),
        matrix,
        labels,
        weights=np.concatenate([np.empty(0, np.float32), *weights]) if weights else None,
        directed=chosen.options.directed,
        types=pa.chunked_array(types, pa.large_string()).to_pylist() if typed else None,
        split=rows.split(labels, seed, lambda: [ids]),
        class_names=class_names,
        feature_names=names,
        node_ids=tuple((ids.cast(pa.int64()) if rows.integer_ids else ids).to_pylist()),
        name=name,
        preparation=preparation,
    )


def prepared_matrix(
    path: Path, column: str, matrix: np.ndarray, prepare: Preparation
) -> tuple[Any, tuple[str, ...], Preparation]:
    """X, its names and the fitted preparation of an array (n, d), as of a ``column`` of lists.

    >>> matrix = np.array([[1.0], [3.0]])
    >>> scaled, names, _ = prepared_matrix(Path("a.npz"), "x", matrix, Preparation())
    >>> scaled.tolist(), names
    ([[-1.0], [1.0]], ('x[0]',))
    """
    ids = pa.array(map(str, range(len(matrix))), pa.large_string())
    flat = pa.array(matrix.astype(np.float64).ravel())
    lists = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    table = pa.table({"id": ids, column: lists})
    columns = FeatureColumns(TableReader(path, None, table), [column], prepare)
    return columns.smaller(table, ids), columns.names, columns.preparation


def transformed(
    transformer: Any, nodes: TableReader, table: pa.Table, columns: list[str]
) -> tuple[Any, tuple[str, ...]]:
    """X and its names as a user's own fitted ``transformer`` makes them of the feature columns."""
    path = nodes.path
    try:
        if nodes.is_csv:  # with types, not as text
            rows, table = table.num_rows, csv.read_csv(path)
            table = pa.concat_tables([table, empty_rows(table.schema, rows - table.num_rows)])
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
    named = {nodes.label: "label", nodes.id: "id"}
    check_columns(nodes.names, needed, special, nodes.path, "taken as a feature", named)
    named, weight = prepare.options.edge_columns, prepare.options.weight
    check_columns(edges.names, [*named], [weight], edges.path, "ignored", named)


def with_unused(prepare: Preparation, edges: TableReader) -> Preparation:
    """The same, unless it is fitted already, with the columns that no one asks ``edges`` for."""
    used = {*prepare.options.edge_columns, prepare.options.weight}
    left = tuple(name for name in edges.names if name not in used)
    return prepare if prepare.columns is not None else dataclasses.replace(prepare, unused=left)


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

    def __init__(self, reader: TableReader, task: str) -> None:
        self._path, self._columns = reader.path, reader.names
        self._id, self._label = reader.id, reader.label
        self._labels = COLUMNS[task](reader.path, reader.label)
        self._parts: list[np.ndarray] = []
        self.nodes = 0
        # integers where the table has integers: all ids like 7 in CSV (but not 007), or by type
        self.integer_ids = reader.is_csv or not is_text(reader.kinds[reader.id])

    def add(self, batch: Batch) -> pa.Array:
        """Take the next rows along; their ids."""
        ids = batch.filled_text(self._id)
        self.integer_ids = self.integer_ids and are_integers(ids)
        if self._label in self._columns:
            self._labels.add(batch)
            if "split" in self._columns:
                self._add_parts(pc.utf8_lower(batch.text("split")), ids)
        self.nodes += len(ids)
        return ids

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
        self._parts.append(own[codes_in(words, values)])

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The labels of all nodes, and the names of the classes, sorted."""
        if self._label not in self._columns or not self.nodes:
            return np.full(self.nodes, UNKNOWN_LABEL), ()
        return self._labels.labels()

    def split(
        self, labels: np.ndarray, seed: int, id_pieces: Callable[[], Iterable[pa.Array]]
    ) -> Split:
        """The split of the table, a stratified one if it has none; the ids are for errors."""
        if self._label not in self._columns:
            return Split(note="none: there is no label column")
        return self.own_split(labels, id_pieces) or stratified_split(labels, seed)

    def own_split(
        self, labels: np.ndarray, id_pieces: Callable[[], Iterable[pa.Array]]
    ) -> Split | None:
        """The split that the table has, None if it names no part."""
        part = np.concatenate(self._parts) if self._parts else np.full(1, -1)
        if (part < 0).all():
            return None
        unlabelled = ~known_labels(labels)
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


def are_integers(ids: pa.Array) -> bool:
    """Whether all are written as 64-bit integers are: 7, but not 007."""
    if not pc.all(pc.match_substring_regex(ids, _PLAIN_INTEGER)).as_py():
        return False
    try:
        ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def create_nodes(
    nodes: TableReader, edges: TableReader, prepare: Preparation, others: IdIndex | None = None
) -> None:
    """If asked for, give nodes that only edges name a row without values, behind all others.

    They are sorted by name. Their names are held in memory. ``others`` are nodes elsewhere.
    """
    if prepare.options.unknown_nodes != CREATE:
        return
    if others is None and next(nodes.batches([nodes.id]), None) is None:
        return
    index = IdIndex(
        lambda: (batch.filled_text(nodes.id) for batch in nodes.batches([nodes.id])), nodes.path
    )
    new: set[str] = set()
    for batch in edges.batches(prepare.options.ends):
        for column in prepare.options.ends:
            names = batch.filled_text(column)
            names = names.filter(pa.array(index.find(names) < 0))
            if others is not None:
                names = names.filter(pa.array(others.find(names) < 0))
            new.update(names.to_pylist())
    if new:
        warnings.warn(
            f"{edges.path} names nodes without a row in {nodes.path.name}; they are created "
            f"({len(new):,}), without a label and with all values missing.",
            HopliteWarning,
            stacklevel=3,
        )
        nodes.add_rows(pa.array(sorted(new), pa.large_string()))


def read_edges(
    reader: TableReader,
    index: FindsIds,
    nodes_path: Path,
    prepare: Preparation,
    note: Callable[[int], None] = lambda count: None,
    types: list[pa.Array] | None = None,
) -> Iterator[Edges]:
    """Source, target and weight of the edges, batch by batch; ``note`` hears how many so far.

    ``types`` gets their types, if these are asked for.
    Edges to unknown nodes are left out, or, once all of them have been counted, a DatasetError.
    """
    weight, typed = prepare.options.weight, prepare.options.type
    weighted, both = weight in reader.names, prepare.options.ends
    more = [*([weight] if weighted else []), *([typed] if typed else [])]
    error = prepare.options.unknown_nodes == ERROR
    rows = bad = first = 0
    shown: dict[str, None] = {}
    for batch in reader.batches([*both, *more]):
        names = [batch.filled_text(column) for column in both]
        ends = [index.find(one) for one in names]
        known = (ends[0] >= 0) & (ends[1] >= 0)
        if not known.all():
            first = first or rows + int(np.argmin(known)) + 1
            for one, end in zip(names, ends, strict=True):
                unknown = pc.unique(one.filter(pa.array(end < 0)))[: UNKNOWN_SHOWN + 1]
                shown |= dict.fromkeys(map(repr, unknown.to_pylist()))
        rows, bad = rows + len(known), bad + int(np.count_nonzero(~known))
        if not (bad and error):
            weights = _weights(batch, weight) if weighted else None
            if typed and types is not None:
                types.append(batch.filled_text(typed).filter(pa.array(known)))
            yield ends[0][known], ends[1][known], None if weights is None else weights[known]
            note(rows)
    if not bad:
        return
    said = (
        f"{bad:,} of {rows:,} edges in {reader.path} name a node that is no id in "
        f"{nodes_path.name} ({', '.join([*shown][:UNKNOWN_SHOWN])}"
        f"{', ...' if len(shown) > UNKNOWN_SHOWN else ''}; first in data row {first:,})"
    )
    if error:
        raise DatasetError(
            f"{said}; add these nodes, or let --unknown-nodes drop or create see to it."
        )
    warnings.warn(f"{said} and are dropped.", HopliteWarning, stacklevel=3)


def _weights(batch: Batch, name: str) -> np.ndarray:
    column = batch.table[name]
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite and is refused
        weights = _weight_numbers(column, name, batch.path).astype(np.float32)
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DatasetError(
            f"column {name!r} of {batch.path} has {column[row].as_py()!r} in data row "
            f"{batch.first + row + 1:,}; give a finite number that is at least 0, or remove the "
            "edge."
        )
    return weights


def _weight_numbers(column: pa.ChunkedArray, name: str, path: Path) -> np.ndarray:
    """The column in float64, NaN where there is no number."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.to_numpy().astype(np.float64)
    text = as_text(column, name, path)
    try:
        return text.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # which does not say in which row, so look one by one
        return np.array([as_number(word) for word in text.to_pylist()], np.float64)
