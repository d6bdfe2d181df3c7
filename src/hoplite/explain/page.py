"""An explanation as one HTML page: no network, no other file, light and dark, for any screen."""

from __future__ import annotations

import json
import os
from importlib.resources import files

from hoplite.explain import text
from hoplite.explain.pictures import (
    HEADINGS,
    class_axis,
    class_bars,
    contribution_bars,
    contributions,
    neighbourhood,
    strongest,
)
from hoplite.explain.summary import Summary
from hoplite.files import atomic_write_text
from hoplite.formatting import listing, plural, signed
from hoplite.models import idle_settings
from hoplite.plots.bars import lying
from hoplite.plots.page import PageFigure, render


def write_explanation(values: Summary, out: str | os.PathLike[str], *, command: str = "") -> None:
    """Write :func:`explanation_page` as the file ``out``, completely or not at all."""
    atomic_write_text(out, explanation_page(values, command=command))


def explanation_page(values: Summary, *, command: str = "") -> str:
    """The whole page of what ``Explanation.summary`` returned; ``command`` makes it again.

    Everything from ``values`` is escaped: names are only ever text.
    """
    bars = {
        by: [contribution_figure(values, by)] if text.parts(values, by) else []
        for by in ("nodes", "hops", "features")
    }
    plots = {
        "neighbourhood": [neighbourhood_figure(values), *bars["nodes"]],
        "parts": [*bars["hops"], *bars["features"]],
        "classes": [class_figure(values)],
    }
    source = files("hoplite.explain").joinpath("templates", "explanation.html")
    return render(
        source.read_text(encoding="utf-8"),
        plots,
        command=command,
        names=text,
        settings=_settings(values),
        strongest=strongest(values),
        values=values,
        words=text,
    )


def _settings(values: Summary) -> list[str]:
    """The settings of the model, without those that it does not have."""
    hidden = {"model"} | idle_settings(values.model.model)
    return [
        f"{name.replace('_', ' ')} = {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.model.to_dict().items()
        if value is not None and name not in hidden
    ]


def contribution_figure(values: Summary, by: str) -> PageFigure:
    """A bar per part of the logit, ``by`` "hops", "nodes" or "features"; they add up to it."""
    drawn = contributions(values, by)
    height = "22rem" if by == "hops" else f"{contribution_bars(values, by).height}px"
    table = text.parts_table(values, by)
    return PageFigure(
        f"by-{by}", HEADINGS[by], _summary(values, by), drawn.data, drawn.layout, *table,
        height=height,
    )  # fmt: skip


def _summary(values: Summary, by: str) -> str:
    size = signed(values.logit, text.decimals(values))
    total = f"All together are {text.quantity(values)}, {size}."
    shown = [part for part in text.parts(values, by) if part.kind == "one"]
    if not shown:
        return total
    plus = sum(part.contribution > 0 for part in shown)
    minus = sum(part.contribution < 0 for part in shown)
    count = plural(len(shown), by[:-1])
    return f"Of {count} shown, {plus} for it and {minus} against. {total}"


def class_figure(values: Summary) -> PageFigure:
    """The probability of every class; of many, the most probable and the others together."""
    bars = class_bars(values)
    drawn = lying(bars, class_axis(values))
    top = listing(
        [f"{text.short(c.name)} with {text.percent(c.probability)}" for c in values.classes[:2]]
    )
    first = "The most probable" if values.threshold is None else "The predicted one first"
    return PageFigure(
        "by-class", "Probability of each class", f"{first}: {top}.", drawn.data,
        drawn.layout, *text.class_table(values), height=f"{bars.height}px",
    )  # fmt: skip


def neighbourhood_figure(values: Summary) -> PageFigure:
    """The neighbourhood: area by the size of a contribution, colour by its sign and size."""
    drawn = neighbourhood(values)
    nodes, edges = values.neighbourhood.nodes, values.neighbourhood.edges
    plus = sum(node.contribution > 0 for node in nodes)
    minus = sum(node.contribution < 0 for node in nodes)
    summary = (
        f"{plural(len(nodes), 'node')} and {plural(len(edges), 'edge')}: those that contribute "
        f"most, and what connects them. {plus} speak for {text.short(values.class_)}, "
        f"{minus} against."
    )
    return PageFigure(
        "neighbours", "Who the prediction listens to", summary, drawn.data, drawn.layout,
        *text.neighbourhood_table(values), height="min(92vw, 34rem)",
    )  # fmt: skip
