"""The types of what is asked, which pydantic checks, and of answers, which msgspec encodes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from pydantic import BaseModel, Field

from hoplite.explain.summary import Output, Threshold

MAX_BODY = 1 << 16  # bytes of a request

Text = Annotated[str, Field(max_length=1000)]
Limit = Annotated[int, Field(ge=1, le=100)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Top = Annotated[int, Field(ge=1, le=50)]
Values = Annotated[dict[Text, Number | str | bool | None], Field(max_length=100)]


class Failure(BaseModel):
    """Why a request failed, in one sentence."""

    error: str


class Prediction(msgspec.Struct, frozen=True):
    """The prediction of a node; the outputs are in the order of the model's classes.

    ``predicted`` is the most probable class. If a ``threshold`` was chosen, it is that class where
    its probability is above the threshold, and the other class elsewhere. A number is the value.
    """

    predicted: str | float
    outputs: list[Output]
    threshold: Threshold | None = None


class Feature(msgspec.Struct, frozen=True):
    """A value of a node that can be changed.

    ``kind`` is number, truth, date or text; a text has one of the ``choices``. ``gap`` says
    whether it may be missing. ``value`` is as in the table, null for a gap or without a node.
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
    """Nodes whose ids begin with the prefix; if there are none, nodes whose ids contain it."""

    nodes: list[FoundNode]


class Examples(msgspec.Struct, frozen=True):
    about: str
    nodes: list[FoundNode]


class FoundExamples(msgspec.Struct, frozen=True):
    examples: list[Examples]


class Neighbour(msgspec.Struct, frozen=True):
    id: str
    weight: float
    label: str | None
    predicted: str | float


class Neighbours(msgspec.Struct, frozen=True):
    """The heaviest edges, and how many there are in ``total``."""

    top: list[Neighbour]
    total: int


class NodeFeatures(msgspec.Struct, frozen=True):
    """The first features that are not 0, and how many can be changed in ``total``."""

    top: list[Feature]
    total: int


class NodeAnswer(msgspec.Struct, frozen=True):
    """A node, its true ``label`` if that is known, and its prediction."""

    id: str
    index: int
    label: str | None
    prediction: Prediction
    features: NodeFeatures
    neighbours: Neighbours


class ChangedFeature(msgspec.Struct, frozen=True):
    name: str
    before: float | str | None
    after: float | str | None


class ChangeAnswer(msgspec.Struct, frozen=True):
    """The predictions before and after; everything else, neighbours too, stays as it is."""

    id: str
    changed: list[ChangedFeature]
    before: Prediction
    after: Prediction


class ModelAnswer(msgspec.Struct, frozen=True):
    """The served model. ``explained`` and ``changed`` are null, or say why that is impossible."""

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
