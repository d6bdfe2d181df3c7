"""The site in a real Chromium: wide and narrow, light and dark, and its search."""

import contextlib

import pytest

PAGES = (
    "index.html",
    "tutorials/practitioner.html",
    "concepts/formula.html",
    "api/hoplite.Graph.html",
    "cli/hoplite-train.html",
    "gallery/index.html",
)
WIDTHS = {"wide": 1280, "narrow": 390}


@contextlib.contextmanager
def opened(browser, address, width, theme):
    """A page to visit others with; what goes wrong in them is checked at the end."""
    wrong, asked = [], []
    context = browser.new_context(
        viewport={"width": WIDTHS[width], "height": 844}, color_scheme=theme
    )
    context.set_default_timeout(600_000)
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)
    page.on(
        "console",
        lambda message: (
            wrong.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    yield page
    context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize(("width", "theme"), [("wide", "light"), ("narrow", "dark")])
def test_pages_fit_and_make_no_errors(browser, address, width, theme):
    with opened(browser, address, width, theme) as page:
        grounds = set()
        for name in PAGES:
            page.goto(address + name)
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{name} is {over} pixels too wide"
            assert page.locator("h1").count() == 1, name
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            for picture in page.locator("svg.picture").all():
                box = picture.bounding_box()
                assert box is not None
                assert min(box["width"], box["height"]) > 80, name
        assert len(grounds) == 1
        (ground,) = grounds
        lightness = sum(int(part) for part in ground[4:-1].split(",")[:3])
        assert (lightness > 600) == (theme == "light"), ground


def test_pictures_follow_the_theme(browser, address):
    colors = []
    for theme in ("light", "dark"):
        with opened(browser, address, "wide", theme) as page:
            page.goto(f"{address}concepts/bases.html")
            found = page.locator("svg.picture .line.c0").first
            colors.append(found.evaluate("e => getComputedStyle(e).stroke"))
    assert len(set(colors)) == 2
