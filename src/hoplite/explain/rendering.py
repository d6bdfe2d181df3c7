"""An explanation for people: sentences and tables, pictures, and one HTML page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from hoplite.errors import option_name
from hoplite.explain.summary import NodePart, Summary, ValueFlip
from hoplite.formatting import (
    NOTHING,
    Description,
    Table,
    listing,
    number,
    plural,
    short,
    signed,
)
from hoplite.models import MODELS
from hoplite.plots import figure, render
from hoplite.plots.drawings import FAINT, Bar, bars_height, lying, panels, tint

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HEADINGS = {
    "hops": "By hop",
    "nodes": "By node",
    "features": "By feature, over all nodes within reach",
}
VIEWS = (*HEADINGS, "classes")


@dataclass(frozen=True)
class Addend:
    """One of the numbers that add up to the margin: a hop, node or feature, several nodes together,
    the rest, the constant, the threshold; ``cells`` is what a table has after the name.
    """

    name: str
    contribution: float
    cells: tuple[str, ...] = ()
    single: bool = True


def addends(values: Summary, by: str) -> list[Addend]:
    """The numbers that add up to the margin, ``by`` "hops", "nodes" or "features"."""
    if by == "hops":
        rows = [
            Addend(hop.name.removeprefix("hop "), hop.contribution, (number(hop.coefficient),))
            for hop in values.hops
        ]
    elif by == "nodes":
        rows = [_node(part) for part in values.nodes.top]
        rows += [Addend(g.name, g.contribution, single=False) for g in values.nodes.groups]
    else:
        rows = [
            Addend(short(part.name), part.contribution, (cell(part.value),))
            for part in values.features.top
        ]
        if values.features.others:
            name = f"the other {values.features.others:,}"
            rows.append(Addend(name, values.features.rest, single=False))
    return rows + fixed(values)


def fixed(values: Summary) -> list[Addend]:
    """What belongs to no hop, node or feature: the constant, the threshold, neighbours' labels."""
    rows = []
    if values.constant:
        rows.append(Addend("constant", values.constant, single=False))
    if values.threshold is not None:
        rows.append(Addend("threshold", values.threshold.contribution, single=False))
    labels = values.neighbour_labels
    if labels is not None:
        total = labels.rest + sum(part.contribution for part in labels.top)
        rows.append(Addend("labels of neighbours", total, single=False))
    return rows


def _node(part: NodePart) -> Addend:
    label = NOTHING if part.label is None else short(part.label)
    distance = NOTHING if part.distance is None else str(part.distance)
    return Addend(short(part.id), part.contribution, (label, distance))


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
        return "below 0.1 %"
    return "over 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def margin_table(values: Summary, by: str, max_rows: int | None = None) -> Table:
    """:func:`addends` as a table that ends with the sum; of many, the weakest are one row."""
    columns = {
        "hops": ["hop", "coefficient"],
        "nodes": ["node", "label", "distance"],
        "features": ["feature", "value at the node"],
    }[by]
    parts = [*addends(values, by), Addend("sum", values.margin)]
    if max_rows is not None and len(parts) > max_rows:
        last = len(parts) - 1 - len(fixed(values))
        weakest = sorted(parts[:last], key=lambda part: abs(part.contribution))
        weakest = weakest[: len(parts) - max_rows + 1]
        rest = sum(part.contribution for part in weakest)
        parts.insert(last, Addend(f"the other {len(weakest):,}", rest))
        parts = [part for part in parts if part not in weakest]
    return _contributions(values, columns, parts, HEADINGS[by])


def _contributions(
    values: Summary, columns: list[str], parts: Sequence[Addend], title: str = ""
) -> Table:
    rows = []
    for part in parts:
        blank = [""] * (len(columns) - 1 - len(part.cells))
        amount = signed(part.contribution, decimals(values))
        rows.append([part.name, *part.cells, *blank, amount])
    return Table([*columns, "contribution"], rows, title)


def neighbourhood_table(values: Summary) -> Table:
    """The drawn nodes."""
    parts = [_node(part) for part in values.neighbourhood.nodes]
    return _contributions(values, ["node", "label", "distance"], parts)


def label_table(values: Summary) -> Table:
    """What the labels of neighbours add, of a model that reads them."""
    labels = values.neighbour_labels
    parts = [] if labels is None else [_node(part) for part in labels.top]
    if labels is not None and labels.others:
        parts.append(Addend(f"the other {labels.others:,}", labels.rest))
    return _contributions(values, ["node", "label", "distance"], parts, "By label of a neighbour")


def pair_table(values: Summary) -> Table:
    """The strongest pairs of a node and one of its features."""
    parts = [
        Addend(short(pair.id), pair.contribution, (short(pair.name), cell(pair.value)))
        for pair in values.node_features
    ]
    return _contributions(values, ["node", "feature", "value there"], parts, "By node and feature")


def class_table(values: Summary) -> Table:
    """The classes, and the threshold if one was chosen; of numbers, the value."""
    places, chosen, classes = decimals(values), values.threshold, values.classes
    rows = []
    for output in classes.top:
        value = cell(output.value) if output.probability is None else percent(output.probability)
        rows.append([short(output.name), signed(output.logit, places), value])
    if values.model.task == "regression":
        return Table(["output", "logit", "value"], rows, "Output")
    if classes.others:
        total = percent(classes.rest) if values.model.task == "classification" else ""
        rows.append([f"the other {classes.others:,}", "", total])
    columns = ["class", "logit", "probability"]
    if chosen is not None:
        columns.append("threshold")
        for row, output in zip(rows, classes.top, strict=True):
            row.append(percent(chosen.probability) if output.name == chosen.class_ else "")
    return Table(columns, rows, "Classes")


def flip_table(values: Summary) -> Table:
    """The removals that change the prediction, and the margin of its class then."""
    assert values.flips is not None
    edges, nodes, places = values.flips.edges.found, values.flips.nodes.found, decimals(values)
    names = [f"edge {short(flip.source.id)} {NOTHING} {short(flip.target.id)}" for flip in edges]
    names += [f"node {short(flip.node.id)}" for flip in nodes]
    flips = zip(names, (*edges, *nodes), strict=True)
    rows = [[name, short(flip.becomes), signed(flip.margin, places)] for name, flip in flips]
    return Table(["remove", "becomes", "margin"], rows, "What would change the prediction")


def change_table(values: Summary) -> Table:
    """The values of the node that, changed alone, change its prediction."""
    assert values.changes is not None
    rows = [
        [short(flip.name), cell(flip.value), _wanted(flip), short(flip.becomes)]
        for flip in values.changes.found
    ]
    columns = ["value of the node", "is", "would be", "becomes"]
    return Table(columns, rows, "Values that would change the prediction")


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


def model_name(values: Summary) -> str:
    name = values.model.model
    return MODELS[name].title if name in MODELS else name


def quantity(values: Summary) -> str:
    """What is explained: a value, a logit, or a margin over another class or the threshold."""
    name = short(values.class_)
    if values.model.task == "regression":
        return "the predicted value"
    if values.against is None:
        return f"the logit of {name}"
    over = short(values.against) if values.threshold is None else "the threshold"
    return f"the margin of {name} over {over}"


def total(values: Summary) -> str:
    """:func:`quantity` and the number it is."""
    return f"{quantity(values)}, {signed(values.margin, decimals(values))}"


def title(values: Summary) -> str:
    """The question that is answered: "Why node 7 is predicted as red and not as blue"."""
    name, predicted = short(values.class_, 40), values.node.predicted
    node = f"Why node {short(values.node.id, 40)}"
    if values.model.task == "regression":
        return f"Why {cell(predicted)} is predicted for node {short(values.node.id, 40)}"
    if values.model.task == "multilabel":
        return f"{node} {'has' if values.margin > 0 else 'could have'} the label {name}"
    against = "" if values.against is None else short(values.against, 40)
    if values.class_ == predicted:
        return f"{node} is predicted as {name}" + (f" and not as {against}" if against else "")
    if against and values.margin > 0:
        return f"{node} has a higher logit for {name} than for {against}"
    return f"{node} is not predicted as {name}"


def headline(values: Summary) -> str:
    """The prediction in a sentence, with its probability and whether it is right."""
    node, chosen = values.node, values.threshold
    also = "also " * (node.label == node.predicted)
    label = f"Its label is {'not known' if node.label is None else also + short(node.label)}."
    how, share = "", node.probability
    if chosen is not None:
        share = next(c.probability for c in values.classes.top if c.name == chosen.class_)
    if chosen is not None and share is not None:
        name = short(chosen.class_)
        how = f": the probability of {name} is {percent(share)}, and {name} is predicted from "
        how += percent(chosen.probability)
    elif share is not None:
        how = f", with a probability of {percent(share)}"
    who = f"node {short(node.id)} of {short(values.dataset)}"
    name = "no label" if node.predicted == "|" else cell(node.predicted)
    return f"{model_name(values)} predicts {name} for {who}{how}. {label}"


def link_sentence(values: Summary) -> str:
    """How the logits become probabilities, or the number."""
    if values.model.task == "regression":
        return "The value is the logit times the spread of the training values, plus their mean."
    link = (
        "softmax of the logits" if values.model.task == "classification" else "sigmoid of a logit"
    )
    if values.model.temperature == 1:
        return f"A probability is the {link}."
    return f"A probability is the {link} divided by the temperature {values.model.temperature:.4g}."


def exactness(values: Summary) -> str:
    """That the parts add up, and how well: the residual is against the model's own arithmetic."""
    names = [f"the {part.name}" for part in fixed(values)]
    summed = listing([f"{plural(len(values.hops), 'hop')}", *names])
    return (
        f"The contributions of {summed} add up to {total(values)} (residual "
        f"{abs(values.residual):.0e}). The tables by node and by feature add up to the same number."
    )


def flip_sentence(values: Summary) -> str:
    """How many removals change the prediction, and how many were checked."""
    flips = values.flips
    assert flips is not None
    edges, nodes, predicted = flips.edges, flips.nodes, short(values.node.predicted)
    groups = ((edges, "edge"), (nodes, "node"))
    single = [plural(len(part.found), noun) for part, noun in groups if part.found]
    tried = [f"{part.checked:,} of {plural(part.of, noun)}" for part, noun in groups if part.of]
    text = "No single removal that was tried changes the prediction"
    if flips.exhaustive:
        text = "No single edge or node changes the prediction if removed"
    if single:
        suffix = " each" * (len(edges.found) + len(nodes.found) > 1)
        text = f"{listing(single)} would{suffix} change the prediction from {predicted} if removed"
    if not tried:
        return f"{text}. There are none within reach."
    over = "" if values.threshold is None else " over the threshold"
    text += f" (its margin{over} without any removal is {number(flips.margin)})."
    more = f"(those of the largest estimated effect); increase {option_name('budget')} to try more."
    if flips.standardized:
        more = "(with a constant mean and spread of the outputs, so some may be missing)."
    if flips.exhaustive:
        more = "(all of them)."
    return f"{text} Tried: {listing(tried)} within reach {more}"


def change_sentence(values: Summary) -> str:
    """How many values of the node itself change the prediction, and the most important one."""
    changes = values.changes
    assert changes is not None
    node, count = f"node {short(values.node.id)}", len(changes.found)
    if all(flip.outside for flip in changes.found):
        where = " within the range seen in training" * bool(count)
        tried = f"tried: the {plural(changes.checked, 'value')} with the largest contributions"
        return f"Changing one value of {node}{where} does not change the prediction ({tried})."
    which = "one value" if count == 1 else f"any one of {count:,} important values"
    first = changes.found[0]
    example = f"{short(first.name)} from {cell(first.value)} to {_wanted(first)}"
    return (
        f"Changing {which} of {node} would change the prediction: {'' if count == 1 else 'e.g. '}"
        f"{example} would make it {short(first.becomes)}."
    )


def describe(values: Summary, max_rows: int | None = None) -> Description:
    """What a notebook and the terminal show: the prediction, its margin, and the three sums.

    Removals and values that change the prediction are counted; the page and the JSON list them.
    """
    facts = {"prediction": headline(values), "explained": total(values)}
    tables = [margin_table(values, by, max_rows) for by in HEADINGS if addends(values, by)]
    labels = label_table(values)
    tables += [labels] if labels.rows else []
    notes = [exactness(values)]
    notes += [link_sentence(values)] if values.model.temperature != 1 else []
    if values.flips:
        notes.append(flip_sentence(values))
    if values.changes and values.changes.checked:
        notes.append(change_sentence(values))
    return Description(title(values), facts, tables, notes)


def explanation_page(values: Summary, *, command: str = "", why_not: str = "") -> str:
    """The whole page of what ``Explanation.summary`` returned; ``command`` makes it again.

    ``why_not`` says why there are no removals, of a classifier.
    Everything from ``values`` is escaped: names are only ever text.
    """
    template = files("hoplite.explain").joinpath("templates", "explanation.html")
    nodes, edges = values.neighbourhood.nodes, values.neighbourhood.edges
    return render(
        template.read_text(encoding="utf-8"),
        command=command,
        why_not=why_not or "Removals were not searched; pass them to summary(flips=...).",
        values=values,
        places=positions(nodes, edges),
        strongest=strongest(values),
        text=globals(),
    )


def explanation_figure(values: Summary, by: str | None = None) -> Figure:
    """The picture of one of ``VIEWS``; hops, nodes and features below each other if None."""
    name, unit = f"{title(values)}: {total(values)}", "contribution"
    views = {view: contribution_bars(values, view) for view in HEADINGS if by in (None, view)}
    views = {HEADINGS[view]: bars for view, bars in views.items() if bars or by}
    if by == "classes":
        name, unit = title(values), class_axis(values)
        views = {"Outputs of the model": class_bars(values)}
    heights = [bars_height(bars) for bars in views.values()]
    return figure(panels([lying(bars, unit) for bars in views.values()], [*views], heights), name)


def contribution_bars(values: Summary, by: str) -> list[Bar]:
    """A bar per part of the margin, ``by`` "hops", "nodes" or "features"; they add up to it."""
    digits, bars = decimals(values), []
    for part in addends(values, by):
        amount = part.contribution
        bars.append(Bar(part.name, amount, tint(amount, not part.single), signed(amount, digits)))
    return bars


def class_bars(values: Summary) -> list[Bar]:
    """The probability of every class in percent, or the value."""
    tints = {values.against: "@pull", values.class_: "@push"}
    bars = []
    for output in values.classes.top:
        colour, share = tints.get(output.name, "@other"), output.probability
        if share is None:
            bars.append(Bar(output.name, output.value or 0.0, colour, cell(output.value)))
        else:
            bars.append(Bar(output.name, 100 * share, colour, percent(share)))
    if values.classes.others and values.model.task == "classification":
        name, rest = f"the other {values.classes.others:,}", values.classes.rest
        bars.append(Bar(name, 100 * rest, f"@other/{FAINT}", percent(rest)))
    return bars


def class_axis(values: Summary) -> str:
    """The title of the axis of :func:`class_bars`, with a chosen threshold."""
    chosen = values.threshold
    if values.model.task == "regression":
        return "value"
    if chosen is None:
        return "probability, %"
    return f"probability, % (threshold of {short(chosen.class_)}: {percent(chosen.probability)})"


def about_node(values: Summary, node: NodePart) -> str:
    """A drawn node in a line: its id, label, distance and contribution."""
    label = "label unknown" if node.label is None else short(node.label, 60)
    far = "not connected" if node.distance is None else f"{plural(node.distance, 'step')} away"
    amount = signed(node.contribution, decimals(values))
    return f"{short(node.id, 60)}, {label}, {far}: contribution {amount}"


def strongest(values: Summary) -> float:
    """The largest absolute contribution in the drawing: the ends of its colours."""
    return max((abs(n.contribution) for n in values.neighbourhood.nodes), default=0.0)


def positions(
    nodes: Sequence[NodePart], edges: Sequence[tuple[int, int, float]]
) -> dict[int, tuple[float, float]]:
    """A place for every node: the first in the middle, the others on the ring of their distance.

    They are spread evenly over the ring, in the order of the neighbours that lead to them, and
    leave its top free. What is not connected has a ring of its own, outside.

    >>> nodes = [NodePart(i, i, None, i, 0.0) for i in range(3)]
    >>> positions(nodes, [(0, 1, 1.0), (1, 2, 1.0)])
    {0: (0.0, 0.0), 1: (0.0, -1.0), 2: (0.0, -2.0)}
    """
    outside = 1 + max((node.distance or 0 for node in nodes), default=0)
    rings, near, angles = defaultdict(list), defaultdict(list), {nodes[0].index: 0.0}
    for a, b, _ in edges:
        near[a].append(b)
        near[b].append(a)
    for node in nodes[1:]:
        rings[outside if node.distance is None else node.distance].append(node)
    places = {nodes[0].index: (0.0, 0.0)}
    for radius, ring in sorted(rings.items()):
        closer = {n.index: [angles[u] for u in near[n.index] if u in angles] for n in ring}
        ring.sort(key=lambda n: (min(closer[n.index], default=0.0), -n.contribution))
        for i, node in enumerate(ring):
            turn = 2 * math.pi * (i + 0.5) / len(ring)
            angles[node.index] = turn
            x, y = round(radius * math.sin(turn), 4), round(radius * math.cos(turn), 4)
            places[node.index] = (x + 0.0, y + 0.0)  # a zero without sign
    return places
