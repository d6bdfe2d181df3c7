"""The nodes that a prediction rests on, on rings by their distance, coloured by what they add."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hoplite.explain.summary import NodePart, Summary
from hoplite.explain.text import decimals, short
from hoplite.plots.base import Drawing, layout, safe
from hoplite.words import plural, signed

SMALLEST, LARGEST = 9.0, 34.0  # diameters in pixels
NAMED = 6  # of the nodes that contribute most have their name beside them
NAME = 14  # characters of such a name
SCALE = [[0, "@pull"], [0.5, "@zero"], [1, "@push"]]
Edge = tuple[int, int, float | None]  # its ends and its weight


def neighbourhood(values: Summary) -> Drawing:
    """The neighbourhood: area by the size of a contribution, colour by its sign and size."""
    nodes = values.neighbourhood.nodes
    edges = values.neighbourhood.edges
    centre = values.node.index
    places = positions(centre, nodes, edges)
    largest = strongest(values)
    # roots, so that the area of a node is its contribution, and weak colours are still told apart
    roots = [math.sqrt(abs(node.contribution) / (largest or 1.0)) for node in nodes]
    sizes = [max(SMALLEST, LARGEST * root) for root in roots]
    points = [places[node.index] for node in nodes]
    loud = sorted(range(len(nodes)), key=lambda i: -abs(nodes[i].contribution))[:NAMED]
    named = {i for i, node in enumerate(nodes) if i in loud or node.index == centre}
    middle = [i for i, node in enumerate(nodes) if node.index == centre]
    rings = sorted({round(math.hypot(*point)) for point in points} - {0})
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [part for a, b, *_ in edges for part in (places[a][0], places[b][0], None)],
            "y": [part for a, b, *_ in edges for part in (places[a][1], places[b][1], None)],
            "line": {"color": "@axis", "width": 1},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [x for x, _ in points],
            "y": [y for _, y in points],
            "marker": {
                "size": sizes,
                "color": [
                    math.copysign(root, node.contribution)
                    for root, node in zip(roots, nodes, strict=True)
                ],
                "colorscale": SCALE,
                "cmin": -1,
                "cmax": 1,
                "opacity": 1,
                "line": {"color": "@muted", "width": 1},
            },
            "text": [
                safe(short(node.id, NAME)) if i in named else "" for i, node in enumerate(nodes)
            ],
            "textposition": ["top center" if y >= 0 else "bottom center" for _, y in points],
            "textfont": {"size": 11, "color": "@ink"},
            "cliponaxis": False,
            "customdata": [_hover(node, decimals(values)) for node in nodes],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": [points[i][0] for i in middle],
            "y": [points[i][1] for i in middle],
            "marker": {
                "symbol": "circle-open",
                "size": [sizes[i] + 10 for i in middle],
                "color": "@ink",
                "line": {"width": 2.5},
            },
            "hoverinfo": "skip",
        },
    ]
    reach = (rings[-1] if rings else 0) + 0.45
    hidden = {"visible": False, "fixedrange": True, "range": [-reach, reach]}
    return Drawing(
        data if edges else data[1:],
        layout(
            hidden,
            {**hidden, "scaleanchor": "x"},
            shapes=[_ring(radius) for radius in rings],
            annotations=[_ring_name(radius, nodes, places) for radius in rings],
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            hovermode="closest",
        ),
    )


def strongest(values: Summary) -> float:
    """The largest absolute contribution in the drawing: the ends of its colours."""
    return max((abs(n.contribution) for n in values.neighbourhood.nodes), default=0.0)


def positions(
    centre: int, nodes: Sequence[NodePart], edges: Sequence[Edge]
) -> dict[int, tuple[float, float]]:
    """A place for every node: on the ring of its distance, near the node that leads to it.

    Each node hangs below a neighbour that is one step closer to ``centre``: of several the one
    with most edges, so that few lines cross. It shares that one's part of the circle with its
    siblings, by the number of leaves below each; those that contribute alike are beside each
    other. What is not connected has a ring of its own, outside.

    >>> nodes = [NodePart(i, i, None, i, 0.0) for i in range(3)]
    >>> positions(0, nodes, [(0, 1, 1.0), (1, 2, 1.0)])
    {0: (0.0, 0.0), 1: (0.0, -1.0), 2: (0.0, -2.0)}
    """
    distance = {node.index: node.distance for node in nodes}
    outside = 1 + max((d for d in distance.values() if d is not None), default=0)
    near = defaultdict(list)
    for a, b, *_ in edges:
        near[a].append(b)
        near[b].append(a)
    children = defaultdict(list)
    loudness = {node.index: node.contribution for node in nodes}
    for node in sorted(distance, key=lambda i: (-loudness[i], i)):
        if node == centre:
            continue
        step = distance[node]
        closer = [n for n in near[node] if step is not None and distance[n] == step - 1]
        children[min(closer, key=lambda n: (-len(near[n]), n), default=centre)].append(node)

    leaves: dict[int, int] = {}
    for node in sorted(distance, key=lambda i: -_ring_of(distance[i], outside)):
        leaves[node] = sum(leaves[child] for child in children[node]) or 1

    angles, todo = {centre: (0.0, 2 * math.pi)}, [centre]
    while todo:
        parent = todo.pop()
        start, end = angles[parent]
        step = (end - start) / sum(leaves[child] for child in children[parent] or [parent])
        for child in children[parent]:
            angles[child] = (start, start + step * leaves[child])
            start = angles[child][1]
            todo.append(child)
    return {
        node: _polar(
            0 if node == centre else _ring_of(distance[node], outside), sum(angles[node]) / 2
        )
        for node in distance
    }


def _ring_of(distance: int | None, outside: int) -> int:
    return outside if distance is None else distance


def _polar(radius: float, angle: float) -> tuple[float, float]:
    """Clockwise from the top, as a clock goes."""
    x, y = round(radius * math.sin(angle), 4), round(radius * math.cos(angle), 4)
    return x + 0.0, y + 0.0  # a zero without sign


def _ring(radius: int) -> dict[str, Any]:
    return {
        "type": "circle",
        "layer": "below",
        "x0": -radius,
        "y0": -radius,
        "x1": radius,
        "y1": radius,
        "line": {"color": "@axis/0.6", "width": 1, "dash": "dot"},
    }


def _ring_name(
    radius: int, nodes: Sequence[NodePart], places: dict[int, tuple[float, float]]
) -> dict[str, Any]:
    """The distance, written on its ring where the widest gap between its nodes is."""
    on = [
        node
        for node in nodes
        if round(math.hypot(*places[node.index])) == radius and places[node.index] != (0, 0)
    ]
    turns = sorted(
        math.atan2(*places[node.index]) % (2 * math.pi) for node in on
    )  # x before y: clockwise from the top
    gaps = [
        (after - before, (before + after) / 2)
        for before, after in zip(turns, [*turns[1:], turns[0] + 2 * math.pi], strict=True)
    ]
    x, y = _polar(radius, max(gaps)[1])
    apart = any(node.distance is None for node in on)
    return {
        "x": x,
        "y": y,
        "text": "not connected" if apart else plural(radius, "step"),
        "showarrow": False,
        "bgcolor": "@card",
        "font": {"size": 11, "color": "@muted"},
    }


def _hover(node: NodePart, places: int) -> str:
    distance = node.distance
    lines = [
        f"<b>{safe(short(node.id, 60))}</b>",
        "label unknown" if node.label is None else safe(short(node.label, 60)),
        "not connected" if distance is None else f"{plural(distance, 'step')} away",
        f"contribution {signed(node.contribution, places)}",
    ]
    return "<br>".join(lines)
