"""The page in a real Chromium: both widths and themes, the keyboard, hostile names, a change."""

from __future__ import annotations

import contextlib
import itertools
from urllib.parse import quote

import numpy as np
import pytest
from tests.explain.conftest import CONTRAST, HEADINGS, NAMELESS
from tests.serve.conftest import IDS, IMAGE, SCRIPT, serving, trained
from tests.serve.test_answers import load

import hoplite

NOT_THERE = "status of 404"  # which Chromium tells of a node that is not there
LOOKS = list(itertools.product((1280, 390), ("light", "dark")))


@contextlib.contextmanager
def opened(chromium, address, width=1280, theme="light"):
    """A page on which nothing may go wrong, and which asks this server alone."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    context.set_default_timeout(60_000)
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


def told(share):
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
            assert page.inner_text("#status") == (
                "'nobody' is not the id of a node; type how one begins to see those that there are."
            )
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


def test_the_page_begins_with_nodes_to_look_at(browser, address, model, tables):
    graph = load(tables, model)
    shares, predicted = model.predict_proba(graph), model.predict(graph)
    counts = np.bincount(predicted, minlength=len(model.class_names))
    rarest = min(np.flatnonzero(counts), key=lambda c: counts[c])
    own = np.flatnonzero(predicted == rarest)
    surest = [graph.node_ids[v] for v in own[np.argsort(-shares[own, rarest])][:4]]

    def check(chromium):
        with opened(chromium, address, 390) as page:
            page.goto(address)
            page.wait_for_selector("html[data-ready=true]")
            first, doubts = page.locator("#begin table").all()
            assert model.class_names[rarest] in first.locator("caption").inner_text()
            assert first.locator("a").all_inner_texts() == surest
            assert doubts.locator("caption").inner_text() == "The least sure"
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert page.evaluate(CONTRAST) == []
            first.locator("a").first.click()
            page.wait_for_selector("main:not([hidden])")
            page.wait_for_selector("html[data-ready=true]")
            assert page.inner_text("#node-id") == f"Node {surest[0]}"
            assert not page.locator("#examples").is_visible()
            page.fill("#wanted", "nobody")
            page.keyboard.press("Enter")
            page.wait_for_selector("#status.wrong")
            page.wait_for_selector("#examples:not([hidden])")
            page.fill("#wanted", "")
            page.keyboard.press("Enter")  # an empty look-up leads to the start
            page.wait_for_selector("#status:not(.wrong)")
            assert page.inner_text("#status") == ""
            assert page.evaluate("location.search") == ""
            assert page.locator("#examples").is_visible()

    browser(check)


def test_nearest_nodes_that_are_not_shown_can_be_had(browser, address, model, tables):
    graph = load(tables, model)
    others = graph.adjacency.copy()
    others.setdiag(0)
    others.eliminate_zeros()
    degrees = np.diff(others.indptr)
    node, many = graph.node_ids[int(degrees.argmax())], int(degrees.max())
    assert 6 < many <= 30

    def check(chromium):
        with opened(chromium, address) as page:
            go(page, address, node)
            assert len(rows(page, "#neighbours")) == 6
            caption = page.locator("#neighbours caption")
            assert caption.inner_text() == f"The 6 heaviest of {many} edges"
            page.get_by_role("button", name=f"Show {many - 6} more").click()
            assert len(rows(page, "#neighbours")) == many
            assert caption.inner_text() == f"{many} edges"
            focused = page.evaluate("document.activeElement.textContent")
            assert focused == rows(page, "#neighbours")[6][0]
            assert page.get_by_role("button", name="more").count() == 0
            hidden = "(one) => one.scrollHeight - one.clientHeight"
            assert page.locator("#neighbours").evaluate(hidden) == 0

    browser(check)


def test_a_change_moves_the_answer_to_what_the_library_says(browser, address, model, changed):
    graph = changed(model, SCRIPT, {"age": "87.5", "town": "Oslo"})
    shares = model.predict_proba(graph)[list(graph.node_ids).index(SCRIPT)]
    wanted = dict(zip(model.class_names, map(told, shares), strict=True))

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


TAKEN_BACK = """() => {
    const field = [...document.querySelectorAll("#values input")]
        .find((one) => one.dataset.name === "age");
    field.value = "880";
    field.dispatchEvent(new Event("input"));
    document.getElementById("reset").click();
}"""


def test_answers_that_come_too_late_are_dropped(browser, address):
    """A change that was taken back, and flips of a node that was left, are held on their way."""

    def check(chromium):
        with opened(chromium, address) as page:
            held = []
            go(page, address, SCRIPT)
            before = page.inner_text("#changed-outputs")
            page.route("**/api/change", lambda route: held.append(route))
            with page.expect_request("**/api/change"):
                page.get_by_label("age", exact=True).fill("870")
            page.evaluate(TAKEN_BACK)
            page.wait_for_timeout(300)
            (change,) = held  # the second was never asked
            with page.expect_response("**/api/change") as answer:
                change.continue_()
            answer.value.finished()
            page.wait_for_timeout(50)
            assert page.inner_text("#changed-outputs") == before
            held.clear()
            page.route("**/api/flips?*", lambda route: held.append(route))
            page.route("**/api/explanation?*", lambda route: held.append(route))
            with page.expect_request("**/api/explanation?*"):
                page.fill("#wanted", IMAGE)
                page.keyboard.press("Enter")
            for place in ("#parts", "#drawing", "#flips-found"):
                assert page.locator(place).evaluate("(one) => one.childElementCount") == 0
            page.select_option("#class", index=1)
            page.wait_for_timeout(50)
            first, second = held
            second.continue_()
            page.wait_for_selector("#parts table")
            shown = page.inner_text("#why-sum")
            with page.expect_response("**/api/explanation?*"):
                first.continue_()
            page.wait_for_timeout(50)
            assert page.inner_text("#why-sum") == shown  # of the class that was chosen last

    browser(check)


def test_what_is_no_number_or_no_date_is_not_sent(browser, address):
    def check(chromium):
        with opened(chromium, address) as page:
            sent = []
            page.on("request", lambda one: "/api/change" in one.url and sent.append(one))
            go(page, address, SCRIPT)
            before = page.inner_text("#changed-outputs")
            age, since = (page.get_by_label(name, exact=True) for name in ("age", "since"))

            def beside(field):
                return field.locator("xpath=../small").inner_text()

            for typed in ("-", "1e400", "-1e999", "4e"):
                age.fill("")
                page.wait_for_timeout(300)  # empty is missing, which is asked
                sent.clear()
                age.press_sequentially(typed)
                page.wait_for_timeout(300)
                assert [one for one in sent if one.post_data_json["features"]["age"] is None] == []
                assert beside(age) == "no number"
                assert age.get_attribute("aria-invalid") == "true"
                assert page.inner_text("#status") == ""
            sent.clear()
            page.get_by_label("town", exact=True).select_option("Oslo")
            page.wait_for_timeout(300)
            assert sent == []  # nothing, until it is mended
            with page.expect_request("**/api/change") as asked:
                age.fill("41")
            assert asked.value.post_data_json["features"] == {"age": 41, "town": "Oslo"}
            assert beside(age) == ""
            page.wait_for_function(
                "(text) => document.getElementById('changed-outputs').innerText !== text",
                arg=before,
            )
            since.fill("2020-02-01")
            page.wait_for_timeout(300)
            sent.clear()
            since.press("Delete")  # its first part
            page.wait_for_timeout(300)
            assert (sent, beside(since)) == ([], "no date")
            with page.expect_request("**/api/change") as asked:
                for _ in range(2):
                    since.press("ArrowRight")
                    since.press("Delete")
            assert asked.value.post_data_json["features"]["since"] is None  # all of it: a gap
            assert beside(since) == ""
            age.fill("")
            age.press_sequentially("-")
            page.get_by_role("button", name="As it was").click()
            assert page.inner_text("#changed-outputs") == before
            assert page.locator("#values small").all_inner_texts().count("") == 5

    browser(check)


MISSING = """([name, gap]) => {
    const field = [...document.querySelectorAll("#values select")]
        .find((one) => one.dataset.name === name);
    const same = [...field.options].filter((one) => /missing/.test(one.textContent));
    same[gap ? same.length - 1 : 0].selected = true;
    field.dispatchEvent(new Event("input"));
}"""


def test_a_text_that_is_missing_is_no_gap(browser, tmp_path):
    """A category may have the very word."""
    rows = [
        "id,label,town,age", *(f"{i},{'ab'[i % 2]},{['', 'Ulm', 'missing'][i % 3]},{i}"
        for i in range(30)),
    ]  # fmt: skip
    folder = tmp_path / "towns"
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    edges = [f"{i},{(i * 7 + 3) % 30}" for i in range(30)]
    (folder / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    graph = hoplite.load(folder)
    hoplite.train(graph, "sgc", epochs=3, seeds=1).model.save(tmp_path / "model")
    log = tmp_path / "log"
    log.touch()

    def check(chromium):
        with opened(chromium, address) as page:
            for node, gap, sent in (
                ("1", False, "missing"),
                ("1", True, None),
                ("0", False, "missing"),
                ("2", True, None),
            ):
                go(page, address, node)
                with page.expect_request("**/api/change") as asked:
                    page.evaluate(MISSING, ["town", gap])
                assert asked.value.post_data_json["features"] == {"town": sent}

    with serving(tmp_path / "model", folder, log=log) as (told_, _):
        address = told_["address"].rstrip("/")
        browser(check)


def test_why_follows_the_chosen_classes(browser, address):
    def check(chromium):
        with opened(chromium, address) as page:
            go(page, address, SCRIPT)
            for select in ("#class", "#against"):
                before = page.inner_text("#parts")
                names = page.locator(f"{select} option").evaluate_all(
                    "(all) => all.map((one) => one.value)"
                )
                other = next(name for name in names if name != page.input_value(select))
                page.select_option(select, other)
                page.wait_for_function(
                    "(text) => document.getElementById('parts').innerText !== text", arg=before
                )
                assert page.input_value(select) == other

    browser(check)


@pytest.mark.parametrize(
    ("kind", "label", "options"),
    [
        ("gcn", "kind", {}),
        ("lgc", "price", {"task": "regression", "bias": True}),
        ("lgc", "likes", {"task": "multilabel", "bias": True}),
    ],
)
def test_other_models_and_tasks(browser, tables, tmp_path, kind, label, options):
    trained(tables, kind, label, **options).save(tmp_path / "model")
    log = tmp_path / "log"
    log.touch()

    def check(chromium):
        with opened(chromium, address, 390) as page:
            go(page, address, SCRIPT)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert page.locator("#drawing a").count() > 1
            before = page.inner_text("#changed-outputs")
            page.get_by_label("age", exact=True).fill("140")
            page.wait_for_function(
                "(text) => document.getElementById('changed-outputs').innerText !== text",
                arg=before,
            )
            assert page.inner_text("#status") == ""
            assert ("is not linear" in page.inner_text("#parts")) == (kind == "gcn")

    with serving(tmp_path / "model", tables, log=log) as (told_, _):
        address = told_["address"].rstrip("/")
        browser(check)


def test_what_would_change_it_is_told_as_dates_and_ranges_are(browser, address, model, changed):
    graph = changed(model, SCRIPT, {})
    explainer, wanted = hoplite.explain.Explainer(model, graph), {}
    for node in graph.node_ids:
        found = explainer.explain(node).changes().found
        for flip in found:
            if flip.name == "since":
                wanted.setdefault((flip.side, flip.outside), (node, found))
    assert {outside for _, outside in wanted} == {False, True}
    words = {
        "above": ("or more", "or later"),
        "below": ("or less", "or earlier"),
        "equal": ("",) * 2,
    }
    marked = "outside the range seen in training"

    def check(chromium):
        with opened(chromium, address, 390, "dark") as page:
            for node, found in wanted.values():
                go(page, address, node)
                page.wait_for_selector("#flips-found table")
                shown = rows(page, "#flips-found")
                assert len(shown) == len(found)
                for (_, to, becomes), flip in zip(shown, found, strict=True):
                    assert becomes == flip.becomes
                    assert (marked in to) == flip.outside
                    side = words[flip.side][isinstance(flip.to, str)]
                    assert to.removesuffix(marked).endswith(f"{side}\n" * flip.outside or side)

    browser(check)


def of_table(page, place, caption):
    """The rows of the one table of ``place`` with this caption."""
    shown = page.locator(f"{place} table").filter(has=page.locator("caption", has_text=caption))
    return [
        [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        for row in shown.locator("tbody tr").all()
    ]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_a_threshold_is_shown(browser, moved, tmp_path, width, theme):
    folder, model = moved
    graph = hoplite.load(folder, prepare=model)
    explainer, (rare, threshold) = (
        hoplite.explain.Explainer(model, graph),
        model.task.chosen_threshold,
    )
    shares, predicted, level = (
        model.predict_proba(graph)[:, rare],
        model.predict(graph),
        told(threshold),
    )
    chosen = [
        next(v for v in range(graph.num_nodes) if predicted[v] == rare and shares[v] < 0.5),
        next(v for v in range(graph.num_nodes) if predicted[v] != rare),
    ]
    log = tmp_path / "log"
    log.touch()

    def check(chromium):
        with opened(chromium, address, width, theme) as page:
            for v in chosen:
                go(page, address, graph.node_ids[v])
                why = explainer.explain_at(v)
                share = told(shares[v])
                sentence = {
                    SCRIPT: f"as its probability of {share} is above the threshold of {level}",
                    "dog": f"as the probability of {SCRIPT}, {share}, is below its threshold "
                    f"of {level}",
                }[why.class_]
                sentence = f"{why.class_}, {sentence}"
                assert page.inner_text("#threshold") == f"It is {sentence}."
                assert page.inner_text("#changed-outputs caption") == f"Then it is {sentence}"
                assert {row[0]: row[-1] for row in rows(page, "#changed-outputs")} == {
                    SCRIPT: level,
                    "dog": "",
                }
                assert f"{SCRIPT} predicted from {level} on" in page.inner_text(".facts")
                text = page.inner_text("#why-sum").replace("\u2212", "-")
                assert f"Its lead over the threshold is {why.logit:.4g}: " in text
                assert f", {why.threshold_part:.4g} for the threshold of {level}, and " in text
                apart = why.logit - why.threshold_part
                assert f"Without the threshold it is {apart:.4g}, the one logit less" in text
                for caption in ("By hop", "By node", "By feature, over all nodes within reach"):
                    parts = of_table(page, "#parts", caption)
                    assert [row[0] for row in parts[-2:]] == ["constant", "threshold"]
                    amounts = [float(row[-1].replace("\u2212", "-")) for row in parts]
                    assert sum(amounts) == pytest.approx(why.logit, abs=0.03)
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert page.evaluate(CONTRAST) == []

    with serving(folder.parent / "model", folder, log=log) as (told_, _):
        address = told_["address"].rstrip("/")
        browser(check)


def test_without_a_threshold_none_is_shown(browser, address):
    def check(chromium):
        with opened(chromium, address) as page:
            go(page, address, SCRIPT)
            assert not page.locator("#threshold").is_visible()
            assert "threshold" not in page.inner_text("body")
            assert "Its lead, the one logit less the other, is " in page.inner_text("#why-sum")

    browser(check)
