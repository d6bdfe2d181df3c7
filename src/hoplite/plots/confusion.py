"""Who is taken for whom: nodes of the class of a row that are predicted as that of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, layout, safe
from hoplite.shown import short

NAME = 18  # characters of a name beside the matrix
FLAT = 4  # classes up to which the names below it lie: of more, Plotly would leave some out
MOST_NUMBERS = 15  # classes up to which the cells have their counts in them


def confusion(counts: Sequence[Sequence[int]], names: Sequence[str]) -> Drawing:
    """A cell is as dark as its share of the nodes of its class, and tells how many they are."""
    sums = [sum(row) for row in counts]
    shares = [
        [count / total if total else 0.0 for count in row]
        for row, total in zip(counts, sums, strict=True)
    ]
    told = [safe(short(name, 60)) for name in names]
    places = list(range(len(names)))
    data: dict[str, Any] = {
        "type": "heatmap",
        "z": shares,
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
                f"{count:,} of {total:,} {row} taken for {column}"
                for count, column in zip(line, told, strict=True)
            ]
            for line, total, row in zip(counts, sums, told, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    if len(names) <= MOST_NUMBERS:
        data["text"] = [[f"{count:,}" for count in row] for row in counts]
        data["texttemplate"] = "%{text}"
    ticks = {
        "tickvals": places,
        "ticktext": [safe(short(name, NAME)) for name in names],
        "showgrid": False,
        "zeroline": False,
    }
    look = layout(
        axis("predicted class", **ticks, **({"tickangle": 90} if len(names) > FLAT else {})),
        axis("class", **ticks, autorange="reversed"),
        hovermode="closest",
    )
    return Drawing([data], look)
