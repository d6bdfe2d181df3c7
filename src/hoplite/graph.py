"""Graph: one validated, immutable problem of learning labels of nodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.csr_rows import (
    CsrMemory,
    Fingerprint,
    adjacency_digest,
    features_digest,
    mean_weight,
)
from hoplite.errors import ConfigError, GraphError, HopliteWarning, some_of
from hoplite.formatting import Described, Description
from hoplite.graph_checks import (
    as_array,
    as_node_indices,
    check_names,
    check_split_part,
    check_unique,
    check_weights,
    checked_adjacency,
    checked_features,
    checked_labels,
    frozen,
)
from hoplite.graph_facts import graph_shown
from hoplite.labels import CLASSES, kind_of, relabelled
from hoplite.preparation import Preparation
from hoplite.relations import Relation, check_relations, edge_relations, like
from hoplite.sparse_checks import as_csr

if TYPE_CHECKING:
    from builtins import property as cached_property  # as NodeData has it

    import scipy.sparse as sp
else:
    from functools import cached_property

    from hoplite.optional_deps import sparse as sp

PARTS = ("train", "val", "test")
PIECE = 1 << 22  # numbers of X read at a time


@dataclass(frozen=True, eq=False)
class Split:
    """Node indices of the training, validation and test sets; sorted, disjoint, read-only.

    >>> Split(train=[2, 0], val=[1]).train
    array([0, 2])
    """

    train: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    val: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    test: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    note: str = ""  # how the split came to be, for reports
    mask_lengths: tuple[int, ...] = field(default=(), init=False, repr=False)  # of boolean parts

    def __post_init__(self) -> None:
        seen = np.empty(0, np.int64)
        parts = [np.asarray(getattr(self, part)) for part in PARTS]
        lengths = tuple(len(part) for part in parts if part.dtype == bool and part.ndim == 1)
        object.__setattr__(self, "mask_lengths", lengths)
        for part in PARTS:
            nodes = as_node_indices(getattr(self, part), f"split.{part}")
            both = np.intersect1d(nodes, seen)
            if both.size:
                raise GraphError(
                    f"split.{part} shares {both.size:,} nodes (first: {both[0]}) with another "
                    "part; give each node to one part at most."
                )
            seen = np.concatenate([seen, nodes])
            object.__setattr__(self, part, frozen(nodes))

    @property
    def drawn(self) -> bool:
        """Whether it was drawn with a seed, which its note then tells, and nobody stated it."""
        return ", seed " in self.note

    def sizes(self) -> dict[str, int]:
        """Number of nodes per part."""
        return {part: int(getattr(self, part).size) for part in PARTS}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph(Described):
    """An undirected graph with node features and (some) node labels.

    Parameters
    ----------
    adjacency : (n, n) sparse or dense matrix
        Symmetric, non-negative edge weights. The diagonal is dropped: operators add their own
        self-loops.
    features : (n, d) array or sparse matrix
        Finite numbers, one row per node. float64 is kept, everything else becomes float32.
    labels : (n,) integers, (n,) floats, or an (n, m) matrix of 0 and 1, optional
        Class of each node, ``-1`` where unknown; or its number, NaN where unknown; or which of m
        labels it has, a row of -1 where unknown.
    split : Split, optional
        Training, validation and test nodes.
    class_names, feature_names, node_ids : sequences, optional
        Names for reports and predictions; those of classes and features are kept as text.
    preparation : Preparation, optional
        How the features came from the columns of a table; a model that is trained here keeps it.
    relations : sequence of Relation, optional
        Edges by direction or type, see :mod:`hoplite.relations`; ``adjacency`` has them all.

    A graph is never changed after construction, so copies are the graph itself.

    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3), labels=[0, 1, -1])
    >>> g
    Graph(nodes=3, edges=2, features=3, classes=2)
    """

    adjacency: sp.csr_array
    features: np.ndarray | sp.csr_array
    labels: np.ndarray
    split: Split
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None
    node_ids: tuple[Any, ...] | None
    name: str
    preparation: Preparation | None
    relations: tuple[Relation, ...]

    def __init__(
        self,
        adjacency: Any,
        features: Any,
        labels: Any = None,
        split: Split | None = None,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        node_ids: Sequence[Any] | None = None,
        name: str = "graph",
        preparation: Preparation | None = None,
        relations: Sequence[Relation] = (),
    ) -> None:
        adjacency = checked_adjacency(adjacency)
        n = adjacency.shape[0]
        features = checked_features(features, n)
        labels = checked_labels(labels, n, class_names)
        split = Split() if split is None else split
        _check_split(split, labels)
        check_names("feature_names", feature_names, features.shape[1], "feature columns")
        check_names("node_ids", node_ids, n, "nodes")
        check_unique("node_ids", node_ids)
        classes = range(kind_of(labels).count(labels)) if class_names is None else class_names
        if isinstance(node_ids, np.ndarray):
            node_ids = node_ids.tolist()
        values = {
            "adjacency": frozen(adjacency),
            "features": frozen(features),
            "labels": frozen(labels),
            "split": split,
            "class_names": tuple(map(str, classes)),
            "feature_names": None if feature_names is None else tuple(map(str, feature_names)),
            "node_ids": None if node_ids is None else tuple(node_ids),
            "name": name,
            "preparation": preparation,
            "relations": check_relations(relations, n),
        }
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)
        self._warn_about_untrained_classes()

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        features: Any,
        labels: Any = None,
        *,
        weights: Any = None,
        directed: bool = False,
        types: Sequence[Any] | None = None,
        **options: Any,
    ) -> Graph:
        """Build a graph from an edge list of shape (e, 2).

        Without ``weights`` every pair counts once. With weights, repeated pairs in one direction
        are summed, and if both directions are given the larger weight is taken, so a list that
        names each edge twice means the same as one that names it once.

        ``directed`` keeps the direction, as relations ``out`` and ``in``; ``types``, a text per
        edge, makes a relation of every type, or two. See :mod:`hoplite.relations`.

        >>> arcs = Graph.from_edges([(0, 1), (1, 2)], np.eye(3), directed=True)
        >>> [relation.name for relation in arcs.relations]
        ['out', 'in']
        """
        sparse = sp.issparse(features)
        features = as_csr(features, "features") if sparse else as_array(features, "features")
        n = features.shape[0] if features.ndim else 0
        edges = as_array(edges, "edges")
        if edges.size == 0:
            edges = np.empty((0, 2), np.int64)
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise GraphError(f"edges has shape {edges.shape}; pass one (source, target) per row.")
        if not np.issubdtype(edges.dtype, np.integer):
            raise GraphError(f"edges has type {edges.dtype}; pass integer node indices.")
        bad = (edges < 0) | (edges >= n)
        if bad.any():
            row = int(np.flatnonzero(bad.any(axis=1))[0])
            raise GraphError(
                f"edge {row} is {tuple(edges[row].tolist())} but the graph has {n:,} nodes; "
                f"node indices go from 0 to {n - 1:,}."
            )
        if weights is None:
            values = np.ones(len(edges), np.float32)
        else:
            values = as_array(weights, "weights")
            if values.shape != (len(edges),):
                raise GraphError(
                    f"weights has shape {values.shape} but there are {len(edges):,} edges; "
                    "pass one weight per edge."
                )
            check_weights(values)
            values = values.astype(np.float64 if values.dtype == np.float64 else np.float32)
        arcs = sp.coo_array((values, (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
        if weights is None:
            arcs.data[:] = 1
        adjacency = arcs.maximum(arcs.T)
        relations = edge_relations(
            edges, values, n, summed=weights is not None, directed=directed, types=types
        )
        return cls(adjacency, features, labels, relations=relations, **options)

    # What follows reads and writes graphs of other libraries, see hoplite.convert. All of it
    # ignores direction and treats repeated edges as from_edges does; labelled graphs without a
    # split get a stratified one of ``seed``, and graphs without features ``structural`` ones.

    @staticmethod
    def from_frames(nodes: Any, edges: Any, **options: Any) -> Graph:
        """A table of nodes and one of edges, of pandas, Polars or Arrow.

        By the rules of node and edge tables, see :func:`hoplite.datasets.read_tables`: text ids,
        text labels, a feature per other column, text one-hot.

        Parameters
        ----------
        id, label, split : str
            Columns of ``nodes`` if they are not called so; None for ``label`` and ``split`` if
            there are none. A named index of pandas is a column.
        source, target, weight : str
            Columns of ``edges``.
        features : sequence of str, optional
            The columns that are features; all others if not given.
        seed, structural, name
            Of the split; how many structural features; of the graph.
        directed, type
            Keep the direction of edges; the column of their types. See :mod:`hoplite.relations`.
        unknown_nodes, prepare, scale, gaps, categories
            How tables are read, as :func:`hoplite.datasets.read_tables` takes them.

        >>> import pyarrow as pa
        >>> nodes = pa.table({"who": ["ann", "bob", "cem"], "age": [3, 1, 2]})
        >>> edges = pa.table({"source": ["ann", "bob"], "target": ["bob", "cem"]})
        >>> Graph.from_frames(nodes, edges, id="who")
        Graph(nodes=3, edges=2, features=1, classes=0)
        """
        return _converter("attributes").from_frames(nodes, edges, **options)

    @staticmethod
    def from_networkx(graph: Any, **options: Any) -> Graph:
        """A NetworkX graph of any kind; its nodes, which may be text, are the ``node_ids``.

        Attributes of nodes are columns by the rules of node tables (see :meth:`from_frames`): text
        becomes one-hot, None or no attribute is a gap, ``id`` is no feature. Edges without a weight
        among others with one count 1.

        Parameters
        ----------
        features : sequence of str, optional
            Attributes that are features; all that are not label or split if not given.
        label, split, weight : str or None
            Attributes of nodes, and of edges, if they are not called so; None for none.
        directed, type
            Keep the direction of the edges of a DiGraph; the attribute of edges that is their type.
        seed, structural, prepare, scale, gaps, categories
            As in :meth:`from_frames`.

        >>> import networkx as nx
        >>> club = nx.karate_club_graph()
        >>> Graph.from_networkx(club, label="club", structural=4).class_names
        ('Mr. Hi', 'Officer')
        """
        return _converter("attributes").from_networkx(graph, **options)

    @staticmethod
    def from_igraph(graph: Any, **options: Any) -> Graph:
        """An igraph graph, with the options of :meth:`from_networkx`.

        ``id``, an attribute of its vertices, ``"name"`` by default, has the ``node_ids``.
        """
        return _converter("attributes").from_igraph(graph, **options)

    @staticmethod
    def from_scipy(
        adjacency: Any, features: Any = None, labels: Any = None, **options: Any
    ) -> Graph:
        """A SciPy matrix (or a dense one) of edge weights, (n, n), not necessarily symmetric.

        Where a pair has two weights the larger counts. ``labels`` are integers or text; unknown are
        negative numbers, NaN, None and empty text. With fractions they are numbers to learn, and
        so are whole ones if ``task="regression"``. ``options`` are ``split``, ``seed``,
        ``structural``, ``task``, ``directed``, for arcs from rows to columns that keep their
        direction, and the names that a Graph takes.

        >>> import scipy.sparse as sp
        >>> Graph.from_scipy(sp.eye_array(3, k=1), np.eye(3), ["no", "yes", None]).class_names
        ('no', 'yes')
        """
        return _converter("arrays").from_scipy(adjacency, features, labels, **options)

    @staticmethod
    def from_pyg(data: Any, *, split: int | None = None, **options: Any) -> Graph:
        """A ``torch_geometric.data.Data``: x, edge_index (or adj_t), y and the masks.

        ``edge_weight``, or an ``edge_attr`` of one column, are the weights. A negative or NaN y is
        unknown; with fractions, or if ``task="regression"``, y are numbers to learn. Where the
        masks have several columns, ``split`` says which counts (the first otherwise). ``options``
        are ``seed``, ``structural``, ``task``, ``directed`` to keep directions, and ``type``, the
        attribute that has the edges' types (such as ``"edge_type"``).
        """
        return _converter("arrays").from_pyg(data, split=split, **options)

    @staticmethod
    def from_dgl(graph: Any, **options: Any) -> Graph:
        """A homogeneous DGL graph, with the options of :meth:`from_pyg`; ``type`` is of its edata.

        ``features="feat"`` and ``label="label"`` name its ndata, ``weight="weight"`` its edata;
        the masks are ``train_mask``, ``val_mask`` and ``test_mask``.
        """
        return _converter("arrays").from_dgl(graph, **options)

    def to_networkx(self) -> Any:
        """A ``networkx.Graph`` whose nodes are the ``node_ids``, or 0 .. n-1.

        Features, ``label`` (the name of the class) and ``split`` are attributes of nodes,
        ``weight`` of edges. Features are the graph's own, prepared: scaled, filled, one-hot, and
        not the cells of a table that they came from. :meth:`from_networkx` with ``scale="none"``,
        which leaves them as they are, makes the same graph of it.
        """
        return _converter("attributes").to_networkx(self)

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data``: x dense, every edge in both directions, y -1 where
        unknown, the three masks, and ``edge_weight`` unless all are 1."""
        return _converter("arrays").to_pyg(self)

    @property
    def num_nodes(self) -> int:
        """n, the isolated ones counted."""
        return self.adjacency.shape[0]

    @property
    def num_edges(self) -> int:
        """Undirected edges, self-loops not counted."""
        return self.adjacency.nnz // 2

    @property
    def num_features(self) -> int:
        """d, the columns of X."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """m, the outputs of a model: of regression 1."""
        return len(self.class_names)

    @cached_property
    def loop_weight(self) -> float:
        """The weight w of the self-loops that operators add: the mean weight of an edge.

        1 without weights or edges. A model takes that of its training wherever it is used.

        >>> Graph.from_edges([(0, 1), (1, 2)], np.eye(3), weights=[1.0, 3.0]).loop_weight
        2.0
        """
        return mean_weight(self.adjacency_rows)

    def with_loop_weight(self, weight: float) -> Graph:
        """The same graph with another ``loop_weight``; files do not keep it."""
        if weight == self.loop_weight:
            return self
        made = object.__new__(Graph)
        made.__dict__.update(self.__dict__, loop_weight=weight)
        return made

    @property
    def relation_weights(self) -> dict[str, float]:
        """The names of the relations, with the weights of their self-loops."""
        return {relation.name: relation.loop_weight for relation in self.relations}

    def with_relations(self, weights: dict[str, float]) -> Graph:
        """The same graph with just these relations, of which some may have no edges yet."""
        made = object.__new__(Graph)
        made.__dict__.update(self.__dict__, relations=like(self.relations, weights, self.num_nodes))
        return made

    def refuse_relations(self, what: str) -> None:
        """ConfigError if the graph has relations, and ``what`` takes none."""
        if self.relations:
            shown = some_of(relation.name for relation in self.relations)
            raise ConfigError(
                f"{self.name} keeps directions or types of edges ({shown}), and {what} takes one "
                "kind of edges; load it without directed and type."
            )

    @property
    def stored(self) -> None:
        """No hop features have been computed, see :class:`hoplite.NodeData`."""

    @property
    def adjacency_rows(self) -> CsrMemory:
        """The adjacency, a range of rows at a time."""
        return CsrMemory(self.adjacency)

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of X, dense and in float32."""
        rows: Any = self.features[start:stop]
        dense = rows.toarray() if sp.issparse(rows) else rows
        return np.ascontiguousarray(dense, np.float32)

    def fingerprint(self) -> Fingerprint:
        """By which the graph is known again, wherever it is kept."""
        digest, longest = adjacency_digest(self.adjacency_rows)
        step = max(1, PIECE // max(self.num_features, 1))
        pieces = (
            self.feature_rows(start, min(start + step, self.num_nodes))
            for start in range(0, self.num_nodes, step)
        )
        return Fingerprint(digest, features_digest(pieces, self.num_features), longest)

    def in_memory(self) -> Graph:
        """The graph itself, see :class:`hoplite.NodeData`."""
        return self

    def with_split(self, split: Split) -> Graph:
        """The same graph with another split."""
        return self._replace(split=split)

    def for_task(self, task: str | None) -> Graph:
        """The same graph with its labels as ``task`` needs them; GraphError if they cannot be.

        That is "classification", "regression", "multilabel", or "auto": as they are.

        >>> g = Graph.from_edges([(0, 1)], np.eye(2), [0, 1], class_names=["2.5", "7"])
        >>> g.for_task("regression").labels
        array([2.5, 7. ])
        """
        labels, names = relabelled(self.labels, self.class_names, task)
        return self if labels is self.labels else self._replace(labels=labels, class_names=names)

    def with_labels(self, labels: Any, class_names: Sequence[str] | None = None) -> Graph:
        """The same graph with other labels and no split."""
        return self._replace(labels=labels, class_names=class_names, split=Split())

    def with_features(
        self,
        features: Any,
        names: Sequence[str] | None = None,
        *,
        preparation: Preparation | None = None,
    ) -> Graph:
        """The same graph with other features; ``preparation`` as for the graph itself."""
        return self._replace(features=features, feature_names=names, preparation=preparation)

    def with_node_ids(self, node_ids: Sequence[Any]) -> Graph:
        """The same graph with other names of its nodes."""
        return self._replace(node_ids=node_ids)

    def extended(self, new: Any, **options: Any) -> Graph:
        """The graph with nodes and edges that arrived later; the new nodes are the last ones.

        Parameters
        ----------
        new : folder of node and edge tables, or a pair (nodes, edges) of frames
            With the columns of the graph's own tables; a label is not needed. Edges may join old
            nodes, too. One of the two tables may lack (of a pair, be None).
        label, id, source, target, weight : str
            Columns of its nodes and edges, if they are called otherwise there.

        The new features are prepared as the graph's own were (``preparation``), never fitted again,
        and found by their names; structural ones are computed again. Without weights a pair that is
        joined already stays as it is; a new weight of it is added to the one that it has. New nodes
        are in the split only if their table says so. The ``loop_weight`` stays, too.

        >>> import pyarrow as pa
        >>> nodes = pa.table({"id": ["ann", "bob", "cem"], "age": [3, 1, 2]})
        >>> edges = pa.table({"source": ["ann", "bob"], "target": ["bob", "cem"]})
        >>> club = Graph.from_frames(nodes, edges)
        >>> dia = pa.table({"id": ["dia"], "age": [2]})
        >>> club.extended((dia, pa.table({"source": ["dia"], "target": ["ann"]})))
        Graph(nodes=4, edges=3, features=1, classes=0)
        """
        return import_module("hoplite.arrivals").extended(self, new, **options)[0]

    def _replace(self, **changes: Any) -> Graph:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        made = Graph(**{**values, **changes})
        if "loop_weight" in self.__dict__:
            made.__dict__["loop_weight"] = self.loop_weight
        return made

    def _warn_about_untrained_classes(self) -> None:
        if not self.split.train.size:
            return
        trained = kind_of(self.labels).held(self.labels[self.split.train])
        missing = np.setdiff1d(np.arange(self.num_classes), trained)
        if missing.size:
            names = some_of(self.class_names[c] for c in missing)
            warnings.warn(
                f"{missing.size} of {self.num_classes} classes have no training node ({names}); "
                "they can never be predicted well: label some of their nodes for training, or "
                "leave these labels out.",
                HopliteWarning,
                stacklevel=4,
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled arrays are new and writable; make them read-only again."""
        self.__dict__.update(state)
        for name in ("adjacency", "features", "labels"):
            object.__setattr__(self, name, frozen(state[name]))

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: dict) -> Graph:
        return self

    def __repr__(self) -> str:
        kind = kind_of(self.labels)
        what = f"classes={self.num_classes}" if kind is CLASSES else f"task={kind.task}"
        return (
            f"Graph(nodes={self.num_nodes}, edges={self.num_edges}, "
            f"features={self.num_features}, {what})"
        )

    def _describe(self) -> Description:
        return graph_shown(self)


def _converter(name: str) -> Any:
    """A module of hoplite.convert, which is built on graphs, and so is imported when it is used."""
    return import_module(f"hoplite.convert.{name}")


def _check_split(split: Any, labels: np.ndarray) -> None:
    if not isinstance(split, Split):
        raise GraphError(
            f"split is a {type(split).__name__}; pass Split(train=..., val=..., test=...)."
        )
    for length in split.mask_lengths:
        if length != len(labels):
            raise GraphError(
                f"split has a mask of {length:,} nodes but the graph has {len(labels):,}; "
                "pass masks with one value per node."
            )
    for part in PARTS:
        check_split_part(part, getattr(split, part), labels, len(labels))
