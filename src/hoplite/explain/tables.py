"""The numbers of an explanation as rows of tables, the same on its page and in the terminal.

``values`` is always what :meth:`hoplite.explain.explanation.Explanation.to_dict` returns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hoplite.words import NOTHING, number, signed

LONGEST = 80  # characters of a name in a sentence or a table

Table = tuple[list[str], list[list[str]]]  # the columns, and rows of as many cells


@dataclass(frozen=True)
class Part:
    """One of the numbers that add up to the logit: a hop, node or feature, the rest, the constant.

    ``cells`` is what a table shows between the name and the contribution.
    """

    name: str
    contribution: float
    cells: tuple[str, ...]
    kind: str = "one"  # or "rest", or "constant"


def short(name: object, longest: int = LONGEST) -> str:
    """A name of at most ``longest`` characters; what is cut is cut from its middle.

    >>> short("renormalized", 7), short(17)
    ('ren…zed', '17')
    """
    name = str(name)
    if len(name) <= longest:
        return name
    end = (longest - 1) // 2
    return f"{name[: longest - 1 - end]}…{name[-end:]}"


def feature_name(name: str | None, index: int) -> str:
    """
    >>> feature_name("age", 3), feature_name(None, 3)
    ('age', 'feature 3')
    """
    return short(name) if name else f"feature {index}"


def decimals(values: dict[str, Any]) -> int:
    """Decimals for all the numbers of an explanation, so that they can be added up by eye.

    >>> decimals({"logit": 3.2, "hops": [{"contribution": -4.0}]})
    3
    >>> decimals({"logit": 0.001, "hops": [{"contribution": 0.02}]})
    5
    """
    largest = max(abs(values["logit"]), *(abs(hop["contribution"]) for hop in values["hops"]))
    return min(12, max(2, 3 - math.floor(math.log10(largest)))) if largest > 0 else 3


def percent(share: float) -> str:
    """A probability; only what is certain is 0 or 100.

    >>> percent(0.8734), percent(0.99997), percent(0.0)
    ('87.3 %', 'over 99.9 %', '0.0 %')
    """
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return "over 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def parts(values: dict[str, Any], by: str) -> list[Part]:
    """The numbers that add up to the logit, ``by`` "hops", "nodes" or "features"."""
    if by == "hops":
        shown = [
            Part(str(hop["hop"]), hop["contribution"], (number(hop["coefficient"]),))
            for hop in values["hops"]
        ]
    elif by == "nodes":
        shown = [
            Part(short(node["id"]), node["contribution"], _class_and_distance(node))
            for node in values["nodes"]["top"]
        ]
    else:
        shown = [
            Part(
                feature_name(feature["name"], feature["index"]),
                feature["contribution"],
                (number(feature["value"]),),
            )
            for feature in values["features"]["top"]
        ]
    blank = ("",) * (2 if by == "nodes" else 1)
    if by != "hops" and values[by]["others"]:
        others, rest = values[by]["others"], values[by]["rest"]
        shown.append(Part(f"the other {others:,}", rest, blank, "rest"))
    if values["constant"]:
        shown.append(Part("constant", values["constant"], blank, "constant"))
    return shown


def parts_table(values: dict[str, Any], by: str) -> Table:
    """:func:`parts` as a table that ends with the sum."""
    columns = {
        "hops": ["hop", "coefficient"],
        "nodes": ["node", "label", "distance"],
        "features": ["feature", "value at the node"],
    }[by]
    places = decimals(values)
    rows = [
        [part.name, *part.cells, signed(part.contribution, places)] for part in parts(values, by)
    ]
    total = ["sum", *[""] * (len(columns) - 1), signed(values["logit"], places)]
    return [*columns, "contribution"], [*rows, total]


def neighbourhood_table(values: dict[str, Any]) -> Table:
    places = decimals(values)
    return ["node", "label", "distance", "contribution"], [
        [short(node["id"]), *_class_and_distance(node), signed(node["contribution"], places)]
        for node in values["neighbourhood"]["nodes"]
    ]


def pair_table(values: dict[str, Any]) -> Table:
    """The strongest pairs of a node and one of its features."""
    places = decimals(values)
    return ["node", "feature", "contribution"], [
        [
            short(pair["id"]),
            feature_name(pair["name"], pair["feature"]),
            signed(pair["contribution"], places),
        ]
        for pair in values["node_features"]["top"]
    ]


def class_table(values: dict[str, Any]) -> Table:
    places = decimals(values)
    return ["class", "logit", "probability"], [
        [short(c["name"]), signed(c["logit"], places), percent(c["probability"])]
        for c in values["classes"]
    ]


def flip_table(values: dict[str, Any]) -> Table:
    """The removals that change the prediction, with how far its class then is behind."""
    places, found = decimals(values), []
    for edge in values["flips"]["edges"]["found"]:
        name = f"edge {short(edge['source']['id'])} {NOTHING} {short(edge['target']['id'])}"
        found.append((name, edge))
    found += [
        (f"node {short(node['node']['id'])}", node) for node in values["flips"]["nodes"]["found"]
    ]
    return ["remove", "becomes", "margin"], [
        [name, short(flip["becomes"]), signed(flip["margin"], places)] for name, flip in found
    ]


def _class_and_distance(node: dict[str, Any]) -> tuple[str, str]:
    label, distance = node["label"], node["distance"]
    return (
        NOTHING if label is None else short(label),
        NOTHING if distance is None else str(distance),
    )
