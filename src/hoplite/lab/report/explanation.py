"""An explanation as one HTML page: no network, no other file, light and dark, for any screen."""

from __future__ import annotations

import os

from hoplite.explain import text
from hoplite.explain.neighbourhood import strongest
from hoplite.explain.summary import Summary
from hoplite.files import atomic_write_text
from hoplite.lab.report import figures
from hoplite.lab.report.page import render


def write_explanation(
    values: Summary, out: str | os.PathLike[str], *, command: str = "", mark: str = ""
) -> None:
    """Write :func:`explanation_page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, explanation_page(values, command=command, mark=mark))


def explanation_page(values: Summary, *, command: str = "", mark: str = "") -> str:
    """The whole page of what ``Explanation.summary`` returned; ``command`` makes it again.

    ``mark`` stands in its head, by which the command knows its own page.

    Everything from ``values`` is escaped: names are only ever text.
    """
    bars = {
        by: [figures.contribution_figure(values, by)] if text.parts(values, by) else []
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
        mark=mark,
        strongest=strongest(values),
        values=values,
        words=text,
    )
