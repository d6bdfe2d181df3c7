"""A page of the gallery: the figure is drawn, from the site's own files, and has a thumbnail."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
HOSTILE = "</script><script>document.title = 'x'</script>\"'&amp;"
EXAMPLE = f'''"""
A figure
========

With a name that would like to be mark-up.
"""

import plotly.graph_objects as go

print("before the figure")

# %%
# And now:
go.Figure(go.Bar(x=[1, 2], y=["a", {HOSTILE!r}], orientation="h"))
'''
CONF = f"""
import sys

sys.path.insert(0, {str(DOCS / "_ext")!r})
from gallery import gallery_conf

extensions = ["sphinx_gallery.gen_gallery", "figures"]
sphinx_gallery_conf = gallery_conf() | {{"examples_dirs": ["examples"], "ignore_pattern": "none"}}
html_static_path = [{str(DOCS / "_static")!r}]
exclude_patterns = ["examples"]
suppress_warnings = ["config.cache"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A small site of one example, built strictly."""
    pytest.importorskip("sphinx_gallery")
    folder = tmp_path_factory.mktemp("site")
    (folder / "examples").mkdir()
    (folder / "examples" / "figure.py").write_text(EXAMPLE, encoding="utf-8")
    shutil.copy(DOCS.parent / "examples" / "GALLERY_HEADER.rst", folder / "examples")
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    (folder / "index.rst").write_text("Home\n====\n\n.. toctree::\n\n   gallery/index\n")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", ".", "built"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_a_figure_is_kept_as_text_and_loads_nothing_from_elsewhere(site):
    page = (site / "built" / "gallery" / "figure.html").read_text(encoding="utf-8")
    assert "cdn." not in page
    assert "before the figure" in page
    (kept,) = [part.split('"', 1)[0] for part in page.split('data-figure="')[1:]]
    assert json.loads(html.unescape(kept))["data"][0]["y"] == ["a", HOSTILE]
    assert (site / "built" / "_static" / "plotly.min.js").stat().st_size > 1_000_000
    index = (site / "built" / "gallery" / "index.html").read_text(encoding="utf-8")
    assert "plotly.min.js" not in index  # where nothing is drawn


def test_it_is_drawn_in_a_browser(site, browser):
    thumbs = list((site / "gallery" / "images" / "thumb").glob("*figure*"))
    assert [file.suffix for file in thumbs] == [".png"]
    assert len(list((site / "gallery" / "images").glob("*figure_001.png"))) == 1
    wrong: list[str] = []
    asked: list[str] = []
    with browser.new_context(viewport={"width": 390, "height": 800}) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "built" / "gallery" / "figure.html").as_uri())
        page.wait_for_selector(".plotly-figure .bars path")
        assert page.locator(".plotly-figure .bars path").count() == 2
        assert page.title() != "x"
        assert page.locator(".plotly-figure").bounding_box()["width"] >= 540  # it scrolls
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0
    assert not wrong
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
