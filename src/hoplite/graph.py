"""Graph: one validated, immutable node-classification problem."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import GraphError, HopliteWarning
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
from hoplite.sparse_checks import as_csr


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
        parts = [np.asarray(getattr(self, part)) for part in ("train", "val", "test")]
        lengths = tuple(len(part) for part in parts if part.dtype == bool and part.ndim == 1)
        object.__setattr__(self, "mask_lengths", lengths)
        for part in ("train", "val", "test"):
            nodes = as_node_indices(getattr(self, part), f"split.{part}")
            both = np.intersect1d(nodes, seen)
            if both.size:
                raise GraphError(
                    f"split.{part} shares {both.size:,} nodes (first: {both[0]}) with another "
                    "part; give each node to one part at most."
                )
            seen = np.concatenate([seen, nodes])
            object.__setattr__(self, part, frozen(nodes))

    def sizes(self) -> dict[str, int]:
        """Number of nodes per part."""
        return {part: int(getattr(self, part).size) for part in ("train", "val", "test")}


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected graph with node features and (some) node labels.

    Parameters
    ----------
    adjacency : (n, n) sparse or dense matrix
        Symmetric, non-negative edge weights. The diagonal is dropped: operators add their own
        self-loops.
    features : (n, d) array or sparse matrix
        Finite numbers, one row per node. float64 is kept, everything else becomes float32.
    labels : (n,) integers, optional
        Class of each node, ``-1`` where unknown.
    split : Split, optional
        Training, validation and test nodes.
    class_names, feature_names, node_ids : sequences, optional
        Names for reports and predictions.

    A graph is never changed after construction, so copies are the graph itself.

    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3), labels=[0, 1, -1])
    >>> g
    Graph(nodes=3, edges=2, features=3, classes=2)
    """

    adjacency: sp.csr_array
    features: np.ndarray | sp.csr_array
    labels: np.ndarray | None = None
    split: Split = field(default_factory=Split)
    class_names: Sequence[str] | None = None
    feature_names: Sequence[str] | None = None
    node_ids: Sequence[Any] | None = None
    name: str = "graph"

    def __post_init__(self) -> None:
        adjacency = checked_adjacency(self.adjacency)
        n = adjacency.shape[0]
        features = checked_features(self.features, n)
        labels = checked_labels(self.labels, n, self.class_names)
        if not isinstance(self.split, Split):
            raise GraphError(
                f"split is a {type(self.split).__name__}; pass Split(train=..., val=..., test=...)."
            )
        for length in self.split.mask_lengths:
            if length != n:
                raise GraphError(
                    f"split has a mask of {length:,} nodes but the graph has {n:,}; "
                    "pass masks with one value per node."
                )
        for part in ("train", "val", "test"):
            check_split_part(part, getattr(self.split, part), labels, n)
        check_names("feature_names", self.feature_names, features.shape[1], "feature columns")
        check_names("node_ids", self.node_ids, n, "nodes")
        check_unique("node_ids", self.node_ids)
        classes = int(labels.max(initial=-1)) + 1
        if self.class_names is None:
            object.__setattr__(self, "class_names", tuple(str(c) for c in range(classes)))
        else:
            object.__setattr__(self, "class_names", tuple(self.class_names))
        for name in ("feature_names", "node_ids"):
            given = getattr(self, name)
            if given is not None:
                plain = given.tolist() if isinstance(given, np.ndarray) else given
                object.__setattr__(self, name, tuple(plain))
        for name, value in (("adjacency", adjacency), ("features", features), ("labels", labels)):
            object.__setattr__(self, name, frozen(value))
        self._warn_about_untrained_classes()

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        features: Any,
        labels: Any = None,
        *,
        weights: Any = None,
        **options: Any,
    ) -> Graph:
        """Build a graph from an edge list of shape (e, 2); direction is ignored.

        Without ``weights`` every pair counts once. With weights, repeated pairs in one direction
        are summed, and if both directions are given the larger weight is taken, so a list that
        names each edge twice means the same as one that names it once.
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
        directed = sp.coo_array((values, (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
        if weights is None:
            directed.data[:] = 1
        adjacency = directed.maximum(directed.T)
        return cls(adjacency, features, labels, **options)

    @property
    def num_nodes(self) -> int:
        return self.adjacency.shape[0]

    @property
    def num_edges(self) -> int:
        """Undirected edges, self-loops not counted."""
        return self.adjacency.nnz // 2

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def num_classes(self) -> int:
        return len(self.class_names or ())

    def with_split(self, split: Split) -> Graph:
        """The same graph with another split."""
        return self._replace(split=split)

    def with_labels(self, labels: Any, class_names: Sequence[str] | None = None) -> Graph:
        """The same graph with other labels and no split."""
        return self._replace(labels=labels, class_names=class_names, split=Split())

    def with_features(self, features: Any, names: Sequence[str] | None = None) -> Graph:
        """The same graph with other features."""
        return self._replace(features=features, feature_names=names)

    def _replace(self, **changes: Any) -> Graph:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Graph(**{**values, **changes})

    def _warn_about_untrained_classes(self) -> None:
        if self.labels is None or not self.split.train.size:
            return
        trained = np.unique(self.labels[self.split.train])
        missing = np.setdiff1d(np.arange(self.num_classes), trained)
        if missing.size:
            names = ", ".join(str((self.class_names or ())[c]) for c in missing[:5])
            warnings.warn(
                f"{missing.size} of {self.num_classes} classes have no training node ({names}); "
                "they can never be predicted well.",
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
        return (
            f"Graph(nodes={self.num_nodes}, edges={self.num_edges}, "
            f"features={self.num_features}, classes={self.num_classes})"
        )
