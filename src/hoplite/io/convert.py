"""Graphs of other libraries and GraphML files, which become a :class:`hoplite.Graph`, and back.

No library is imported here before an object of it is met. Those whose nodes have named columns
(frames, NetworkX, igraph) become a node table and an edge table, so one set of rules holds: that of
:func:`hoplite.io.read_tables`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np
import scipy.sparse as sp

from hoplite.csr import as_array, as_csr, without_torch
from hoplite.errors import (
    DatasetError,
    GraphError,
    HopliteError,
    require_extra,
    warn,
)
from hoplite.files import open_regular, reading
from hoplite.graph import PARTS, Graph, Split, relations_of
from hoplite.io.sources import Workspace, frame_table, is_frame
from hoplite.io.splits import masked_split, stratified_split
from hoplite.io.tables import Reading, graph_of, require_columns, sorted_classes
from hoplite.labels import NUMBERS, UNKNOWN_LABEL, check_task, known_labels, label_type
from hoplite.machine import find, quiet
from hoplite.preparation import TableOptions, refuse_options
from hoplite.structural import count_of_model, link_of_model, with_structural

if TYPE_CHECKING:
    import torch

MAX_XML = 1 << 30  # bytes of GraphML: NetworkX takes several times as much memory
XML_DAMAGE = (
    expat.ExpatError, AttributeError, KeyError, OverflowError, SyntaxError, TypeError, ValueError,
)  # fmt: skip
KNOWN = "a graph of PyTorch Geometric, NetworkX, igraph, DGL or SciPy, or a pair of data frames"


def converted(
    source: Any, /, *, seed: int | None = None, prepare: Any = None, **options: Any
) -> Any:
    """``source`` as a Graph if it is another library's, and otherwise ``source`` itself.

    ``options`` are those of the ``from_...`` function that reads it; ``prepare`` is for those that
    have named columns.

    >>> converted(sp.eye_array(3, k=1), structural=0)
    Graph(nodes=3, edges=2, features=2, classes=0)
    >>> converted("cora")
    'cora'
    """
    libraries = [class_.__module__.partition(".")[0] for class_ in type(source).__mro__]
    library = next((name for name in libraries if name in READERS), None)
    if library is None and not _is_pair(source):
        return source
    if options.get("structural") is None:  # as in the model's training
        options["structural"] = count_of_model(prepare)
    options["link"] = options.get("link", False) or link_of_model(prepare)
    if library in ARRAYS:
        parameters = signature(READERS[library]).parameters
        others = {
            name: options.pop(name, None) for name in TableOptions.names() if name not in parameters
        }
        refuse_options(f"a {library} graph", others)
    elif prepare is not None:
        options["prepare"] = prepare
    if library is None:
        return from_frames(*source, seed=seed, **options)
    return READERS[library](source, seed=seed, **options)


def _is_pair(source: Any) -> bool:
    pair = isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 2
    return pair and all(is_frame(table) for table in source)


def from_scipy(
    adjacency: Any,
    features: Any = None,
    labels: Any = None,
    *,
    split: Split | None = None,
    seed: int | None = None,
    structural: int | None = None,
    link: bool = False,
    task: str | None = None,
    directed: bool = False,
    **names: Any,
) -> Graph:
    """Convert a SciPy sparse matrix, or a dense one, of edge weights.

    Parameters
    ----------
    adjacency : (n, n) sparse or dense matrix
        It need not be symmetric: if the two directions of a pair differ, the larger weight is used.
    features : (n, d) array or sparse matrix, optional
        Features of the nodes; structural features if missing.
    labels : (n,) integers, floats or text, optional
        Negative integers, NaN, None and empty text are unknown. Floats are numbers to predict, and
        so are integers if ``task="regression"``; with ``task="classification"`` both are classes.
    split : Split, optional
        Training, validation and test nodes.
    seed : int, optional
        Seed of the stratified split that is drawn if ``split`` is missing; 0 by default.
    structural, link
        As for :func:`from_frames`.
    task : str, optional
        What the labels are, see :meth:`hoplite.Graph.for_task`.
    directed : bool, default False
        Keep the direction of edges, from rows to columns.
    **names
        Other arguments of :class:`hoplite.Graph`, such as ``class_names``.

    Returns
    -------
    Graph

    Examples
    --------
    >>> from_scipy(sp.eye_array(3, k=1), np.eye(3), ["no", "yes", None]).class_names
    ('no', 'yes')
    """
    adjacency = without_torch(adjacency)
    if not sp.issparse(adjacency):
        adjacency = sp.csr_array(as_array(adjacency, "adjacency"))
    matrix = as_csr(adjacency, "adjacency")
    if matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency has shape {matrix.shape}; it must be square.")
    relations = relations_of(matrix, directed=True) if directed else ()
    matrix = matrix.maximum(matrix.T)
    if features is None:
        features = np.empty((matrix.shape[0], 0), np.float32)
    classes, class_names = coded_labels(labels, task)
    options: dict[str, Any] = {"class_names": class_names} | names
    graph = Graph(matrix, features, classes, split=split, relations=relations, **options)
    return _finished(graph.for_task(task), seed, structural, link)


def from_pyg(
    data: Any,
    *,
    task: str | None = None,
    directed: bool = False,
    type: str | None = None,
    **options: Any,
) -> Graph:
    """Convert a ``torch_geometric.data.Data`` object.

    The graph gets its x, edge_index (or adj_t), y and masks. Edge weights are ``edge_weight``, or
    an ``edge_attr`` with one column.

    Parameters
    ----------
    data : torch_geometric.data.Data
        A node has no label if its y is NaN or, of integers, negative.
    task : str, optional
        What the labels are. If y is float, or with "regression", they are numbers to predict.
    directed : bool, default False
        Keep the direction of edges.
    type : str, optional
        Attribute with the edge types, such as ``"edge_type"``.
    split : int, optional
        Which column of the masks to use if they have several; the first by default.
    seed : int, optional
        Seed of the stratified split that is drawn if there are no masks; 0 by default.
    structural, link
        As for :func:`from_frames`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> from_pyg(data)
    Graph(nodes=3, edges=2, features=3, classes=0)
    """
    pyg, utils = find("torch_geometric.data"), find("torch_geometric.utils")
    if pyg is not None and isinstance(data, pyg.Dataset) and len(data) == 1:
        data = data[0]
    if pyg is None or utils is None or not isinstance(data, pyg.Data):
        raise GraphError(
            f"data is a {data.__class__.__name__}; pass a torch_geometric.data.Data: a single "
            "graph with one node type."
        )
    import torch

    with quiet():
        if data.edge_index is not None:
            pairs, weights = data.edge_index, data.get("edge_weight")
            weights = data.edge_attr if weights is None else weights
        elif data.get("adj_t") is not None:
            pairs, weights = utils.to_edge_index(data.adj_t)
        else:
            pairs, weights = torch.empty(2, 0, dtype=torch.int64), None
    tensors = {"x": data.get("x"), "y": data.get("y"), "weights": weights}
    masks = {part: data.get(f"{part}_mask") for part in PARTS}
    return _tensor_graph(
        pairs, data.num_nodes, tensors | masks, _edge_types(data, type), task, directed, **options
    )


def from_dgl(
    graph: Any,
    *,
    features: str = "feat",
    label: str = "label",
    weight: str = "weight",
    task: str | None = None,
    directed: bool = False,
    type: str | None = None,
    **options: Any,
) -> Graph:
    """Convert a DGL graph with one type of nodes and one type of edges.

    Parameters
    ----------
    graph : dgl.DGLGraph
        Its masks are ``train_mask``, ``val_mask`` and ``test_mask`` in ``graph.ndata``.
    features, label : str, default "feat" and "label"
        Names of the features and the labels in ``graph.ndata``.
    weight : str, default "weight"
        Name of the edge weights in ``graph.edata``.
    task, directed
        As for :func:`from_pyg`.
    type : str, optional
        Name of the edge types in ``graph.edata``.
    **options
        ``split``, ``seed``, ``structural`` and ``link``, as for :func:`from_pyg`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> graph = from_dgl(dgl.data.CoraGraphDataset()[0])  # doctest: +SKIP
    """
    if not getattr(graph, "is_homogeneous", False):
        raise GraphError(
            "graph has several node or edge types; pass a graph with one type of each."
        )
    import torch

    nodes, edges = graph.ndata, graph.edata
    tensors = {"x": nodes.get(features), "y": nodes.get(label), "weights": edges.get(weight)}
    masks = {part: nodes.get(f"{part}_mask") for part in PARTS}
    pairs, types = torch.stack(graph.edges()), _edge_types(edges, type)
    return _tensor_graph(
        pairs, graph.num_nodes(), tensors | masks, types, task, directed, **options
    )


def from_frames(
    nodes: Any, edges: Any, *, structural: int | None = None, link: bool = False, **options: Any
) -> Graph:
    """Convert a node table and an edge table of pandas, Polars or Arrow.

    The rules are those of :func:`hoplite.io.read_tables`: ids and labels may be text, and every
    other column is a feature.

    Parameters
    ----------
    nodes, edges : data frames
        The two tables. A named pandas index is read as a column.
    id, label, split : str
        Columns of ``nodes``, if they have other names; None for ``label`` or ``split`` if there is
        no such column.
    source, target, weight : str
        Columns of ``edges``, if they have other names.
    features : sequence of str, optional
        Columns that are features; by default all other columns.
    seed : int, optional
        Seed of a stratified 60/20/20 split, for tables without a split column. Without it, all
        labelled nodes are training nodes.
    structural : int, optional
        Number of structural features to add; by default only graphs without features get them.
    link : bool, default False
        Add the rows of the adjacency matrix as features.
    name : str, default "graph"
        Name of the graph in reports.
    directed : bool, default False
        Keep the direction of edges.
    type : str, optional
        Column of ``edges`` with the edge types (:class:`~hoplite.graph.Relation`).
    unknown_nodes, prepare, scale, gaps, categories
        As for :func:`hoplite.io.read_tables`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import pandas as pd
    >>> nodes = pd.DataFrame({"who": ["ann", "bob", "cem"], "age": [3, 1, 2]})
    >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "cem"]})
    >>> from_frames(nodes, edges, id="who")
    Graph(nodes=3, edges=2, features=1, classes=0)
    """
    return with_structural(_frames_graph(nodes, edges, **options), structural, link=link)


def from_networkx(
    graph: Any, *, structural: int | None = None, link: bool = False, **options: Any
) -> Graph:
    """Convert a NetworkX graph of any type; its nodes become the ``node_ids``.

    Node attributes are read as the columns of a node table (see :func:`from_frames`): text becomes
    one-hot, and None or a missing attribute is a missing value. If only some edges have a weight,
    the others have weight 1.

    Parameters
    ----------
    graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
        Its nodes may be text.
    features : sequence of str, optional
        Attributes that are features; by default all except ``id``, the label and the split.
    label, split : str or None
        Node attributes, if they have other names; None if there is no such attribute.
    weight : str or None
        Edge attribute with the weight, if it has another name; None to ignore weights.
    directed : bool, default False
        Keep the direction of the edges of a DiGraph.
    type : str, optional
        Edge attribute with the edge type.
    seed, structural, link, prepare, scale, gaps, categories
        As for :func:`from_frames`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import networkx as nx
    >>> from_networkx(nx.karate_club_graph(), label="club", structural=4).class_names
    ('Mr. Hi', 'Officer')
    """
    return with_structural(networkx_graph(graph, **options), structural, link=link)


def from_igraph(graph: Any, *, id: str = "name", **options: Any) -> Graph:
    """Convert an igraph graph.

    Parameters
    ----------
    graph : igraph.Graph
        The graph.
    id : str, default "name"
        Vertex attribute with the ``node_ids``.
    **options
        As for :func:`from_networkx`.

    Returns
    -------
    Graph

    Raises
    ------
    GraphError
        If two vertices have the same id.

    Examples
    --------
    >>> import igraph
    >>> from_igraph(igraph.Graph.Ring(5), structural=2).num_edges
    5
    """
    require_extra("convert", "from_igraph", "networkx")
    plain, names = plain_igraph(graph, id)
    return from_networkx(plain, **options).with_node_ids(names)


def plain_igraph(graph: Any, id: str = "name") -> tuple[Any, list[Any]]:
    """An igraph graph as one of NetworkX, and the ids of its nodes, which may repeat."""
    plain = graph.to_networkx(vertex_attr_hashable="_igraph_index")
    nodes = plain.nodes.items()  # "_nx_name" is what igraph calls nodes that came from NetworkX
    return plain, [data.pop(id, data.pop("_nx_name", node)) for node, data in nodes]


def _frames_graph(
    nodes: Any,
    edges: Any,
    *,
    split: str | None = "split",
    features: Sequence[str] | None = None,
    prepare: Any = None,
    seed: int | None = None,
    name: str = "graph",
    **options: Any,
) -> Graph:
    defaults = Reading.of(prepare, {}).options
    with Workspace() as work:
        node_table = frame_table(work, nodes, "nodes")
        edge_table = frame_table(work, edges, "edges")
        for role in ("id", "label", "source", "target", "weight"):
            table = node_table if role in ("id", "label") else edge_table
            if role not in options and getattr(defaults, role) not in table.names:
                options |= {role: role} if role in table.names else {}  # not as a model names it
        reading = Reading.of(prepare, options)
        if split is None or options.get("label", "") is None:
            node_table = node_table.without("split" if split is None else defaults.label)
        if split not in (None, "split"):
            split = str(split).strip()  # as the names of the table
            require_columns(node_table, [split])
            node_table = node_table.renamed(split, "split")
        if options.get("weight", "") is None:
            edge_table = edge_table.without(defaults.weight)
        if features is not None:
            features = [str(name).strip() for name in features]
            require_columns(node_table, features)
            chosen = {reading.options.id, reading.options.label, "split", *features}
            node_table = node_table.without(
                *(column for column in node_table.names if column not in chosen)
            )
        return graph_of(work, node_table, edge_table, reading, seed, name)


def networkx_graph(graph: Any, **options: Any) -> Graph:
    """As :func:`from_networkx`, without structural features."""
    if not len(graph):
        raise DatasetError("graph has no nodes; pass a graph with at least one node.")
    if options.get("directed") and not graph.is_directed():
        raise GraphError("directed is True but the graph is undirected; leave it out.")
    names = Reading.of(options.get("prepare"), {}).options
    edges = list(graph.edges(data=True))
    attributes = {name for *_, data in edges for name in data}
    weight = options.get("weight", names.weight)
    if "weight" not in options and weight not in attributes:  # a model's
        weight = "weight"
    typed = options.get("type") or names.type
    number = {node: i for i, node in enumerate(graph.nodes)}
    features, rows = options.get("features"), graph.nodes.values()
    needed = {options.get("label", names.label), options.get("split", "split"), *(features or ())}
    node_table = {names.id: np.arange(len(number))} | {
        str(key): _column([data.get(key) for data in rows])
        for key in dict.fromkeys(key for data in rows for key in data)
        if key != "id" and (features is None or key in needed)  # the id repeats the node
    }
    edge_table = {
        names.source: np.array([number[u] for u, *_ in edges], np.int64),
        names.target: np.array([number[v] for _, v, _ in edges], np.int64),
    }
    if weight in attributes:
        weights = [data.get(weight) for *_, data in edges]
        edge_table[weight] = _column([1 if value is None else value for value in weights])
    if typed in attributes:
        edge_table[typed] = _column([data.get(typed) for *_, data in edges])
    options |= {"weight": weight, "name": graph.name or "graph"}
    return _frames_graph(node_table, edge_table, **options).with_node_ids(tuple(number))


def _column(values: Sequence[Any]) -> np.ndarray:
    """One attribute of all nodes or edges, as objects."""
    column = np.empty(len(values), object)
    column[:] = [value.item() if isinstance(value, np.generic) else value for value in values]
    return column


def read_graphml(path: str | Path, *, seed: int | None = None, **options: Any) -> Graph:
    """Read a GraphML file; node attributes are read as the columns of a node table.

    ``label`` and ``split`` mean the same as in a node table, and ``id`` is not a feature. The edge
    attribute ``weight`` is the weight. Attributes have the default values of their keys, and
    drawings of yEd are ignored. Nested graphs, hyperedges and document types are rejected.

    Parameters
    ----------
    path : path
        The file.
    seed : int, optional
        As for :func:`hoplite.load`.
    **options
        Options of tables, see :class:`hoplite.TableOptions`. ``directed`` keeps the direction of
        edges, and ``type`` names the edge attribute with their type.

    Returns
    -------
    Graph
        Without features if nodes have no attributes; :func:`hoplite.load` adds structural features.

    Examples
    --------
    >>> import tempfile
    >>> node, edge = '<node id="{}"/>'.format, '<edge source="{}" target="{}"/>'.format
    >>> body = node("a") + node("b") + edge("a", "b")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "pair.graphml")
    ...     _ = path.write_text(f"<graphml><graph>{body}</graph></graphml>")
    ...     read_graphml(path).node_ids
    ('a', 'b')
    """
    require_extra("convert", "reading GraphML", "networkx")
    import networkx

    path = Path(path)
    with reading(path, "GraphML file", damage=(networkx.NetworkXError, *XML_DAMAGE)), quiet():
        graphs, nodes, attributes = _declared(path)
        graph = networkx.read_graphml(path)
        if graphs != 1:
            raise ValueError(f"it has {graphs:,} graphs, not one")
        if nodes != len(graph):
            raise ValueError("a node is declared twice, or an edge refers to an undeclared node")
    defaults = graph.graph.get("node_default", {})
    for node, data in graph.nodes.items():
        complete = {name: data.get(name, defaults.get(name)) for name in attributes}
        graph.nodes[node].clear()
        graph.nodes[node].update((k, value) for k, value in complete.items() if value is not None)
    for *_, data in graph.edges(data=True):
        data.update(graph.graph.get("edge_default", {}) | data)
    graph.graph = {"name": path.stem}
    try:
        return networkx_graph(graph, seed=seed, **options)
    except DatasetError as error:
        raise DatasetError(f"in {path}: {error}") from error


def _declared(path: Path) -> tuple[int, int, list[str]]:
    """The number of graphs and of nodes, and the names of the nodes' attributes.

    ValueError if the file declares a document type.
    """
    counts: Counter[str] = Counter()
    names: dict[str, None] = {}

    def start(element: str, about: dict[str, str]) -> None:
        name = element.rpartition(" ")[2]
        counts[name] += 1
        if name == "key" and about.get("for", "all") in ("node", "all") and "attr.name" in about:
            names[about["attr.name"]] = None

    def refuse_doctype(*_: Any) -> None:
        raise ValueError(
            "it contains a DOCTYPE declaration, which GraphML does not need; remove it"
        )

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, refuse_doctype
    with open_regular(path, MAX_XML) as file:
        parser.ParseFile(file)
    return counts["graph"], counts["node"], list(names)


def to_networkx(graph: Graph) -> Any:
    """Convert a graph to a ``networkx.Graph``.

    Parameters
    ----------
    graph : Graph
        The graph to convert; it must have no directions and types of edges.

    Returns
    -------
    networkx.Graph
        Its nodes are the ``node_ids``, or 0 .. n - 1. Features, ``label`` (the name of the class)
        and ``split`` are node attributes, and ``weight`` is an edge attribute.

    Notes
    -----
    Features are those of the graph, not the cells of a table: they are scaled, filled and one-hot.
    ``from_networkx(..., scale="none")`` leaves them unchanged and therefore returns the same graph.

    Examples
    --------
    >>> path = Graph.from_edges([(0, 1)], [[1.0], [2.0]], node_ids=["ann", "bob"])
    >>> list(to_networkx(path).edges)
    [('ann', 'bob')]
    """
    require_extra("convert", "to_networkx", "networkx")
    import networkx

    graph.refuse_relations("to_networkx")
    converted = networkx.from_scipy_sparse_array(graph.adjacency)
    converted.name = graph.name
    names = graph.feature_names or [f"x{j}" for j in range(graph.num_features)]
    for node, row in enumerate(graph.feature_rows(0, graph.num_nodes).tolist()):
        converted.nodes[node].update(zip(names, row, strict=True))
    type_ = label_type(graph.labels)
    for i in np.flatnonzero(type_.is_known(graph.labels)):
        converted.nodes[i]["label"] = type_.text(graph.labels[i], graph.class_names)
    for part in graph.split.sizes():
        for i in getattr(graph.split, part):
            converted.nodes[i]["split"] = part
    if graph.node_ids is None:
        return converted
    return networkx.relabel_nodes(converted, dict(enumerate(graph.node_ids)))


READERS = {
    "dgl": from_dgl,
    "igraph": from_igraph,
    "networkx": from_networkx,
    "scipy": from_scipy,
    "torch_geometric": from_pyg,
}
ARRAYS = ("dgl", "scipy", "torch_geometric")  # libraries whose nodes have no named columns


def _edge_types(values: Any, name: str | None) -> list[Any] | None:
    """The tensor ``name`` of what has ``values`` by name, one per edge; None if none is named."""
    if not name:
        return None
    types = values.get(name)
    if types is None:
        raise GraphError(f"type is {name!r}, but data has no edge attribute of this name.")
    return without_torch(types).ravel().tolist()


def _tensor_graph(
    pairs: torch.Tensor,
    nodes: int,
    tensors: dict[str, torch.Tensor | None],
    types: list[Any] | None,
    task: str | None,
    directed: bool,
    *,
    split: int | None = None,
    seed: int | None = None,
    structural: int | None = None,
    link: bool = False,
) -> Graph:
    """The graph of (2, e) pairs; ``tensors`` are x, y, weights and the masks of each part."""
    arrays = {name: without_torch(tensor) for name, tensor in tensors.items() if tensor is not None}
    classes, names = coded_labels(arrays.get("y"), task)
    weights = arrays.get("weights")
    if weights is not None and weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights is not None and weights.ndim > 1:
        warn(
            f"edges have {weights.shape[1]} attributes each, which cannot be used as weights; "
            "every edge gets weight 1.",
            stacklevel=4,
        )
        weights = None
    x = arrays.get("x", np.empty((nodes, 0), np.float32))
    masks = {part: arrays[part] for part in PARTS if part in arrays}
    graph = Graph.from_edges(
        without_torch(pairs).T,
        x[:, None] if x.ndim == 1 else x,
        classes,
        weights=weights,
        directed=directed,
        types=types,
        split=masked_split(masks, split, classes, "from the masks"),
        class_names=names,
    )
    return _finished(graph.for_task(task), seed, structural, link)


def _finished(graph: Graph, seed: int | None, structural: int | None, link: bool) -> Graph:
    """With a split if there are labels and none is given, and features if there are none."""
    labelled = known_labels(graph.labels).any()
    if labelled and not any(graph.split.sizes().values()):
        graph = graph.with_split(stratified_split(graph.labels, seed or 0))
    return with_structural(graph, structural, link=link)


def coded_labels(
    labels: Any, task: str | None = None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels as a Graph takes them, and the names of the classes if they are no integers.

    Integers are classes unless the ``task`` is regression, floats are numbers, and several columns
    are several labels. Unknown are negative classes, NaN, None and empty text.

    >>> coded_labels(["b", None, "a"])
    (array([ 1, -1,  0]), ('a', 'b'))
    >>> coded_labels([2.0, float("nan")])[0]
    array([ 2., nan])
    """
    if labels is None:
        return None, None
    values = np.asarray(without_torch(labels))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim > 2:
        raise GraphError(
            f"labels has shape {values.shape}; pass one label, or one row of labels, per node."
        )
    numbers = "biuf" if check_task(task) == NUMBERS.task else "f"
    if values.ndim == 2 or values.dtype.kind in numbers:
        return values if values.ndim == 2 else values.astype(np.float64), None
    if values.dtype.kind in "iub":
        return np.maximum(values.astype(np.int64), UNKNOWN_LABEL), None
    text = ["" if v is None or v != v else str(v).strip() for v in values.tolist()]
    names = sorted_classes(sorted(set(text) - {""}))
    place = {name: i for i, name in enumerate(names)} | {"": UNKNOWN_LABEL}
    return np.array([place[name] for name in text], np.int64), tuple(names)


def to_pyg(graph: Graph) -> Any:
    """Convert a graph to a ``torch_geometric.data.Data`` object.

    Parameters
    ----------
    graph : Graph
        The graph to convert.

    Returns
    -------
    torch_geometric.data.Data
        With a dense x, every edge in both directions, y (-1 where unknown), the three masks, and
        ``edge_weight`` unless all weights are 1.

    Examples
    --------
    >>> to_pyg(Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)))
    Data(x=[3, 3], edge_index=[2, 4], y=[3], train_mask=[3], val_mask=[3], test_mask=[3])
    """
    pyg = find("torch_geometric.data")
    if pyg is None:
        raise HopliteError("to_pyg needs torch_geometric; run `pip install torch_geometric`.")
    import torch

    graph.refuse_relations("to_pyg")
    pairs = graph.adjacency.tocoo()
    data = pyg.Data(
        x=torch.from_numpy(np.array(graph.feature_rows(0, graph.num_nodes))),
        edge_index=torch.from_numpy(np.stack([pairs.row, pairs.col]).astype(np.int64)),
        y=torch.from_numpy(np.array(graph.labels)),
    )
    if (pairs.data != 1).any():
        data.edge_weight = torch.from_numpy(np.array(pairs.data))
    for part in PARTS:
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(np.array(getattr(graph.split, part)))] = True
        data[f"{part}_mask"] = mask
    return data
