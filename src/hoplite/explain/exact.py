"""A trained linear model on a graph or hop store, in float64: what explanations are made from.

    logits(v) = sum_i c_i (p_i(S) X)[v] Theta_i (+ b),    (p_i(S) X)[v] = R_i X

with R_i the row v of p_i(S): all R_i come from k products of S transposed with one column. Most
models have one Theta for all hops; JacobiConv and hop blocks have one for each, and c_i = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hoplite.engine.propagation import Propagation
from hoplite.engine.standardize import Moments, Standardized
from hoplite.errors import ConfigError, GraphError, nearest_hint, some_of
from hoplite.explain.rows import GraphRows, Rows, StoredRows
from hoplite.graph import Graph
from hoplite.labels import kind_of
from hoplite.models import LinearModel, ModelConfig, Weights, build_model
from hoplite.models.alignment import (
    aligned_columns,
    aligned_graph,
    check_classes,
    check_prepared,
    check_relations,
    check_stored,
)
from hoplite.models.base import names_of
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.store import open_data

MAX_COMPARED = 10_000  # ids that a wrong one is compared with


class ExactModel:
    """``trained`` on ``data``, set up once; the data must fit it as for its logits.

    >>> from hoplite import Graph, ModelConfig, model_config
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> weights = {"theta": np.ones((1, 2)), "alpha": np.array([1.0, 10.0])}
    >>> config = model_config("lgc", hops=1, operator="adjacency")
    >>> exact = ExactModel(TrainedModel(config, weights, 1, ("a", "b")), graph)
    >>> exact.rows.reach(0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> exact.logits_of(0).tolist()
    [31.0, 31.0]
    """

    def __init__(
        self, trained: TrainedModel, data: NodeData | str, memory: int | None = None
    ) -> None:
        config, data = trained.config, open_data(data, prepare=trained)
        require_linear(config)
        trained.refuse_correct_smooth("sums over hops, nodes and features that make its outputs")
        if trained.task.has_classes:
            check_classes(data, trained.class_names, trained.left_out_classes)
        check_prepared(data, trained.preparation)
        self.rows: Rows
        if data.stored is None:
            graph = aligned_graph(
                data.in_memory(),
                trained.num_features,
                trained.feature_names,
                trained.loop_weight,
                trained.relations,
            )
            self.rows = GraphRows(graph, config)
        else:
            check_stored(data.stored, config, trained.loop_weight)
            check_relations((), trained.relations)
            columns = aligned_columns(data, trained.num_features, trained.feature_names)
            self.rows = StoredRows(data.stored, config, columns, memory)
        self.trained, self.data = trained, self.rows.data
        self.model: LinearModel = build_model(
            config, trained.num_features, trained.num_classes, trained.relations
        )
        self.weights: Weights = {
            name: value.astype(np.float64) for name, value in trained.weights.items()
        }

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of X's columns, in the model's order."""
        names = self.data.feature_names
        return names and (self.trained.feature_names or names)

    def require_one_class(self) -> None:
        """ConfigError unless the nodes have one class each, whose lead can be explained."""
        if not self.trained.task.exclusive:
            raise ConfigError(
                f"the model is one of {self.trained.task.labels.task}, and explanations are of "
                "nodes with one class each; take the weights of the model itself, which is linear."
            )

    @cached_property
    def coefficients(self) -> np.ndarray:
        """c_i, which multiplies hop i besides its map: (k + 1,), or (1 + P k,) of P operators."""
        return self.model.hop_coefficients(self.weights).astype(np.float64)

    @cached_property
    def maps(self) -> np.ndarray:
        """Theta of every hop: (k + 1, d, m), or (1, d, m) if it is the same for all."""
        return self.model.maps(self.weights)

    @cached_property
    def bias(self) -> np.ndarray:
        """b, (m,); 0 for a model without one."""
        return self.weights.get("bias", np.zeros(self.trained.num_classes))

    @cached_property
    def scaling(self) -> Standardized:
        """Mean and deviation over all nodes that standardised outputs have lost; else 0 and 1."""
        zeros = np.zeros(self.trained.num_classes)
        if not self.trained.config.standardize:
            return Standardized(zeros, np.ones_like(zeros))
        moments = Moments(0, zeros, zeros)
        for signal in self.rows.signals(self.model, self.weights):
            moments = moments.merged(Moments.of(signal))
        least = np.finfo(self.rows.dtype).eps  # as in the model's own number type
        deviation = np.sqrt(moments.squares / max(moments.rows, 1))
        return Standardized(moments.mean, np.maximum(deviation, least))

    def outputs(self, signal: np.ndarray) -> np.ndarray:
        """Logits from the signal of some nodes, (rows, m).

        A standardised model keeps the mean and deviation of the graph as it is.
        """
        return self.scaling.apply(signal) + self.bias

    def logits_of(self, node: int) -> np.ndarray:
        """The model's own logits (m,) of ``node``, computed in the number type of the data.

        They are evaluated as for a prediction: once for all nodes of a graph, or from the hop
        features that a store has.
        """
        hops = self.rows.stored_hops(node, self.model.hops_read)
        if hops is None:
            logits = self._every_logit[node]
        else:
            hops = hops.astype(self.rows.dtype)
            weights = {name: value.astype(hops.dtype) for name, value in self.weights.items()}
            logits = self.outputs(self.model.signal_from_hops(weights, hops))[0]
        return self._finite(logits, node_id(self.data, node))

    def logits_on(self, graph: Graph, node: int, name: str | int) -> np.ndarray:
        """The logits (m,) of ``node``, called ``name``, on another graph with the same features."""
        return self._finite(self._logits(graph)[node], name)

    def _finite(self, logits: np.ndarray, name: str | int) -> np.ndarray:
        if not np.isfinite(logits).all():
            raise ConfigError(
                f"the model gives node {name} the logits {logits.tolist()}, which are not finite; "
                "train it again with a smaller learning rate."
            )
        return logits.astype(np.float64)

    @cached_property
    def _every_logit(self) -> np.ndarray:
        return self._logits(self.data.in_memory())

    def _logits(self, graph: Graph) -> np.ndarray:
        return self.trained.raw_logits(Propagation.of(graph, self.trained.config))


def require_linear(config: ModelConfig) -> None:
    """ConfigError unless the outputs of such a model are sums over hops, nodes and features."""
    if not issubclass(config.kind, LinearModel):
        linear = names_of(lambda kind: issubclass(kind, LinearModel), "or")
        why = "is not linear in the features, so its outputs are not sums over these"
        raise ConfigError(f"a {config.model} {why}; use {linear}.")


def node_index(data: NodeData, node: Any) -> int:
    """The index of ``node``: one of the graph's node ids, or, only if it has none, an index itself.

    >>> from hoplite import Graph
    >>> node_index(Graph.from_edges([(0, 1)], np.eye(2), node_ids=["ann", "bob"]), "bob")
    1
    """
    if isinstance(node, np.ndarray | list | tuple):
        raise GraphError(
            f"node is a {type(node).__name__}; explain one node at a time, many with an Explainer: "
            "[explainer.explain(node) for node in nodes]."
        )
    if data.node_ids is not None:
        ids = list(data.node_ids)
        if node in ids:
            return ids.index(node)
        texts = [str(one) for one in ids]
        if str(node) in texts:
            return texts.index(str(node))
        hint = nearest_hint(node, texts[:MAX_COMPARED])
        raise GraphError(f"node is {node!r}, which is not the id of a node of the graph.{hint}")
    text = str(node)
    if isinstance(node, bool) or not text.isdecimal() or int(text) >= data.num_nodes:
        raise GraphError(
            f"node is {node!r} but the graph has {data.num_nodes:,} nodes without ids; "
            f"pass an index from 0 to {data.num_nodes - 1:,}."
        )
    return int(node)


def node_id(data: NodeData, node: int) -> str | int:
    """The id of a node as JSON has it: a whole number or a text; its index without ids."""
    if data.node_ids is None:
        return int(node)
    found = data.node_ids[node]
    whole = isinstance(found, int | np.integer) and not isinstance(found, bool)
    return int(found) if whole else str(found)


def label_text(data: NodeData, node: int) -> str | None:
    """The name of the true class of a node, or its number; None if it is not known."""
    kind, label = kind_of(data.labels), data.labels[node : node + 1]
    return str(kind.text(label[0], data.class_names)) if kind.known(label)[0] else None


def class_index(argument: str, names: Sequence[str], value: Any) -> int:
    """The index of the class ``value``: a name, or an index as a whole number.

    >>> class_index("class_", ("cat", "dog"), "dog"), class_index("class_", ("cat", "dog"), 0)
    (1, 0)
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if whole and 0 <= value < len(names):
        return int(value)
    if not isinstance(value, str) or value not in names:
        hint = nearest_hint(value, names)
        raise ConfigError(
            f"{argument} is {value!r} but the model has {len(names)} classes; pass an index from 0 "
            f"to {len(names) - 1}, or a name: {some_of(names, 10)}.{hint}"
        )
    return names.index(value)
