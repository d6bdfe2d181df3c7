"""Whether probabilities mean what they say: the share of right predictions beside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, layout, safe, stroke_of
from hoplite.shown import short

NAME = 18  # characters of a name in the legend
Bin = Sequence[float]  # mean probability, share of right predictions, number of nodes


def reliability(bins: Sequence[Bin]) -> Drawing:
    """A point per bin of probabilities, as large as its share of the nodes; honest is the diagonal.

    A point below the line: the model is surer than it should be.
    """
    return reliabilities(
        {"model": bins}, "probability of the predicted class", "share that is right"
    )


def reliabilities(series: Mapping[str, Sequence[Bin]], across: str, up: str) -> Drawing:
    """As :func:`reliability`, a curve for each name; the axes are called ``across`` and ``up``."""
    most = max((count for bins in series.values() for *_, count in bins), default=1.0)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "honest",
            "x": [0, 1],
            "y": [0, 1],
            "line": {"color": "@muted", "width": 1, "dash": "dash"},
            "hoverinfo": "skip",
        },
    ]
    for i, (name, bins) in enumerate(series.items()):
        stroke, sizes = stroke_of(i), [6 + 14 * (n / most) ** 0.5 for *_, n in bins]
        told = f"{safe(short(name, 60))}, " if len(series) > 1 else ""
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(short(name, NAME)),
                "x": [sure for sure, *_ in bins],
                "y": [right for _, right, _ in bins],
                "line": stroke,
                "marker": {"color": stroke["color"], "size": sizes},
                "customdata": [f"{told}{count:,.0f}" for *_, count in bins],
                "hovertemplate": "%{customdata} nodes: sure by %{x:.1%}, right %{y:.1%}"
                "<extra></extra>",
            }
        )
    ends = {"range": [-0.03, 1.03], "zeroline": False}
    look = layout(
        axis(across, **ends),
        axis(up, **ends),
        hovermode="closest",
    )
    return Drawing(data, look)
