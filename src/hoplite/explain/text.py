"""An explanation in words and tables, the same on its page and in the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hoplite.explain.summary import (
    Changes,
    Flips,
    NodePart,
    Removals,
    Summary,
    Threshold,
    ValueFlip,
)
from hoplite.shown import short as short
from hoplite.words import NOTHING, dataset_name, listing, model_name, number, plural, signed

HEADINGS = {
    "hops": "By hop",
    "nodes": "By node",
    "features": "By feature, over all nodes within reach",
}
MOST_FLIPS = 5  # removals that are listed, of edges and of nodes
OUTSIDE = "outside the range seen in training"
EXACT = 1e-4  # a residual that is larger, beside the logit, is more than rounding

Table = tuple[list[str], list[list[str]]]  # the columns, and rows of as many cells


@dataclass(frozen=True)
class Addend:
    """One of the numbers that add up to the logit: a hop, node or feature, the rest of these, the
    constant, the threshold.

    ``cells`` is what a table shows between the name and the contribution.
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
    largest = max(abs(values.logit), *(abs(hop.contribution) for hop in values.hops))
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
    if by == "hops":
        shown = [
            Addend(
                f"{hop.hop} {hop.relation or ''}".strip(),
                hop.contribution,
                (number(hop.coefficient),),
            )
            for hop in values.hops
        ]
    elif by == "nodes":
        shown = [
            Addend(short(node.id), node.contribution, _class_and_distance(node))
            for node in values.nodes.top
        ]
    else:
        shown = [
            Addend(
                feature_name(feature.name, feature.index),
                feature.contribution,
                (cell(feature.value),),
            )
            for feature in values.features.top
        ]
    blank = ("",) * (2 if by == "nodes" else 1)
    hidden = {"nodes": values.nodes, "features": values.features}.get(by)
    if hidden is not None and hidden.others:
        shown.append(Addend(f"the other {hidden.others:,}", hidden.rest, blank, "rest"))
    if values.constant:
        shown.append(Addend("constant", values.constant, blank, "constant"))
    if values.threshold is not None:
        shown.append(Addend("threshold", values.threshold_part, blank, "threshold"))
    return shown


def fixed(values: Summary) -> list[str]:
    """What :func:`parts` has besides hops, nodes and features: "the constant", "the threshold"."""
    kinds = [part.kind for part in parts(values, "hops")]
    return [f"the {kind}" for kind in kinds if kind != "one"]


def parts_table(values: Summary, by: str, most: int | None = None) -> Table:
    """:func:`parts` as a table that ends with the sum, of ``most`` rows if it is given.

    What has no room is one row, so that the table can still be added up.
    """
    columns = {
        "hops": ["hop", "coefficient"],
        "nodes": ["node", "label", "distance"],
        "features": ["feature", "value at the node"],
    }[by]
    places = decimals(values)
    shown = parts(values, by)
    last = [part for part in shown if part.kind != "one"]
    ones = shown[: len(shown) - len(last)]
    if most is not None and len(shown) + 1 > most:
        room = most - len(last) - 2  # beside the row of the others, and the sum
        others = Addend(
            f"the other {len(ones) - room:,}",
            sum(part.contribution for part in ones[room:]),
            ("",) * (len(columns) - 1),
            "rest",
        )
        shown = [*ones[:room], others, *last]
    rows = [[part.name, *part.cells, signed(part.contribution, places)] for part in shown]
    total = ["sum", *[""] * (len(columns) - 1), signed(values.logit, places)]
    return [*columns, "contribution"], [*rows, total]


def neighbourhood_table(values: Summary) -> Table:
    places = decimals(values)
    return ["node", "label", "distance", "contribution"], [
        [short(node.id), *_class_and_distance(node), signed(node.contribution, places)]
        for node in values.neighbourhood.nodes
    ]


def pair_table(values: Summary) -> Table:
    """The strongest pairs of a node and one of its features."""
    places = decimals(values)
    return ["node", "feature", "value there", "contribution"], [
        [
            short(pair.id),
            feature_name(pair.name, pair.feature),
            cell(pair.value),
            signed(pair.contribution, places),
        ]
        for pair in values.node_features.top
    ]


def class_table(values: Summary) -> Table:
    """The classes, and from where on one is predicted if a threshold was chosen."""
    places, border = decimals(values), values.threshold
    rows = [
        [short(c.name), signed(c.logit, places), percent(c.probability)] for c in values.classes
    ]
    if border is None:
        return ["class", "logit", "probability"], rows
    for row, one in zip(rows, values.classes, strict=True):
        row.append(percent(border.probability) if one.name == border.class_ else "")
    return ["class", "logit", "probability", "threshold"], rows


def flip_table(flips: Flips, places: int) -> Table:
    """The removals that change the prediction, with how far its class then is behind."""
    edges = [
        (f"edge {short(edge.source.id)} {NOTHING} {short(edge.target.id)}", edge)
        for edge in flips.edges.found
    ]
    nodes = [(f"node {short(node.node.id)}", node) for node in flips.nodes.found]
    return ["remove", "becomes", "margin"], [
        [name, short(flip.becomes), signed(flip.margin, places)] for name, flip in edges + nodes
    ]


def change_table(changes: Changes) -> Table:
    """The values of the node that, changed alone, change its prediction."""
    return ["value of the node", "is", "would be", "becomes"], [
        [short(one.name), cell(one.value), _wanted(one), short(one.becomes)]
        for one in changes.found
    ]


def _wanted(flip: ValueFlip) -> str:
    """
    >>> _wanted(ValueFlip(0, "age", 41.0, 35.2, "below", "red"))
    '35.2 or less'
    >>> _wanted(ValueFlip(0, "age", 41.0, -3.0, "below", "red", outside=True))
    '-3 or less (outside the range seen in training)'
    """
    date = isinstance(flip.to, str)
    more = {"above": ("or more", "or later"), "below": ("or less", "or earlier"), "equal": ("", "")}
    shown = short(flip.to) if isinstance(flip.to, str) else f"{flip.to:.15g}"
    seen = f" ({OUTSIDE})" if flip.outside else ""
    return f"{shown} {more[flip.side][date]}".rstrip() + seen


def change_sentence(values: Summary) -> str:
    """What a value of the node itself can do, and that nothing else changes with it."""
    changes = values.changes
    if changes is None or not changes.checked:
        return ""
    node, name = short(values.node.id), short(values.node.predicted)
    of = f"the {plural(changes.checked, 'value')} of node {node} itself that count most"
    who = f"{len(changes.found):,}" if changes.found else "none"
    text = f"of {of}, {who} would, changed alone, change the prediction from {name}."
    return text[0].upper() + text[1:]


def _class_and_distance(node: NodePart) -> tuple[str, str]:
    label, distance = node.label, node.distance
    return (
        NOTHING if label is None else short(label),
        NOTHING if distance is None else str(distance),
    )


def quantity(values: Summary) -> str:
    """What is explained: a logit, or the lead of one class over another, or over the threshold."""
    name = short(values.class_)
    if values.against is None:
        return f"the logit of {name}"
    over = short(values.against) if values.threshold is None else "the threshold"
    return f"the lead of {name} over {over}"


def predicted_why(values: Summary) -> str:
    """The predicted class, by its chosen threshold: "yes, as its probability of 7.9 % is above
    the threshold of 6.0 %"."""
    border, name = values.threshold, short(values.node.predicted)
    if border is None:
        return f"{name}, with a probability of {percent(values.node.probability)}"
    inside = values.node.predicted == border.class_
    share = next(c.probability for c in values.classes if c.name == border.class_)
    own, least, place = beside(share, border.probability, inside)
    if inside:
        return f"{name}, as its probability of {own} is {place} the threshold of {least}"
    other = short(border.class_)
    return f"{name}, as the probability of {other}, {own}, is {place} its threshold of {least}"


def beside(share: float, threshold: float, above: bool) -> tuple[str, str, str]:
    """Both in as many digits as tell them apart, and where the share is: above, below or at it.

    >>> beside(0.079, 0.06, True), beside(0.06004, 0.06, True)
    (('7.9 %', '6.0 %', 'above'), ('6.004 %', '6.000 %', 'above'))
    >>> beside(0.06, 0.06, False)
    ('6.0 %', '6.0 %', 'at')
    """
    shown = percent(share), percent(threshold)
    if (share > threshold) != above or share == threshold:  # a tie, or what float32 makes of it
        return *shown, "at"
    digits = 1
    while shown[0] == shown[1] and digits < 15:
        digits += 1
        shown = f"{100 * share:.{digits}f} %", f"{100 * threshold:.{digits}f} %"
    return *shown, "above" if above else "below"


def threshold_sum(values: Summary) -> str:
    """What the lead over a threshold is: the logits' difference, and the threshold's part."""
    border = values.threshold
    if border is None or values.against is None:
        return ""
    places = decimals(values)
    apart = signed(values.logit - border.contribution, places)
    part = signed(border.contribution, places)
    names = f"The logit of {short(values.class_)} less that of {short(values.against)} is {apart}"
    level = f"the threshold of {percent(border.probability)} for {short(border.class_)}"
    return f"{names}, and {level} adds {part}."


def title(values: Summary) -> str:
    """The question that is answered: "Why node 7 is predicted red and not blue"."""
    node, name = short(values.node.id, 40), short(values.class_, 40)
    predicted = values.node.predicted
    versus = "" if values.against is None else short(values.against, 40)
    if values.class_ == predicted:
        return f"Why node {node} is predicted {name}{f' and not {versus}' if versus else ''}"
    rather = f" rather than {versus}" if versus else ""
    return f"What speaks for {name}{rather} at node {node}, predicted {short(predicted, 40)}"


def headline(values: Summary) -> str:
    """The prediction in a sentence, with its probability and whether it is right."""
    node, model = values.node, values.model
    known = {None: "Its own label is not known.", node.predicted: "That is its label too."}
    label = known.get(node.label) or f"Its label, however, is {short(node.label)}."
    name, border = model_name(model.model), values.threshold
    who = f"ode {short(node.id)} of {short(dataset_name(values.dataset))} is predicted"
    if border is None:
        chance = f"with a probability of {percent(node.probability)}"
        text = f"N{who} {short(node.predicted)} by {name}, {chance}. {label}"
    else:
        text = f"By {name}, n{who} {predicted_why(values)}. {label}"
    if values.class_ == node.predicted or (border is not None and values.class_ == border.class_):
        return text
    chance = next(c.probability for c in values.classes if c.name == values.class_)
    return f"{text} {short(values.class_)} gets {percent(chance)}."


def findings(values: Summary) -> list[str]:
    """What is explained, what counts most in it, and what would flip the prediction."""
    places = decimals(values)
    logit = signed(values.logit, places)
    what = quantity(values)
    lines = [f"{what[0].upper()}{what[1:]} is {logit}: all that follows are parts of it."]
    for by, noun in (("hops", "hop"), ("nodes", "node"), ("features", "feature")):
        shown = [part for part in parts(values, by) if part.kind == "one"]
        if not shown:
            continue
        top = max(shown, key=lambda part: abs(part.contribution))
        name = top.name if top.name.startswith(noun) else f"{noun} {top.name}"
        if by == "nodes" and values.nodes.top[shown.index(top)].distance == 0:
            name += " itself"
        amount = signed(top.contribution, places)
        lines.append(f"The {noun} that counts most is {name}, with {amount}.")
    lines += [flip_sentence(values.flips, values.node.predicted)] if values.flips else []
    return lines + [line for line in [change_sentence(values)] if line]


def exactness(values: Summary) -> str:
    """That the parts add up, and how well: the residual is against the model's own arithmetic."""
    summed = listing([f"the {plural(len(values.hops), 'hop')}", *fixed(values)])
    logit, residual = values.logit, abs(values.residual)
    close = residual <= EXACT * max(1.0, abs(logit))
    how = f"exactly (residual {residual:.0e})" if close else f"but for a residual of {residual:.0e}"
    text = (
        f"The contributions of {summed} add up to {quantity(values)}, "
        f"{signed(logit, decimals(values))}, {how}; so do those of the nodes, and of the features."
    )
    return " ".join(line for line in (text, threshold_sum(values)) if line)


def flip_sentence(flips: Flips, predicted: str) -> str:
    """What a removal can do, and no more than what was found."""
    name = short(predicted)
    counts = [
        f"{'at least ' if count >= MOST_FLIPS else ''}{plural(count, noun)}"
        for noun, count in (("edge", len(flips.edges.found)), ("node", len(flips.nodes.found)))
        if count
    ]
    if not counts:
        who = "No edge and no node" if flips.exhaustive else "Nothing that was checked"
        return f"{who} would, removed alone, change the prediction from {name}."
    text = f"{listing(counts)} would, removed alone, change the prediction from {name}."
    return text[0].upper() + text[1:]


def flip_margin(values: Summary) -> str:
    """What the margins of removals are."""
    name = short(values.node.predicted)
    if values.threshold is None:
        return f"the logit of {name} minus the highest other"
    return f"the lead of {name} over the threshold"


def flip_coverage(flips: Flips, predicted: str, threshold: Threshold | None = None) -> str:
    """How much was checked, and so what the answer is worth."""
    checked = [_checked(flips.edges, "edge"), _checked(flips.nodes, "node")]
    text = (
        f"The model was computed again without {listing(checked)}, "
        f"one at a time. As things are, {short(predicted)} leads by {number(flips.margin)}"
        f"{'' if threshold is None else ' over the threshold'}."
    )
    if flips.exhaustive:
        return f"{text} The search is exhaustive: nothing else can have an effect."
    if flips.standardized:
        return (
            f"{text} The mean and spread that standardise the outputs were held while searching; "
            "what was found stands with the new ones, but much may have been missed."
        )
    return (
        f"{text} The search is not exhaustive: it took those with the largest estimated effect, "
        "and one of the others may change the prediction too; a larger --budget checks more."
    )


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
        shown += [flip_sentence(values.flips, values.node.predicted)]
        shown += [("What would change the prediction", table)] if table[1] else []
        shown += [flip_coverage(values.flips, values.node.predicted, values.threshold)]
    if values.changes:
        table = change_table(values.changes)
        shown += [line for line in [change_sentence(values)] if line]
        shown += [("Values that would change the prediction", table)] if table[1] else []
    return shown


def _checked(removals: Removals[Any], noun: str) -> str:
    """
    >>> _checked(Removals(20, 3000, ()), "edge"), _checked(Removals(1, 1, ()), "node")
    ('20 of the 3,000 edges within reach', 'the 1 node within reach')
    """
    some = f"{removals.checked:,} of " if removals.checked < removals.of else ""
    return f"{some}the {plural(removals.of, noun)} within reach"
