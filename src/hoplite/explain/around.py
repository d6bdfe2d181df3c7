"""The nodes near an explained one: how far those that count are, and the ways to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.explain.exact import ExactModel, label_text, node_id
from hoplite.explain.rows import Rows
from hoplite.explain.summary import Neighbourhood, NodePart

MAX_DRAWN = 40
MAX_FRONTIER = 1 << 14  # nodes whose edges are looked at together


def nearest(
    rows: Rows, node: int, steps: int, wanted: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Steps from ``node`` to every node within ``steps``, and the node before it on a shortest way.

    Both are (n,), and -1 where a node is farther; the node before ``node`` is -1, too. With
    ``wanted`` the search ends as soon as all of these are found.
    """
    distance, before = (np.full(rows.data.num_nodes, -1) for _ in range(2))
    distance[node] = 0
    frontier = np.array([node])
    for step in range(1, steps + 1):
        if wanted is not None and (distance[wanted] >= 0).all():
            break
        ahead = [np.empty(0, np.int64)]
        for start in range(0, len(frontier), MAX_FRONTIER):
            part = frontier[start : start + MAX_FRONTIER]
            near = rows.edges(part)
            fresh = np.flatnonzero(distance[near.indices] < 0)
            found, first = np.unique(near.indices[fresh], return_index=True)
            distance[found] = step
            before[found] = np.repeat(part, np.diff(near.indptr))[fresh[first]]
            ahead.append(found)
        frontier = np.sort(np.concatenate(ahead))
    return distance, before


def plain_float(value: Any) -> float:
    """The shortest decimal that is the same number of its type, as a table would have it.

    >>> float(np.float32(74.28)), plain_float(np.float32(74.28))
    (74.27999877929688, 74.28)
    """
    return float(str(value))


class Around:
    """What is told of ``top``, the nodes that count most at ``node``, and of those on the way."""

    def __init__(self, exact: ExactModel, node: int, top: Sequence[int]) -> None:
        self._exact, self._node, self._top = exact, node, top
        self._distance, self._before = nearest(exact.rows, node, exact.trained.config.hops, top)

    def part(self, node: int, contribution: float) -> NodePart:
        """What is told of one of them."""
        far, data = int(self._distance[node]), self._exact.data
        distance = None if far < 0 else far
        return NodePart(node, node_id(data, node), label_text(data, node), distance, contribution)

    def drawn(self, contributions: np.ndarray) -> Neighbourhood:
        """The explained node, the top ones and those on the way to them; all edges among them."""
        chosen = {self._node: None}  # in the order in which they were found
        for one in self._top:
            way = [node for node in self._way(one) if node not in chosen]
            if len(chosen) + len(way) <= MAX_DRAWN:
                chosen |= dict.fromkeys(way)
        nodes = np.sort([*chosen])
        upper = sp.triu(self._exact.rows.edges(nodes)[:, nodes], 1).tocoo()
        ends = nodes[upper.row].tolist(), nodes[upper.col].tolist()
        return Neighbourhood(
            tuple(self.part(node, float(contributions[node])) for node in chosen),
            tuple(zip(*ends, map(plain_float, upper.data), strict=True)),
        )

    def _way(self, node: int) -> list[int]:
        """A shortest way from the explained node to ``node``."""
        way = []
        while node >= 0:  # what is before the first is negative
            way.append(node)
            node = int(self._before[node])
        return way[::-1]
