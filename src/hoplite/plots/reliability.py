"""Whether probabilities mean what they say: the share of right predictions beside each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, layout

Bin = Sequence[float]  # mean probability, share of right predictions, number of nodes


def reliability(bins: Sequence[Bin]) -> Drawing:
    """A point per bin of probabilities, as large as its share of the nodes; honest is the diagonal.

    A point below the line: the model is surer than it should be.
    """
    most = max((count for *_, count in bins), default=1.0)
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
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "model",
            "x": [sure for sure, *_ in bins],
            "y": [right for _, right, _ in bins],
            "line": {"color": "@hlgc", "width": 2},
            "marker": {"color": "@hlgc", "size": [6 + 14 * (n / most) ** 0.5 for *_, n in bins]},
            "customdata": [f"{count:,.0f}" for *_, count in bins],
            "hovertemplate": "%{customdata} nodes: sure by %{x:.1%}, right %{y:.1%}<extra></extra>",
        },
    ]
    ends = {"range": [-0.03, 1.03], "zeroline": False}
    look = layout(
        axis("probability of the predicted class", **ends),
        axis("share that is right", **ends),
        hovermode="closest",
    )
    return Drawing(data, look)
