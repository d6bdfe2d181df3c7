"""Several drawings side by side, each with its axes and a heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing

GAP = 0.13  # of the width, between two panels


def beside(drawings: Sequence[Drawing], headings: Sequence[str]) -> Drawing:
    """One drawing of several that have an axis each, numbered from left to right."""
    width = (1 - GAP * (len(drawings) - 1)) / len(drawings)
    data: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    look = {
        name: value
        for name, value in drawings[0].layout.items()
        if not re.match(r"[xy]axis|shapes|annotations", name)
    }
    shapes: list[dict[str, Any]] = []
    for i, (drawing, heading) in enumerate(zip(drawings, headings, strict=True)):
        number = "" if i == 0 else str(i + 1)
        start = i * (width + GAP)
        own, right = drawing.layout, f"{len(drawings) + i + 1}"
        for trace in drawing.data:  # some belong to an axis of their own at the right side
            y = f"y{right}" if trace.get("yaxis") == "y2" else f"y{number}"
            data.append({**trace, "xaxis": f"x{number}", "yaxis": y})
        if "yaxis2" in own:
            look[f"yaxis{right}"] = {
                **own["yaxis2"], "overlaying": f"y{number}", "anchor": f"x{number}"
            }  # fmt: skip
        look[f"xaxis{number}"] = {
            **own["xaxis"], "domain": [start, start + width], "anchor": f"y{number}"
        }  # fmt: skip
        look[f"yaxis{number}"] = {**own["yaxis"], "anchor": f"x{number}"}
        place = {"xref": f"x{number}", "yref": f"y{number} domain"}
        shapes += [{**shape, **place} for shape in own.get("shapes", ())]
        annotations += [{**words, **place} for words in own.get("annotations", ())]
        annotations.append(
            {
                "text": heading,
                "x": start + width / 2,
                "y": 1,
                "xref": "paper",
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 13, "color": "@ink"},
            }
        )
    return Drawing(data, {**look, "annotations": annotations, "shapes": shapes})
