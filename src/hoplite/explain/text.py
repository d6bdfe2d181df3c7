"""An explanation in sentences and tables, for its page and the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hoplite.explain.summary import Changes, Flips, NodePart, Summary, ValueFlip
from hoplite.formatting import MAX_ROWS, NOTHING, listing, number, plural, short, signed
from hoplite.models import MODELS

HEADINGS = {
    "hops": "By hop",
    "nodes": "By node",
    "features": "By feature, over all nodes within reach",
}
MAX_FLIPS = 5  # removals that are listed, of edges and of nodes

Table = tuple[list[str], list[list[str]]]  # the columns, and rows of as many cells


def model_name(model: str) -> str:
    """
    >>> model_name("lgc")
    'LGC'
    """
    return MODELS[model].title if model in MODELS else model


@dataclass(frozen=True)
class Addend:
    """One of the numbers that add up to the logit: a hop, node or feature, the rest of these, the
    constant, the threshold.

    ``cells`` is what a table has between the name and the contribution.
    """

    name: str
    contribution: float
    cells: tuple[str, ...]
    kind: str = "one"  # or "rest", "constant", "threshold"


def feature_name(name: str | None, index: int) -> str:
    """
    >>> feature_name("age", 3), feature_name(None, 3)
    ('age', 'feature 3')
    """
    return short(name) if name else f"feature {index}"


def cell(value: float | str | None) -> str:
    """A value of a node: a text as it is, a number with six digits.

    >>> cell(0.1234567), cell("2020-02-29"), cell(None) == NOTHING
    ('0.123457', '2020-02-29', True)
    """
    return short(value) if isinstance(value, str) else number(value, 6)


def decimals(values: Summary) -> int:
    """Decimals for all the numbers of an explanation, so that they can be added up by eye."""
    largest = max(abs(values.margin), *(abs(hop.contribution) for hop in values.hops))
    return min(12, max(2, 3 - math.floor(math.log10(largest)))) if largest > 0 else 3


def percent(share: float) -> str:
    """A probability; only what is certain is 0 or 100.

    >>> percent(0.8734), percent(0.99997), percent(0.0)
    ('87.3 %', 'over 99.9 %', '0.0 %')
    """
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return "over 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def parts(values: Summary, by: str) -> list[Addend]:
    """The numbers that add up to the logit, ``by`` "hops", "nodes" or "features"."""
    addends, rest = [], None
    if by == "hops":
        for hop in values.hops:
            name = f"{hop.hop} {hop.relation or ''}".strip()
            addends.append(Addend(name, hop.contribution, (number(hop.coefficient),)))
    elif by == "nodes":
        rest = values.nodes
        for node in rest.top:
            cells = _label_and_distance(node)
            addends.append(Addend(short(node.id), node.contribution, cells))
    else:
        rest = values.features
        for one in rest.top:
            name = feature_name(one.name, one.index)
            addends.append(Addend(name, one.contribution, (cell(one.value),)))
    blank = ("",) * (2 if by == "nodes" else 1)
    if rest is not None and rest.others:
        addends.append(Addend(f"the other {rest.others:,}", rest.rest, blank, "rest"))
    if values.constant:
        addends.append(Addend("constant", values.constant, blank, "constant"))
    if values.threshold is not None:
        addends.append(Addend("threshold", values.threshold_part, blank, "threshold"))
    return addends


def fixed(values: Summary) -> list[str]:
    """What :func:`parts` has besides hops, nodes and features: "the constant", "the threshold"."""
    return [f"the {part.kind}" for part in parts(values, "hops") if part.kind != "one"]


def parts_table(values: Summary, by: str, *, brief: bool = False) -> Table:
    """:func:`parts` as a table that ends with the sum.

    A ``brief`` one has at most ``MAX_ROWS`` rows: the weakest hops are one row together.
    """
    columns = {
        "hops": ["hop", "coefficient"],
        "nodes": ["node", "label", "distance"],
        "features": ["feature", "value at the node"],
    }[by]
    places, addends = decimals(values), parts(values, by)
    excess = len(addends) + 1 - MAX_ROWS
    if brief and excess > 0:
        ones = [part for part in addends if part.kind == "one"]
        weakest = sorted(ones, key=lambda part: abs(part.contribution))[: excess + 1]
        total, blank = sum(part.contribution for part in weakest), ("",) * (len(columns) - 1)
        rest = Addend(f"the other {len(weakest):,}", total, blank, "rest")
        kept = [part for part in ones if part not in weakest]
        addends = [*kept, rest, *addends[len(ones) :]]
    rows = [[p.name, *p.cells, signed(p.contribution, places)] for p in addends]
    total = ["sum", *[""] * (len(columns) - 1), signed(values.margin, places)]
    return [*columns, "contribution"], [*rows, total]


def neighbourhood_table(values: Summary) -> Table:
    """The drawn nodes."""
    places = decimals(values)
    return ["node", "label", "distance", "contribution"], [
        [short(node.id), *_label_and_distance(node), signed(node.contribution, places)]
        for node in values.neighbourhood.nodes
    ]


def pair_table(values: Summary) -> Table:
    """The strongest pairs of a node and one of its features."""
    places, rows = decimals(values), []
    for pair in values.node_features.top:
        name, value = feature_name(pair.name, pair.feature), cell(pair.value)
        rows.append([short(pair.id), name, value, signed(pair.contribution, places)])
    return ["node", "feature", "value there", "contribution"], rows


def class_table(values: Summary) -> Table:
    """The classes, and the threshold if one was chosen."""
    places, chosen = decimals(values), values.threshold
    columns, rows = ["class", "logit", "probability"], []
    for one in values.classes:
        rows.append([short(one.name), signed(one.logit, places), percent(one.probability)])
        if chosen is not None:
            rows[-1].append(percent(chosen.probability) if one.name == chosen.class_ else "")
    return columns + ["threshold"] * (chosen is not None), rows


def flip_table(flips: Flips, places: int) -> Table:
    """The removals that change the prediction, and the margin of its class then."""
    removed = [
        (f"edge {short(edge.source.id)} {NOTHING} {short(edge.target.id)}", edge)
        for edge in flips.edges.found
    ] + [(f"node {short(node.node.id)}", node) for node in flips.nodes.found]
    return ["remove", "becomes", "margin"], [
        [name, short(flip.becomes), signed(flip.margin, places)] for name, flip in removed
    ]


def change_table(changes: Changes) -> Table:
    """The values of the node that, changed alone, change its prediction."""
    return ["value of the node", "is", "would be", "becomes"], [
        [short(flip.name), cell(flip.value), _wanted(flip), short(flip.becomes)]
        for flip in changes.found
    ]


def _wanted(flip: ValueFlip) -> str:
    """
    >>> _wanted(ValueFlip(0, "age", 41.0, -3.0, "below", "red", outside=True))
    '-3 or less (outside the range seen in training)'
    """
    date = isinstance(flip.to, str)
    more = {"above": ("or more", "or later"), "below": ("or less", "or earlier"), "equal": ("", "")}
    value = short(flip.to) if isinstance(flip.to, str) else f"{flip.to:.15g}"
    outside = " (outside the range seen in training)" if flip.outside else ""
    return f"{value} {more[flip.side][date]}".rstrip() + outside


def _label_and_distance(node: NodePart) -> tuple[str, str]:
    distance = NOTHING if node.distance is None else str(node.distance)
    return NOTHING if node.label is None else short(node.label), distance


def quantity(values: Summary) -> str:
    """What is explained: a logit, or the lead of one class over another, or over the threshold."""
    name = short(values.class_)
    if values.against is None:
        return f"the logit of {name}"
    over = short(values.against) if values.threshold is None else "the threshold"
    return f"the lead of {name} over {over}"


def title(values: Summary) -> str:
    """The question that is answered: "Why node 7 is predicted red and not blue"."""
    node, name, predicted = values.node.id, values.class_, values.node.predicted
    versus = "" if values.against is None else f" and not {short(values.against, 40)}"
    if name == predicted:
        return f"Why node {short(node, 40)} is predicted {short(name, 40)}{versus}"
    return f"Why node {short(node, 40)} could be {short(name, 40)}{versus}"


def headline(values: Summary) -> str:
    """The prediction in a sentence, with its probability and whether it is right."""
    node, chosen = values.node, values.threshold
    known = {None: "Its label is not known.", node.predicted: "That is its label."}
    label = known.get(node.label) or f"Its label is {short(node.label)}."
    name = node.predicted if chosen is None else chosen.class_
    share = next((c.probability for c in values.classes if c.name == name), node.probability)
    how = f"with a probability of {percent(share)}"
    if chosen is not None:
        how += f" for {short(name)}, whose threshold is {percent(chosen.probability)}"
    who = f"Node {short(node.id)} of {short(values.dataset)}"
    model = model_name(values.model.model)
    return f"{who} is predicted {short(node.predicted)} by {model}, {how}. {label}"


def exactness(values: Summary) -> str:
    """That the parts add up, and how well: the residual is against the model's own arithmetic."""
    summed = listing([f"the {plural(len(values.hops), 'hop')}", *fixed(values)])
    total = f"{quantity(values)}, {signed(values.margin, decimals(values))}"
    return (
        f"The contributions of {summed} add up to {total} (residual {abs(values.residual):.0e}); "
        "so do those of the nodes, and of the features."
    )


def flip_sentence(values: Summary) -> str:
    """How many removals change the prediction, and how many were checked."""
    flips = values.flips
    assert flips is not None
    edges, nodes, predicted = flips.edges, flips.nodes, short(values.node.predicted)
    text = (
        f"{plural(len(edges.found), 'edge')} and {plural(len(nodes.found), 'node')} were found "
        f"that would, removed alone, change the prediction from {predicted}. {edges.checked:,} of "
        f"{plural(edges.of, 'edge')} and {nodes.checked:,} of {plural(nodes.of, 'node')} within "
        f"reach were removed, one at a time. As things are, {predicted} leads by "
        f"{number(flips.margin)}{'' if values.threshold is None else ' over the threshold'}."
    )
    if flips.exhaustive:
        return f"{text} The search is exhaustive: nothing else can have an effect."
    if flips.standardized:
        return f"{text} The search held the mean and spread of the outputs, so it may miss some."
    return f"{text} They have the largest estimated effect; a larger --budget checks more."


def change_sentence(values: Summary) -> str:
    """How many values of the node itself change the prediction."""
    changes = values.changes
    assert changes is not None
    of = f"{len(changes.found):,} of {plural(changes.checked, 'value')} of node"
    name = short(values.node.predicted)
    return f"{of} {short(values.node.id)} would, changed alone, change the prediction from {name}."


def terminal_explanation(values: Summary) -> list[tuple[str, Table] | str]:
    """What the terminal shows, in order: tables with their titles, and sentences."""
    shown: list[tuple[str, Table] | str] = [
        headline(values),
        ("Classes", class_table(values)),
        (HEADINGS["hops"], parts_table(values, "hops")),
        exactness(values),
        (HEADINGS["nodes"], parts_table(values, "nodes")),
        (HEADINGS["features"], parts_table(values, "features")),
        ("By node and feature", pair_table(values)),
    ]
    if values.flips:
        table = flip_table(values.flips, decimals(values))
        shown += [("What would change the prediction", table)] if table[1] else []
        shown += [flip_sentence(values)]
    if values.changes and values.changes.checked:
        table = change_table(values.changes)
        shown += [change_sentence(values)]
        shown += [("Values that would change the prediction", table)] if table[1] else []
    return shown
