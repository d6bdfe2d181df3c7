"""Predictions next to the truth: a confusion matrix, reliability curves, predicted numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hoplite.formatting import short
from hoplite.plots.base import Drawing, axis, layout, safe, stroke_of, thin

NAME = 18  # characters of a name on an axis or in the legend
MAX_FLAT = 4  # classes whose names lie below the matrix: of more, Plotly would leave some out
MAX_COUNTS = 15  # classes up to which the cells have their counts in them
MAX_POINTS = 5000

Bin = Sequence[float]  # mean probability, share of right predictions, number of nodes


def confusion(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Drawing:
    """Rows are classes, columns predictions; a cell is as dark as its share of its row."""
    sums = [sum(row) for row in counts]
    longer, places = [safe(short(name, 60)) for name in names], list(range(len(names)))
    data: dict[str, Any] = {
        "type": "heatmap",
        "z": [[n / (total or 1) for n in row] for row, total in zip(counts, sums, strict=True)],
        "x": places,
        "y": places,
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorscale": [[0, "@least"], [1, "@most"]],
        "showscale": False,
        "customdata": [
            [
                f"{count:,} of {total:,} {true} predicted as {predicted}"
                for count, predicted in zip(row, longer, strict=True)
            ]
            for row, total, true in zip(counts, sums, longer, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    if len(names) <= MAX_COUNTS:
        data["text"] = [[f"{count:,}" for count in row] for row in counts]
        data["texttemplate"] = "%{text}"
    ticks = {
        "tickvals": places,
        "ticktext": [safe(short(name, NAME)) for name in names],
        "showgrid": False,
        "zeroline": False,
    }
    turned = {"tickangle": 90} if len(names) > MAX_FLAT else {}
    x = axis("predicted class", **ticks, **turned)
    look = layout(x, axis("class", **ticks, autorange="reversed"), hovermode="closest")
    return Drawing([data], look)


def reliability(bins: Sequence[Bin]) -> Drawing:
    """A point per bin of probabilities, as large as its share of the nodes.

    Below the diagonal the model is surer than it should be.
    """
    return reliabilities(
        {"model": bins}, "probability of the predicted class", "share that is right"
    )


def reliabilities(series: Mapping[str, Sequence[Bin]], across: str, up: str) -> Drawing:
    """As :func:`reliability`, a curve for each name; the axes are called ``across`` and ``up``."""
    most = max((count for bins in series.values() for *_, count in bins), default=1.0)
    data = [_diagonal("calibrated", [0, 1])]
    for i, (name, bins) in enumerate(series.items()):
        stroke, sizes = stroke_of(i), [6 + 14 * (n / most) ** 0.5 for *_, n in bins]
        whose = f"{safe(short(name, 60))}, " if len(series) > 1 else ""
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": safe(short(name, NAME)),
                "x": [sure for sure, *_ in bins],
                "y": [right for _, right, _ in bins],
                "line": stroke,
                "marker": {"color": stroke["color"], "size": sizes},
                "customdata": [f"{whose}{count:,.0f}" for *_, count in bins],
                "hovertemplate": "%{customdata} nodes: probability %{x:.1%}, right %{y:.1%}"
                "<extra></extra>",
            }
        )
    ends = {"range": [-0.03, 1.03], "zeroline": False}
    return Drawing(data, layout(axis(across, **ends), axis(up, **ends), hovermode="closest"))


def predicted(true: Sequence[float], values: Sequence[float]) -> Drawing:
    """A point per node, the predicted over the true value; right is the diagonal."""
    shown = thin(len(true), most=MAX_POINTS)
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "nodes",
        "x": [true[i] for i in shown],
        "y": [values[i] for i in shown],
        "marker": {"color": "@hlgc/0.6", "size": 7},
        "hovertemplate": "predicted %{y:.4g}, true %{x:.4g}<extra></extra>",
    }
    x, y = axis("true value", zeroline=False), axis("predicted", zeroline=False)
    ends = [min(*true, *values), max(*true, *values)]
    return Drawing([_diagonal("right", ends), points], layout(x, y, hovermode="closest"))


def _diagonal(name: str, ends: list[float]) -> dict[str, Any]:
    return {
        **{"type": "scatter", "mode": "lines", "name": name, "x": ends, "y": ends},
        "line": {"color": "@muted", "width": 1, "dash": "dash"},
        "hoverinfo": "skip",
    }
