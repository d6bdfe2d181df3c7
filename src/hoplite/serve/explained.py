"""An explanation as the server tells it: ids are texts, as in all its answers.

Whole numbers above 2^53 lose digits in a browser, and then name another node.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from hoplite.explain.summary import NodePart, PairPart, ShownNode, Summary

T = TypeVar("T", NodePart, PairPart, ShownNode)


def with_text_ids(told: Summary) -> Summary:
    """The same, with every id as its text; removals, which the server does not search, are left."""
    return replace(
        told,
        node=_text(told.node),
        nodes=replace(told.nodes, top=tuple(map(_text, told.nodes.top))),
        node_features=replace(told.node_features, top=tuple(map(_text, told.node_features.top))),
        neighbourhood=replace(
            told.neighbourhood, nodes=tuple(map(_text, told.neighbourhood.nodes))
        ),
    )


def _text(part: T) -> T:
    return replace(part, id=str(part.id))
