"""Graph: one validated, immutable problem of learning labels of nodes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Protocol

import numpy as np

from hoplite.csr import (
    CSR,
    NUMBERS,
    CsrMemory,
    CsrRows,
    Fingerprint,
    as_array,
    as_csr,
    check_weights,
    checked_arcs,
    fingerprint,
    frozen,
    mean_weight,
    without_torch,
)
from hoplite.errors import ConfigError, GraphError, nearest_hint, plural, some_of, warn
from hoplite.formatting import Described, Description, Table, printable
from hoplite.labels import CLASSES, UNKNOWN_LABEL, known_labels, label_type, relabelled

if TYPE_CHECKING:
    from builtins import property as cached_property  # as NodeData has it

    import scipy.sparse as sp

    from hoplite.preparation import Preparation
else:
    from functools import cached_property

    from hoplite.machine import sparse as sp

PARTS = ("train", "val", "test")
OUT, IN = "out", "in"  # the relations of directed edges


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Split:
    """Node indices of the training, validation and test sets; sorted, disjoint, read-only.

    Parameters
    ----------
    train, val, test : sequences of int, or boolean masks with one value per node
        The nodes of each part.
    note : str, default ""
        How the split was made, for reports.
    seed : int, optional
        The seed of the random draw; None if the split was not drawn at random.

    >>> Split(train=[2, 0], val=[1]).train
    array([0, 2])
    >>> Split(train=[2, 0], val=[1])
    Split(train: 2 nodes, val: 1, test: 0)
    >>> Split([0], [1], [2], note="by hand", seed=3).description
    'by hand, seed 3'
    """

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    note: str
    seed: int | None
    mask_lengths: tuple[int, ...] = field(init=False)  # lengths of boolean parts

    def __init__(
        self,
        train: Any = (),
        val: Any = (),
        test: Any = (),
        note: str = "",
        seed: int | None = None,
        **unknown: Never,
    ) -> None:
        for name in unknown:
            hint = nearest_hint(name, [*PARTS, "note", "seed"])
            raise TypeError(f"Split has no parameter {name!r}.{hint}")
        parts = dict(zip(PARTS, (train, val, test), strict=True))
        masks = map(np.asarray, parts.values())
        lengths = tuple(len(mask) for mask in masks if mask.dtype == bool and mask.ndim == 1)
        self.__dict__.update(mask_lengths=lengths, note=note, seed=seed)
        earlier = np.empty(0, np.int64)
        for part, members in parts.items():
            nodes = as_node_indices(members, f"split.{part}")
            repeated = np.intersect1d(nodes, earlier)
            if repeated.size:
                raise GraphError(
                    f"split.{part} shares {plural(repeated.size, 'node')} (first: {repeated[0]}) "
                    "with another part; assign each node to at most one part."
                )
            earlier = np.concatenate([earlier, nodes])
            self.__dict__[part] = frozen(nodes)

    def __repr__(self) -> str:
        sizes = self.sizes()
        about = f", {self.description}" if self.description else ""
        return (
            f"Split(train: {plural(sizes['train'], 'node')}, val: {sizes['val']:,}, "
            f"test: {sizes['test']:,}{about})"
        )

    @property
    def description(self) -> str:
        """The note and the seed, for reports."""
        seed = "" if self.seed is None else f"seed {self.seed}"
        return ", ".join(text for text in (self.note, seed) if text)

    def sizes(self) -> dict[str, int]:
        """Number of nodes per part."""
        return {part: int(getattr(self, part).size) for part in PARTS}


@dataclass(frozen=True, eq=False)
class Relation:
    """The edges of one direction or one type, each with an operator of its own.

    A graph with R relations is filtered by one polynomial for each of them,

        logits = c_0 X Theta + sum_r sum_{i=1..k} c_{r,i} p_i(S_r) X Theta (+ b)

        S_r = shift I + sign N_r,    N_r = D_row^-1/2 (A_r + loop w_r I) D_column^-1/2

    with S_r n x n, X n x d, Theta d x m and 1 + R k coefficients c. Hop 0 is X itself, whatever the
    relation, so all of them share one c_0. A_r[v, u] is the weight of the arc by which v reads u,
    w_r the mean weight of the relation's arcs, D_row and D_column the row and column sums of A_r +
    loop w_r I; where one is 0, so is its D^-1/2. If A_r is symmetric, S_r is the operator of an
    undirected graph. A_r is not negative, so ||N_r||_2 <= 1 (Schur's test: with B = A_r + loop w_r
    I, x' N_r y = sum_{vu} B_vu (x_v / sqrt(row_v)) (y_u / sqrt(column_u)) <= ``|x| |y|``), and
    powers of N_r cannot grow. Its eigenvalues may be complex; the transpose of A_r has the
    transpose of S_r. The operator random_walk has N_r = D_row^-1 A_r instead, whose rows sum to 1,
    or 0.

    Of directed edges there are two relations: ``out`` (A, a node reads those that it points to) and
    ``in`` (A transposed, it reads those that point to it).

    ``adjacency`` A_r is (n, n) CSR; ``turned`` is its transpose, None if it is symmetric.

    >>> (out, into) = relations_of(sp.csr_array([[0.0, 2.0], [0.0, 0.0]]), directed=True)
    >>> out.name, into.name, into.adjacency.toarray().tolist(), out.loop_weight
    ('out', 'in', [[0.0, 0.0], [2.0, 0.0]], 2.0)
    """

    name: str
    adjacency: sp.csr_array
    turned: sp.csr_array | None = None
    loop_weight: float = 1.0  # w_r: the mean weight of the relation's arcs

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickled arrays are new and writable; make them read-only again."""
        self.__dict__.update(state)
        for name in ("adjacency", "turned"):
            if state[name] is not None:
                object.__setattr__(self, name, frozen(state[name]))


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Graph(Described):
    """An undirected, immutable graph with node features and labels of some nodes.

    Parameters
    ----------
    adjacency : (n, n) sparse or dense matrix
        Symmetric, non-negative edge weights. The diagonal is dropped: operators add their own
        self-loops.
    features : (n, d) array or sparse matrix
        Finite numbers, one row per node. float64 is kept, everything else becomes float32.
    labels : (n,) integers, (n,) floats, or (n, m) matrix of 0 and 1, optional
        The type of the array determines the task:

        - integers: the class of each node, -1 where unknown;
        - floats: the number to predict, NaN where unknown;
        - a matrix: which of m labels a node has, a row of -1 where unknown.
    split : Split, optional
        Training, validation and test nodes.
    class_names, feature_names, node_ids : sequences, optional
        Names for reports and predictions; those of classes and features are kept as text.
    preparation : Preparation, optional
        How the features came from the columns of a table; a trained model stores it.
    relations : sequence of Relation, optional
        Edges by direction or type; ``adjacency`` has them all.

    Examples
    --------
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
        adjacency = _checked_adjacency(adjacency)
        n = adjacency.shape[0]
        features = _checked_features(features, n)
        labels = _checked_labels(labels, n, class_names)
        split = Split() if split is None else split
        _check_split(split, labels)
        _check_names("feature_names", feature_names, features.shape[1], "feature column")
        _check_names("node_ids", node_ids, n, "node")
        _check_unique("node_ids", node_ids)
        classes = range(label_type(labels).count(labels)) if class_names is None else class_names
        if isinstance(node_ids, np.ndarray):
            node_ids = node_ids.tolist()
        _check_relations(relations, n)
        self.__dict__.update(
            adjacency=frozen(adjacency),
            features=frozen(features),
            labels=frozen(labels),
            split=split,
            class_names=tuple(map(str, classes)),
            feature_names=None if feature_names is None else tuple(map(str, feature_names)),
            node_ids=None if node_ids is None else tuple(node_ids),
            name=name,
            preparation=preparation,
            relations=tuple(relations),
        )
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
        """Build a graph from a list of edges.

        Parameters
        ----------
        edges : (e, 2) array of int
            Pairs of nodes.
        features, labels
            As for :class:`Graph`.
        weights : (e,) array, optional
            Weights of repeated pairs in one direction are added; if both directions are given, the
            larger weight is used. Without weights, every pair counts once.
        directed : bool, default False
            Keep the direction of edges, as the relations ``out`` and ``in``.
        types : sequence of str, optional
            The type of each edge; every type is a relation, or two with ``directed``.
        **options
            Further arguments of :class:`Graph`, e.g. ``split`` or ``node_ids``.

        Returns
        -------
        Graph

        Examples
        --------
        >>> arcs = Graph.from_edges([(0, 1), (1, 2)], np.eye(3), directed=True)
        >>> [relation.name for relation in arcs.relations]
        ['out', 'in']
        """
        features = without_torch(features)
        sparse = sp.issparse(features)
        features = as_csr(features, "features") if sparse else as_array(features, "features")
        n = features.shape[0] if features.ndim else 0
        if isinstance(edges, str):
            raise GraphError("edges is text; pass pairs, or load a file with hoplite.load.")
        edges = as_array(edges, "edges")
        if edges.size == 0:
            edges = np.empty((0, 2), np.int64)
        if edges.ndim != 2 or edges.shape[1] != 2:
            hint = ""
            if edges.ndim == 2 and edges.shape[0] == 2:
                hint = " This looks like a PyTorch Geometric edge_index; pass edge_index.T."
            raise GraphError(
                f"edges has shape {edges.shape}; pass one (source, target) per row.{hint}"
            )
        if not np.issubdtype(edges.dtype, np.integer):
            raise GraphError(f"edges has type {edges.dtype}; pass integer node indices.")
        bad = (edges < 0) | (edges >= n)
        if bad.any():
            row = int(np.flatnonzero(bad.any(axis=1))[0])
            raise GraphError(
                f"edge {row} is {tuple(edges[row].tolist())} but the graph has "
                f"{plural(n, 'node')}; node indices go from 0 to {n - 1:,}."
            )
        if weights is None:
            values = np.ones(len(edges), np.float32)
        else:
            values = as_array(weights, "weights")
            if values.shape != (len(edges),):
                raise GraphError(
                    f"weights has shape {values.shape} for {plural(len(edges), 'edge')}; pass one "
                    "weight per edge."
                )
            check_weights(values)
            values = values.astype(np.float64 if values.dtype == np.float64 else np.float32)

        def arcs_of(chosen: Any) -> sp.csr_array:
            """The weights of these edges; those of repeated ones are added, or count once."""
            ends = edges[chosen, 0], edges[chosen, 1]
            arcs = sp.coo_array((values[chosen], ends), shape=(n, n)).tocsr()
            if weights is None:
                arcs.data[:] = 1
            return arcs

        relations: list[Relation] = []
        if types is not None:
            names, codes = np.unique(_checked_types(types, len(edges)), return_inverse=True)
            for code, name in enumerate(names.tolist()):
                relations += relations_of(arcs_of(codes == code), directed=directed, prefix=name)
        elif directed:
            relations += relations_of(arcs_of(slice(None)), directed=True)
        arcs = arcs_of(slice(None))
        adjacency = arcs.maximum(arcs.T)
        return cls(adjacency, features, labels, relations=relations, **options)

    @property
    def num_nodes(self) -> int:
        """Number of nodes n, including isolated ones."""
        return self.adjacency.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, without self-loops."""
        return self.adjacency.nnz // 2

    @property
    def num_features(self) -> int:
        """Number of features d."""
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        """Number of classes m, the outputs of a model; 1 for regression."""
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
        return self if weight == self.loop_weight else self._with(loop_weight=weight)

    @property
    def relation_weights(self) -> dict[str, float]:
        """The names of the relations, with the weights of their self-loops."""
        return {relation.name: relation.loop_weight for relation in self.relations}

    def with_relations(self, weights: dict[str, float]) -> Graph:
        """The same graph with just these relations, by name, and these weights of self-loops.

        One that is missing has no arcs, so that S_r is the identity, or 0 for the adjacency
        operator.
        """
        empty = frozen(sp.csr_array(self.adjacency.shape, dtype=np.float32))
        present = {relation.name: relation for relation in self.relations}
        relations = (
            dataclasses.replace(present.get(name, Relation(name, empty)), loop_weight=weight)
            for name, weight in weights.items()
        )
        return self._with(relations=tuple(relations))

    def refuse_relations(self, what: str) -> None:
        """ConfigError if the graph has relations, and ``what`` takes none."""
        if self.relations:
            names = some_of(relation.name for relation in self.relations)
            raise ConfigError(
                f"{self.name} has directed or typed edges ({names}), which {what} does not "
                "support; load it without directed and type."
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
        """A digest of the edges and features: equal for equal graphs, in memory or on disk."""
        return fingerprint(self.adjacency_rows, self.feature_rows, self.num_features)

    def in_memory(self) -> Graph:
        """The graph itself, see :class:`hoplite.NodeData`."""
        return self

    def with_split(self, split: Split) -> Graph:
        """The same graph with another split."""
        return self._replace(split=split)

    def fitted_to(self, nodes: np.ndarray) -> Graph:
        """The same graph with features that are fitted to these training nodes: itself.

        Graphs whose features depend on the training nodes have another, for cross-validation.
        """
        return self

    def for_task(self, task: str | None) -> Graph:
        """The same graph with its labels converted for a task.

        Parameters
        ----------
        task : {"auto", "classification", "regression", "multilabel"}
            "auto" leaves them as they are.

        Returns
        -------
        Graph

        Raises
        ------
        GraphError
            If the labels cannot be converted.

        Examples
        --------
        >>> g = Graph.from_edges([(0, 1)], np.eye(2), [0, 1], class_names=["2.5", "7"])
        >>> g.for_task("regression").labels
        array([2.5, 7. ])
        """
        labels, names = relabelled(self.labels, self.class_names, task)
        return self if labels is self.labels else self._replace(labels=labels, class_names=names)

    def with_labels(self, labels: Any, class_names: Sequence[str] | None = None) -> Graph:
        """The same graph with other labels and no split.

        Parameters
        ----------
        labels, class_names
            As for :class:`Graph`.

        Returns
        -------
        Graph
        """
        return self._replace(labels=labels, class_names=class_names, split=Split())

    def with_features(
        self,
        features: Any,
        names: Sequence[str] | None = None,
        *,
        preparation: Preparation | None = None,
    ) -> Graph:
        """The same graph with other features.

        Parameters
        ----------
        features, preparation
            As for :class:`Graph`.
        names : sequence of str, optional
            Names of the features.

        Returns
        -------
        Graph
        """
        return self._replace(features=features, feature_names=names, preparation=preparation)

    def with_node_ids(self, node_ids: Sequence[Any]) -> Graph:
        """The same graph with other ids of its nodes."""
        return self._replace(node_ids=node_ids)

    def _with(self, **changes: Any) -> Graph:
        """A copy with other attributes, which are not checked."""
        graph = object.__new__(Graph)
        graph.__dict__.update(self.__dict__, **changes)
        return graph

    def _replace(self, **changes: Any) -> Graph:
        """A copy with other fields, which are checked."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(Graph)}
        graph = Graph(**fields | changes)
        if "loop_weight" in self.__dict__:
            graph.__dict__["loop_weight"] = self.loop_weight
        return graph

    def _warn_about_untrained_classes(self) -> None:
        if not self.split.train.size:
            return
        trained = label_type(self.labels).present(self.labels[self.split.train])
        missing = np.setdiff1d(np.arange(self.num_classes), trained)
        if missing.size:
            names = some_of(repr(self.class_names[c]) for c in missing)
            single = missing.size == 1
            warn(
                f"{'class' if single else 'classes'} {names} cannot be predicted, because no "
                f"training node is of {'this class' if single else 'these classes'}; add nodes of "
                f"{'it' if single else 'them'} to the training set, or remove "
                f"{'its' if single else 'their'} labels.",
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
        type_ = label_type(self.labels)
        what = f"classes={self.num_classes}" if type_ is CLASSES else f"task={type_.task}"
        return (
            f"Graph(nodes={self.num_nodes}, edges={self.num_edges}, "
            f"features={self.num_features}, {what})"
        )

    def _describe(self) -> Description:
        """Its sizes, how it is connected, and how many nodes of each part have each class."""
        weights, type_ = self.adjacency.data, label_type(self.labels)
        alone = int((np.diff(self.adjacency.indptr) == 0).sum())
        labelled = type_.is_known(self.labels)
        edges, features = f"{self.num_edges:,}", f"{self.num_features:,}"
        if weights.size and weights.min() != weights.max():
            edges += f", weights from {weights.min():.3g} to {weights.max():.3g}"
        if sp.issparse(self.features):
            cells = max(self.num_nodes * self.num_features, 1)
            stored: Any = self.features  # SciPy has no types
            features += f", sparse: {100 * stored.nnz / cells:.2g} % are not 0"
        facts = {
            "nodes": f"{self.num_nodes:,}" + (f", {alone:,} without an edge" if alone else ""),
            "edges": edges,
            "features": features,
            "labels": f"{type_.task}, {plural(labelled.sum(), 'node')} of {self.num_nodes:,}",
        }
        if self.relations:
            facts["relations"] = some_of(relation.name for relation in self.relations)
        sizes = {part: size for part, size in self.split.sizes().items() if size}
        if sizes or self.split.description:
            counts = ", ".join(f"{part} {size:,}" for part, size in sizes.items()) or "none"
            note = self.split.description
            facts["split"] = f"{counts} ({note})" if note else counts
        parts = {"nodes": np.flatnonzero(labelled)} | {
            part: getattr(self.split, part) for part in sizes
        }
        labels = {name: self.labels[nodes] for name, nodes in parts.items()}
        return Description(f"Graph {printable(self.name)}", facts, self._label_table(labels))

    def _label_table(self, labels: dict[str, np.ndarray]) -> list[Table]:
        """How many nodes of each part have each class; of numbers, how they are distributed."""
        if self.num_classes:
            type_ = label_type(self.labels)
            counts = [type_.counts(part, self.num_classes) for part in labels.values()]
            rows = [
                [name, *(f"{int(count[c]):,}" for count in counts if count is not None)]
                for c, name in enumerate(self.class_names)
            ]
            return [Table(["class", *labels], rows)]
        if not labels["nodes"].size:
            return []
        figures = {"mean": np.mean, "deviation": np.std, "min": np.min, "max": np.max}
        rows = [
            [name, *(f"{figure(part):.4g}" for part in labels.values())]
            for name, figure in figures.items()
        ]
        return [Table(["label", *labels], rows)]


class NodeData(Protocol):
    """n nodes with d features each, (some) labels of m classes, and a split.

    This is the common interface of graphs in memory, graphs on disk and hop stores, so training,
    prediction and explanation accept any of them. :func:`hoplite.open_data` opens node data.

    Attributes
    ----------
    name : str
        Name of the data in reports.
    num_nodes, num_features, num_classes : int
        n, d and m.
    class_names, feature_names : tuple of str
        The names of the m classes, and of the d features; None if features have none.
    labels : array
        Classes, numbers or several labels, one row per node; see :mod:`hoplite.labels`.
    split : Split
        The nodes of training, validation and test.
    node_ids : sequence or None
        The names of the nodes; None where they are 0 .. n - 1.
    preparation : Preparation or None
        How X came from tables, if it did.
    stored : StoredHops or None
        The hop features, if they have been computed already.
    adjacency_rows : CsrRows or None
        The edge weights; None if they are not known any more.
    loop_weight : float
        The weight of the self-loops that operators add.
    relation_weights : dict
        That weight for each :class:`Relation`; files have none.

    Examples
    --------
    >>> import hoplite
    >>> data = hoplite.open_data("cora")
    >>> data.num_nodes, data.num_features, data.num_classes
    (2708, 1433, 7)
    """

    @property
    def name(self) -> str: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def feature_names(self) -> tuple[str, ...] | None: ...
    @property
    def labels(self) -> np.ndarray: ...
    @property
    def split(self) -> Split: ...
    @property
    def node_ids(self) -> Sequence[Any] | None: ...
    @property
    def preparation(self) -> Preparation | None: ...
    @property
    def stored(self) -> StoredHops | None: ...
    @property
    def adjacency_rows(self) -> CsrRows | None: ...
    @property
    def loop_weight(self) -> float: ...
    @property
    def relation_weights(self) -> dict[str, float]: ...

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of X, dense and in float32."""
        ...

    def in_memory(self) -> Graph:
        """All of it as a graph in memory; StoreError where only hop features are known."""
        ...


class GraphData(NodeData, Protocol):
    """Node data with edges, from which hop features can be computed."""

    @property
    def adjacency_rows(self) -> CsrRows: ...

    def fingerprint(self) -> Fingerprint:
        """A digest of the edges and features: equal for equal graphs, in memory or on disk."""
        ...


class StoredHops(NodeData, Protocol):
    """Node data whose hop features p_0(S) X .. p_k(S) X are known, in files of ``folder``.

    k is ``hops``, ``operator`` and ``basis`` are the names of S and of the p_i, and
    ``operator_rows`` is S in the form that the basis needs.
    """

    @property
    def folder(self) -> Path: ...
    @property
    def hops(self) -> int: ...
    @property
    def operator(self) -> str: ...
    @property
    def basis(self) -> str: ...
    @property
    def operator_rows(self) -> CsrRows: ...

    def require_complete(self) -> Any:
        """StoreError, with the way to finish it, if a part is missing."""
        ...

    def read(self, start: int, stop: int, hops: Sequence[int] | None = None) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of ``hops``: float32 (hops, rows, d)."""
        ...

    def rows(
        self, nodes: np.ndarray | Sequence[int], hops: Sequence[int] | None = None
    ) -> np.ndarray:
        """The rows of ``nodes``, in that order: float32 (hops, len(nodes), d)."""
        ...


def relations_of(arcs: Any, *, directed: bool, prefix: str = "") -> tuple[Relation, ...]:
    """The relations of ``arcs`` (n, n), whose entry (v, u) is the weight of the arc from v to u.

    Two if they are ``directed``, and otherwise one, in which of two ways the larger weight counts.
    """
    matrix = checked_arcs(arcs)
    if not directed:
        matrix = checked_arcs(matrix.maximum(matrix.T))
        return (Relation(prefix, frozen(matrix), None, mean_weight(CsrMemory(matrix))),)
    turned, weight = frozen(sp.csr_array(matrix.T)), mean_weight(CsrMemory(matrix))
    matrix = frozen(matrix)
    names = [f"{prefix}:{way}" if prefix else way for way in (OUT, IN)]
    return Relation(names[0], matrix, turned, weight), Relation(names[1], turned, matrix, weight)


def _checked_types(types: Sequence[Any], edges: int) -> np.ndarray:
    """The type of every edge, as text."""
    texts = np.array(["" if name is None else str(name).strip() for name in types], str)
    if len(texts) != edges:
        raise GraphError(f"types has length {len(texts):,} but there are {plural(edges, 'edge')}.")
    if (texts == "").any():
        raise GraphError("types has a missing value; every edge needs a type.")
    return texts


def types_of(names: Iterable[str]) -> list[str]:
    """The types as the column of the edges has them, of the names of relations.

    >>> types_of(["a:out", "a:in", "b:out", "b:in"]), types_of(["a", "b:out"])
    (['a', 'b'], ['a', 'b:out'])
    """
    names, ways = list(names), (f":{OUT}", f":{IN}")
    if all(name.endswith(ways) for name in names):
        names = [name.rpartition(":")[0] for name in names]
    return list(dict.fromkeys(names))


def _check_relations(relations: Sequence[Relation], nodes: int) -> None:
    """GraphError unless they are of a graph of so many nodes, each with a name of its own."""
    _check_unique("relations", [relation.name for relation in relations])
    for relation in relations:
        if relation.adjacency.shape != (nodes, nodes):
            raise GraphError(
                f"relation {relation.name!r} has shape {relation.adjacency.shape} but the graph "
                f"has {plural(nodes, 'node')}."
            )


def as_node_indices(nodes: Any, argument: str) -> np.ndarray:
    """Sorted indices; a boolean mask counts as the indices where it is true."""
    nodes = as_array(nodes, argument)
    if nodes.size == 0:
        return np.empty(0, np.int64)
    if nodes.ndim == 1 and nodes.dtype == bool:
        nodes = np.flatnonzero(nodes)
    if nodes.ndim != 1 or not np.issubdtype(nodes.dtype, np.integer):
        raise GraphError(
            f"{argument} has type {nodes.dtype} and shape {nodes.shape}; "
            f"pass a list of integer node indices.{ids_hint(nodes)}"
        )
    unique = np.unique(nodes).astype(np.int64)
    if unique.size != nodes.size:
        mask = unique[0] >= 0 and unique[-1] <= 1
        hint = f" If this is a mask, pass {argument}.astype(bool)." if mask else ""
        raise GraphError(
            f"{argument} has {plural(nodes.size - unique.size, 'duplicate node')}; pass each node "
            f"once.{hint}"
        )
    return unique


def ids_hint(nodes: np.ndarray, ids: Sequence[Any] | None = None) -> str:
    """How to get the indices of nodes that are given as text, or by ``ids`` alone.

    >>> ids_hint(np.array(["ann"])), ids_hint(np.array([0.5])), ids_hint(np.array([7]), (7, 8))[:9]
    (' Use graph.node_ids.index(id) to find the index of an id.', '', ' Use grap')
    """
    names = set(ids or ()) if nodes.ndim == 1 and nodes.size else None
    if names is None or not all(isinstance(node, str) or node in names for node in nodes.tolist()):
        return ""
    return " Use graph.node_ids.index(id) to find the index of an id."


def _checked_adjacency(adjacency: Any) -> sp.csr_array:
    matrix = checked_arcs(adjacency)
    turned = sp.csr_array(matrix.T)
    if all(np.array_equal(getattr(matrix, part), getattr(turned, part)) for part in CSR):
        return matrix
    gap = abs(matrix - turned)
    if gap.nnz and gap.data.max() > 1e-6 * matrix.data.max():
        raise GraphError(
            f"adjacency is not symmetric for {plural(gap.nnz // 2, 'pair')} of nodes; "
            "use Graph.from_edges, which ignores direction."
        )
    return matrix


def _checked_features(features: Any, n: int) -> np.ndarray | sp.csr_array:
    features = without_torch(features)
    if sp.issparse(features):
        matrix = as_csr(features, "features", copy=True)
        matrix.sum_duplicates()
        values = matrix.data
    else:
        matrix = as_array(features, "features").copy()
        values = matrix
    if matrix.ndim != 2:
        raise GraphError(f"features has shape {matrix.shape}; pass one row of numbers per node.")
    if matrix.shape[0] != n:
        raise GraphError(
            f"features has {plural(matrix.shape[0], 'row')} but the graph has {plural(n, 'node')}; "
            "pass one row per node."
        )
    if values.dtype.kind not in NUMBERS:
        raise GraphError(f"features has type {values.dtype}; pass numbers.")
    if values.dtype.newbyteorder("=") != np.float64:
        matrix = matrix.astype(np.float32, copy=False)
        values = matrix.data if sp.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        entries = sp.coo_array(matrix)
        odd = ~np.isfinite(entries.data)
        rows, columns = entries.row[odd], entries.col[odd]
        raise GraphError(
            f"features contain NaN or infinity in {plural(len(rows), 'place')} (first: node "
            f"{rows[0]}, feature {columns[0]}); fill or remove those values."
        )
    return matrix if sp.issparse(matrix) else np.ascontiguousarray(matrix)


def _checked_labels(labels: Any, n: int, class_names: Sequence[str] | None) -> np.ndarray:
    if labels is None:
        return np.full(n, UNKNOWN_LABEL, np.int64)
    labels = as_array(labels, "labels")
    if labels.shape[:1] != (n,):
        raise GraphError(
            f"labels has shape {labels.shape} but the graph has {plural(n, 'node')}; "
            "pass one label per node, -1 where unknown."
        )
    return label_type(labels).checked(labels, class_names)


def _check_split(split: Any, labels: np.ndarray) -> None:
    if not isinstance(split, Split):
        raise GraphError(
            f"split has type {type(split).__name__}; pass Split(train=..., val=..., test=...)."
        )
    for length in split.mask_lengths:
        if length != len(labels):
            raise GraphError(
                f"split has a mask of {plural(length, 'node')} but the graph has {len(labels):,}; "
                "pass masks with one value per node."
            )
    check_split(split, labels)


def check_split(split: Split, labels: np.ndarray) -> None:
    """Raise GraphError unless all nodes of the split are there and have a label."""
    n = len(labels)
    for part in PARTS:
        nodes = getattr(split, part)
        if nodes.size and (nodes[0] < 0 or nodes[-1] >= n):
            outside = nodes[0] if nodes[0] < 0 else nodes[-1]
            raise GraphError(
                f"split.{part} contains node {outside:,} but the graph has {plural(n, 'node')}; "
                f"node indices go from 0 to {n - 1:,}."
            )
        unlabelled = nodes[~known_labels(labels[nodes])]
        if unlabelled.size:
            raise GraphError(
                f"split.{part} contains {plural(unlabelled.size, 'node')} without a label (first: "
                f"{unlabelled[0]}); remove them from the split."
            )


def _check_unique(argument: str, names: Sequence | None) -> None:
    if names is not None and len(set(names)) < len(names):
        name = next(name for name, count in Counter(names).items() if count > 1)
        raise GraphError(f"{argument} has {name!r} more than once; make the names unique.")


def _check_names(argument: str, names: Sequence | None, expected: int, what: str) -> None:
    if names is not None and len(names) != expected:
        raise GraphError(
            f"{argument} has length {len(names):,} but there are {plural(expected, what)}."
        )
