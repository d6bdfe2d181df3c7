"""What the drawings share, a drawing as a figure of Plotly, and figures and tables as one page.

Colours are names such as "@lgc" or "@lgc/0.2" (with opacity). A page looks them up in its style
sheet, so that a figure follows the light or the dark theme; :func:`figure` uses ``COLOURS``. A page
is one HTML file: no network, no other file, light and dark. What is drawn comes as plain values, so
this room knows no model, no graph and no result.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoplite.errors import require_extra
from hoplite.formatting import printable

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LARGEST = 1e300  # what is larger may overflow in the next step
THIN_POINTS = 60  # maximum number of points of a curve or table
PALETTE = ("@hlgc", "@lgc", "@sgc", "@gat", "@gcn", "@other")  # default colours of series
DASHES = ("solid", "dash", "dot", "dashdot")  # line styles if there are more series than colours
# Between those of the page's light and dark theme: read as well on a white ground as on a black
# one, since a figure has no ground of its own and cannot know what is behind it.
COLOURS = {
    "ink": "#787878",
    "muted": "#787878",
    "axis": "#8c8c8c",
    "grid": "rgba(128,128,128,0.2)",
    "density": "#8a919b",
    "card": "rgba(128,128,128,0)",  # what is behind the figure
    "zero": "#b9b8b4",
    "sgc": "#12a67e",
    "gat": "#cc79a8",
    "gcn": "#d0951c",
    "egc": "#84888f",
    "lgc": "#e87422",
    "hlgc": "#2b93cd",
    "other": "#8d8d8d",
    "push": "#2b93cd",
    "pull": "#e87422",
    "least": "#e8f1f8",
    "most": "#0b62a0",
}
TITLE = 44  # characters in a line, as narrow pages have room for
LINE = 19  # pixels of a further one
_IS_COLOUR = re.compile(r"color(scale)?$")


@dataclass(frozen=True)
class Drawing:
    """Plotly's data and layout, with named colours."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


def safe(text: str) -> str:
    r"""Plotly reads some HTML in its texts; names are only ever text.

    >>> print(safe("<b>a</b>\u202e"))
    &lt;b&gt;a&lt;/b&gt;\u202e
    """
    return html.escape(printable(text), quote=False)


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis without decoration."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
        "gridcolor": "@grid",
        "zerolinecolor": "@axis",
        "linecolor": "@axis",
        "tickfont": {"size": 11},
        "automargin": True,
        "fixedrange": True,
        **options,
    }


def layout(x: dict[str, Any], y: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A layout without decoration: a page has the heading and the legend."""
    return {
        "xaxis": x,
        "yaxis": y,
        "showlegend": False,
        "margin": {"l": 48, "r": 16, "t": 12, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "size": 12},
        "hoverlabel": {
            "bgcolor": "@card",
            "bordercolor": "@axis",
            "font": {"color": "@ink", "size": 12},
        },
        "hovermode": "x unified",
        "dragmode": False,
        **options,
    }


def stroke_of(index: int) -> dict[str, Any]:
    """The line of series ``index``: a colour of its own, and past the last colour a dash, too.

    >>> stroke_of(1)["color"], stroke_of(7)["dash"]
    ('@lgc', 'dash')
    """
    colour, dash = PALETTE[index % len(PALETTE)], index // len(PALETTE) % len(DASHES)
    return {"color": colour, "width": 2.0, "dash": DASHES[dash]}


def finite(values: Sequence[Any] | None) -> list[float | None]:
    """Numbers that a plot can hold: anything infinite, undefined or huge becomes a gap."""
    numbers = () if values is None else values
    return [float(v) if isinstance(v, int | float) and abs(v) < LARGEST else None for v in numbers]


def thin(count: int, max_points: int = THIN_POINTS) -> list[int]:
    """At most about ``max_points`` evenly spaced indices, with the last.

    >>> thin(3), len(thin(500))
    ([0, 1, 2], 57)
    """
    step = max(1, math.ceil(count / max_points))
    return sorted({*range(0, count, step), max(count - 1, 0)}) if count else []


def peak(values: list[float | None]) -> float:
    """The largest absolute value, 0 if there is none."""
    return max((abs(v) for v in values if v is not None), default=0.0)


def figure(drawing: Drawing, title: str, *, height: int | None = None, **options: Any) -> Figure:
    """The drawing with a ``title``, which is escaped; it can be zoomed, as pages cannot.

    ``options`` are of the layout, such as ``showlegend=True``.
    """
    require_extra("plot", "a picture", "plotly")
    from plotly.graph_objects import Figure

    # the labels of the mouse keep Plotly's own ground, on which its own ink is readable
    look = {key: value for key, value in drawing.layout.items() if key != "hoverlabel"}
    for name, value in look.items():
        if re.fullmatch(r"[xy]axis\d*", name):
            look[name] = {**value, "fixedrange": False}
    lines = textwrap.wrap(title, TITLE) or [""]
    more = LINE * (len(lines) - 1)
    if (height := look.get("height", height)) is not None:
        look["height"] = height + more
    text = "<br>".join(safe(line) for line in lines)
    place = {"y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 18}}
    look |= {"dragmode": "zoom", "title": {"text": text, "font": {"size": 15}, **place}}
    look["margin"] = {**look["margin"], "t": 56 + more}
    look["template"] = "none"  # Plotly's default draws lines around bars, in its own colours
    return Figure(themed(drawing.data), themed({**look, **options}))


def themed(value: Any, colour: bool = False) -> Any:
    """The same with colours for their names, as the script of the pages does it.

    Only where a colour stands: a node may be called "@ink".

    >>> themed({"text": "@ink", "color": "@ink", "marker": {"color": ["@push/0.5"]}})
    {'text': '@ink', 'color': '#787878', 'marker': {'color': ['rgba(43,147,205,0.5)']}}
    """
    if isinstance(value, dict):
        return {k: themed(v, bool(_IS_COLOUR.search(k))) for k, v in value.items()}
    if isinstance(value, list | tuple) and colour:
        return [themed(part, colour) for part in value]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [themed(part) for part in value]
    return _resolved(value) if colour and isinstance(value, str) and value[:1] == "@" else value


def _resolved(name: str) -> str:
    token, _, opacity = name[1:].partition("/")
    colour = COLOURS[token]
    if not opacity:
        return colour
    return f"rgba({','.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))},{opacity})"


def render(source: str, **values: Any) -> str:
    """A page from the text of its template, which extends ``base.html``.

    Parameters
    ----------
    source : str
        The template, in Jinja's language.
    **values
        What the template shows; all of it is escaped. ``specs`` are Plotly's figures by the ``id``
        of the element that holds each, and ``plotly`` its script.
    """
    from jinja2 import Environment, PackageLoader  # only now: this takes a while

    environment = Environment(
        loader=PackageLoader("hoplite.plots"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    written = environment.from_string(source).render(**values)
    # a file's name may contain bytes that are not UTF-8; they are shown by their numbers
    return written.encode("utf-8", "backslashreplace").decode("utf-8")
