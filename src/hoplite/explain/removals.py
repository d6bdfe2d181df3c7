"""Which single edge or node, removed from the graph, would change a prediction.

N is the normalised adjacency (with loops if the operator is `renormalized`), d its degrees. Without
an edge (x, y) of weight w, or without a node u, exactly

    N' = E (N - edge) E,   E_x = sqrt(d_x / (d_x - w)), E_y alike    and 1 elsewhere
    N' = E N E,            E_u = 0, E_w = sqrt(d_w / (d_w - A_wu)) for the neighbours w of u

(E_x = 0 where nothing is left of d_x). So B removals are one signal of B columns through the same
N, and no matrix is built again. p_i(S') e_v stays within k hops of v: only those nodes are kept.

Where there are too many to compute, they are ranked by their effect to first order. With
F = sum_i z_i . l_i a function of the rows l_i = p_i(S) e_v, the basis (a_i, b_i, g_i) and the
adjoint (:mod:`hoplite.bases.base`)

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
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from hoplite.bases import find_basis
from hoplite.config import check_number
from hoplite.errors import ConfigError
from hoplite.explain.around import nearest
from hoplite.explain.exact import ExactModel, node_id, node_index
from hoplite.explain.rows import NoRemovals
from hoplite.explain.summary import EdgeFlip, Flips, NodeFlip, NodeName, Removals
from hoplite.graph import Graph
from hoplite.link import links_among
from hoplite.memory import parse_bytes
from hoplite.models import Weights
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.operators import find_operator
from hoplite.progress import steps_bar, watched
from hoplite.propagation.spmm import SparseMatrix, as_tensor, spmm

Report = Callable[[str, float], None]
Flip = TypeVar("Flip", EdgeFlip, NodeFlip)
TRIES = 4  # times as many candidates as are wanted are rebuilt at most
NEAR = 1e-6  # of the largest logit: margins that rounding, or a tie, may decide
BATCH_BYTES = 200_000_000
CACHED_NUMBERS = 1 << 20  # a signal of so many stays in the cache: four times faster on Pubmed
LEFT = 1e-6  # of a degree: what is left below this has lost its digits
MOST_COLUMNS = 512


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
    """The edges and nodes without any one of which ``node`` would be given another class.

    Every edge and every other node that can change the logits of ``node`` is a candidate: those up
    to k hops away, and their neighbours, which have a part in their degrees. If there are more than
    ``budget`` of a kind, those with the largest effect to first order are computed. Whatever is
    reported was confirmed on the graph built again without it. For a standardised model the search
    keeps the mean and spread of the whole graph; only the confirmation takes the new ones.

    Parameters
    ----------
    model, data, node, memory : as for :func:`hoplite.explain.explain`; NoRemovals from a hop store
        that does not know the edges, if they do not fit, or if the model is standardised
    budget : at most so many candidates of each kind are computed
    most : at most so many of each kind are reported, those with the clearest change first
    progress : True for a bar; or called with what is being done and how far all of it is, 0 to 1

    The margin of what is found is that of the old class then: below 0, or 0 if it shares the first
    place with a class that is named before it.

    >>> import torch
    >>> from hoplite import ModelConfig
    >>> graph = Graph.from_edges([(0, 1), (1, 2)], features=[[0.4, 0], [0, 0], [0, 0.3]])
    >>> weights = {"theta": torch.eye(2)}
    >>> model = TrainedModel(ModelConfig("sgc", hops=1), weights, 2, ("cat", "dog"))
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
    if model.num_classes < 2:
        raise ConfigError("the model knows one class only, so no removal changes a prediction.")
    whole = ExactModel(model, data, None if memory is None else parse_bytes(memory))
    whole.require_one_class()
    index = node_index(whole.data, node)
    if whole.trained.parts_:
        raise NoRemovals(
            "the model has an operator for each direction or type of edges, or channel, and "
            "removals are computed for one operator alone."
        )
    if links_among(model.feature_names, model.preparation) is not None:
        raise NoRemovals(
            "the model has links as features, which a removal changes, and removals are computed "
            "for features that stay as they are."
        )
    if not find_operator(model.config.operator).symmetric:
        raise NoRemovals(
            f"the model's operator {model.config.operator} is not symmetric, and removals are "
            "computed for those that are."
        )
    nodes, exact = _within_reach(whole, index)

    def named(place: int) -> NodeName:
        return NodeName(int(nodes[place]), node_id(whole.data, int(nodes[place])))

    place = int(np.searchsorted(nodes, index))
    with watched(progress, steps_bar, "removals") as report:
        return _Search(exact, place, named, budget, most, report).run()


def _within_reach(whole: ExactModel, node: int) -> tuple[np.ndarray, ExactModel]:
    """The nodes up to k + 1 steps away, and the model on the graph of them.

    It gives ``node`` the logits that it has, and would have without one of the edges or nodes: the
    nodes up to k steps away have all their edges. Standardised outputs need every node.
    """
    if whole.trained.config.standardize:
        if whole.data.stored is not None:
            raise NoRemovals(
                "the model's outputs are standardised over all nodes, so a removal changes them "
                "all, and only the graph in memory tells how; give the dataset itself."
            )
        return np.arange(whole.data.num_nodes), whole
    hops = whole.model.last_hop
    distance, _ = nearest(whole.rows, node, hops + 1)
    inside = np.flatnonzero((distance >= 0) & (distance <= hops))
    nodes = np.flatnonzero(distance >= 0)
    return nodes, ExactModel(whole.trained, whole.rows.ball(inside, nodes))


class _Search:
    def __init__(
        self,
        exact: ExactModel,
        node: int,
        named: Callable[[int], NodeName],
        budget: int,
        most: int,
        progress: Report | None,
    ) -> None:
        self._exact, self._node, self._named = exact, node, named
        self._budget, self._most = budget, most
        self._report = progress or (lambda what, share: None)
        self._decisions = exact.trained.task.decisions
        self._logits = self._decisions(exact.logits_of(node))
        self._predicted = int(self._logits.argmax())
        self._field = Field(exact, node)

    def run(self) -> Flips:
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
        found_edges = self._confirmed(self._edge, chosen_edges, edge_margins)
        found_nodes = self._confirmed(self._other_node, chosen_nodes, node_margins)
        return Flips(
            Removals(len(chosen_edges), len(edges.source), found_edges),
            Removals(len(chosen_nodes), len(field.nodes), found_nodes),
            _margin(self._logits, self._predicted),
            self._exact.trained.config.standardize,
        )

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
            for logits in self._decisions(batch.numpy()):
                found[done] = _margin(logits, self._predicted)
                done += 1
            self._report(f"removing {kind}", (before + done) / total)
        return found

    def _confirmed(
        self,
        rebuilt: Callable[[int], tuple[Callable[[str, float], Flip], Graph, int]],
        chosen: np.ndarray,
        margins: np.ndarray,
    ) -> tuple[Flip, ...]:
        """Those of the lowest margins whose class changes on the graph built again."""
        order = np.argsort(margins, kind="stable")
        near = NEAR * max(1.0, float(np.abs(self._logits).max()))
        order = order[margins[order] < near][: TRIES * self._most]
        found: list[Flip] = []
        for e in order:
            if len(found) == self._most:
                break
            flip, graph, place = rebuilt(int(chosen[e]))
            logits = self._decisions(ExactModel(self._exact.trained, graph).logits_of(place))
            winner = int(logits.argmax())  # of equals the first, as in a prediction
            if winner != self._predicted:
                becomes = self._exact.trained.class_names[winner]
                found.append(flip(becomes, _margin(logits, self._predicted)))
        return tuple(sorted(found, key=lambda one: one.margin))

    def _edge(self, chosen: int) -> tuple[Callable[[str, float], EdgeFlip], Graph, int]:
        """How the edge is named, the graph without it, and where the explained node is then."""
        graph, edges = self._exact.data.in_memory(), self._field.edges
        x, y = int(edges.source[chosen]), int(edges.target[chosen])
        adjacency = sp.csr_array(graph.adjacency, copy=True)
        adjacency[x, y] = adjacency[y, x] = 0
        flip = partial(EdgeFlip, self._named(x), self._named(y))
        return flip, self._graph(adjacency, graph.features), self._node

    def _other_node(self, chosen: int) -> tuple[Callable[[str, float], NodeFlip], Graph, int]:
        graph, gone = self._exact.data.in_memory(), int(self._field.nodes[chosen])
        kept = np.delete(np.arange(graph.num_nodes), gone)
        rest = self._graph(graph.adjacency[kept][:, kept], graph.features[kept])
        return partial(NodeFlip, self._named(gone)), rest, self._node - (gone < self._node)

    def _graph(self, adjacency: sp.csr_array, features: Any) -> Graph:
        exact = self._exact
        return Graph(
            adjacency,
            features,
            feature_names=exact.data.feature_names,
            preparation=exact.trained.preparation,
        ).with_loop_weight(exact.data.loop_weight)


def _without(logits: np.ndarray, chosen: int) -> np.ndarray:
    """The logits with -inf in one place."""
    others = logits.copy()
    others[chosen] = -np.inf
    return others


def _margin(logits: np.ndarray, chosen: int) -> float:
    """The logit of one class minus the highest other."""
    return float(logits[chosen] - _without(logits, chosen).max())


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges in arrays of one length: their ends, entry in N, and the E of both ends without it.

    ``doubtful`` are those so heavy that the degree left by them is rounded away.
    """

    source: np.ndarray
    target: np.ndarray
    entry: np.ndarray
    source_factor: np.ndarray
    target_factor: np.ndarray
    doubtful: np.ndarray


class _Batch(NamedTuple):
    """The E[row, column] that are not 1, and the entries of N that vanish: one removal a column."""

    size: int
    row: Tensor
    column: Tensor
    factor: Tensor
    gone: tuple[Tensor, Tensor, Tensor, Tensor] | None = None  # x, y, column, E_x N_xy E_y


class Field:
    """The nodes within k hops of ``node``, and all removals that can change its logits.

    ``edges`` are those with an end among these nodes; ``nodes`` those up to one hop farther, whose
    removal changes a degree among them. With no hops nothing can change the logits.
    """

    def __init__(self, exact: ExactModel, node: int) -> None:
        config, graph = exact.trained.config, exact.data.in_memory()
        operator = find_operator(config.operator)
        self.exact, self.node, self.hops = exact, node, exact.model.last_hop
        self.basis = find_basis(config.basis)
        # S = shift I + sign N, in the form (S - middle I) / half that the basis needs
        middle, half = self.basis.mapping(*operator.spectrum)
        self.scale = operator.sign / half
        self._shift = (operator.shift - middle) / half
        normal = operator.normalized.matrix(graph, np.float64)
        degrees = graph.adjacency.sum(axis=1, dtype=np.float64) + operator.loop_of(graph)
        far = dijkstra(graph.adjacency, unweighted=True, indices=node, limit=self.hops + 1)
        inside = np.flatnonzero(far <= self.hops)
        self.place = np.full(graph.num_nodes, -1)
        self.place[inside] = np.arange(len(inside))
        self.matrix = SparseMatrix.from_scipy(normal[inside][:, inside], symmetric=True)
        self.edges = _edges_around(graph.adjacency, normal, degrees, self.place, self.hops)
        reached = np.isfinite(far) if self.hops else np.zeros(graph.num_nodes, dtype=bool)
        self.nodes = np.flatnonzero(reached & (np.arange(graph.num_nodes) != node))
        self._factors = _neighbour_factors(self.edges, graph.num_nodes)
        features, self.weights = _narrowed(exact, graph.features[inside].astype(np.float64))
        self._features = (
            SparseMatrix.from_scipy(features.T.tocsr()) if sp.issparse(features) else features
        )
        self.num_features = features.shape[1]

    @property
    def batch_size(self) -> int:
        """Removals at a time, so that their signals and hop features stay in bounded memory."""
        nodes = self.matrix.shape[0]
        numbers = 5 * nodes + 3 * (self.hops + 1) * self.num_features
        numbers += (4 + self.hops) * self.exact.trained.num_classes
        most = min(BATCH_BYTES // (8 * numbers), MOST_COLUMNS)
        return max(min(most, max(CACHED_NUMBERS // nodes, 16)), 1)

    def without_edges(self, chosen: np.ndarray) -> Iterator[Tensor]:
        """Logits (B, m) without one edge each, batch after batch; ``chosen`` indexes ``edges``."""
        for start in range(0, len(chosen), self.batch_size):
            yield self._logits(self._edge_batch(chosen[start : start + self.batch_size]))

    def without_nodes(self, chosen: np.ndarray) -> Iterator[Tensor]:
        """Logits (B, m) without one node each, batch after batch; ``chosen`` indexes ``nodes``."""
        for start in range(0, len(chosen), self.batch_size):
            part = self.nodes[chosen[start : start + self.batch_size]]
            yield self._logits(self._node_batch(part))

    def step(self, signal: Tensor, a: float, b: float, batch: _Batch | None = None) -> Tensor:
        """a S + b times a signal, each column with its own removal: (nodes, B) -> (nodes, B)."""
        shift, scale = a * self._shift + b, a * self.scale
        if batch is None:
            return shift * signal + scale * spmm(self.matrix, signal)
        at = batch.row, batch.column
        scaled = signal.clone()
        scaled[at] *= batch.factor
        product = spmm(self.matrix, scaled)
        product[at] *= batch.factor
        if batch.gone is not None:
            x, y, column, entry = batch.gone
            product[x, column] -= entry * signal[y, column]
            product[y, column] -= entry * signal[x, column]
        return product.mul_(scale).add_(signal, alpha=shift)

    def reach(self, batch: _Batch | None = None) -> Iterator[Tensor]:
        """p_i(S) e_v for i = 0 .. k, each column with its own removal: (nodes, B)."""
        columns = 1 if batch is None else batch.size
        now = torch.zeros(self.matrix.shape[0], columns, dtype=torch.float64)
        now[self.place[self.node]] = 1
        before = now
        yield now
        for a, b, g in self.basis.steps(self.hops):
            ahead = self.step(now, a, b, batch)
            before, now = now, ahead.sub_(before, alpha=g) if g else ahead
            yield now

    def collect(self, signal: Tensor) -> Tensor:
        """X^T signal, column by column: (nodes, B) -> (B, d)."""
        if isinstance(self._features, SparseMatrix):
            return spmm(self._features, signal).T
        return (as_tensor(self._features).T @ signal).T

    def spread(self, weights: Tensor) -> Tensor:
        """X times weights: (k + 1, d) -> (nodes, k + 1)."""
        if isinstance(self._features, SparseMatrix):
            return spmm(self._features.T, weights.T)
        return as_tensor(self._features) @ weights.T

    def outputs(self, hops: Tensor) -> Tensor:
        """Logits (B, m) from hop features (k + 1, B, d)."""
        return self.exact.outputs(hops, self.weights)

    def _logits(self, batch: _Batch) -> Tensor:
        with torch.no_grad():
            return self.outputs(torch.stack([self.collect(hop) for hop in self.reach(batch)]))

    def _edge_batch(self, chosen: np.ndarray) -> _Batch:
        edges, count = self.edges, len(chosen)
        x, y = self.place[edges.source[chosen]], self.place[edges.target[chosen]]
        of_x, of_y = edges.source_factor[chosen], edges.target_factor[chosen]
        row = np.concatenate([x, y])
        column = np.tile(np.arange(count), 2)
        factor = np.concatenate([of_x, of_y])
        both = np.flatnonzero((x >= 0) & (y >= 0))
        entry = (of_x * edges.entry[chosen] * of_y)[both]
        gone = tuple(map(torch.from_numpy, (x[both], y[both], both, entry)))
        return _Batch(count, *_kept(row, column, factor), gone)  # pyright: ignore[reportArgumentType]

    def _node_batch(self, nodes: np.ndarray) -> _Batch:
        near = self._factors[nodes].tocoo()
        row = self.place[np.concatenate([near.col, nodes])]
        column = np.concatenate([near.row, np.arange(len(nodes))])
        factor = np.concatenate([near.data, np.zeros(len(nodes))])
        return _Batch(len(nodes), *_kept(row, column, factor))


def _edges_around(
    adjacency: sp.csr_array, normal: sp.csr_array, degrees: np.ndarray, place: np.ndarray, hops: int
) -> Edges:
    weights, entries = sp.triu(adjacency, 1, "csr").tocoo(), sp.triu(normal, 1, "csr").tocoo()
    x, y = weights.row, weights.col
    near = (place[x] >= 0) | (place[y] >= 0) if hops else np.zeros(len(x), dtype=bool)
    x, y, weight = x[near], y[near], weights.data[near].astype(np.float64)
    doubtful = np.zeros(len(x), dtype=bool)
    for end in (x, y):
        others = np.diff(normal.indptr)[end] > 1
        doubtful |= others & (degrees[end] - weight < LEFT * degrees[end])
    factors = _factor(degrees[x], weight), _factor(degrees[y], weight)
    return Edges(x, y, entries.data[near], *factors, doubtful)


def _factor(degree: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """sqrt(d / (d - w)), and 0 where nothing is left."""
    left = degree - weight
    return np.sqrt(np.divide(degree, left, out=np.zeros_like(degree), where=left > 0))


def _neighbour_factors(edges: Edges, n: int) -> sp.csr_array:
    """Row u: the E of its neighbours without u, which are those without the edge to u."""
    factor = np.concatenate([edges.target_factor, edges.source_factor])
    row = np.concatenate([edges.source, edges.target])
    column = np.concatenate([edges.target, edges.source])
    return sp.csr_array((factor, (row, column)), shape=(n, n))


def _kept(row: np.ndarray, column: np.ndarray, factor: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Without the rows of nodes that are too far."""
    inside = row >= 0
    row, column = row[inside].astype(np.int64), column[inside].astype(np.int64)
    return torch.from_numpy(row), torch.from_numpy(column), torch.from_numpy(factor[inside])


def _narrowed(exact: ExactModel, features: Any) -> tuple[Any, Weights]:
    """X at some nodes and the model's weights.

    Where the model reads X only through products with weights, those stand for X, and the
    identity for the weights: m columns, or 2 m, instead of d, if these are fewer.
    """
    names = exact.model.input_weights
    if not names or features.shape[1] <= len(names) * exact.trained.num_classes:
        return features, exact.weights
    signal = features @ torch.cat([exact.weights[name][0] for name in names], dim=1).numpy()
    blocks = torch.eye(signal.shape[1], dtype=torch.float64).chunk(len(names), dim=1)
    units = {name: block.unsqueeze(0) for name, block in zip(names, blocks, strict=True)}
    return signal, exact.weights | units


def first_order_effects(field: Field, best: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Estimated change of logit(best) - logit(second) without each edge and each node.

    In the order of ``field.edges`` and ``field.nodes``. Gates change with the hop features, so F
    is linearised around those of the whole graph.
    """
    reach = list(field.reach())
    edges = field.edges
    x, y = field.place[edges.source], field.place[edges.target]
    both = (x >= 0) & (y >= 0)
    shared = np.zeros(len(x))  # (G_xy + G_yx) N_xy
    loops = np.zeros(len(field.place))  # G_xx N_xx
    steps, adjoint = field.basis.steps(field.hops), _adjoint(field, reach, best, second)
    for (a, _, _), hop, ahead in zip(steps, reach[:-1], adjoint[1:], strict=True):
        left, right = a * hop[:, 0].numpy(), ahead[:, 0].numpy()
        shared[both] += left[x[both]] * right[y[both]] + left[y[both]] * right[x[both]]
        loops[field.place >= 0] += left * right
    shared *= field.scale * edges.entry
    loops[field.place >= 0] *= field.scale * field.matrix.to_scipy().diagonal()
    return _combined(field, shared, loops)


def _adjoint(field: Field, reach: list[Tensor], best: int, second: int) -> list[Tensor]:
    """y_0 .. y_k, each (nodes, 1), for F the difference of two logits."""
    hops = torch.stack([field.collect(hop) for hop in reach]).requires_grad_()
    logits = field.outputs(hops)[0]
    (slope,) = torch.autograd.grad(logits[best] - logits[second], hops)
    terms = field.spread(slope[:, 0]).split(1, dim=1)
    found, next_g = [terms[-1].contiguous()], 0.0
    steps = list(field.basis.steps(field.hops))
    for term, (a, b, g) in zip(terms[-2::-1], steps[::-1], strict=True):
        ahead = term + field.step(found[-1], a, b)
        found.append(ahead - next_g * found[-2] if next_g else ahead)
        next_g = g
    return found[::-1]


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
