"""The types of what is asked and answered over HTTP; msgspec checks the one, writes the other."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hoplite.explain.summary import Threshold

MOST_ID = 1000  # characters of an id, a class or a name that may be asked for
MOST_TOP = 50
MOST_FOUND = 100
MOST_CHANGES = 100
MOST_BODY = 1 << 16  # bytes of a request

Text = Annotated[str, Meta(max_length=MOST_ID)]
Count = Annotated[int, Meta(ge=1, le=MOST_FOUND)]
Top = Annotated[int, Meta(ge=1, le=MOST_TOP)]
Value = float | str | bool | None


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a request may hold, and nothing else."""


class Search(_Asked, frozen=True):
    """``prefix`` is how an id, or the name of a feature, begins; case does not matter."""

    prefix: Text = ""
    limit: Count = 20


class FeatureSearch(Search, frozen=True):
    """Those of the node ``id``, if it is given, with their values there."""

    id: Text | None = None


class NodeQuery(_Asked, frozen=True):
    id: Text


class ExplanationQuery(_Asked, frozen=True, rename={"class_": "class"}):
    """Why ``class`` and not ``against``; left out, why the predicted one and not the next."""

    id: Text
    class_: Text | None = None
    against: Text | None = None
    top: Top = 10


class ChangeRequest(_Asked, frozen=True):
    """Other values of some features of one node; null where a value is missing."""

    id: Text
    features: Annotated[dict[Text, Value], Meta(max_length=MOST_CHANGES)]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was refused, in one sentence; beside it may be a ``hint`` for programs."""

    error: str
    hint: str | None = None


class Output(msgspec.Struct, frozen=True):
    """One output of the model: of classes ``value`` is the probability, else the number itself.

    ``logit`` is the model's own, in which no threshold acts.
    """

    name: str
    logit: float
    value: float


class Prediction(msgspec.Struct, frozen=True):
    """What is told of a node; the outputs are in the order of the model's classes.

    ``predicted`` is the output of the largest value, or where a ``threshold`` was chosen its class,
    if the value of that is above it, and else the other one.
    """

    predicted: str | float
    outputs: list[Output]
    threshold: Threshold | None = None


class Feature(msgspec.Struct, frozen=True):
    """What can be changed of a node, and its ``value`` there, if one was named.

    ``kind`` is number, truth, date or text; a text has one of the ``choices``. ``gap`` tells
    whether it may be missing. The value is as it stands in the table, and null for a gap.
    """

    name: str
    kind: str
    choices: list[str]
    gap: bool
    value: float | str | None = None


class FoundFeatures(msgspec.Struct, frozen=True):
    features: list[Feature]


class FoundNode(msgspec.Struct, frozen=True):
    id: str
    predicted: str | float


class FoundNodes(msgspec.Struct, frozen=True):
    """Nodes whose ids begin so; if there are none, those whose ids hold the text."""

    nodes: list[FoundNode]


class Examples(msgspec.Struct, frozen=True):
    """``about`` says what the nodes are, the foremost first."""

    about: str
    nodes: list[FoundNode]


class FoundExamples(msgspec.Struct, frozen=True):
    """Nodes to begin with: of classes the surest of the rarest and the least sure, of numbers the
    largest and the smallest."""

    examples: list[Examples]


class Neighbour(msgspec.Struct, frozen=True):
    """``weight`` is null where the data does not keep it."""

    id: str
    weight: float | None
    label: str | None
    predicted: str | float


class Neighbours(msgspec.Struct, frozen=True):
    """The heaviest edges, of ``total`` ones."""

    top: list[Neighbour]
    total: int


class NodeFeatures(msgspec.Struct, frozen=True):
    """The first features that are not 0, of ``total`` ones that can be changed."""

    top: list[Feature]
    total: int


class NodeAnswer(msgspec.Struct, frozen=True):
    """A node: its true ``label`` if that is known, and what the model says."""

    id: str
    index: int
    label: str | None
    prediction: Prediction
    features: NodeFeatures
    neighbours: Neighbours


class ChangedFeature(msgspec.Struct, frozen=True):
    """Its values; null where it is missing."""

    name: str
    before: float | str | None
    after: float | str | None


class ChangeAnswer(msgspec.Struct, frozen=True):
    """The node as it is and as it would be; all else, its neighbours too, stays as it is."""

    id: str
    changed: list[ChangedFeature]
    before: Prediction
    after: Prediction


class ModelAnswer(msgspec.Struct, frozen=True):
    """What is served. ``explained`` and ``changed`` are null, or say why that cannot be asked.

    ``threshold`` is null unless one was chosen: from which probability on its class is predicted.
    """

    dataset: str
    model: str
    settings: str
    task: str
    classes: list[str]
    nodes: int
    features: int
    changeable: int
    explained: str | None
    changed: str | None
    hoplite: str
    threshold: Threshold | None = None
