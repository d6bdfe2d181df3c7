"""The parts of a logit as bars, and the picture of a whole explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoplite.explain.neighbourhood import neighbourhood
from hoplite.explain.summary import Summary
from hoplite.explain.text import HEADINGS as HEADINGS
from hoplite.explain.text import decimals, parts, percent, quantity, short, title
from hoplite.plots.bars import FAINT, Bars, lying, tint, upright
from hoplite.plots.base import Drawing
from hoplite.plots.panels import MARGINS, below
from hoplite.plots.theme import figure
from hoplite.words import signed

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CLASSES = 20
HOPS_HIGH = 180  # pixels of upright bars
VIEWS = (*HEADINGS, "neighbourhood", "classes")


def contribution_bars(values: Summary, by: str) -> Bars:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    shown, digits = parts(values, by), decimals(values)
    bars = Bars()
    for part in shown:
        amount = part.contribution
        bars.add(part.name, amount, tint(amount, part.kind != "one"), signed(amount, digits))
    return bars


def contributions(values: Summary, by: str) -> Drawing:
    """The bars of :func:`contribution_bars`: hops stand in their order, the others lie."""
    return (upright if by == "hops" else lying)(contribution_bars(values, by))


def class_bars(values: Summary) -> Bars:
    """The probability of every class in percent; of many, the first and the others together."""
    first, others = values.classes[:MOST_CLASSES], values.classes[MOST_CLASSES:]
    tints = {values.against: "@pull", values.class_: "@push"}
    bars = Bars()
    for one in first:
        chance = one.probability
        bars.add(one.name, 100 * chance, tints.get(one.name, "@other"), percent(chance))
    if others:
        rest = sum(c.probability for c in others)
        bars.add(f"the other {len(others):,}", 100 * rest, f"@other/{FAINT}", percent(rest))
    return bars


def class_axis(values: Summary) -> str:
    """The title of the axis of :func:`class_bars`, with a chosen threshold."""
    border = values.threshold
    if border is None:
        return "probability, %"
    return f"probability, % (threshold of {short(border.class_)}: {percent(border.probability)})"


def explanation_figure(values: Summary, by: str | None = None) -> Figure:
    """The picture of one view of ``VIEWS``; hops, nodes and features below each other if None."""
    what = quantity(values)
    if values.against is not None:  # over whom, the title says
        what = "the lead" if values.threshold is None else "the lead over the threshold"
    told = f"{title(values)}: {what} is {signed(values.logit, decimals(values))}"
    if by == "neighbourhood":
        return figure(neighbourhood(values), title(values), height=560)
    if by == "classes":
        bars = class_bars(values)
        drawn = _outside(lying(bars, class_axis(values)))
        return figure(drawn, title(values), height=bars.height)
    shown = [one for one in HEADINGS if one == by or (by is None and parts(values, one))]
    drawings = [_outside(contributions(values, one)) for one in shown]
    heights = [
        HOPS_HIGH if one == "hops" else contribution_bars(values, one).bars_height for one in shown
    ]
    if by is not None:
        return figure(drawings[0], told, height=max(320, heights[0] + MARGINS))
    return figure(below(drawings, [HEADINGS[one] for one in shown], heights), told)


def _outside(drawing: Drawing) -> Drawing:
    """The figures of lying bars beside them: there their colour is read on any ground."""
    (bars,) = drawing.data
    if "text" in bars:
        bars["textposition"] = "outside"
        least, most = drawing.layout["xaxis"]["range"]
        more = 0.18 * (most - least)
        ends = [least - more * (least < 0), most + more * (most > 0)]
        drawing.layout["xaxis"]["range"] = ends
    return drawing
