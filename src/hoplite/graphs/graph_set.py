"""GraphSet: many graphs with a label each, kept as one block-diagonal graph.

G graphs have n nodes in all. The nodes of graph g are ``offsets[g]`` .. ``offsets[g + 1] - 1``, so

    S = diag(S_1, .., S_G)   n x n        X = [X_1; ..; X_G]   n x d

and an operator on S is the operator of every graph. The arrays may be files
(:mod:`hoplite.graphs.files`), which :meth:`GraphSet.blocks` reads a range at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.csr import CsrMemory
from hoplite.errors import GraphError, nearest_hint, plural
from hoplite.formatting import Described, Description, Table, printable
from hoplite.graph import Graph, Split
from hoplite.io.array_files import NpyRows
from hoplite.labels import known_labels, label_type
from hoplite.preparation import Preparation

COLUMNS = ("num_features", "feature_names", "preparation")  # alike in all graphs of a set
BLOCK = 1 << 22  # values of nodes in a range of graphs
MAX_CACHED, MAX_BYTES = 16, 1 << 27  # results that are kept, and bytes of each


@dataclass(frozen=True, eq=False, repr=False)
class GraphSet(Described):
    """A set of graphs, each with a label: a class, a number or several labels.

    Parameters
    ----------
    adjacency : (n, n) sparse array
        Block-diagonal: no edge leaves its graph. Weights are not negative.
    features : (n, d) array or sparse array
        A row for each node; d may be 0, and models then use degrees.
    offsets : (G + 1,) integers
        The first node of each graph, and n.
    labels : (G,) integers or floats, or (G, m) of 0 and 1, optional
        As the labels of nodes of a :class:`hoplite.Graph`.
    split : Split, optional
        Training, validation and test graphs. Without it, all labelled graphs train, with folds.
    class_names, feature_names, graph_ids, node_ids : sequences, optional
        Names; those of nodes must be unique within each graph.
    name : str
        Name of the set in reports.
    preparation : Preparation, optional
        How the features came from the columns of a table.

    Examples
    --------
    >>> two = GraphSet.from_graphs(
    ...     [Graph.from_edges([(0, 1)], np.eye(2)), Graph.from_edges([], np.eye(2))], labels=[1, 0]
    ... )
    >>> two
    GraphSet(graphs=2, nodes=4, edges=1, features=2, classes=2)
    """

    adjacency: Any
    features: Any
    offsets: np.ndarray
    labels: Any = None
    split: Split | None = None
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    graph_ids: Sequence[Any] | None = None
    node_ids: Sequence[Any] | None = None
    name: str = "graphs"
    preparation: Preparation | None = None
    table: Graph = dataclasses.field(init=False)  # a node without edges for each graph

    def __post_init__(self) -> None:
        offsets = np.asarray(self.offsets, np.int64)
        n = self.edge_rows.rows
        steps = np.diff(offsets)
        if offsets.ndim != 1 or not len(steps) or offsets[0] or offsets[-1] != n or min(steps) < 0:
            raise GraphError(
                f"offsets must increase from 0 to {n:,}, the number of nodes, one entry per graph."
            )
        if self.features.shape[0] != n:
            raise GraphError(
                f"features has {plural(self.features.shape[0], 'row')} for {plural(n, 'node')}."
            )
        if self.node_ids is not None and len(self.node_ids) != n:
            raise GraphError(
                f"node_ids has {len(self.node_ids):,} entries for {plural(n, 'node')}."
            )
        split = Split() if self.split is None else self.split
        table = Graph(  # checks labels, split and names as those of nodes are checked
            sp.csr_array((len(steps), len(steps)), dtype=np.float32),
            np.empty((len(steps), 0), np.float32),
            self.labels,
            split,
            self.class_names,
            node_ids=self.graph_ids,
            name=self.name,
        )
        if self.split is None:
            known = np.flatnonzero(known_labels(table.labels))
            table = table.with_split(Split(known, note="all labels" if known.size else ""))
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "table", table)
        if self.feature_names is not None:
            object.__setattr__(self, "feature_names", tuple(map(str, self.feature_names)))
        for name in ("labels", "split", "class_names"):
            object.__setattr__(self, name, getattr(table, name))

    @classmethod
    def from_graphs(cls, graphs: Sequence[Graph], labels: Any = None, **options: Any) -> GraphSet:
        """Build a set from graphs whose features have the same columns.

        Parameters
        ----------
        graphs : sequence of Graph
        labels : array, optional
            The label of each graph.
        **options
            Other parameters of the set: ``split``, ``class_names``, ``graph_ids``, ``name``.

        Returns
        -------
        GraphSet
        """
        if not graphs:
            raise GraphError("the list of graphs is empty; pass at least one graph.")
        first = graphs[0]
        for number, graph in enumerate(graphs):
            if any(getattr(graph, name) != getattr(first, name) for name in COLUMNS):
                raise GraphError(
                    f"graph {number} has {plural(graph.num_features, 'feature')} and graph 0 has "
                    f"{first.num_features:,}, or their feature names or preparation differ; all "
                    "graphs must have the same columns, prepared in the same way."
                )
        features = [graph.features for graph in graphs]
        sparse = any(map(sp.issparse, features))
        named = all(graph.node_ids is not None for graph in graphs)
        return cls(
            sp.block_diag([graph.adjacency for graph in graphs], format="csr"),
            sp.csr_array(sp.vstack(features)) if sparse else np.concatenate(features),
            np.cumsum([0, *(graph.num_nodes for graph in graphs)]),
            labels,
            feature_names=first.feature_names,
            node_ids=[name for graph in graphs for name in graph.node_ids or ()] if named else None,
            preparation=first.preparation,
            **options,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Graph:
        return self.graph(range(len(self))[index])

    @property
    def edge_rows(self) -> Any:
        """The adjacency, a range of rows at a time."""
        return CsrMemory(self.adjacency) if sp.issparse(self.adjacency) else self.adjacency

    @property
    def num_edges(self) -> int:
        """Number of edges of all graphs."""
        return self.edge_rows.entries // 2

    @property
    def num_nodes(self) -> int:
        """Number of nodes n of all graphs."""
        return int(self.offsets[-1])

    @property
    def num_features(self) -> int:
        """Number of features d."""
        return self.features.shape[1]

    @property
    def sizes(self) -> np.ndarray:
        """The number of nodes of each graph: (G,)."""
        return np.diff(self.offsets)

    def block(self, start: int, stop: int) -> Graph:
        """Several consecutive graphs as one; GraphError if an edge joins two of them.

        Parameters
        ----------
        start, stop : int
            Index of the first graph, and of the one after the last.

        Returns
        -------
        Graph
        """
        low, high = int(self.offsets[start]), int(self.offsets[stop])
        edges = self.edge_rows.read(low, high)
        columns, degrees = edges.indices, np.diff(edges.indptr)
        sizes = np.diff(self.offsets[start : stop + 1])
        owner = np.repeat(np.repeat(np.arange(start, stop), sizes), degrees)
        outside = (columns < self.offsets[owner]) | (columns >= self.offsets[owner + 1])
        if outside.any():
            raise GraphError(f"an edge connects graph {owner[outside][0]} with another graph.")
        entries = edges.data, columns - low, edges.indptr
        matrix = sp.csr_array(entries, shape=(high - low, high - low))
        stored = isinstance(self.features, NpyRows)
        rows = self.features.read(low, high) if stored else self.features[low:high]
        return Graph(matrix, rows, feature_names=self.feature_names, preparation=self.preparation)

    def blocks(self, width: int = 1) -> Iterator[tuple[slice, Graph]]:
        """Ranges of graphs with at most 4 million values, or of one graph.

        Parameters
        ----------
        width : int, default 1
            Number of values for each node.

        Yields
        ------
        tuple of slice and Graph
            The range, and its graphs as one.
        """
        room, start = max(BLOCK // max(width, 1), 1), 0
        while start < len(self):
            stop = int(np.searchsorted(self.offsets, self.offsets[start] + room, "right")) - 1
            stop = min(max(stop, start + 1), len(self))
            yield slice(start, stop), self.block(start, stop)
            start = stop

    def pieces(self, width: int = 1) -> Iterator[GraphSet]:
        """The ranges of :meth:`blocks` as sets, without a split.

        Parameters
        ----------
        width : int, default 1
            Number of values for each node.

        Yields
        ------
        GraphSet
        """
        ids, names = self.graph_ids, self.node_ids
        for part, block in self.blocks(width):
            low, high = int(self.offsets[part.start]), int(self.offsets[part.stop])
            yield dataclasses.replace(
                self,
                adjacency=block.adjacency,
                features=block.features,
                offsets=self.offsets[part.start : part.stop + 1] - low,
                labels=self.table.labels[part],
                split=Split(),
                graph_ids=None if ids is None else ids[part],
                node_ids=None if names is None else names[low:high],
            )

    def graph(self, index: int) -> Graph:
        """One graph, with the names of its nodes.

        Parameters
        ----------
        index : int
            Index of the graph, from 0.

        Returns
        -------
        Graph
        """
        graph = self.block(index, index + 1)
        low, high = self.offsets[index], self.offsets[index + 1]
        return graph if self.node_ids is None else graph.with_node_ids(self.node_ids[low:high])

    def index(self, graph_id: Any) -> int:
        """The index of the graph with this id; GraphError if there is none.

        Parameters
        ----------
        graph_id : str or int
            An id, or an index if the graphs have no ids.

        Returns
        -------
        int
        """
        ids = range(len(self)) if self.graph_ids is None else self.graph_ids
        names = [*map(str, ids)]
        if str(graph_id) not in names:
            raise GraphError(
                f"{self.name} has no graph {graph_id!r}; an id is, for example, {names[0]!r}."
                f"{nearest_hint(str(graph_id), names[:1000])}"
            )
        return names.index(str(graph_id))

    def select(self, graphs: Any) -> GraphSet:
        """Some of the graphs, without a split.

        Parameters
        ----------
        graphs : array of int, or boolean mask

        Returns
        -------
        GraphSet
        """
        chosen = np.atleast_1d(np.asarray(graphs))
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        ids = self.graph_ids
        return self.from_graphs(
            [self.graph(i) for i in chosen.tolist()],
            self.table.labels[chosen],
            split=Split(),
            class_names=self.class_names or None,
            graph_ids=None if ids is None else [ids[i] for i in chosen.tolist()],
            name=self.name,
        )

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returns; if it is small, kept for the next call with this key."""
        kept = self.__dict__.setdefault("_cache", {})
        if key not in kept:
            value = make()
            if value.nbytes > MAX_BYTES:
                return value
            kept[key] = value
            if len(kept) > MAX_CACHED:
                del kept[next(iter(kept))]
        return kept[key]

    def with_split(self, split: Split | None) -> GraphSet:
        """The same graphs with another split.

        Parameters
        ----------
        split : Split or None
            Indices of graphs; None if all graphs with a label are training graphs.

        Returns
        -------
        GraphSet
        """
        graphs = dataclasses.replace(self, split=split)
        graphs.__dict__["_cache"] = self.__dict__.setdefault("_cache", {})  # of the same graphs
        return graphs

    def with_labels(self, labels: Any, class_names: Sequence[str] | None = None) -> GraphSet:
        """The same graphs with other labels and no split.

        Parameters
        ----------
        labels, class_names
            As for :class:`hoplite.Graph`, one label per graph.

        Returns
        -------
        GraphSet
        """
        return dataclasses.replace(self, labels=labels, class_names=class_names, split=Split())

    def for_task(self, task: str | None) -> GraphSet:
        """The same graphs with labels for a task.

        Parameters
        ----------
        task : str or None
            As for :meth:`hoplite.Graph.for_task`.

        Returns
        -------
        GraphSet
        """
        table = self.table.for_task(task)
        names = table.class_names or None
        return dataclasses.replace(self, labels=table.labels, class_names=names)

    def __repr__(self) -> str:
        kind = label_type(self.table.labels)
        what = f"classes={len(self.class_names or ())}"
        return (
            f"GraphSet(graphs={len(self)}, nodes={self.num_nodes}, "
            f"edges={self.num_edges}, features={self.num_features}, "
            f"{what if kind.task == 'classification' else f'task={kind.task}'})"
        )

    def _describe(self) -> Description:
        described, sizes = self.table._describe(), self.sizes
        facts = {
            "graphs": f"{len(self):,}",
            "nodes": f"{self.num_nodes:,}, {sizes.min():,} to {sizes.max():,} in a graph",
            "edges": f"{self.num_edges:,}",
            "features": f"{self.num_features:,}",
        } | {name: described.facts[name] for name in ("labels", "split") if name in described.facts}
        tables = [
            Table(["graphs" if c == "nodes" else c for c in table.columns], table.rows)
            for table in described.tables
        ]
        return Description(f"GraphSet {printable(self.name)}", facts, tables)
