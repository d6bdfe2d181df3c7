"""What the figures of the pages share: a drawing with its words, and the models' looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hoplite.lab.paper import MODELS

DASHES = {None: "solid", "class": "solid", "node": "dash", "feature": "dot"}
MARKERS = {"sgc": "square", "egc": "triangle-up", "lgc": "circle", "hlgc": "diamond"}


@dataclass(frozen=True)
class Figure:
    """A plot: Plotly's data and layout, what it shows in words, and its numbers as a table."""

    id: str
    heading: str
    summary: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    keys: list[tuple[str, str, str]] = field(default_factory=list)  # series, name, its colour
    height: str = ""  # a length of CSS; that of the style sheet if empty


def color(model: str, opacity: float | None = None) -> str:
    """The name of a model's colour; models that the paper does not have share one.

    >>> color("lgc", 0.2), color("other")
    ('@lgc/0.2', '@other')
    """
    name = f"@{model if model in MODELS else 'other'}"
    return name if opacity is None else f"{name}/{opacity:g}"
