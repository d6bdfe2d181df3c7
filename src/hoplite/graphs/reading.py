"""Where sets of graphs come from: tables, databases, files and lists of other libraries' graphs.

Tables go through DuckDB by the rules of :func:`hoplite.io.read_tables`. The key of a node is its
graph and its id together. Scales, categories and terms of columns are fitted to the nodes of
training graphs only, by a first reading of these.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.csr import without_torch
from hoplite.errors import (
    ConfigError,
    DatasetError,
    GraphError,
    HopliteError,
    first_line,
    plural,
    require_extra,
    some_of,
)
from hoplite.graph import Graph, Split
from hoplite.graphs.files import FILE, open_graph_files, read_npz_graphs, tag_features
from hoplite.graphs.graph_set import GraphSet
from hoplite.io.convert import coded_labels, from_pyg, networkx_graph, plain_igraph
from hoplite.io.npz import open_npz
from hoplite.io.sources import (
    Table,
    Workspace,
    empty_table,
    frame_table,
    is_database,
    is_frame,
    literal,
    open_tables,
    table_files,
)
from hoplite.io.splits import stratified_split, warn_of_unused_seed
from hoplite.io.tables import EdgeTable, NodeTable, Reading, id_sql, require_columns
from hoplite.labels import UNKNOWN_LABEL, known_labels
from hoplite.preparation import Preparation, TableOptions

STEMS = ("graphs", "nodes", "edges")
GRAPH = "graph"  # the column of all three tables
SEPARATOR = "\x1f"  # between a graph and a node
TU_MEMBERS = "_graph_indicator.txt"
Options = Mapping[str, Any]


def is_graph_set(source: Any) -> bool:
    """Return whether an object is a set of graphs, or the path of one.

    Parameters
    ----------
    source : object
        A path, or any other object.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_graph_set("cora")
    False
    """
    if isinstance(source, GraphSet):
        return True
    if isinstance(source, list | tuple):
        return _are_frames(source) or (len(source) > 0 and _library(source[0]) is not None)
    if not isinstance(source, str | os.PathLike) or source == "":
        return False
    path = Path(source)
    try:
        if path.is_dir() and ((path / FILE).is_file() or any(path.glob(f"*{TU_MEMBERS}"))):
            return True
        if path.suffix.lower() == ".npz":
            with open_npz(path) as file:
                return "node_counts" in file
        return _is_tables(path)
    except (DatasetError, OSError):
        return False  # whoever reads it says what is wrong


def load_graphs(
    source: Any,
    *,
    seed: int | None = None,
    split: int | None = None,
    prepare: Any = None,
    labels: Any = None,
    **options: Any,
) -> GraphSet:
    """Load a set of graphs.

    Parameters
    ----------
    source : path, list or tuple of frames
        - a folder with the tables ``graphs`` (columns ``graph``, ``label``, ``split``), ``nodes``
          (``graph``, ``id`` and features) and ``edges`` (``graph``, ``source``, ``target``), or a
          DuckDB or SQLite database with them, or a tuple of three data frames;
        - a folder of the TU collection: ``NAME_A.txt``, ``NAME_graph_indicator.txt``, ...;
        - a ``.npz`` file, see :func:`hoplite.write_graphs`;
        - a folder of arrays that stay on disk, see :func:`hoplite.graphs.write_graph_files`;
        - a list of graphs of PyTorch Geometric, NetworkX, igraph or Hoplite.
    seed : int, optional
        Draw a stratified split where the data has none; without it all graphs with a label train.
    split : int, optional
        Which of several splits of a file to use; the first if not given.
    prepare : GraphModel or Preparation, optional
        Prepare columns as those of its training were.
    labels : sequence, optional
        Labels of the graphs of a list that have none of their own.
    **options
        How tables are read: :class:`hoplite.TableOptions`; ``task`` for any source.

    Returns
    -------
    GraphSet

    Examples
    --------
    >>> from hoplite import Graph
    >>> pair = Graph.from_edges([(0, 1)], [[1.0], [2.0]])
    >>> load_graphs([pair, pair], labels=["a", "b"])
    GraphSet(graphs=2, nodes=4, edges=2, features=1, classes=2)
    """
    options = {name: value for name, value in options.items() if value is not None}
    if options.get("directed") or options.get("type"):
        raise ConfigError("directed and type are not supported for sets of graphs; leave them out.")
    if isinstance(source, GraphSet):
        graphs = source
    elif isinstance(source, list | tuple) and not _are_frames(source):
        graphs = _from_list(source, labels, seed, prepare, options)
    elif isinstance(source, list | tuple) or _is_tables(Path(source)):
        graphs = _read_tables(source, seed, prepare, options)
    elif (Path(source) / FILE).is_file():
        graphs = open_graph_files(Path(source))
    elif Path(source).is_dir():
        graphs = read_tu(source)
    elif Path(source).suffix.lower() == ".npz":
        graphs = read_npz_graphs(Path(source), split=split)
    else:
        raise DatasetError(
            f"{source} is not a set of graphs; pass a folder or a database with the tables graphs, "
            "nodes and edges, a folder of the TU collection, or a .npz file."
        )
    if "task" in options:
        graphs = graphs.for_task(options["task"])
    if seed is not None:
        graphs = graphs.with_split(_drawn(graphs.table.split, graphs.table.labels, seed))
    warn_of_unused_seed(graphs.table, seed)
    return graphs


def _drawn(split: Split, labels: Any, seed: int | None) -> Split:
    """The split, or a stratified one of ``seed`` if it names training graphs only."""
    if seed is None or split.val.size or split.test.size or not split.train.size:
        return split
    return stratified_split(labels, seed)


def _are_frames(source: Sequence[Any]) -> bool:
    return len(source) == 3 and all(map(is_frame, source))


def _is_tables(path: Path) -> bool:
    """Whether a folder or a database has a table ``graphs``."""
    if path.is_dir():
        return bool(table_files(path, "graphs"))
    try:
        with Workspace() as work:
            return is_database(path) and bool(open_tables(work, path, TableOptions(), ["graphs"]))
    except HopliteError:
        return False


# --------------------------------------------------------------------------------- tables


def _read_tables(source: Any, seed: int | None, prepare: Any, options: Options) -> GraphSet:
    reading = Reading.of(prepare, options)
    with Workspace() as work:
        if isinstance(source, list | tuple):
            pairs = zip(source, STEMS, strict=True)
            tables = [frame_table(work, frame, stem) for frame, stem in pairs]
            name = "graphs"
        else:
            tables, name = open_tables(work, source, reading.options, STEMS), Path(source).stem
        return _table_set(work, tables, reading, seed, name)


def _table_set(
    work: Workspace, tables: Sequence[Table], reading: Reading, seed: int | None, name: str
) -> GraphSet:
    graphs, nodes, edges = tables
    for table in tables:
        require_columns(table, [GRAPH])
    label = reading.options.label
    plain = dataclasses.replace(reading.options, id=GRAPH, drop=(), only=(), text=())
    if reading.needs_label:
        require_columns(graphs, [label])
    others = [name for name in graphs.names if name not in (GRAPH, label, "split")]
    known = Reading(Preparation(plain), needs_label=reading.needs_label)
    no_edges = empty_table("edges", dict.fromkeys(reading.options.ends, "VARCHAR"))
    table = NodeTable(work, graphs.without(*others), no_edges, known)
    labels, class_names = table.labels()
    split, graph_ids = _drawn(table.split(labels, None), labels, seed), table.ids()
    ids = [*map(str, graph_ids)]
    _forget(work)

    keyed = _keyed(nodes.without(label, "split"), [reading.options.id])
    joined = _keyed(edges, reading.options.ends)
    reading = dataclasses.replace(reading, needs_label=False)
    if reading.preparation.columns is None:
        reading = _fitted(work, keyed, no_edges, reading, [ids[g] for g in split.train])
    table = NodeTable(work, keyed, joined, reading)
    features, names, preparation = table.features(Split())
    pairs = EdgeTable(work, joined, reading.options, nodes.label).pairs()
    number = {graph: g for g, graph in enumerate(ids)}
    keys = [key.partition(SEPARATOR) for key in table.pieces("id")]
    unknown = [graph for graph, _, _ in keys if graph not in number]
    if unknown:
        raise DatasetError(
            f"{nodes.label} has {plural(len(unknown), 'node')} of graphs that are not in "
            f"{graphs.label} ({some_of(dict.fromkeys(unknown))}); add these graphs."
        )
    owner = np.array([number[graph] for graph, _, _ in keys], np.int64)
    order = np.argsort(owner, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    block = Graph.from_edges(
        place[np.column_stack([pairs["s"], pairs["t"]])],
        features[order],
        weights=pairs.get("w"),
    )
    return _set_of(
        block,
        np.bincount(owner, minlength=len(ids)),
        labels,
        split=split,
        class_names=class_names or None,
        feature_names=names,
        graph_ids=graph_ids,
        node_ids=[keys[i][2] for i in order.tolist()],
        name=name,
        preparation=preparation,
    )


def _keyed(table: Table, ends: Sequence[str]) -> Table:
    """The table with columns ``ends`` that name a node of any graph: its graph and its id."""
    require_columns(table, ends)
    graph, columns, types = id_sql(table, GRAPH), dict(table.columns), dict(table.types)
    keys = []
    for i, end in enumerate(ends):
        keys.append(f"{graph} || {literal(SEPARATOR)} || {id_sql(table, end)} AS k{i}")
        columns[end], types[end] = f"k{i}", "VARCHAR"
    del columns[GRAPH], types[GRAPH]
    sql = f"(SELECT *, {', '.join(keys)} FROM {table.sql})"
    return dataclasses.replace(table, sql=sql, columns=columns, types=types)


def _fitted(
    work: Workspace, nodes: Table, no_edges: Table, reading: Reading, train: Sequence[str]
) -> Reading:
    """The same with a preparation that is fitted to the nodes of training graphs."""
    work.rows("CREATE TABLE training (g VARCHAR)")
    if train:
        work.insert("training", {"g": np.array(train, object)})
    key = nodes.columns[reading.options.id]
    inside = f"split_part({key}, {literal(SEPARATOR)}, 1) IN (SELECT g FROM training)"
    part = dataclasses.replace(nodes, sql=f"(SELECT * FROM {nodes.sql} WHERE {inside})")
    table = NodeTable(work, part if train else nodes, no_edges, reading)
    prepared = table.features(Split(train=np.arange(table.count)))[2]
    _forget(work)
    return dataclasses.replace(reading, preparation=prepared)


def _forget(work: Workspace) -> None:
    """Remove what :class:`NodeTable` makes, for the next one."""
    for what in ("VIEW ids", "TABLE cells", "TABLE old_ids"):
        work.rows(f"DROP {what}")


# ---------------------------------------------------------------------------------- lists


def _library(graph: Any) -> str | None:
    libraries = [base.__module__.partition(".")[0] for base in type(graph).__mro__]
    known = ("torch_geometric", "networkx", "igraph", "hoplite")
    return next((library for library in libraries if library in known), None)


def _from_list(
    graphs: Sequence[Any], labels: Any, seed: int | None, prepare: Any, options: Options
) -> GraphSet:
    libraries = {*map(_library, graphs)}
    if len(libraries) != 1 or None in libraries:
        raise GraphError(
            "pass graphs of one library: PyTorch Geometric, NetworkX, igraph or Hoplite."
        )
    (library,) = libraries
    if library in ("networkx", "igraph"):
        return _from_named(graphs, labels, seed, prepare, options)
    if library == "torch_geometric":
        labels = _pyg_labels(graphs) if labels is None else labels
        graphs = [*map(_from_pyg, graphs)]
    codes, names = coded_labels(labels, options.get("task"))
    return GraphSet.from_graphs(graphs, codes, class_names=names)


def _pyg_labels(graphs: Sequence[Any]) -> np.ndarray | None:
    """The labels ``y``, (G, m); None if no graph has one.

    Graphs that have none get -1 if the others have integers, and NaN if they have floats.
    """
    import torch

    given = [data.get("y") for data in graphs]  # tensors, or plain numbers
    values = [None if y is None else np.ravel(without_torch(torch.as_tensor(y))) for y in given]
    widths = {len(value) for value in values if value is not None}
    if len(widths) > 1:
        raise GraphError(
            f"y has {min(widths)} to {max(widths)} values; all graphs must have the same number."
        )
    floats = any(value is not None and value.dtype.kind == "f" for value in values)
    unknown = np.full(sum(widths), np.nan if floats else UNKNOWN_LABEL)
    return np.stack([unknown if v is None else v for v in values]) if widths else None


def _from_pyg(data: Any) -> Graph:
    import torch

    plain = copy(data)
    plain.y = None  # which is not the label of its nodes
    if data.get("x") is not None:
        return from_pyg(plain)
    plain.x = torch.ones(data.num_nodes, 1)  # instead of structural features
    return from_pyg(plain).with_features(np.empty((data.num_nodes, 0), np.float32))


def _from_named(
    graphs: Sequence[Any], labels: Any, seed: int | None, prepare: Any, options: Options
) -> GraphSet:
    """Graphs whose nodes have attributes, as one graph of NetworkX."""
    require_extra("convert", "a list of graphs", "networkx")
    import networkx as nx

    block, sizes, ids, known = nx.MultiDiGraph(), [], [], []  # it takes edges of any graph
    for graph in graphs:
        plain, own = (graph, [*graph]) if isinstance(graph, nx.Graph) else plain_igraph(graph)
        known.append(plain.graph.get("label"))
        numbered = nx.convert_node_labels_to_integers(plain, len(block))
        block.update(numbered.edges(data=True), numbered.nodes(data=True))
        sizes.append(len(own))
        ids += own
    for data in block.nodes.values():
        for name in ("label", "split"):
            data.pop(name, None)
    if labels is None and any(label is not None for label in known):
        labels = known
    codes, names = coded_labels(labels, options.get("task"))
    table = Graph.from_edges([], np.empty((len(sizes), 0)), codes, class_names=names)
    values = table.for_task(options.get("task")).labels
    train = _drawn(Split(np.flatnonzero(known_labels(values))), values, seed).train
    inside = np.flatnonzero(np.isin(np.repeat(np.arange(len(sizes)), sizes), train))
    if prepare is None and inside.size:
        prepare = networkx_graph(block.subgraph(inside.tolist()), **options).preparation
        fixed = {*TableOptions.names()} - {*TableOptions.names(reading=True)}
        options = {name: value for name, value in options.items() if name not in fixed}
    whole = networkx_graph(block, prepare=prepare, **options)
    own = {"node_ids": ids, "class_names": names, "preparation": whole.preparation}
    return _set_of(whole, sizes, codes, **own)


# ---------------------------------------------------------------------------------- files


def read_tu(folder: str | Path) -> GraphSet:
    """Read a data set of the TU collection: ``NAME_A.txt``, ``NAME_graph_indicator.txt``, ...

    Node labels become one-hot columns ``tag=VALUE``, before the columns of node attributes.
    Attributes of graphs are their labels where there are no graph labels: regression.
    """
    folder = Path(folder)
    members = sorted(path.name for path in folder.glob(f"*{TU_MEMBERS}"))
    if len(members) != 1:
        raise DatasetError(
            f"{folder} has {len(members)} files *{TU_MEMBERS}; it must have exactly one."
        )
    name = members[0].removesuffix(TU_MEMBERS)

    def table(what: str, dtype: Any = np.int64) -> np.ndarray | None:
        path = folder / f"{name}_{what}.txt"
        if not path.is_file():
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # NumPy's, of an empty file
                return np.loadtxt(path, dtype, delimiter=",", ndmin=2, encoding="utf-8")
        except (ValueError, OSError) as error:
            raise DatasetError(f"{path} cannot be read: {first_line(error)}.") from None

    indicator, pairs = table("graph_indicator"), table("A")
    if indicator is None or pairs is None:
        raise DatasetError(f"{folder} has no {name}_A.txt.")
    owner, labels = indicator[:, 0] - 1, table("graph_labels")
    classes, values = None, table("graph_attributes", np.float64)
    values = None if values is None else values[:, 0]
    if labels is not None:
        classes, values = np.unique(labels[:, 0], return_inverse=True)
    count = owner.size if values is None else len(values)  # of graphs, at most
    tags = table("node_labels")
    try:
        if (np.diff(owner) < 0).any() or owner.min(initial=0) < 0:
            raise ValueError(f"{name}{TU_MEMBERS} must increase from 1, graph by graph")
        if owner.max(initial=-1) >= count:
            raise ValueError(f"{name}{TU_MEMBERS} has a graph {owner.max() + 1:,} of {count:,}")
        sizes = np.bincount(owner, minlength=0 if values is None else count)
        features, names = tag_features(owner.size, tags, table("node_attributes", np.float32))
        block = Graph.from_edges(pairs - 1, features, feature_names=names)
        if np.diff(owner[pairs - 1]).any():
            raise ValueError(f"an edge in {name}_A.txt connects two graphs")
    except ValueError as error:
        raise DatasetError(f"{folder} is damaged: {first_line(error)}.") from None
    class_names = None if classes is None else [*map(str, classes)]
    return _set_of(block, sizes, values, class_names=class_names, name=name)


def _set_of(block: Graph, sizes: Any, labels: Any, **options: Any) -> GraphSet:
    options = {"feature_names": block.feature_names} | options
    offsets = np.append(0, np.cumsum(sizes))
    return GraphSet(block.adjacency, block.features, offsets, labels, **options)
