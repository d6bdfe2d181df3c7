"""Questions about a model's predictions on its data, one node at a time, without HTTP.

Logits of all nodes are computed once, and the explanations set up; then a prediction is a row, an
explanation k sparse products with one column, and a change of a node's own features x to x'

    z' = z + (x' - x) W,    W = sum_i c_i p_i(S)[v, v] Theta         (see hoplite.explain.changes)

or, where the outputs are standardised or not linear in X, the model evaluated again on the changed
graph.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import scipy.sparse as sp
from pydantic import BaseModel, Field

from hoplite.errors import ConfigError, HopliteError
from hoplite.explain import Explainer
from hoplite.explain.changes import Cell, find_cells, own_slopes
from hoplite.explain.exact import label_text, open_rows, outputs_of, plain_float
from hoplite.explain.summary import Changes, Output, Summary, Threshold
from hoplite.formatting import short
from hoplite.graph import NodeData
from hoplite.machine import VERSION, parse_bytes
from hoplite.models.trained import TrainedModel
from hoplite.preparation import DateColumn
from hoplite.tasks.base import Task

MAX_SORTED = 2_000_000  # names that are sorted for a search; more are only found exactly
NUM_EXAMPLES = 4
MAX_NEIGHBOURS = 30
MAX_FEATURES = 60

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


class Names:
    """The texts of ``names``, for exact look-up and search.

    >>> names = Names(["Zoë", "bob", "Bea", 7])
    >>> names.index("7"), names.index("Bob"), names.search("B", 5), names.search("o", 5)
    (3, None, [2, 1], [1, 0])
    """

    def __init__(self, names: Sequence[Any]) -> None:
        self._names = names
        self._numbered = isinstance(names, range)  # 0 to n - 1: no table is needed
        texts = () if self._numbered else names
        self._place = {str(name): place for place, name in enumerate(texts)}
        few = names if len(names) <= MAX_SORTED else ()
        self._sorted = sorted((str(name).casefold(), place) for place, name in enumerate(few))

    @property
    def unique(self) -> bool:
        """Whether no two names have the same text, as 1 and "1" have."""
        return self._numbered or len(self._place) == len(self._names)

    def __getitem__(self, place: int) -> str:
        return str(self._names[place])

    def index(self, text: str) -> int | None:
        """The place of the name with exactly this text, or None."""
        if not self._numbered:
            return self._place.get(text)
        decimal = text.isascii() and text.isdecimal() and str(int(text[:20])) == text
        return int(text) if decimal and int(text) < len(self._names) else None

    def search(self, text: str, limit: int) -> list[int]:
        """Places of names that begin with ``text``, else of those that contain it.

        Case does not matter; a name equal to ``text`` comes first.
        """
        folded = text.casefold()
        start = bisect_left(self._sorted, (folded,))
        near = self._sorted[start : start + limit]
        matches = [place for name, place in near if name.startswith(folded)]
        if not matches:
            matches = [place for name, place in self._sorted if folded in name]
        exact = self.index(text)
        if exact is not None:
            matches = [exact, *(place for place in matches if place != exact)]
        return matches[:limit]


def find_examples(
    task: Task, logits: np.ndarray, names: Sequence[str]
) -> list[tuple[str, list[int]]]:
    """Examples of nodes to look at, with a description.

    For numbers these are the largest and the smallest. For classes they are the most confident
    predictions of the class that is predicted least often, and the least confident of all.

    >>> from hoplite.tasks.multiclass import Multiclass
    >>> found = find_examples(Multiclass(), np.array([[2.0, 0], [0, 1], [1, 0], [5, 0]]), "ab")
    >>> for about, nodes in found:
    ...     print(about, nodes)
    the most confident predictions of b, the class predicted least often [1]
    the least confident predictions [2, 0, 3]
    """
    predicted = task.predict(logits)
    everywhere = np.ones(len(logits), bool)
    if not task.has_classes:
        smallest, largest = _first(predicted, everywhere), _first(-predicted, everywhere)
        return [("the largest", largest), ("the smallest", smallest)]
    values = task.link(logits)
    several = values.shape == predicted.shape
    inside = predicted == 1 if several else predicted[:, None] == np.arange(len(names))
    counts = inside.sum(axis=0)
    if not counts.any():
        return []
    rarest = int(np.where(counts > 0, counts, len(logits) + 1).argmin())
    confident = _first(-values[:, rarest], inside[:, rarest])
    often = ", the class predicted least often" if (counts > 0).sum() > 1 else ""
    examples = [(f"the most confident predictions of {short(names[rarest])}{often}", confident)]
    if task.exclusive:
        everywhere[confident] = False  # each node once
        examples.append(("the least confident predictions", _first(values[inside], everywhere)))
    return [(about, nodes) for about, nodes in examples if nodes]


def _first(keys: np.ndarray, candidates: np.ndarray) -> list[int]:
    """The candidates with the smallest keys; of equal ones the first."""
    nodes = np.flatnonzero(candidates)
    return nodes[np.argsort(keys[nodes], kind="stable")][:NUM_EXAMPLES].tolist()


class UnknownNode(HopliteError):
    """No node has the requested id."""


class Answers:
    """Answers about ``model`` on ``data``, set up once; it only reads.

    >>> from hoplite import Graph, model_config
    >>> graph = Graph.from_edges([(0, 1)], [[1.0], [3.0]], node_ids=["ann", "bob"])
    >>> weights = {"theta": np.array([[1.0, 2.0]])}
    >>> model = TrainedModel(model_config("sgc", hops=1), weights, 1, ("cat", "dog"))
    >>> answers = Answers(model, graph)
    >>> [round(output.logit, 4) for output in answers.node("ann").prediction.outputs]
    [2.0, 4.0]
    >>> changed = answers.change("ann", {"feature 0": -3})
    >>> changed.changed[0].before, [round(abs(one.logit), 4) for one in changed.after.outputs]
    (1.0, [0.0, 0.0])
    """

    def __init__(
        self,
        model: TrainedModel,
        data: NodeData,
        *,
        memory: str | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        self._model, self._task = model, model.task
        chosen, names = model.task.chosen_threshold, model.class_names
        self._threshold = chosen and Threshold(names[chosen[0]], chosen[1])
        self._rows = open_rows(model, data, None if memory is None else parse_bytes(memory))
        self._data = data = self._rows.data
        self._ids = Names(range(data.num_nodes) if data.node_ids is None else data.node_ids)
        if not self._ids.unique:
            raise ConfigError(f"two nodes of {data.name} have ids that look the same.")
        parts = []
        for first, part in model.logit_rows(data, memory=memory):
            parts.append(part)
            if progress is not None:
                progress("predictions", (first + len(part)) / max(data.num_nodes, 1))
        self._logits = np.concatenate(parts)
        self._predictions = self._task.columns(self._logits, names)["predicted"]
        self._examples = find_examples(self._task, self._logits, names)
        self._explainer: Explainer | None = None
        self._no_explanation = None
        try:
            explainer = Explainer(model, data, memory=memory)
            explainer.explain_at(0).summary(brief=True)  # computes what all explanations share
            self._explainer = explainer
        except HopliteError as error:
            self._no_explanation = str(error)
        self._linear = self._explainer is not None and not model.config.standardize
        self._no_change = None
        if not self._linear and data.stored is not None:
            self._no_change = (
                "the model's outputs are not linear in a node's features, and a hop store has no "
                "edges to compute them again; serve the dataset itself."
            )
        feature_names = data.feature_names and (model.feature_names or data.feature_names)
        self._cells = find_cells(model, feature_names, range(model.num_features))
        unique = _unique_names(self._cells)
        self._cell_names = Names(unique)
        self._features = [_feature(*pair) for pair in zip(self._cells, unique, strict=True)]
        self._cell_of = np.full(model.num_features, -1)  # each feature's
        for place, cell in enumerate(self._cells):
            alone = cell.column.width == 1  # all features of its column are of this one cell
            self._cell_of[cell.features if alone else cell.feature] = place

    def model(self) -> ModelAnswer:
        """The served model and its data."""
        model, data = self._model, self._data
        return ModelAnswer(
            dataset=data.name,
            model=model.config.model,
            settings=model.config.size(),
            task=self._task.labels.task,
            classes=list(model.class_names),
            nodes=data.num_nodes,
            features=model.num_features,
            changeable=len(self._cells),
            explained=self._no_explanation,
            changed=self._no_change,
            hoplite=VERSION,
            threshold=self._threshold,
        )

    def examples(self) -> FoundExamples:
        """Examples of nodes to look at."""
        examples = [Examples(about, self._found(nodes)) for about, nodes in self._examples]
        return FoundExamples(examples)

    def nodes(self, prefix: Text = "", limit: Limit = 20) -> FoundNodes:
        """Nodes whose ids begin with ``prefix``; case does not matter."""
        return FoundNodes(self._found(self._ids.search(prefix, limit)))

    def features(
        self, prefix: Text = "", limit: Limit = 20, node: Text | None = None
    ) -> FoundFeatures:
        """Features that can be changed, whose names begin with ``prefix``; values at a node."""
        matches = self._cell_names.search(prefix, limit)
        if node is None:
            return FoundFeatures([self._features[place] for place in matches])
        row = self._rows.row(self._index(node))
        return FoundFeatures([self._feature_at(place, row) for place in matches])

    def node(self, node: Text) -> NodeAnswer:
        """The prediction of a node, its own values and its neighbours."""
        v = self._index(node)
        return NodeAnswer(
            id=self._ids[v],
            index=v,
            label=label_text(self._data, v),
            prediction=self._prediction(self._logits[v]),
            features=self._own_features(v),
            neighbours=self._neighbours(v),
        )

    def explanation(
        self, node: Text, class_: Text | None = None, against: Text | None = None, top: Top = 10
    ) -> Summary:
        """Why ``class`` and not ``against``, as exact sums, and the neighbourhood to draw."""
        v, explainer = self._index(node), self._require_explainer()
        return explainer.explain_at(v, class_, against=against).summary(top, brief=True)

    def flips(self, node: Text) -> Changes:
        """Which value of the node itself, changed alone, would change its class."""
        v, explainer = self._index(node), self._require_explainer()
        return explainer.explain_at(v).changes() or Changes(0, ())

    def change(self, node: Text, features: Values) -> ChangeAnswer:
        """The prediction if some values of the node were others."""
        v = self._index(node)
        before = after = self._rows.row(v)
        changed = []
        for name, value in features.items():
            place = self._cell_names.index(name)
            if place is None:
                raise ConfigError(
                    f"{name!r} is not a feature that can be changed; see /api/features."
                )
            cell = self._cells[place]
            after = cell.changed(after, value)
            changed.append(ChangedFeature(name, cell.value(before), cell.value(after)))
        logits = self._logits[v]
        if (after != before).any():
            logits = self._changed_logits(v, before, after)
        if not np.isfinite(logits).all():
            raise ConfigError("these values are too large: the model's outputs are not finite.")
        predictions = self._prediction(self._logits[v]), self._prediction(logits)
        return ChangeAnswer(self._ids[v], changed, *predictions)

    def _changed_logits(self, v: int, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        if self._no_change is not None:
            raise ConfigError(self._no_change)
        if self._linear and self._explainer is not None:
            exact = self._explainer.exact
            slopes = own_slopes(exact, v, exact.rows.reach(v))
            return self._logits[v] + (after - before) @ slopes
        graph = self._data
        rows = _with_row(graph.features, v, after)
        other = graph.with_features(rows, graph.feature_names, preparation=graph.preparation)
        return self._model.logits(other)[v]

    def _require_explainer(self) -> Explainer:
        if self._explainer is None:
            raise ConfigError(self._no_explanation or "")
        return self._explainer

    def _index(self, node: str) -> int:
        index = self._ids.index(node)
        if index is None:
            raise UnknownNode(f"{node!r} is not a node id; ids look like {self._ids[0]!r}.")
        return index

    def _own_features(self, v: int) -> NodeFeatures:
        row, places = self._rows.row(v), list(range(len(self._cells)))
        if len(places) > MAX_FEATURES:  # e.g. words of a text: only the node's own
            nonzero = self._cell_of[np.flatnonzero(row)]
            places = list(dict.fromkeys(nonzero[nonzero >= 0].tolist()))[:MAX_FEATURES]
        features = [self._feature_at(place, row) for place in places]
        return NodeFeatures(features, len(self._cells))

    def _feature_at(self, place: int, row: np.ndarray) -> Feature:
        return msgspec.structs.replace(self._features[place], value=self._cells[place].value(row))

    def _neighbours(self, v: int) -> Neighbours:
        row = self._rows.edges(np.array([v]))
        others = row.indices != v
        near, weights = row.indices[others], row.data[others]
        order = np.argsort(-np.abs(weights), kind="stable")[:MAX_NEIGHBOURS]
        top = [
            Neighbour(
                self._ids[u],
                plain_float(weight),
                label_text(self._data, u),
                self._value(self._predictions[u]),
            )
            for u, weight in zip(near[order].tolist(), weights[order], strict=True)
        ]
        return Neighbours(top, len(near))

    def _found(self, nodes: Iterable[int]) -> list[FoundNode]:
        return [FoundNode(self._ids[v], self._value(self._predictions[v])) for v in nodes]

    def _value(self, predicted: Any) -> str | float:
        return str(predicted) if self._task.has_classes else float(predicted)

    def _prediction(self, logits: np.ndarray) -> Prediction:
        names = self._model.class_names
        predicted = self._task.columns(logits[None], names)["predicted"][0]
        outputs = outputs_of(self._task, names, logits)
        return Prediction(self._value(predicted), outputs, self._threshold)


def _unique_names(cells: Sequence[Cell]) -> list[str]:
    """Names of the cells; if two are the same, each has the number of its feature, too."""
    names = [cell.name for cell in cells]
    if len(set(names)) == len(names):
        return names
    return [f"{cell.name} (feature {cell.feature})" for cell in cells]


def _feature(cell: Cell, name: str) -> Feature:
    column = cell.column
    type_ = "date" if isinstance(column, DateColumn) else "truth" if column.truth else "number"
    type_ = "text" if column.categories else type_
    return Feature(name, type_, list(column.categories), cell.may_miss)


def _with_row(features: Any, v: int, row: np.ndarray) -> Any:
    """X with another row v, of the same type."""
    row = row.astype(features.dtype)[None]
    if sp.issparse(features):
        return sp.vstack([features[:v], sp.csr_array(row), features[v + 1 :]], "csr")
    changed = np.array(features)
    changed[v] = row
    return changed
