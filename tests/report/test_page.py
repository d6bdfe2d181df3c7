"""The page in a real Chromium: wide and narrow, light and dark, with hostile names in it."""

import itertools
import os
import re
import shutil

import pytest

SIZES = {"wide": 1280, "narrow": 360}
THEMES = ("light", "dark")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

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


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium was found; `make browser` installs one.")
        pytest.skip("no Chromium was found; `make browser` installs one.")
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=options)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser, pages):
    """Open a page; whatever goes wrong in it, and whatever it asks for, is checked at the end."""
    wrong, asked, contexts = [], [], []

    def open_page(name, size="wide", theme="light", **options):
        width = {"width": SIZES[size], "height": 800}
        context = browser.new_context(viewport=width, color_scheme=theme, **options)
        contexts.append(context)
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.set_default_timeout(180_000)  # on a busy machine the plots take their time
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.goto(pages[name].as_uri())
        page.wait_for_selector("html[data-ready=true]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    files = {path.as_uri() for path in pages.values()}
    assert {url for url in asked if not url.startswith("data:")} <= files


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize(
    ("name", "size", "theme"),
    [
        *[("hostile", size, theme) for size in SIZES for theme in THEMES],
        ("partial", "narrow", "dark"),
        ("empty", "wide", "light"),
    ],
)
def test_it_renders(visit, name, size, theme):
    page = visit(name, size, theme)
    plots = page.evaluate(
        """() => [...document.querySelectorAll(".canvas")].map((div) => ({
          id: div.id, width: div.clientWidth, drawn: div.querySelectorAll("svg.main-svg").length,
          points: (div.data ?? []).map((trace) => trace.x.length),
          lines: div.querySelectorAll(".scatterlayer .trace").length }))"""
    )
    assert len(plots) == {"hostile": 4 + 5 + 4 + 4, "partial": 1 + 3 + 3, "empty": 0}[name]
    for plot in plots:
        assert plot["drawn"], plot
        assert plot["lines"], plot
        assert plot["points"], plot
        assert min(plot["points"]) > 0, plot
        assert 200 < plot["width"] < SIZES[size]
    assert overflow(page) <= 0
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("name", ["full", "hostile", "partial", "empty"])
def test_structure(visit, name):
    page = visit(name)
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


def test_hostile_names_are_text(visit, hostile_text):
    page = visit("hostile")
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    assert hostile_text in page.locator("#accuracy").text_content()
    assert page.locator("[onerror]").count() == 0


def test_the_network_is_forbidden(pages):
    text = pages["full"].read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "http" not in policy[1]
    ours = text.replace(text[text.index("/**\n* plotly.js") : text.rindex("<script>")], "")
    assert not re.search(r"(src|href)=[\"']?https?:", ours)


def test_the_keyboard_reaches_everything(visit):
    page = visit("full")
    reached = []
    for _ in range(26):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => { const e = document.activeElement;
                return [e.tagName, e.id || e.hash || e.className,
                        getComputedStyle(e).outlineStyle]; }"""
            )
        )
    assert reached[0][:2] == ["A", "#main"]
    seen = [(tag, name) for tag, name, _ in reached]
    for link in ("#accuracy", "#spectrum"):
        assert ("A", link) in seen
    for button in ("theme", "score"):
        assert ("BUTTON", button) in seen
    assert any(tag == "SUMMARY" for tag, _ in seen)
    assert all(outline != "none" for *_, outline in reached)


@pytest.mark.parametrize("size", SIZES)
def test_a_number_tells_how_it_was_made(visit, size):
    page = visit("full", size)
    button = page.get_by_role("button", name=re.compile("^LGC on Cora: 82.0 ± 0.39")).first
    button.focus()
    page.keyboard.press("Enter")
    card = page.locator("[popover]:popover-open")
    assert card.count() == 1
    text = card.inner_text()
    for fact in ("82.0 ± 0.39", "paper 82.0 ± 0.52", "0, 1, 2, 3, 4", "k = 20", "945 runs"):
        assert fact in text
    assert "hoplite train cora --model lgc --hops 20 --lr 0.2" in text
    box = card.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= SIZES[size]
    page.keyboard.press("Escape")
    assert card.count() == 0
    assert page.evaluate("document.activeElement.className") == "score"


def test_folded_tables_open_by_keyboard(visit):
    page = visit("full", "narrow")
    for summary in page.locator("summary").all():
        summary.focus()
        page.keyboard.press("Enter")
    assert page.locator("details:not([open])").count() == 0
    assert overflow(page) <= 0
    assert page.locator("#curve-0-title ~ figcaption tbody tr").count() > 40


def test_the_biased_table_cannot_be_missed(visit):
    page = visit("full")
    section = page.locator("#biased")
    assert "Biased" in section.locator("h2").text_content()
    assert "BIASED" in section.locator("caption").first.text_content()
    assert section.locator("thead .stamp").count() == 3
    border = section.evaluate("(e) => getComputedStyle(e).borderTopStyle")
    assert border == "dashed"
    assert page.locator("#accuracy .stamp").count() == 0


@pytest.mark.parametrize("theme", THEMES)
def test_the_theme_button(visit, theme):
    page = visit("full", theme=theme)
    read = """() => [document.getElementById("curve-0").layout.font.color,
                    document.getElementById("curve-0").data[0].line.color]"""
    before, colors = background(page), page.evaluate(read)
    page.get_by_role("button", name="Switch between light and dark").click()
    other = background(page)
    assert other != before
    assert all(new != old for new, old in zip(page.evaluate(read), colors, strict=True))
    assert page.evaluate(CONTRAST) == []
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert background(page) == other  # the choice is remembered
    page.get_by_role("button", name="Switch between light and dark").click()
    assert background(page) == before
    assert page.evaluate(read) == colors


def test_the_theme_follows_the_system_until_it_is_chosen(visit):
    page = visit("full", theme="light")
    light = background(page)
    page.emulate_media(color_scheme="dark")
    assert background(page) != light
    page.wait_for_function(
        """() => {
          const numbers = (color) => color.match(/\\d+/g).slice(0, 3).join();
          const plot = document.getElementById("curve-0").layout.font.color;
          return numbers(plot) === numbers(getComputedStyle(document.body).color);
        }"""
    )


def test_the_legend_hides_a_model_everywhere(visit):
    page = visit("full")
    key = page.locator("#coefficients .key", has_text="EGC")
    visible = """() => [...document.querySelectorAll("#coefficients .canvas")].map((div) =>
      div.data.filter((t) => t.meta.series === "egc").map((t) => t.visible)).flat()"""
    assert set(page.evaluate(visible)) == {True}
    key.press("Space")
    assert key.get_attribute("aria-pressed") == "false"
    assert set(page.evaluate(visible)) == {False}
    key.click()
    assert key.get_attribute("aria-pressed") == "true"
    assert set(page.evaluate(visible)) == {True}


def test_reduced_motion_and_print(visit):
    page = visit("full", reduced_motion="reduce")
    scroll = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(scroll) == "auto"
    page.emulate_media(media="print")
    assert page.locator("nav.bar").is_hidden()
    assert len(page.pdf()) > 10_000


def test_without_scripts_the_numbers_are_still_there(visit, browser, pages):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["full"].as_uri())
    assert "The plots need JavaScript" in page.locator("noscript").inner_text()
    assert "82.0" in page.locator("#accuracy").inner_text()
    context.close()
