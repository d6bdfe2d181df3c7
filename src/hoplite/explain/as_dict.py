"""An Explanation as plain JSON values: what tables and pages show of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from hoplite.config import check_number
from hoplite.graph import Graph

if TYPE_CHECKING:
    from hoplite.explain.explanation import Explanation

DRAWN_NODES = 40


def explanation_dict(
    explanation: Explanation, top: int, flips: dict[str, Any] | None
) -> dict[str, Any]:
    """The explanation with the ``top`` contributions of each kind; nothing in it is NaN."""
    check_number("top", top, 0, whole=True)
    exact, v = explanation.exact, explanation.node
    graph, config, names = exact.graph, exact.trained.config, exact.trained.class_names
    probabilities = exact.trained.task.link(explanation.logits)
    ranking = np.argsort(-explanation.logits, kind="stable")
    around = _Around(graph, v, config.hops)
    return {
        "dataset": graph.name,
        "model": {
            "model": config.model,
            "hops": config.hops,
            "operator": config.operator,
            "basis": config.basis,
            "gate": config.gate if "gate" in config.kind.settings else None,
        },
        "node": {
            "index": v,
            "id": node_id(graph, v),
            "label": around.label(v),
            "predicted": names[ranking[0]],
            "probability": float(probabilities[ranking[0]]),
        },
        "class": explanation.class_,
        "against": explanation.against,
        "logit": explanation.logit,
        "constant": explanation.constant,
        "residual": explanation.residual,
        "classes": [
            {
                "name": names[c],
                "logit": float(explanation.logits[c]),
                "probability": float(probabilities[c]),
            }
            for c in ranking
        ],
        "hops": _hops(explanation),
        "nodes": _nodes(explanation, around, top),
        "features": _features(explanation, top),
        "node_features": {"top": _pairs(explanation, top)},
        "neighbourhood": around.drawn(explanation, top),
        "flips": flips,
    }


def node_id(graph: Graph, node: int) -> str | int:
    """The id of a node as JSON has it: a whole number or a text; its index without ids."""
    if graph.node_ids is None:
        return int(node)
    found = graph.node_ids[node]
    whole = isinstance(found, int | np.integer) and not isinstance(found, bool)
    return int(found) if whole else str(found)


def _hops(explanation: Explanation) -> list[dict[str, Any]]:
    found = explanation.coefficients
    plain = found.tolist() if found.ndim == 1 else [None] * len(found)
    return [
        {"hop": i, "coefficient": coefficient, "contribution": float(contribution)}
        for i, (coefficient, contribution) in enumerate(zip(plain, explanation.by_hop, strict=True))
    ]


def _nodes(explanation: Explanation, around: _Around, top: int) -> dict[str, Any]:
    parts = explanation.top("nodes", top)
    shown = [around.entry(part.index, part.contribution) for part in parts]
    return {"top": shown, **_rest(explanation.by_node, [part.index for part in parts])}


def _features(explanation: Explanation, top: int) -> dict[str, Any]:
    graph = explanation.exact.graph
    own = sp.csr_array(explanation.exact.features[[explanation.node]]).toarray()[0]
    parts = explanation.top("features", top)
    shown = [
        {
            "index": part.index,
            "name": _feature_name(graph, part.index),
            "value": float(own[part.index]),
            "contribution": part.contribution,
        }
        for part in parts
    ]
    return {"top": shown, **_rest(explanation.by_feature, [part.index for part in parts])}


def _pairs(explanation: Explanation, top: int) -> list[dict[str, Any]]:
    graph, shown = explanation.exact.graph, []
    for part in explanation.top("node_features", top):
        node, feature = part.index
        shown.append(
            {
                "node": node,
                "id": node_id(graph, node),
                "feature": feature,
                "name": _feature_name(graph, feature),
                "contribution": part.contribution,
            }
        )
    return shown


def _rest(values: np.ndarray, shown: list[Any]) -> dict[str, Any]:
    """How many contributions other than 0 are not shown, and their sum."""
    hidden = np.delete(values, np.array(shown, dtype=np.int64))
    return {"others": int(np.count_nonzero(hidden)), "rest": float(hidden.sum())}


def _feature_name(graph: Graph, feature: int) -> str | None:
    return None if graph.feature_names is None else str(graph.feature_names[feature])


class _Around:
    """The nodes within ``hops`` steps of a node: how far they are, and the ways there."""

    def __init__(self, graph: Graph, node: int, hops: int) -> None:
        self._graph, self._node = graph, node
        self._distance, self._before = dijkstra(
            graph.adjacency, unweighted=True, indices=node, limit=hops, return_predecessors=True
        )

    def label(self, node: int) -> str | None:
        """The name of the true class, if it is known."""
        labels = self._graph.labels
        if labels is None or labels[node] < 0:
            return None
        return str((self._graph.class_names or ())[labels[node]])

    def entry(self, node: Any, contribution: float) -> dict[str, Any]:
        far = self._distance[node]
        return {
            "index": int(node),
            "id": node_id(self._graph, node),
            "label": self.label(node),
            "distance": int(far) if np.isfinite(far) else None,
            "contribution": contribution,
        }

    def drawn(self, explanation: Explanation, top: int) -> dict[str, Any]:
        """The explained node, the top ones and those on the way to them; all edges among them."""
        chosen = {self._node: None}  # in the order in which they were found
        for part in explanation.top("nodes", top):
            way = [node for node in self._way(part.index) if node not in chosen]
            if len(chosen) + len(way) <= DRAWN_NODES:
                chosen |= dict.fromkeys(way)
        nodes = np.array(list(chosen))
        edges = sp.triu(self._graph.adjacency[nodes][:, nodes], 1).tocoo()
        return {
            "nodes": [self.entry(u, float(explanation.by_node[u])) for u in nodes],
            "edges": [
                [int(nodes[x]), int(nodes[y]), float(weight)]
                for x, y, weight in zip(edges.row, edges.col, edges.data, strict=True)
            ],
        }

    def _way(self, node: Any) -> list[int]:
        """A shortest way from the explained node to ``node``."""
        way = []
        while node >= 0:  # the predecessor of the first is negative
            way.append(int(node))
            node = self._before[node]
        return way[::-1]
