"""Whether a graph fits a trained model, and its features in the model's order."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

from hoplite.errors import HopliteWarning, ModelFileError
from hoplite.graph import Graph
from hoplite.node_data import NodeData

PIECE = 1 << 20  # features that are looked at together
LEFT_OUT = "left_out_classes"  # of a model's training: the graph's classes that it did not see


def aligned_graph(graph: Graph, num_features: int, feature_names: tuple[str, ...] | None) -> Graph:
    """``graph``, with its features in the model's order where both have names.

    One-hot features (``column=value``) of a column that both know may differ: a value that only
    the model knows is zero everywhere, one that only the graph has is left out. Everything else
    that does not fit raises ModelFileError.
    """
    columns = aligned_columns(graph, num_features, feature_names)
    if columns is None:
        return graph
    return graph.with_features(_selected(graph, columns), feature_names)


def aligned_columns(
    data: NodeData, num_features: int, feature_names: tuple[str, ...] | None
) -> np.ndarray | None:
    """The model's features among the data's columns, -1 where there is none; None if alike.

    ModelFileError as in :func:`aligned_graph`.
    """
    if feature_names and data.feature_names:
        found = tuple(data.feature_names)
        if found == feature_names:
            return None
        _check_names(feature_names, found)
        _warn_of_new_values(data, set(feature_names))
        place = {name: j for j, name in enumerate(found)}
        return np.array([place.get(name, -1) for name in feature_names])
    if data.num_features != num_features:
        raise ModelFileError(
            f"the model was trained on {num_features:,} features but the graph has "
            f"{data.num_features:,}; use a graph with the same feature columns."
        )
    return None


def class_names_of(
    y: np.ndarray, classes: np.ndarray, graph: Graph, nodes: np.ndarray
) -> tuple[tuple[str, ...], list[str]]:
    """Names of the ``classes``, the distinct values of ``y``, and the graph's classes besides them.

    If ``y`` are the numbers of the graph's own labels, or their names, the names are the graph's.
    That is so if it is so at every one of ``nodes`` with a label, and there is one. Other values
    have a meaning of their own, so their names are what they are as text.

    >>> graph = Graph.from_edges([], np.eye(3), [0, 1, 1], class_names=["dog", "cat"])
    >>> class_names_of(np.array([1, 1]), np.array([1]), graph, np.array([1, 2]))
    (('cat',), ['dog'])
    """
    texts = tuple(str(value) for value in classes)
    names, labels = tuple(graph.class_names or ()), np.asarray(graph.labels)[nodes]
    known = labels >= 0
    if not known.any():
        return texts, []
    own = np.array(names, dtype=object)[labels[known]]
    if y.dtype.kind in "biuf" and np.array_equal(y[known], labels[known]):
        inside = (classes >= 0) & (classes < len(names)) & (classes == np.floor(classes))
        if not inside.all():  # at a node whose own label is unknown
            return texts, []
        texts = tuple(names[int(value)] for value in classes)
    elif not np.array_equal([str(value) for value in y[known]], own):
        return texts, []
    return texts, [name for name in names if name not in set(texts)]


def check_classes(
    graph: NodeData, class_names: tuple[str, ...], left_out: Iterable[str] = ()
) -> None:
    """Raise ModelFileError if the graph has classes that the model does not know.

    The graph may lack some of them, and may have those that were ``left_out`` when the model was
    trained. Names that are mere numbers (a graph without class names) are compared by their count.
    """
    names = tuple(graph.class_names or ())
    known = {*class_names, *left_out}
    numbered = names == tuple(str(c) for c in range(len(names)))
    if numbered and len(names) > len(known):
        raise ModelFileError(
            f"the model knows {len(class_names)} classes but the graph has {len(names)}; "
            "use this graph's own model, or leave out its labels."
        )
    unknown = [] if numbered else [name for name in names if name not in known]
    if unknown:
        shown = ", ".join(class_names[:5]) + (", ..." if len(class_names) > 5 else "")
        raise ModelFileError(
            f"the graph has class {unknown[0]!r}, which the model does not know ({shown}); "
            "use this graph's own model, or leave out its labels."
        )


def labels_in(graph: Graph, class_names: tuple[str, ...]) -> np.ndarray:
    """The graph's labels by the model's numbers: (n,), -1 where unknown.

    >>> graph = Graph.from_edges([], np.eye(2), [0, 1], class_names=["dog", "cat"])
    >>> labels_in(graph, ("cat", "dog")).tolist()
    [1, 0]
    """
    check_classes(graph, class_names)
    names, labels = tuple(graph.class_names or ()), graph.labels
    if labels is None or not set(names) <= set(class_names):
        return np.full(graph.num_nodes, -1) if labels is None else np.array(labels)
    place = {name: index for index, name in enumerate(class_names)}
    places = np.array([*[place[name] for name in names], -1])
    return places[labels]


def _check_names(wanted: tuple[str, ...], found: tuple[str, ...]) -> None:
    for kind, names, others in (
        ("the model expects feature {!r}, which the graph does not have", wanted, found),
        ("the graph has feature {!r}, which the model does not know", found, wanted),
    ):
        known, columns = set(others), {name.split("=")[0] for name in others if "=" in name}
        for name in names:
            if name not in known and not ("=" in name and name.split("=")[0] in columns):
                raise ModelFileError(f"{kind.format(name)}; use the same feature columns.")


def _warn_of_new_values(data: NodeData, known: set[str]) -> None:
    """Nodes whose category the model has never seen have none for it."""
    names, n = data.feature_names or (), data.num_nodes
    new = [j for j, name in enumerate(names) if name not in known]
    if new:
        columns = sorted({names[j].split("=")[0] for j in new})
        step = max(1, PIECE // max(data.num_features, 1))
        ranges = ((start, min(start + step, n)) for start in range(0, n, step))
        nodes = sum(int(data.feature_rows(*part)[:, new].any(axis=1).sum()) for part in ranges)
        warnings.warn(
            f"{nodes:,} of {n:,} nodes have a value of {', '.join(columns)} that the "
            "model does not know; it counts as none.",
            HopliteWarning,
            stacklevel=5,
        )


def _selected(graph: Graph, columns: np.ndarray) -> np.ndarray | sp.csr_array:
    """These columns, zeros for -1."""
    target = np.flatnonzero(columns >= 0)
    source, features = columns[target], graph.features
    if sp.issparse(features):
        ones = np.ones(len(target), dtype=features.dtype)
        shape = (graph.num_features, len(columns))
        return sp.csr_array(features @ sp.csr_array((ones, (source, target)), shape=shape))
    result = np.zeros((graph.num_nodes, len(columns)), dtype=features.dtype)
    result[:, target] = np.asarray(features)[:, source]
    return result
