"""Which single edge or node, removed from the graph, would change a prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from hoplite.config import check_number
from hoplite.errors import ConfigError
from hoplite.explain.as_dict import node_id
from hoplite.explain.exact import ExactModel, node_index
from hoplite.explain.removal_effects import Field
from hoplite.explain.removal_ranking import first_order_effects
from hoplite.graph import Graph
from hoplite.models.trained import TrainedModel

Report = Callable[[str, float], None]
TRIES = 4  # times as many candidates as are wanted are rebuilt at most
NEAR = 1e-6  # of the largest logit: margins that rounding, or a tie, may decide


def flips(
    model: TrainedModel,
    graph: Graph | str,
    node: Any,
    *,
    budget: int = 500,
    most: int = 5,
    progress: Report | None = None,
) -> dict[str, Any]:
    """The edges and nodes without any one of which ``node`` would be given another class.

    Every edge and every other node that can change the logits of ``node`` is a candidate: those up
    to k hops away, and their neighbours, which have a part in their degrees. If there are more than
    ``budget`` of a kind, those with the largest effect to first order are computed. Whatever is
    reported was confirmed on the graph built again without it. For a standardised model the search
    keeps the mean and spread of the whole graph; only the confirmation takes the new ones.

    Parameters
    ----------
    model, graph, node : as for :func:`hoplite.explain.explain`
    budget : at most so many candidates of each kind are computed
    most : at most so many of each kind are reported, those with the clearest change first
    progress : called with what is being done and how far all of it is, 0 to 1

    Returns
    -------
    dict with ``margin``, the logit of the predicted class minus the highest other one, and for
    ``edges`` and ``nodes`` how many were ``checked``, ``of`` how many candidates, and the ``found``
    ones with the class that the node ``becomes`` and the margin of the old class then, which is
    below 0, or 0 if it shares the first place with a class that is named before it.
    ``standardized`` tells that the search held the mean and spread, so it may have missed some.

    >>> import torch
    >>> from hoplite.config import ModelConfig
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], features=[[0.4, 0], [0, 0], [0, 0.3]])
    >>> weights = {"theta": torch.eye(2)}
    >>> model = TrainedModel(ModelConfig("sgc", hops=1), weights, 2, ("cat", "dog"))
    >>> found = flips(model, graph, 1)
    >>> round(found["margin"], 4), found["edges"]["checked"], found["edges"]["of"]
    (0.0408, 2, 2)
    >>> [(edge["source"]["id"], edge["target"]["id"]) for edge in found["edges"]["found"]]
    [(0, 1)]
    >>> [(one["node"]["id"], one["becomes"]) for one in found["nodes"]["found"]]
    [(0, 'dog')]
    """
    check_number("budget", budget, 1, whole=True)
    check_number("most", most, 1, whole=True)
    if model.num_classes < 2:
        raise ConfigError("the model knows one class only, so no removal changes a prediction.")
    exact = ExactModel(model, graph)
    search = _Search(exact, node_index(exact.graph, node), budget, most, progress)
    return search.run()


class _Search:
    def __init__(
        self, exact: ExactModel, node: int, budget: int, most: int, progress: Report | None
    ) -> None:
        self._exact, self._node = exact, node
        self._budget, self._most = budget, most
        self._report = progress or (lambda what, share: None)
        self._logits = exact.logits_of(node)
        self._predicted = int(self._logits.argmax())
        self._field = Field(exact, node)

    def run(self) -> dict[str, Any]:
        field, edges = self._field, self._field.edges
        effects = None
        if max(len(edges.source), len(field.nodes)) > self._budget:
            second = int(_without(self._logits, self._predicted).argmax())
            effects = first_order_effects(field, self._predicted, second)
        of_edges, of_nodes = (None, None) if effects is None else effects
        chosen_edges = self._chosen(len(edges.source), of_edges)
        chosen_nodes = self._chosen(len(field.nodes), of_nodes)
        total = len(chosen_edges) + len(chosen_nodes)
        edge_margins = self._margins(
            "edges", field.without_edges(chosen_edges), len(chosen_edges), 0, total
        )
        edge_margins[edges.doubtful[chosen_edges]] = -np.inf  # only a new graph can tell
        node_margins = self._margins(
            "nodes", field.without_nodes(chosen_nodes), len(chosen_nodes), len(chosen_edges), total
        )
        ends = np.concatenate([part[edges.doubtful] for part in (edges.source, edges.target)])
        node_margins[np.isin(field.nodes[chosen_nodes], ends)] = -np.inf
        self._report("building the graph again", 1.0)
        return {
            "edges": {
                "checked": len(chosen_edges),
                "of": len(edges.source),
                "found": self._confirmed(self._edge, chosen_edges, edge_margins),
            },
            "nodes": {
                "checked": len(chosen_nodes),
                "of": len(field.nodes),
                "found": self._confirmed(self._other_node, chosen_nodes, node_margins),
            },
            "margin": _margin(self._logits, self._predicted),
            "standardized": self._exact.trained.config.standardize,
        }

    def _chosen(self, count: int, effects: np.ndarray | None) -> np.ndarray:
        """The candidates to compute: all, or those that lower the margin most."""
        if count <= self._budget or effects is None:
            return np.arange(count)
        return np.argsort(effects, kind="stable")[: self._budget]

    def _margins(
        self, kind: str, batches: Iterator[Tensor], count: int, before: int, total: int
    ) -> np.ndarray:
        """Margin of the predicted class without each candidate: (count,)."""
        found, done = np.empty(count), 0
        self._report(f"removing {kind}", before / max(total, 1))
        for batch in batches:
            for logits in batch.numpy():
                found[done] = _margin(logits, self._predicted)
                done += 1
            self._report(f"removing {kind}", (before + done) / total)
        return found

    def _confirmed(
        self,
        rebuilt: Callable[[int], tuple[dict[str, Any], Graph, int]],
        chosen: np.ndarray,
        margins: np.ndarray,
    ) -> list[dict[str, Any]]:
        """Those of the lowest margins whose class changes on the graph built again."""
        order = np.argsort(margins, kind="stable")
        near = NEAR * max(1.0, float(np.abs(self._logits).max()))
        order = order[margins[order] < near][: TRIES * self._most]
        found: list[dict[str, Any]] = []
        for e in order:
            if len(found) == self._most:
                break
            entry, graph, place = rebuilt(int(chosen[e]))
            logits = ExactModel(self._exact.trained, graph).logits_of(place)
            winner = int(logits.argmax())  # of equals the first, as in a prediction
            if winner != self._predicted:
                becomes = self._exact.trained.class_names[winner]
                margin = _margin(logits, self._predicted)
                found.append({**entry, "becomes": becomes, "margin": margin})
        return sorted(found, key=lambda one: one["margin"])

    def _edge(self, chosen: int) -> tuple[dict[str, Any], Graph, int]:
        """How the edge is named, the graph without it, and where the explained node is then."""
        graph, edges = self._exact.graph, self._field.edges
        x, y = int(edges.source[chosen]), int(edges.target[chosen])
        adjacency = sp.csr_array(graph.adjacency, copy=True)
        adjacency[x, y] = adjacency[y, x] = 0
        entry = {"source": self._named(x), "target": self._named(y)}
        return entry, self._graph(adjacency, graph.features), self._node

    def _other_node(self, chosen: int) -> tuple[dict[str, Any], Graph, int]:
        graph, gone = self._exact.graph, int(self._field.nodes[chosen])
        kept = np.delete(np.arange(graph.num_nodes), gone)
        rest = self._graph(graph.adjacency[kept][:, kept], graph.features[kept])
        return {"node": self._named(gone)}, rest, self._node - (gone < self._node)

    def _graph(self, adjacency: sp.csr_array, features: Any) -> Graph:
        return Graph(adjacency, features, feature_names=self._exact.graph.feature_names)

    def _named(self, node: int) -> dict[str, Any]:
        return {"index": node, "id": node_id(self._exact.graph, node)}


def _without(logits: np.ndarray, chosen: int) -> np.ndarray:
    """The logits with -inf in one place."""
    others = logits.copy()
    others[chosen] = -np.inf
    return others


def _margin(logits: np.ndarray, chosen: int) -> float:
    """The logit of one class minus the highest other."""
    return float(logits[chosen] - _without(logits, chosen).max())
