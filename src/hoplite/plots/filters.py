"""What a filter does: its factor at every frequency, and the coefficient of every hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hoplite.plots.base import Drawing, axis, band, layout, line, peak, spread


@dataclass(frozen=True)
class Series:
    """One filter: a name that is escaped, its line, and its values with what they vary by."""

    name: str
    key: str
    values: list[float | None]
    stroke: dict[str, Any]
    fill: str = ""  # the colour of the band of ``std``
    std: list[float | None] = field(default_factory=list)
    marker: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None


def responses(
    points: list[float | None],
    series: Sequence[Series],
    *,
    title: str,
    density: Sequence[float | None] = (),
    scaled: bool = False,
) -> Drawing:
    """p(lambda) of every filter over the spectrum, and the ``density`` of the eigenvalues there.

    ``scaled``: every response was divided by its largest absolute value, so the axis is known.
    """
    data: list[dict[str, Any]] = []
    if density:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "density",
                "x": points,
                "y": list(density),
                "yaxis": "y2",
                "fill": "tozeroy",
                "fillcolor": "@density/0.35",
                "line": {"width": 1, "color": "@density"},
                "hovertemplate": "%{y:.2f}",
                "meta": {"series": "density"},
            }
        )
    data += [band(points, *spread(s.values, s.std), s.fill, s.key) for s in series if s.fill]
    data += [line(s.name, points, s.values, s.stroke, s.key) for s in series]
    low = min([-0.08, *[1.12 * v for s in series for v in s.values if v is not None]])
    look = layout(
        axis("eigenvalue", zeroline=False),
        axis(title, zeroline=True, **({"range": [low, 1.12]} if scaled else {})),
        margin={"l": 48, "r": 52, "t": 12, "b": 44},
    )
    if density or scaled:
        look["yaxis2"] = axis(
            "density of eigenvalues",
            overlaying="y",
            side="right",
            showgrid=False,
            zeroline=False,
            rangemode="tozero",
            range=[0, 1.08 * peak(list(density)) or 1.0],
            tickmode="auto",
            nticks=4,
        ) | {"tickfont": {"size": 10, "color": "@muted"}}
    return Drawing(data, look)


def coefficients(series: Sequence[Series]) -> Drawing:
    """c_0 .. c_k of every filter."""
    bands, lines = [], []
    for one in series:
        hops = list(range(len(one.values)))
        if one.fill:
            bands.append(band(hops, *spread(one.values, one.std), one.fill, one.key))
        drawn = line(
            one.name,
            hops,
            one.values,
            one.stroke,
            one.key,
            mode="lines+markers",
            marker={"size": 6 if len(hops) < 30 else 4, **one.marker},
        )
        if one.error is not None:
            drawn["error_y"] = one.error
        lines.append(drawn)
    longest = max((len(one.values) for one in series), default=1)
    look = layout(
        axis("hop i", range=[-0.6, longest - 0.4], zeroline=False),
        axis("coefficient of hop i", zeroline=True),
    )
    return Drawing([*bands, *lines], look)
