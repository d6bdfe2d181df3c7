"""Loss on the training, validation and test nodes over the epochs, on common axes."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report.figures.base import Figure, axis, color, finite, layout, series, thin
from hoplite.lab.report.paper import MODELS
from hoplite.lab.report.text import setting
from hoplite.words import dataset_name, model_name, number

SPLITS = {
    "train_loss": ("training", "solid", 2.0),
    "val_loss": ("validation", "dash", 2.0),
    "test_loss": ("test", "dot", 2.0),
}


def curve_figures(results: dict[str, Any]) -> list[Figure]:
    """One small figure per trained model, all with the same axes, grouped by dataset."""
    curves = [(entry, _values(entry)) for entry in results.get("curves") or []]
    rank = {model: i for i, model in enumerate(MODELS)}
    curves.sort(key=lambda pair: (pair[0]["dataset"], rank.get(pair[0]["model"], len(MODELS))))
    longest = max((len(v) for _, values in curves for v in values.values()), default=0)
    top = _top([v for _, values in curves for curve in values.values() for v in curve])
    return [_figure(i, entry, values, longest, top) for i, (entry, values) in enumerate(curves)]


def curves_note(figures: list[Figure]) -> str:
    """Whether a curve leaves the picture."""
    top = figures[0].layout["yaxis"]["range"][1] if figures else 0.0
    high = any(v is not None and v > top for f in figures for t in f.data[:3] for v in t["y"])
    return f"The axis ends at {number(top)}; a curve that goes higher leaves it." if high else ""


def _values(entry: dict[str, Any]) -> dict[str, list[float | None]]:
    return {name: finite(entry[name]) for name in SPLITS}


def _top(values: list[float | None]) -> float:
    """The end of the loss axis: the largest value, unless few values are far above the rest."""
    known = sorted(v for v in values if v is not None)
    if not known:
        return 1.0
    usual = known[int(0.98 * (len(known) - 1))]
    return 1.05 * (known[-1] if known[-1] <= 2 * usual else 1.25 * usual)


def _figure(
    index: int, entry: dict[str, Any], values: dict[str, list], longest: int, top: float
) -> Figure:
    tint = color(entry["model"])
    name = model_name(entry["model"], entry.get("gate"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": label,
            "x": list(range(1, len(values[key]) + 1)),
            "y": values[key],
            "line": {"color": tint, "dash": dash, "width": width},
            "hovertemplate": "%{y:.3f}",
            "meta": {"series": series(entry)},
        }
        for key, (label, dash, width) in SPLITS.items()
    ]
    options: dict[str, Any] = {}
    best = entry.get("best_epoch")
    if isinstance(best, int):
        options["shapes"] = [
            {
                "type": "line",
                "x0": best,
                "x1": best,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": "@muted", "width": 1, "dash": "dashdot"},
            }
        ]
        late = best > longest / 2
        options["annotations"] = [
            {
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
        ]
    return Figure(
        f"curve-{index}",
        f"{name} on {dataset_name(entry['dataset'])}",
        _summary(entry, values, best),
        data,
        layout(axis("epoch", range=[0, longest + 1]), axis("loss", range=[0, top]), **options),
        ["epoch", *[label for label, *_ in SPLITS.values()]],
        _rows(values, best),
    )


def _summary(entry: dict[str, Any], values: dict[str, list], best: Any) -> str:
    length = max(map(len, values.values()), default=0)
    parts = []
    for key, (label, *_) in SPLITS.items():
        known = [v for v in values[key] if v is not None]
        if known:
            parts.append(f"{label} {number(known[0])} to {number(known[-1])}")
    text = f"{length} epochs; loss from first to last: {', '.join(parts)}."
    if isinstance(best, int):
        text += f" Validation accuracy is best at epoch {best}."
    hops = (entry.get("config") or {}).get("hops")
    return text if hops is None else f"{setting('hops', hops)}. {text}"


def _rows(values: dict[str, list], best: Any) -> list[list[str]]:
    length = max(map(len, values.values()), default=0)
    also = (best - 1,) if isinstance(best, int) else ()
    return [
        [str(i + 1), *[number(v[i] if i < len(v) else None, 4) for v in values.values()]]
        for i in thin(length, also)
    ]
