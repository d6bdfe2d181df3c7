"""Node and edge tables become a graph: in memory, or on disk within a memory limit.

DuckDB holds two tables on the way: ``cells``, a row per node (its ``rowid`` is the node's number),
and ``pairs``, the ends and weights of the edges by these numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shutil
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.csr import index_type
from hoplite.errors import ConfigError, DatasetError, HopliteWarning, nearest_hint
from hoplite.files import remove_leftovers, to_json
from hoplite.graph import Graph, Split
from hoplite.io.array_files import ROWS, growing_csr, growing_npy, write_ids
from hoplite.io.columns import (
    GAP_WORDS,
    Features,
    check_known,
    filled_sql,
    guess_cells,
    is_float,
    is_integer,
    is_number,
    is_text,
    known_cells,
    label_sql,
    number_sql,
    text_sql,
)
from hoplite.io.databases import open_tables
from hoplite.io.disk_graph import FILE, DiskGraph, is_disk_graph, write_rest
from hoplite.io.formats import Format
from hoplite.io.sources import (
    STEMS,
    Table,
    Workspace,
    frame_table,
    is_postgres,
    is_tables,
    table_files,
)
from hoplite.io.splits import stratified_split
from hoplite.labels import AUTO, NUMBERS, SETS, UNKNOWN_LABEL, as_sets, known_labels, label_sets
from hoplite.preparation import CREATE, ERROR, Preparation, TableOptions, chosen_preparation

EDGE_COLUMNS = ("source", "target", "weight")
SPLIT_WORDS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
# Distinct numbers that are taken as classes without a question: where there are two nodes for each,
# and where there are not.
MAX_WHOLE, MAX_FRACTIONS = (1000, 100), (20, 5)
NODE_BYTES = 64  # of memory per node during an import
MIN_ROOM = 100 * 10**6
DUCKDB_SHARE = 0.55  # of the memory of an import; NumPy's blocks take the rest
EDGES_AT_ONCE = 1 << 20
SCRATCH = ".scratch"
INTEGER_TEXT = re.compile("(0|-?[1-9][0-9]{0,18})")  # as integers are written: 7, but not 007
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def read_tables(source: Any, /, *, seed: int = 0, prepare: Any = None, **options: Any) -> Graph:
    """Read a node table and an edge table.

    Parameters
    ----------
    source : path or str
        A folder with ``nodes`` and ``edges``, each ``.csv``, ``.tsv``, ``.csv.gz``, ``.parquet``,
        ``.jsonl`` or ``.xlsx``; a DuckDB or SQLite file or an Excel workbook with tables of these
        names; or a Postgres server, ``postgresql://...``.
    seed : int, default 0
        Of the stratified split that labels without a split get.
    prepare : optional
        A trained model, a graph or a Preparation whose preparation is taken as it is; or a fitted
        transformer of scikit-learn, which gets the feature columns as an Arrow table.
    **options
        Those of :class:`hoplite.TableOptions`: ``nodes`` and ``edges`` name another file, another
        table or a query; ``id``, ``label``, ``source``, ... name columns; ``scale="robust"``.

    Notes
    -----
    Nodes have an ``id`` (text or integers, unique), an optional ``label`` (empty where unknown) and
    an optional ``split`` (train, val, test, or empty). Every other column is a feature: numbers,
    scaled; lists of them as ``column[0]``, ``column[1]``, ...; dates as days since 1970-01-01,
    times and durations as seconds; text one-hot under the names ``column=value``. Edges have
    ``source``, ``target`` and optionally ``weight``; direction is ignored unless ``directed``, and
    so are further columns but ``type``. White space around text does not count.

    ``task`` says what the labels are: "classification", "regression" or "multilabel" (``a|b``);
    without it they are classes, and what looks like a measurement is a DatasetError that asks.
    Classes are sorted by name, by number if all are integers. A test node without a label is left
    out of the split, with a warning. Without a feature column the graph has no features;
    :func:`hoplite.load` gives it structural ones.
    """
    chosen, required = read_preparation(prepare, options), options.get("label") is not None
    with scratch_folder() as scratch, Workspace(scratch) as work:
        nodes, edges = open_tables(work, source, chosen.options)
        name = "graph" if is_postgres(source) else Path(source).resolve().stem
        return graph_of(work, nodes, edges, chosen, seed, name, prepare, required=required)


@contextlib.contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder for what DuckDB does not hold in memory."""
    with tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True) as folder:
        yield folder


def tables_graph(
    nodes: Any,
    edges: Any,
    *,
    seed: int = 0,
    name: str = "graph",
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """The graph of two tables of pandas, Polars, Arrow or NumPy, as :func:`read_tables` reads them.

    >>> nodes = {"id": np.array(["a", "b"], object), "age": np.array([1, 2])}
    >>> edges = {"source": np.array(["a"], object), "target": np.array(["b"], object)}
    >>> tables_graph(nodes, edges).node_ids
    ('a', 'b')
    """
    chosen, required = read_preparation(prepare, options), options.get("label") is not None
    with scratch_folder() as scratch, Workspace(scratch) as work:
        own, links = (
            frame_table(work, frame, stem)
            for frame, stem in zip((nodes, edges), STEMS, strict=True)
        )
        return graph_of(work, own, links, chosen, seed, name, prepare, required=required)


def read_preparation(prepare: Any, options: Mapping[str, Any]) -> Preparation:
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
    work: Workspace,
    nodes: Table,
    edges: Table,
    chosen: Preparation,
    seed: int,
    name: str,
    prepare: Any = None,
    *,
    required: bool = False,
) -> Graph:
    """The graph of two tables, in memory; without a feature column it has no features yet."""
    check_tables(nodes, edges, chosen, required=required)
    chosen = with_unused(chosen, edges)
    table = NodeTable(work, nodes, edges, chosen, prepare)
    labels, class_names = table.labels()
    pairs = table.pairs(edges)
    types = pairs.pop("kind", None)
    matrix, names, preparation = table.features()
    return Graph.from_edges(
        np.column_stack([pairs["s"], pairs["t"]]),
        matrix,
        labels,
        weights=pairs.get("w"),
        directed=chosen.options.directed,
        types=None if types is None else types.tolist(),
        split=table.split(labels, seed),
        class_names=class_names,
        feature_names=names,
        node_ids=tuple(table.ids()),
        name=name,
        preparation=preparation,
    )


# --------------------------------------------------------------------------------- checks


def check_tables(
    nodes: Table, edges: Table, prepare: Preparation, *, required: bool = False
) -> None:
    """DatasetError unless both tables have the columns that they need."""
    options = prepare.options
    needed = [options.id, *([options.label] if required else [])]
    named = {options.label: "label", options.id: "id"}
    _check_columns(nodes, needed, (options.label, "split"), named)
    _check_columns(edges, [*options.edge_columns], [options.weight], options.edge_columns)


def _check_columns(
    table: Table,
    required: Sequence[str],
    optional: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Refuse missing columns, and 'Label' for 'label'."""
    names, label = table.names, table.label
    for name in names:
        meant = name.strip().lower()
        if meant != name and meant in (*required, *optional) and meant not in names:
            raise DatasetError(f"column {name!r} of {label} looks like {meant!r}; rename it.")
    missing = [column for column in required if column not in names]
    if missing:
        flags = " and ".join(f"--{options[column]}" for column in missing)
        raise DatasetError(
            f"{label} has no column{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing))} "
            f"(it starts with {', '.join(map(repr, names[:10]))}); add what is missing or name "
            f"another column ({flags})."
            f"{max((nearest_hint(column, names) for column in missing), key=len)}"
        )


def with_unused(prepare: Preparation, edges: Table) -> Preparation:
    """The same, unless it is fitted already, with the columns that no one asks ``edges`` for."""
    used = {*prepare.options.edge_columns, prepare.options.weight}
    left = tuple(name for name in edges.names if name not in used)
    options = dataclasses.replace(prepare.options, nodes="", edges="")  # a query is not kept
    unused = prepare.unused if prepare.columns is not None else left
    return dataclasses.replace(prepare, options=options, unused=unused)


def feature_columns(nodes: Table, prepare: Preparation) -> list[str]:
    """The columns that are features: all but the special ones, or those that were asked for."""
    options = prepare.options
    names = [name for name in nodes.names if name not in (options.id, options.label, "split")]
    if prepare.columns is None:  # another table may lack what is not used
        for name in (*options.drop, *options.only):
            if name not in (names if options.only else nodes.names):
                raise DatasetError(
                    f"{'only' if options.only else 'drop'} has {name!r}, which is no feature "
                    f"column of {nodes.label}; name its columns.{nearest_hint(name, names)}"
                )
    if options.only:
        return [name for name in names if name in options.only]
    return [name for name in names if name not in options.drop]


# ---------------------------------------------------------------------------------- nodes


class NodeTable:
    """The node table as ``cells`` in DuckDB, behind ``old`` nodes of a graph, if there are any.

    Parameters
    ----------
    work : Workspace
    nodes, edges : Table
        The edges are for nodes that only they name (``unknown_nodes="create"``).
    chosen : Preparation
        Fitted to the table here, unless it is fitted already.
    prepare : optional
        The user's own transformer.
    old : sequence, optional
        Ids of the nodes of a graph that this table adds nodes to.
    """

    def __init__(
        self,
        work: Workspace,
        nodes: Table,
        edges: Table,
        chosen: Preparation,
        prepare: Any = None,
        *,
        old: Sequence[Any] = (),
        task: str | None = None,
    ) -> None:
        self._work, self._table, self._chosen = work, nodes, chosen
        self._options, self._before = chosen.options, len(old)
        self._own = prepare if hasattr(prepare, "transform") else None
        self._task = task or chosen.options.task
        self._columns = feature_columns(nodes, chosen)
        with work.clear_errors(nodes.label):
            self._make_cells()
        self._make_ids(old)
        if chosen.options.unknown_nodes == CREATE and (self.count or old):
            self._create(edges)

    def _make_cells(self) -> None:
        work, table, options = self._work, self._table, self._options
        if self._own is not None:
            cells = {}
        elif self._chosen.columns is None:
            cells = guess_cells(work, table, self._columns)
        else:
            check_known(table, self._chosen.columns, self._columns)
            cells = known_cells(work, table, self._chosen.columns)
        self._cells = cells
        label = part = "CAST(NULL AS VARCHAR)"
        self._labelled = options.label in table.names
        if self._labelled:
            label = label_sql(table, options.label)
            if self._task == NUMBERS.task:
                label = _number(table, options.label)
            if "split" in table.names:
                part = f"lower({text_sql(table.column('split'))})"
        found = "".join(f", {one.sql} AS x{i}" for i, one in enumerate(cells.values()))
        work.rows(
            f"CREATE TABLE cells AS SELECT {id_sql(table, options.id)} AS id, {label} AS label, "
            f"{part} AS part{found} FROM {table.sql}"
        )
        self.count: int = work.one("SELECT count(*) FROM cells")[0]
        if not self.count and not self._before:
            raise DatasetError(f"{table.label} has no rows; give one row per node.")
        if work.one("SELECT count(*) FROM cells WHERE id IS NULL")[0]:
            check_ids(work, table, options.id)
        if self._labelled and self._task == NUMBERS.task:
            self._check_numbers()

    def _check_numbers(self) -> None:
        text = text_sql(self._table.column(self._options.label))
        filled = filled_sql(text, self._table)
        number = _number(self._table, self._options.label)
        bad = f"{filled} IS NOT NULL AND ({number} IS NULL OR isinf({number}))"
        if is_float(self._table.type(self._options.label)):
            bad = f"isinf({number})"
        refuse_row(
            self._work, self._table, self._options.label, bad,
            "for regression every label is a finite number, or empty where unknown",
        )  # fmt: skip

    def _make_ids(self, old: Sequence[Any]) -> None:
        """``ids``: the id and the number of every node, old and new."""
        work, table = self._work, self._table
        twice = work.rows(
            "SELECT id, min(rowid) AS a, max(rowid) AS b FROM cells GROUP BY id "
            "HAVING count(*) > 1 ORDER BY a LIMIT 1"
        )
        if twice:
            name, first, second = twice[0]
            raise DatasetError(
                f"{table.label} has the id {name!r} in data rows {first + 1} and {second + 1}; "
                "give each node one row."
            )
        insert_ids(work, old)
        kind = "INTEGER" if self._before + self.count < 1 << 30 else "BIGINT"
        known = work.rows(
            "SELECT id, cells.rowid FROM cells SEMI JOIN old_ids USING (id) ORDER BY 2 LIMIT 1"
        )
        if known:
            raise DatasetError(
                f"{table.label} has the id {known[0][0]!r} in data row {known[0][1] + 1:,}, which "
                "is a node already; leave it out there: new edges may name it all the same."
            )
        work.rows(
            f"CREATE VIEW ids AS SELECT id, (rowid + {self._before})::{kind} AS node FROM cells"
            + (" UNION ALL SELECT id, node FROM old_ids" if self._before else "")
        )
        integers = table.spelled or is_number(table.type(self._options.id))
        if integers and table.spelled:
            integers = work.one(
                f"SELECT count(*) = count_if(regexp_full_match(id, '{INTEGER_TEXT.pattern}') "
                "AND TRY_CAST(id AS BIGINT) IS NOT NULL) FROM cells"
            )[0]
        self.integer_ids = bool(integers)

    def _create(self, edges: Table) -> None:
        """Give nodes that only edges name a row without values, behind all others, by name."""
        work, before = self._work, self.count
        with work.clear_errors(edges.label):
            ends = " UNION ALL ".join(
                f"SELECT {id_sql(edges, end)} AS id FROM {edges.sql}" for end in self._options.ends
            )
            work.rows(
                f"CREATE TEMP TABLE new_ids AS SELECT DISTINCT id FROM ({ends}) "
                "ANTI JOIN ids USING (id) WHERE id IS NOT NULL ORDER BY id"
            )
        work.rows("INSERT INTO cells (id) SELECT id FROM new_ids ORDER BY id")
        (self.count,) = work.one("SELECT count(*) FROM cells")
        if self.count > before:
            _warn(
                f"{edges.label} names nodes without a row in {self._table.label}; they are created "
                f"({self.count - before:,}), without a label and with all values missing"
            )
            if self.integer_ids:
                self.integer_ids = work.one(
                    f"SELECT count(*) = count_if(regexp_full_match(id, '{INTEGER_TEXT.pattern}')) "
                    "FROM new_ids"
                )[0]

    def id_pieces(self) -> Iterator[list[str]]:
        """The ids as text, some rows at a time."""
        for start in range(0, self.count, ROWS):
            yield self._work.arrays(
                f"SELECT id FROM cells WHERE rowid >= {start} AND rowid < {start + ROWS}"
            )["id"].tolist()

    def ids(self) -> list[Any]:
        """The ids of all rows, integers where all of them are."""
        found = [name for piece in self.id_pieces() for name in piece]
        return [int(name) for name in found] if self.integer_ids else found

    def features(self) -> tuple[Any, tuple[str, ...], Preparation]:
        """X, the names of its columns, and the fitted preparation."""
        if self._own is not None:
            matrix, names = self._transformed(self._own)
            kind = type(self._own).__name__
            return matrix, names, dataclasses.replace(self._chosen, transformer=kind)
        if not self._cells:
            found = dataclasses.replace(self._chosen, columns=())
            return np.empty((self.count, 0), np.float32), (), found
        made = self.feature_columns()
        return made.matrix(), made.names, made.preparation

    def feature_columns(self) -> Features:
        """The features, to be read in blocks."""
        if not self._cells:
            raise DatasetError(
                f"{self._table.label} has no feature column; add at least one besides id, label "
                "and split."
            )
        return Features(self._work, self._table, self._cells, self.count, self._chosen)

    def _transformed(self, own: Any) -> tuple[Any, tuple[str, ...]]:
        """X and its names as a user's own fitted transformer makes them."""
        table, work = self._table, self._work
        columns = {name: table.column(name) for name in self._columns}
        if table.spelled:
            columns = {
                name: cells.sql for name, cells in guess_cells(work, table, self._columns).items()
            }
        chosen = ", ".join(f"{sql} AS x{i}" for i, sql in enumerate(columns.values()))
        frame = work.con.sql(f"SELECT {chosen} FROM {table.sql}").to_arrow_table()
        frame = frame.rename_columns(list(columns))
        try:
            matrix = own.transform(frame)
            names = tuple(map(str, own.get_feature_names_out()))
        except Exception as error:  # which may be anything of the user's own
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise DatasetError(
                f"prepare, a {type(own).__name__}, fails on {table.label}: {reason}; fit it on the "
                "same columns first."
            ) from error
        if self.count > len(frame):
            raise ConfigError("unknown_nodes is 'create', which needs a preparation of Hoplite's.")
        return matrix, names

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The labels of all nodes, and the names of the classes, sorted."""
        if not self._labelled or not self.count:
            return np.full(self.count, UNKNOWN_LABEL), ()
        if self._task == NUMBERS.task:
            found = self._work.arrays("SELECT label FROM cells")["label"]
            return np.asarray(np.ma.filled(found, np.nan), np.float64), ()
        texts, codes = self._coded("label")
        if self._task == SETS.task:
            names = sorted_classes(sorted({one for many in label_sets(texts) for one in many}))
            if names:
                return as_sets(texts, names)[codes], tuple(names)
        names = sorted_classes(texts)
        place = {name: i for i, name in enumerate(names)}
        labels = np.array([*(place[name] for name in texts), UNKNOWN_LABEL])[codes]
        self._question(names, int((labels != UNKNOWN_LABEL).sum()))
        return labels, tuple(names)

    def _coded(self, column: str) -> tuple[list[str], np.ndarray]:
        """The distinct texts of a column, and for every row the place of its own, -1 for none."""
        work, kind = self._work, self._work.name("classes")
        texts = work.rows(
            f"SELECT {column} FROM cells WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY 1"
        )
        if not texts:
            return [], np.full(self.count, -1)
        work.rows(
            f"CREATE TYPE {kind} AS ENUM (SELECT DISTINCT {column} FROM cells "
            f"WHERE {column} IS NOT NULL ORDER BY 1)"
        )
        codes = work.arrays(f"SELECT enum_code(CAST({column} AS {kind}))::BIGINT AS k FROM cells")
        return [text for (text,) in texts], np.ma.filled(codes["k"], -1)

    def _question(self, names: list[str], labelled: int) -> None:
        if self._task == AUTO and is_measurement(names, labelled):
            raise DatasetError(
                f"column {self._options.label!r} of {self._table.label} has {len(names):,} "
                f"different numbers for {labelled:,} labelled nodes; the task is regression if "
                "they are measurements, or classification if each is a class: say which (--task, "
                "task= in Python)."
            )

    def split(self, labels: np.ndarray, seed: int) -> Split:
        """The split of the table, a stratified one if it has none."""
        if not self._labelled:
            return Split(note="none: there is no label column")
        return self.own_split(labels) or stratified_split(labels, seed)

    def own_split(self, labels: np.ndarray) -> Split | None:
        """The split that the table has, None if it names no part."""
        label = self._table.label
        words, codes = self._coded("part")
        if not words:
            return None
        for word in words:
            if word not in SPLIT_WORDS:
                (node,) = self._work.one(
                    "SELECT id FROM cells WHERE part = ? ORDER BY rowid LIMIT 1", [word]
                )
                raise DatasetError(
                    f"column 'split' of {label} has {word!r} for node {node!r}; it must be train, "
                    f"val, test or empty.{nearest_hint(word, SPLIT_WORDS)}"
                )
        part = np.array([*(SPLIT_WORDS[word] for word in words), -1])[codes]
        unlabelled = ~known_labels(labels)
        unknown = np.flatnonzero((part >= 0) & (part < 2) & unlabelled)
        if unknown.size:
            rows = ", ".join(map(str, unknown[:3].tolist()))
            shown = self._work.rows(f"SELECT id FROM cells WHERE rowid IN ({rows}) ORDER BY rowid")
            raise DatasetError(
                f"{label} has {unknown.size:,} nodes for train or val without a label (first: "
                f"{', '.join(repr(name) for (name,) in shown)}); leave their split empty, or give "
                "them a label."
            )
        hidden = (part == 2) & unlabelled
        if hidden.any():
            _warn(
                f"{label} has no label for {hidden.sum():,} of {(part == 2).sum():,} test nodes; "
                "they are left out of the split, but still predicted"
            )
            part[hidden] = -1
        return Split(*(np.flatnonzero(part == i) for i in range(3)), note="from the split column")

    def join_edges(self, edges: Table) -> bool:
        """Make ``pairs`` of the edges, by the numbers of their ends; whether they have weights."""
        return join_edges(self._work, edges, self._options, self._table.label)

    def pairs(self, edges: Table) -> dict[str, Any]:
        """As :func:`read_pairs`."""
        return read_pairs(self._work, edges, self._options, self._table.label)


def _number(table: Table, name: str) -> str:
    """The cells of a column as numbers, in SQL."""
    column = table.column(name)
    if not is_text(table.type(name)):
        return f"TRY_CAST({column} AS DOUBLE)"
    text = text_sql(column)
    return number_sql(filled_sql(text, table), comma=table.comma)


def id_sql(table: Table, name: str) -> str:
    """The cells of a column as ids: text, or whole numbers without a decimal point."""
    column, kind = table.column(name), table.type(name)
    if is_float(kind):
        whole = f"{column} = round({column}) AND abs({column}) < 9007199254740992"
        return f"CASE WHEN {whole} THEN CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) END"
    if not (is_text(kind) or is_integer(kind) or kind in ("BOOLEAN", '"NULL"')):
        raise DatasetError(
            f"column {name!r} of {table.label} has type {kind}; it must hold text or integers."
        )
    return text_sql(column)


def check_ids(work: Workspace, table: Table, *names: str) -> None:
    """DatasetError if an id is missing, or a number with a fraction."""
    for name in names:
        column = table.column(name)
        if is_float(table.type(name)):
            bad = f"NOT isnan({column}) AND {id_sql(table, name)} IS NULL"
            refuse_row(work, table, name, bad, "it must hold text or integers")
        empty = f"{id_sql(table, name)} IS NULL"
        refuse_row(work, table, name, empty, "fill it or remove the row")


def refuse_row(work: Workspace, table: Table, name: str, bad: str, advice: str) -> None:
    """DatasetError for the first row of a table that is ``bad``, in SQL."""
    with work.clear_errors(table.label):
        if not work.one(f"SELECT count(*) FROM {table.sql} WHERE {bad}")[0]:
            return
        column = table.column(name)
        value, row = work.one(
            f"SELECT {column}, row FROM (SELECT *, row_number() OVER () AS row FROM {table.sql}) "
            f"WHERE {bad} ORDER BY row LIMIT 1"
        )
    empty = value is None or not str(value).strip()
    shown = "is empty" if empty else f"has {value!r}"
    raise DatasetError(f"column {name!r} of {table.label} {shown} in data row {row:,}; {advice}.")


# ---------------------------------------------------------------------------------- edges


def insert_ids(work: Workspace, ids: Sequence[Any]) -> None:
    """Make the table ``old_ids`` of the ids and numbers of nodes that are there already."""
    work.rows("CREATE TABLE old_ids (id VARCHAR, node INTEGER)")
    for start in range(0, len(ids), ROWS):
        piece = np.array([str(name) for name in ids[start : start + ROWS]], object)
        work.insert("old_ids", {"id": piece, "node": np.arange(start, start + len(piece))})


def read_pairs(work: Workspace, edges: Table, options: TableOptions, nodes: str) -> dict[str, Any]:
    """``s``, ``t`` and, where there are such, ``w`` and ``kind`` of the edges, sorted."""
    weighted = join_edges(work, edges, options, nodes)
    found = work.arrays("SELECT s, t, w, kind FROM pairs ORDER BY s, t, kind, w")
    left = {"w": not weighted, "kind": not options.type}
    return {name: np.ma.getdata(column) for name, column in found.items() if not left.get(name)}


def join_edges(work: Workspace, edges: Table, options: TableOptions, nodes: str) -> bool:
    """Make the table ``pairs`` of ``edges`` and ``ids``; whether the edges have weights.

    Its columns are ``s`` and ``t``, the numbers of the ends, ``w``, the weight, and ``kind``.
    """
    weighted, typed = options.weight in edges.names, options.type
    weight = f"TRY_CAST({_number(edges, options.weight)} AS FLOAT)" if weighted else "1::FLOAT"
    kind = id_sql(edges, typed) if typed else "NULL::VARCHAR"
    source, target = (id_sql(edges, end) for end in options.ends)
    with work.clear_errors(edges.label):
        work.rows(
            "CREATE TABLE pairs AS SELECT a.node AS s, b.node AS t, w, kind FROM "
            f"(SELECT {source} AS source, {target} AS target, {weight} AS w, {kind} AS kind "
            f"FROM {edges.sql}) AS e "
            "LEFT JOIN ids AS a ON a.id = e.source LEFT JOIN ids AS b ON b.id = e.target"
        )
        rows, bad, heavy, untyped = work.one(
            "SELECT count(*), count_if(s IS NULL OR t IS NULL), "
            "count_if(w IS NULL OR NOT isfinite(w) OR w < 0), count_if(kind IS NULL) FROM pairs"
        )
    if weighted and heavy:
        odd = f"{weight} IS NULL OR NOT isfinite({weight}) OR {weight} < 0"
        advice = "give a finite number that is at least 0, or remove the edge"
        refuse_row(work, edges, options.weight, odd, advice)
    if typed and untyped:
        check_ids(work, edges, typed)
    if bad:
        check_ids(work, edges, *options.ends)
        _refuse_unknown(work, edges, options, nodes, rows, bad)
        work.rows("DELETE FROM pairs WHERE s IS NULL OR t IS NULL")
    return weighted


def _refuse_unknown(
    work: Workspace, edges: Table, options: TableOptions, nodes: str, rows: int, bad: int
) -> None:
    source, target = (id_sql(edges, end) for end in options.ends)
    numbered = (
        f"(SELECT {source} AS a, {target} AS b, row_number() OVER () AS row FROM {edges.sql})"
    )
    ends = f"(SELECT a AS id, row FROM {numbered} UNION ALL SELECT b, row FROM {numbered})"
    found = work.rows(
        f"SELECT id, min(row) AS first FROM {ends} ANTI JOIN ids USING (id) GROUP BY id "
        "ORDER BY first, id LIMIT 4"
    )
    shown = ", ".join(repr(name) for name, _ in found[:3]) + (", ..." if len(found) > 3 else "")
    said = (
        f"{bad:,} of {rows:,} edges in {edges.label} name a node that is no id in {nodes} "
        f"({shown}; first in data row {found[0][1]:,})"
    )
    if options.unknown_nodes == ERROR:
        raise DatasetError(
            f"{said}; add these nodes, or let --unknown-nodes drop or create see to it."
        )
    _warn(f"{said} and are dropped")


def write_adjacency(work: Workspace, folder: Path, nodes: int, *, weighted: bool) -> None:
    """Write the symmetric adjacency of ``pairs`` as CSR files, with the numbers of ``from_edges``.

    F sums repeated edges, in the order of their weights; A = max(F, F^T) without its diagonal.
    """
    if weighted:
        both = "SELECT s AS r, t AS c, w FROM merged UNION ALL SELECT t, s, w FROM merged"
        work.rows("CREATE TABLE arcs AS SELECT s, t, w FROM pairs ORDER BY s, t, w")
        work.rows("CREATE TABLE merged (s BIGINT, t BIGINT, w FLOAT)")
        for start, stop, arcs in _row_batches(work, "arcs", "s", "t", nodes, weighted=True):
            rows = _csr(arcs, start, stop, nodes, "s", "t").tocoo()
            if not np.isfinite(rows.data).all():
                raise DatasetError(
                    "the weights of a repeated edge add up to infinity; make them smaller."
                )
            columns = {"s": rows.row.astype(np.int64) + start, "t": rows.col.astype(np.int64)}
            work.insert("merged", columns | {"w": rows.data})
        edges = f"SELECT r, c, max(w) AS w FROM ({both}) WHERE w > 0 GROUP BY r, c"
    else:
        edges = "SELECT DISTINCT r, c FROM (SELECT s AS r, t AS c FROM pairs UNION ALL SELECT t, s "
        edges += "FROM pairs)"
    work.rows(f"CREATE TABLE entries AS FROM ({edges}) WHERE r <> c ORDER BY r, c")
    with growing_csr(folder, index_type(nodes), np.float32) as append:
        for start, stop, entries in _row_batches(
            work, "entries", "r", "c", nodes, weighted=weighted
        ):
            append(_csr(entries, start, stop, nodes, "r", "c"))


def _row_batches(
    work: Workspace, table: str, row: str, column: str, nodes: int, *, weighted: bool
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """All rows of a matrix whose entries are sorted in a table, in ranges with their entries."""
    (total,) = work.one(f"SELECT count(*) FROM {table}")
    first, held = 0, {name: np.empty(0, np.int32) for name in (row, column)}
    held |= {"w": np.empty(0, np.float32)} if weighted else {}
    for start in range(0, total, EDGES_AT_ONCE):
        read = work.arrays(
            f"SELECT {', '.join(held)} FROM {table} "
            f"WHERE rowid >= {start} AND rowid < {start + EDGES_AT_ONCE}"
        )
        held = {k: np.concatenate([held[k], np.ma.getdata(read[k])]) for k in held}
        last = int(held[row][-1])  # its row may go on
        cut = int(np.searchsorted(held[row], last))
        if last > first:
            yield first, last, {name: values[:cut] for name, values in held.items()}
            first, held = last, {name: values[cut:] for name, values in held.items()}
    yield first, nodes, held


def _csr(
    entries: dict[str, np.ndarray], start: int, stop: int, nodes: int, row: str, column: str
) -> sp.csr_array:
    places = (entries[row] - start, entries[column])
    values = entries.get("w", np.ones(len(entries[row]), np.float32))
    return sp.csr_array(sp.coo_array((values, places), shape=(stop - start, nodes)).tocsr())


# --------------------------------------------------------------------------------- labels


def sorted_classes(names: list[str]) -> list[str]:
    """By name, or by number if all are integers."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def as_number(text: str | None) -> float:
    """The number that a text spells, NaN if it spells none.

    >>> as_number("2.5"), as_number("2,5")
    (2.5, nan)
    """
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def is_measurement(names: list[str], labelled: int) -> bool:
    """Whether the distinct labels of so many nodes look like numbers to learn, and no classes.

    That are more than 1000 whole numbers, or more than 20 with fractions; where there are not two
    nodes for each, more than 100, or 5. Words for a gap, such as NA, do not count.

    >>> is_measurement(["0.5", "1.0", "1.5"], 30), is_measurement([f"{i}.5" for i in range(30)], 30)
    (False, True)
    """
    names = [name for name in names if name not in GAP_WORDS]
    whole = all(_INTEGER.fullmatch(name) for name in names)
    most = (MAX_WHOLE if whole else MAX_FRACTIONS)[labelled < 2 * len(names)]
    return len(names) > most and not any(math.isnan(as_number(name)) for name in names)


# -------------------------------------------------------------------------------- imports


def import_tables(
    source: Any,
    out: str | Path,
    /,
    *,
    memory: int,
    seed: int = 0,
    progress: Callable[[str, float], None] | None = None,
    prepare: Any = None,
    **options: Any,
) -> None:
    """Read tables as :func:`read_tables` does, to the bit, into a graph on disk in ``out``.

    Parameters
    ----------
    source : path or str
        As in :func:`read_tables`.
    out : path
        A folder. An import of the same, unchanged tables that is there already is kept; one that
        was stopped starts again.
    memory : int
        Bytes that the import may take beyond what the process holds already.
    seed, prepare, **options
        As in :func:`read_tables`.
    progress : callable, optional
        Called with what is done and the share of the work behind it.
    """
    out, note = Path(out), progress or (lambda what, share: None)
    chosen = chosen_preparation(prepare, options)
    if chosen.options.directed or chosen.options.type:
        raise ConfigError(
            "directed and type keep directions and types of edges, which graphs on disk and hop "
            "stores do not know; train on tables in memory, or leave them out."
        )
    stamp = [*_stamp(source), ["seed", seed]]
    stamp.append(["preparation", zlib.crc32(to_json(chosen).encode())])
    if is_disk_graph(out):
        with DiskGraph(out) as found:
            # what a store of it was fitted with, and now asks for, is what the import found
            fitted = chosen.columns is not None and found.preparation == chosen
            if found.tables == stamp or (fitted and found.tables[:-1] == stamp[:-1]):
                return
        (out / FILE).unlink()
    if memory < MIN_ROOM:
        raise _too_little(source, memory, MIN_ROOM)
    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    scratch = out / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        with Workspace(scratch, int(DUCKDB_SHARE * memory)) as work:
            note(f"importing {source}: nodes", 0.0)
            nodes, edges = open_tables(work, source, chosen.options)
            check_tables(nodes, edges, chosen, required=options.get("label") is not None)
            work.keep_on_disk(len(nodes.names))
            table = NodeTable(work, nodes, edges, with_unused(chosen, edges))
            if (need := NODE_BYTES * table.count + MIN_ROOM) > memory:
                raise _too_little(source, memory, need)
            labels, class_names = table.labels()
            split = table.split(labels, seed)
            features = table.feature_columns()
            note(f"importing {source}: features of {table.count:,} nodes", 0.3)
            with growing_npy(out / "features.npy", np.float32, (len(features.names),)) as append:
                for block in features.blocks():
                    append(block)
            ids = (name for piece in table.id_pieces() for name in piece)
            write_ids(out, ids, integers=table.integer_ids)
            note(f"importing {source}: edges", 0.5)
            weighted = table.join_edges(edges)
            note(f"importing {source}: sorting edges", 0.75)
            write_adjacency(work, out, table.count, weighted=weighted)
            note(f"importing {source}: checksums", 0.95)
        name = "graph" if is_postgres(source) else Path(source).resolve().stem
        write_rest(
            out,
            labels,
            split,
            name=name,
            class_names=class_names,
            feature_names=tuple(features.names),
            integer_ids=table.integer_ids,
            tables=stamp,
            preparation=features.preparation,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _too_little(source: Any, memory: int, need: int) -> ConfigError:
    return ConfigError(
        f"memory leaves {memory / 1e6:.0f} MB for the import of {source} but it needs "
        f"{need / 1e6:.0f} MB; give --memory that much more."
    )


def _stamp(source: Any) -> list[list[Any]]:
    """By which unchanged files are known again; a server is asked anew every time."""
    if is_postgres(source):
        return [["server", time.time_ns()]]
    path = Path(source)
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    tables = {file for stem in STEMS for file in table_files(path, stem)} or set(files)
    found = [file for file in files if file in tables and file.is_file()]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in found]


def _warn(sentence: str) -> None:
    warnings.warn(f"{sentence}.", HopliteWarning, stacklevel=3)


TABLES = Format(
    "nodes.csv and edges.csv (or .tsv, .csv.gz, .parquet, .jsonl, .xlsx), or a database",
    is_tables,
    lambda path, seed, _, **preparing: read_tables(path, seed=seed, **preparing),
    is_folder=True,
    columns=True,
)
