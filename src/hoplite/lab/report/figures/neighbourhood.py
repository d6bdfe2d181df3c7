"""The nodes that a prediction rests on, as a figure of its page."""

from __future__ import annotations

from hoplite.explain.neighbourhood import neighbourhood
from hoplite.explain.summary import Summary
from hoplite.explain.text import neighbourhood_table, short
from hoplite.lab.report.figures.base import Figure
from hoplite.words import plural


def neighbourhood_figure(values: Summary) -> Figure:
    """The neighbourhood: area by the size of a contribution, colour by its sign and size."""
    drawn = neighbourhood(values)
    return Figure(
        "neighbours",
        "Who the prediction listens to",
        _summary(values),
        drawn.data,
        drawn.layout,
        *neighbourhood_table(values),
        height="min(92vw, 34rem)",
    )


def _summary(values: Summary) -> str:
    nodes, edges = values.neighbourhood.nodes, values.neighbourhood.edges
    plus = sum(node.contribution > 0 for node in nodes)
    minus = sum(node.contribution < 0 for node in nodes)
    return (
        f"{plural(len(nodes), 'node')} and {plural(len(edges), 'edge')}: those that contribute "
        f"most, and what connects them. {plus} speak for {short(values.class_)}, {minus} against."
    )
