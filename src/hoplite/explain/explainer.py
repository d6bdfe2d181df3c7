"""Why a node has its logit: an exact sum over hops, nodes and features.

    logit(v, c) = constant + sum_{i, u, f}  R[i, u] X[u, f] W[i, f]

R[i] is row v of p_i(S), W[i, f] the coefficient of hop i times Theta[f, c]. For hLGC the
coefficient holds the gate at v, so the sum is exact given the gates. The constant is the bias, and
for a standardised model what the mean takes off; its other terms are divided by the spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hoplite.errors import ConfigError
from hoplite.explain.exact import ExactModel, class_index, node_index
from hoplite.explain.explanation import Explanation
from hoplite.graph import Graph
from hoplite.models.trained import TrainedModel


def explain(
    model: TrainedModel, graph: Graph | str, node: Any, class_: Any = None, *, against: Any = None
) -> Explanation:
    """Split the logit of ``node`` for a class into what every hop, node and feature gives it.

    Parameters
    ----------
    model : TrainedModel
        An sgc, egc, lgc or hlgc.
    graph : Graph, or the name or path of one
        The graph to predict on, which must fit the model as for a prediction.
    node : its id if the graph has node ids, otherwise its index
    class_ : name or index of a class; the predicted one if None
    against : name or index of a second class, optional
        Explains logit(class_) - logit(against) instead: why the one and not the other.

    For many nodes of one graph, an :class:`Explainer` sets the graph up only once.

    >>> import torch
    >>> from hoplite.config import ModelConfig
    >>> graph = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> weights = {"theta": torch.tensor([[1.0, 2.0]]), "alpha": torch.tensor([1.0, 10.0])}
    >>> config = ModelConfig("lgc", hops=1, operator="adjacency")
    >>> found = explain(TrainedModel(config, weights, 1, ("cat", "dog")), graph, 0)
    >>> found.class_, found.logit, found.by_hop.tolist(), found.by_node.tolist()
    ('dog', 62.0, [2.0, 60.0], [2.0, 60.0])
    """
    return Explainer(model, graph).explain(node, class_, against=against)


class Explainer:
    """A model and a graph, set up once to explain many nodes; see :func:`explain`."""

    def __init__(self, model: TrainedModel, graph: Graph | str) -> None:
        self._exact = ExactModel(model, graph)

    def explain(self, node: Any, class_: Any = None, *, against: Any = None) -> Explanation:
        """The explanation of one node, as from :func:`explain`."""
        exact = self._exact
        names = exact.trained.class_names
        index = node_index(exact.graph, node)
        reach = exact.reach(index)
        logits = exact.logits_of(index, reach)
        shown = int(logits.argmax()) if class_ is None else class_index("class_", names, class_)
        other = None if against is None else class_index("against", names, against)
        if other == shown:
            what = "the predicted class" if class_ is None else "class_ itself"
            raise ConfigError(f"against is {names[shown]!r}, which is {what}; name another class.")
        signs = {shown: 1.0} if other is None else {shown: 1.0, other: -1.0}
        coefficients, hop_factor, feature_factor = self._factors(index, reach, signs)
        mean, spread = exact.scaling
        shift = -mean / spread
        if "bias" in exact.weights:
            shift = shift + exact.weights["bias"][0].numpy()
        return Explanation(
            exact=exact,
            node=index,
            class_=names[shown],
            against=None if other is None else names[other],
            logits=logits,
            logit=float(sum(sign * logits[c] for c, sign in signs.items())),
            constant=float(sum(sign * shift[c] for c, sign in signs.items())),
            coefficients=coefficients,
            reach=reach,
            hop_factor=hop_factor,
            feature_factor=feature_factor,
        )

    def _factors(
        self, node: int, reach: np.ndarray, signs: dict[int, float]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The coefficients as they are, and W (k + 1, d) as a product C Theta^T of two factors.

        C is (k + 1, t) and Theta (d, t). One coefficient per hop makes t = 1, two classes with
        their own gates t = 2, and gates per feature t = k + 1.
        """
        exact = self._exact
        found = exact.coefficients(node, reach)
        spread = exact.scaling[1]
        theta = exact.weights["theta"][0].numpy()
        columns = np.stack([sign * theta[:, c] / spread[c] for c, sign in signs.items()], axis=1)
        if exact.model.coefficient_per == "class":
            chosen = found[:, list(signs)]
            return chosen.squeeze(1) if len(signs) == 1 else chosen, chosen, columns
        if exact.model.coefficient_per == "feature":
            return found, np.eye(len(found)), (found * columns.sum(axis=1)).T
        return found[:, 0], found, columns.sum(axis=1, keepdims=True)
