"""Pictures of explanations: the bars add up to the logit, and names are only text."""

import json
import re

import numpy as np
import pytest

from hoplite.explain import explain

go = pytest.importorskip("plotly.graph_objects")


@pytest.fixture(scope="module")
def found(graph, trained):
    return explain(trained["lgc"].model, graph, graph.node_ids[int(graph.split.test[0])])


@pytest.mark.parametrize("top", [1, 4, 200])
def test_every_panel_adds_up_to_the_logit(found, top):
    figure = found.plot(top=top)
    assert len(figure.data) == 3
    for bars in figure.data:
        assert sum(bars.x) == pytest.approx(found.margin, abs=1e-4)
    hops = figure.data[0]
    np.testing.assert_allclose(np.array(hops.x)[: len(found.by_hop)], found.by_hop)


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
        found.plot(), found.plot("classes"), model.plot_history(),
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
