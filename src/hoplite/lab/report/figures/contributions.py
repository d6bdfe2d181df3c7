"""The parts of a logit as figures of its page."""

from __future__ import annotations

from hoplite.explain.pictures import (
    HEADINGS,
    class_axis,
    class_bars,
    contribution_bars,
    contributions,
)
from hoplite.explain.summary import Summary
from hoplite.explain.text import (
    class_table,
    decimals,
    parts,
    parts_table,
    percent,
    quantity,
    short,
)
from hoplite.lab.report.figures.base import Figure
from hoplite.plots.bars import lying
from hoplite.words import listing, plural, signed


def contribution_figure(values: Summary, by: str) -> Figure:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    drawn = contributions(values, by)
    height = "22rem" if by == "hops" else f"{contribution_bars(values, by).height}px"
    table = parts_table(values, by)
    return Figure(
        f"by-{by}", HEADINGS[by], _summary(values, by), drawn.data, drawn.layout, *table,
        height=height,
    )  # fmt: skip


def class_figure(values: Summary) -> Figure:
    """The probability of every class; of many, the most probable and the others together."""
    bars = class_bars(values)
    drawn = lying(bars, class_axis(values))
    top = listing([f"{short(c.name)} with {percent(c.probability)}" for c in values.classes[:2]])
    first = "The most probable" if values.threshold is None else "The predicted one first"
    return Figure(
        "by-class", "Probability of each class", f"{first}: {top}.", drawn.data,
        drawn.layout, *class_table(values), height=f"{bars.height}px",
    )  # fmt: skip


def _summary(values: Summary, by: str) -> str:
    total = f"All together are {quantity(values)}, {signed(values.logit, decimals(values))}."
    shown = [part for part in parts(values, by) if part.kind == "one"]
    if not shown:
        return total
    plus = sum(part.contribution > 0 for part in shown)
    minus = sum(part.contribution < 0 for part in shown)
    count = plural(len(shown), by[:-1])
    return f"Of {count} shown, {plus} for it and {minus} against. {total}"
