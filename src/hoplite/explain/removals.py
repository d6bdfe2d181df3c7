"""Which single edge or node, removed from the graph, would change a prediction.

N is the normalised adjacency (with loops if the operator is `renormalized`), d its degrees. Without
an edge (x, y) of weight w, or without a node u, exactly

    N' = E (N - edge) E,   E_x = sqrt(d_x / (d_x - w)), E_y alike    and 1 elsewhere
    N' = E N E,            E_u = 0, E_w = sqrt(d_w / (d_w - A_wu)) for the neighbours w of u

(E_x = 0 where nothing is left of d_x). So B removals are one signal of B columns through the same
N, and no matrix is built again. p_i(S') e_v stays within k hops of v: only those nodes are kept.

Where there are too many to compute, they are ranked by their effect to first order. With
F = sum_i z_i . l_i a function of the rows l_i = p_i(S) e_v, the basis (a_i, b_i, g_i) and the
adjoint (:mod:`hoplite.bases`)

    y_k = z_k,  y_i = z_i + (a_i S + b_i) y_{i+1} - g_{i+1} y_{i+2}

a change dS of the operator changes F by sum_{i < k} a_i l_i . dS y_{i+1} = <G, dS>. The dS of a
removed edge is known exactly: its entries vanish, and those of the ends that stay are scaled by
their E. So is that of a removed node, but for an edge between two of its neighbours x and y: it is
scaled by E_x E_y, and E_x + E_y - 1 is taken instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from hoplite.bases import Step, find_basis
from hoplite.config import check_number
from hoplite.engine.backend import transposed_product
from hoplite.engine.sparse import SparseMatrix, spmm
from hoplite.errors import ConfigError, option_name
from hoplite.explain.exact import (
    ExactModel,
    RemovalsUnavailableError,
    contrast,
    lead_of,
    node_id,
    node_index,
    require_one_class,
)
from hoplite.explain.summary import EdgeFlip, Flips, NodeFlip, NodeName, Removals
from hoplite.graph import Graph, NodeData
from hoplite.machine import parse_bytes
from hoplite.models.trained import TrainedModel
from hoplite.operators import find_operator
from hoplite.progress import steps_bar, watched
from hoplite.structural import links_among

Report = Callable[[str, float], None]
NUM_TRIES = 4  # times as many candidates as are reported are rebuilt
NEAR = 1e-6  # share of the largest logit: such margins may be rounding, or a tie
BATCH_NUMBERS = 1 << 20  # a signal of this size stays in the cache: four times faster on Pubmed
MAX_COLUMNS = 512


def flips(
    model: TrainedModel,
    data: NodeData | str,
    node: Any,
    *,
    budget: int = 500,
    most: int = 5,
    memory: str | int | None = None,
    progress: bool | Report | None = False,
) -> Flips:
    """Find single edges and nodes whose removal changes the predicted class of a node.

    Candidates are all edges and nodes that can change the logits: those within k hops, and their
    neighbours, which affect the degrees. If there are more than ``budget`` edges or nodes, those
    with the largest first-order effect are computed. Every reported removal is verified on the
    graph rebuilt without it. For a standardised model, the search keeps the mean and deviation of
    the whole graph; only the verification recomputes them.

    Parameters
    ----------
    model, data, node, memory
        As for :func:`hoplite.explain.explain`.
    budget : int, default 500
        Maximum number of edges, and of nodes, to compute.
    most : int, default 5
        Maximum number of edges, and of nodes, to report, the clearest changes first.
    progress : bool or callable, default False
        True for a progress bar, or a function to call with the step and its share.

    Returns
    -------
    Flips
        The margin of each removal is that of the old class after it: negative, or 0 for a tie with
        a class that comes first.

    Raises
    ------
    RemovalsUnavailableError
        For a hop store without edge weights, if the edges do not fit into memory, or if the model
        is standardised.

    Examples
    --------
    >>> from hoplite import model_config
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], features=[[0.4, 0], [0, 0], [0, 0.3]])
    >>> weights = {"theta": np.eye(2)}
    >>> model = TrainedModel(model_config("sgc", hops=1), weights, 2, ("cat", "dog"))
    >>> found = flips(model, graph, 1)
    >>> round(found.margin, 4), found.edges.checked, found.edges.of
    (0.0408, 2, 2)
    >>> [(edge.source.id, edge.target.id) for edge in found.edges.found]
    [(0, 1)]
    >>> [(one.node.id, one.becomes) for one in found.nodes.found]
    [(0, 'dog')]
    """
    check_number("budget", budget, 1, whole=True)
    check_number("most", most, 1, whole=True)
    exact = ExactModel(model, data, None if memory is None else parse_bytes(memory))
    require_one_class(model.task)
    if model.num_classes < 2:
        raise ConfigError("the model has only one class, so no removal can change a prediction.")
    index = node_index(exact.data, node)
    operator, links = model.config.operator, links_among(model.feature_names, model.preparation)
    lgc, plain = option_name("model", "lgc"), option_name("operator", "renormalized")
    labels = option_name("neighbour_labels", True)
    for refused, why in (
        (model.parts_, "has an operator for each direction or type of edges, or channel"),
        (links is not None, "has links as features, which a removal changes"),
        (
            model.neighbours,
            f"also uses the labels of neighbours; for that list, train with {lgc} without {labels}",
        ),
        (
            not find_operator(operator).symmetric,
            f"has the operator {operator}, which is not symmetric; train with {plain}",
        ),
    ):
        if refused:
            raise RemovalsUnavailableError(
                "not computed: which edges or nodes would change the prediction if removed, "
                f"because the model {why}."
            )
    nodes, graph = _within_reach(exact, index)
    field = Field(exact, graph, int(np.searchsorted(nodes, index)))

    def named(place: int) -> NodeName:
        return NodeName(int(nodes[place]), node_id(exact.data, int(nodes[place])))

    with watched(progress, steps_bar, "removals") as report:
        return _Search(field, named, budget, most, report or (lambda what, share: None)).run()


def _within_reach(exact: ExactModel, node: int) -> tuple[np.ndarray, Graph]:
    """The nodes up to k + 1 steps away, and the graph of them.

    The model gives ``node`` the logits there that it has, and would have without one of the edges
    or nodes: the nodes up to k steps away have all their edges. Standardised outputs need every
    node.
    """
    if exact.trained.config.standardize:
        if exact.data.stored is not None:
            raise RemovalsUnavailableError(
                "the model's outputs are standardised over all nodes, so a removal changes them "
                "all, which requires the graph in memory; pass the dataset itself."
            )
        return np.arange(exact.data.num_nodes), exact.data.in_memory()
    reach = exact.rows.reach(node)[: exact.model.hops_read[-1] + 1]
    return exact.rows.ball(np.flatnonzero(reach.any(axis=0)))


@dataclass
class _Search:
    """The removals of ``field`` that change the class of its node; ``named`` names a node."""

    field: Field
    named: Callable[[int], NodeName]
    budget: int
    most: int
    report: Report

    def __post_init__(self) -> None:
        self._trained = self.field.exact.trained
        self._decisions = self._decisions_on(self.field.graph, self.field.node)
        self._predicted = int(self._decisions.argmax())

    def _decisions_on(self, graph: Graph, node: int) -> np.ndarray:
        """What decides the class of the explained node, which is ``node`` of ``graph``: (m,)."""
        name = self.named(self.field.node).id
        return self._trained.task.decisions(self.field.exact.logits_on(graph, node, name))

    def run(self) -> Flips:
        field, effects = self.field, (None, None)
        if max(len(field.edges.source), len(field.nodes)) > self.budget:
            second = int(np.argsort(-self._decisions, kind="stable")[1])
            effects = first_order_effects(field, self._predicted, second)
        edges = self._removals("edges", len(field.edges.source), effects[0], self._edge)
        nodes = self._removals("nodes", len(field.nodes), effects[1], self._other_node)
        margin = float(lead_of(self._decisions, self._predicted))
        return Flips(edges, nodes, margin, self._trained.config.standardize)

    def _removals(
        self,
        removed: str,
        count: int,
        effects: np.ndarray | None,
        rebuilt: Callable[[int], tuple[Callable[[str, float], Any], Graph, int]],
    ) -> Removals[Any]:
        """Those of the lowest margins whose class changes on the graph built again."""
        chosen, half = np.arange(count), 0.5 * (removed == "nodes")
        if count > self.budget and effects is not None:
            chosen = np.argsort(effects, kind="stable")[: self.budget]
        margins = np.empty(0)
        self.report(f"removing {removed}", half)
        for logits in self.field.logits_without(removed, chosen):
            scores = self._trained.task.decisions(logits)
            margins = np.append(margins, lead_of(scores, self._predicted))
            self.report(f"removing {removed}", half + 0.5 * len(margins) / len(chosen))
        near = NEAR * max(1.0, float(np.abs(self._decisions).max()))
        order = np.argsort(margins, kind="stable")
        order = order[margins[order] < near][: NUM_TRIES * self.most]
        flips: list[Any] = []
        for e in order.tolist():
            if len(flips) == self.most:
                break
            flip, graph, place = rebuilt(int(chosen[e]))
            decisions = self._decisions_on(graph, place)
            winner = int(decisions.argmax())  # of equals the first, as in a prediction
            if winner != self._predicted:
                margin = float(lead_of(decisions, self._predicted))
                flips.append(flip(self._trained.class_names[winner], margin))
        self.report(f"removing {removed}", half + 0.5)
        flips.sort(key=lambda flip: flip.margin)
        return Removals(len(chosen), count, tuple(flips))

    def _edge(self, chosen: int) -> tuple[Callable[[str, float], EdgeFlip], Graph, int]:
        """How the edge is named, the graph without it, and where the explained node is then."""
        graph, edges = self.field.graph, self.field.edges
        x, y = int(edges.source[chosen]), int(edges.target[chosen])
        adjacency = sp.csr_array(graph.adjacency, copy=True)
        adjacency[x, y] = adjacency[y, x] = 0
        flip = partial(EdgeFlip, self.named(x), self.named(y))
        return flip, self._graph(adjacency, graph.features), self.field.node

    def _other_node(self, chosen: int) -> tuple[Callable[[str, float], NodeFlip], Graph, int]:
        graph, gone = self.field.graph, int(self.field.nodes[chosen])
        kept = np.delete(np.arange(graph.num_nodes), gone)
        rest = self._graph(graph.adjacency[kept][:, kept], graph.features[kept])
        place = self.field.node - (gone < self.field.node)
        return partial(NodeFlip, self.named(gone)), rest, place

    def _graph(self, adjacency: sp.csr_array, features: Any) -> Graph:
        return Graph(adjacency, features).with_loop_weight(self.field.graph.loop_weight)


class Edges(NamedTuple):
    """Edges in arrays of one length: their ends, entry in N, and the E of both ends without it."""

    source: np.ndarray
    target: np.ndarray
    entry: np.ndarray
    source_factor: np.ndarray
    target_factor: np.ndarray


class _Batch(NamedTuple):
    """One removal for each column: the E that are not 1, and the entries of N that vanish.

    Elements of a signal (nodes, B) are counted row by row.
    """

    size: int
    elements: np.ndarray
    factors: np.ndarray
    gone: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # x, y, E_x N_xy E_y


class Field:
    """The nodes of ``graph`` within k hops of ``node``, and all removals that change its logits.

    ``edges`` are those with an end among these nodes; ``nodes`` those up to one hop farther, whose
    removal changes a degree among them. With no hops nothing can change the logits. The ``graph``
    has all edges of the nodes within k hops, and X in the model's order.
    """

    def __init__(self, exact: ExactModel, graph: Graph, node: int) -> None:
        operator = find_operator(exact.trained.config.operator)
        self.exact, self.graph, self.node = exact, graph, node
        self.hops = exact.model.hops_read[-1]
        self.basis = find_basis(exact.trained.config.basis)
        # S = shift I + sign N, in the form (S - middle I) / half that the basis needs
        middle, half = self.basis.mapping(*operator.spectrum)
        self.scale = operator.sign / half
        self._shift = (operator.shift - middle) / half
        normal = operator.normalized.matrix(graph, np.float64)
        far = dijkstra(graph.adjacency, unweighted=True, indices=node, limit=self.hops + 1)
        inside = np.flatnonzero(far <= self.hops)
        self.place = np.full(graph.num_nodes, -1)
        self.place[inside] = np.arange(len(inside))
        self.matrix = SparseMatrix.from_scipy(normal[inside][:, inside], symmetric=True)
        factors = _end_factors(graph.adjacency, operator.loop_of(graph))
        self._factors = factors.T.tocsr()  # row u: the E of its neighbours without u
        matrices = (normal, factors, self._factors)
        upper = [sp.triu(matrix, 1, "csr").tocoo() for matrix in matrices]
        x, y = upper[0].coords
        near = ((self.place[x] >= 0) | (self.place[y] >= 0)) & (self.hops > 0)
        self.edges = Edges(x[near], y[near], *(matrix.data[near] for matrix in upper))
        reached = np.isfinite(far) & (self.hops > 0)
        reached[node] = False
        self.nodes = np.flatnonzero(reached)
        features = graph.features[inside].astype(np.float64)
        signals = [np.ascontiguousarray(features @ theta) for theta in exact.maps]  # (nodes, m)
        self._signals = signals * (self.hops + 1) if len(signals) == 1 else signals

    @property
    def batch_size(self) -> int:
        """Removals at a time, so that their signals stay in bounded memory."""
        return min(max(BATCH_NUMBERS // self.matrix.shape[0], 16), MAX_COLUMNS)

    def logits_without(self, removed: str, chosen: np.ndarray) -> Iterator[np.ndarray]:
        """Logits (B, m) without one of the ``chosen`` "edges" or "nodes" each, in batches."""
        make = {"edges": self._edge_batch, "nodes": self._node_batch}[removed]
        for start in range(0, len(chosen), self.batch_size):
            yield self._logits(make(chosen[start : start + self.batch_size]))

    def signals(self) -> Iterator[tuple[float, np.ndarray]]:
        """The coefficient c_i of every hop, with X Theta_i: (nodes, m)."""
        coefficients = self.exact.coefficients[: self.hops + 1].tolist()
        yield from zip(coefficients, self._signals, strict=False)

    def next_hop(
        self, step: Step, now: np.ndarray, before: np.ndarray, batch: _Batch | None = None
    ) -> np.ndarray:
        """(a S + b) now - g before, each column with its own removal: (nodes, B) -> (nodes, B)."""
        a, b, g = step
        shift, scale, scaled = a * self._shift + b, a * self.scale, now
        if batch is not None:
            scaled = now.copy()
            scaled.reshape(-1)[batch.elements] *= batch.factors
        ahead = spmm(self.matrix, scaled, scale=scale)
        if batch is not None:
            flat, now_flat = ahead.reshape(-1), now.reshape(-1)
            flat[batch.elements] *= batch.factors
            if batch.gone is not None:
                x, y, entry = batch.gone
                flat[x] -= scale * entry * now_flat[y]
                flat[y] -= scale * entry * now_flat[x]
        if shift:
            ahead += shift * now
        if g:
            ahead -= g * before
        return ahead

    def reach(self, batch: _Batch | None = None) -> Iterator[np.ndarray]:
        """p_i(S) e_v for i = 0 .. k, each column with its own removal: (nodes, B)."""
        now = np.zeros((self.matrix.shape[0], 1 if batch is None else batch.size))
        now[self.place[self.node]] = 1
        before = now
        yield now
        for step in self.basis.steps(self.hops):
            before, now = now, self.next_hop(step, now, before, batch)
            yield now

    def _logits(self, batch: _Batch) -> np.ndarray:
        total = np.zeros((batch.size, self.exact.trained.num_classes))
        for hop, (coefficient, signal) in zip(self.reach(batch), self.signals(), strict=True):
            if coefficient:
                total += coefficient * transposed_product(hop, signal)
        return self.exact.outputs(total)

    def _edge_batch(self, chosen: np.ndarray) -> _Batch:
        edges, count = self.edges, len(chosen)
        x, y = self.place[edges.source[chosen]], self.place[edges.target[chosen]]
        of_x, of_y = edges.source_factor[chosen], edges.target_factor[chosen]
        both = np.flatnonzero((x >= 0) & (y >= 0))
        entry = (of_x * edges.entry[chosen] * of_y)[both]
        gone = x[both] * count + both, y[both] * count + both, entry
        rows, factors = np.concatenate([x, y]), np.concatenate([of_x, of_y])
        return _batch(count, rows, np.tile(np.arange(count), 2), factors, gone)

    def _node_batch(self, chosen: np.ndarray) -> _Batch:
        nodes = self.nodes[chosen]
        near = self._factors[nodes].tocoo()
        rows = self.place[np.concatenate([near.col, nodes])]
        columns = np.concatenate([near.row, np.arange(len(nodes))])
        return _batch(len(nodes), rows, columns, np.concatenate([near.data, np.zeros(len(nodes))]))


def _batch(
    size: int, rows: np.ndarray, columns: np.ndarray, factors: np.ndarray, gone: Any = None
) -> _Batch:
    """Without the rows, -1, of nodes that are too far."""
    inside = rows >= 0
    return _Batch(size, rows[inside] * size + columns[inside], factors[inside], gone)


def _end_factors(adjacency: sp.csr_array, loop: float) -> sp.csr_array:
    """E_x without the edge to y, at (x, y): sqrt(d_x / (d_x - w)), and 0 where nothing is left.

    d_x - w would lose its digits where w is nearly all of d_x, so what is left by the heaviest
    edge of a row is the sum of the others.
    """
    matrix = adjacency.astype(np.float64)
    weights, counts = matrix.data, np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    heaviest = np.lexsort((weights, rows))[matrix.indptr[1:][counts > 0] - 1]
    others = weights.copy()
    others[heaviest] = 0
    others = np.bincount(rows, others, len(counts)) + loop
    degrees = np.bincount(rows, weights, len(counts)) + loop
    left = degrees[rows] - weights
    left[heaviest] = others[rows[heaviest]]
    ratio = np.divide(degrees[rows], left, out=np.zeros_like(left), where=left > 0)
    return sp.csr_array((np.sqrt(ratio), matrix.indices, matrix.indptr), shape=matrix.shape)


def first_order_effects(field: Field, best: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Estimated change of logit(best) - logit(second) without each edge and each node.

    In the order of ``field.edges`` and ``field.nodes``.
    """
    edges = field.edges
    x, y = field.place[edges.source], field.place[edges.target]
    both = (x >= 0) & (y >= 0)
    shared = np.zeros(len(x))  # (G_xy + G_yx) N_xy
    loops = np.zeros(len(field.place))  # G_xx N_xx
    steps, adjoint = field.basis.steps(field.hops), _adjoint(field, best, second)
    for (a, _, _), hop, ahead in zip(steps, field.reach(), adjoint[1:], strict=False):
        left, right = a * hop[:, 0], ahead[:, 0]
        shared[both] += left[x[both]] * right[y[both]] + left[y[both]] * right[x[both]]
        loops[field.place >= 0] += left * right
    shared *= field.scale * edges.entry
    loops[field.place >= 0] *= field.scale * field.matrix.to_scipy().diagonal()
    return _combined(field, shared, loops)


def _adjoint(field: Field, best: int, second: int) -> list[np.ndarray]:
    """y_0 .. y_k, each (nodes, 1), for F the difference of two logits."""
    signs = contrast(field.exact.trained.num_classes, best, second)[:, None]
    signs /= field.exact.scaling.deviation[:, None]
    terms = [coefficient * (signal @ signs) for coefficient, signal in field.signals()]
    adjoint, next_g = [terms[-1]], 0.0
    steps = list(field.basis.steps(field.hops))
    for term, (a, b, g) in zip(terms[-2::-1], steps[::-1], strict=True):
        later = adjoint[-2] if next_g else adjoint[-1]
        adjoint.append(term + field.next_hop((a, b, next_g), adjoint[-1], later))
        next_g = g
    return adjoint[::-1]


def _combined(field: Field, shared: np.ndarray, loops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<G, dS> of every edge and node from the parts of <G, S> that belong to edges and loops."""
    edges, n = field.edges, len(field.place)
    every = np.bincount(edges.source, shared, n) + np.bincount(edges.target, shared, n)

    def scaled(end: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """The other entries of an end that stays, times its E - 1 (its loop: E^2 - 1)."""
        return (factor - 1) * (every[end] - shared) + (factor**2 - 1) * loops[end]

    of_source = scaled(edges.source, edges.source_factor)
    of_target = scaled(edges.target, edges.target_factor)
    of_nodes = np.bincount(edges.source, of_target, n) + np.bincount(edges.target, of_source, n)
    return of_source + of_target - shared, (of_nodes - every - loops)[field.nodes]
