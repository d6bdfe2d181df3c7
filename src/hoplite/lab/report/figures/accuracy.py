"""Ours beside the paper's, a plot per dataset: where the two differ, and by how many deviations."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report.figures.base import Figure, axis, color, layout, safe
from hoplite.lab.report.text import score
from hoplite.lab.report.view import Cell, accuracy_table
from hoplite.words import NOTHING, dataset_name, signed

OFFSET = 0.14  # ours above the line of the model, the paper below it


def accuracy_figures(results: dict[str, Any]) -> list[Figure]:
    """One figure per dataset that has a result chosen on the validation set."""
    table = accuracy_table(results, "validation")
    columns = []
    for index, dataset in enumerate(table.datasets):
        cells = [(row.label, row.cells[index]) for row in table.rows if not row.part]
        found = [(label, cell) for label, cell in cells if cell is not None]
        if found:
            columns.append((dataset, found))
    return [_figure(i, dataset, cells) for i, (dataset, cells) in enumerate(columns)]


def _figure(index: int, dataset: str, cells: list[tuple[str, Cell]]) -> Figure:
    labels = [safe(label) for label, _ in cells]
    published = [(i + OFFSET, c.paper) for i, (_, c) in enumerate(cells) if c.paper]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "paper",
            "x": [value.mean for _, value in published],
            "y": [place for place, _ in published],
            "error_x": _bars([value.std for _, value in published], "@muted"),
            "marker": {
                "symbol": "circle-open",
                "size": 12,
                "color": "@muted",
                "line": {"width": 2},
            },
            "hovertemplate": "paper %{x:.1f} %<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "ours",
            "x": [round(cell.ours.mean, 2) for _, cell in cells],
            "y": [i - OFFSET for i in range(len(cells))],
            "error_x": _bars([cell.ours.std for _, cell in cells], "@ink"),
            "marker": {
                "symbol": "diamond",
                "size": 10,
                "color": [color(cell.entry["model"]) for _, cell in cells],
            },
            "hovertemplate": "ours %{x:.1f} %<extra></extra>",
        },
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
                ticktext=labels,
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


def _bars(values: list[float | None], tint: str) -> dict[str, Any]:
    return {"type": "data", "array": values, "color": tint, "thickness": 1.5, "width": 4}
