"""What is shown of an explanation: typed values for tables, the terminal, JSON and the page."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from hoplite.formatting import plural

T = TypeVar("T")


class _Value(msgspec.Struct, frozen=True):
    """Plain values with names; their order is that of the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return msgspec.json.decode(msgspec.json.encode(self))


class ExplainedModel(_Value, frozen=True):
    """The model: probabilities are the softmax of the logits divided by ``temperature``.

    That is 1 unless the model is calibrated. ``task`` is "classification", "multilabel", whose
    probabilities are sigmoids, or "regression".
    """

    model: str
    hops: int
    operator: str
    basis: str
    task: str
    temperature: float


class ExplainedNode(_Value, frozen=True, omit_defaults=True):
    """The explained node; ``label`` is the name of its true class, if that is known.

    ``predicted`` is a class with its ``probability``, several labels as "a|b", or a number.
    """

    index: int
    id: str | int
    label: str | None
    predicted: str | float
    probability: float | None = None


class Output(_Value, frozen=True, omit_defaults=True):
    """One output of the model: the ``probability`` of a class, or the ``value`` of a number.

    ``logit`` is the model's own, to which no threshold is added.
    """

    name: str
    logit: float
    probability: float | None = None
    value: float | None = None


class Threshold(_Value, frozen=True, rename={"class_": "class"}):
    """The ``probability`` from which on ``class`` is predicted, if the model has chosen one."""

    class_: str
    probability: float


class ThresholdPart(Threshold, frozen=True):
    """What a chosen threshold adds to a margin: its log-odds, taken from its class."""

    contribution: float


class HopPart(_Value, frozen=True, omit_defaults=True):
    """What a hop adds."""

    hop: int
    coefficient: float
    contribution: float
    relation: str | None = None  # None for hop 0, which is the same for all, or without relations

    @property
    def name(self) -> str:
        """
        >>> HopPart(2, 0.5, 1.0, "out").name
        'hop 2 out'
        """
        return f"hop {self.hop} {self.relation or ''}".strip()


class NodePart(_Value, frozen=True):
    """What a node adds; ``distance`` is the first hop that reaches it, None if none does."""

    index: int
    id: str | int
    label: str | None
    distance: int | None
    contribution: float

    @property
    def name(self) -> str:
        return str(self.id)


class NodeGroup(_Value, frozen=True):
    """What the ``count`` nodes that are first reached at a hop, and are not listed, add together.

    >>> NodeGroup(2, 6540, 0.1).name
    '6,540 nodes at hop 2'
    """

    hop: int
    count: int
    contribution: float

    @property
    def name(self) -> str:
        return f"{plural(self.count, 'node')} at hop {self.hop}"


class FeaturePart(_Value, frozen=True):
    """What a feature adds, at all nodes within reach; ``value`` is that of the explained node.

    In a column of a table it is the cell: before scaling, a date as text, or "missing".
    """

    index: int
    name: str
    value: float | str
    contribution: float


class PairPart(_Value, frozen=True):
    """What one feature of one node adds; ``value`` is that at this node, as of a FeaturePart."""

    node: int
    id: str | int
    feature: int
    name: str
    contribution: float
    value: float | str


class Strongest(_Value, Generic[T], frozen=True, omit_defaults=True):
    """The largest contributions, how many others are not 0, and the sum of these.

    Of nodes the others are also in ``groups``; of classes the numbers are probabilities.
    """

    top: tuple[T, ...]
    others: int
    rest: float
    groups: tuple[NodeGroup, ...] = ()


class Neighbourhood(_Value, frozen=True):
    """The nodes to draw, the explained one first; all edges among them, with weights."""

    nodes: tuple[NodePart, ...]
    edges: tuple[tuple[int, int, float], ...]


class NodeName(_Value, frozen=True):
    index: int
    id: str | int


class EdgeFlip(_Value, frozen=True):
    """An edge without which the node ``becomes`` another class, by the ``margin``."""

    source: NodeName
    target: NodeName
    becomes: str
    margin: float


class NodeFlip(_Value, frozen=True):
    """A node without which the explained one ``becomes`` another class."""

    node: NodeName
    becomes: str
    margin: float


class Removals(_Value, Generic[T], frozen=True):
    """How many were ``checked``, ``of`` how many candidates, and what was found."""

    checked: int
    of: int
    found: tuple[T, ...]


class Flips(_Value, frozen=True):
    """Edges and nodes whose removal changes a prediction; :func:`hoplite.explain.flips` returns it.

    Attributes
    ----------
    edges, nodes : Removals
        ``found`` has the removals that change the prediction, ``checked`` and ``of`` count how many
        of all candidates were computed.
    margin : float
        Margin of the predicted class over the highest other one, including a chosen threshold.
    standardized : bool
        Whether the search assumed constant mean and deviation of the outputs, so that it may have
        missed some removals.

    Examples
    --------
    >>> none = Removals(found=(), checked=4, of=4)
    >>> Flips(none, none, margin=1.5, standardized=False).exhaustive
    True
    """

    edges: Removals[EdgeFlip]
    nodes: Removals[NodeFlip]
    margin: float
    standardized: bool

    @property
    def exhaustive(self) -> bool:
        """Whether all edges and nodes that can have an effect were checked, with all of it."""
        whole = all(removals.checked >= removals.of for removals in (self.edges, self.nodes))
        return whole and not self.standardized


class ValueFlip(_Value, frozen=True):
    """A value of the explained node, now ``value``, with which it ``becomes`` another class.

    That is from ``to`` on, which is ``side`` "above" or "below" the value, or where it is "equal"
    to ``to``: a category, or 0 and 1. ``index`` is (the first) of its features. ``outside`` means
    that the value is outside the range of the column in training, if the model knows that range.
    """

    index: int
    name: str
    value: float | str
    to: float | str
    side: str
    becomes: str
    outside: bool = False


class Changes(_Value, frozen=True):
    """How many values of the explained node were ``checked``, and which flip its prediction."""

    checked: int
    found: tuple[ValueFlip, ...]


class Summary(_Value, frozen=True, rename={"class_": "class"}):
    """An explanation with the largest contributions of each type; all values are finite.

    The margin is ``constant + threshold.contribution + residual`` plus the contributions of all
    hops; contributions of nodes, or of features, have the same sum as those of hops. If the model
    uses labels of neighbours, ``neighbour_labels`` is one more term, otherwise None. With
    ``against``, the margin is the difference of the two logits plus ``threshold.contribution``, so
    it is never negative for the predicted class; without, it is the logit of the class, or a number
    in its unit.

    Attributes
    ----------
    dataset : str
        Name of the data.
    model, node : ExplainedModel, ExplainedNode
        The model, and the explained node with its prediction.
    class_, against : str
        The explained class, and the one to compare with, or None.
    margin, constant, residual : float
        What is explained, the part that belongs to no hop, and the rounding error.
    classes : Strongest of Output
        Logits and probabilities of the classes.
    hops : tuple of HopPart
        Contributions of all hops.
    nodes, features : Strongest
        The largest contributions of nodes and of features, and the sums of the others.
    node_features : tuple of PairPart
        The largest contributions of one feature of one node.
    neighbourhood : Neighbourhood
        The nodes to draw, and the edges between them.
    flips, changes : Flips or None, Changes or None
        Removals, and changes of the node's own values, that change the prediction.
    neighbour_labels : Strongest of NodePart or None
        Contributions of labels of neighbours, if the model uses them.
    threshold : ThresholdPart or None
        The contribution of a chosen threshold.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> found = hoplite.explain.explain(model, graph, 17).summary(top=3)
    >>> found.dataset, len(found.hops), len(found.nodes.top)
    ('cora', 3, 3)
    """

    dataset: str
    model: ExplainedModel
    node: ExplainedNode
    class_: str
    against: str | None
    margin: float
    constant: float
    residual: float
    classes: Strongest[Output]
    hops: tuple[HopPart, ...]
    nodes: Strongest[NodePart]
    features: Strongest[FeaturePart]
    node_features: tuple[PairPart, ...]
    neighbourhood: Neighbourhood
    flips: Flips | None = None
    changes: Changes | None = None
    neighbour_labels: Strongest[NodePart] | None = None
    threshold: ThresholdPart | None = None
