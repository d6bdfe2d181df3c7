"""The figures of the paper's report: accuracies, mistakes, losses, coefficients and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper import DATASETS, MODELS, NAMES
from experiments.report import PageFigure
from experiments.results import Results, Spectrum, Trained
from hoplite.plots import axis, finite, layout, peak, safe, thin
from hoplite.plots.drawings import PARTS, Series, coefficients, curve, epochs, responses

OFFSET = 0.14  # ours above the line of the model, the paper below it
DASHES = {None: "solid", "class": "solid", "node": "dash", "feature": "dot"}
MARKERS = {"sgc": "square", "egc": "triangle-up", "lgc": "circle", "hlgc": "diamond"}


def color(model: str, opacity: float | None = None) -> str:
    """The name of a model's colour; models that the paper does not have share one.

    >>> color("lgc", 0.2), color("other")
    ('@lgc/0.2', '@other')
    """
    name = f"@{model if model in MODELS else 'other'}"
    return name if opacity is None else f"{name}/{opacity:g}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _key(entry: Trained) -> str:
    """What the legend switches on and off, such as "hlgc class"."""
    return f"{entry.model} {entry.gate or ''}".strip()


def _keys(entries: Sequence[Trained]) -> list[tuple[str, str, str]]:
    return [(_key(entry), entry.label, color(entry.model)[1:]) for entry in entries]


def _points(
    name: str, x: Sequence[Any], y: Sequence[Any], bars: Sequence[Any], **marker: Any
) -> Any:
    """Points with horizontal error bars."""
    error = {"type": "data", "array": list(bars), "color": "@muted", "thickness": 1.5, "width": 4}
    places = {"type": "scatter", "mode": "markers", "name": name, "x": list(x), "y": list(y)}
    template = f"{name} %{{x:.1f}}<extra></extra>"
    return {**places, "error_x": error, "marker": marker, "hovertemplate": template}


def _rows_axis(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a name for each of the rows 0, 1, ..., from the top."""
    return axis(
        "", range=[len(labels) - 0.5, -0.5], tickvals=list(range(len(labels))),
        ticktext=[safe(label) for label in labels], showgrid=False, zeroline=False,
    )  # fmt: skip


def accuracy_figures(cells: Mapping[tuple[str, str], Any]) -> list[PageFigure]:
    """Ours and the paper's, one figure per dataset; ``cells`` by model and dataset."""
    found = []
    for dataset in DATASETS:
        own = [cells[model, dataset] for model in MODELS if (model, dataset) in cells]
        known = [(i, cell) for i, cell in enumerate(own) if cell.paper is not None]
        if not own:
            continue
        ours = _points(
            "ours", [round(cell.ours.mean, 2) for cell in own],
            [i - OFFSET for i in range(len(own))], [cell.ours.std for cell in own],
            symbol="diamond", size=10, color=[color(cell.entry.model) for cell in own],
        )  # fmt: skip
        theirs = _points(
            "paper", [cell.paper.mean for _, cell in known], [i + OFFSET for i, _ in known],
            [cell.paper.std for _, cell in known], symbol="circle-open", size=12, color="@muted",
        )  # fmt: skip
        labels = [NAMES[cell.entry.model] for cell in own]
        rows = [[NAMES[cell.entry.model], str(cell.ours), str(cell.paper or "-")] for cell in own]
        found.append(
            PageFigure(
                f"accuracy-{dataset}",
                NAMES[dataset],
                "Diamonds are ours, circles the paper's; bars are one standard deviation.",
                [theirs, ours],
                layout(axis("test accuracy, %"), _rows_axis(labels), hovermode="closest"),
                ["model", "ours, %", "paper, %"],
                rows,
            )
        )
    return found


def curve_figures(results: Results) -> list[PageFigure]:
    """Losses over the epochs, a figure per trained model, all with the same axes."""
    found = []
    curves = [
        {part: finite(getattr(entry, f"{part}_loss")) for part in PARTS} for entry in results.curves
    ]
    longest = max((len(one["train"]) for one in curves), default=0)
    values = sorted(v for one in curves for part in one.values() for v in part if v is not None)
    top = 1.25 * values[int(0.98 * (len(values) - 1))] if values else 1.0
    for i, (entry, own) in enumerate(zip(results.curves, curves, strict=True)):
        stroke = {"color": color(entry.model), "width": 2.0}
        lines = [
            curve(label, own[part], stroke | {"dash": dash}, _key(entry))
            for part, (label, dash) in PARTS.items()
        ]
        drawn = epochs(lines, "loss", longest=longest, top=top, best=entry.best_epoch)
        rows = [
            [str(at + 1), *[number(part[at] if at < len(part) else None) for part in own.values()]]
            for at in thin(len(own["train"]))
        ]
        summary = f"k = {entry.config.get('hops')}, {len(own['train'])} epochs."
        columns = ["epoch", *[label for label, _ in PARTS.values()]]
        found.append(
            PageFigure(f"curve-{i}", entry.name, summary, drawn.data, drawn.layout, columns, rows)
        )
    return found


def coefficient_figures(results: Results) -> list[PageFigure]:
    """The coefficient of every hop, one figure per dataset, a line per model."""
    found = []
    for dataset in DATASETS:
        entries = [entry for entry in results.coefficients if entry.dataset == dataset]
        if not entries:
            continue
        series = []
        for one in entries:
            tint, bars = color(one.model), finite(one.node_std or one.std)
            error = {"type": "data", "array": bars, "color": color(one.model, 0.55), "width": 2}
            stroke = {"color": tint, "width": 2, "dash": DASHES.get(one.gate, "dashdot")}
            marker = {"symbol": MARKERS.get(one.model, "x"), "color": tint}
            series.append(
                Series(safe(one.label), _key(one), finite(one.mean), stroke, marker, error)
            )
        drawn = coefficients(series)
        means = [finite(entry.mean) for entry in entries]
        rows = [
            [str(i), *[number(mean[i]) if i < len(mean) else "" for mean in means]]
            for i in range(max(map(len, means)))
        ]
        summary = f"Coefficients of {len(entries)} models, hop by hop."
        columns = ["hop", *[entry.label for entry in entries]]
        found.append(
            PageFigure(
                f"coefficients-{dataset}", NAMES[dataset], summary, drawn.data, drawn.layout,
                columns, rows, _keys(entries),
            )
        )  # fmt: skip
    return found


def spectrum_figures(results: Results) -> list[PageFigure]:
    """What each filter does to each frequency, over the density of the graph's eigenvalues."""
    return [_spectrum_figure(entry) for entry in results.spectrum]


def _spectrum_figure(entry: Spectrum) -> PageFigure:
    points, density = finite(entry.points), finite(entry.density)
    series = []
    for one in entry.responses:
        mean = finite(one.mean)
        scale = peak(mean) or 1.0
        series.append(
            Series(
                safe(one.label), _key(one), [v and v / scale for v in mean],
                {"color": color(one.model), "width": 2.2, "dash": DASHES.get(one.gate, "dashdot")},
            )
        )  # fmt: skip
    drawn = responses(points, series, title="response / its largest", density=density, scaled=True)
    rows = [
        [number(points[i]), number(density[i]), *[number(one.values[i]) for one in series]]
        for i in thin(len(points))
    ]
    columns = ["eigenvalue", "density", *[one.label for one in entry.responses]]
    summary = f"{len(series)} filters over the eigenvalues of {entry.operator}."
    return PageFigure(
        f"spectrum-{entry.dataset}", NAMES.get(entry.dataset, entry.dataset), summary, drawn.data,
        drawn.layout, columns, rows, _keys(entry.responses),
    )  # fmt: skip
