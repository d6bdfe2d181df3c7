"""Why a graph is predicted as it is: exact sums over hops or depths, nodes and columns.

The logit of class c is b_c + sum_j Phi_gj Theta_jc. Families that add something for every node
split it further: of ``hops``, node u of graph g adds at hop i

    (1' S^i)_u x_u (Theta_i^sum + Theta_i^mean / n_g)

and of ``colours`` a colour's part belongs in equal shares to the nodes that carry it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import plural
from hoplite.explain.exact import compared_classes, contrast
from hoplite.formatting import MAX_ROWS, Described, Description, Table, signed
from hoplite.graph import Graph
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.model import GraphModel
from hoplite.plots.drawings import node_link_svg


@dataclass(frozen=True, eq=False, repr=False)
class GraphExplanation(Described):
    """The exact contributions to the prediction for one graph; :func:`explain_graph` returns it.

    Parameters
    ----------
    graph_id : str or int
        The id of the graph, or its index.
    graph : Graph
        The explained graph.
    class_, against, predicted : str
        The explained class, the class to compare with (None if the logit itself is explained), and
        the predicted class.
    logit : float
        The sum of all contributions: the margin of the class, which is never negative for the
        predicted class, because a chosen threshold adds its log-odds; or its logit.
    bias : float
        The bias, and the part of a chosen threshold.
    columns : dict of float
        The contribution of every column of Phi that is not 0, by name.
    parts : (steps, n) array or None
        Contributions by hop (or depth) and node; None for families that are not sums over nodes.
    steps : str
        "hop" or "depth".
    outside : float
        The part of the columns that belongs to no node, such as the number of nodes in ``hops``.

    Examples
    --------
    >>> import hoplite
    >>> pair = Graph.from_edges([(0, 1)], [[1.0], [2.0]])
    >>> path = Graph.from_edges([(0, 1), (1, 2)], [[1.0], [2.0], [1.0]])
    >>> graphs = hoplite.load_graphs([pair, path] * 4, labels=["pair", "path"] * 4)
    >>> model = hoplite.train_graphs(graphs, "hops", epochs=5).model
    >>> why = hoplite.explain_graph(model, graphs, 1)
    >>> why.by_node.shape, abs(why.residual) < 1e-5
    ((3,), True)
    """

    graph_id: Any
    graph: Graph
    class_: str
    against: str | None
    predicted: str
    logit: float
    bias: float
    columns: dict[str, float]
    parts: np.ndarray | None
    steps: str
    outside: float = 0.0

    @property
    def constant(self) -> float:
        """What belongs to no node: the bias, and of ``hops`` the part of the number of nodes."""
        return self.bias + self.outside

    @property
    def by_node(self) -> np.ndarray | None:
        """What each node adds: (n,)."""
        return None if self.parts is None else self.parts.sum(axis=0)

    @property
    def by_step(self) -> np.ndarray | None:
        """What each hop or depth adds: (steps,)."""
        return None if self.parts is None else self.parts.sum(axis=1)

    @property
    def residual(self) -> float:
        """The logit without all parts: 0 up to rounding."""
        if self.parts is not None:
            return float(self.logit - self.constant - self.parts.sum())
        return float(self.logit - self.bias - sum(self.columns.values()))

    @property
    def node_ids(self) -> list[Any]:
        """The names of the nodes."""
        return [*(self.graph.node_ids or range(self.graph.num_nodes))]

    def to_dict(self, top: int = 10) -> dict[str, Any]:
        """The explanation as plain JSON values.

        Parameters
        ----------
        top : int, default 10
            Maximum number of nodes, and of columns.

        Returns
        -------
        dict
        """
        steps = {} if self.by_step is None else {f"by_{self.steps}": self.by_step.tolist()}
        nodes = _strongest(self._addends.get("node", ()), top)
        columns = _strongest(self.columns.items(), top)
        return {
            "graph": self.graph_id,
            "predicted": self.predicted,
            "class": self.class_,
            "against": self.against,
            "logit": self.logit,
            "bias": self.bias,
            "constant": self.constant,
            **steps,
            "nodes": [{"id": name, "contribution": part} for name, part in nodes],
            "columns": [{"name": name, "contribution": part} for name, part in columns],
            "residual": self.residual,
        }

    @property
    def _addends(self) -> dict[str, list[tuple[Any, float]]]:
        """The parts of the logit by hop or depth, node and column, with their names."""
        columns = {"column": [*self.columns.items()]}
        if self.by_step is None or self.by_node is None:
            return columns
        nodes = [*zip(self.node_ids, self.by_node.tolist(), strict=True)]
        return {self.steps: [*enumerate(self.by_step.tolist())], "node": nodes, **columns}

    def describe(self, top: int = 10) -> Description:
        """Tables of hops, nodes and columns, each of which adds up to the logit.

        Parameters
        ----------
        top : int, default 10
            Maximum number of rows of a table; one more has the sum of all others.

        Returns
        -------
        Description
        """
        what = f"logit of {self.class_}"
        if self.against is not None:
            what = f"margin of {self.class_} over {self.against}"
        facts = {
            "graph": f"{self.graph_id}, {plural(self.graph.num_nodes, 'node')}",
            "predicted": self.predicted,
            what: signed(self.logit, 4),
        }
        tables = [self._table(what, parts, top) for what, parts in self._addends.items()]
        return Description(f"Why {self.graph_id} is predicted as {self.predicted}", facts, tables)

    def _table(self, what: str, parts: Sequence[tuple[Any, float]], top: int) -> Table:
        """The strongest parts, all others together, what belongs to none, and the sum."""
        rows = _strongest(parts, top)
        constant = ("bias", self.bias) if what == "column" else ("no node", self.constant)
        if what == self.steps:
            rows.sort()
        hidden = len(parts) - len(rows)
        others = sum(part for _, part in parts) - sum(part for _, part in rows)
        rows += [(f"the other {hidden:,}", others)] if hidden else []
        rows += [constant]
        rows += [("sum", sum(part for _, part in rows))]
        cells = [[str(name), signed(part, 4)] for name, part in rows]
        return Table([what, "contribution"], cells, f"By {what}")

    def _describe(self) -> Description:
        return self.describe(MAX_ROWS - 3)  # with the others, the constant and the sum

    def _repr_html_(self) -> str:
        return self.svg() + self._describe().html()

    def svg(self) -> str:
        """A picture of the graph: blue nodes support the class, orange ones oppose it.

        The area of a node is its contribution. For large graphs, only the 300 nodes with the
        largest contributions are drawn. If the logit is not a sum over nodes, all are grey.

        Returns
        -------
        str
            An SVG element.
        """
        label = f"Graph {self.graph_id}: parts of {self.class_} by node"
        return node_link_svg(self.graph.adjacency, self.node_ids, self.by_node, label)

    def page(self) -> str:
        """The picture and the tables as one HTML page; all names are escaped.

        Returns
        -------
        str
        """
        described, class_ = self._describe(), html.escape(self.class_)
        legend = (
            f"Blue nodes support {class_}, orange ones oppose it; the area is the contribution."
        )
        if self.by_node is None:
            legend = "The logit of this family is not a sum over nodes, so all nodes are grey."
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(described.title)}</title>"
            "<style>body{font-family:sans-serif;margin:2em} table{margin:1em 0}</style></head>"
            f"<body>{self.svg()}<p>{legend}</p>{described.html()}</body></html>"
        )


def explain_graph(
    model: GraphModel,
    graphs: GraphSet,
    graph: Any,
    class_: str | None = None,
    *,
    against: str | None = None,
    alone: bool = False,
) -> GraphExplanation:
    """Explain the prediction for one graph.

    Parameters
    ----------
    model : GraphModel
    graphs : GraphSet
    graph : str or int
        The id of the graph, or its index in a set without ids.
    class_ : str, optional
        The class to explain; by default the predicted one.
    against : str, optional
        The class to compare with; by default the runner-up.
    alone : bool, default False
        Explain the logit of the class instead of the margin.

    Returns
    -------
    GraphExplanation

    Examples
    --------
    >>> import hoplite, numpy as np
    >>> rings = [hoplite.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> stars = [hoplite.Graph.from_edges([(0, i) for i in range(1, n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> graphs = hoplite.load_graphs(rings + stars, labels=["ring"] * 8 + ["star"] * 8)
    >>> model = hoplite.train_graphs(graphs, "colours", depth=1).model
    >>> hoplite.explain_graph(model, graphs, 0).class_
    'ring'
    """
    index = graphs.index(graph)
    pooled = model.pooled(graphs.select([index]))
    logits, names = model.head.logits(pooled)[0].astype(np.float64), model.class_names
    target, rival = compared_classes(model.task, names, logits, class_, against, alone=alone)
    signs = contrast(len(names), target, rival)
    theta = model.head.maps_[0].astype(np.float64) @ signs
    threshold = 0.0 if rival is None else float((model.task.decisions(logits) - logits) @ signs)
    bias = float(model.head.weights.get("bias", np.zeros(len(names))) @ signs) + threshold
    amounts = sp.csr_array(pooled.features).toarray()[0].astype(np.float64) * theta
    own, titles = pooled.graphs.graph(0), pooled.feature_names or ()
    places = {name: f"{name}, {where}" for name, where in model.pooling.places(own).items()}
    filled = np.flatnonzero(amounts).tolist()
    parts = model.pooling.node_parts(pooled.graphs, theta)
    return GraphExplanation(
        index if graphs.graph_ids is None else graphs.graph_ids[index],
        own,
        names[target],
        None if rival is None else names[rival],
        str(model.task.columns(logits[None], names)["predicted"][0]),
        float(logits @ signs) + threshold,
        bias,
        {places.get(titles[j], titles[j]): float(amounts[j]) for j in filled},
        parts,
        model.pooling.steps,
        0.0 if parts is None else model.pooling.constant_part(amounts),
    )


def _strongest(parts: Iterable[tuple[Any, float]], top: int) -> list[tuple[Any, float]]:
    return sorted(parts, key=lambda pair: -abs(pair[1]))[:top]
