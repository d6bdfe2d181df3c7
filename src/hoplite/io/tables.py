"""Node and edge tables become a graph: in memory, or on disk within a memory limit.

DuckDB holds two tables on the way: ``cells``, a row per node (its ``rowid`` is the node's number),
and ``pairs``, the ends and weights of the edges by these numbers.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import os
import re
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hoplite.csr import index_type
from hoplite.errors import (
    ConfigError,
    DatasetError,
    by_interface,
    first_line,
    nearest_hint,
    option_name,
    plural,
    require_extra,
    some_of,
    warn,
)
from hoplite.files import remove_leftovers, to_json
from hoplite.formatting import listing
from hoplite.graph import Graph, Split
from hoplite.io.array_files import growing_npy, write_npy
from hoplite.io.columns import (
    GAP_WORDS,
    Features,
    check_trained_columns,
    comma_sql,
    filled_sql,
    guess_cells,
    is_float,
    is_integer,
    is_number,
    is_text,
    label_sql,
    number_sql,
    spelled_cells,
    spellings,
    text_sql,
    trained_cells,
    whole_sql,
)
from hoplite.io.disk_graph import FILE, DiskGraph, is_disk_graph, write_description
from hoplite.io.node_files import ROWS, write_nodes
from hoplite.io.sources import (
    STEMS,
    Table,
    Workspace,
    is_postgres,
    is_query,
    open_tables,
    table_files,
)
from hoplite.io.splits import stratified_split
from hoplite.labels import (
    AUTO,
    JOINT,
    NUMBERS,
    SETS,
    UNKNOWN_LABEL,
    as_sets,
    is_numeral,
    known_labels,
    label_sets,
)
from hoplite.preparation import CREATE, ERROR, Preparation, TableOptions, chosen_preparation

EDGE_COLUMNS = ("source", "target", "weight")
SPLIT_WORDS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
# Maximum number of distinct numbers that are classes by default: with at least two nodes for each,
# and with fewer.
MAX_WHOLE, MAX_FRACTIONS = 1000, 20  # different numbers that may be classes
MAX_RARE_WHOLE, MAX_RARE_FRACTIONS = 100, 5  # the same with fewer than two nodes per number
NODE_BYTES = 64  # memory per node during an import
MIN_ROOM = 100 * 10**6
DUCKDB_SHARE = 0.55  # share of an import's memory; NumPy's blocks take the rest
EDGES_AT_ONCE = 1 << 20
SCRATCH = ".scratch"
SEPARATORS = (JOINT, ";")  # separators of several labels in one cell
SIMILAR = 0.75  # difflib's ratio from which on a column is probably the label, misspelled
FIRST_EDGES = 1000  # edges whose ends are looked up to find the column of the ids
INTEGER_TEXT = re.compile("(0|-?[1-9][0-9]{0,18})")  # an integer as it is written: 7, but not 007
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def read_tables(
    source: Any, /, *, seed: int | None = None, prepare: Any = None, **options: Any
) -> Graph:
    r"""Read a node table and an edge table.

    Parameters
    ----------
    source : path or str
        A folder with the tables ``nodes`` and ``edges``, each ``.csv``, ``.tsv``, ``.csv.gz``,
        ``.parquet``, ``.jsonl`` or ``.xlsx``; a DuckDB file, a SQLite file or an Excel workbook
        with tables of these names; or a Postgres server, ``postgresql://...``.
    seed : int, optional
        Seed of a stratified 60/20/20 split, for tables without a split column. Without it, all
        labelled nodes are training nodes.
    prepare : TrainedModel, Graph, Preparation or scikit-learn transformer, optional
        Prepare columns as in its training. A fitted transformer of scikit-learn gets the feature
        columns as an Arrow table.
    **options
        Options of tables (:class:`hoplite.TableOptions`): ``nodes`` and ``edges`` name other files,
        other tables or queries; ``id``, ``label``, ``source``, ... name columns; others are
        ``scale="robust"`` and the like.

    Returns
    -------
    Graph
        Without features if the table has no feature column; :func:`hoplite.load` adds structural
        ones.

    Notes
    -----
    The node table has an ``id`` (text or integers, unique), an optional ``label`` (empty where
    unknown) and an optional ``split`` (train, val, test or empty). Every other column becomes
    features: numbers are scaled; lists of numbers become ``column[0]``, ``column[1]``, ...; dates
    become days since 1970-01-01, times and durations seconds; text becomes one-hot columns with the
    names ``column=value``. Text of several words becomes TF-IDF, whose terms come from the training
    nodes (:class:`hoplite.preparation.WordsColumn`), and X is then sparse.

    The edge table has ``source``, ``target`` and an optional ``weight``. Direction is ignored
    without ``directed``, and other columns are ignored except that of ``type``. White space around
    text is removed.

    ``task`` says what the labels are: "classification", "regression" or "multilabel" (``a|b``).
    Without it they are classes, and labels that look like measurements raise a DatasetError.
    Classes are sorted by name, or as numbers if all are integers. A test node without a label is
    left out of the split, with a warning.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "nodes.csv").write_text("id,label,age\na,x,31\nb,y,45\nc,x,27\n")
    ...     _ = Path(folder, "edges.csv").write_text("source,target\na,b\nb,c\n")
    ...     read_tables(folder)
    Graph(nodes=3, edges=2, features=1, classes=2)
    """
    reading = Reading.of(prepare, options)
    with Workspace() as work:
        nodes, edges = open_tables(work, source, reading.options)
        return graph_of(work, nodes, edges, reading, seed, _name(source))


def _name(source: Any) -> str:
    """The default name of the graph of a folder, file or server."""
    return "graph" if is_postgres(source) else Path(source).resolve().stem


@dataclasses.dataclass(frozen=True)
class Reading:
    """How to read tables, from a user's ``prepare`` and options of tables.

    Attributes
    ----------
    preparation : Preparation
        Fitted already if it is a model's.
    transformer : optional
        The user's own, which makes the features instead.
    needs_label : bool
        Whether a label column was asked for by its name, so that it must be there.
    as_trained : bool
        Whether ``unknown_nodes`` comes from the training of a model, not from this call.
    """

    preparation: Preparation
    transformer: Any = None
    needs_label: bool = False
    as_trained: bool = False

    @classmethod
    def of(cls, prepare: Any, options: Mapping[str, Any]) -> Reading:
        transformer = prepare if hasattr(prepare, "transform") else None
        chosen = chosen_preparation(None if transformer is not None else prepare, options)
        as_trained = chosen.columns is not None and options.get("unknown_nodes") is None
        return cls(chosen, transformer, options.get("label") is not None, as_trained)

    @property
    def options(self) -> TableOptions:
        return self.preparation.options


def graph_of(
    work: Workspace, nodes: Table, edges: Table, reading: Reading, seed: int | None, name: str
) -> Graph:
    """The graph of two tables, in memory; without a feature column it has no features yet."""
    table = NodeTable(work, nodes, edges, reading)
    labels, class_names = table.labels()
    rows = EdgeTable(work, edges, reading.options, nodes.label, reading.as_trained)
    pairs = rows.pairs()
    if not len(pairs["s"]):
        warn(
            f"no row of {edges.label} is an edge between known nodes, so the graph has no edges "
            "and nodes are predicted from their own columns alone."
        )
    split = table.split(labels, seed)
    matrix, names, preparation = table.features(split)
    return Graph.from_edges(
        np.column_stack([pairs["s"], pairs["t"]]),
        matrix,
        labels,
        weights=pairs.get("w"),
        directed=reading.options.directed,
        types=pairs["type"].tolist() if "type" in pairs else None,
        split=split,
        class_names=class_names,
        feature_names=names,
        node_ids=tuple(table.ids()),
        name=name,
        preparation=preparation,
    )


# --------------------------------------------------------------------------------- checks


def _check_tables(work: Workspace, nodes: Table, edges: Table, reading: Reading) -> None:
    """DatasetError unless both tables have the required columns."""
    options = reading.options
    if options.id not in nodes.names:
        _refuse_other_id(work, nodes, edges, options)
    needed = [options.id, *([options.label] if reading.needs_label else [])]
    named = {options.label: "label", options.id: "id"}
    if options.label not in nodes.names and reading.preparation.columns is None:
        _refuse_misspelled(nodes, options.label)
    _check_columns(nodes, needed, (options.label, "split"), named)
    _check_columns(edges, [*options.edge_columns], [options.weight], options.edge_columns)


def _refuse_other_id(work: Workspace, nodes: Table, edges: Table, options: TableOptions) -> None:
    """DatasetError if a column has the ends of the first edges, and so must be the id."""
    if options.source not in edges.names:
        return
    source = edges.columns[options.source]
    with work.clear_errors(edges.label):
        work.rows(
            f"CREATE OR REPLACE TEMP TABLE ends AS SELECT CAST({source} AS VARCHAR) AS s "
            f"FROM {edges.sql} LIMIT {FIRST_EDGES}"
        )
    for name, column in nodes.columns.items():
        ids = f"SELECT CAST({column} AS VARCHAR) FROM {nodes.sql} WHERE {column} IS NOT NULL"
        with work.clear_errors(nodes.label):
            matches, rows = work.row(f"SELECT count(*) FILTER (s IN ({ids})), count(*) FROM ends")
        if rows and matches == rows:
            raise DatasetError(
                f"{nodes.label} has no column {options.id!r}; the ids in the edges are in its "
                f"column {name!r}; pass {option_name('id', name)}."
            )


def _refuse_misspelled(table: Table, label: str) -> None:
    """DatasetError if a column's name resembles ``label``; it would be a feature."""
    others = [name for name in table.names if name.lower() != label]
    for name in difflib.get_close_matches(label, others, n=1, cutoff=SIMILAR):
        raise DatasetError(
            f"{table.label} has no column {label!r}; pass {option_name('label', name)}. Did you "
            f"mean {name!r}?"
        )


def _check_columns(
    table: Table, required: Sequence[str], optional: Sequence[str], options: Mapping[str, str]
) -> None:
    """Refuse missing columns, and 'Label' for 'label'; ``options`` name some of the columns."""
    for name in table.names:
        meant = name.lower()
        if meant != name and meant in (*required, *optional) and meant not in table.names:
            option = f" or pass {option_name(options[meant], name)}" if meant in options else ""
            raise DatasetError(
                f"column {name!r} of {table.label} looks like {meant!r}; rename it{option}."
            )
    require_columns(table, required, options)


def require_columns(
    table: Table, names: Sequence[str], options: Mapping[str, str] = MappingProxyType({})
) -> None:
    """DatasetError unless the table has the columns ``names``; ``options`` name some of them."""
    others = [name for name in table.names if name not in names]
    missing = [name for name in names if name not in table.names]
    if missing:
        named = [option_name(options[name], "COLUMN") for name in missing if name in options]
        advice = f"Add it, or pass {listing(named)}" if named else "Add it"
        raise DatasetError(
            f"{table.label} has no column {listing([*map(repr, missing)], 'or')} (it has "
            f"{some_of(map(repr, table.names), 10)}). {advice}.{nearest_hint(missing[0], others)}"
        )


def with_unused(prepare: Preparation, edges: Table) -> Preparation:
    """The preparation with the unused columns of ``edges``, unless it is fitted already."""
    used = {*prepare.options.edge_columns, prepare.options.weight}
    left = tuple(name for name in edges.names if name not in used)
    options = dataclasses.replace(prepare.options, nodes="", edges="")  # a query is not kept
    unused = prepare.unused if prepare.columns is not None else left
    return dataclasses.replace(prepare, options=options, unused=unused)


def feature_columns(nodes: Table, prepare: Preparation) -> list[str]:
    """The columns that are features: all but the special ones, or those that were asked for."""
    options = prepare.options
    names = [name for name in nodes.names if name not in (options.id, options.label, "split")]
    chosen = {*(options.only or names)} - {*options.drop}
    features = [name for name in names if name in chosen]
    if prepare.columns is not None:  # a table for a trained model may lack unused columns
        return features
    for option, allowed in (("drop", nodes.names), ("only", names), ("text", features)):
        for name in getattr(options, option):
            if name not in allowed:
                raise DatasetError(
                    f"{option_name(option)} contains {name!r}, which is not a "
                    f"{'feature ' * (option != 'drop')}column of {nodes.label}; choose from "
                    f"{some_of(names if option == 'drop' else allowed, 20)}."
                    f"{nearest_hint(name, allowed)}"
                )
    return features


# ---------------------------------------------------------------------------------- nodes


class NodeTable:
    """The node table as ``cells`` in DuckDB, behind ``old`` nodes of a graph, if there are any.

    Parameters
    ----------
    work : Workspace
    nodes, edges : Table
        The edges are for nodes that only they name (``unknown_nodes="create"``).
    reading : Reading
        Its preparation is fitted to the table, unless it is fitted already.
    old : sequence, optional
        Ids of the nodes of a graph that this table adds nodes to.
    task : str, optional
        What the labels are, if not as the options say.
    """

    def __init__(
        self,
        work: Workspace,
        nodes: Table,
        edges: Table,
        reading: Reading,
        *,
        old: Sequence[Any] = (),
        task: str | None = None,
    ) -> None:
        _check_tables(work, nodes, edges, reading)
        self._work, self._table, self._transformer = work, nodes, reading.transformer
        self._options, self._before = reading.options, len(old)
        self._chosen = with_unused(reading.preparation, edges)
        self._task = task or self._options.task
        self._columns = feature_columns(nodes, self._chosen)
        with work.clear_errors(nodes.label):
            self._make_cells()
        self._make_ids(old)
        if self._options.unknown_nodes == CREATE and (self.count or old):
            self._create(edges)

    def _make_cells(self) -> None:
        work, table, options = self._work, self._table, self._options
        if self._transformer is not None:
            cells = {}
        elif self._chosen.columns is None:
            cells = guess_cells(work, table, self._columns, options.text)
        else:
            check_trained_columns(table, self._chosen.columns, self._columns)
            cells = trained_cells(work, table, self._chosen.columns)
        self._cells = cells
        label = part = "CAST(NULL AS VARCHAR)"
        self._labelled = options.label in table.names
        if self._labelled:
            label = filled_sql(label_sql(table, options.label), table)
            if self._task == NUMBERS.task:
                label = _number(work, table, options.label)
        if "split" in table.names:
            part = f"lower({text_sql(table.columns['split'])})"
        columns = "".join(f", {column.sql} AS x{i}" for i, column in enumerate(cells.values()))
        work.rows(
            f"CREATE TABLE cells AS SELECT {id_sql(table, options.id)} AS id, {label} AS label, "
            f"{part} AS part{columns} FROM {table.sql}"
        )
        self.count: int = work.row("SELECT count(*) FROM cells")[0]
        if not self.count and not self._before:
            raise DatasetError(f"{table.label} has no rows; it must have one row per node.")
        if work.row("SELECT count(*) FROM cells WHERE id IS NULL")[0]:
            check_ids(work, table, options.id)
        if self._labelled and self._task == NUMBERS.task:
            self._check_numbers()

    def _check_numbers(self) -> None:
        text = text_sql(self._table.columns[self._options.label])
        filled = filled_sql(text, self._table)
        number = _number(self._work, self._table, self._options.label)
        bad = f"{filled} IS NOT NULL AND ({number} IS NULL OR isinf({number}))"
        refuse_row(
            self._work, self._table, self._options.label, bad,
            "for regression, labels must be finite numbers, or all amounts with the same sign such "
            "as $, or empty",
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
                "each node must have exactly one row."
            )
        insert_ids(work, old)
        type_ = "INTEGER" if self._before + self.count < 1 << 30 else "BIGINT"
        existing = work.rows(
            "SELECT id, cells.rowid FROM cells SEMI JOIN old_ids USING (id) ORDER BY 2 LIMIT 1"
        )
        if existing:
            name, row = existing[0]
            raise DatasetError(
                f"{table.label} has the id {name!r} in data row {row + 1:,}, which is already a "
                "node; remove that row (new edges may still refer to it)."
            )
        work.rows(
            f"CREATE VIEW ids AS SELECT id, (rowid + {self._before})::{type_} AS node FROM cells"
            + (" UNION ALL SELECT id, node FROM old_ids" if self._before else "")
        )

    @cached_property
    def integer_ids(self) -> bool:
        """Whether all ids are integers that fit 64 bits, and not text that looks alike."""
        if not self._table.spelled and not is_number(self._table.types[self._options.id]):
            return False
        whole = f"regexp_full_match(id, '{INTEGER_TEXT.pattern}')"
        whole += " AND TRY_CAST(id AS BIGINT) IS NOT NULL"
        return bool(self._work.row(f"SELECT bool_and({whole}) FROM cells")[0])

    def _create(self, edges: Table) -> None:
        """Append an empty row for each node that only edges refer to, sorted by name."""
        work, before = self._work, self.count
        with work.clear_errors(edges.label):
            ends = " UNION ALL ".join(
                f"SELECT {id_sql(edges, end)} AS id FROM {edges.sql}" for end in self._options.ends
            )
            work.rows(
                f"CREATE OR REPLACE TEMP TABLE new_ids AS SELECT DISTINCT id FROM ({ends}) "
                "ANTI JOIN ids USING (id) WHERE id IS NOT NULL ORDER BY id"
            )
        work.rows("INSERT INTO cells (id) SELECT id FROM new_ids ORDER BY id")
        (self.count,) = work.row("SELECT count(*) FROM cells")
        if self.count > before:
            warn(
                f"{edges.label} refers to nodes without a row in {self._table.label}; "
                f"{plural(self.count - before, 'node')} without a label and without values will be "
                "added."
            )

    def pieces(self, column: str) -> Iterator[Any]:
        """The texts of a column of ``cells``, None for gaps, some rows at a time."""
        for start in range(0, self.count, ROWS):
            yield from self._work.texts(
                f"SELECT {column} AS v FROM cells WHERE rowid >= {start} AND rowid < {start + ROWS}"
            )["v"].tolist()

    def ids(self) -> list[Any]:
        """The ids of all rows, integers where all of them are."""
        return [*map(int, self.pieces("id"))] if self.integer_ids else [*self.pieces("id")]

    def features(self, split: Split) -> tuple[Any, tuple[str, ...], Preparation]:
        """X, the names of its columns, and the preparation, fitted on what the split allows."""
        if self._transformer is not None:
            matrix, names = self._transformed(self._transformer)
            preparation = dataclasses.replace(
                self._chosen, transformer=type(self._transformer).__name__
            )
            return matrix, names, preparation
        if not self._cells:
            preparation = dataclasses.replace(self._chosen, columns=())
            return np.empty((self.count, 0), np.float32), (), preparation
        features = self.fitted_features(split)
        return features.matrix(), features.names, features.preparation

    def fitted_features(self, split: Split, *, dense: bool = False) -> Features:
        """The features, to be read in blocks; the terms of texts are those of training nodes."""
        if not self._cells:
            raise DatasetError(
                f"{self._table.label} has no feature column; add at least one in addition to id, "
                "label and split."
            )
        train = np.sort(split.train)
        return Features(
            self._work, self._table, self._cells, self.count, self._chosen, train, dense=dense
        )

    def _transformed(self, transformer: Any) -> tuple[Any, tuple[str, ...]]:
        """X and its names as the user's fitted transformer makes them."""
        require_extra("databases", "a transformer of your own", "pyarrow")
        table, work = self._table, self._work
        columns = {name: table.columns[name] for name in self._columns}
        if table.spelled:
            columns = {
                name: cells.sql for name, cells in guess_cells(work, table, self._columns).items()
            }
        chosen = ", ".join(f"{sql} AS x{i}" for i, sql in enumerate(columns.values()))
        frame = work.con.sql(f"SELECT {chosen} FROM {table.sql}").to_arrow_table()
        frame = frame.rename_columns(list(columns))
        try:
            matrix = transformer.transform(frame)
            names = tuple(map(str, transformer.get_feature_names_out()))
        except Exception as error:  # a user's transformer may raise any error
            raise DatasetError(
                f"prepare, a {type(transformer).__name__}, fails on {table.label}: "
                f"{first_line(error)}; fit it on the same columns first."
            ) from error
        if self.count > len(frame):
            raise ConfigError(
                "is 'create', which requires Hoplite's own preparation; leave out prepare.",
                "unknown_nodes",
            )
        return matrix, names

    def labels(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """The labels of all nodes, and the names of the classes, sorted."""
        if not self._labelled or not self.count:
            return np.full(self.count, UNKNOWN_LABEL), ()
        if self._task == NUMBERS.task:
            numbers = self._work.arrays("SELECT label FROM cells")["label"]
            return np.asarray(np.ma.filled(numbers, np.nan), np.float64), ()
        texts, codes = self._coded("label")
        if self._task == SETS.task:
            names = sorted_classes(sorted(set(itertools.chain.from_iterable(label_sets(texts)))))
            self._warn_of_separators(texts)
            if names:
                return as_sets(texts, names)[codes], tuple(names)
        names = sorted_classes(texts)
        place = {name: i for i, name in enumerate(names)}
        labels = np.array([*(place[name] for name in texts), UNKNOWN_LABEL])[codes]
        self._question(names, int((labels != UNKNOWN_LABEL).sum()))
        return labels, tuple(names)

    def _coded(self, column: str) -> tuple[list[str], np.ndarray]:
        """The distinct texts of a column, and the index of each row's text, -1 for gaps."""
        rows = self._work.rows(
            f"SELECT {column} FROM cells WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY 1"
        )
        place: dict[Any, int] = {text: i for i, (text,) in enumerate(rows)}
        codes = (place.get(text, -1) for text in self.pieces(column))
        return list(place), np.fromiter(codes, np.int64, self.count)

    def _warn_of_separators(self, texts: list[str]) -> None:
        """Warn if several labels seem to be joined by another mark than the one that joins them."""
        joined = [text for text in texts if ";" in text or "," in text]
        if joined and not any(JOINT in text for text in texts):
            warn(
                f"column {self._options.label!r} of {self._table.label} has values such as "
                f"{joined[0]!r}, which are read as one label each; write {JOINT} between the "
                "labels of a node."
            )

    def _question(self, names: list[str], labelled: int) -> None:
        what = f"column {self._options.label!r} of {self._table.label}"
        plain = ["".join(name.split()).casefold() for name in names]
        counts = Counter(plain)
        if twins := [repr(n) for n, text in zip(names, plain, strict=True) if counts[text] > 1]:
            warn(
                f"{what} has classes that differ in capital letters or spaces: {some_of(twins)}; "
                "they are learned as different classes. If they mean the same, spell them alike."
            )
        for mark in SEPARATORS:
            joined = sum(mark in name.strip(mark) for name in names)
            if self._task == AUTO and 2 * joined > len(names):
                replaced = "" if mark == JOINT else f" (write {JOINT} instead of {mark})"
                warn(
                    f"{what} has values such as {next(name for name in names if mark in name)!r}, "
                    "which are read as one class each; if a node can have several labels, use "
                    f"{option_name('task', 'multilabel')}{replaced}."
                )
        if self._task == AUTO and is_measurement(names, labelled):
            raise DatasetError(
                f"{what} has {len(names):,} different numbers for {labelled:,} labelled nodes; "
                f"pass {option_name('task', 'regression')} if they are measurements, or "
                f"{option_name('task', 'classification')} if they are classes."
            )

    def split(self, labels: np.ndarray, seed: int | None) -> Split:
        """The split of the table; without one a stratified one of ``seed``, or all labels train."""
        split, label, what = self.table_split(labels), self._options.label, self._table.label
        if not self._labelled:
            columns = some_of(map(repr, self._table.names), 10)
            return Split(note=f"{what} has no column {label!r} (it has {columns})")
        if not known_labels(labels).any():
            return Split(note=f"column {label!r} of {what} is empty")
        if split is not None:
            return split
        if seed is not None:
            return stratified_split(labels, seed)
        return Split(np.flatnonzero(known_labels(labels)), note="all labelled nodes")

    def table_split(self, labels: np.ndarray) -> Split | None:
        """The split that the table has, None if it names no part or has no labels."""
        label = self._table.label
        words, codes = self._split_words()
        if not (words and self._labelled):
            return None
        part = np.array([*(SPLIT_WORDS[word] for word in words), -1])[codes]
        unlabelled = ~known_labels(labels)
        unknown = np.flatnonzero((part >= 0) & (part < 2) & unlabelled)
        if unknown.size:
            rows = ", ".join(map(str, unknown[:3].tolist()))
            nodes = self._work.rows(f"SELECT id FROM cells WHERE rowid IN ({rows}) ORDER BY rowid")
            raise DatasetError(
                f"{label} puts {plural(unknown.size, 'node')} without a label in train or val "
                f"(first: {', '.join(repr(name) for (name,) in nodes)}); leave the split empty, or "
                "add a label."
            )
        hidden = (part == 2) & unlabelled
        if hidden.any():
            warn(
                f"{label} has no label for {hidden.sum():,} of {(part == 2).sum():,} test nodes; "
                "they are excluded from the split, but still predicted."
            )
            part[hidden] = -1
        return Split(*(np.flatnonzero(part == i) for i in range(3)), note="from the split column")

    def _split_words(self) -> tuple[list[str], np.ndarray]:
        """The checked words of the split column, and the index of each row's word, or -1."""
        words, codes = self._coded("part")
        for word in words:
            if word not in SPLIT_WORDS:
                (node,) = self._work.row(
                    "SELECT id FROM cells WHERE part = ? ORDER BY rowid LIMIT 1", [word]
                )
                raise DatasetError(
                    f"column 'split' of {self._table.label} has {word!r} for node {node!r}; it "
                    f"must be train, val, test or empty.{nearest_hint(word, SPLIT_WORDS)}"
                )
        return words, codes


def _number(work: Workspace, table: Table, name: str) -> str:
    """The cells of a column as numbers, in SQL; amounts if all cells have the same sign."""
    column = table.columns[name]
    if not is_text(table.types[name]):
        return f"TRY_CAST({column} AS DOUBLE)"
    text = filled_sql(text_sql(column), table)
    amounts = [cells for cells in spellings(table, name) if cells.sign]
    if spelled := spelled_cells(work, table, {name: amounts}):
        return spelled[name][0].sql
    number = number_sql(text, comma=table.comma)
    return number if table.comma else f"COALESCE({number}, {comma_sql(text)})"


def id_sql(table: Table, name: str) -> str:
    """The cells of a column as ids: text, or whole numbers without a decimal point."""
    column, type_ = table.columns[name], table.types[name]
    if is_float(type_):
        return f"CASE {whole_sql(column)} END"
    if not (is_text(type_) or is_integer(type_) or type_ in ("BOOLEAN", '"NULL"')):
        raise DatasetError(
            f"column {name!r} of {table.label} has type {type_}; it must contain text or integers."
        )
    return text_sql(column)


def check_ids(work: Workspace, table: Table, *names: str) -> None:
    """DatasetError if an id is missing, or a number with a fraction."""
    for name in names:
        column = table.columns[name]
        if is_float(table.types[name]):
            bad = f"NOT isnan({column}) AND {id_sql(table, name)} IS NULL"
            refuse_row(work, table, name, bad, "it must contain text or integers")
        empty = f"{id_sql(table, name)} IS NULL"
        refuse_row(work, table, name, empty, "fill it, remove the row, or choose another column")


def refuse_row(work: Workspace, table: Table, name: str, bad: str, advice: str) -> None:
    """DatasetError for the first row of a table that is ``bad``, in SQL."""
    with work.clear_errors(table.label):
        if not work.row(f"SELECT count(*) FROM {table.sql} WHERE {bad}")[0]:
            return
        column = table.columns[name]
        value, row = work.row(
            f"SELECT {column}, row FROM (SELECT *, row_number() OVER () AS row FROM {table.sql}) "
            f"WHERE {bad} ORDER BY row LIMIT 1"
        )
    empty = value is None or not str(value).strip()
    cell = "is empty" if empty else f"has {value!r}"
    raise DatasetError(f"column {name!r} of {table.label} {cell} in data row {row:,}; {advice}.")


# ---------------------------------------------------------------------------------- edges


def insert_ids(work: Workspace, ids: Sequence[Any]) -> None:
    """Make the table ``old_ids`` of the ids and numbers of the existing nodes."""
    work.rows("CREATE TABLE old_ids (id VARCHAR, node INTEGER)")
    for start in range(0, len(ids), ROWS):
        piece = np.array([str(name) for name in ids[start : start + ROWS]], object)
        work.insert("old_ids", {"id": piece, "node": np.arange(start, start + len(piece))})


@dataclasses.dataclass(frozen=True)
class EdgeTable:
    """An edge table; its ends are in the table ``ids`` of DuckDB.

    Attributes
    ----------
    nodes : str
        What messages call the node table.
    as_trained : bool
        Whether ``unknown_nodes`` comes from the training of a model, so that dropping more than
        half of the edges is a DatasetError.
    extends : bool
        Whether the edges may also refer to nodes of existing data.
    """

    work: Workspace
    table: Table
    options: TableOptions
    nodes: str
    as_trained: bool = False
    extends: bool = False

    def pairs(self) -> dict[str, Any]:
        """``s``, ``t`` and, if the edges have them, ``w`` and ``type``, sorted."""
        weights = ["w"] if self.join() else []
        columns = ", ".join(["s", "t", *(["type"] if self.options.type else []), *weights])
        pairs = self.work.arrays(f"SELECT {columns} FROM pairs ORDER BY {columns}")
        return {name: np.ma.getdata(column) for name, column in pairs.items()}

    def join(self) -> bool:
        """Make the table ``pairs`` of the edges and ``ids``; whether the edges have weights.

        Its columns are ``s`` and ``t``, the numbers of the ends, ``w``, the weight, and ``type``.
        """
        work, edges, options = self.work, self.table, self.options
        weighted, typed = options.weight in edges.names, options.type
        number = _number(work, edges, options.weight) if weighted else "1"
        weight = f"TRY_CAST({number} AS FLOAT)"
        type_ = id_sql(edges, typed) if typed else "NULL::VARCHAR"
        source, target = (id_sql(edges, end) for end in options.ends)
        with work.clear_errors(edges.label):
            work.rows(
                "CREATE TABLE pairs AS SELECT a.node AS s, b.node AS t, w, type FROM "
                f"(SELECT {source} AS source, {target} AS target, {weight} AS w, {type_} AS type "
                f"FROM {edges.sql}) AS e "
                "LEFT JOIN ids AS a ON a.id = e.source LEFT JOIN ids AS b ON b.id = e.target"
            )
            rows, bad, heavy, untyped = work.row(
                "SELECT count(*), count_if(s IS NULL OR t IS NULL), "
                "count_if(w IS NULL OR NOT isfinite(w) OR w < 0), count_if(type IS NULL) FROM pairs"
            )
        if weighted and heavy:
            odd = f"{weight} IS NULL OR NOT isfinite({weight}) OR {weight} < 0"
            advice = (
                "use finite numbers, 0 or larger, or only amounts with the same sign such as $, or "
                f"choose another column with {option_name('weight')}"
            )
            refuse_row(work, edges, options.weight, odd, advice)
        if typed and untyped:
            check_ids(work, edges, typed)
        if bad:
            check_ids(work, edges, *options.ends)
            self._refuse_unknown(rows, bad)
            work.rows("DELETE FROM pairs WHERE s IS NULL OR t IS NULL")
        if weighted:  # add up repeated edges, independent of their order
            with work.clear_errors(edges.label):
                work.rows(
                    "CREATE OR REPLACE TABLE pairs AS SELECT s, t, type, "
                    "TRY_CAST(fsum(w) AS FLOAT) AS w FROM pairs GROUP BY s, t, type"
                )
            if work.row("SELECT count_if(w IS NULL) FROM pairs")[0]:
                raise DatasetError(
                    f"the weights of a repeated edge of {edges.label} add up to more than a 32-bit "
                    "number can hold; scale them down."
                )
        return weighted

    def _refuse_unknown(self, rows: int, bad: int) -> None:
        """DatasetError, or a warning, if ``bad`` of the edges have an unknown end."""
        work, edges, options = self.work, self.table, self.options
        ends = " UNION ALL ".join(
            f"SELECT {id_sql(edges, end)} AS id, row_number() OVER () AS row FROM {edges.sql}"
            for end in options.ends
        )
        unknown = work.rows(
            f"SELECT id, min(row) AS first FROM ({ends}) ANTI JOIN ids USING (id) GROUP BY id "
            "ORDER BY first, id LIMIT 4"
        )
        names = some_of([repr(name) for name, _ in unknown], 3)
        (example,) = work.row("SELECT first(id) FROM ids")
        problem = (
            f"{bad:,} of {plural(rows, 'edge')} in {edges.label} "
            f"{'refers' if bad == 1 else 'refer'} to an unknown node: {names} (first in data row "
            f"{unknown[0][1]:,}); the ids in {self.nodes} look like {example!r}"
        )
        refused = options.unknown_nodes == ERROR or (self.as_trained and 2 * bad > rows)
        drop, create = (option_name("unknown_nodes", way) for way in ("drop", "create"))
        advice = f"correct the ids, add these nodes, or use {drop} or {create}."
        if 10 * bad >= 9 * rows:
            roles = listing([option_name(name) for name in ("source", "target", "id")])
            advice = f"correct the ids, or choose the columns that have them with {roles}."
        if self.as_trained:
            add = by_interface("hoplite.io.extend(old, new)", "`hoplite predict ... --add NEW`")
            advice = f"if other tables have these nodes, use {add}"
            if self.extends:
                advice = f"correct the ids, or add these nodes to {self.nodes}"
            advice += f", otherwise {drop}." if refused else "."
        if refused:
            raise DatasetError(f"{problem}; {advice}")
        warn(f"{problem}; they are dropped" + (f"; {advice}" if self.as_trained else "."))


def write_adjacency(work: Workspace, folder: Path, nodes: int) -> None:
    """Write the symmetric adjacency of ``pairs`` as CSR files, with the numbers of ``from_edges``:
    A = max(F, F^T) without its diagonal.
    """
    both = "SELECT s AS r, t AS c, w FROM pairs UNION ALL SELECT t, s, w FROM pairs"
    work.rows(
        f"CREATE TABLE entries AS SELECT r, c, max(w) AS w FROM ({both}) WHERE r <> c AND w > 0 "
        "GROUP BY r, c ORDER BY r, c"
    )
    rows = work.arrays("SELECT r, count(*) AS entries FROM entries GROUP BY r")
    counts = np.zeros(nodes + 1, np.int64)
    counts[1 + np.ma.getdata(rows["r"])] = np.ma.getdata(rows["entries"])
    indptr = np.cumsum(counts)
    write_npy(folder / "indptr.npy", indptr)
    with (
        growing_npy(folder / "indices.npy", index_type(nodes)) as indices,
        growing_npy(folder / "values.npy", np.float32) as values,
    ):
        for start in range(0, int(indptr[-1]), EDGES_AT_ONCE):
            piece = work.arrays(
                f"SELECT c, w FROM entries WHERE rowid >= {start} "
                f"AND rowid < {start + EDGES_AT_ONCE}"
            )
            indices(np.ma.getdata(piece["c"]))
            values(np.ma.getdata(piece["w"]))


# --------------------------------------------------------------------------------- labels


def sorted_classes(names: list[str]) -> list[str]:
    """The names in order, by number if all are integers."""
    if all(_INTEGER.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def is_measurement(names: list[str], labelled: int) -> bool:
    """Whether the distinct labels of ``labelled`` nodes look like measurements, not classes.

    They do if they are more than ``MAX_WHOLE`` whole numbers, or ``MAX_FRACTIONS`` with fractions;
    with fewer than two nodes per number, ``MAX_RARE_WHOLE`` or ``MAX_RARE_FRACTIONS``. Words for a
    missing value, such as NA, do not count.

    >>> is_measurement(["0.5", "1.0", "1.5"], 30), is_measurement([f"{i}.5" for i in range(30)], 30)
    (False, True)
    """
    names = [name.replace(",", ".") for name in names if name not in GAP_WORDS]
    whole = all(_INTEGER.fullmatch(name) for name in names)
    if labelled < 2 * len(names):
        most = MAX_RARE_WHOLE if whole else MAX_RARE_FRACTIONS
    else:
        most = MAX_WHOLE if whole else MAX_FRACTIONS
    return len(names) > most and all(map(is_numeral, names))


# -------------------------------------------------------------------------------- imports


def import_tables(
    source: Any,
    out: str | Path,
    /,
    *,
    memory: int,
    seed: int | None = None,
    progress: Callable[[str, float], None] | None = None,
    prepare: Any = None,
    **options: Any,
) -> None:
    r"""Import tables into a graph on disk, within a memory limit.

    The result equals that of :func:`read_tables`, bit for bit, except that features are dense: a
    text column becomes TF-IDF features only if ``text`` names it.

    Parameters
    ----------
    source : path or str
        As for :func:`read_tables`.
    out : path
        The folder to write. A complete import of the same, unchanged tables is kept; an interrupted
        one starts again.
    memory : int
        Bytes that the import may use in addition to what the process already uses.
    seed, prepare, **options
        As for :func:`read_tables`.
    progress : callable, optional
        Called with the step and its share.

    Examples
    --------
    >>> import tempfile
    >>> from hoplite.io import DiskGraph
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "nodes.csv").write_text("id,label,age\na,x,31\nb,y,45\nc,x,27\n")
    ...     _ = Path(folder, "edges.csv").write_text("source,target\na,b\nb,c\n")
    ...     import_tables(folder, f"{folder}/imported", memory=10**9)
    ...     print(DiskGraph(f"{folder}/imported"))
    DiskGraph(nodes=3, edges=2, features=1)
    """
    out, note = Path(out), progress or (lambda what, share: None)
    chosen = chosen_preparation(prepare, options)  # rejects a transformer
    reading = Reading.of(prepare, options)
    if chosen.options.directed or chosen.options.type:
        raise ConfigError(
            f"{option_name('directed')} and {option_name('type')} are not supported by graphs on "
            "disk and hop stores; train on tables in memory, or leave them out."
        )
    stamp = [*_stamp(source, chosen.options), ["seed", "none" if seed is None else seed]]
    stamp.append(["preparation", zlib.crc32(to_json(chosen).encode())])
    if is_disk_graph(out):
        graph = DiskGraph(out)
        # a store passes the preparation that this import fitted
        fitted = chosen.columns is not None and graph.preparation == chosen
        if graph.tables == stamp or (fitted and graph.tables[:-1] == stamp[:-1]):
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
        with Workspace(int(DUCKDB_SHARE * memory), scratch) as work:
            note(f"importing {source}: nodes", 0.0)
            nodes, edges = open_tables(work, source, chosen.options)
            work.keep_on_disk(_row_values(work, nodes))
            table = NodeTable(work, nodes, edges, reading)
            if (need := NODE_BYTES * table.count + MIN_ROOM) > memory:
                raise _too_little(source, memory, need)
            labels, class_names = table.labels()
            split = table.split(labels, seed)
            features = table.fitted_features(split, dense=True)
            note(f"importing {source}: features of {table.count:,} nodes", 0.3)
            with growing_npy(out / "features.npy", np.float32, (len(features.names),)) as append:
                for block in features.dense_blocks():
                    append(block)
            ids, integers = table.pieces("id"), table.integer_ids
            write_nodes(out, labels, split, ids, integers=integers)
            note(f"importing {source}: edges", 0.5)
            EdgeTable(work, edges, chosen.options, nodes.label, reading.as_trained).join()
            note(f"importing {source}: sorting edges", 0.75)
            write_adjacency(work, out, table.count)
            note(f"importing {source}: checksums", 0.95)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    write_description(
        out,
        name=_name(source),
        class_names=class_names,
        feature_names=tuple(features.names),
        split_note=split.note,
        tables=stamp,
        preparation=features.preparation,
    )


def _row_values(work: Workspace, table: Table) -> int:
    """How many values a row has, with those in lists."""
    lists = [table.columns[name] for name, sql in table.types.items() if sql.endswith("]")]
    if not lists:
        return len(table.names)
    lengths = ", ".join(f"coalesce(max(len({column})), 0)" for column in lists)
    with work.clear_errors(table.label):
        return len(table.names) + sum(
            work.row(f"SELECT {lengths} FROM (FROM {table.sql} LIMIT 100)")
        )


def _too_little(source: Any, memory: int, need: int) -> ConfigError:
    return ConfigError(
        f"leaves {memory / 1e6:.0f} MB for the import of {source} but it needs "
        f"{need / 1e6:.0f} MB; increase {option_name('memory')} by "
        f"{math.ceil((need - memory) / 1e6)} MB.",
        "memory",
    )


def _stamp(source: Any, options: TableOptions) -> list[list[Any]]:
    """Name, size and time of the files that are read; a server's tables never count as unchanged.

    A query may read any file of the folder.
    """
    if is_postgres(source):
        return [["server", time.time_ns()]]
    path = Path(source)
    files = {path, Path(f"{path}-wal"), Path(f"{path}.wal")}  # SQLite's and DuckDB's journals
    for stem in STEMS if path.is_dir() else ():
        name = getattr(options, stem)
        if is_query(name):
            files.update(path.rglob("*"))
        else:
            files.update([path / name] if name else table_files(path, stem))
    stats = [(os.path.relpath(file, path), file.stat()) for file in files if file.is_file()]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in sorted(stats)]
