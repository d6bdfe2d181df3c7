"""A browser that opens pages, and what every page keeps to."""

import contextlib
import functools
import itertools

import pytest

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
WIDTHS = {"wide": 1280, "narrow": 360}

CONTRAST = """() => {
  const luminance = (color) => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (!/^rgba\\(.*, 0\\)$|^transparent$/.test(color) && !/\\/ /.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const weak = [];
  const chosen = "p, li, h1, h2, h3, th, td, caption span, .diff, .stamp, .paper, .chip, .note, " +
    "summary, .score, .key, dt, dd, code";
  for (const element of document.querySelectorAll(chosen)) {
    if (element.closest(".bar, [hidden]")) continue;
    const [a, b] = [getComputedStyle(element).color, behind(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return [...new Set(weak)];
}"""

NAMELESS = """() => [...document.querySelectorAll("button, a[href], summary, [role=region]")]
  .filter((e) => !(e.getAttribute("aria-label") ?? e.textContent).trim()).map((e) => e.outerHTML)"""

HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .map((heading) => Number(heading.tagName[1]))"""


@pytest.fixture(scope="session")
def hostile_text():
    return HOSTILE


@contextlib.contextmanager
def opener(browser, pages):
    """Open pages; whatever goes wrong in them, and whatever they ask for, is checked at the end."""
    wrong, asked, contexts = [], [], []

    def open_page(name, size="wide", theme="light", **options):
        width = {"width": WIDTHS[size], "height": 800}
        context = browser.new_context(viewport=width, color_scheme=theme, **options)
        contexts.append(context)
        context.set_default_timeout(600_000)  # on a busy machine the plots take their time
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.goto(pages[name].as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=true]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    files = {path.as_uri() for path in pages.values()}
    assert {url for url in asked if not url.startswith("data:")} <= files


@pytest.fixture(scope="module")
def shown(browser, pages):
    """One page for all tests, because drawing it is slow; no test changes it."""
    with opener(browser, pages) as open_page:
        yield functools.cache(open_page)


@pytest.fixture(scope="session")
def looks():
    """What every page keeps to, whatever it shows."""

    class Looks:
        @staticmethod
        def overflow(page):
            return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

        @staticmethod
        def weak(page):
            return page.evaluate(CONTRAST)

        @staticmethod
        def check_structure(page):
            assert page.locator("h1").count() == 1
            levels = page.evaluate(HEADINGS)
            assert levels[0] == 1
            assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
            assert page.locator("table").count() == page.locator("table > caption").count()
            assert page.locator("th:not([scope])").count() == 0
            assert page.evaluate(NAMELESS) == []
            for landmark in ("main", "nav[aria-label]", "header", "footer"):
                assert page.locator(f"body > {landmark}").count() == 1
            assert page.locator("html[lang=en]").count() == 1
            identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
            assert len(identifiers) == len(set(identifiers))

    return Looks
