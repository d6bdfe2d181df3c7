"""Why a node has its logit: an exact sum over hops, nodes and features.

    logit(v, c) = constant + sum_{i, u, f}  R[i, u] X[u, f] W[i, f]

X is centred: features made of the edges (log degrees, structural features) are differences from
their mean mu over all nodes, and the constant includes the part of mu,
sum_{i, u} R[i, u] (W mu)[i]. All other columns are unchanged, with mu = 0; those of tables have the
mean 0 by their preparation.

The same holds for the margin of a class over another:

    margin(v) = logit(v, c) - logit(v, other) + threshold part
              = constant + threshold part + sum_{i, u, f}  R[i, u] X[u, f] W[i, f]

The threshold part is 0 unless a threshold t was chosen (of two classes, for one of them): then it
is -T log(t / (1 - t)) if c is that class and +T log(t / (1 - t)) if the other is, T being the
temperature, so that the class is predicted where its margin is above 0.

A model that reads labels of neighbours adds a term for each labelled neighbour to both, see
:mod:`hoplite.models.neighbours`.

R[i] is row v of p_i(S), W[i, f] the coefficient of hop i times Theta_i[f, c]. The constant has the
bias, too, and for a standardised model what the mean takes off; its other terms are divided by the
deviation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import check_number
from hoplite.errors import check_choice
from hoplite.explain.changes import value_changes
from hoplite.explain.exact import (
    ExactModel,
    compared_classes,
    contrast,
    label_text,
    node_id,
    node_index,
    outputs_of,
    plain_float,
)
from hoplite.explain.rendering import VIEWS, describe, explanation_figure
from hoplite.explain.summary import (
    Changes,
    ExplainedModel,
    ExplainedNode,
    FeaturePart,
    Flips,
    HopPart,
    Neighbourhood,
    NodeGroup,
    NodePart,
    Output,
    PairPart,
    Strongest,
    Summary,
    ThresholdPart,
)
from hoplite.formatting import MAX_ROWS, Described, Description
from hoplite.graph import NodeData
from hoplite.machine import parse_bytes
from hoplite.models.trained import TrainedModel
from hoplite.tasks.base import Task

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_DRAWN = 40  # nodes of the neighbourhood
PARTS = ("hops", "nodes", "features", "node_features")


def explain(
    model: TrainedModel,
    data: NodeData | str,
    node: Any,
    class_: Any = None,
    *,
    against: Any = None,
    alone: bool = False,
    memory: str | int | None = None,
) -> Explanation:
    """Split the margin of a class at a node exactly into contributions of hops, nodes and features.

    For many nodes of one graph, use an :class:`Explainer`, which sets the graph up only once.

    Parameters
    ----------
    model : TrainedModel
        A linear model, e.g. LGC.
    data : NodeData, or its name or path
        The graph or hop store to predict.
    node : id
        One of ``data.node_ids``; an index if the data has no ids.
    class_ : str or int, optional
        Name or index of the class to explain; by default the predicted one, or the strongest of
        several labels.
    against : str or int, optional
        Name or index of the class to compare with; by default the runner-up. The margin is
        ``logit(class_) - logit(against)``, plus the log-odds of a chosen threshold, so that the
        margin of the predicted class is never negative. For several labels per node the logit of
        one label is explained, for regression the value.
    alone : bool, default False
        Explain ``logit(class_)`` instead.
    memory : str or int, optional
        Memory limit of the process for a hop store, such as "700MB".

    Returns
    -------
    Explanation

    Raises
    ------
    StoreError
        If ``memory`` does not suffice.

    Examples
    --------
    >>> from hoplite import Graph, model_config
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> weights = {"theta": np.array([[1.0, 2.0]]), "alpha": np.array([1.0, 10.0])}
    >>> config = model_config("lgc", hops=1, operator="adjacency")
    >>> why = explain(TrainedModel(config, weights, 1, ("cat", "dog")), graph, 0)
    >>> why.class_, why.margin, why.by_hop.tolist(), why.by_node.tolist()
    ('dog', 31.0, [1.0, 30.0], [1.0, 30.0])
    """
    explainer = Explainer(model, data, memory=memory)
    return explainer.explain(node, class_, against=against, alone=alone)


class Explainer:
    """A model and its data, set up once to explain many nodes; see :func:`explain`.

    Parameters
    ----------
    model : TrainedModel
        A linear model, e.g. LGC.
    data : NodeData, or its name or path
        The graph or hop store to predict.
    memory : str or int, optional
        Memory limit of the process for a hop store, such as "700MB".

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> explainer = Explainer(model, graph)
    >>> [len(explainer.explain(node).top("features", 3)) for node in (0, 1)]
    [3, 3]
    """

    def __init__(
        self, model: TrainedModel, data: NodeData | str, *, memory: str | int | None = None
    ) -> None:
        self.exact = ExactModel(model, data, None if memory is None else parse_bytes(memory))

    def explain(
        self, node: Any, class_: Any = None, *, against: Any = None, alone: bool = False
    ) -> Explanation:
        """Explain the prediction for one node.

        Parameters
        ----------
        node, class_, against, alone
            As for :func:`explain`.

        Returns
        -------
        Explanation
        """
        index = node_index(self.exact.data, node)
        return self.explain_at(index, class_, against=against, alone=alone)

    def explain_at(
        self, index: int, class_: Any = None, *, against: Any = None, alone: bool = False
    ) -> Explanation:
        """Explain the prediction for the node with this index.

        Parameters
        ----------
        index : int
            Index of the node, from 0.
        class_, against, alone
            As for :meth:`explain`.

        Returns
        -------
        Explanation
        """
        trained, logits = self.exact.trained, self.exact.logits_of(index)
        classes = compared_classes(
            trained.task, trained.class_names, logits, class_, against, alone=alone
        )
        return Explanation(self.exact, index, *classes, logits, self.exact.rows.reach(index))


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Described):
    """The exact contributions to the margin of a node; :func:`explain` returns it.

        margin = logits[target] - logits[rival] + threshold_part
               = constant + threshold_part + by_label.sum() + by_hop.sum() + residual
        by_hop.sum() = by_node.sum() = by_feature.sum() = sum_{i, u, f} R[i, u] X[u, f] W[i, f]

    All sums are in float64; ``logits[rival]`` is 0 without a rival. Log degrees and structural
    features count by their difference from the mean over all nodes, which is part of the constant.
    The residual is the rounding error of the model's own forward pass. ``threshold_part`` is 0
    unless a threshold t was chosen for a class: it is then -T log(t / (1 - t)) if that class is
    ``class_``, and +T log(t / (1 - t)) if it is ``against``, with the temperature T.

    Parameters
    ----------
    exact : ExactModel
        The model and its data.
    node : int
        Index of the explained node v.
    target : int
        Index of the explained class; :attr:`class_` is its name.
    rival : int or None
        Index of the class to compare with, if any; :attr:`against` is its name.
    logits : (m,) ndarray
        Logits of the model for every class.
    reach : (k + 1, n) ndarray
        R, the rows v of p_0(S) .. p_k(S).

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> why = explain(model, graph, 17)
    >>> bool(abs(why.margin - why.constant - why.by_feature.sum()) < 1e-5)
    True
    """

    exact: ExactModel
    node: int
    target: int
    rival: int | None
    logits: np.ndarray
    reach: np.ndarray

    @property
    def _task(self) -> Task:
        return self.exact.trained.task

    @property
    def class_(self) -> str:
        """The name of the explained class."""
        return self.exact.trained.class_names[self.target]

    @property
    def against(self) -> str | None:
        """Name of the class to compare with, or None."""
        return None if self.rival is None else self.exact.trained.class_names[self.rival]

    @property
    def coefficients(self) -> np.ndarray:
        """c_i of every hop: (k + 1,)."""
        return self.exact.coefficients

    @cached_property
    def threshold(self) -> ThresholdPart | None:
        """The chosen threshold: its class, probability and contribution to the margin."""
        chosen = self._task.chosen_threshold
        if self.rival is None or chosen is None:
            return None
        part = self._contrast @ self._task.decisions(np.zeros_like(self.logits))
        return ThresholdPart(self.exact.trained.class_names[chosen[0]], chosen[1], float(part))

    @property
    def threshold_part(self) -> float:
        """What a chosen threshold adds to the margin; 0 if there is none."""
        return 0.0 if self.threshold is None else self.threshold.contribution

    @cached_property
    def margin(self) -> float:
        """Margin of the class, its logit if there is no rival, or the number for regression."""
        outputs = self.logits
        if not self._task.exclusive:
            outputs = self._task.rescaled(np.empty(0), outputs)[1]
        return float(self._contrast @ outputs) + self.threshold_part

    @property
    def constant(self) -> float:
        """The part of the margin that belongs to no node or feature.

        It consists of the bias, the mean output of a standardised model, and the contribution of
        the means of degree features. It is the same for every node, unless degrees are features and
        the row sums of S differ, as for nodes without neighbours.
        """
        weights, constant = self._weights
        return constant + float(self.reach.sum(axis=1) @ (weights @ self.exact.centres))

    @property
    def hops(self) -> list[tuple[int, str | None]]:
        """The hop, and the relation or channel, of each part of :attr:`by_hop`.

        Without relations and channels these are the hops 0 to k; with P of them there are 1 + P k
        parts, because all share hop 0.
        """
        names, steps = self.exact.trained.parts_ or [None], self.exact.trained.config.hops
        return [(0, None), *((i, name) for name in names for i in range(1, steps + 1))]

    @cached_property
    def distances(self) -> np.ndarray:
        """The distance of each node, (n,): the first hop that reaches it, or -1 if none does.

        p_i has degree i, and weights are positive, so p_i(S)[v, u] is not 0 if i is the number of
        steps from v to u, and 0 for all smaller i.
        """
        distance, steps = np.full(self.reach.shape[1], -1), [hop for hop, _ in self.hops]
        for i in np.argsort(steps)[::-1]:
            distance[self.reach[i] != 0] = steps[i]
        return distance

    @property
    def by_hop(self) -> np.ndarray:
        """Contribution of each hop: (k + 1,), or one for each of :attr:`hops`."""
        return self.hop_node.sum(axis=1)

    @cached_property
    def by_node(self) -> np.ndarray:
        """Contribution of the features of each node: (n,)."""
        return self.hop_node.sum(axis=0)

    @property
    def by_feature(self) -> np.ndarray:
        """Contribution of each feature, summed over all nodes: (d,)."""
        return self.hop_feature.sum(axis=0)

    @cached_property
    def by_label(self) -> np.ndarray:
        """Contribution of the label of each labelled neighbour: (n,), mostly 0."""
        by_label, (nodes, _, parts) = np.zeros(self.reach.shape[1]), self._labels
        by_label[nodes] = parts
        return by_label

    @cached_property
    def _labels(self) -> tuple[np.ndarray, list[Any], np.ndarray]:
        """The labelled neighbours, their targets, and what each adds to the margin."""
        nodes, targets, parts = self.exact.labels_near(self.node)
        if not self._task.exclusive:  # numbers are in their units
            parts = self._task.rescaled(parts, np.zeros(parts.shape[1]))[0]
        return nodes, targets, parts @ self._contrast

    @cached_property
    def hop_node(self) -> np.ndarray:
        """R[i, u] (X W^T)[u, i]: (k + 1, n)."""
        parts = np.zeros_like(self.reach)
        for nodes, rows in self._rows():
            parts[:, nodes] = self.reach[:, nodes] * (rows @ self._weights[0].T).T
        return parts

    @cached_property
    def hop_feature(self) -> np.ndarray:
        """(R X)[i, f] W[i, f]: (k + 1, d)."""
        weights = self._weights[0]
        hops = np.zeros_like(weights)  # R X
        for nodes, rows in self._rows():
            hops += (rows.T @ self.reach[:, nodes].T).T
        return hops * weights

    @cached_property
    def node_feature(self) -> sp.csr_array:
        """X[u, f] sum_i R[i, u] W[i, f]: (n, d), zero where X is, less its means."""
        blocks = [*self._pair_blocks()]
        shape = self.reach.shape[1], self._weights[0].shape[1]
        if not blocks:
            return sp.csr_array(shape)
        rows, columns, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
        return sp.csr_array((values, (rows, columns)), shape=shape)

    @property
    def residual(self) -> float:
        """The margin minus the constant and all contributions: only rounding."""
        parts = self.constant + self.threshold_part + float(self.by_label.sum())
        return self.margin - parts - float(self.by_hop.sum())

    def top(self, by: str, count: int = 10) -> list[Any]:
        """List the largest contributions by absolute value.

        Parameters
        ----------
        by : {"hops", "nodes", "features", "node_features"}
            The view; "node_features" are pairs of a node and a feature.
        count : int, default 10
            Maximum number of contributions; those that are 0 are left out.

        Returns
        -------
        list
            Each with a ``name`` and a ``contribution``.
        """
        check_choice("by", by, PARTS)
        check_number("count", count, 0, whole=True)
        if by == "node_features":
            return self._top_pairs(count)
        values, part = {
            "hops": (self.by_hop, self._hop_part),
            "nodes": (self.by_node, self._node_part),
            "features": (self.by_feature, self._feature_part),
        }[by]
        return [part(i) for i in largest(values, count).tolist()]

    def summary(self, top: int = 10, flips: Flips | None = None, *, brief: bool = False) -> Summary:
        """The contributions as typed values, for pages and JSON.

        Parameters
        ----------
        top : int, default 10
            Maximum number of classes, nodes, features and pairs.
        flips : Flips, optional
            The result of :func:`hoplite.explain.flips` for the same node.
        brief : bool, default False
            Leave out pairs and changes, which take most of the time.

        Returns
        -------
        Summary
        """
        check_number("top", top, 0, whole=True)
        data, trained = self.exact.data, self.exact.trained
        config, task = trained.config, trained.task
        predicted = task.columns(self.logits[None], trained.class_names)
        nodes, features = self.top("nodes", top), self.top("features", top)
        chance = float(predicted["probability"][0]) if task.exclusive else None
        name = predicted["predicted"][0]
        return Summary(
            dataset=data.name,
            model=ExplainedModel(
                config.model,
                config.hops,
                config.operator,
                config.basis,
                task.labels.task,
                getattr(task, "temperature", 1.0),
            ),
            node=ExplainedNode(
                self.node,
                node_id(data, self.node),
                label_text(data, self.node),
                str(name) if task.has_classes else float(name),
                chance,
            ),
            class_=self.class_,
            against=self.against,
            margin=self.margin,
            constant=self.constant,
            residual=self.residual,
            classes=self._strongest_classes(top),
            hops=tuple(self._hop_part(i) for i in range(len(self.hops))),
            nodes=self._strongest(self.by_node, nodes, self.distances),
            features=self._strongest(self.by_feature, features),
            node_features=tuple(self.top("node_features", 0 if brief else top)),
            neighbourhood=self._neighbourhood([part.index for part in nodes]),
            flips=flips,
            changes=None if brief else self.changes(),
            threshold=self.threshold,
            neighbour_labels=self._label_parts(top),
        )

    def _label_parts(self, top: int) -> Strongest[NodePart] | None:
        """The labels of neighbours that add most; None if the model reads none."""
        trained = self.exact.trained
        if trained.neighbours is None:
            return None
        nodes, targets, values = self._labels
        chosen = []
        for i in largest(values, top).tolist():
            label = str(self._task.target_text(targets[i], trained.class_names))
            u = int(nodes[i])
            chosen.append(NodePart(u, node_id(self.exact.data, u), label, 1, float(values[i])))
        return self._strongest(self.by_label, chosen)

    def changes(self, features: Sequence[int] | None = None) -> Changes | None:
        """Find values of the node itself that, changed alone, would change its prediction.

        Parameters
        ----------
        features : sequence of int, optional
            Columns of X; the cells that they come from are changed. By default the ten columns that
            contribute most.

        Returns
        -------
        Changes or None
            None for standardised models, whose logits are not linear in X, and for models without
            one class per node. See :mod:`hoplite.explain.changes`.
        """
        if not self._task.exclusive:
            return None
        if features is None:
            features = [part.index for part in self.top("features")]
        return value_changes(self.exact, self.node, self.reach, self.logits, features)

    def plot(self, by: str | None = None, *, top: int = 10) -> Figure:
        """Plot the contributions as bars: by hop, by node and by feature.

        Each view adds up to the margin.

        Parameters
        ----------
        by : {"hops", "nodes", "features", "classes"}, optional
            Plot only one view, or the probabilities of all classes.
        top : int, default 10
            Maximum number of bars of a view; one more has the sum of all others.

        Returns
        -------
        plotly.graph_objects.Figure
            Requires the extra ``plot``.
        """
        if by is not None:
            check_choice("by", by, VIEWS)
        return explanation_figure(self.summary(top), by)

    def to_dict(self, top: int = 10, flips: Flips | None = None) -> dict[str, Any]:
        """Return :meth:`summary` as plain JSON values.

        Parameters
        ----------
        top, flips
            As for :meth:`summary`.

        Returns
        -------
        dict
        """
        return self.summary(top, flips).to_dict()

    def __repr__(self) -> str:
        versus = "" if self.against is None else f" against {self.against!r}"
        name = node_id(self.exact.data, self.node)
        return f"Explanation(node {name}, class {self.class_!r}{versus}: margin {self.margin:.4g})"

    def _describe(self) -> Description:
        return describe(self.summary(5), MAX_ROWS)

    @property
    def _contrast(self) -> np.ndarray:
        return contrast(len(self.logits), self.target, self.rival)

    @cached_property
    def _weights(self) -> tuple[np.ndarray, float]:
        """W (k + 1, d); and what bias and mean give."""
        mean, deviation = self.exact.scaling
        columns = self.exact.maps @ (self._contrast / deviation)  # (k + 1 or 1, d)
        shift = self.exact.bias - mean / deviation
        if not self._task.exclusive:  # numbers are in their units
            columns, shift = self._task.rescaled(columns, shift)
        return self.coefficients[:, None] * columns, float(self._contrast @ shift)

    def _rows(self, copies: int = 1) -> Iterator[tuple[Any, Any]]:
        """Centred rows of X of the nodes within reach, with these nodes."""
        yield from self.exact.centred_rows(np.flatnonzero(self.reach.any(axis=0)), copies)

    def _pair_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Nodes, their features and the contributions of these, a block of rows at a time."""
        reach, weights = self.reach.T, self._weights[0].T
        for nodes, rows in self._rows(copies=weights.shape[1]):
            block = sp.csr_array(rows).tocoo()
            row, column = nodes[block.coords[0]], block.coords[1]
            shares = np.einsum("et,et->e", reach[row], weights[column])
            yield row, column, block.data * shares

    def _top_pairs(self, count: int) -> list[PairPart]:
        best: list[tuple[float, int, int]] = []
        for nodes, features, values in self._pair_blocks() if count else ():
            e = largest(values, count)
            best += zip(values[e].tolist(), nodes[e].tolist(), features[e].tolist(), strict=True)
        best.sort(key=lambda pair: -abs(pair[0]))
        pairs = []
        for value, u, f in best[:count]:
            names = u, node_id(self.exact.data, u), f, self._feature_name(f)
            pairs.append(PairPart(*names, value, self._cell(u, f)))
        return pairs

    def _hop_part(self, i: int) -> HopPart:
        hop, relation = self.hops[i]
        return HopPart(hop, float(self.coefficients[i]), float(self.by_hop[i]), relation)

    def _node_part(self, u: int) -> NodePart:
        data, far = self.exact.data, int(self.distances[u])
        names = u, node_id(data, u), label_text(data, u)
        return NodePart(*names, None if far < 0 else far, float(self.by_node[u]))

    def _feature_part(self, f: int) -> FeaturePart:
        value = self._cell(self.node, f)
        return FeaturePart(f, self._feature_name(f), value, float(self.by_feature[f]))

    def _cell(self, node: int, feature: int) -> float | str:
        """A feature of a node, as it stands in a table if it came from one."""
        row, preparation = self.exact.rows.row(node), self.exact.trained.preparation
        return float(row[feature]) if preparation is None else preparation.original(row)[feature]

    def _feature_name(self, feature: int) -> str:
        names = self.exact.feature_names
        return f"feature {feature}" if names is None else str(names[feature])

    def _strongest_classes(self, top: int) -> Strongest[Output]:
        """The first of the ranking, and the compared ones wherever they are in it."""
        outputs = outputs_of(self._task, self.exact.trained.class_names, self.logits)
        ranking = np.argsort(-self._task.decisions(self.logits), kind="stable").tolist()
        visible = {*ranking[:top], self.target, self.rival}
        hidden = [outputs[c].probability or 0.0 for c in ranking if c not in visible]
        first = tuple(outputs[c] for c in ranking if c in visible)
        return Strongest(first, len(hidden), sum(hidden))

    @staticmethod
    def _strongest(
        values: np.ndarray, parts: Sequence[Any], distances: np.ndarray | None = None
    ) -> Strongest[Any]:
        """The ``parts`` of ``values``, and the others together; of nodes by their distance, too."""
        hidden = values.copy()
        hidden[[part.index for part in parts]] = 0
        others = np.flatnonzero(hidden)
        groups: list[NodeGroup] = []
        if distances is not None:
            far = distances[others]
            sums = np.bincount(far, hidden[others])
            counted = enumerate(zip(np.bincount(far).tolist(), sums.tolist(), strict=True))
            groups = [NodeGroup(hop, count, total) for hop, (count, total) in counted if count]
        return Strongest(tuple(parts), len(others), float(hidden.sum()), tuple(groups))

    def _neighbourhood(self, top: Sequence[int]) -> Neighbourhood:
        """The explained node, the top ones and those on the way to them; all edges among them."""
        chosen = {self.node: None}  # in the order in which they were found
        for node in top:
            way = [u for u in self._way(node) if u not in chosen]
            if len(chosen) + len(way) <= MAX_DRAWN:
                chosen |= dict.fromkeys(way)
        nodes = np.sort([*chosen])
        upper = sp.triu(self.exact.rows.edges(nodes)[:, nodes], 1).tocoo()
        ends = nodes[upper.row].tolist(), nodes[upper.col].tolist()
        return Neighbourhood(
            tuple(self._node_part(u) for u in chosen),
            tuple(zip(*ends, map(plain_float, upper.data), strict=True)),
        )

    def _way(self, node: int) -> list[int]:
        """A shortest way from the explained node to ``node``."""
        way = [node]
        while self.distances[way[-1]] > 0:
            near = self.exact.rows.edges(np.array(way[-1:])).indices
            near = near[self.distances[near] >= 0]
            way.append(int(near[self.distances[near].argmin()]))
        return way[::-1]


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` largest absolute values, largest first, without zeros.

    >>> largest(np.array([1.0, -3.0, 0.0, 2.0]), 5).tolist()
    [1, 3, 0]
    """
    size = np.abs(values)
    positive = size[size > 0]  # a partition of many zeros would be slow
    least = np.partition(positive, -count)[-count] if 0 < count < len(positive) else 0.0
    chosen = np.flatnonzero(size >= least if least else size)
    return chosen[np.argsort(-size[chosen], kind="stable")][:count]
