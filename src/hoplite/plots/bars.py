"""Named amounts as bars: what speaks for something to one side, what against it to the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hoplite.plots.base import Drawing, axis, layout, safe
from hoplite.shown import short

NAME = 22  # characters of a name beside a bar
FAINT = 0.45  # the opacity of bars that stand for many, or for none
ROOM = 0.12  # of the axis, on a side that has bars, for the figures of short ones


@dataclass
class Bars:
    """Bars to draw: what each is called, its length, its colour and its length as text."""

    names: list[str] = field(default_factory=list)
    amounts: list[float] = field(default_factory=list)
    tints: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, name: str, amount: float, tint: str, text: str) -> None:
        self.names.append(name)
        self.amounts.append(amount)
        self.tints.append(tint)
        self.texts.append(text)

    @property
    def bars_height(self) -> int:
        """In pixels, of the bars of :func:`lying` alone."""
        return 26 * len(self.names) + 14

    @property
    def height(self) -> int:
        """In pixels, of :func:`lying`, with its axis."""
        return self.bars_height + 56


def tint(amount: float, faint: bool = False) -> str:
    """The colour of an amount by its sign."""
    name = "@push" if amount >= 0 else "@pull"
    return f"{name}/{FAINT}" if faint else name


def upright(bars: Bars, unit: str = "contribution") -> Drawing:
    """Upright bars: hops are in order, and may be many."""
    told = [f"hop {name}" if name.isdigit() else name for name in bars.names]
    data = {
        "type": "bar",
        "x": [safe(name) for name in bars.names],
        "y": bars.amounts,
        "marker": {"color": bars.tints},
        "customdata": [
            f"{safe(name)}: {text}" for name, text in zip(told, bars.texts, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    look = layout(
        axis("hop", type="category", showgrid=False, tickangle=0),
        axis(unit, zeroline=True),
        hovermode="closest",
        bargap=0.25,
    )
    return Drawing([data], look)


def lying(bars: Bars, unit: str = "contribution") -> Drawing:
    """Bars that lie, the first at the top, each with its name and its figure."""
    places = list(range(len(bars.names)))
    least, most = min([0.0, *bars.amounts]), max([0.0, *bars.amounts])
    room = ROOM * (most - least or 1.0)
    faint = [colour.endswith(f"/{FAINT}") for colour in bars.tints]
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
    return Drawing([data], look)
