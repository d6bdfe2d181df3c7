"""Why a node has its logit: an exact sum over hops, nodes and features.

    logit(v, c) = constant + sum_{i, u, f}  R[i, u] X[u, f] W[i, f]

or the lead of a class over another, of which the same holds:

    lead(v) = logit(v, c) - logit(v, other) + threshold part
            = constant + threshold part + sum_{i, u, f}  R[i, u] X[u, f] W[i, f]

The threshold part is 0 unless a threshold t was chosen (of two classes, for one of them): then it
is -T log(t / (1 - t)) if c is that class and +T log(t / (1 - t)) if the other is, T being the
temperature, so that the class is predicted where its lead is above 0.

R[i] is row v of p_i(S), W[i, f] the coefficient of hop i times Theta_i[f, c]. The constant is the
bias, and for a standardised model what the mean takes off; its other terms are divided by the
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
from hoplite.errors import ConfigError, check_choice
from hoplite.explain.changes import own_features, value_changes
from hoplite.explain.exact import ExactModel, class_index, label_text, node_id, node_index
from hoplite.explain.page import VIEWS, explanation_figure
from hoplite.explain.rows import nearest, plain_float
from hoplite.explain.summary import (
    Changes,
    ClassScore,
    FeaturePart,
    Flips,
    HopPart,
    Neighbourhood,
    NodePart,
    PairPart,
    ShownModel,
    ShownNode,
    Strongest,
    StrongestPairs,
    Summary,
    ThresholdPart,
)
from hoplite.explain.text import HEADINGS, exactness, headline, parts, parts_table, title
from hoplite.formatting import Described, Description, Table
from hoplite.machine import parse_bytes
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_DRAWN = 40  # nodes of the neighbourhood
KINDS = ("hops", "nodes", "features", "node_features")


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
    """Split the lead of a class at ``node`` into what every hop, node and feature gives it.

    Parameters
    ----------
    model : TrainedModel
        A linear model, such as an lgc.
    data : Graph or HopStore, or the name or path of one
        What to predict on, which must fit the model as for a prediction.
    node : its id, one of ``data.node_ids``; its index only if the data has no ids
        Of an index i the id is ``data.node_ids[i]``.
    class_ : name or index of a class; the predicted one if None
    against : name or index of a second class; the strongest other one if None
        What is explained is ``logit(class_) - logit(against)``: why the one, not the other. A
        chosen threshold adds its log-odds, so that the predicted class is never behind.
    alone : explain ``logit(class_)`` instead, of models with more than two classes; of two, only
        the difference means anything
    memory : such as "700MB", for a hop store: most that the process takes; StoreError if it needs
        more

    For many nodes of one graph, an :class:`Explainer` sets the graph up only once.

    >>> from hoplite import Graph, model_config
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> weights = {"theta": np.array([[1.0, 2.0]]), "alpha": np.array([1.0, 10.0])}
    >>> config = model_config("lgc", hops=1, operator="adjacency")
    >>> found = explain(TrainedModel(config, weights, 1, ("cat", "dog")), graph, 0)
    >>> found.class_, found.margin, found.by_hop.tolist(), found.by_node.tolist()
    ('dog', 31.0, [1.0, 30.0], [1.0, 30.0])
    """
    explainer = Explainer(model, data, memory=memory)
    return explainer.explain(node, class_, against=against, alone=alone)


class Explainer:
    """A model and its data, set up once to explain many nodes; see :func:`explain`."""

    def __init__(
        self, model: TrainedModel, data: NodeData | str, *, memory: str | int | None = None
    ) -> None:
        self.exact = ExactModel(model, data, None if memory is None else parse_bytes(memory))

    def explain(
        self, node: Any, class_: Any = None, *, against: Any = None, alone: bool = False
    ) -> Explanation:
        """The explanation of one node, by its id, as from :func:`explain`."""
        self.exact.require_one_class()
        index = node_index(self.exact.data, node)
        return self.explain_at(index, class_, against=against, alone=alone)

    def explain_at(
        self, index: int, class_: Any = None, *, against: Any = None, alone: bool = False
    ) -> Explanation:
        """The explanation of the node with this index.

        Of several labels it is that of one of them alone, of numbers that of the number itself, in
        its units: margin = constant + the sums, as always.
        """
        exact, task = self.exact, self.exact.trained.task
        names = exact.trained.class_names
        reach, logits = exact.rows.reach(index), exact.logits_of(index)
        if against is not None:
            exact.require_one_class()
        shown, other = self._classes(logits, class_, against, alone or not task.exclusive)
        signs = {shown: 1.0} if other is None else {shown: 1.0, other: -1.0}
        hop_factor, feature_factor = self._factors(signs)
        mean, deviation = exact.scaling
        shift, own, threshold = exact.bias - mean / deviation, logits, None
        if other is not None and (chosen := task.chosen_threshold) is not None:
            moved = task.decisions(np.zeros(len(names)))
            part = float(sum(sign * moved[c] for c, sign in signs.items()))
            threshold = ThresholdPart(names[chosen[0]], chosen[1], part)
        if not task.exclusive:  # numbers are in their units
            feature_factor, shift = task.rescaled(feature_factor, shift)
            own = task.rescaled(np.empty(0), own)[1]
        lead = float(sum(sign * own[c] for c, sign in signs.items()))
        return Explanation(
            exact=exact,
            node=index,
            class_=names[shown],
            against=None if other is None else names[other],
            logits=logits,
            margin=lead if threshold is None else lead + threshold.contribution,
            constant=float(sum(sign * shift[c] for c, sign in signs.items())),
            coefficients=exact.coefficients,
            reach=reach,
            hop_factor=hop_factor,
            feature_factor=feature_factor,
            threshold=threshold,
        )

    def _classes(
        self, logits: np.ndarray, class_: Any, against: Any, alone: bool
    ) -> tuple[int, int | None]:
        """The explained class, and the one that it is compared with."""
        trained = self.exact.trained
        names, task = trained.class_names, trained.task
        ranking = np.argsort(-task.decisions(logits), kind="stable").tolist()
        shown = ranking[0] if class_ is None else class_index("class_", names, class_)
        if alone:
            if task.exclusive and (against is not None or len(names) == 2):
                why = "against is given" if len(names) > 2 else "the model has two classes"
                raise ConfigError(f"explains one logit, but {why}; leave it out.", "alone")
            return shown, None
        if against is None:
            return shown, next((c for c in ranking if c != shown), None)
        other = class_index("against", names, against)
        if other == shown:
            why = f"is {names[shown]!r}, which is the explained class itself; name another."
            raise ConfigError(why, "against")
        return shown, other

    def _factors(self, signs: dict[int, float]) -> tuple[np.ndarray, np.ndarray]:
        """W (k + 1, d) as a product C Theta^T of two factors: C (k + 1, t) and Theta (d, t).

        t = 1 with one Theta for all hops, and k + 1 with a Theta for each.
        """
        c, maps = self.exact.coefficients[:, None], self.exact.maps
        deviation = self.exact.scaling.deviation
        parts = [sign * maps[:, :, m] / deviation[m] for m, sign in signs.items()]
        columns = np.sum(parts, axis=0)  # (k + 1 or 1, d)
        return (c, columns.T) if len(maps) == 1 else (np.eye(len(c)), (c * columns).T)


@dataclass(frozen=True)
class Part:
    """One contribution: of a hop, node or feature, or of a pair with index (node, feature)."""

    index: Any
    name: str
    contribution: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Described):
    """Why ``node`` has the logit it has, exactly; made by :func:`hoplite.explain.explain`.

        margin = logits[class_] - logits[against] + threshold_part
              = constant + threshold_part + by_hop.sum() + residual
        by_hop.sum() = by_node.sum() = by_feature.sum() = sum_{i, u, f} R[i, u] X[u, f] W[i, f]

    All in float64, and each of these sums one number; ``logits[against]`` is 0 if there is none.
    The residual is what the model's own forward pass rounded away. ``threshold_part`` is 0 without
    a chosen threshold t of some class; else -T log(t / (1 - t)) where that is ``class_``, and
    +T log(t / (1 - t)) where it is ``against``, with the temperature T.

    Parameters
    ----------
    node : index of the explained node v
    class_, against : the names of the class and of the one it is compared with, None if with none
    logits : (m,), the model's own, of every class
    margin : ``logit(class_) - logit(against)`` and the threshold part, which together are the lead;
        or the logit of the class alone (of numbers, the number in its units)
    constant : what is the same for every node: bias, the mean of a standardised model
    coefficients : (k + 1,), one per hop
    reach : R, (k + 1, n), the rows v of p_0(S) .. p_k(S)
    hop_factor, feature_factor : C (k + 1, t) and Theta (d, t) with W = C Theta^T
    threshold : the chosen one: its ``class_``, ``probability`` and ``contribution`` to the lead;
        None if there is none
    """

    exact: ExactModel
    node: int
    class_: str
    against: str | None
    logits: np.ndarray
    margin: float
    constant: float
    coefficients: np.ndarray
    reach: np.ndarray
    hop_factor: np.ndarray
    feature_factor: np.ndarray
    threshold: ThresholdPart | None = None

    @property
    def threshold_part(self) -> float:
        """What a chosen threshold adds to the lead; 0 if there is none."""
        return 0.0 if self.threshold is None else self.threshold.contribution

    @property
    def hops(self) -> list[tuple[int, str | None]]:
        """Which hop of which relation, or channel, the parts of :attr:`by_hop` are.

        Without these hop 0 to k; with P of them 1 + P k, since all share hop 0.
        """
        names, steps = self.exact.trained.parts_ or [None], self.exact.trained.config.hops
        return [(0, None), *((i, name) for name in names for i in range(1, steps + 1))]

    @cached_property
    def by_hop(self) -> np.ndarray:
        """What hop i gives: (k + 1,); with relations one for each of :attr:`hops`."""
        return (self.hop_factor * (self.reach @ self._signal)).sum(axis=1)

    @cached_property
    def by_node(self) -> np.ndarray:
        """What the features of node u give: (n,)."""
        return (self._weights * self._signal).sum(axis=1)

    @cached_property
    def by_feature(self) -> np.ndarray:
        """What feature f gives, wherever it is: (d,)."""
        total = np.zeros_like(self.feature_factor)
        for nodes, rows in self._rows():
            total += rows.T @ self._weights[nodes]
        return (self.feature_factor * total).sum(axis=1)

    @cached_property
    def hop_node(self) -> np.ndarray:
        """R[i, u] (X W^T)[u, i]: (k + 1, n)."""
        return self.reach * (self.hop_factor @ self._signal.T)

    @cached_property
    def hop_feature(self) -> np.ndarray:
        """(R X)[i, f] W[i, f]: (k + 1, d)."""
        hops = np.zeros((len(self.feature_factor), len(self.reach)))  # (R X)^T
        for nodes, rows in self._rows():
            hops += rows.T @ self.reach[:, nodes].T
        return hops.T * (self.hop_factor @ self.feature_factor.T)

    @cached_property
    def node_feature(self) -> sp.csr_array:
        """X[u, f] sum_i R[i, u] W[i, f]: (n, d), zero where X is."""
        blocks = [*self._pair_blocks()]
        shape = len(self.by_node), len(self.feature_factor)
        if not blocks:
            return sp.csr_array(shape)
        rows = np.concatenate([nodes[block.coords[0]] for nodes, block in blocks])
        columns = np.concatenate([block.coords[1] for _, block in blocks])
        values = np.concatenate([block.data for _, block in blocks])
        return sp.csr_array((values, (rows, columns)), shape=shape)

    @property
    def residual(self) -> float:
        """The margin minus the constant and all contributions: rounding, nothing else."""
        return self.margin - self.constant - self.threshold_part - float(self.by_hop.sum())

    def top(self, kind: str, count: int = 10) -> list[Part]:
        """The ``count`` largest contributions in absolute value, none of them 0.

        ``kind`` is "hops", "nodes", "features", or "node_features" for the pairs of the two.
        """
        check_choice("kind", kind, KINDS)
        check_number("count", count, 0, whole=True)
        if not count:
            return []
        if kind == "node_features":
            return self._top_pairs(count)
        values = {"hops": self.by_hop, "nodes": self.by_node, "features": self.by_feature}[kind]
        return [
            Part(int(i), self._name(kind, int(i)), float(values[i])) for i in largest(values, count)
        ]

    def summary(self, top: int = 10, flips: Flips | None = None, *, brief: bool = False) -> Summary:
        """Everything worth showing, with the ``top`` of each kind.

        ``flips`` is what :func:`hoplite.explain.flips` found for the same node, if it was asked.
        A ``brief`` one is without pairs and changes, which take most of the time.
        """
        check_number("top", top, 0, whole=True)
        exact, v = self.exact, self.node
        data, config, names = exact.data, exact.trained.config, exact.trained.class_names
        task = exact.trained.task
        probabilities = task.link(self.logits).tolist()
        ranking = np.argsort(-task.decisions(self.logits), kind="stable").tolist()
        predicted = names[ranking[0]]
        if not task.exclusive:
            predicted = str(task.columns(self.logits[None], names)["predicted"][0])
        nodes, features = self.top("nodes", top), self.top("features", top)
        around = Around(exact, v, [part.index for part in nodes])
        return Summary(
            dataset=data.name,
            model=ShownModel(config.model, config.hops, config.operator, config.basis),
            node=ShownNode(
                v, node_id(data, v), label_text(data, v), predicted, probabilities[ranking[0]]
            ),
            class_=self.class_,
            against=self.against,
            margin=self.margin,
            constant=self.constant,
            residual=self.residual,
            classes=tuple(
                ClassScore(names[c], float(self.logits[c]), probabilities[c]) for c in ranking
            ),
            hops=tuple(
                HopPart(hop, coefficient, contribution, relation)
                for (hop, relation), coefficient, contribution in zip(
                    self.hops, self.coefficients.tolist(), self.by_hop.tolist(), strict=True
                )
            ),
            nodes=Strongest(
                tuple(around.part(part.index, part.contribution) for part in nodes),
                *_rest(self.by_node, nodes),
            ),
            features=Strongest(
                tuple(self._feature_part(part) for part in features),
                *_rest(self.by_feature, features),
            ),
            node_features=StrongestPairs(
                tuple(
                    self._pair_part(part) for part in self.top("node_features", 0 if brief else top)
                )
            ),
            neighbourhood=around.drawn(self.by_node),
            flips=flips,
            changes=None if brief else self.changes([part.index for part in features]),
            threshold=self.threshold,
        )

    def changes(self, features: Sequence[int] | None = None) -> Changes | None:
        """Which value of the node itself, changed alone, would change its prediction, and to what.

        Asked of the cells, or without tables the features, that ``features`` of X are; of the ten
        that contribute most if None. See :mod:`hoplite.explain.changes`; None for standardised
        models, whose logits are not linear in X, and without one class for each node.
        """
        if not self.exact.trained.task.exclusive:
            return None
        if features is None:
            features = [part.index for part in self.top("features")]
        return value_changes(self.exact, self.node, self.reach, self.logits, features)

    def plot(self, by: str | None = None, *, top: int = 10) -> Figure:
        """What makes the logit: bars of hops, of nodes and of features, below each other.

        Each of them adds up to the logit, with the ``top`` parts and all others together. ``by``
        names one view: "hops", "nodes", "features", "neighbourhood", the nodes that count on rings
        by their distance, or "classes", all probabilities. It needs the extra ``plot``.
        """
        if by is not None:
            check_choice("by", by, VIEWS)
        return explanation_figure(self.summary(top), by)

    def to_dict(self, top: int = 10, flips: Flips | None = None) -> dict[str, Any]:
        """:meth:`summary` as plain JSON values."""
        return self.summary(top, flips).to_dict()

    def __repr__(self) -> str:
        versus = "" if self.against is None else f" against {self.against!r}"
        name = self._name("nodes", self.node)
        return f"Explanation(node {name}, class {self.class_!r}{versus}: margin {self.margin:.4g})"

    def _describe(self) -> Description:
        values = self.summary(5)
        tables = [
            Table(*parts_table(values, by, brief=True), heading)
            for by, heading in HEADINGS.items()
            if parts(values, by)
        ]
        return Description(title(values), {}, tables, [headline(values), exactness(values)])

    @cached_property
    def _signal(self) -> np.ndarray:
        """X Theta at the nodes within reach, what counts nowhere elsewhere: (n, t)."""
        found = np.zeros((self.reach.shape[1], self.feature_factor.shape[1]))
        for nodes, rows in self._rows():
            found[nodes] = rows @ self.feature_factor
        return found

    def _rows(self) -> Iterator[tuple[Any, Any]]:
        """Rows of X of the nodes within reach, with these nodes."""
        yield from self.exact.rows.features(np.flatnonzero(self.reach.any(axis=0)))

    @cached_property
    def _weights(self) -> np.ndarray:
        """R^T C, the weight of every node: (n, t)."""
        return self.reach.T @ self.hop_factor

    def _pair_blocks(self) -> Iterator[tuple[np.ndarray, sp.coo_array]]:
        """The nodes of a block of rows that matter, and the contributions of their features."""
        weights, theta = self._weights, self.feature_factor
        nodes = np.flatnonzero(weights.any(axis=1))
        for part, rows in self.exact.rows.features(nodes, copies=theta.shape[1]):
            block = sp.csr_array(rows).tocoo()
            row, column = block.coords
            block.data = block.data * np.einsum(
                "et,et->e", weights[part].take(row, axis=0), theta.take(column, axis=0)
            )
            yield part, block

    def _top_pairs(self, count: int) -> list[Part]:
        best: list[Part] = []
        for nodes, block in self._pair_blocks():
            row, column = block.coords
            for e in largest(block.data, count):
                pair = int(nodes[row[e]]), int(column[e])
                name = f"{self._name('nodes', pair[0])}, {self._name('features', pair[1])}"
                best.append(Part(pair, name, float(block.data[e])))
        return sorted(best, key=lambda part: -abs(part.contribution))[:count]

    def _feature_part(self, part: Part) -> FeaturePart:
        value, name = self._cell(self.node, part.index), self._feature_name(part.index)
        return FeaturePart(part.index, name, value, part.contribution)

    def _pair_part(self, part: Part) -> PairPart:
        node, feature = part.index
        id_, name = node_id(self.exact.data, node), self._feature_name(feature)
        return PairPart(node, id_, feature, name, part.contribution, self._cell(node, feature))

    def _cell(self, node: int, feature: int) -> float | str:
        """A feature of a node, as it stands in a table if it came from one."""
        own, preparation = own_features(self.exact, node), self.exact.trained.preparation
        return float(own[feature]) if preparation is None else preparation.original(own)[feature]

    def _feature_name(self, feature: int) -> str | None:
        names = self.exact.feature_names
        return None if names is None else str(names[feature])

    def _name(self, kind: str, index: int) -> str:
        if kind == "nodes":
            return str(node_id(self.exact.data, index))
        if kind == "features":
            return self._feature_name(index) or f"feature {index}"
        hop, relation = self.hops[index]
        return f"hop {hop} {relation or ''}".strip()


class Around:
    """Descriptions of ``top``, the nodes that count most at ``node``, and of those on the way."""

    def __init__(self, exact: ExactModel, node: int, top: Sequence[int]) -> None:
        self._exact, self._node, self._top = exact, node, top
        self._distance, self._before = nearest(exact.rows, node, exact.trained.config.hops, top)

    def part(self, node: int, contribution: float) -> NodePart:
        """The description of one of them."""
        far, data = int(self._distance[node]), self._exact.data
        distance = None if far < 0 else far
        return NodePart(node, node_id(data, node), label_text(data, node), distance, contribution)

    def drawn(self, contributions: np.ndarray) -> Neighbourhood:
        """The explained node, the top ones and those on the way to them; all edges among them."""
        chosen = {self._node: None}  # in the order in which they were found
        for one in self._top:
            way = [node for node in [*self._way(one)][::-1] if node not in chosen]
            if len(chosen) + len(way) <= MAX_DRAWN:
                chosen |= dict.fromkeys(way)
        nodes = np.sort([*chosen])
        upper = sp.triu(self._exact.rows.edges(nodes)[:, nodes], 1).tocoo()
        ends = nodes[upper.row].tolist(), nodes[upper.col].tolist()
        return Neighbourhood(
            tuple(self.part(node, float(contributions[node])) for node in chosen),
            tuple(zip(*ends, map(plain_float, upper.data), strict=True)),
        )

    def _way(self, node: int) -> Iterator[int]:
        """A shortest way from ``node`` to the explained one."""
        while node >= 0:
            yield node
            node = int(self._before[node])


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


def _rest(values: np.ndarray, shown: list[Part]) -> tuple[int, float]:
    """How many contributions other than 0 are not shown, and their sum."""
    hidden = np.delete(values, np.array([part.index for part in shown], dtype=np.int64))
    return int(np.count_nonzero(hidden)), float(hidden.sum())
