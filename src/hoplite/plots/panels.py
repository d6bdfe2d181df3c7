"""Several drawings side by side or below each other, each with its axes and a heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing

GAP = 0.13  # of the width, between two panels
RIGHT = 0.09  # more, where the left one has an axis at its right side
BETWEEN = 84  # pixels, of the height: figures and title of an axis, and the next heading
MARGINS = 56 + 44  # pixels: what a figure with a title has above and below

Area = tuple[list[float], list[float]]  # of the whole: from left to right, from the bottom up


def beside(drawings: Sequence[Drawing], headings: Sequence[str]) -> Drawing:
    """One drawing of several that have an axis each, numbered from left to right."""
    gap = GAP + RIGHT * any("yaxis2" in one.layout for one in drawings[:-1])
    width = (1 - gap * (len(drawings) - 1)) / len(drawings)
    starts = [i * (width + gap) for i in range(len(drawings))]
    return _joined(drawings, headings, [([x, x + width], [0.0, 1.0]) for x in starts])


def below(drawings: Sequence[Drawing], headings: Sequence[str], heights: Sequence[int]) -> Drawing:
    """One drawing of several, from the top down, of these heights in pixels; it has its own."""
    whole = sum(heights) + BETWEEN * (len(heights) - 1)
    areas: list[Area] = []
    top = whole
    for height in heights:
        areas.append(([0.0, 1.0], [(top - height) / whole, top / whole]))
        top -= height + BETWEEN
    made = _joined(drawings, headings, areas)
    return Drawing(made.data, {**made.layout, "height": whole + MARGINS})


def _joined(drawings: Sequence[Drawing], headings: Sequence[str], areas: Sequence[Area]) -> Drawing:
    data: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    look = {
        name: value
        for name, value in drawings[0].layout.items()
        if not re.match(r"[xy]axis|shapes|annotations", name)
    }
    shapes: list[dict[str, Any]] = []
    for i, (drawing, heading, (wide, high)) in enumerate(
        zip(drawings, headings, areas, strict=True)
    ):
        number = "" if i == 0 else str(i + 1)
        own, right = drawing.layout, f"{len(drawings) + i + 1}"
        for trace in drawing.data:  # some belong to an axis of their own at the right side
            y = f"y{right}" if trace.get("yaxis") == "y2" else f"y{number}"
            data.append({**trace, "xaxis": f"x{number}", "yaxis": y})
        if "yaxis2" in own:
            look[f"yaxis{right}"] = {
                **own["yaxis2"], "overlaying": f"y{number}", "anchor": f"x{number}"
            }  # fmt: skip
        look[f"xaxis{number}"] = {**own["xaxis"], "domain": wide, "anchor": f"y{number}"}
        look[f"yaxis{number}"] = {**own["yaxis"], "domain": high, "anchor": f"x{number}"}
        place = {"xref": f"x{number}", "yref": f"y{number} domain"}
        shapes += [{**shape, **place} for shape in own.get("shapes", ())]
        annotations += [{**words, **place} for words in own.get("annotations", ())]
        annotations.append(
            {
                "text": heading,
                "x": sum(wide) / 2,
                "y": high[1],
                "xref": "paper",
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 13, "color": "@ink"},
            }
        )
    return Drawing(data, {**look, "annotations": annotations, "shapes": shapes})
