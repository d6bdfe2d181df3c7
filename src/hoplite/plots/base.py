"""What the drawings share. Colours are names such as "@lgc" or "@lgc/0.2" (with opacity): a page
looks them up in its style sheet, so that a figure follows the light or the dark theme."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hoplite.printable import printable

LARGEST = 1e300  # what is larger may overflow in the next step
MOST_ROWS = 60
PALETTE = ("@hlgc", "@lgc", "@sgc", "@gat", "@gcn", "@other")  # of series without a colour
DASHES = ("solid", "dash", "dot", "dashdot")  # where there are more series than colours


@dataclass(frozen=True)
class Drawing:
    """Plotly's data and layout, with named colours."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


def safe(text: str) -> str:
    r"""Plotly reads some HTML in its texts; names are only ever text.

    >>> print(safe("<b>a</b>\u202e"))
    &lt;b&gt;a&lt;/b&gt;\u202e
    """
    return html.escape(printable(text), quote=False)


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis without decoration."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "gridcolor": "@grid",
        "zerolinecolor": "@axis",
        "linecolor": "@axis",
        "tickfont": {"size": 11},
        "automargin": True,
        "fixedrange": True,
        **options,
    }


def layout(x: dict[str, Any], y: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A layout without decoration: a page has the heading and the legend."""
    return {
        "xaxis": x,
        "yaxis": y,
        "showlegend": False,
        "margin": {"l": 48, "r": 16, "t": 12, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 12},
        "hoverlabel": {
            "bgcolor": "@card",
            "bordercolor": "@axis",
            "font": {"color": "@ink", "size": 12},
        },
        "hovermode": "x unified",
        "dragmode": False,
        **options,
    }


def stroke_of(index: int, width: float = 2.0) -> dict[str, Any]:
    """The line of series ``index``: a colour of its own, and past the last colour a dash, too.

    >>> stroke_of(1)["color"], stroke_of(7)["dash"]
    ('@lgc', 'dash')
    """
    colour, dash = PALETTE[index % len(PALETTE)], index // len(PALETTE) % len(DASHES)
    return {"color": colour, "width": width, "dash": DASHES[dash]}


def line(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    stroke: dict[str, Any],
    key: str,
    mode: str = "lines",
    **more: Any,
) -> dict[str, Any]:
    """A curve of the series ``key``."""
    places = {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, "line": stroke}
    return {**places, **more, "hovertemplate": "%{y:.3f}", "meta": {"series": key}}


def band(x: list[Any], low: list[Any], high: list[Any], fill: str, key: str) -> dict[str, Any]:
    """The area between two curves, as one closed outline."""
    points = [(a, b, c) for a, b, c in zip(x, low, high, strict=True) if None not in (b, c)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [p[0] for p in points] + [p[0] for p in reversed(points)],
        "y": [p[2] for p in points] + [p[1] for p in reversed(points)],
        "fill": "toself",
        "fillcolor": fill,
        "line": {"width": 0, "color": "rgba(0,0,0,0)"},
        "hoverinfo": "skip",
        "meta": {"series": key, "role": "band"},
    }


def finite(values: Sequence[Any] | None) -> list[float | None]:
    """Numbers that a plot can hold: anything infinite, undefined or huge becomes a gap."""
    known = () if values is None else values
    return [float(v) if isinstance(v, int | float) and abs(v) < LARGEST else None for v in known]


def spread(mean: list[float | None], std: list[float | None]) -> tuple[list, list]:
    """mean - std and mean + std, with the gaps of both."""
    std = std + [None] * (len(mean) - len(std))
    pairs = list(zip(mean, std[: len(mean)], strict=True))
    return (
        [None if m is None or s is None else m - s for m, s in pairs],
        [None if m is None or s is None else m + s for m, s in pairs],
    )


def thin(count: int, also: tuple[int, ...] = (), most: int = MOST_ROWS) -> list[int]:
    """At most about ``most`` evenly spaced indices, with the last and those in ``also``.

    >>> thin(3), len(thin(500, also=(41,)))
    ([0, 1, 2], 58)
    """
    step = max(1, math.ceil(count / most))
    chosen = {*range(0, count, step), *also, count - 1}
    return sorted(i for i in chosen if 0 <= i < count)


def peak(values: list[float | None]) -> float:
    """The largest absolute value, 0 if there is none."""
    return max((abs(v) for v in values if v is not None), default=0.0)
