"""What others need to know of a model before it is built: a line each, and nothing of torch.

Nobody compares a model's name with a text; they ask its :class:`Kind`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.coefficients import Coefficients, Exponential, Free, Last

_POLYNOMIAL = ("hops", "operator", "bias", "order")


@dataclass(frozen=True)
class Kind:
    """A model as the rest of the house sees it.

    Parameters
    ----------
    name, title : str
        In commands and files, and in tables.
    settings : tuple of str
        Those that it has, of the ones that not every model has.
    size : str
        What is told of it beside its name, with settings in braces.
    growth : str
        The setting that its cost grows with.
    linear : bool
        Whether its logits are sums over hops, nodes and features (given its gates), so that a
        prediction can be explained and a node's logits follow from its own hop features: it can be
        trained from a store and on some rows alone. If not, every step needs the graph's edges.
    coefficients : Coefficients or None
        Where they come from; None if they are not the same for every node, or there are none.
    of_powers : bool
        Whether it is defined by the powers of the operator, so that no other basis makes sense.
    many_at_once : bool
        Whether runs gain from training together.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    size: str = "{hops} hops, {operator}, {basis}"
    growth: str = "hops"
    linear: bool = True
    coefficients: Coefficients | None = None
    of_powers: bool = False
    many_at_once: bool = True


MODEL_KINDS = {
    kind.name: kind
    for kind in (
        Kind("sgc", "SGC", _POLYNOMIAL, coefficients=Last(), of_powers=True),
        Kind("egc", "EGC", (*_POLYNOMIAL, "start"), coefficients=Exponential(), of_powers=True),
        Kind("lgc", "LGC", (*_POLYNOMIAL, "basis", "start"), coefficients=Free()),
        Kind("hlgc", "hLGC", (*_POLYNOMIAL, "basis", "start", "gate")),
        Kind(
            "gcn",
            "GCN",
            ("operator", "hidden"),
            "{hidden} hidden units, {operator}",
            growth="hidden",
            linear=False,
        ),
        Kind(
            "gat",
            "GAT",
            ("hidden", "heads"),
            "{heads} heads of {hidden} hidden units",
            growth="hidden",
            linear=False,
            many_at_once=False,  # nothing is gained but the memory of every run's messages
        ),
    )
}
LINEAR = tuple(kind.name for kind in MODEL_KINDS.values() if kind.linear)
