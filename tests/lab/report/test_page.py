"""The page in a real Chromium: wide and narrow, light and dark, with hostile names in it."""

import re

import pytest

SIZES = {"wide": 1280, "narrow": 360}


# no case for each size with each theme: overflow is a matter of the one, contrast of the other
@pytest.mark.parametrize(
    ("name", "size", "theme"),
    [
        ("hostile", "wide", "light"),
        ("hostile", "narrow", "dark"),
        ("partial", "narrow", "dark"),
        ("empty", "wide", "light"),
    ],
)
def test_it_renders(shown, looks, name, size, theme):
    page = shown(name, size, theme)
    plots = page.evaluate(
        """() => [...document.querySelectorAll(".canvas")].map((div) => ({
          id: div.id, width: div.clientWidth, drawn: div.querySelectorAll("svg.main-svg").length,
          points: (div.data ?? []).map((trace) => trace.x.length),
          lines: div.querySelectorAll(".scatterlayer .trace").length }))"""
    )
    assert len(plots) == {"hostile": 4 + 4 + 5 + 4 + 4, "partial": 1 + 3 + 3, "empty": 0}[name]
    for plot in plots:
        assert plot["drawn"], plot
        assert plot["lines"], plot
        assert plot["points"], plot
        assert min(plot["points"]) > 0, plot
        assert 200 < plot["width"] < SIZES[size]
    assert looks.overflow(page) <= 0
    assert looks.weak(page) == []


@pytest.mark.parametrize("name", ["short", "hostile", "partial", "empty"])
def test_structure(shown, looks, name):
    look = ("narrow", "dark") if name == "partial" else ("wide", "light")
    looks.check_structure(shown(name, *look))


def test_hostile_names_are_text(shown, hostile_text):
    page = shown("hostile", "wide", "light")
    assert page.locator("script").count() == 3
    assert page.locator("img").count() == 0
    assert hostile_text in page.locator("#accuracy").text_content()
    assert page.locator("[onerror]").count() == 0


def test_the_network_is_forbidden(pages):
    text = pages["short"].read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "http" not in policy[1]
    ours = text.replace(text[text.index("/**\n* plotly.js") : text.rindex("<script>")], "")
    assert not re.search(r"(src|href)=[\"']?https?:", ours)


def test_a_page_without_plots_is_small(pages):
    assert pages["empty"].stat().st_size < 100_000 < pages["short"].stat().st_size


def test_the_keyboard_reaches_everything(visit):
    page = visit("short")
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
def test_a_number_tells_how_it_was_made(shown, size):
    page = shown("short", size, "light")
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


def test_folded_tables_open_by_keyboard(shown, looks):
    page = shown("short", "narrow", "light")
    looks.toggle_tables(page)
    assert page.locator("details:not([open])").count() == 0
    assert looks.overflow(page) <= 0
    assert page.locator("#curve-0-title ~ figcaption tbody tr").count() > 40
    looks.toggle_tables(page)
    assert page.locator("details[open]").count() == 0


def test_the_biased_table_cannot_be_missed(shown):
    page = shown("short", "wide", "light")
    section = page.locator("#biased")
    assert "Biased" in section.locator("h2").text_content()
    assert "BIASED" in section.locator("caption").first.text_content()
    assert section.locator("thead .stamp").count() == 3
    border = section.evaluate("(e) => getComputedStyle(e).borderTopStyle")
    assert border == "dashed"
    assert page.locator("#accuracy .stamp").count() == 0


def test_the_theme_button(visit, looks):
    page = visit("short", theme="dark")
    read = """() => [document.getElementById("curve-0").layout.font.color,
                    document.getElementById("curve-0").data[0].line.color]"""
    before, colors = looks.background(page), page.evaluate(read)
    page.get_by_role("button", name="Switch between light and dark").click()
    other = looks.background(page)
    assert other != before
    assert all(new != old for new, old in zip(page.evaluate(read), colors, strict=True))
    assert looks.weak(page) == []
    page.reload()
    page.wait_for_selector("html[data-ready=true]")
    assert looks.background(page) == other  # the choice is remembered
    page.get_by_role("button", name="Switch between light and dark").click()
    assert looks.background(page) == before
    assert page.evaluate(read) == colors


def test_the_theme_follows_the_system_until_it_is_chosen(shown, looks):
    page = shown("short", "wide", "light")
    light = looks.background(page)
    page.emulate_media(color_scheme="dark")
    assert looks.background(page) != light
    page.wait_for_function(
        """() => {
          const numbers = (color) => color.match(/\\d+/g).slice(0, 3).join();
          const plot = document.getElementById("curve-0").layout.font.color;
          return numbers(plot) === numbers(getComputedStyle(document.body).color);
        }"""
    )
    page.emulate_media(color_scheme="light")
    assert looks.background(page) == light


def test_the_legend_hides_a_model_everywhere(shown):
    page = shown("short", "wide", "light")
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


def test_reduced_motion_and_print(shown):
    page = shown("short", "wide", "light")
    scroll = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(scroll) == "smooth"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(scroll) == "auto"
    page.emulate_media(reduced_motion="no-preference", media="print")
    assert page.locator("nav.bar").is_hidden()
    assert len(page.pdf()) > 10_000
    page.emulate_media(media="screen")
    assert page.locator("nav.bar").is_visible()


def test_without_scripts_the_numbers_are_still_there(visit):
    page = visit("short", java_script_enabled=False)
    assert "The plots need JavaScript" in page.locator("noscript").inner_text()
    assert "82.0" in page.locator("#accuracy").inner_text()
