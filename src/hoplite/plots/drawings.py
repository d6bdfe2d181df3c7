"""The drawings: bars, curves, filters, predictions, and several of them in one figure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from hoplite.errors import require_extra
from hoplite.formatting import short, signed
from hoplite.plots import COLOURS, Drawing, axis, finite, layout, peak, safe, stroke_of, thin

NAME = 20  # characters of a name next to a bar, on an axis or in a legend
FAINT = 0.45  # the opacity of bars that stand for many, or for none
PARTS = {"train": ("training", "solid"), "val": ("validation", "dash"), "test": ("test", "dot")}
GAP = 0.13  # space between two panels, as a share of the width
RIGHT = 0.09  # more, where the left one has an axis at its right side
BETWEEN = 84  # pixels, of the height: figures and title of an axis, and the next heading
MARGINS = 56 + 44  # pixels: what a figure with a title has above and below
MAX_FLAT = 4  # classes whose names lie below the matrix: of more, Plotly would leave some out
MAX_COUNTS = 15  # classes up to which the cells have their counts in them
MAX_POINTS = 5000
MAX_DRAWN, MAX_NAMED = 300, 60  # nodes in a picture of a graph, and in one with their names
ROUNDS = 80  # iterations of the layout of nodes
SIZE = 640  # its pixels

Bin = Sequence[float]  # mean probability, share of right predictions, number of nodes


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
    return {**places, "hovertemplate": "%{y:.3f}", "meta": {"series": key}, **more}


class Bar(NamedTuple):
    """What a bar is called, its length, its colour, and its length as text."""

    name: str
    amount: float
    tint: str
    text: str


def bars_height(bars: Sequence[Bar]) -> int:
    """The height in pixels of the bars of :func:`lying`, without its axis."""
    return 26 * len(bars) + 14


def tint(amount: float, faint: bool = False) -> str:
    """The colour of an amount by its sign."""
    name = "@push" if amount >= 0 else "@pull"
    return f"{name}/{FAINT}" if faint else name


def lying(bars: Sequence[Bar], unit: str) -> Drawing:
    """Bars that lie, the first at the top, each with its name and its figure."""
    places, amounts = list(range(len(bars))), [bar.amount for bar in bars]
    least, most = min([0.0, *amounts]), max([0.0, *amounts])
    room = 0.3 * (most - least or 1.0)
    data = {
        "type": "bar",
        "marker": {"color": [bar.tint for bar in bars]},
        "customdata": [f"{safe(short(bar.name, 60))}: {bar.text}" for bar in bars],
        "hovertemplate": "%{customdata}<extra></extra>",
        "orientation": "h",
        "x": amounts,
        "y": places,
        "text": [bar.text for bar in bars],
        "textposition": "outside",
        "textangle": 0,
        "outsidetextfont": {"size": 11, "color": "@muted"},
        "cliponaxis": False,
    }
    ends = [least - room * (least < 0), most + room * (most > 0 or not least)]
    names = [safe(short(bar.name, NAME)) for bar in bars]
    ticks = {"range": [len(places) - 0.4, -0.6], "tickvals": places, "ticktext": names}
    look = layout(
        axis(unit, zeroline=True, range=ends, nticks=6),
        axis("", **ticks, showgrid=False, zeroline=False),
        hovermode="closest",
        bargap=0.3,
    )
    return Drawing([data], look)


@dataclass(frozen=True)
class Series:
    """One filter: a name that is escaped, its line, and its values with what they vary by."""

    name: str
    key: str
    values: list[float | None]
    stroke: dict[str, Any]
    marker: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None


def responses(
    points: Sequence[float | None],
    series: Sequence[Series],
    title: str,
    density: Sequence[float | None] = (),
    scaled: bool = False,
) -> Drawing:
    """p(lambda) of every filter over the spectrum, and the ``density`` of the eigenvalues there.

    ``scaled``: every response was divided by its largest absolute value, so the axis is known.
    """
    data: list[dict[str, Any]] = []
    if density:
        stroke, fill = {"width": 1, "color": "@density"}, {"fillcolor": "@density/0.35"}
        fill |= {"fill": "tozeroy", "yaxis": "y2"}
        data.append(line("density", points, list(density), stroke, "density", **fill))
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
    lines, longest = [], max((len(s.values) for s in series), default=1)
    for s in series:
        hops = list(range(len(s.values)))
        more: dict[str, Any] = {"marker": {"size": 6 if len(hops) < 30 else 4, **s.marker}}
        more |= {} if s.error is None else {"error_y": s.error}
        lines.append(line(s.name, hops, s.values, s.stroke, s.key, "lines+markers", **more))
    look = layout(
        axis("hop i", range=[-0.6, longest - 0.4], zeroline=False),
        axis("coefficient of hop i", zeroline=True),
    )
    return Drawing(lines, look)


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
    look = layout(
        axis("epoch", range=[0, longest + 1]),
        axis(title) if top is None else axis(title, range=[0, top]),
    )
    if best is not None:
        late = best > longest / 2
        ends = {"type": "line", "x0": best, "x1": best, "y0": 0, "y1": 1, "yref": "paper"}
        look["shapes"] = [{**ends, "line": {"color": "@muted", "width": 1, "dash": "dashdot"}}]
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
        look["annotations"] = [words]
    return Drawing(data, look)


def scores(
    means: Sequence[float], stds: Sequence[float], descriptions: Sequence[str], title: str
) -> Drawing:
    """A point per setting in the order of the ranking; ``descriptions`` are escaped here."""
    data: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "settings",
        "x": list(range(1, len(means) + 1)),
        "y": finite(means),
        "error_y": {"type": "data", "array": finite(stds), "color": "@hlgc/0.4", "width": 2},
        "marker": {"color": ["@lgc", *["@hlgc"] * (len(means) - 1)], "size": 7},
        "customdata": [safe(text) for text in descriptions],
        "hovertemplate": "%{customdata}: %{y:.4f}<extra></extra>",
    }
    look = layout(axis("place in the ranking"), axis(title), hovermode="closest")
    return Drawing([data], look)


def panels(
    drawings: Sequence[Drawing], headings: Sequence[str], heights: Sequence[int] = ()
) -> Drawing:
    """Several drawings below each other, of these ``heights`` in pixels; side by side without."""
    require_extra("plot", "a picture", "plotly")
    from plotly.subplots import make_subplots

    count, whole = len(drawings), sum(heights) + BETWEEN * (len(heights) - 1)
    if heights:
        gap = min(1.0, BETWEEN / whole)  # one drawing alone may be lower than it
        cells = {"rows": count, "row_heights": [*heights], "vertical_spacing": gap}
    else:
        gap = GAP + RIGHT * any("yaxis2" in drawing.layout for drawing in drawings[:-1])
        cells = {"cols": count, "horizontal_spacing": gap}
    look = make_subplots(subplot_titles=headings, **cells).to_plotly_json()["layout"]
    words = [{**text, "font": {"size": 13, "color": "@ink"}} for text in look["annotations"]]
    data, shapes = [], []
    for i, drawing in enumerate(drawings, 1):
        number, right, own = "" if i == 1 else str(i), str(count + i), drawing.layout
        for trace in drawing.data:  # some belong to an axis of their own at the right side
            y = f"y{right}" if trace.get("yaxis") == "y2" else f"y{number}"
            data.append({**trace, "xaxis": f"x{number}", "yaxis": y})
        if "yaxis2" in own:
            sides = {"overlaying": f"y{number}", "anchor": f"x{number}"}
            look[f"yaxis{right}"] = {**own["yaxis2"], **sides}
        for name in ("xaxis", "yaxis"):
            look[f"{name}{number}"] |= own[name]
        place = {"xref": f"x{number}", "yref": f"y{number} domain"}
        shapes += [{**shape, **place} for shape in own.get("shapes", ())]
        words += [{**text, **place} for text in own.get("annotations", ())]
    look = {**drawings[0].layout, **look, "annotations": words, "shapes": shapes}
    return Drawing(data, look | ({"height": whole + MARGINS} if heights else {}))


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


def reliability(series: Mapping[str, Sequence[Bin]], across: str, up: str) -> Drawing:
    """A curve for each name; the axes are called ``across`` and ``up``.

    A point per bin of probabilities is as large as its share of the nodes. Below the diagonal the
    model is surer than it should be.
    """
    most = max((count for bins in series.values() for *_, count in bins), default=1.0)
    data = [_diagonal("calibrated", [0, 1])]
    for i, (name, bins) in enumerate(series.items()):
        stroke, sizes = stroke_of(i), [6 + 14 * (n / most) ** 0.5 for *_, n in bins]
        whose = f"{safe(short(name, 60))}, " if len(series) > 1 else ""
        sure, right = [bin[0] for bin in bins], [bin[1] for bin in bins]
        more = {
            "marker": {"color": stroke["color"], "size": sizes},
            "customdata": [f"{whose}{count:,.0f}" for *_, count in bins],
            "hovertemplate": "%{customdata} nodes: probability %{x:.1%}, right %{y:.1%}"
            "<extra></extra>",
        }
        short_name = safe(short(name, NAME))
        data.append(line(short_name, sure, right, stroke, name, "lines+markers", **more))
    ends = {"range": [-0.03, 1.03], "zeroline": False}
    return Drawing(data, layout(axis(across, **ends), axis(up, **ends), hovermode="closest"))


def predicted(true: Sequence[float], values: Sequence[float]) -> Drawing:
    """A point per node, the predicted over the true value; right is the diagonal."""
    indices = thin(len(true), max_points=MAX_POINTS)
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "nodes",
        "x": [true[i] for i in indices],
        "y": [values[i] for i in indices],
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


def node_link_svg(
    adjacency: Any, names: Sequence[Any], amounts: np.ndarray | None, label: str
) -> str:
    """A graph with the amount of each node as its area: blue above 0, orange below.

    Parameters
    ----------
    adjacency : (n, n) sparse array
    names : sequence
        Names of the n nodes; they are escaped.
    amounts : (n,) ndarray or None
        Only the nodes with the largest amounts are drawn. All nodes are grey if there are none.
    label : str
        What the picture shows.

    Returns
    -------
    str
        An SVG element.
    """
    sizes = np.zeros(len(names)) if amounts is None else np.abs(amounts)
    kept = np.sort(np.argsort(-sizes, kind="stable")[:MAX_DRAWN])
    matrix = adjacency[kept][:, kept].toarray()
    places = 24 + (SIZE - 72) * _node_places(matrix)
    parts = [
        f'<line x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}" '
        f'stroke="{COLOURS["axis"]}" stroke-opacity="0.6"/>'
        for a, b, c, d in places[np.argwhere(np.triu(matrix))].reshape(-1, 4)
    ]
    shares = sizes / (sizes.max(initial=0) or 1.0)
    for (x, y), node in zip(places, kept.tolist(), strict=True):
        share, name, colour = float(shares[node]), html.escape(str(names[node])), COLOURS["axis"]
        title = name
        if amounts is not None:
            title = f"{name}: {signed(float(amounts[node]), 4)}"
            colour = COLOURS["push" if amounts[node] >= 0 else "pull"]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 + 12 * share**0.5:.1f}" '
            f'fill="{colour}" fill-opacity="{0.25 + 0.75 * share:.2f}" '
            f'stroke="{colour}"><title>{title}</title></circle>'
        )
        if len(kept) <= MAX_NAMED:
            parts.append(
                f'<text x="{x + 18:.1f}" y="{y + 4:.1f}" font-size="13" '
                f'font-family="sans-serif" fill="{COLOURS["ink"]}">{name}</text>'
            )
    height = places[:, 1].max(initial=0) + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {height:.0f}" width="{SIZE}" '
        f'role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'
    )


def _node_places(matrix: np.ndarray) -> np.ndarray:
    """Positions of the nodes in the unit square, by forces between them: (n, 2).

    All nodes repel each other and edges attract (Fruchterman and Reingold, 1991), from a circle.
    """
    n = len(matrix)
    turn = 2 * np.pi * np.arange(n) / max(n, 1)
    positions = np.column_stack([np.cos(turn), np.sin(turn) * 0.999])
    joined = matrix > 0
    ideal = 1.5 / np.sqrt(max(n, 1))
    for step in range(ROUNDS):
        gap = positions[:, None] - positions[None]
        distance = np.maximum(np.sqrt((gap**2).sum(axis=2)), 1e-3)
        force = (ideal / distance) ** 2 - np.where(joined, distance / ideal, 0.0)
        move = (gap * force[:, :, None]).sum(axis=1) - 0.05 * positions / ideal
        length = np.maximum(np.sqrt((move**2).sum(axis=1)), 1e-9)[:, None]
        positions = positions + move / length * np.minimum(length, 0.2 * (1 - step / ROUNDS))
    low, high = positions.min(axis=0, initial=np.inf), positions.max(axis=0, initial=-np.inf)
    return (positions - low) / max(float((high - low).max()), 1e-9)
