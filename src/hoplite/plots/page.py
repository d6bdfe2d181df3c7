"""Figures and tables as one HTML page: no network, no other file, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hoplite.errors import require_extra


@dataclass(frozen=True)
class PageFigure:
    """A plot of a page: Plotly's data and layout, a summary in words, and its numbers as a table.

    Parameters
    ----------
    id : str
        Of the element that holds it.
    heading, summary : str
    data, layout
        For Plotly; colours are names such as "@lgc/0.2" of the style sheet.
    columns, rows
        The numbers of the plot, as text.
    keys : list of (series, name, colour), default []
        What a legend switches on and off.
    height : str, default ""
        A length of CSS; that of the style sheet if empty.
    """

    id: str
    heading: str
    summary: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    keys: list[tuple[str, str, str]] = field(default_factory=list)
    height: str = ""


def check_libraries() -> None:
    """HopliteError, before any work, if what pages are made with is not installed."""
    require_extra("plot", "a page", "jinja2", "plotly")


def render(source: str, plots: Mapping[str, Sequence[PageFigure]], **values: Any) -> str:
    """A page from the text of its template, which extends ``base.html``.

    Parameters
    ----------
    source : str
        The template, in Jinja's language.
    plots : dict of str to list of PageFigure
        The figures of each section by its name.
    **values
        What else the template shows; all of it is escaped.
    """
    check_libraries()
    from jinja2 import Environment, PackageLoader  # only now: these take a while
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=PackageLoader("hoplite.plots"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    specs = [
        {"id": figure.id, "data": figure.data, "layout": figure.layout}
        for group in plots.values()
        for figure in group
    ]
    plotly = Markup(get_plotlyjs() if specs else "")  # 4.7 MB
    written = environment.from_string(source).render(
        plotly=plotly, plots=plots, specs=specs, **values
    )
    # a file's name may contain bytes that are not UTF-8; they are shown by their numbers
    return written.encode("utf-8", "backslashreplace").decode("utf-8")
