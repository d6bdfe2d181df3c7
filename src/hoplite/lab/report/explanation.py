"""An explanation as one HTML page: no network, no other file, light and dark, for any screen."""

from __future__ import annotations

import os
from typing import Any

from hoplite.explain import tables, text
from hoplite.files import atomic_write_text
from hoplite.lab.report import figures
from hoplite.lab.report.page import render


def write_explanation(
    values: dict[str, Any], out: str | os.PathLike[str], *, command: str = ""
) -> None:
    """Write :func:`explanation_page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, explanation_page(values, command=command))


def explanation_page(values: dict[str, Any], *, command: str = "") -> str:
    """The whole page of what ``Explanation.to_dict`` returned; ``command`` makes it again.

    Everything from ``values`` is escaped: names are only ever text.
    """
    bars = {
        by: [figures.contribution_figure(values, by)] if tables.parts(values, by) else []
        for by in ("nodes", "hops", "features")
    }
    plots = {
        "neighbourhood": [figures.neighbourhood_figure(values), *bars["nodes"]],
        "parts": [*bars["hops"], *bars["features"]],
        "classes": [figures.class_figure(values)],
    }
    return render(
        "explanation.html",
        plots,
        command=command,
        numbers=tables,
        strongest=figures.strongest(values),
        values=values,
        words=text,
    )
