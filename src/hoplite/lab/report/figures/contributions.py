"""The parts of a logit as bars: what speaks for it to one side, what against it to the other."""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.explain.summary import Summary
from hoplite.explain.text import (
    Table,
    class_table,
    decimals,
    parts,
    parts_table,
    percent,
    quantity,
    short,
)
from hoplite.lab.report.figures.base import Figure, axis, layout, safe
from hoplite.words import listing, plural, signed

HEADINGS = {"hops": "By hop", "nodes": "By node", "features": "By feature"}
NAME = 22  # characters of a name beside a bar
MOST_CLASSES = 20
FAINT = 0.45  # the opacity of bars that stand for many, or for none
ROOM = 0.12  # of the axis, on a side that has bars, for the figures of short ones


@dataclass
class Bars:
    """Bars to draw: what each is called, its length, its colour and its length as text."""

    names: list[str]
    amounts: list[float]
    tints: list[str]
    texts: list[str]

    def add(self, name: str, amount: float, tint: str, text: str) -> None:
        self.names.append(name)
        self.amounts.append(amount)
        self.tints.append(tint)
        self.texts.append(text)


def contribution_figure(values: Summary, by: str) -> Figure:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    shown, digits = parts(values, by), decimals(values)
    bars = Bars(
        [part.name for part in shown],
        [part.contribution for part in shown],
        [_tint(part.contribution, part.kind != "one") for part in shown],
        [signed(part.contribution, digits) for part in shown],
    )
    draw = _columns if by == "hops" else _rows
    return draw(f"by-{by}", HEADINGS[by], _summary(values, by), parts_table(values, by), bars)


def class_figure(values: Summary) -> Figure:
    """The probability of every class; of many, the most probable and the others together."""
    first, others = values.classes[:MOST_CLASSES], values.classes[MOST_CLASSES:]
    tint = {values.against: "@pull", values.class_: "@push"}
    bars = Bars(
        [c.name for c in first],
        [100 * c.probability for c in first],
        [tint.get(c.name, "@other") for c in first],
        [percent(c.probability) for c in first],
    )
    if others:
        rest = sum(c.probability for c in others)
        bars.add(f"the other {len(others):,}", 100 * rest, f"@other/{FAINT}", percent(rest))
    top = listing([f"{short(c.name)} with {percent(c.probability)}" for c in first[:2]])
    heading, summary = "Probability of each class", f"The most probable: {top}."
    return _rows("by-class", heading, summary, class_table(values), bars, "probability, %")


def _columns(identifier: str, heading: str, summary: str, table: Table, bars: Bars) -> Figure:
    """Upright bars: hops are in order, and may be many."""
    told = [f"hop {name}" if name.isdigit() else name for name in bars.names]
    data = {
        "type": "bar",
        "x": bars.names,
        "y": bars.amounts,
        "marker": {"color": bars.tints},
        "customdata": [f"{name}: {text}" for name, text in zip(told, bars.texts, strict=True)],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    look = layout(
        axis("hop", type="category", showgrid=False, tickangle=0),
        axis("contribution", zeroline=True),
        hovermode="closest",
        bargap=0.25,
    )
    return Figure(identifier, heading, summary, [data], look, *table, height="22rem")


def _rows(
    identifier: str,
    heading: str,
    summary: str,
    table: Table,
    bars: Bars,
    unit: str = "contribution",
) -> Figure:
    """Bars that lie, the first at the top, each with its name and its figure."""
    places = list(range(len(bars.names)))
    least, most = min([0.0, *bars.amounts]), max([0.0, *bars.amounts])
    room = ROOM * (most - least or 1.0)
    faint = [tint.endswith(f"/{FAINT}") for tint in bars.tints]
    data = {
        "type": "bar",
        "orientation": "h",
        "x": bars.amounts,
        "y": places,
        "marker": {"color": bars.tints},
        "text": bars.texts,
        "textposition": "auto",
        "textangle": 0,
        "insidetextanchor": "end",
        "insidetextfont": {"size": 11, "color": ["@ink" if pale else "@card" for pale in faint]},
        "outsidetextfont": {"size": 11, "color": "@muted"},
        "cliponaxis": False,
        "customdata": [
            f"{safe(short(name, 60))}: {text}"
            for name, text in zip(bars.names, bars.texts, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    look = layout(
        axis(
            unit,
            zeroline=True,
            range=[least - room * (least < 0), most + room * (most > 0 or not least)],
            nticks=6,
        ),
        axis(
            "",
            range=[len(places) - 0.4, -0.6],
            tickvals=places,
            ticktext=[safe(short(name, NAME)) for name in bars.names],
            showgrid=False,
            zeroline=False,
        ),
        hovermode="closest",
        bargap=0.3,
    )
    height = f"{26 * len(places) + 70}px"
    return Figure(identifier, heading, summary, [data], look, *table, height=height)


def _tint(amount: float, faint: bool) -> str:
    name = "@push" if amount >= 0 else "@pull"
    return f"{name}/{FAINT}" if faint else name


def _summary(values: Summary, by: str) -> str:
    total = f"All together are {quantity(values)}, {signed(values.logit, decimals(values))}."
    shown = [part for part in parts(values, by) if part.kind == "one"]
    if not shown:
        return total
    plus = sum(part.contribution > 0 for part in shown)
    minus = sum(part.contribution < 0 for part in shown)
    count = plural(len(shown), by[:-1])
    return f"Of {count} shown, {plus} for it and {minus} against. {total}"
