"""The results as one HTML page: no network, no other file, light and dark, for any screen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from hoplite import words
from hoplite.errors import require_extra
from hoplite.files import atomic_write_text
from hoplite.lab import paper
from hoplite.lab.report import figures, findings, view
from hoplite.lab.results import Results

TEMPLATES = files("hoplite.lab.report").joinpath("templates")


def check_libraries() -> None:
    """HopliteError, before any work, if what pages are made with is not installed."""
    require_extra("lab", "a page", "jinja2", "plotly")


def write_report(results: Results, out: str | os.PathLike[str], *, mark: str = "") -> None:
    """Write :func:`page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, page(results, mark=mark))


def page(results: Results, *, mark: str = "") -> str:
    """The whole page, with a ``mark`` of the command in its head.

    Everything from ``results`` is escaped: names are only ever text.
    """
    plots = {
        "accuracy": figures.accuracy_figures(results),
        "mistakes": figures.mistake_figures(results),
        "comparison": figures.comparison_figures(results),
        "curves": figures.curve_figures(results),
        "coefficients": figures.coefficient_figures(results),
        "spectrum": figures.spectrum_figures(results),
    }
    return render(
        "page.html",
        plots,
        colored=paper.MODELS,
        curves_note=figures.curves_note(plots["curves"]),
        mark=mark,
        legends={name: _legend(group) for name, group in plots.items()},
        paper=paper.figures(),
        results=results,
        says=findings,
        splits=view.splits_table(results),
        tables={name: view.accuracy_table(results, name) for name in paper.PROTOCOLS},
        timing=view.timing_table(results),
        versions=results.provenance.machine.versions,
    )


def render(template: str, plots: Mapping[str, Sequence[figures.Figure]], **values: Any) -> str:
    """A page from its template, with the style, the script and the figures that all pages share.

    ``plots`` are the figures of each section by its name; ``values`` is what else the template
    shows. All of it is escaped.
    """
    check_libraries()
    from jinja2 import Environment, PackageLoader  # only now: these take a while
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("hoplite.lab.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    specs = [
        {"id": figure.id, "data": figure.data, "layout": figure.layout}
        for group in plots.values()
        for figure in group
    ]
    written = environment.get_template(template).render(
        css=Markup(_source("page.css")),
        js=Markup(_source("page.js")),
        names=words,
        plotly=Markup(get_plotlyjs() if specs else ""),  # 4.7 MB
        plots=plots,
        specs=Markup(script_json(specs)),
        text=view,
        **values,
    )
    # a file's name may hold bytes that are no UTF-8; they are shown by their numbers
    return written.encode("utf-8", "backslashreplace").decode("utf-8")


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever text it holds.

    >>> script_json(["</script>"])
    '["\\\\u003c/script\\\\u003e"]'
    """
    written = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written


def _source(name: str) -> str:
    return TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def _legend(group: Sequence[figures.Figure]) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys(key for figure in group for key in figure.keys))
