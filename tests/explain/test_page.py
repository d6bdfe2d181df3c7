"""The page of an explanation, made from values by hand, in a real Chromium."""

import msgspec
import pytest

from hoplite.explain import Summary
from hoplite.explain.rendering import contribution_bars, explanation_page, margin_table
from hoplite.explain.summary import (
    Changes,
    EdgeFlip,
    ExplainedModel,
    ExplainedNode,
    FeaturePart,
    Flips,
    HopPart,
    Neighbourhood,
    NodeGroup,
    NodeName,
    NodePart,
    Output,
    PairPart,
    Removals,
    Strongest,
    ValueFlip,
)
from hoplite.formatting import MINUS

SIZES = {"wide": 1280, "narrow": 360}
WIDE = ("wide", "light")
COMMAND = "hoplite explain cora-lgc cora --node 1701 --out page.html"
NAMES = ("Neural_Networks", "Theory", "Case_Based")
PLOTS = ["by-nodes", "by-hops", "by-features", "by-class"]
LONG = "a very long name " * 20


def example():
    """0.25 + 1.75 by hop, by node and by feature; three nodes are beyond five neighbours."""
    amounts = [0.52, 0.61, 0.43, -0.18, 0.09, 0.0, 0.34, -0.27, 0.02]
    nodes = tuple(
        NodePart(i, 1701 + i, NAMES[amount < 0] if i % 4 else None, far, amount)
        for i, (amount, far) in enumerate(zip(amounts, [0, 1, 1, 1, 1, 1, 2, 2, 3], strict=True))
    )
    top = tuple(sorted(nodes, key=lambda node: -abs(node.contribution))[:6])
    edges = [*((0, i) for i in range(1, 6)), (1, 6), (2, 6), (3, 7), (7, 8), (1, 2)]
    words = [("network", 1.1), ("neural", 0.5), ("feature 34", -0.4), ("case", -0.1)]
    hops = enumerate([(0.9, 0.4), (1.2, 1.0), (-0.3, -0.25), (0.5, 0.6)])
    flip = EdgeFlip(NodeName(0, 1701), NodeName(1, 1702), NAMES[1], -0.12)
    pairs = [
        PairPart(1, 1702, 0, "network", 0.31, 0.25),
        PairPart(7, 1708, 34, "feature 34", -0.22, "?"),
    ]
    features = tuple(
        FeaturePart(17 * i, name, 0.05 * i, amount) for i, (name, amount) in enumerate(words)
    )
    changes = [
        ValueFlip(0, "network", 0.05, 0.0123, "below", NAMES[1]),
        ValueFlip(34, "town", "Ulm", "Bonn", "equal", NAMES[2]),
    ]
    rest = 1.75 - sum(node.contribution for node in top)
    classes = map(Output, NAMES, (2.0, 1.0, -0.8), (0.7, 0.2, 0.0425))
    return Summary(
        dataset="cora",
        model=ExplainedModel("lgc", 3, "renormalized", "monomial", "classification", 1.5),
        node=ExplainedNode(0, 1701, NAMES[0], NAMES[0], 0.7),
        class_=NAMES[0],
        against=None,
        margin=2.0,
        constant=0.25,
        residual=-2e-7,
        classes=Strongest(tuple(classes), 4, 0.0575),
        hops=tuple(HopPart(i, c, amount) for i, (c, amount) in hops),
        nodes=Strongest(
            top, 212, rest, (NodeGroup(1, 2, 0.5 * rest), NodeGroup(2, 210, 0.5 * rest))
        ),
        features=Strongest(features, 1429, 0.65),
        node_features=tuple(pairs),
        neighbourhood=Neighbourhood(nodes, tuple((a, b, 1.0) for a, b in edges)),
        flips=Flips(Removals(2000, 5120, (flip,)), Removals(900, 900, ()), 1.0, False),
        changes=Changes(4, tuple(changes)),
    )


def alone():
    """A node without neighbours, features or anything else."""
    node = NodePart(0, 1701, None, 0, 0.0)
    return msgspec.structs.replace(
        example(),
        margin=0.0,
        constant=0.0,
        hops=(HopPart(0, 1.0, 0.0),),
        nodes=Strongest((), 0, 0.0),
        features=Strongest((), 0, 0.0),
        node_features=(),
        neighbourhood=Neighbourhood((node,), ()),
        flips=Flips(Removals(0, 0, ()), Removals(0, 0, ()), 1.0, False),
    )


def hostile(name):
    """The example with ``name`` wherever there is a name, and long ones beside it."""
    values = example().to_dict()
    values["dataset"] = values["class"] = values["node"]["predicted"] = name
    values["node"]["label"] = values["classes"]["top"][0]["name"] = name
    values["against"] = values["classes"]["top"][1]["name"] = LONG
    values["node"]["id"] = name
    for node in (*values["nodes"]["top"][1:], *values["neighbourhood"]["nodes"]):
        node |= {"id": name, "label": name}
    values["nodes"]["top"][0] |= {"id": LONG.replace(" ", "x"), "label": LONG}
    values["nodes"]["top"][1]["id"] = "@ink"  # as the page calls one of its colours
    values["features"]["top"][0]["name"] = values["node_features"][0]["name"] = name
    values["features"]["top"][1]["name"] = LONG.replace(" ", "_")
    values["node_features"][1]["id"] = name
    flip = values["flips"]["edges"]["found"][0]
    flip["source"]["id"] = flip["becomes"] = name
    change, other = values["changes"]["found"]
    change["name"] = other["to"] = other["becomes"] = name
    change["value"] = other["name"] = LONG
    return msgspec.convert(values, Summary)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, hostile_text):
    folder = tmp_path_factory.mktemp("explanation")
    made = {"example": example(), "alone": alone(), "hostile": hostile(hostile_text)}
    for name, values in made.items():
        text = f"{COMMAND} {hostile_text}" if name == "hostile" else COMMAND
        page = explanation_page(values, command=text)
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


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
        """() => [...document.querySelectorAll("figure[id]")].map((figure) => ({
          id: figure.id, width: figure.clientWidth,
          bars: [...figure.querySelectorAll(".track i")].map((bar) => bar.clientWidth) }))"""
    )
    assert [plot["id"] for plot in plots] == (PLOTS if name != "alone" else ["by-hops", "by-class"])
    for plot in plots:
        assert plot["bars"], plot
        assert 200 < plot["width"] < SIZES[size]
    drawn = page.locator("#neighbours .node")
    assert drawn.count() == (1 if name == "alone" else 9)
    assert page.locator("#neighbours").bounding_box()["width"] > 200
    assert looks.overflow(page) <= 0
    assert looks.weak(page) == []


@pytest.mark.parametrize("name", ["example", "hostile", "alone"])
def test_structure(shown, looks, name):
    looks.check_structure(shown(name, "narrow", "dark"))


def test_hostile_names_are_text(shown, hostile_text):
    page = shown("hostile", *WIDE)
    assert page.locator("script").count() == 2
    assert page.locator("img, [onerror]").count() == 0
    for place in ("h1 ~ .headline", "#pairs td", "#flips td", "#about pre"):
        assert hostile_text in page.locator(place).first.text_content()
    assert hostile_text in page.locator("#flips table").last.text_content()
    assert page.locator("#neighbours title").first.text_content().startswith("</script>")


@pytest.mark.parametrize("by", ["hops", "nodes", "features"])
def test_bars_and_rows_add_up_to_the_margin(by):
    bars, rows = contribution_bars(example(), by), margin_table(example(), by).rows
    assert sum(bar.amount for bar in bars) == pytest.approx(2.0)
    amounts = [float(row[-1].replace(MINUS, "-")) for row in rows]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=1e-3 * len(rows))
    assert rows[-2][0] == "constant"
    assert len(rows) == len(bars) + 1  # the sum


def test_a_small_page_without_network():
    text = explanation_page(example())
    assert text.startswith("<!doctype html>")
    assert len(text) < 200_000
    assert "Content-Security-Policy\" content=\"default-src 'none'; " in text
