"""What all node data answers, wherever it is: a graph in memory, a graph on disk, a hop store.

Training, prediction and explanation ask these questions and never what kind of object it is.
:func:`hoplite.open_data` makes node data of what a user names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hoplite.csr import CsrRows, Fingerprint
from hoplite.graph import Graph, Split
from hoplite.preparation import Preparation

if TYPE_CHECKING:
    from builtins import property as cached_property  # a protocol's property must be one
else:
    from functools import cached_property

__all__ = ["GraphData", "NodeData", "StoredHops", "cached_property"]


class NodeData(Protocol):
    """n nodes with d features each, (some) labels of m classes, and a split.

    A graph in memory, a graph on disk and a hop store all answer these questions, so training,
    prediction and explanation take any of them.
    """

    @property
    def name(self) -> str:
        """What the data is called in reports."""
        ...

    @property
    def num_nodes(self) -> int:
        """n."""
        ...

    @property
    def num_features(self) -> int:
        """d."""
        ...

    @property
    def num_classes(self) -> int:
        """m."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the m classes."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the d features; None if they have none."""
        ...

    @property
    def labels(self) -> np.ndarray:
        """A row for every node, of one of the kinds of :mod:`hoplite.labels`."""
        ...

    @property
    def split(self) -> Split:
        """The nodes of training, validation and test."""
        ...

    @property
    def node_ids(self) -> Sequence[Any] | None:
        """The names of the nodes; None where they are 0 .. n - 1."""
        ...

    @property
    def preparation(self) -> Preparation | None:
        """How X came from tables, if it did."""
        ...

    @property
    def stored(self) -> StoredHops | None:
        """The hop features, if they have been computed already."""
        ...

    @property
    def adjacency_rows(self) -> CsrRows | None:
        """The edge weights; None if they are not known any more."""
        ...

    @property
    def loop_weight(self) -> float:
        """The weight of the self-loops that operators add."""
        ...

    @property
    def relation_weights(self) -> dict[str, float]:
        """That weight for each relation (:mod:`hoplite.relations`); files have none."""
        ...

    def feature_rows(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) of X, dense and in float32."""
        ...

    def in_memory(self) -> Graph:
        """All of it as a graph in memory; StoreError where only hop features are known."""
        ...


class GraphData(NodeData, Protocol):
    """Node data with edges, of which hop features can be computed."""

    @property
    def adjacency_rows(self) -> CsrRows: ...

    def fingerprint(self) -> Fingerprint:
        """By which the graph is known again, wherever it is kept."""
        ...


class StoredHops(NodeData, Protocol):
    """Node data whose hop features p_0(S) X .. p_k(S) X are known: S, p_i and k = ``hops``."""

    @property
    def folder(self) -> Path:
        """Where the files are."""
        ...

    @property
    def hops(self) -> int:
        """k, the highest of them."""
        ...

    @property
    def operator(self) -> str:
        """The name of S."""
        ...

    @property
    def basis(self) -> str:
        """The name of the p_i."""
        ...

    @property
    def operator_rows(self) -> CsrRows:
        """S, in the form that the basis needs."""
        ...

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
