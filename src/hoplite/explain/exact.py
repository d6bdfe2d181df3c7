"""A trained linear model on a graph or hop store, in float64: what explanations are made from.

    logits(v) = sum_i c_i (p_i(S) X)[v] Theta_i (+ b),    (p_i(S) X)[v] = R_i X

with R_i the row v of p_i(S): all R_i come from k products of S transposed with one column. Most
models have one Theta for all hops; JacobiConv and hop blocks have one for each, and c_i = 1.

What is read of a graph, in memory or from a hop store in bounded memory, is in float64:

    S   k products with one column: the rows v of p_0(S) .. p_k(S)
    X   the rows of some nodes, some at a time
    A   the edges of some nodes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.bases import find_basis
from hoplite.config import check_number
from hoplite.csr import row_ranges, rows_of
from hoplite.engine.evaluation import Moments, Standardized, WeightsFirst
from hoplite.engine.polynomial import next_hop
from hoplite.engine.propagation import Propagation
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import (
    ConfigError,
    GraphError,
    StoreError,
    nearest_hint,
    option_name,
    plural,
    some_of,
)
from hoplite.explain.summary import Output
from hoplite.graph import Graph, NodeData, StoredHops
from hoplite.labels import label_type
from hoplite.machine import format_bytes, release_memory, used_memory
from hoplite.models import LinearModel, ModelConfig, Weights, build_model
from hoplite.models.alignment import in_columns
from hoplite.models.base import names_of
from hoplite.models.neighbours import neighbour_weights
from hoplite.models.trained import NOT_FINITE, TrainedModel, check_trained
from hoplite.store import open_data
from hoplite.structural import made_of_edges
from hoplite.tasks.base import Task

MAX_COMPARED = 10_000  # ids that a wrong one is compared with
BLOCK_ENTRIES = 1 << 22  # numbers of X that are worked on at a time
ENTRY_BYTES = 64  # what the work on a number, or on an entry of S, may take
MIN_NUMBERS = 1 << 12  # numbers that are worked on at a time, however little memory is left
RESERVE = 32 * 10**6  # part of the budget for what is not counted


class RemovalsUnavailableError(StoreError):
    """Removals cannot be computed for this model and data; all other explanations can.

    Examples
    --------
    >>> issubclass(RemovalsUnavailableError, StoreError)
    True
    """


class Rows(ABC):
    """The data that a model is explained on; ``dtype`` is the number type of its predictions."""

    data: Any
    dtype: np.dtype

    @abstractmethod
    def reach(self, node: int) -> np.ndarray:
        """The rows ``node`` of p_0(S) .. p_k(S), (k + 1, n); of P operators (1 + P k, n)."""

    @abstractmethod
    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        """Sorted ``nodes``, some at a time, with their rows of X in float64, dense or sparse.

        ``copies`` is how many numbers the caller makes of each.
        """

    @abstractmethod
    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        """p_i(S) X of the ``hops`` at a node, (hops, 1, d), if they are stored; None if not."""

    @abstractmethod
    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        """The model's signal of all nodes, before standardisation and bias: pieces (rows, m)."""

    @abstractmethod
    def graph_features(self, nodes: np.ndarray) -> Any:
        """The rows of X of sorted ``nodes`` as a graph has them."""

    def row(self, node: int) -> np.ndarray:
        """X[v]: (d,)."""
        ((_, row),) = self.features(np.array([node]))
        return sp.csr_array(row).toarray()[0]

    def edges(self, nodes: np.ndarray) -> sp.csr_array:
        """The rows of A of sorted ``nodes``."""
        parts = [rows for _, rows in rows_of(self.data.adjacency_rows, nodes)]
        return sp.vstack(parts, "csr") if parts else sp.csr_array((0, self.data.num_nodes))

    def ball(self, inside: np.ndarray) -> tuple[np.ndarray, Graph]:
        """Sorted nodes ``inside`` and their neighbours, and the graph of all edges of the former.

        Its features are in the model's order. RemovalsUnavailableError if memory is too small.
        """
        edges = self.edges(inside).tocoo()
        nodes = np.union1d(inside, edges.col)
        ends = np.searchsorted(nodes, inside[edges.row]), np.searchsorted(nodes, edges.col)
        half = sp.csr_array((edges.data, ends), shape=(len(nodes), len(nodes)))
        graph = Graph(half.maximum(half.T), self.graph_features(nodes))  # A is symmetric
        return nodes, graph.with_loop_weight(self.data.loop_weight)


class GraphRows(Rows):
    """A graph in memory, with its features in the model's order."""

    def __init__(self, graph: Graph, config: ModelConfig) -> None:
        self.data, self.dtype = graph, graph.features.dtype
        self._config = config

    @cached_property
    def _propagation(self) -> Propagation:
        return Propagation.of(self.data, self._config, np.float64)

    @cached_property
    def _features(self) -> Any:
        return self.data.features.astype(np.float64)

    def reach(self, node: int) -> np.ndarray:
        return self._propagation.reach([node])[:, 0]

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        matrix, n = self._features, self.data.num_nodes
        entries = matrix.nnz if sp.issparse(matrix) else matrix.size
        step = max(BLOCK_ENTRIES // (max(entries // max(n, 1), 1) * copies), 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            yield part, matrix if len(part) == n else matrix[part]

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return None

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        yield WeightsFirst(self._propagation).evaluate(model.filter(weights)).values

    def graph_features(self, nodes: np.ndarray) -> Any:
        return self.data.features[nodes]


class StoredRows(Rows):
    """A hop store; whatever is read of it, the process stays within ``memory`` bytes, if given."""

    def __init__(
        self, store: StoredHops, config: ModelConfig, columns: np.ndarray | None, memory: int | None
    ) -> None:
        self.data, self.dtype = store, np.dtype(np.float32)
        self._basis, self._hops, self._memory = find_basis(config.basis), config.hops, memory
        self._columns = columns

    def reach(self, node: int) -> np.ndarray:
        n, k = self.data.num_nodes, self._hops
        # R itself, what is computed of it, and what numpy makes of that for a moment
        self._require(8 * n * (3 * k + 12), "explaining a node")
        hops = np.zeros((k + 1, n, 1))
        hops[0, node] = 1
        matrix, most = self.data.operator_rows, self._numbers()
        for i, step in enumerate(self._basis.steps(k)):
            now, before, ahead = hops[i], hops[max(i - 1, 0)], hops[i + 1]
            for start, stop in row_ranges(matrix, most):
                rows = matrix.read(start, stop).astype(np.float64)
                part, some = slice(start, stop), SparseMatrix(rows, symmetric=False)
                next_hop(some, step, now, before[part], own=now[part], out=ahead[part])
        return hops[:, :, 0]

    def features(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        step = max(self._numbers() // max(self.data.num_features * copies, 1), 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            yield part, self._aligned(self.data.rows(part, [0])[0])

    def stored_hops(self, node: int, hops: list[int]) -> np.ndarray | None:
        return self._aligned(self.data.rows([node], hops))

    def signals(self, model: LinearModel, weights: Weights) -> Iterator[np.ndarray]:
        hops, n = model.hops_read, self.data.num_nodes
        step = max(self._numbers() // max(4 * self.data.num_features * len(hops), 1), 1)
        for start in range(0, n, step):
            rows = self.data.read(start, min(start + step, n), hops)
            yield model.signal_from_hops(weights, self._aligned(rows))

    def ball(self, inside: np.ndarray) -> tuple[np.ndarray, Graph]:
        degrees = np.diff(self.data.adjacency_rows.indptr(0, self.data.num_nodes))
        needed = 2 * ENTRY_BYTES * int(degrees[inside].sum())
        self._require(needed, "removing edges and nodes within reach", RemovalsUnavailableError)
        return super().ball(inside)

    def graph_features(self, nodes: np.ndarray) -> Any:
        width = self.data.num_features if self._columns is None else len(self._columns)
        needed = 32 * len(nodes) * (width + 8)
        what = f"removing any of the {plural(len(nodes), 'node')} within reach"
        self._require(needed, what, RemovalsUnavailableError)
        return np.concatenate([rows.astype(np.float32) for _, rows in self.features(nodes)])

    def _aligned(self, rows: np.ndarray) -> np.ndarray:
        """Rows of features, in float64, in the model's order; zeros where the store has none."""
        rows = rows.astype(np.float64)
        return rows if self._columns is None else in_columns(rows, self._columns)

    def _numbers(self) -> int:
        """How many numbers can be worked on at a time."""
        return max(min(self._room // (2 * ENTRY_BYTES), BLOCK_ENTRIES), MIN_NUMBERS)

    @property
    def _room(self) -> int:
        if self._memory is None:
            return 2 * ENTRY_BYTES * BLOCK_ENTRIES
        return self._memory - RESERVE - used_memory()

    def _require(self, needed: int, what: str, error: type[StoreError] = StoreError) -> None:
        """Raise StoreError unless ``needed`` bytes fit in addition to the memory in use."""
        if self._memory is None:
            return
        release_memory()
        if needed > self._room:
            least = used_memory() + RESERVE + needed
            raise error(
                f"{what} needs {format_bytes(needed)} more memory, {format_bytes(least)} in "
                f"total, but the limit is {format_bytes(self._memory)}; increase "
                f"{option_name('memory')}."
            )


def open_rows(trained: TrainedModel, data: NodeData, memory: int | None = None) -> Rows:
    """The rows of ``data``, whose features are in the order of the model, which they must fit."""
    if data.stored is None:
        return GraphRows(trained.aligned(data.in_memory()), trained.config)
    columns = trained.columns_of(data.stored)
    return StoredRows(data.stored, trained.config, columns, memory)


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
        check_trained(trained)
        config, data = trained.config, open_data(data, prepare=trained)
        require_linear(config)
        trained.refuse_correct_smooth("sums over hops, nodes and features that make its outputs")
        trained.check_data(data)
        self.rows = open_rows(trained, data, memory)
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
    def centres(self) -> np.ndarray:
        """mu: the mean over all nodes of features made of the edges, 0 for others: (d,).

        Columns of tables have the mean 0 by their preparation.
        """
        means, n = np.zeros(self.trained.num_features), self.data.num_nodes
        if count := made_of_edges(self.feature_names, self.trained.preparation):
            for _, rows in self.rows.features(np.arange(n)):
                means[-count:] += rows[:, -count:].sum(axis=0) / n
        return means

    def centred_rows(self, nodes: np.ndarray, copies: int = 1) -> Iterator[tuple[np.ndarray, Any]]:
        """X - mu of sorted ``nodes``, some at a time, as :meth:`Rows.features` has X."""
        centres = self.centres[None]
        for part, rows in self.rows.features(nodes, copies):
            if not centres.any():
                yield part, rows
            elif sp.issparse(rows):
                column = sp.csr_array(np.ones((len(part), 1)))
                yield part, rows - column @ sp.csr_array(centres)
            else:
                yield part, rows - centres

    def labels_near(self, node: int) -> tuple[np.ndarray, list[Any], np.ndarray]:
        """The labelled neighbours t of ``node``, their targets, and W_vt (Y Lambda)_t: (t, m).

        See :mod:`hoplite.models.neighbours`; none if the model reads no labels.
        """
        if self._labelled is None or self.trained.neighbours is None:
            return np.empty(0, np.int64), [], np.empty((0, self.trained.num_classes))
        weights, nodes, positions, parts = self._labelled
        row = weights[[node]]
        targets = [self.trained.neighbours.targets[positions[i]] for i in row.indices]
        return nodes[row.indices], targets, row.data[:, None] * parts[row.indices]

    @cached_property
    def _labelled(self) -> tuple[sp.csr_array, np.ndarray, np.ndarray, np.ndarray] | None:
        neighbours = self.trained.neighbours
        if neighbours is None:
            return None
        nodes, positions = neighbours.within(self.data)
        rows = neighbours.rows(self.trained.num_classes)[positions]
        weights = neighbour_weights(self.data.in_memory().adjacency, nodes)
        return weights, nodes, positions, rows @ self.weights["neighbours"]

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
            raise ConfigError(f"the outputs of node {name} {NOT_FINITE}")
        return logits.astype(np.float64)

    @cached_property
    def _every_logit(self) -> np.ndarray:
        return self._logits(self.data.in_memory())

    def _logits(self, graph: Graph) -> np.ndarray:
        return self.trained.raw_logits(Propagation.of(graph, self.trained.config), graph)


def require_linear(config: ModelConfig) -> None:
    """ConfigError unless the outputs of such a model are sums over hops, nodes and features."""
    if not issubclass(config.kind, LinearModel):
        linear = names_of(lambda model: issubclass(model, LinearModel))
        raise ConfigError(
            f"model {config.model!r} is not linear, so its predictions are not sums over hops, "
            f"nodes and features; use {linear}."
        )


def node_index(data: NodeData, node: Any) -> int:
    """The index of ``node``: one of the graph's node ids, or, only if it has none, an index itself.

    >>> from hoplite import Graph
    >>> node_index(Graph.from_edges([(0, 1)], np.eye(2), node_ids=["ann", "bob"]), "bob")
    1
    """
    if isinstance(node, np.ndarray | list | tuple):
        raise GraphError(
            f"node has type {type(node).__name__}; pass one node at a time, e.g. "
            "[explainer.explain(node) for node in nodes] with an Explainer."
        )
    if data.node_ids is not None:
        ids = list(data.node_ids)
        if node in ids:
            return ids.index(node)
        texts = [*map(str, ids)]
        if str(node) in texts:
            return texts.index(str(node))
        hint = nearest_hint(node, texts[:MAX_COMPARED])
        hint = hint or "".join(f" Ids look like {text!r}." for text in texts[:1])
        raise GraphError(f"node {node!r} is not in the graph.{hint}")
    text = str(node)
    if isinstance(node, bool) or not text.isdecimal() or int(text) >= data.num_nodes:
        raise GraphError(
            f"node {node!r} is not in the graph, which has {plural(data.num_nodes, 'node')} "
            f"without ids; pass an index from 0 to {data.num_nodes - 1:,}."
        )
    return int(node)


def node_id(data: NodeData, node: int) -> str | int:
    """The id of a node as JSON has it: a whole number or a text; its index without ids."""
    if data.node_ids is None:
        return int(node)
    name = data.node_ids[node]
    whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
    return int(name) if whole else str(name)


def outputs_of(task: Task, names: Sequence[str], logits: np.ndarray) -> list[Output]:
    """The outputs of one node, in the order of the model's classes, from its logits (m,)."""
    field = "probability" if task.has_classes else "value"
    triples = zip(names, logits.tolist(), task.link(logits[None])[0].tolist(), strict=True)
    return [Output(name, logit, **{field: value}) for name, logit, value in triples]


def label_text(data: NodeData, node: int) -> str | None:
    """The name of the true class of a node, or its number; None if it is not known."""
    type_, label = label_type(data.labels), data.labels[node : node + 1]
    return str(type_.text(label[0], data.class_names)) if type_.is_known(label)[0] else None


def class_index(argument: str, names: Sequence[str], value: Any) -> int:
    """The index of the class ``value``: a name, or an index as a whole number.

    >>> class_index("class_", ("cat", "dog"), "dog"), class_index("class_", ("cat", "dog"), 0)
    (1, 0)
    """
    if isinstance(value, str):
        if value in names:
            return names.index(value)
        hint = f"the classes of the model are {some_of(names, 10)}.{nearest_hint(value, names)}"
        raise ConfigError(f"is {value!r}; {hint}", argument)
    check_number(argument, value, 0, len(names) - 1, whole=True)
    return int(value)


def require_one_class(task: Task) -> None:
    """ConfigError unless there is one class each, which others can be compared with."""
    if not task.exclusive:
        raise ConfigError(
            "this requires a classifier with one class per node, but the task of the model is "
            f"{task.labels.task}."
        )


def compared_classes(
    task: Task, names: Sequence[str], logits: np.ndarray, class_: Any, against: Any, *, alone: bool
) -> tuple[int, int | None]:
    """The class to explain, by default the predicted one, and its rival, by default the runner-up.

    >>> from hoplite.tasks.multiclass import Multiclass
    >>> compared_classes(Multiclass(), "abc", np.array([1, 3, 2]), None, None, alone=False)
    (1, 2)
    """
    if class_ is not None and not task.has_classes:
        raise ConfigError("is for classifiers, but this model predicts numbers.", "class_")
    ranking = np.argsort(-task.decisions(logits), kind="stable").tolist()
    target = ranking[0] if class_ is None else class_index("class_", names, class_)
    if against is None:
        rivals = [c for c in ranking if c != target] if task.exclusive and not alone else []
        return target, next(iter(rivals), None)
    require_one_class(task)
    if alone:
        raise ConfigError("cannot be combined with against; leave one of them out.", "alone")
    rival = class_index("against", names, against)
    if rival == target:
        reason = f"is {names[target]!r}, which is the explained class; choose another class."
        raise ConfigError(reason, "against")
    return target, rival


def contrast(classes: int, target: int, rival: int | None) -> np.ndarray:
    """1 for the explained class and -1 for its rival: (m,).

    >>> contrast(3, 0, 2).tolist()
    [1.0, 0.0, -1.0]
    """
    signs = np.zeros(classes)
    signs[target] = 1
    if rival is not None:
        signs[rival] = -1
    return signs


def lead_of(outputs: np.ndarray, chosen: int) -> np.ndarray:
    """The output of one class minus the highest other: (..., m) -> (...)."""
    return outputs[..., chosen] - np.delete(outputs, chosen, axis=-1).max(axis=-1)


def plain_float(value: Any) -> float:
    """The shortest decimal that is the same number of its type, as a table would have it.

    >>> float(np.float32(74.28)), plain_float(np.float32(74.28))
    (74.27999877929688, 74.28)
    """
    return float(str(value))
