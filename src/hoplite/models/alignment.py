"""Check that a graph fits a trained model, and put its features in the model's order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from msgspec import Meta

from hoplite.errors import ConfigError, ModelFileError, by_interface, plural, some_of, warn
from hoplite.graph import Graph, NodeData, StoredHops, types_of
from hoplite.labels import CLASSES, known_labels, label_type
from hoplite.models import ModelConfig
from hoplite.operators import find_operator
from hoplite.preparation import Preparation, changes
from hoplite.structural import log_degrees, with_log_degree

LEFT_OUT = "left_out_classes"  # key in a model's training: the graph's classes that it did not see


def aligned_graph(
    graph: Graph,
    num_features: int,
    feature_names: tuple[str, ...] | None,
    loop_weight: float | None = None,
    relations: dict[str, float] | None = None,
) -> Graph:
    """``graph``, with its features in the model's order and its self-loops of the model's weight.

    Logarithms of degrees are computed if only the model has them. See :func:`aligned_columns`.
    """
    if loop_weight is not None:
        graph = graph.with_loop_weight(loop_weight)
    if relations or graph.relations:
        check_relations([relation.name for relation in graph.relations], relations or {})
        graph = graph.with_relations(relations or {})
    if degrees := log_degrees(feature_names, None):
        graph = with_log_degree(graph, degrees)
    columns = aligned_columns(graph, num_features, feature_names)
    if columns is None:
        return graph
    features = graph.features
    if sp.issparse(features):
        target = np.flatnonzero(columns >= 0)
        weights = np.ones(len(target), dtype=features.dtype)
        shape = (graph.num_features, len(columns))
        features = sp.csr_array(
            features @ sp.csr_array((weights, (columns[target], target)), shape)
        )
    else:
        features = in_columns(np.asarray(features), columns)
    return graph.with_features(features, feature_names, preparation=graph.preparation)


def aligned_columns(
    data: NodeData, num_features: int, feature_names: tuple[str, ...] | None
) -> np.ndarray | None:
    """The position of each of the model's features in the data, -1 if missing; None if all match.

    One-hot features (``column=value``) of a common column may differ: a value that only the model
    has is zero everywhere, one that only the data has is left out. Any other difference raises
    ModelFileError. If one side has no names, only the number of columns is compared.
    """
    if feature_names and data.feature_names:
        if data.feature_names == feature_names:
            return None
        _check_names(feature_names, data.feature_names, data)
        _warn_of_new_values(data, set(feature_names))
        place = {name: j for j, name in enumerate(data.feature_names)}
        return np.array([place.get(name, -1) for name in feature_names], np.int64)
    if data.num_features != num_features:
        raise ModelFileError(
            f"the model was trained on {plural(num_features, 'feature')} but the graph has "
            f"{data.num_features:,}; use a graph with the same feature columns."
        )
    return None


def class_names_of(
    y: np.ndarray, classes: np.ndarray, graph: Graph, nodes: np.ndarray
) -> tuple[tuple[str, ...], list[str]]:
    """Names of the ``classes``, the distinct values of ``y``, and the graph's other classes.

    If ``y`` are the indices or the names of the graph's own labels, the names are those of the
    graph. This requires that all of ``nodes`` that have a label agree, and at least one has. Other
    values are converted to text.

    >>> graph = Graph.from_edges([], np.eye(3), [0, 1, 1], class_names=["dog", "cat"])
    >>> class_names_of(np.array([1, 1]), np.array([1]), graph, np.array([1, 2]))
    (('cat',), ['dog'])
    """
    texts = tuple(str(value) for value in classes)
    names, labels = tuple(graph.class_names or ()), np.asarray(graph.labels)[nodes]
    labelled = known_labels(labels)
    if label_type(labels) is not CLASSES or not labelled.any():
        return texts, []
    label_names = np.array(names, dtype=object)[labels[labelled]]
    if y.dtype.kind in "biuf" and np.array_equal(y[labelled], labels[labelled]):
        inside = (classes >= 0) & (classes < len(names)) & (classes == np.floor(classes))
        if not inside.all():  # at a node whose own label is unknown
            return texts, []
        texts = tuple(names[int(value)] for value in classes)
    elif not np.array_equal([str(value) for value in y[labelled]], label_names):
        return texts, []
    return texts, [name for name in names if name not in set(texts)]


def check_classes(
    graph: NodeData, class_names: tuple[str, ...], left_out: Iterable[str] = ()
) -> None:
    """Raise ModelFileError if the graph has classes that the model does not know.

    The graph may lack some classes, and may have those that were ``left_out`` in training. If the
    graph has no class names, only the number of classes is compared.
    """
    names = graph.class_names
    model_names = {*class_names, *left_out}
    numbered = names == tuple(str(c) for c in range(len(names)))
    if numbered and len(names) > len(model_names):
        raise ModelFileError(
            f"the model has {plural(len(class_names), 'class')} but the graph has {len(names)}; "
            "use a model of this graph, or remove its labels."
        )
    unknown = [] if numbered else [name for name in names if name not in model_names]
    if unknown:
        raise ModelFileError(
            f"the graph has the class {unknown[0]!r}, but the model was trained with the classes "
            f"{some_of(class_names)}; use a model of this graph, or remove its labels."
        )


def check_prepared(data: NodeData, preparation: Preparation | None) -> None:
    """Raise ModelFileError if the data's columns were prepared differently from the training's.

    Categories are compared only if rare ones were merged; otherwise the names of features suffice.
    Features without names, or not from a table, are not checked.
    """
    preparations = filter(None, (preparation, data.preparation))
    transformers = [part.transformer for part in preparations]
    if len(set(transformers)) > 1:
        raise ModelFileError(
            f"the features of {data.name} were made by {transformers[1] or 'Hoplite'} but those of "
            f"the training data by {transformers[0] or 'Hoplite'}; load its tables with "
            "hoplite.load(..., prepare=...)."
        )
    ours, theirs = changes(preparation), changes(data.preparation)
    if ours == theirs or not data.feature_names:
        return
    other = next(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
    stored = getattr(data, "stored", None)  # a set of graphs has no such attribute
    raise ModelFileError(
        f"column {other!r} was prepared differently for {data.name} than for training; "
        f"{'read its tables with prepare=model' if stored is None else _build_store()}."
    )


def check_stored(stored: StoredHops, config: ModelConfig, loop_weight: float | None = None) -> None:
    """Raise ConfigError unless a model with these settings can use the hop features."""
    stored.require_complete()
    config.kind.check_store()
    if len(config.operators) > 1:
        raise ConfigError(
            f"the model uses hops of {' and '.join(config.operators)}, but {stored.folder} "
            "contains those of one operator; pass the dataset itself, or leave out channels."
        )
    check_neighbours(config)
    for option in ("operator", "basis"):
        if getattr(config, option) != getattr(stored, option):
            other = f"is {getattr(config, option)!r} but {stored.folder} was built with "
            other += repr(getattr(stored, option))
            if loop_weight is None:  # in training
                raise ConfigError(f"{other}; leave it out.", option)
            raise ConfigError(f"the model's {option} {other}; {_build_store()}.")
    store_weight = stored.loop_weight
    if find_operator(stored.operator).loop and loop_weight not in (None, store_weight):
        raise ConfigError(
            f"{stored.folder} has self-loops of weight {store_weight:g} in its operator but the "
            f"model has {loop_weight:g}, the mean edge weight in training; {_build_store()}, or "
            "pass the dataset itself."
        )
    if config.hops > stored.hops:
        raise ConfigError(
            f"is {config.hops} but {stored.folder} has only {stored.hops}; add more with "
            + by_interface(
                f"hoplite.propagate(..., {str(stored.folder)!r}, hops={config.hops}).",
                f"`hoplite propagate ... --hops {config.hops} --out {stored.folder}`.",
            ),
            "hops",
        )


def _build_store() -> str:
    """How to build a store that fits a model."""
    return "build the store with " + by_interface(
        "hoplite.propagate(..., prepare=model)", "`hoplite propagate --prepare MODEL_DIR`"
    )


def check_neighbours(config: ModelConfig) -> None:
    """Raise ConfigError if a model uses labels of neighbours, as a hop store has no edges."""
    if config.neighbour_labels:
        raise ConfigError(
            "requires edges, which a hop store does not have; pass the dataset itself, or leave "
            "it out.",
            "neighbour_labels",
        )


def check_relations(names: Sequence[str], model_relations: Mapping[str, float]) -> None:
    """Raise ModelFileError unless a model with ``model_relations`` can be used on a graph.

    Some of the model's relations may be missing in the graph: they have no edges.
    """
    if bool(names) != bool(model_relations):
        loaded, trained = ("with", "without") if names else ("without", "with")
        raise ModelFileError(
            f"the graph was loaded {loaded} edge directions or types but the model was trained "
            f"{trained} them ({some_of(names or model_relations)}); load it as in training, or "
            "with prepare=model."
        )
    unknown = [name for name in names if name not in model_relations]
    if unknown:
        types = types_of(model_relations)
        new = [*[name for name in types_of(unknown) if name not in types], unknown[0]][0]
        raise ModelFileError(
            f"the graph has edges of type {new!r}, which the model does not know "
            f"({some_of(types)}); remove these edges, or train a model with them."
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


def _check_names(model_names: Sequence[str], graph_names: Sequence[str], data: NodeData) -> None:
    advice = _build_store() if data.stored is not None else "use the same feature columns"
    for message, names, others in (
        ("the model expects feature {!r}, which the graph does not have", model_names, graph_names),
        ("the graph has feature {!r}, which the model does not know", graph_names, model_names),
    ):
        other_names, columns = set(others), {name.split("=")[0] for name in others if "=" in name}
        for name in names:
            if name not in other_names and not ("=" in name and name.split("=")[0] in columns):
                raise ModelFileError(f"{message.format(name)}; {advice}.")


def _warn_of_new_values(data: NodeData, known_names: set[str]) -> None:
    """Warn about categories that the model does not know; they are ignored."""
    names = [name for name in data.feature_names or () if name not in known_names]
    if names:
        columns = ", ".join(sorted({name.split("=")[0] for name in names}))
        warn(
            f"{data.name} has values of {columns} that the model does not know ({some_of(names)}); "
            "they are ignored.",
            stacklevel=5,
        )


def in_columns(features: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The columns of ``features`` (..., d) in the order of :func:`aligned_columns`.

    >>> in_columns(np.array([[1.0, 2.0]]), np.array([1, -1, 0])).tolist()
    [[2.0, 0.0, 1.0]]
    """
    result = np.zeros((*features.shape[:-1], len(columns)), dtype=features.dtype)
    present = columns >= 0
    result[..., present] = features[..., columns[present]]
    return result


@dataclass(frozen=True)
class NodeIndex:
    """``count`` nodes in their order, identified by a digest of their ids, if any.

    >>> from hoplite import Graph
    >>> known = NodeIndex.of(Graph.from_edges([(0, 1)], [[1.0], [2.0]], node_ids=["a", "b"]))
    >>> known.check(Graph.from_edges([(0, 2)], [[1.0]] * 3, node_ids=["a", "b", "new"]))
    """

    count: Annotated[int, Meta(ge=1, le=2**53)]
    ids: Annotated[str, Meta(max_length=64)] = ""

    @classmethod
    def of(cls, data: NodeData) -> NodeIndex:
        """The nodes of training data."""
        return cls(data.num_nodes, _digest(data.node_ids, data.num_nodes))

    def check(self, data: NodeData) -> None:
        """Raise ModelFileError unless the data starts with these nodes; others need ids."""
        count = data.num_nodes
        if count < self.count or (count > self.count and not self.ids):
            raise ModelFileError(
                f"the model stores labels of the {plural(self.count, 'node')} of its training "
                f"graph, but {data.name} has {plural(count, 'node')}; predict on the training "
                "graph, to which you can add nodes with ids, or train a model on this graph."
            )
        if self.ids and _digest(data.node_ids, self.count) != self.ids:
            raise ModelFileError(
                f"the model stores labels of the {plural(self.count, 'node')} of its training "
                f"graph, but those of {data.name} have other ids or another order; predict on the "
                "training graph, or train a model on this graph."
            )


def _digest(ids: Sequence[Any] | None, count: int) -> str:
    """SHA-256 of the first ids as text; empty without any."""
    if ids is None:
        return ""
    digest = hashlib.sha256()
    for node_id in islice(iter(ids), count):
        text = str(node_id).encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()
