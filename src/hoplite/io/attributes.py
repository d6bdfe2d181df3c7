"""Graphs whose nodes have named columns: frames, NetworkX and igraph.

All of them become a node table and an edge table, so one set of rules holds: that of
:func:`hoplite.io.read_tables`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoplite.errors import DatasetError, GraphError, nearest_hint, require_extra
from hoplite.io.tables import edge_type, read_preparation, tables_graph
from hoplite.labels import kind_of
from hoplite.structural import with_structural

if TYPE_CHECKING:
    from hoplite.graph import Graph

NODES, EDGES = "nodes", "edges"
ROLES = ("id", "label", "source", "target", "weight")  # two of nodes, three of edges
NO_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def from_frames(
    nodes: Any, edges: Any, *, structural: int | None = None, link: bool = False, **options: Any
) -> Graph:
    """Convert a table of nodes and one of edges, of pandas, Polars or Arrow.

    By the rules of node and edge tables, see :func:`hoplite.io.read_tables`: text ids, text labels,
    a feature per other column, text one-hot.

    Parameters
    ----------
    nodes, edges : frames
        The tables. A named index of pandas is a column.
    id, label, split : str
        Columns of ``nodes`` if they have other names; None for ``label`` and ``split`` if there
        are none.
    source, target, weight : str
        Columns of ``edges`` if they have other names.
    features : sequence of str, optional
        The columns that are features; all others if not given.
    seed : int, default 0
        Of the split, if labels come without one.
    structural : int, optional
        How many structural features; by default only a graph without features gets some.
    link : bool, default False
        Whether the rows of the adjacency are features, too.
    name : str, default "graph"
        Of the graph.
    directed, type
        Keep the direction of edges; the column of their types. See :mod:`hoplite.relations`.
    unknown_nodes, prepare, scale, gaps, categories
        How tables are read, as :func:`hoplite.io.read_tables` takes them.

    >>> nodes = pa.table({"who": ["ann", "bob", "cem"], "age": [3, 1, 2]})
    >>> edges = pa.table({"source": ["ann", "bob"], "target": ["bob", "cem"]})
    >>> from_frames(nodes, edges, id="who")
    Graph(nodes=3, edges=2, features=1, classes=0)
    """
    return with_structural(_frames_graph(nodes, edges, **options), structural, link=link)


def from_networkx(
    graph: Any, *, structural: int | None = None, link: bool = False, **options: Any
) -> Graph:
    """Convert a NetworkX graph of any type; its nodes, which may be text, are the ``node_ids``.

    Attributes of nodes are columns by the rules of node tables (see :func:`from_frames`): text
    becomes one-hot, None or no attribute is a gap, ``id`` is not a feature. Edges without a weight
    among others with one count 1.

    Parameters
    ----------
    graph : networkx.Graph
        Or a DiGraph, MultiGraph, MultiDiGraph.
    features : sequence of str, optional
        Attributes that are features; by default all that are not label or split.
    label, split, weight : str or None
        Attributes of nodes, and of edges, if they have other names; None for none.
    directed, type
        Keep the direction of the edges of a DiGraph; the attribute of edges that is their type.
    seed, structural, link, prepare, scale, gaps, categories
        As in :func:`from_frames`.

    >>> import networkx as nx
    >>> from_networkx(nx.karate_club_graph(), label="club", structural=4).class_names
    ('Mr. Hi', 'Officer')
    """
    return with_structural(networkx_graph(graph, **options), structural, link=link)


def from_igraph(
    graph: Any, *, structural: int | None = None, link: bool = False, **options: Any
) -> Graph:
    """Convert an igraph graph, with the options of :func:`from_networkx`.

    ``id``, an attribute of its vertices, ``"name"`` by default, has the ``node_ids``.
    """
    return with_structural(_igraph_graph(graph, **options), structural, link=link)


def _frames_graph(
    nodes: Any,
    edges: Any,
    *,
    split: str | None = "split",
    features: Sequence[str] | None = None,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    node_table, edge_table = arrow_table(nodes, NODES), arrow_table(edges, EDGES)
    names = read_preparation(prepare, {}).options
    for role, table in zip(ROLES, (node_table,) * 2 + (edge_table,) * 3, strict=True):
        column = getattr(names, role)  # a model's, which this table may name otherwise
        if role not in options and column not in table.column_names and role in table.column_names:
            options[role] = role
    node_options = {role: options.get(role, getattr(names, role)) for role in ("id", "label")}
    if split not in (None, "split"):
        _require(split, node_table, NODES)
        others = [name for name in node_table.column_names if name != "split"]
        node_table = node_table.select(others)
        node_table = node_table.rename_columns(["split" if n == split else n for n in others])
    elif split is None:
        node_table = _without(node_table, "split")
    if options.get("label", "") is None:
        node_table = _without(node_table, names.label)
    if options.get("weight", "") is None:
        edge_table = _without(edge_table, names.weight)
    if features is not None:
        for name in features:
            _require(name, node_table, NODES)
        kept = {*node_options.values(), "split", *features}
        node_table = node_table.select([n for n in node_table.column_names if n in kept])
    return tables_graph(node_table, edge_table, prepare=prepare, **options)


def _without(table: pa.Table, column: str) -> pa.Table:
    return table.drop_columns(column) if column in table.column_names else table


def _require(name: str, table: pa.Table, argument: str) -> None:
    if name not in table.column_names:
        hint = nearest_hint(name, table.column_names)
        raise DatasetError(f"{argument} has no column {name!r}.{hint}")


def is_frame(value: Any) -> bool:
    """Whether it is a table: pandas, Polars, Arrow, or what speaks Arrow's protocol."""
    return hasattr(value, "__arrow_c_stream__") or isinstance(value, pa.Table)


def arrow_table(frame: Any, argument: str) -> pa.Table:
    """A table of pandas, Polars or Arrow; DatasetError, which names ``argument``, if it is none."""
    if not is_frame(frame):
        raise DatasetError(
            f"{argument} is a {type(frame).__name__}; give a table of pandas, Polars or Arrow."
        )
    index = getattr(getattr(frame, "index", None), "name", None)  # pandas: a named index counts
    try:
        return pa.table(frame if index is None else frame.reset_index())
    except NO_ARROW as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DatasetError(
            f"{argument} cannot be read as a table ({reason}); give each column values of one type."
        ) from error


def networkx_graph(graph: Any, **options: Any) -> Graph:
    """As :func:`from_networkx`, without structural features."""
    edges = list(graph.edges(data=True))
    attributes = dict.fromkeys(name for *_, data in edges for name in data)
    weight, typed = _edge_attributes(options, attributes, graph.is_directed())
    number = {node: i for i, node in enumerate(graph.nodes)}
    table = [(number[u], number[v], data.get(weight), data.get(typed)) for u, v, data in edges]
    names = dict.fromkeys(name for data in graph.nodes.values() for name in data)
    columns = {name: [data.get(name) for data in graph.nodes.values()] for name in names}
    options |= {"weight": weight, "name": graph.name or "graph"}
    return _attributed_graph(number, columns, table, options)


def _igraph_graph(graph: Any, *, id: str = "name", **options: Any) -> Graph:
    columns = {name: graph.vs[name] for name in graph.vs.attributes()}
    nodes = columns.pop(id, range(graph.vcount()))
    attributes = graph.es.attributes()
    weight, typed = _edge_attributes(options, attributes, graph.is_directed())
    weights, types = (
        graph.es[name] if name in attributes else [None] * graph.ecount()
        for name in (weight, typed)
    )
    ends = graph.get_edgelist()
    table = [(u, v, w, t) for (u, v), w, t in zip(ends, weights, types, strict=True)]
    return _attributed_graph(nodes, columns, table, options | {"weight": weight})


def _edge_attributes(
    options: Mapping[str, Any], attributes: Collection[str], directed: bool
) -> tuple[str | None, str]:
    """The attributes that are the weights and the types of edges, None and "" for none."""
    if options.get("directed") and not directed:
        raise GraphError("directed is True but the graph is not directed; leave it out.")
    weight = options.get("weight", read_preparation(options.get("prepare"), {}).options.weight)
    if "weight" not in options and weight not in attributes:  # a model's
        weight = "weight"
    return weight, edge_type(options.get("prepare"), options)


def _attributed_graph(
    nodes: Iterable[Any],
    columns: Mapping[Any, Sequence[Any]],
    edges: Sequence[tuple[int, int, Any, Any]],
    options: Mapping[str, Any],
) -> Graph:
    """The graph of named nodes with one value per node in each of ``columns``, None for a gap.

    ``edges`` are (source, target, weight, type) by the numbers of the nodes; a weight of None is 1.
    ``options`` are those of :func:`from_frames`. A column ``id`` is the nodes' own name once more,
    and not a feature.
    """
    nodes, names = tuple(nodes), read_preparation(options.get("prepare"), {}).options
    if not nodes:
        raise DatasetError("graph has no nodes; give one that has some.")
    features = options.get("features")
    wanted = [options.get("label", names.label), options.get("split", "split"), *(features or ())]
    node_table = {names.id: pa.array(range(len(nodes)), pa.int64())} | {
        str(key): _column(values, str(key))
        for key, values in columns.items()
        if key != "id" and (features is None or key in wanted)
    }
    sources, targets, weights, types = zip(*edges, strict=True) if edges else ((),) * 4
    edge_table = {names.source: pa.array(sources, pa.int64())}
    edge_table[names.target] = pa.array(targets, pa.int64())
    if any(weight is not None for weight in weights):
        edge_table[options["weight"]] = _column([1 if w is None else w for w in weights], "weight")
    typed = edge_type(options.get("prepare"), options)
    if any(kind is not None for kind in types):
        edge_table[typed] = _column(types, typed)
    return _frames_graph(pa.table(node_table), pa.table(edge_table), **options).with_node_ids(nodes)


def _column(values: Sequence[Any], name: str) -> pa.Array:
    """One attribute of all nodes; NaN is a gap where the others are text."""
    try:
        if any(isinstance(value, str) for value in values):
            values = [None if value != value else value for value in values]
        return pa.array(values)
    except NO_ARROW as error:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise DatasetError(
            f"attribute {name!r} has values of the types {', '.join(kinds)}, which no column "
            "holds; give all nodes numbers, text, or lists of numbers of one length."
        ) from error


def to_networkx(graph: Graph) -> Any:
    """Convert to a ``networkx.Graph`` whose nodes are the ``node_ids``, or 0 .. n-1.

    Features, ``label`` (the name of the class) and ``split`` are attributes of nodes, ``weight`` of
    edges. Features are the graph's own, prepared: scaled, filled, one-hot, and not the cells of a
    table that they came from. :func:`from_networkx` with ``scale="none"``, which leaves them as
    they are, gives the same graph back.
    """
    require_extra("convert", "to_networkx", "networkx")
    import networkx

    graph.refuse_relations("to_networkx")
    made = networkx.Graph(name=graph.name)
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    names = graph.feature_names or [f"x{j}" for j in range(graph.num_features)]
    for node, row in zip(ids, graph.feature_rows(0, graph.num_nodes).tolist(), strict=True):
        made.add_node(node, **dict(zip(names, row, strict=True)))
    kind = kind_of(graph.labels)
    for i in np.flatnonzero(kind.known(graph.labels)):
        made.nodes[ids[i]]["label"] = kind.text(graph.labels[i], graph.class_names)
    for part in graph.split.sizes():
        for i in getattr(graph.split, part):
            made.nodes[ids[i]]["split"] = part
    pairs = graph.adjacency.tocoo()
    upper = pairs.row < pairs.col
    for u, v, w in zip(
        *(part[upper].tolist() for part in (pairs.row, pairs.col, pairs.data)), strict=True
    ):
        made.add_edge(ids[u], ids[v], weight=w)
    return made
