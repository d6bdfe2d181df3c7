"""Plotly's figures in the gallery: interactive, without a network, on light and dark pages alike.

A figure is kept as JSON in its page; docs/_static/figures.js draws it with the plotly.min.js that
the site serves itself. Without scripts there is the code, and what it printed. The thumbnail of an
example is its first figure, drawn by a browser if there is one.
"""

from __future__ import annotations

import html
import logging
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
from browsers import find_browser
from plotly.io.base_renderers import MimetypeRenderer
from plotly.offline import get_plotlyjs
from sphinx.application import Sphinx

NAME = "gallery"
MARK = "plotly-figure"  # the class of the place of a figure
SCRIPT = "plotly.min.js"
SIZE = (480, 336)  # of a thumbnail, before it is made small: as broad as sphinx-gallery's
INK, GRID = "#787878", "rgba(128,128,128,0.2)"  # read on white and on black


class GalleryRenderer(MimetypeRenderer):
    """A figure as the JSON that figures.js draws."""

    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, str]:
        return {"text/html": figure_html(go.Figure(fig_dict, skip_invalid=True))}


def figure_html(figure: go.Figure) -> str:
    """The place of a figure, as high as it will be, so that the page does not jump.

    The JSON stands in an attribute, where nothing of it can end the element.
    """
    content = html.escape(figure.to_json() or "{}")
    height = figure.layout.height or 450
    place = f'<div class="{MARK}" style="height:{height}px" data-figure="{content}"></div>'
    return f'<div class="{MARK}-scroll">{place}</div>'


def template() -> go.layout.Template:
    """What figures look like that say nothing about it: no ground of their own."""
    axis = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": INK, "automargin": True}
    colours = ["#2b93cd", "#e87422", "#12a67e", "#cc79a8", "#d0951c", "#8d8d8d"]
    return go.layout.Template(
        layout={
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": INK},
            "colorway": colours,
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 48, "r": 16, "t": 32, "b": 48},
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        }
    )


def thumbnail(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """A scraper of sphinx-gallery: the first figure of an example as a picture, and no text."""
    shown, paths = variables["example_globals"].get("___"), variables["image_path_iterator"]
    browser = find_browser()
    if isinstance(shown, go.Figure) and len(paths) == 0 and browser is not None:
        draw(shown, Path(next(paths)), browser)
    return ""


def draw(figure: go.Figure, path: Path, browser: str) -> None:
    """Write the figure as a PNG without a ground."""
    width, height = SIZE
    small = go.Figure(figure).update_layout(
        width=width, height=height, autosize=False, showlegend=False, title=None
    )
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        drawn = small.to_html(include_plotlyjs=True, config={"staticPlot": True})
        page.write_text(f"<style>body {{ margin: 0 }}</style>{drawn}", encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--window-size={width},{height}", "--default-background-color=00000000"]
        command += ["--virtual-time-budget=5000", f"--user-data-dir={folder}/profile"]
        command += [f"--screenshot={path}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)


def begin(app: Sphinx) -> None:
    """Figures that examples make are shown by the renderer above, and look alike."""
    pio.renderers[NAME], pio.templates[NAME] = GalleryRenderer(), template()
    pio.renderers.default = pio.templates.default = NAME
    # a part of the theme makes the root logger write everything that anybody tells it
    logging.getLogger("hoplite").setLevel(logging.WARNING)


def add_scripts(
    app: Sphinx, page: str, template_name: str, context: dict[str, Any], doctree: Any
) -> None:
    """The scripts, on the pages that have a figure: Plotly's has some megabytes."""
    if f'class="{MARK}"' in context.get("body", ""):
        written = Path(app.outdir) / "_static" / SCRIPT
        if not written.is_file():
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(get_plotlyjs(), encoding="utf-8")
        app.add_js_file(SCRIPT, loading_method="defer")
        app.add_js_file("figures.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_css_file("gallery.css", priority=900)  # behind sphinx-gallery's
    app.connect("builder-inited", begin, priority=100)  # before the gallery is executed
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
