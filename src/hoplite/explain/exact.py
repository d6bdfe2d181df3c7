"""A trained linear model on a graph or hop store, in float64: what explanations are made from.

    logits(v) = sum_i c_i(v) * (p_i(S) X)[v] Theta (+ b),    (p_i(S) X)[v] = R_i X

with R_i the row v of p_i(S): all R_i come from k products of S transposed with one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoplite.errors import ConfigError, GraphError, nearest_hint
from hoplite.explain.rows import GraphRows, Rows, StoredRows
from hoplite.labels import kind_of
from hoplite.models import MODELS, Weights, build_model
from hoplite.models.alignment import (
    aligned_columns,
    aligned_graph,
    check_classes,
    check_loops,
    check_prepared,
    check_relations,
)
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.propagation.engine import KnownRows
from hoplite.propagation.relations import propagation_for
from hoplite.store import open_data

COMPARED_IDS = 10_000  # node ids among which the nearest to a wrong one is looked for


class ExactModel:
    """``trained`` on ``graph``, set up once; the graph must fit it as for its logits.

    >>> from hoplite import Graph
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> from hoplite import ModelConfig
    >>> weights = {"theta": torch.ones(1, 2), "alpha": torch.tensor([1.0, 10.0])}
    >>> config = ModelConfig("lgc", hops=1, operator="adjacency")
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
        if not config.kind.linear:
            linear = [model.name for model in MODELS.values() if model.linear]
            raise ConfigError(
                f"the model is a {config.model}, which {config.kind.unexplained}, so its logits "
                "are no sums over hops, nodes and features; use an "
                f"{', '.join(linear[:-1])} or {linear[-1]}."
            )
        trained.refuse_after("sums over hops, nodes and features that make its outputs")
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
            columns = aligned_columns(data, trained.num_features, trained.feature_names)
            self.rows = StoredRows(data.stored, config, columns, memory)
            check_loops(data.stored, trained.loop_weight)
            check_relations((), trained.relations)
        self.trained, self.data = trained, self.rows.data
        self.model = build_model(
            config, trained.num_features, trained.num_classes, trained.relations
        )
        self.weights: Weights = {
            name: value.double().unsqueeze(0) for name, value in trained.weights.items()
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

    def hop_features(self, reach: np.ndarray) -> np.ndarray:
        """p_i(S) X at a node from its ``reach``: (k + 1, d)."""
        total = np.zeros((self.trained.num_features, len(reach)))
        for nodes, rows in self.rows.features(np.flatnonzero(reach.any(axis=0))):
            total += rows.T @ reach[:, nodes].T
        return np.ascontiguousarray(total.T)

    def coefficients(self, node: int, reach: np.ndarray) -> np.ndarray:
        """What hop i of ``node`` is multiplied with beside Theta, by the reading of the gate.

        (k + 1, 1) if it is one number; (k + 1, m) or (k + 1, d) if it is one per class or feature.
        """
        if not self.model.gated:
            return self._same_coefficients
        return self._coefficients(torch.from_numpy(self.hop_features(reach)).unsqueeze(1))

    @cached_property
    def _same_coefficients(self) -> np.ndarray:
        """Those of every node, where there are no gates, so that no hop features are asked for."""
        return self._coefficients(torch.zeros(1, 1, self.trained.num_features))

    def _coefficients(self, hops: Tensor) -> np.ndarray:
        found = self.model.node_coefficients(self.weights, KnownRows(hops))
        widths = {"hop": 1, "class": self.trained.num_classes, "feature": self.trained.num_features}
        width = widths[self.model.coefficient_per]
        return torch.stack([one.reshape(-1).expand(width) for one in found]).double().numpy()

    def outputs(self, hops: Tensor, weights: Weights | None = None) -> Tensor:
        """Logits (rows, m) of nodes whose hop features are ``hops`` (k + 1, rows, d).

        A standardised model keeps the mean and spread of the graph as it is.
        """
        weights = self.weights if weights is None else weights
        mean, spread = (torch.from_numpy(part).to(hops.dtype) for part in self.scaling)
        values = (self.model.filtered(weights, KnownRows(hops), None)[:, 0] - mean) / spread
        return values + weights["bias"][0] if "bias" in weights else values

    @cached_property
    def scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and spread (m,) that standardisation takes off the logits; 0 and 1 without it."""
        count, mean = 0, np.zeros(self.trained.num_classes)
        if not self.trained.config.standardize:
            return mean, np.ones_like(mean)
        squares = np.zeros_like(mean)  # of the distances from the mean, of the nodes so far
        for view in self.rows.views():
            with torch.no_grad():
                values = self.model.filtered(self.weights, view, None)[:, 0]
            more, away = len(values), values.mean(dim=0).numpy() - mean
            squares += values.var(dim=0, correction=0).numpy() * more
            squares += away**2 * (count * more / (count + more))
            count += more
            mean = mean + away * (more / count)
        least = float(np.finfo(self.rows.dtype).eps)  # as in the model's own number type
        return mean, np.sqrt(squares / max(count, 1)).clip(least)

    def logits_of(self, node: int, reach: np.ndarray | None = None) -> np.ndarray:
        """The model's own logits (m,) of ``node``, in the number type of the graph.

        Where the gates need every hop feature, the node's own are taken from ``reach``; all other
        models are evaluated as for a prediction: once for all nodes of a graph, or from the hop
        features that a store has.
        """
        hops = self.rows.hops_of(node)
        whole = self.model.columns == "classes" or self.trained.config.standardize
        if hops is None and whole:
            found = self._every_logit[node]
        else:
            if hops is None:
                reach = self.rows.reach(node) if reach is None else reach
                hops = self.hop_features(reach)[:, None]
            own = torch.from_numpy(hops.astype(self.rows.dtype))
            weights = {name: value.to(own.dtype) for name, value in self.weights.items()}
            with torch.no_grad():
                found = self.outputs(own, weights)[0].numpy()
        if not np.isfinite(found).all():
            raise ConfigError(
                f"the model gives node {node_id(self.data, node)} the logits {found.tolist()}, "
                "which are not finite; train it again with a smaller learning rate."
            )
        return found.astype(np.float64)

    @cached_property
    def _every_logit(self) -> np.ndarray:
        config = self.trained.config
        graph = self.data.in_memory()
        return self.trained.logits_from(propagation_for(graph, config), graph)


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
        for known, wanted in ((ids, node), ([str(one) for one in ids], str(node))):
            if wanted in known:
                return known.index(wanted)
        if _is_index(node, data.num_nodes):
            i = int(node)
            hint = f"; if it is an index, pass the id of that node: node_ids[{i}], {ids[i]!r}."
        else:
            hint = "." + nearest_hint(node, [str(one) for one in islice(ids, COMPARED_IDS)])
        raise GraphError(f"node is {node!r}, which is not the id of a node of the graph{hint}")
    if not _is_index(node, data.num_nodes):
        raise GraphError(
            f"node is {node!r} but the graph has {data.num_nodes:,} nodes without ids; "
            f"pass an index from 0 to {data.num_nodes - 1:,}."
        )
    return int(node)


def _is_index(node: Any, count: int) -> bool:
    text = str(node)
    return not isinstance(node, bool) and text.isdecimal() and int(text) < count


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
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if 0 <= value < len(names):
            return int(value)
        raise ConfigError(
            f"{argument} is {value} but the model has {len(names)} classes; "
            f"pass an index from 0 to {len(names) - 1}, or a name."
        )
    if not isinstance(value, str) or value not in names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        hint = nearest_hint(value, names)
        raise ConfigError(f"{argument} is {value!r}; it must be one of {shown}.{hint}")
    return names.index(str(value))
