"""An explanation in pictures, and as one HTML page without network or other files."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hoplite.explain import text
from hoplite.explain.summary import NodePart, Summary
from hoplite.explain.text import HEADINGS, decimals, parts, percent, quantity, short, title
from hoplite.files import atomic_write_text
from hoplite.formatting import plural, signed
from hoplite.plots.base import Drawing, figure, layout, safe
from hoplite.plots.drawings import FAINT, MARGINS, Bar, bars_height, lying, panels, tint, upright
from hoplite.plots.page import PageFigure, render

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MAX_CLASSES = 20
AXIS_HEIGHT = 56  # pixels of the axis below lying bars
HOPS_HEIGHT = 180  # pixels of upright bars
VIEWS = (*HEADINGS, "neighbourhood", "classes")
SMALLEST, LARGEST = 9.0, 34.0  # diameters of nodes in pixels
NUM_NAMED = 6  # nodes that contribute most, with their names next to them


def write_explanation(values: Summary, out: str | os.PathLike[str], *, command: str = "") -> None:
    """Write :func:`explanation_page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, explanation_page(values, command=command))


def explanation_page(values: Summary, *, command: str = "") -> str:
    """The whole page of what ``Explanation.summary`` returned; ``command`` makes it again.

    Everything from ``values`` is escaped: names are only ever text.
    """
    bars = {by: [contribution_figure(values, by)] if parts(values, by) else [] for by in HEADINGS}
    plots = {
        "neighbourhood": [neighbourhood_figure(values), *bars["nodes"]],
        "parts": [*bars["hops"], *bars["features"]],
        "classes": [class_figure(values)],
    }
    source = files("hoplite.explain").joinpath("templates", "explanation.html")
    shown = {"command": command, "words": text, "strongest": strongest(values), "values": values}
    return render(source.read_text(encoding="utf-8"), plots, **shown)


def contribution_figure(values: Summary, by: str) -> PageFigure:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    bars = contribution_bars(values, by)
    drawn = upright(bars) if by == "hops" else lying(bars)
    height = "22rem" if by == "hops" else f"{bars_height(bars) + AXIS_HEIGHT}px"
    total = f"All together are {quantity(values)}, {signed(values.margin, decimals(values))}."
    table = text.parts_table(values, by)
    return PageFigure(
        f"by-{by}", HEADINGS[by], total, drawn.data, drawn.layout, *table, height=height
    )


def class_figure(values: Summary) -> PageFigure:
    """The probability of every class; of many, the most probable and the others together."""
    bars = class_bars(values)
    drawn, first = lying(bars, class_axis(values)), values.classes[0]
    return PageFigure(
        "by-class",
        "Probability of each class",
        f"{short(first.name)} has {percent(first.probability)}.",
        drawn.data,
        drawn.layout,
        *text.class_table(values),
        height=f"{bars_height(bars) + AXIS_HEIGHT}px",
    )


def neighbourhood_figure(values: Summary) -> PageFigure:
    """The neighbourhood: area by the size of a contribution, colour by its sign and size."""
    drawn = neighbourhood(values)
    nodes, edges = values.neighbourhood.nodes, values.neighbourhood.edges
    return PageFigure(
        "neighbours",
        "Who the prediction listens to",
        f"{plural(len(nodes), 'node')} that contribute most, or connect these, and "
        f"{plural(len(edges), 'edge')}.",
        drawn.data,
        drawn.layout,
        *text.neighbourhood_table(values),
        height="min(92vw, 34rem)",
    )


def contribution_bars(values: Summary, by: str) -> list[Bar]:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    digits, bars = decimals(values), []
    for part in parts(values, by):
        amount = part.contribution
        colour = tint(amount, part.kind != "one")
        bars.append(Bar(part.name, amount, colour, signed(amount, digits)))
    return bars


def class_bars(values: Summary) -> list[Bar]:
    """The probability of every class in percent; of many, the first and the others together."""
    first, others = values.classes[:MAX_CLASSES], values.classes[MAX_CLASSES:]
    tints = {values.against: "@pull", values.class_: "@push"}
    bars = []
    for one in first:
        chance, colour = one.probability, tints.get(one.name, "@other")
        bars.append(Bar(one.name, 100 * chance, colour, percent(chance)))
    if others:
        rest = sum(c.probability for c in others)
        name = f"the other {len(others):,}"
        bars.append(Bar(name, 100 * rest, f"@other/{FAINT}", percent(rest)))
    return bars


def class_axis(values: Summary) -> str:
    """The title of the axis of :func:`class_bars`, with a chosen threshold."""
    chosen = values.threshold
    if chosen is None:
        return "probability, %"
    return f"probability, % (threshold of {short(chosen.class_)}: {percent(chosen.probability)})"


def explanation_figure(values: Summary, by: str | None = None) -> Figure:
    """The picture of one of ``VIEWS``; hops, nodes and features below each other if None."""
    if by == "neighbourhood":
        return figure(neighbourhood(values), title(values), height=560)
    if by == "classes":
        bars = class_bars(values)
        drawn = lying(bars, class_axis(values), outside=True)
        return figure(drawn, title(values), height=bars_height(bars) + AXIS_HEIGHT)
    name = f"{title(values)}: {quantity(values)} is {signed(values.margin, decimals(values))}"
    drawings, heights, headings = [], [], []
    for view in HEADINGS if by is None else (by,):
        bars = contribution_bars(values, view)
        if bars or by is not None:
            drawings.append(upright(bars) if view == "hops" else lying(bars, outside=True))
            heights.append(HOPS_HEIGHT if view == "hops" else bars_height(bars))
            headings.append(HEADINGS[view])
    if by is not None:
        return figure(drawings[0], name, height=max(320, *heights) + MARGINS)
    return figure(panels(drawings, headings, heights), name)


def neighbourhood(values: Summary) -> Drawing:
    """The nodes that a prediction rests on, on rings by their distance.

    The area of a node is the size of its contribution, the colour its sign and size.
    """
    nodes, edges = values.neighbourhood.nodes, values.neighbourhood.edges
    places = positions(nodes, edges)
    points = [places[node.index] for node in nodes]
    largest, digits = strongest(values) or 1.0, decimals(values)
    # roots, so that the area of a node is its contribution, and weak colours can be distinguished
    roots = [math.sqrt(abs(node.contribution) / largest) for node in nodes]
    sizes = [max(SMALLEST, LARGEST * root) for root in roots]
    named = {0, *sorted(range(len(nodes)), key=lambda i: -roots[i])[:NUM_NAMED]}
    rings = sorted({round(math.hypot(*point)) for point in points} - {0})
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [x for a, b, _ in edges for x in (places[a][0], places[b][0], None)],
            "y": [y for a, b, _ in edges for y in (places[a][1], places[b][1], None)],
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
                "colorscale": [[0, "@pull"], [0.5, "@zero"], [1, "@push"]],
                "cmin": -1,
                "cmax": 1,
                "opacity": 1,
                "line": {"color": "@muted", "width": [3, *[1] * (len(nodes) - 1)]},
            },
            "text": [safe(short(node.id, 14)) * (i in named) for i, node in enumerate(nodes)],
            "textposition": ["top center" if y >= 0 else "bottom center" for _, y in points],
            "textfont": {"size": 11, "color": "@ink"},
            "cliponaxis": False,
            "customdata": [_hover(node, digits) for node in nodes],
            "hovertemplate": "%{customdata}<extra></extra>",
        },
    ]
    reach = (rings[-1] if rings else 0) + 0.45
    hidden = {"visible": False, "fixedrange": True, "range": [-reach, reach]}
    connected = max((node.distance for node in nodes if node.distance is not None), default=0)
    look = layout(
        hidden,
        {**hidden, "scaleanchor": "x"},
        shapes=[
            {
                **{"type": "circle", "layer": "below", "x0": -r, "y0": -r, "x1": r, "y1": r},
                "line": {"color": "@axis/0.6", "width": 1, "dash": "dot"},
            }
            for r in rings
        ],
        annotations=[
            {
                **{"x": 0, "y": r, "showarrow": False, "bgcolor": "@card"},
                "text": plural(r, "step") if r <= connected else "not connected",
                "font": {"size": 11, "color": "@muted"},
            }
            for r in rings
        ],
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        hovermode="closest",
    )
    return Drawing(data if edges else data[1:], look)


def strongest(values: Summary) -> float:
    """The largest absolute contribution in the drawing: the ends of its colours."""
    return max((abs(n.contribution) for n in values.neighbourhood.nodes), default=0.0)


def positions(
    nodes: Sequence[NodePart], edges: Sequence[tuple[int, int, float]]
) -> dict[int, tuple[float, float]]:
    """A place for every node: the first in the middle, the others on the ring of their distance.

    They are spread evenly over the ring, in the order of the neighbours that lead to them, and
    leave its top free. What is not connected has a ring of its own, outside.

    >>> nodes = [NodePart(i, i, None, i, 0.0) for i in range(3)]
    >>> positions(nodes, [(0, 1, 1.0), (1, 2, 1.0)])
    {0: (0.0, 0.0), 1: (0.0, -1.0), 2: (0.0, -2.0)}
    """
    outside = 1 + max((node.distance or 0 for node in nodes), default=0)
    rings, near, angles = defaultdict(list), defaultdict(list), {nodes[0].index: 0.0}
    for a, b, _ in edges:
        near[a].append(b)
        near[b].append(a)
    for node in nodes[1:]:
        rings[outside if node.distance is None else node.distance].append(node)
    places = {nodes[0].index: (0.0, 0.0)}
    for radius, ring in sorted(rings.items()):
        closer = {n.index: [angles[u] for u in near[n.index] if u in angles] for n in ring}
        ring.sort(key=lambda n: (min(closer[n.index], default=0.0), -n.contribution))
        for i, node in enumerate(ring):
            turn = 2 * math.pi * (i + 0.5) / len(ring)
            angles[node.index] = turn
            x, y = round(radius * math.sin(turn), 4), round(radius * math.cos(turn), 4)
            places[node.index] = (x + 0.0, y + 0.0)  # a zero without sign
    return places


def _hover(node: NodePart, digits: int) -> str:
    label, far = node.label, node.distance
    lines = [
        f"<b>{safe(short(node.id, 60))}</b>",
        "label unknown" if label is None else safe(short(label, 60)),
        "not connected" if far is None else f"{plural(far, 'step')} away",
        f"contribution {signed(node.contribution, digits)}",
    ]
    return "<br>".join(lines)
