"""What each learned filter does to each frequency, over the density of the graph's eigenvalues."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report.figures.base import (
    DASHES,
    Figure,
    axis,
    band,
    color,
    finite,
    layout,
    peak,
    safe,
    series,
    spread,
    thin,
)
from hoplite.lab.report.text import plain
from hoplite.words import dataset_name, model_name, number


def spectrum_figures(results: dict[str, Any]) -> list[Figure]:
    """One figure per dataset and operator: each response divided by its own largest |value|."""
    return [_figure(i, entry) for i, entry in enumerate(results.get("spectrum") or [])]


def _figure(index: int, entry: dict[str, Any]) -> Figure:
    points, density = finite(entry["points"]), finite(entry.get("density"))
    density = density if len(density) == len(points) else []
    scaled = [(r, *_scaled(r, len(points))) for r in entry["responses"]]
    data: list[dict[str, Any]] = []
    if density:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "density",
                "x": points,
                "y": density,
                "yaxis": "y2",
                "fill": "tozeroy",
                "fillcolor": "@density/0.35",
                "line": {"width": 1, "color": "@density"},
                "hovertemplate": "%{y:.2f}",
                "meta": {"series": "density"},
            }
        )
    for response, mean, std in scaled:
        fill = color(response["model"], 0.18)
        data.append(band(points, *spread(mean, std), fill, series(response)))
    data += [
        {
            "type": "scatter",
            "mode": "lines",
            "name": safe(model_name(response["model"], response.get("gate"))),
            "x": points,
            "y": mean,
            "line": {
                "color": color(response["model"]),
                "width": 2.2,
                "dash": DASHES.get(response.get("gate"), "dashdot"),
            },
            "hovertemplate": "%{y:.3f}",
            "meta": {"series": series(response)},
        }
        for response, mean, _ in scaled
    ]
    low = min([-0.08, *[1.12 * v for _, mean, _ in scaled for v in mean if v is not None]])
    operator = plain(entry.get("operator") or "")
    return Figure(
        f"spectrum-{index}",
        dataset_name(entry["dataset"]) + (f" ({operator})" if operator else ""),
        " ".join(_sentence(r, mean, points) for r, mean, _ in scaled),
        data,
        layout(
            axis("eigenvalue", zeroline=False),
            axis("response / its largest", range=[low, 1.12], zeroline=True),
            yaxis2=axis(
                "density of eigenvalues",
                overlaying="y",
                side="right",
                showgrid=False,
                zeroline=False,
                rangemode="tozero",
                range=[0, 1.08 * peak(density) or 1.0],
                tickmode="auto",
                nticks=4,
            )
            | {"tickfont": {"size": 10, "color": "@muted"}},
            margin={"l": 48, "r": 52, "t": 12, "b": 44},
        ),
        ["eigenvalue", "density", *[model_name(r["model"], r.get("gate")) for r, *_ in scaled]],
        [
            [
                number(points[i]),
                number(density[i]) if density else "",
                *[number(mean[i]) for _, mean, _ in scaled],
            ]
            for i in thin(len(points))
        ],
        [(series(r), model_name(r["model"], r.get("gate")), r["model"]) for r, *_ in scaled],
    )


def _scaled(response: dict[str, Any], count: int) -> tuple[list, list]:
    """Mean and deviation, divided by the largest |mean|; padded to the points with gaps."""
    mean, std = finite(response["mean"]), finite(response["std"])
    scale = peak(mean) or 1.0

    def fitted(values: list[float | None]) -> list[float | None]:
        padded = (values + [None] * count)[:count]
        return finite([None if v is None else v / scale for v in padded])

    return fitted(mean), fitted(std)


def _sentence(response: dict[str, Any], mean: list, points: list) -> str:
    name = model_name(response["model"], response.get("gate"))
    known = [(x, y) for x, y in zip(points, mean, strict=True) if None not in (x, y)]
    if not known:
        return f"{name}: no response."
    zero = min(known, key=lambda pair: abs(pair[0] - (known[0][0] + known[-1][0]) / 2))
    return (
        f"{name}: {number(known[0][1], 2)} at the smallest eigenvalue ({number(known[0][0], 2)}), "
        f"{number(zero[1], 2)} in the middle, {number(known[-1][1], 2)} at the largest "
        f"({number(known[-1][0], 2)})."
    )
