"""A drawing as a figure of Plotly, which notebooks show by themselves, light and dark alike."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

from hoplite.errors import require_extra
from hoplite.plots.base import Drawing, safe

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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


def figure(drawing: Drawing, title: str, *, height: int | None = None, **options: Any) -> Figure:
    """The drawing with a ``title``, which is escaped; it can be zoomed, as pages cannot.

    ``options`` are of the layout, such as ``showlegend=True``.
    """
    require_extra("plot", "a picture", "plotly")
    from plotly.graph_objects import Figure

    # the labels of the mouse keep Plotly's own ground, on which its own ink is readable
    own = {key: value for key, value in drawing.layout.items() if key != "hoverlabel"}
    for name, value in own.items():
        if re.fullmatch(r"[xy]axis\d*", name):
            own[name] = {**value, "fixedrange": False}
    lines = textwrap.wrap(title, TITLE) or [""]
    more = LINE * (len(lines) - 1)
    if (height := own.get("height", height)) is not None:
        own["height"] = height + more
    told = "<br>".join(safe(line) for line in lines)
    place = {"y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 18}}
    own |= {"dragmode": "zoom", "title": {"text": told, "font": {"size": 15}, **place}}
    own["margin"] = {**own["margin"], "t": 56 + more}
    own["template"] = "none"  # Plotly's usual one draws lines around bars, in its own colours
    return Figure(themed(drawing.data), themed({**own, **options}))


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
