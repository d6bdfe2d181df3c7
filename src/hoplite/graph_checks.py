"""The checks that a Graph makes of its parts, each failing with one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.errors import GraphError
from hoplite.labels import UNKNOWN_LABEL, kind_of, known_labels
from hoplite.sparse_checks import NUMBERS, as_csr, as_numbers

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.optional_deps import sparse as sp

CSR = ("indptr", "indices", "data")


def frozen(value: Any) -> Any:
    """Make an array, or the arrays of a CSR matrix, read-only."""
    if sp.issparse(value):
        for part in CSR:
            setattr(value, part, frozen(getattr(value, part)))
        return value
    value = value.view()
    value.flags.writeable = False
    return value


def as_array(value: Any, argument: str) -> np.ndarray:
    """``value`` as an array of numbers; lists of unequal lengths and other things are refused."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == object:
        raise GraphError(
            f"{argument} is a {type(value).__name__} that is no array of numbers; "
            "pass rows of equal length."
        )
    return array


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
        raise GraphError(f"{argument} names {nodes.size - unique.size:,} nodes twice.")
    return unique


def ids_hint(nodes: np.ndarray, ids: Sequence[Any] | None = None) -> str:
    """How what stands for nodes becomes indices, if it is text, or all of it is among ``ids``.

    >>> ids_hint(np.array(["ann"])), ids_hint(np.array([0.5])), ids_hint(np.array([7]), (7, 8))[:9]
    (' The index of an id is graph.node_ids.index(id).', '', ' The inde')
    """
    known = set(ids or ()) if nodes.ndim == 1 and nodes.size else None
    if known is None or not all(isinstance(one, str) or one in known for one in nodes.tolist()):
        return ""
    return " The index of an id is graph.node_ids.index(id)."


def check_weights(values: np.ndarray) -> None:
    if values.dtype.kind not in NUMBERS:
        raise GraphError(f"edge weights have type {values.dtype}; pass numbers.")
    if not np.isfinite(values).all():
        raise GraphError("edge weights contain NaN or infinity; remove or replace those edges.")
    if (values < 0).any():
        raise GraphError(
            f"edge weights go down to {values.min():g}; they must not be negative, "
            "because the operators take square roots of weighted degrees."
        )


def checked_arcs(adjacency: Any) -> sp.csr_array:
    """A square matrix of weights without its diagonal, float32 or float64."""
    if sp.issparse(adjacency):
        matrix = as_csr(adjacency, "adjacency", copy=True)
    else:
        adjacency = as_array(adjacency, "adjacency")
        if adjacency.ndim != 2 or adjacency.dtype.kind not in NUMBERS:
            raise GraphError(
                f"adjacency has type {adjacency.dtype} and shape {adjacency.shape}; "
                "pass a square matrix of numbers."
            )
        matrix = sp.csr_array(as_numbers(adjacency))
    if matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency has shape {matrix.shape}; it must be square.")
    check_weights(matrix.data)
    matrix.sum_duplicates()  # before bool becomes a number: true and true are true
    if matrix.dtype != np.float64:
        matrix = matrix.astype(np.float32, copy=False)
    if matrix.diagonal().any():
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        matrix.data[rows == matrix.indices] = 0
    matrix.eliminate_zeros()
    return matrix


def checked_adjacency(adjacency: Any) -> sp.csr_array:
    matrix = checked_arcs(adjacency)
    turned = sp.csr_array(matrix.T)
    if all(np.array_equal(getattr(matrix, part), getattr(turned, part)) for part in CSR):
        return matrix
    gap = abs(matrix - turned)
    if gap.nnz and gap.data.max() > 1e-6 * matrix.data.max():
        raise GraphError(
            f"adjacency is not symmetric ({gap.nnz // 2:,} pairs differ); "
            "use Graph.from_edges, which ignores direction."
        )
    return matrix


def checked_features(features: Any, n: int) -> np.ndarray | sp.csr_array:
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
            f"features has {matrix.shape[0]:,} rows but the graph has {n:,} nodes; "
            "pass one row per node."
        )
    if values.dtype.kind not in NUMBERS:
        raise GraphError(f"features has type {values.dtype}; pass numbers.")
    if values.dtype.newbyteorder("=") != np.float64:
        matrix = matrix.astype(np.float32, copy=False)
        values = matrix.data if sp.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise GraphError("features contain NaN or infinity; fill or remove those values.")
    return matrix if sp.issparse(matrix) else np.ascontiguousarray(matrix)


def checked_labels(labels: Any, n: int, class_names: Sequence[str] | None) -> np.ndarray:
    if labels is None:
        return np.full(n, UNKNOWN_LABEL, np.int64)
    labels = as_array(labels, "labels")
    if labels.shape[:1] != (n,):
        raise GraphError(
            f"labels has shape {labels.shape} but the graph has {n:,} nodes; "
            "pass one label per node, -1 where unknown."
        )
    return kind_of(labels).checked(labels, class_names)


def check_split_part(part: str, nodes: np.ndarray, labels: np.ndarray, n: int) -> None:
    if nodes.size and (nodes[0] < 0 or nodes[-1] >= n):
        outside = nodes[0] if nodes[0] < 0 else nodes[-1]
        raise GraphError(
            f"split.{part} names node {outside:,} but the graph has {n:,} nodes; "
            f"node indices go from 0 to {n - 1:,}."
        )
    unlabelled = nodes[~known_labels(labels[nodes])]
    if unlabelled.size:
        raise GraphError(
            f"split.{part} holds {unlabelled.size:,} nodes without a label "
            f"(first: {unlabelled[0]}); leave them out of the split."
        )


def check_unique(argument: str, names: Sequence | None) -> None:
    if names is not None and len(set(names)) < len(names):
        raise GraphError(f"{argument} holds a name twice; give every one its own.")


def check_names(argument: str, names: Sequence | None, expected: int, what: str) -> None:
    if names is not None and len(names) != expected:
        raise GraphError(
            f"{argument} has {len(names):,} entries but there are {expected:,} {what}."
        )
