"""Curves over the epochs of a training; the settings of a search by their validation scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.plots.base import Drawing, axis, finite, layout, line, safe

PARTS = {"train": ("training", "solid"), "val": ("validation", "dash"), "test": ("test", "dot")}


def curve(
    name: str,
    values: Sequence[float | None],
    stroke: dict[str, Any],
    key: str,
    **more: Any,
) -> dict[str, Any]:
    """The values of the epochs 1, 2, ... as one line."""
    return line(name, list(range(1, len(values) + 1)), list(values), stroke, key, **more)


def epochs(
    data: list[dict[str, Any]],
    title: str,
    *,
    longest: int,
    top: float | None = None,
    best: int | None = None,
) -> Drawing:
    """Curves with the epoch ``best`` marked; the axes end at ``longest`` and at ``top``."""
    options = {} if best is None else best_epoch(best, late=best > longest / 2)
    y = axis(title) if top is None else axis(title, range=[0, top])
    return Drawing(data, layout(axis("epoch", range=[0, longest + 1]), y, **options))


def best_epoch(best: int, late: bool, colour: str = "@muted") -> dict[str, Any]:
    """Of a layout: a vertical line at the epoch whose weights are kept, and its words."""
    stroke = {"color": colour, "width": 1, "dash": "dashdot"}
    ends = {"type": "line", "x0": best, "x1": best, "y0": 0, "y1": 1, "yref": "paper"}
    words = {
        "x": best,
        "y": 1,
        "yref": "paper",
        "yanchor": "top",
        "xanchor": "right" if late else "left",
        "xshift": -4 if late else 4,
        "text": f"best epoch {best}",
        "showarrow": False,
        "font": {"size": 11, "color": "@muted"},
    }
    return {"shapes": [{**ends, "line": stroke}], "annotations": [words]}


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
