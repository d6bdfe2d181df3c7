"""An explanation in words, the same on its page and in the terminal.

``values`` is always what :meth:`hoplite.explain.explanation.Explanation.to_dict` returns.
"""

from __future__ import annotations

from typing import Any

from hoplite.explain.tables import (
    Table,
    class_table,
    decimals,
    flip_table,
    pair_table,
    parts,
    parts_table,
    percent,
    short,
)
from hoplite.words import dataset_name, listing, model_name, number, plural, signed

MOST_FLIPS = 5  # removals that are listed, of edges and of nodes
EXACT = 1e-4  # a residual that is larger, beside the logit, is more than rounding
KINDS = ("edges", "nodes")  # what can be removed


def quantity(values: dict[str, Any]) -> str:
    """What is explained: a logit, or the lead of one class over another.

    >>> quantity({"class": "red", "against": None}), quantity({"class": "red", "against": "blue"})
    ('the logit of red', 'the lead of red over blue')
    """
    name = short(values["class"])
    return (
        f"the logit of {name}"
        if values["against"] is None
        else f"the lead of {name} over {short(values['against'])}"
    )


def title(values: dict[str, Any]) -> str:
    """The question that the explanation answers.

    >>> title({"node": {"id": 7, "predicted": "red"}, "class": "red", "against": "blue"})
    'Why node 7 is red and not blue'
    >>> title({"node": {"id": 7, "predicted": "red"}, "class": "blue", "against": None})
    'What speaks for blue at node 7, which is red'
    """
    node, name = short(values["node"]["id"], 40), short(values["class"], 40)
    predicted = values["node"]["predicted"]
    versus = "" if values["against"] is None else short(values["against"], 40)
    if values["class"] == predicted:
        return f"Why node {node} is {name}{f' and not {versus}' if versus else ''}"
    rather = f" rather than {versus}" if versus else ""
    return f"What speaks for {name}{rather} at node {node}, which is {short(predicted, 40)}"


def headline(values: dict[str, Any]) -> str:
    """The prediction in a sentence, with its probability and whether it is right."""
    node, model = values["node"], values["model"]
    known = {None: "Its own label is not known.", node["predicted"]: "That is its label too."}
    label = known.get(node["label"]) or f"Its label, however, is {short(node['label'])}."
    name = model_name(model["model"], model["gate"])
    text = (
        f"{name} labels node {short(node['id'])} of {short(dataset_name(values['dataset']))} as "
        f"{short(node['predicted'])}, with a probability of {percent(node['probability'])}. {label}"
    )
    if values["class"] == node["predicted"]:
        return text
    chance = next(c["probability"] for c in values["classes"] if c["name"] == values["class"])
    return f"{text} {short(values['class'])} gets {percent(chance)}."


def findings(values: dict[str, Any]) -> list[str]:
    """What is explained, what counts most in it, and what would flip the prediction."""
    places = decimals(values)
    logit = signed(values["logit"], places)
    what = quantity(values)
    lines = [f"{what[0].upper()}{what[1:]} is {logit}: all that follows are parts of it."]
    for by, noun in (("hops", "hop"), ("nodes", "node"), ("features", "feature")):
        shown = [part for part in parts(values, by) if part.kind == "one"]
        if not shown:
            continue
        top = max(shown, key=lambda part: abs(part.contribution))
        name = top.name if top.name.startswith(noun) else f"{noun} {top.name}"
        if by == "nodes" and values["nodes"]["top"][shown.index(top)]["distance"] == 0:
            name += " itself"
        amount = signed(top.contribution, places)
        lines.append(f"The {noun} that counts most is {name}, with {amount}.")
    return lines + ([flip_sentence(values)] if values["flips"] else [])


def exactness(values: dict[str, Any]) -> str:
    """That the parts add up, and how well: the residual is against the model's own arithmetic."""
    count = plural(len(values["hops"]), "hop")
    constant = " and the constant" if values["constant"] else ""
    logit, residual = values["logit"], abs(values["residual"])
    close = residual <= EXACT * max(1.0, abs(logit))
    how = f"exactly (residual {residual:.0e})" if close else f"but for a residual of {residual:.0e}"
    text = (
        f"The contributions of the {count}{constant} add up to {quantity(values)}, "
        f"{signed(logit, decimals(values))}, {how}; so do those of the nodes, and of the features."
    )
    gate = values["model"]["gate"]
    return f"{text} The gates are held at the values that they have here." if gate else text


def flip_sentence(values: dict[str, Any]) -> str:
    """What a removal can do, and no more than what was found."""
    found = {kind: len(values["flips"][kind]["found"]) for kind in KINDS}
    name = short(values["node"]["predicted"])
    if not any(found.values()):
        who = "No edge and no node" if exhaustive(values) else "Nothing that was checked"
        return f"{who} would, removed alone, change the prediction from {name}."
    counts = [
        f"{'at least ' if count >= MOST_FLIPS else ''}{plural(count, kind[:-1])}"
        for kind, count in found.items()
        if count
    ]
    text = f"{listing(counts)} would, removed alone, change the prediction from {name}."
    return text[0].upper() + text[1:]


def exhaustive(values: dict[str, Any]) -> bool:
    """Whether all edges and nodes that can have an effect were checked, with all their effect."""
    flips = values["flips"]
    whole = all(flips[kind]["checked"] >= flips[kind]["of"] for kind in KINDS)
    return whole and not flips["standardized"]


def flip_coverage(values: dict[str, Any]) -> str:
    """How much was checked, and so what the answer is worth."""
    lead = number(values["flips"]["margin"])
    text = (
        f"The model was computed again without {listing([_checked(values, k) for k in KINDS])}, "
        f"one at a time. As things are, {short(values['node']['predicted'])} leads by {lead}."
    )
    if exhaustive(values):
        return f"{text} The search is exhaustive: nothing else can have an effect."
    if values["flips"]["standardized"]:
        return (
            f"{text} The mean and spread that standardise the outputs were held while searching; "
            "what was found stands with the new ones, but much may have been missed."
        )
    return (
        f"{text} The search is not exhaustive: it took those with the largest estimated effect, "
        "and one of the others may change the prediction too; a larger --budget checks more."
    )


def terminal_explanation(values: dict[str, Any]) -> list[tuple[str, Table] | str]:
    """What the terminal shows, in order: tables with their titles, and sentences."""
    shown: list[tuple[str, Table] | str] = [
        headline(values),
        ("Classes", class_table(values)),
        ("By hop", parts_table(values, "hops")),
        exactness(values),
        ("By node", parts_table(values, "nodes")),
        ("By feature", parts_table(values, "features")),
        ("By node and feature", pair_table(values)),
    ]
    if values["flips"]:
        table = flip_table(values)
        shown += [flip_sentence(values)]
        shown += [("What would change the prediction", table)] if table[1] else []
        shown += [flip_coverage(values)]
    return shown


def _checked(values: dict[str, Any], kind: str) -> str:
    """
    >>> _checked({"flips": {"edges": {"checked": 20, "of": 3000}}}, "edges")
    '20 of the 3,000 edges within reach'
    >>> _checked({"flips": {"nodes": {"checked": 1, "of": 1}}}, "nodes")
    'the 1 node within reach'
    """
    checked, of = values["flips"][kind]["checked"], values["flips"][kind]["of"]
    some = f"{checked:,} of " if checked < of else ""
    return f"{some}the {plural(of, kind[:-1])} within reach"
