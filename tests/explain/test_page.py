"""The page of an explanation, made from values by hand, in a real Chromium."""

import copy
import json
import math
import re

import msgspec
import pytest

from hoplite.explain import Summary
from hoplite.explain import text as words
from hoplite.explain.page import (
    class_figure,
    contribution_figure,
    explanation_page,
    neighbourhood_figure,
    positions,
    write_explanation,
)
from hoplite.explain.summary import NodePart
from hoplite.formatting import MINUS, NOTHING

SIZES = {"wide": 1280, "narrow": 360}
WIDE = ("wide", "light")
COMMAND = "hoplite explain cora-lgc cora --node 1701 --out page.html"
LABELS = ("Neural_Networks", "Theory", "Case_Based")
PLOTS = ["neighbours", "by-nodes", "by-hops", "by-features", "by-class"]
LONG = "a very long name " * 20


def nodes():
    """Node 1701, five neighbours, and three nodes beyond two of them."""
    amounts = [0.52, 0.61, 0.43, -0.18, 0.09, 0.0, 0.34, -0.27, 0.02]
    far = [0, 1, 1, 1, 1, 1, 2, 2, 3]
    return [
        {
            "index": i,
            "id": 1701 + i,
            "label": LABELS[amount < 0] if i % 4 else None,
            "distance": distance,
            "contribution": amount,
        }
        for i, (amount, distance) in enumerate(zip(amounts, far, strict=True))
    ]


def example_values():
    """What `Explanation.to_dict` gives: 0.25 + 1.75 by hop, by node and by feature."""
    strongest = sorted(nodes(), key=lambda node: -abs(node["contribution"]))[:6]
    words_ = [("network", 1.1), ("neural", 0.5), (None, -0.4), ("case", -0.1)]
    features = [
        {"index": 17 * i, "name": name, "value": 0.05 * i, "contribution": amount}
        for i, (name, amount) in enumerate(words_)
    ]
    return {
        "dataset": "cora",
        "model": {
            "model": "lgc",
            "hops": 3,
            "operator": "renormalized",
            "basis": "monomial",
        },
        "node": {
            "index": 0,
            "id": 1701,
            "label": "Neural_Networks",
            "predicted": "Neural_Networks",
            "probability": 0.7,
        },
        "class": "Neural_Networks",
        "against": None,
        "logit": 2.0,
        "constant": 0.25,
        "residual": -2e-7,
        "classes": [
            {"name": "Neural_Networks", "logit": 2.0, "probability": 0.7},
            {"name": "Theory", "logit": 1.0, "probability": 0.2575},
            {"name": "Case_Based", "logit": -0.8, "probability": 0.0425},
        ],
        "hops": [
            {"hop": i, "coefficient": c, "contribution": amount}
            for i, (c, amount) in enumerate([(0.9, 0.4), (1.2, 1.0), (-0.3, -0.25), (0.5, 0.6)])
        ],
        "nodes": {
            "top": strongest,
            "others": 212,
            "rest": 1.75 - sum(node["contribution"] for node in strongest),
        },
        "features": {"top": features, "others": 1429, "rest": 0.65},
        "node_features": {
            "top": [
                {
                    "node": 1,
                    "id": 1702,
                    "feature": 0,
                    "name": "network",
                    "contribution": 0.31,
                    "value": 0.25,
                },
                {
                    "node": 7,
                    "id": 1708,
                    "feature": 34,
                    "name": None,
                    "contribution": -0.22,
                    "value": "missing",
                },
            ]
        },
        "neighbourhood": {
            "nodes": nodes(),
            "edges": [[0, i, 1.0] for i in range(1, 6)]
            + [[1, 6, 1.0], [2, 6, 1.0], [3, 7, 1.0], [7, 8, 1.0], [1, 2, 2.0]],
        },
        "flips": {
            "margin": 1.0,
            "standardized": False,
            "edges": {
                "checked": 2000,
                "of": 5120,
                "found": [
                    {
                        "source": {"index": 0, "id": 1701},
                        "target": {"index": 1, "id": 1702},
                        "becomes": "Theory",
                        "margin": -0.12,
                    }
                ],
            },
            "nodes": {"checked": 900, "of": 900, "found": []},
        },
        "changes": {
            "checked": 4,
            "found": [
                {
                    "index": 0,
                    "name": "network",
                    "value": 0.05,
                    "to": 0.0123,
                    "side": "below",
                    "becomes": "Theory",
                },
                {
                    "index": 34,
                    "name": "town",
                    "value": "Ulm",
                    "to": "Bonn",
                    "side": "equal",
                    "becomes": "Case_Based",
                },
            ],
        },
    }


def contrast_values():
    """Why one class and not the other, where the class is not the predicted one."""
    values = example_values() | {"class": "Theory", "against": "Case_Based", "flips": None}
    values["node"] = values["node"] | {"label": None}
    return values


def alone_values():
    """A node without neighbours, features or anything else."""
    values = example_values() | {"logit": 0.0, "constant": 0.0, "residual": 0.0}
    values["hops"] = [{"hop": 0, "coefficient": 1.0, "contribution": 0.0}]
    values["nodes"] = values["features"] = {"top": [], "others": 0, "rest": 0.0}
    values["node_features"] = {"top": []}
    values["neighbourhood"] = {"nodes": [nodes()[0] | {"contribution": 0.0}], "edges": []}
    for kind in ("edges", "nodes"):
        values["flips"][kind] = {"checked": 0, "of": 0, "found": []}
    return values


def hostile_values(name):
    """The example with ``name`` wherever there is a name, and long ones beside it."""
    values = copy.deepcopy(example_values())
    values["dataset"] = values["class"] = values["node"]["predicted"] = name
    values["node"]["label"] = values["classes"][0]["name"] = name
    values["against"] = values["classes"][1]["name"] = LONG
    values["node"]["id"] = name
    for node in (*values["nodes"]["top"][1:], *values["neighbourhood"]["nodes"]):
        node |= {"id": name, "label": name}
    values["nodes"]["top"][0] |= {"id": LONG.replace(" ", "x"), "label": LONG}
    values["nodes"]["top"][1]["id"] = "@ink"  # as the page calls one of its colours
    values["features"]["top"][0]["name"] = values["node_features"]["top"][0]["name"] = name
    values["features"]["top"][1]["name"] = LONG.replace(" ", "_")
    values["node_features"]["top"][1]["id"] = name
    flip = values["flips"]["edges"]["found"][0]
    flip["source"]["id"] = flip["becomes"] = name
    change, other = values["changes"]["found"]
    change["name"] = other["to"] = other["becomes"] = name
    change["value"] = other["name"] = LONG
    return values


def typed(values):
    return msgspec.convert(values, Summary)


def example():
    return typed(example_values())


@pytest.fixture(scope="module")
def pages(tmp_path_factory, hostile_text):
    folder = tmp_path_factory.mktemp("explanation")
    made = {"example": example_values(), "contrast": contrast_values(), "alone": alone_values()}
    for name, values in (made | {"hostile": hostile_values(hostile_text)}).items():
        text = f"{COMMAND} {hostile_text}" if name == "hostile" else COMMAND
        write_explanation(typed(values), folder / f"{name}.html", command=text)
    return {name: folder / f"{name}.html" for name in (*made, "hostile")}


@pytest.mark.parametrize(
    ("name", "size", "theme"),
    [
        *[(name, "wide", "light") for name in ("example", "hostile")],
        *[(name, "narrow", "dark") for name in ("example", "hostile", "alone")],
    ],
)
def test_it_renders(shown, looks, name, size, theme):
    page = shown(name, size, theme)
    plots = page.evaluate(
        """() => [...document.querySelectorAll(".canvas")].map((div) => ({
          id: div.id, width: div.clientWidth, drawn: div.querySelectorAll("svg.main-svg").length,
          points: div.data.map((trace) => trace.x.length),
          marks: div.querySelectorAll(".points path").length }))"""
    )
    expected = PLOTS if name != "alone" else ["neighbours", "by-hops", "by-class"]
    assert [plot["id"] for plot in plots] == expected
    for plot in plots:
        assert plot["drawn"], plot
        assert plot["marks"], plot
        assert min(plot["points"]) > 0, plot
        assert 200 < plot["width"] < SIZES[size]
    assert looks.overflow(page) <= 0
    assert looks.weak(page) == []


@pytest.mark.parametrize("name", ["example", "hostile", "alone"])
def test_structure(shown, looks, name):
    looks.check_structure(shown(name, "narrow", "dark"))


def test_what_it_says(shown):
    page = shown("example", *WIDE)
    assert (
        page.locator("h1").inner_text()
        == page.title()
        == ("Why node 1701 is predicted Neural_Networks")
    )
    text = page.locator("body").inner_text()
    for fact in ("70.0 %", "+2.000", "2e-07", "2,000 of 5,120 edges", COMMAND):
        assert fact in text
    rows = page.locator("#flips tbody tr").all()
    assert [row.inner_text().split("\t") for row in rows] == [
        [f"edge 1701 {NOTHING} 1702", "Theory", f"{MINUS}0.120"],
        ["network", "0.05", "0.0123 or less", "Theory"],
        ["town", "Ulm", "Bonn", "Case_Based"],
    ]


def test_hostile_names_are_text(shown, hostile_text):
    page = shown("hostile", *WIDE)
    assert page.locator("script").count() == 3
    assert page.locator("img, [onerror]").count() == 0
    for place in ("h1 ~ .headline", "#pairs td", "#flips td", "#about pre"):
        assert hostile_text in page.locator(place).first.text_content()
    assert hostile_text in page.locator("#flips table").last.text_content()
    shown = page.evaluate("document.getElementById('neighbours').data[1].customdata[0]")
    assert shown.startswith("<b>&lt;/script&gt;")


def test_a_name_is_never_a_colour(shown):
    page = shown("hostile", *WIDE)
    labels = page.locator("#by-nodes .yaxislayer-above text").all_text_contents()
    assert "@ink" in labels
    tints = page.evaluate("document.getElementById('by-nodes').data[0].marker.color")
    assert all(tint.startswith("rgba(") for tint in tints)


def test_colours_follow_the_theme(shown):
    page = shown("example", *WIDE)
    read = """() => [document.getElementById("neighbours").data[1].marker.colorscale[1][1],
                    document.getElementById("by-hops").data[0].marker.color[0]]"""
    light = page.evaluate(read)
    button = page.get_by_role("button", name="Switch between light and dark")
    button.click()
    assert all(new != old for new, old in zip(page.evaluate(read), light, strict=True))
    button.click()
    assert page.evaluate(read) == light


def test_the_numbers_open_by_keyboard(shown, looks):
    page = shown("example", "narrow", "dark")
    looks.toggle_tables(page)
    assert page.locator("details:not([open])").count() == 0
    assert looks.overflow(page) <= 0
    assert page.locator("#neighbours-title ~ figcaption tbody tr").count() == 9
    looks.toggle_tables(page)
    assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize("by", ["hops", "nodes", "features"])
def test_bars_and_rows_add_up_to_the_logit(by):
    figure = contribution_figure(example(), by)
    bars = figure.data[0]["y" if by == "hops" else "x"]
    assert sum(bars) == pytest.approx(2.0)
    rows = [float(row[-1].replace(MINUS, "-")) for row in figure.rows]
    assert sum(rows[:-1]) == pytest.approx(rows[-1], abs=1e-3 * len(rows))
    assert figure.rows[-2][0] == "constant"
    assert len(figure.rows) == len(bars) + 1  # the sum


def test_figures_are_valid_for_plotly():
    graph_objects = pytest.importorskip("plotly.graph_objects")
    cases = (example_values(), contrast_values(), alone_values(), hostile_values(LONG))
    for values in map(typed, cases):
        for figure in (
            neighbourhood_figure(values),
            class_figure(values),
            *[contribution_figure(values, by) for by in ("hops", "nodes", "features")],
        ):
            text = json.dumps({"data": figure.data, "layout": figure.layout}, allow_nan=False)
            graph_objects.Figure(json.loads(re.sub(r'"@[a-z]+(/[\d.]+)?"', '"black"', text)))
            assert figure.summary
            assert all(len(row) == len(figure.columns) for row in figure.rows)


def test_nodes_are_on_the_ring_of_their_distance():
    drawn = example().neighbourhood
    nodes = [*drawn.nodes, NodePart(99, 99, None, None, 0.1)]
    places = positions(nodes, drawn.edges)
    for node in drawn.nodes:
        assert math.hypot(*places[node.index]) == pytest.approx(node.distance, abs=1e-3)
    assert math.hypot(*places[99]) == pytest.approx(4, abs=1e-3)
    assert len(set(places.values())) == len(places)


def test_decimals_let_numbers_be_added_up_by_eye():
    hop = {"hop": 0, "coefficient": 1.0, "contribution": -4.0}
    values = example_values() | {"logit": 3.2, "hops": [hop]}
    assert words.decimals(typed(values)) == 3
    values |= {"logit": 0.001, "hops": [hop | {"contribution": 0.02}]}
    assert words.decimals(typed(values)) == 5


def test_the_network_is_forbidden():
    text = explanation_page(example())
    assert text.startswith("<!doctype html>")
    assert "Content-Security-Policy\" content=\"default-src 'none'; " in text
    assert "To make this page again" not in text
