"""The page in a real Chromium: both widths and themes, the keyboard, hostile names, a change."""

from __future__ import annotations

import contextlib
from urllib.parse import quote

import pytest
from tests.explain.conftest import CONTRAST, HEADINGS, NAMELESS
from tests.serve.conftest import IDS, IMAGE, SCRIPT

NOT_THERE = "status of 404"  # which Chromium tells of a node that is not there
LOOKS = [(1280, "light"), (390, "dark")]


@contextlib.contextmanager
def opened(chromium, address, width=1280, theme="light"):
    """A page on which nothing may go wrong, and which asks this server alone."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    context.set_default_timeout(600_000)
    wrong, asked = [], []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on(
        "console", lambda message: None if NOT_THERE in message.text else wrong.append(message.text)
    )
    try:
        yield page
        assert wrong == []
        assert {url for url in asked if not url.startswith(address)} == set()
    finally:
        context.close()


def go(page, address, node):
    page.goto(f"{address}/?id={quote(node, safe='')}")
    page.wait_for_selector("html[data-ready=true]")


def rows(page, place):
    """The texts of a table's body."""
    return [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in page.locator(f"{place} tbody tr").all()
    ]


def percentage(share):
    return f"{100 * share:.1f} %"


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_looks(browser, address, width, theme):
    def check(chromium):
        with opened(chromium, address, width, theme) as page:
            page.goto(address)
            page.wait_for_selector("html[data-ready=true]")
            assert not page.locator("main").is_visible()
            for node in (SCRIPT, IMAGE, IDS[2]):
                go(page, address, node)
                assert page.locator("#node-id").inner_text() == f"Node {node}"
                overflow = "document.documentElement.scrollWidth - window.innerWidth"
                assert page.evaluate(overflow) <= 0
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate(NAMELESS) == []
            levels = page.evaluate(HEADINGS)
            assert levels == [1, *[2] * (len(levels) - 1)]
            assert page.locator("table").count() == page.locator("table > caption").count() >= 6
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, dark[4:-1].split(","))) < 200) == (theme == "dark")

    browser(check)


def test_a_node_is_looked_up_with_the_keyboard(browser, address):
    def check(chromium):
        with opened(chromium, address) as page:
            page.goto(address)
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.id") == "wanted"
            page.keyboard.type("<SCR")
            page.wait_for_function(
                "() => document.querySelectorAll('#suggested [role=option]').length === 1"
            )
            assert page.locator("#suggested [role=option] span").all_inner_texts() == [SCRIPT]
            page.keyboard.press("ArrowDown")
            assert page.get_attribute("#wanted", "aria-activedescendant") == "suggested-0"
            page.keyboard.press("Enter")
            page.wait_for_function(
                "(id) => document.getElementById('node-id').textContent === `Node ${id}`",
                arg=SCRIPT,
            )
            page.wait_for_selector("html[data-ready=true]")
            assert page.evaluate("new URLSearchParams(location.search).get('id')") == SCRIPT
            page.fill("#wanted", "nobody")
            page.keyboard.press("Enter")
            page.wait_for_selector("#status.wrong")
            assert "'nobody' is not a node id" in page.inner_text("#status")
            assert not page.locator("main").is_visible()  # not the node before
            page.go_back()
            page.wait_for_selector("#status:not(.wrong)")
            page.wait_for_selector("html[data-ready=true]")
            neighbour = page.locator("#neighbours a").first
            name = neighbour.inner_text()
            neighbour.focus()
            page.keyboard.press("Enter")
            page.wait_for_function(
                "(id) => document.getElementById('node-id').textContent === `Node ${id}`", arg=name
            )
            page.wait_for_selector("html[data-ready=true]")
            assert page.locator("#drawing a[aria-label]").count() > 1

    browser(check)


def test_a_change_moves_the_answer_to_what_the_library_says(browser, address, model, changed):
    graph = changed(model, SCRIPT, {"age": "87.5", "town": "Oslo"})
    shares = model.predict_proba(graph)[list(graph.node_ids).index(SCRIPT)]
    wanted = dict(zip(model.class_names, map(percentage, shares), strict=True))

    def check(chromium):
        with opened(chromium, address, 390, "dark") as page:
            go(page, address, SCRIPT)
            before = {row[0]: row[-1] for row in rows(page, "#outputs")}
            first = {row[0]: (row[2], row[3]) for row in rows(page, "#changed-outputs")}
            assert first == {name: (share, share) for name, share in before.items()}
            page.get_by_label("age", exact=True).fill("87.5")
            page.get_by_label("town", exact=True).select_option("Oslo")
            name, share = next(iter(wanted.items()))
            page.wait_for_function(
                """([name, share]) => [...document.querySelectorAll('#changed-outputs tr')]
                .some((row) => row.cells[0].textContent === name &&
                    row.cells[3].textContent === share)""",
                arg=[name, share],
            )
            after = {row[0]: (row[2], row[3]) for row in rows(page, "#changed-outputs")}
            assert after == {name: (before[name], share) for name, share in wanted.items()}
            assert before != wanted
            page.get_by_role("button", name="As it was").click()
            again = {row[0]: row[3] for row in rows(page, "#changed-outputs")}
            assert again == before
            page.get_by_label("since", exact=True).fill("")  # it may be missing
            page.wait_for_function("() => !document.getElementById('reset').disabled")
            assert page.inner_text("#status") == ""

    browser(check)
