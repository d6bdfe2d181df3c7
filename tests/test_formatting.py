"""What objects show of themselves in notebooks and with Rich."""

import io

import pytest
from rich.console import Console
from tests.plots.conftest import untidy

from hoplite import train
from hoplite.explain import explain
from hoplite.formatting import MINUS, Description, Table


@pytest.fixture(scope="module")
def graph():
    return untidy()


def printed(value) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(value)
    return out.getvalue()


def rows(html: str) -> str:
    return html.replace("<bdi>", "").replace("</bdi>", "")


@pytest.mark.parametrize("hops", [3, 11, 30])
def test_tables_of_an_explanation_add_up(graph, hops):
    """However many hops there are: the weakest are one row together."""
    model = train(graph, "lgc", hops=hops, epochs=10, bias=True).model
    found = explain(model, graph, graph.node_ids[3])
    for table in found._describe().tables:
        *parts, total = table.first_rows
        assert total[0] == "sum"
        assert len(parts) < 12
        numbers = [float(row[-1].replace(MINUS, "-")) for row in parts]
        decimals = len(total[-1].split(".")[1])
        whole = float(total[-1].replace(MINUS, "-"))
        assert sum(numbers) == pytest.approx(whole, abs=12 * 10.0**-decimals)
    shown = [row[0] for row in found._describe().tables[0].rows]
    assert (f"the other {hops - 8}" in shown) == (hops > 9)


def test_long_tables_and_names_are_cut():
    shown = Description("t", {"fact": "y" * 900}, [Table(["a", "b"], [["x" * 500, "1"]] * 40)])
    for text in (shown.html(), printed(shown.rich())):
        assert "and 28 more" in text
        assert "x" * 90 not in text
        assert "y" * 400 not in text


def test_marks_of_rich_are_text():
    shown = Description(
        "[bold]t[/bold]", {"a": "[red]b"}, [Table(["[x]"], [["[/x]"]])], ["[link=x]y"]
    )
    text = printed(shown.rich())
    for mark in ("[bold]t[/bold]", "[red]b", "[x]", "[/x]", "[link=x]y"):
        assert mark in text
