"""Numbers that were predicted beside those that are true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, layout, thin

MOST_POINTS = 5000  # of more, some that are spread evenly


def predicted(true: Sequence[float], told: Sequence[float]) -> Drawing:
    """A point per node, ``told`` over ``true``; right is the diagonal."""
    shown = thin(len(true), most=MOST_POINTS)
    ends = [min(min(true), min(told)), max(max(true), max(told))]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "right",
            "x": ends,
            "y": ends,
            "line": {"color": "@muted", "width": 1, "dash": "dash"},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "nodes",
            "x": [true[i] for i in shown],
            "y": [told[i] for i in shown],
            "marker": {"color": "@hlgc/0.6", "size": 7},
            "hovertemplate": "predicted %{y:.4g}, true %{x:.4g}<extra></extra>",
        },
    ]
    look = layout(axis("true value", zeroline=False), axis("predicted", zeroline=False))
    return Drawing(data, {**look, "hovermode": "closest"})
