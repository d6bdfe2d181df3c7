"""The coefficient of every hop, with its spread over the seeds (and over the nodes, for gates)."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report import paper
from hoplite.lab.report.figures.base import (
    DASHES,
    MARKERS,
    Figure,
    axis,
    band,
    color,
    finite,
    layout,
    safe,
    series,
    spread,
)
from hoplite.lab.report.text import one_seed
from hoplite.lab.report.view import order
from hoplite.words import dataset_name, model_name, number


def coefficient_figures(results: dict[str, Any]) -> list[Figure]:
    """One figure per dataset, a line per model over the index of the hop."""
    entries = results.get("coefficients") or []
    names = order(paper.DATASETS, [e["dataset"] for e in entries])
    groups = [(name, [e for e in entries if e["dataset"] == name]) for name in names]
    return [_figure(i, *group) for i, group in enumerate(g for g in groups if g[1])]


def _figure(index: int, dataset: str, entries: list[dict[str, Any]]) -> Figure:
    bands, lines = [], []
    longest = max(len(entry["mean"]) for entry in entries)
    for entry in entries:
        mean, std = finite(entry["mean"]), finite(entry["std"])
        hops = list(range(len(mean)))
        tint, key = color(entry["model"]), series(entry)
        bands.append(band(hops, *spread(mean, std), color(entry["model"], 0.22), key))
        line: dict[str, Any] = {
            "type": "scatter",
            "mode": "lines+markers",
            "name": safe(model_name(entry["model"], entry.get("gate"))),
            "x": hops,
            "y": mean,
            "line": {"color": tint, "width": 2, "dash": DASHES.get(entry.get("gate"), "dashdot")},
            "marker": {
                "symbol": MARKERS.get(entry["model"], "x"),
                "size": 6 if len(mean) < 30 else 4,
                "color": tint,
            },
            "hovertemplate": "%{y:.3f}",
            "meta": {"series": key},
        }
        nodes = finite(entry.get("node_std"))
        if nodes:
            line["error_y"] = {
                "type": "data",
                "array": nodes,
                "color": color(entry["model"], 0.55),
                "thickness": 1,
                "width": 2,
            }
        lines.append(line)
    return Figure(
        f"coefficients-{index}",
        dataset_name(dataset),
        " ".join(_sentence(entry) for entry in entries),
        [*bands, *lines],
        layout(
            axis("hop i", range=[-0.6, longest - 0.4], zeroline=False),
            axis("coefficient of hop i", zeroline=True),
        ),
        ["hop", *[model_name(e["model"], e.get("gate")) for e in entries]],
        _rows(entries),
        [(series(e), model_name(e["model"], e.get("gate")), e["model"]) for e in entries],
    )


def _sentence(entry: dict[str, Any]) -> str:
    known = [(i, v) for i, v in enumerate(finite(entry["mean"])) if v is not None]
    name = model_name(entry["model"], entry.get("gate"))
    if not known:
        return f"{name}: no coefficient."
    hop, value = max(known, key=lambda pair: abs(pair[1]))
    negative = sum(v < 0 for _, v in known)
    nodes = finite(entry.get("node_std"))
    largest = number(max(filter(None, finite(entry["std"])), default=0.0))
    seeds = f", standard deviation over the seeds up to {largest}"
    gated = (
        f", and a spread over the nodes of up to {number(max(filter(None, nodes), default=0.0))}"
    )
    return (
        f"{name} (k = {len(known) - 1}): largest at hop {hop} ({number(value)}), {negative} of "
        f"{len(known)} negative{'' if one_seed(entry) else seeds}{gated if nodes else ''}."
    )


def _rows(entries: list[dict[str, Any]]) -> list[list[str]]:
    columns = [_column(entry) for entry in entries]
    return [
        [str(i), *[column[i] if i < len(column) else "" for column in columns]]
        for i in range(max(map(len, columns), default=0))
    ]


def _column(entry: dict[str, Any]) -> list[str]:
    mean, std = finite(entry["mean"]), finite(entry["std"])
    if one_seed(entry):
        return [number(m) for m in mean]
    return [f"{number(m)} ± {number(s, 2)}" for m, s in zip(mean, std, strict=False)]
