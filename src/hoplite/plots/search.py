"""The settings of a search by what validation says of them, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, finite, layout, safe


def scores(
    means: Sequence[float], stds: Sequence[float], told: Sequence[str], title: str
) -> Drawing:
    """A point per setting in the order of the ranking; ``told`` is what each is, escaped here."""
    data: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "settings",
        "x": list(range(1, len(means) + 1)),
        "y": finite(means),
        "error_y": {"type": "data", "array": finite(stds), "color": "@hlgc/0.4", "width": 2},
        "marker": {"color": ["@lgc", *["@hlgc"] * (len(means) - 1)], "size": 7},
        "customdata": [safe(text) for text in told],
        "hovertemplate": "%{customdata}: %{y:.4f}<extra></extra>",
    }
    look = layout(axis("place in the ranking"), axis(title), hovermode="closest")
    return Drawing([data], look)
