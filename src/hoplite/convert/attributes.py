"""Graphs whose nodes have named columns: frames, NetworkX and igraph.

All of them become a node table and an edge table, so one set of rules holds: that of
:func:`hoplite.datasets.read_tables`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hoplite.datasets.tables import edge_type, read_preparation, tables_graph
from hoplite.errors import DatasetError, GraphError, HopliteError, nearest_hint
from hoplite.labels import kind_of
from hoplite.preparation import TableOptions
from hoplite.structural import with_structural

if TYPE_CHECKING:
    from hoplite.graph import Graph

NODES, EDGES = "nodes", "edges"
NO_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def from_frames(
    nodes: Any,
    edges: Any,
    *,
    id: str = "id",
    label: str | None = "label",
    split: str | None = "split",
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    features: Sequence[str] | None = None,
    seed: int = 0,
    structural: int | None = None,
    link: bool = False,
    name: str = "graph",
    **preparing: Any,
) -> Graph:
    """See :meth:`hoplite.Graph.from_frames`."""
    held, table, prepare = (
        arrow_table(nodes, NODES),
        arrow_table(edges, EDGES),
        preparing.get("prepare"),
    )
    node_names = remembered({"id": id, "label": label, "split": split}, prepare, held.column_names)
    edge_names = {"source": source, "target": target, "weight": weight}
    edge_names = remembered(edge_names, prepare, table.column_names)
    node_table = _renamed(held, NODES, node_names, ("id",), features)
    typed = edge_type(prepare, preparing)
    types = [typed] if typed in table.column_names else []
    edge_table = _renamed(table, EDGES, edge_names, ("source", "target"), types)
    try:
        graph = tables_graph(node_table, edge_table, seed=seed, name=name, **preparing)
    except DatasetError as error:  # which calls columns as tables do
        text = str(error)
        for argument, roles in ((NODES, node_names), (EDGES, edge_names)):
            for role, own in roles.items():
                text = text.replace(
                    f"column {role!r} of {argument} ", f"column {own!r} of {argument} "
                )
        raise DatasetError(text) from error
    return with_structural(_told(graph, node_names | edge_names), structural, link=link)


def remembered(
    names: Mapping[str, str | None], prepare: Any, there: Collection[Any]
) -> dict[str, str | None]:
    """The column of each role; of one that is not named, that of ``prepare`` if it is ``there``.

    >>> from hoplite.preparation import Preparation
    >>> prepare = Preparation(TableOptions(weight="euros"))
    >>> remembered({"source": "payer", "weight": "weight"}, prepare, ["payer", "euros"])
    {'source': 'payer', 'weight': 'euros'}
    """
    own = read_preparation(prepare, {}).options
    kept = {role: getattr(own, role, role) for role in names}
    return {
        role: kept[role] if name == role and kept[role] in there else name
        for role, name in names.items()
    }


def _told(graph: Graph, names: Mapping[str, str | None]) -> Graph:
    """The same graph, whose preparation knows how the columns were called."""
    found = graph.preparation
    if found is None:
        return graph
    known = {one.name for one in fields(TableOptions)}
    named = {role: name for role, name in names.items() if name is not None and role in known}
    found = replace(found, options=replace(found.options, **named))
    return graph.with_features(graph.features, graph.feature_names, preparation=found)


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


def _renamed(
    table: pa.Table,
    argument: str,
    roles: Mapping[str, str | None],
    required: Sequence[str],
    others: Sequence[str] | None,
) -> pa.Table:
    """The columns that the user calls otherwise under the names that tables give them.

    A role that is None has no column; besides, ``others`` are kept, all if None.
    """
    names = table.column_names
    for role, name in roles.items():
        if name != role and name is not None:
            _require(name, names, role, argument)
            if role in names:
                raise DatasetError(
                    f"{argument} has a column {role!r} although {role}={name!r} is given; rename "
                    "that column or leave it out."
                )
    for name in others or ():
        _require(name, names, "features", argument)
    chosen = {name: role for role, name in roles.items() if name in names}
    if others is None:
        left = {role for role, name in roles.items() if name is None}
        kept = [name for name in names if name in chosen or name not in left]
    else:
        kept = [name for name in names if name in chosen or name in others]
    if not kept or any(role not in chosen.values() for role in required):
        kept = names  # whoever reads the table says what it lacks
    return table.select(kept).rename_columns([chosen.get(name, name) for name in kept])


def _require(name: str, names: Sequence[str], option: str, argument: str) -> None:
    if name not in names:
        raise DatasetError(
            f"{option} is {name!r}, but {argument} has no such column.{nearest_hint(name, names)}"
        )


def from_networkx(
    graph: Any,
    *,
    features: Sequence[str] | None = None,
    label: str | None = "label",
    split: str | None = "split",
    weight: str | None = "weight",
    seed: int = 0,
    structural: int | None = None,
    **preparing: Any,
) -> Graph:
    """See :meth:`hoplite.Graph.from_networkx`."""
    nodes = list(graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    prepare = preparing.get("prepare")
    typed, named = edge_type(prepare, preparing), {"weight": weight}
    named = remembered(
        named, prepare, {*chain.from_iterable(d for *_, d in graph.edges(data=True))}
    )
    _refuse_undirected(graph.is_directed(), preparing)
    edges = [
        (place[u], place[v], data.get(named["weight"]), data.get(typed))
        for u, v, data in graph.edges(data=True)
    ]
    attributes = dict.fromkeys(chain.from_iterable(graph.nodes.values()))
    columns = {name: [data.get(name) for data in graph.nodes.values()] for name in attributes}
    options = {"features": features, "label": label, "split": split} | preparing
    found = attributed_graph(
        nodes, columns, edges, options, seed=seed, structural=structural, name=graph.name or "graph"
    )
    return _told(found, named)


def from_igraph(
    graph: Any,
    *,
    features: Sequence[str] | None = None,
    label: str | None = "label",
    split: str | None = "split",
    weight: str | None = "weight",
    id: str = "name",
    seed: int = 0,
    structural: int | None = None,
    **preparing: Any,
) -> Graph:
    """See :meth:`hoplite.Graph.from_igraph`."""
    columns = {name: graph.vs[name] for name in graph.vs.attributes()}
    nodes = columns.pop(id, range(graph.vcount()))
    prepare, there = preparing.get("prepare"), graph.es.attributes()
    named = remembered({"weight": weight}, prepare, there)
    weighted = named["weight"] in there
    weights = graph.es[named["weight"]] if weighted else [None] * graph.ecount()
    typed = edge_type(prepare, preparing)
    _refuse_undirected(graph.is_directed(), preparing)
    types = graph.es[typed] if typed in graph.es.attributes() else [None] * graph.ecount()
    edges = [
        (u, v, w, t) for (u, v), w, t in zip(graph.get_edgelist(), weights, types, strict=True)
    ]
    options = {"features": features, "label": label, "split": split} | preparing
    found = attributed_graph(nodes, columns, edges, options, seed=seed, structural=structural)
    return _told(found, named)


def _refuse_undirected(directed: bool, options: Mapping[str, Any]) -> None:
    if options.get("directed") and not directed:
        raise GraphError("directed is True but the graph is not directed; leave it out.")


def attributed_graph(
    nodes: Iterable[Any],
    columns: Mapping[Any, Sequence[Any]],
    edges: Sequence[tuple[int, int, Any, Any]],
    options: Mapping[str, Any],
    *,
    seed: int,
    structural: int | None,
    name: str = "graph",
) -> Graph:
    """The graph of named nodes with one value per node in each of ``columns``, None for a gap.

    ``edges`` are (source, target, weight, type) by the numbers of the nodes; a weight of None is 1.
    ``options`` are :func:`from_frames`'s ``features``, ``label`` and ``split``, and those of tables
    that say how columns are prepared. A column ``id`` is the nodes' own name once more, and no
    feature.
    """
    nodes = tuple(nodes)
    if not nodes:
        raise DatasetError("graph has no nodes; give one that has some.")
    wanted = [options[role] for role in ("label", "split") if options[role] is not None]
    wanted += options["features"] or ()
    made = {
        str(key): _column(values, str(key))
        for key, values in columns.items()
        if key != "id" and (options["features"] is None or key in wanted)
    }
    sources, targets, weights, types = zip(*edges, strict=True) if edges else ((),) * 4
    table = {"source": pa.array(sources, pa.int64()), "target": pa.array(targets, pa.int64())}
    if any(weight is not None for weight in weights):
        table["weight"] = _column([1 if w is None else w for w in weights], "weight")
    typed = edge_type(options.get("prepare"), options)
    if typed and types:
        table[typed] = _column(types, typed)
    found = from_frames(
        pa.table({"id": pa.array(range(len(nodes)), pa.int64()), **made}),
        pa.table(table),
        seed=seed, structural=structural, name=name, **options,
    )  # fmt: skip
    return found.with_node_ids(nodes)


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
    """See :meth:`hoplite.Graph.to_networkx`."""
    try:
        import networkx
    except ImportError as error:
        raise HopliteError("to_networkx needs networkx; run `pip install networkx`.") from error
    graph.refuse_relations("to_networkx")
    made = networkx.Graph(name=graph.name)
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    names = graph.feature_names or [f"x{j}" for j in range(graph.num_features)]
    for start in range(0, graph.num_nodes, 1024):
        rows = graph.feature_rows(start, min(start + 1024, graph.num_nodes)).tolist()
        for node, row in zip(ids[start : start + 1024], rows, strict=True):
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
