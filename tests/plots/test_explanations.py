"""Pictures of explanations: the bars add up to the logit, and names are only text."""

import itertools
import json
import re

import numpy as np
import pytest

from hoplite.errors import ConfigError
from hoplite.explain import explain
from hoplite.plots.base import safe
from hoplite.plots.base import COLOURS, themed

go = pytest.importorskip("plotly.graph_objects")


@pytest.fixture(scope="module")
def found(graph, trained):
    return explain(trained["lgc"].model, graph, graph.node_ids[int(graph.split.test[0])])


@pytest.mark.parametrize("top", [1, 4, 200])
def test_every_panel_adds_up_to_the_logit(found, top):
    figure = found.plot(top=top)
    assert len(figure.data) == 3
    for bars in figure.data:
        amounts = bars.x if bars.orientation == "h" else bars.y
        assert sum(amounts) == pytest.approx(found.logit, abs=1e-4)
    hops = figure.data[0]
    np.testing.assert_allclose(np.array(hops.y)[: len(found.by_hop)], found.by_hop)


@pytest.mark.parametrize("top", [1, 4, 200])
def test_panels_are_below_each_other_with_room_for_every_bar(found, top):
    """Each over the whole width, of a height that goes with its bars, and none over another."""
    figure = found.plot(top=top)
    own, data = figure.layout, figure.data
    drawn = own.height - own.margin.t - own.margin.b
    ends = [own[f"yaxis{number}"].domain for number in ("", 2, 3)]
    assert all(own[f"xaxis{number}"].domain == (0, 1) for number in ("", 2, 3))
    assert ends[0][1] == 1
    assert ends[-1][0] == 0
    for above, under in itertools.pairwise(ends):
        assert drawn * (above[0] - under[1]) >= 70  # an axis with its title, and a heading
    for bars, (low, high) in zip(data[1:], ends[1:], strict=True):
        assert 26 <= drawn * (high - low) / len(bars.y) <= 40
    assert 150 <= drawn * (ends[0][1] - ends[0][0]) <= 200
    lines = own.title.text.split("<br>")
    assert max(map(len, lines)) <= 44 + 20  # names may hold marks that are written longer
    assert own.margin.t >= 19 * len(lines) + 30


@pytest.mark.parametrize("by", ["hops", "nodes", "features"])
def test_one_view(found, by):
    (bars,) = found.plot(by).data
    part = found.top(by)[0]
    amounts = np.array(bars.x if bars.orientation == "h" else bars.y)
    assert np.abs(amounts).max() >= abs(part.contribution) - 1e-9
    assert np.isclose(amounts, part.contribution).any()


def test_neighbourhood_and_classes(found):
    assert isinstance(found.plot("neighbourhood"), go.Figure)
    (bars,) = found.plot("classes").data
    assert sum(bars.x) == pytest.approx(100, abs=1e-3)
    with pytest.raises(ConfigError, match=r"by is 'hop'.*Did you mean 'hops'"):
        found.plot("hop")


def texts(value):
    """All texts of a figure, but templates of the mouse, which have names in customdata."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from () if key == "template" else texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


ALLOWED = re.compile(r"</?b>|<br>|<extra></extra>")  # our own mark-up


def test_names_are_text_in_every_picture(graph, trained, found):
    model = trained["jacobiconv"]
    figures = [
        found.plot(), found.plot("neighbourhood"), found.plot("classes"), model.plot_history(),
        model.plot_filter(), model.plot_confusion(), model.plot_reliability(),
    ]  # fmt: skip
    seen = ""
    for figure in figures:
        for text in texts(json.loads(figure.to_json())):
            own = ALLOWED.sub("", text)
            assert "<" not in own, text
            assert "\u202e" not in text
            seen += text
    for name in ("&lt;b&gt;bold", "&lt;img", "&lt;i&gt;age", "&lt;u&gt;node", "&lt;script&gt;"):
        assert name in seen
    assert "x" * 100 not in seen  # long names are cut


def test_colours_are_resolved_and_names_are_not():
    assert safe("<@ink>") == "&lt;@ink&gt;"
    drawn = themed({"name": "@ink", "colorscale": [[0, "@least"], [1, "@most"]]})
    assert drawn == {
        "name": "@ink", "colorscale": [[0, COLOURS["least"]], [1, COLOURS["most"]]]
    }  # fmt: skip


def test_no_colour_is_left_as_a_name(trained, found):
    for figure in (found.plot(), found.plot("neighbourhood"), trained["lgc"].plot_history()):
        assert not re.search(r'"@[a-z]+(/[\d.]+)?"', figure.to_json())
