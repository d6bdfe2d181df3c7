"""New nodes and edges, in a node and an edge table, that are added to a graph or a store.

The n old nodes keep their numbers, and the m new ones follow, in the order of their table. Their
features are prepared as those of the old nodes were; nothing is fitted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import ConfigError, DatasetError, GraphError, HopliteWarning, plural, warn
from hoplite.graph import PARTS, Graph, NodeData, Split
from hoplite.io.node_files import all_integers
from hoplite.io.sources import (
    STEMS,
    Table,
    Workspace,
    empty_table,
    frame_table,
    is_database,
    open_tables,
    table_files,
)
from hoplite.io.tables import EdgeTable, NodeTable, Reading, insert_ids
from hoplite.labels import known_labels, label_type
from hoplite.preparation import TableOptions, chosen_preparation
from hoplite.structural import (
    links_among,
    log_degrees_of,
    made_of_edges,
    structural_count,
    with_log_degree,
    with_structural,
)

CELLS = {"list": "DOUBLE[]", "text": "VARCHAR", "date": "DATE", "time": "TIME"}  # without any row
Edges = tuple[np.ndarray, np.ndarray, "np.ndarray | None"]  # sources, targets, weights


@dataclass(frozen=True)
class NewNodes:
    """m new nodes behind ``before`` old ones, and new edges among all of them."""

    before: int
    ids: np.ndarray  # (m,) of text
    integer_ids: bool
    features: Any  # (m, d) float32, in the order of the graph's features; CSR if these are CSR
    labels: np.ndarray  # (m,), -1 where unknown
    split: Split  # split by the numbers of all nodes; empty unless the table has one
    sources: np.ndarray  # (e,)
    targets: np.ndarray
    weights: np.ndarray | None  # None if every pair counts once
    types: list[str]  # (e,), if edges have types

    @property
    def count(self) -> int:
        """m."""
        return len(self.ids)

    @property
    def named(self) -> np.ndarray:
        """The new nodes; if there are none, the ends of the new edges, sorted."""
        if self.count:
            return np.arange(self.before, self.before + self.count)
        return np.unique(np.concatenate([self.sources, self.targets]))

    def node_ids(self, old: Sequence[Any] | None) -> Sequence[Any] | None:
        """The ids of all nodes: numbers if all of them are numbers, otherwise text."""
        if not self.count:
            return old
        ids = range(self.before) if old is None else old
        if not all_integers(ids):
            return (*ids, *self.ids)
        if self.integer_ids:
            return (*ids, *map(int, self.ids))
        return (*map(str, ids), *self.ids)

    def grown_split(self, old: Split) -> Split:
        """The split of all nodes: the old one, and what the new table says."""
        pairs = ((getattr(old, part), getattr(self.split, part)) for part in PARTS)
        return Split(*map(np.concatenate, pairs), note=old.note, seed=old.seed)


def extend(graph: Graph, new: Any, **options: Any) -> Graph:
    """Add nodes and edges to a graph; the new nodes come last.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.
    new : folder of node and edge tables, or pair (nodes, edges) of data frames
        Tables with the columns of the graph's own tables; labels are not needed. Edges may connect
        old nodes as well. One of the two tables may be missing (None in a pair).
    **options
        ``label``, ``id``, ``source``, ``target`` and ``weight``: columns that have other names in
        the new tables.

    Returns
    -------
    Graph

    Notes
    -----
    Features are matched by name and prepared as those of the graph (``graph.preparation``), never
    fitted again; structural features are recomputed. Without weights, an existing edge stays as it
    is; with weights, the new weight is added to the existing one. New nodes are part of the split
    only if their table has a ``split`` column. The ``loop_weight`` does not change.

    Examples
    --------
    >>> import pandas as pd
    >>> from hoplite.io.convert import from_frames
    >>> nodes = pd.DataFrame({"id": ["ann", "bob", "cem"], "age": [3, 1, 2]})
    >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cem"]})
    >>> club = from_frames(nodes, edges)
    >>> dia = pd.DataFrame({"id": ["dia"], "age": [2]})
    >>> extend(club, (dia, pd.DataFrame({"source": ["dia"], "target": ["ann"]})))
    Graph(nodes=4, edges=3, features=1, classes=0)
    """
    return extend_tables(graph, new, **options)[0]


def extend_tables(
    graph: Graph, new: Any, *, tables: Sequence[Any] = (), **options: Any
) -> tuple[Graph, np.ndarray]:
    """As :func:`extend`; also the nodes that ``new`` names (:attr:`NewNodes.named`).

    ``tables`` are those that the graph was read from and then extended by, if it was read from
    tables: their edges, whose direction the graph no longer knows, are then counted together with
    the new ones, exactly as in one table. A graph that keeps directions or types needs that.
    """
    if not tables:
        graph.refuse_relations("adding nodes without its tables")
    if links_among(graph.feature_names, graph.preparation) is not None:
        raise GraphError(
            "cannot add nodes because the graph uses links as features, which refer to its own "
            "nodes; train a model without link, or load the extended graph and train again."
        )
    computed = made_of_edges(graph.feature_names, graph.preparation)
    if computed:  # they change with the edges
        count, degrees = structural_count(graph.feature_names), log_degrees_of(graph)
        names = (graph.feature_names or ())[:-computed]
        features = graph.features[:, :-computed]
        plain = graph.with_features(features, names, preparation=graph.preparation)
        grown, named = extend_tables(plain, new, tables=tables, **options)
        grown = with_log_degree(grown, degrees) if degrees else with_structural(grown, count)
        return grown, named
    weighted = bool((graph.adjacency.data != 1).any())
    added = NewTables(new, graph, **options).read(weighted=weighted)
    blocks = graph.features, added.features.astype(graph.features.dtype)
    chosen, types = chosen_preparation(graph, options), list[str]()
    pieces: list[Edges] = []
    if not tables:
        entries = graph.adjacency.tocoo()
        pieces = [(entries.row, entries.col, entries.data if weighted else None)]
    for place, source in enumerate(tables):
        # an option names the edges of the first table only
        reading = replace(chosen.options, edges="") if place else chosen.options
        edges, edge_types = _edges_of(source, graph, reading)
        pieces.append(edges)
        types += edge_types
    types += added.types
    pieces.append((added.sources, added.targets, added.weights))
    weights = [np.ones(len(ends), np.float32) if w is None else w for ends, _, w in pieces]
    grown = Graph.from_edges(
        np.concatenate([np.column_stack(piece[:2]) for piece in pieces]),
        sp.vstack(blocks, "csr") if sp.issparse(graph.features) else np.vstack(blocks),
        np.concatenate([graph.labels, added.labels]),
        weights=None if all(w is None for _, _, w in pieces) else np.concatenate(weights),
        directed=chosen.options.directed and bool(tables),
        types=types if chosen.options.type and tables else None,
        split=added.grown_split(graph.split),
        class_names=graph.class_names,
        feature_names=graph.feature_names,
        node_ids=added.node_ids(graph.node_ids),
        name=graph.name,
        preparation=graph.preparation,
    )
    return grown.with_loop_weight(graph.loop_weight), added.named


class NewTables:
    """The tables of the nodes and edges to add to ``data``.

    ``new`` is a folder with a node table, an edge table or both, or a pair of frames (nodes,
    edges), one of which may be None. ``options`` are those that may differ from the preparation of
    the data: the names of special columns, such as ``label`` and ``source``, and ``unknown_nodes``.
    """

    def __init__(self, new: Any, data: NodeData, **options: Any) -> None:
        self._data, self._new = data, new
        self._chosen = chosen_preparation(data, options | {"nodes": None, "edges": None})
        self._as_trained = options.get("unknown_nodes") is None
        if not isinstance(new, str | Path):
            pair = isinstance(new, Sequence) and len(new) == len(STEMS)
            if not pair or all(frame is None for frame in new):
                raise ConfigError(
                    f"new has type {type(new).__name__}; pass a folder of tables, or a pair "
                    "(nodes, edges) of data frames, where either may be None."
                )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Workspace, Table, Table]]:
        """The two tables; a missing one has all columns and no rows."""
        options, columns = self._chosen.options, self._chosen.fitted
        none = {
            "nodes": {column.name: CELLS.get(column.type_name, "DOUBLE") for column in columns}
            | {options.id: "BIGINT"},  # so that 7 is a number next to others
            "edges": dict.fromkeys(options.edge_columns, "VARCHAR"),
        }
        with Workspace() as work:
            if not isinstance(self._new, str | Path):
                pair = {
                    stem: frame_table(work, frame, stem)
                    for stem, frame in zip(STEMS, self._new, strict=True)
                    if frame is not None
                }
            elif is_database(self._new):
                pair = dict(zip(STEMS, open_tables(work, self._new, options), strict=True))
            else:
                present = [stem for stem in STEMS if table_files(Path(self._new), stem)]
                if not present:
                    raise DatasetError(
                        f"{self._new} has neither a node table nor an edge table; provide a "
                        "folder with nodes.csv, edges.csv (or .parquet) or both."
                    )
                tables = open_tables(work, self._new, options, present)
                pair = dict(zip(present, tables, strict=True))
            nodes, edges = (pair.get(stem) or empty_table(stem, none[stem]) for stem in STEMS)
            yield work, nodes, edges

    @property
    def digest(self) -> str:
        """SHA-256 of all cells."""
        digest = hashlib.sha256()
        with self._opened() as (work, *pair):
            for table in pair:
                digest.update(repr((table.names, [*table.types.values()])).encode())
                cells = ", ".join(f"CAST({column} AS VARCHAR)" for column in table.columns.values())
                for row in work.rows(f"SELECT {cells} FROM {table.sql}"):
                    digest.update(repr(row).encode())
        return digest.hexdigest()

    def read(self, *, weighted: bool) -> NewNodes:
        """DatasetError if an id already exists, an edge names an unknown one, a column is
        missing, or edges have no weights though those of the data have (``weighted``)."""
        data, chosen = self._data, self._chosen
        weight, n = chosen.options.weight, data.num_nodes
        with self._opened() as (work, nodes, edges):
            old = range(n) if data.node_ids is None else data.node_ids
            task = label_type(data.labels).task
            table = NodeTable(work, nodes, edges, Reading(chosen), old=old, task=task)
            count = work.row(f"SELECT count(*) FROM {edges.sql}")[0]
            if weighted and weight not in edges.names and count:
                raise DatasetError(
                    f"{edges.label} has no column {weight!r}, but {data.name} has edge weights; "
                    "add it."
                )
            features: Any = np.empty((table.count, data.num_features), np.float32)
            if features.size:
                matrix, names, _ = table.features(Split())
                if sp.issparse(matrix) and not sp.issparse(getattr(data, "features", None)):
                    matrix = matrix.toarray()  # as a store has it
                features = _in_order(matrix, names, data, nodes.label)
            labels = _labels(table, data)
            split = table.table_split(labels) or Split()
            split = Split(*(n + getattr(split, part) for part in split.sizes()))
            rows = EdgeTable(work, edges, chosen.options, nodes.label, self._as_trained, True)
            pairs = rows.pairs()
            ids, integers = np.array([*table.pieces("id")], object), table.integer_ids
        ends = pairs["s"], pairs["t"], pairs.get("w")
        types = pairs["type"].tolist() if "type" in pairs else []
        return NewNodes(n, ids, integers, features, labels, split, *ends, types)


def _edges_of(source: Any, graph: Graph, options: TableOptions) -> tuple[Edges, list[str]]:
    """The edges of a table that ``graph`` was read from, as they are written there; their types.

    There are none if it was extended by a node table alone. Warnings were already given when the
    graph was read.
    """
    if not options.edges and not is_database(source) and not table_files(Path(source), "edges"):
        none = np.empty(0, np.int64)
        return (none, none, None), []
    with Workspace() as work, warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        (edges,) = open_tables(work, source, options, ("edges",))
        insert_ids(work, graph.node_ids or ())
        work.rows("CREATE VIEW ids AS FROM old_ids")
        pairs = EdgeTable(work, edges, options, str(source)).pairs()
    types = pairs["type"].tolist() if "type" in pairs else []
    return (pairs["s"], pairs["t"], pairs.get("w")), types


def _in_order(matrix: Any, names: Sequence[str], data: NodeData, path: str) -> Any:
    """The columns of ``matrix`` in the order of the data's features, which are found by name."""
    target = data.feature_names
    if target is None or tuple(names) == target:
        if matrix.shape[1] != data.num_features:
            raise DatasetError(
                f"{path} has {plural(matrix.shape[1], 'feature')}, but {data.name} has "
                f"{data.num_features:,}; use the same columns."
            )
        return matrix
    place = {name: j for j, name in enumerate(names)}
    columns = {name.split("=")[0] for name in names}
    for name in target:  # a value of a text that no new node has is 0
        if name not in place and not ("=" in name and name.split("=")[0] in columns):
            raise DatasetError(
                f"{path} has no feature {name!r}, which {data.name} has; use the same columns."
            )
    zeros = sp.csc_array((matrix.shape[0], 1), dtype=matrix.dtype)  # for features that are missing
    padded = sp.hstack([sp.csc_array(matrix), zeros], format="csc")
    wide = padded[:, [place.get(name, len(names)) for name in target]].tocsr()
    return wide if sp.issparse(matrix) else wide.toarray()


def _labels(table: NodeTable, data: NodeData) -> np.ndarray:
    """The labels of the new nodes by the numbers of the data's classes."""
    type_ = label_type(data.labels)
    labels, names = table.labels()
    if label_type(labels) is not type_:  # they name nothing: unknown, or known to have no label
        empty = type_.unknown(table.count, len(data.class_names))
        empty[known_labels(labels)] = 0
        return empty
    unknown = [name for name in names if name not in data.class_names]
    if unknown:
        warn(
            f"new nodes have the label {unknown[0]!r}, which is not a class of {data.name}; they "
            "are added without a label.",
            stacklevel=4,
        )
    return type_.moved(labels, names, data.class_names)
