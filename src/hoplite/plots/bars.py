"""Named amounts as bars: what speaks for something to one side, what against it to the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hoplite.formatting import short
from hoplite.plots.base import Drawing, axis, layout, safe

NAME = 22  # characters of a name next to a bar
FAINT = 0.45  # the opacity of bars that stand for many, or for none


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

    def trace(self) -> dict:
        """What upright and lying bars share."""
        pairs = zip(self.names, self.texts, strict=True)
        return {
            "type": "bar",
            "marker": {"color": self.tints},
            "customdata": [f"{safe(short(name, 60))}: {text}" for name, text in pairs],
            "hovertemplate": "%{customdata}<extra></extra>",
        }


def tint(amount: float, faint: bool = False) -> str:
    """The colour of an amount by its sign."""
    name = "@push" if amount >= 0 else "@pull"
    return f"{name}/{FAINT}" if faint else name


def upright(bars: Bars, unit: str = "contribution") -> Drawing:
    """Upright bars: hops are in order, and may be many."""
    x = axis("hop", type="category", showgrid=False, tickangle=0)
    look = layout(x, axis(unit, zeroline=True), hovermode="closest", bargap=0.25)
    names = [safe(name) for name in bars.names]
    return Drawing([{**bars.trace(), "x": names, "y": bars.amounts}], look)


def lying(bars: Bars, unit: str = "contribution", *, outside: bool = False) -> Drawing:
    """Bars that lie, the first at the top, each with its name and its figure.

    Figures ``outside`` of their bars can be read on any ground.
    """
    places = list(range(len(bars.names)))
    least, most = min([0.0, *bars.amounts]), max([0.0, *bars.amounts])
    room = (0.3 if outside else 0.12) * (most - least or 1.0)
    inside = ["@ink" if tint.endswith(f"/{FAINT}") else "@card" for tint in bars.tints]
    data = {
        **bars.trace(),
        "orientation": "h",
        "x": bars.amounts,
        "y": places,
        "text": bars.texts,
        "textposition": "outside" if outside else "auto",
        "textangle": 0,
        "insidetextanchor": "end",
        "insidetextfont": {"size": 11, "color": inside},
        "outsidetextfont": {"size": 11, "color": "@muted"},
        "cliponaxis": False,
    }
    ends = [least - room * (least < 0), most + room * (most > 0 or not least)]
    look = layout(
        axis(unit, zeroline=True, range=ends, nticks=6),
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
