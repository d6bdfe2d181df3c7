"""The figures of a run: accuracies, loss curves, coefficients of the hops, filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hoplite.lab import paper
from hoplite.lab.report.figures.base import DASHES, MARKERS, Figure, color
from hoplite.lab.report.view import Cell, accuracy_table, interval, order, score, setting
from hoplite.lab.results import (
    Coefficients,
    Curve,
    Difference,
    LossCurves,
    OnSplits,
    Response,
    Results,
    Spectrum,
)
from hoplite.plots.base import axis, finite, layout, peak, safe, thin
from hoplite.plots.filters import Series, coefficients, responses
from hoplite.plots.history import PARTS, curve, epochs
from hoplite.words import NOTHING, dataset_name, number, signed

OFFSET = 0.14  # ours above the line of the model, the paper below it
SPLITS = {f"{part}_loss": look for part, look in PARTS.items()}


def accuracy_figures(results: Results) -> list[Figure]:
    """Ours beside the paper's, one figure per dataset with a result chosen on the validation set.

    It shows where the two differ, and by how many deviations.
    """
    table = accuracy_table(results, "validation")
    columns = []
    for index, dataset in enumerate(table.datasets):
        cells = [(row.label, row.cells[index]) for row in table.rows if not row.part]
        found = [(label, cell) for label, cell in cells if cell is not None]
        if found:
            columns.append((dataset, found))
    return [_accuracy_figure(i, dataset, cells) for i, (dataset, cells) in enumerate(columns)]


def _accuracy_figure(index: int, dataset: str, cells: list[tuple[str, Cell]]) -> Figure:
    published = [(i + OFFSET, c.paper) for i, (_, c) in enumerate(cells) if c.paper]
    theirs = {"symbol": "circle-open", "size": 12, "color": "@muted", "line": {"width": 2}}
    tints = [color(cell.entry.model) for _, cell in cells]
    data = [
        _points(
            "paper",
            [value.mean for _, value in published],
            [place for place, _ in published],
            _bars([value.std for _, value in published], "@muted"),
            theirs,
        ),
        _points(
            "ours",
            [round(cell.ours.mean, 2) for _, cell in cells],
            [i - OFFSET for i in range(len(cells))],
            _bars([cell.ours.std for _, cell in cells], "@ink"),
            {"symbol": "diamond", "size": 10, "color": tints},
        ),
    ]
    below = [label for label, cell in cells if cell.verdict == "below"]
    compared = [cell for _, cell in cells if cell.difference is not None]
    summary = f"{len(compared) - len(below)} of {len(compared)} within 1.0 point or above."
    if not compared:
        summary = "The paper has no accuracy for this dataset."
    if below:
        summary += f" Lower by more: {', '.join(below)}."
    return Figure(
        f"accuracy-{index}",
        dataset_name(dataset),
        summary,
        data if published else data[1:],
        layout(
            axis("test accuracy, %"),
            axis(
                "",
                range=[len(cells) - 0.5, -0.5],
                tickvals=list(range(len(cells))),
                ticktext=[safe(label) for label, _ in cells],
                showgrid=False,
                zeroline=False,
            ),
            hovermode="closest",
        ),
        ["model", "ours, %", "paper, %", "difference"],
        [
            [
                label,
                score(cell.ours),
                score(cell.paper) if cell.paper else NOTHING,
                signed(cell.difference),
            ]
            for label, cell in cells
        ],
    )


def _points(
    name: str, x: Curve | list[float], y: list[Any], bars: dict[str, Any], marker: dict[str, Any]
) -> dict[str, Any]:
    places = {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "error_x": bars}
    return {**places, "marker": marker, "hovertemplate": f"{name} %{{x:.1f}} %<extra></extra>"}


def _bars(values: list[float | None], tint: str) -> dict[str, Any]:
    return {"type": "data", "array": values, "color": tint, "thickness": 1.5, "width": 4}


def comparison_figures(results: Results) -> list[Figure]:
    """Differences from LGC on random splits with their intervals, one figure per dataset."""
    found: dict[str, list[tuple[OnSplits, Difference]]] = {}
    for entry in results.comparison:
        if entry.difference is not None:
            found.setdefault(entry.dataset, []).append((entry, entry.difference))
    return [_comparison_figure(i, *group) for i, group in enumerate(found.items())]


def _comparison_figure(
    index: int, dataset: str, entries: list[tuple[OnSplits, Difference]]
) -> Figure:
    means = [100 * difference.mean for _, difference in entries]
    widths = {
        "all pairs at once": [100 * (d.high_all - d.mean) for _, d in entries],
        "95 %": [100 * (d.high - d.mean) for _, d in entries],
    }
    data = []
    for (name, halves), thickness in zip(widths.items(), (1, 4), strict=True):
        bars = _bars(finite(halves), "@ink") | {"thickness": thickness}
        marker = {"symbol": "diamond", "size": 10, "color": [color(e.model) for e, _ in entries]}
        drawn = _points(name, finite(means), list(range(len(entries))), bars, marker)
        data.append(drawn | {"hovertemplate": f"%{{x:.2f}} points, {name}<extra></extra>"})
    return Figure(
        f"comparison-{index}",
        dataset_name(dataset),
        " ".join(
            f"{e.label}: {signed(100 * d.mean, 2)} points, all pairs {interval(d, every=True)}."
            for e, d in entries
        ),
        data,
        layout(
            axis("test accuracy minus LGC's, points", zeroline=True),
            axis(
                "",
                range=[len(entries) - 0.5, -0.5],
                tickvals=list(range(len(entries))),
                ticktext=[safe(f"{entry.gate or 'no'} gate") for entry, _ in entries],
                showgrid=False,
                zeroline=False,
            ),
            hovermode="closest",
        ),
        ["model", "difference", "95 %", "all pairs", "splits"],
        [
            [
                entry.label,
                signed(100 * d.mean, 2),
                interval(d),
                interval(d, every=True),
                str(d.splits),
            ]
            for entry, d in entries
        ],
    )


def curve_figures(results: Results) -> list[Figure]:
    """Losses over the epochs, a small figure per trained model, all with the same axes."""
    rank = {model: i for i, model in enumerate(paper.MODELS)}
    entries = sorted(results.curves, key=lambda e: (e.dataset, rank.get(e.model, len(rank))))
    curves = [(entry, {name: finite(getattr(entry, name)) for name in SPLITS}) for entry in entries]
    longest = max((len(v) for _, values in curves for v in values.values()), default=0)
    top = _top([v for _, values in curves for curve in values.values() for v in curve])
    return [
        _curve_figure(i, entry, values, longest, top) for i, (entry, values) in enumerate(curves)
    ]


def curves_note(figures: Sequence[Figure]) -> str:
    """Whether a curve leaves the picture."""
    top = figures[0].layout["yaxis"]["range"][1] if figures else 0.0
    high = any(v is not None and v > top for f in figures for t in f.data[:3] for v in t["y"])
    return f"The axis ends at {number(top)}; a curve that goes higher leaves it." if high else ""


def _top(values: Curve) -> float:
    """The end of the loss axis: the largest value, unless few values are far above the rest."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return 1.0
    usual = known[int(0.98 * (len(known) - 1))]
    return 1.05 * (known[-1] if known[-1] <= 2 * usual else 1.25 * usual)


def _curve_figure(
    index: int, entry: LossCurves, values: dict[str, Curve], longest: int, top: float
) -> Figure:
    tint, best = color(entry.model), entry.best_epoch
    lines = [
        curve(label, values[key], {"color": tint, "dash": dash, "width": 2.0}, _series(entry))
        for key, (label, dash) in SPLITS.items()
    ]
    drawn = epochs(lines, "loss", longest=longest, top=top, best=best)
    return Figure(
        f"curve-{index}",
        entry.name,
        _curve_summary(entry, values),
        drawn.data,
        drawn.layout,
        ["epoch", *[label for label, _ in SPLITS.values()]],
        [
            [str(i + 1), *[number(v[i] if i < len(v) else None, 4) for v in values.values()]]
            for i in thin(max(map(len, values.values())), () if best is None else (best - 1,))
        ],
    )


def _curve_summary(entry: LossCurves, values: dict[str, Curve]) -> str:
    parts = []
    for key, (label, _) in SPLITS.items():
        known = [v for v in values[key] if v is not None]
        if known:
            parts.append(f"{label} {number(known[0])} to {number(known[-1])}")
    length = max(map(len, values.values()))
    text = f"{length} epochs; loss from first to last: {', '.join(parts)}."
    if entry.best_epoch is not None:
        text += f" Validation accuracy is best at epoch {entry.best_epoch}."
    hops = (entry.config or {}).get("hops")
    return text if hops is None else f"{setting('hops', hops)}. {text}"


def coefficient_figures(results: Results) -> list[Figure]:
    """The coefficient of every hop, one figure per dataset, a line per model.

    With its spread over the seeds, and over the nodes where there are gates.
    """
    entries = results.coefficients
    names = order(paper.DATASETS, [e.dataset for e in entries])
    groups = [(name, [e for e in entries if e.dataset == name]) for name in names]
    return [_coefficient_figure(i, *group) for i, group in enumerate(g for g in groups if g[1])]


def _coefficient_figure(index: int, dataset: str, entries: list[Coefficients]) -> Figure:
    series = []
    for entry in entries:
        tint, nodes = color(entry.model), finite(entry.node_std)
        error = {
            "type": "data",
            "array": nodes,
            "color": color(entry.model, 0.55),
            "thickness": 1,
            "width": 2,
        }
        series.append(
            Series(
                safe(entry.label),
                _series(entry),
                finite(entry.mean),
                {"color": tint, "width": 2, "dash": DASHES.get(entry.gate, "dashdot")},
                fill=color(entry.model, 0.22),
                std=finite(entry.std),
                marker={"symbol": MARKERS.get(entry.model, "x"), "color": tint},
                error=error if nodes else None,
            )
        )
    drawn = coefficients(series)
    columns = [_column(entry) for entry in entries]
    return Figure(
        f"coefficients-{index}",
        dataset_name(dataset),
        " ".join(_coefficient_sentence(entry) for entry in entries),
        drawn.data,
        drawn.layout,
        ["hop", *[entry.label for entry in entries]],
        [
            [str(i), *[column[i] if i < len(column) else "" for column in columns]]
            for i in range(max(map(len, columns)))
        ],
        [(_series(entry), entry.label, entry.model) for entry in entries],
    )


def _coefficient_sentence(entry: Coefficients) -> str:
    known = [(i, v) for i, v in enumerate(finite(entry.mean)) if v is not None]
    if not known:
        return f"{entry.label}: no coefficient."
    hop, value = max(known, key=lambda pair: abs(pair[1]))
    negative = sum(v < 0 for _, v in known)
    nodes = finite(entry.node_std)
    largest = number(max(filter(None, finite(entry.std)), default=0.0))
    seeds = f", standard deviation over the seeds up to {largest}"
    gated = (
        f", and a spread over the nodes of up to {number(max(filter(None, nodes), default=0.0))}"
    )
    return (
        f"{entry.label} (k = {len(known) - 1}): largest at hop {hop} ({number(value)}), {negative} "
        f"of {len(known)} negative{'' if entry.one_seed else seeds}{gated if nodes else ''}."
    )


def _column(entry: Coefficients) -> list[str]:
    mean, std = finite(entry.mean), finite(entry.std)
    if entry.one_seed:
        return [number(m) for m in mean]
    return [f"{number(m)} ± {number(s, 2)}" for m, s in zip(mean, std, strict=False)]


def spectrum_figures(results: Results) -> list[Figure]:
    """What each filter does to each frequency, over the density of the graph's eigenvalues.

    One figure per dataset and operator: each response divided by its own largest |value|.
    """
    return [_spectrum_figure(i, entry) for i, entry in enumerate(results.spectrum)]


def _spectrum_figure(index: int, entry: Spectrum) -> Figure:
    points, density = finite(entry.points), finite(entry.density)
    density = density if len(density) == len(points) else []
    scaled = [(r, *_scaled(r, len(points))) for r in entry.responses]
    drawn = responses(
        points,
        [
            Series(
                safe(response.label),
                _series(response),
                mean,
                {
                    "color": color(response.model),
                    "width": 2.2,
                    "dash": DASHES.get(response.gate, "dashdot"),
                },
                fill=color(response.model, 0.18),
                std=std,
            )
            for response, mean, std in scaled
        ],
        title="response / its largest",
        density=density,
        scaled=True,
    )
    return Figure(
        f"spectrum-{index}",
        dataset_name(entry.dataset) + (f" ({entry.operator})" if entry.operator else ""),
        " ".join(_spectrum_sentence(r, mean, points) for r, mean, _ in scaled),
        drawn.data,
        drawn.layout,
        ["eigenvalue", "density", *[response.label for response, *_ in scaled]],
        [
            [
                number(points[i]),
                number(density[i]) if density else "",
                *[number(mean[i]) for _, mean, _ in scaled],
            ]
            for i in thin(len(points))
        ],
        [(_series(r), r.label, r.model) for r, *_ in scaled],
    )


def _scaled(response: Response, count: int) -> tuple[Curve, Curve]:
    """Mean and deviation, divided by the largest |mean|; padded to the points with gaps."""
    mean, std = finite(response.mean), finite(response.std)
    scale = peak(mean) or 1.0

    def fitted(values: Curve) -> Curve:
        padded = (values + [None] * count)[:count]
        return finite([None if v is None else v / scale for v in padded])

    return fitted(mean), fitted(std)


def _spectrum_sentence(response: Response, mean: Curve, points: Curve) -> str:
    pairs = zip(points, mean, strict=True)
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if not known:
        return f"{response.label}: no response."
    zero = min(known, key=lambda pair: abs(pair[0] - (known[0][0] + known[-1][0]) / 2))
    return (
        f"{response.label}: {number(known[0][1], 2)} at the smallest eigenvalue "
        f"({number(known[0][0], 2)}), {number(zero[1], 2)} in the middle, "
        f"{number(known[-1][1], 2)} at the largest ({number(known[-1][0], 2)})."
    )


def _series(entry: LossCurves | Coefficients | Response) -> str:
    """What the legend switches on and off, such as "hlgc class"."""
    return f"{entry.model} {entry.gate or ''}".strip()
