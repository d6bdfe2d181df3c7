"""What can be asked of a model on its data, one node at a time, without HTTP.

Logits of all nodes are computed once, and the explanations set up; then a prediction is a row, an
explanation k sparse products with one column, and a change of a node's own features x to x'

    z' = z + (x' - x) W,    W = sum_i c_i p_i(S)[v, v] Theta         (see hoplite.explain.changes)

or, where the outputs are standardised or not linear in X, the model evaluated again on the changed
graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from msgspec import structs

from hoplite.errors import ConfigError, HopliteError
from hoplite.explain import Explainer
from hoplite.explain.around import plain_float
from hoplite.explain.cells import Cell, CellValue, find_cells
from hoplite.explain.changes import own_features, own_slopes
from hoplite.explain.exact import label_text
from hoplite.explain.summary import Changes, Summary, Threshold
from hoplite.graph import Graph
from hoplite.models.alignment import aligned_columns, aligned_graph, in_columns
from hoplite.models.trained import TrainedModel
from hoplite.node_data import NodeData
from hoplite.preparation import DATE
from hoplite.serve.examples import find_examples
from hoplite.serve.explained import with_text_ids
from hoplite.serve.names import Names
from hoplite.serve.schema import (
    ChangeAnswer,
    ChangedFeature,
    Examples,
    Feature,
    FoundExamples,
    FoundFeatures,
    FoundNode,
    FoundNodes,
    ModelAnswer,
    Neighbour,
    Neighbours,
    NodeAnswer,
    NodeFeatures,
    Output,
    Prediction,
)
from hoplite.version import VERSION

MOST_NEIGHBOURS = 30
MOST_FEATURES = 60

Report = Callable[[str, float], None]


class UnknownNode(HopliteError):
    """There is no node of the id that was asked for."""


class Answers:
    """Everything that is answered of ``model`` on ``data``, set up once; it only reads.

    >>> from hoplite import Graph, ModelConfig
    >>> graph = Graph.from_edges([(0, 1)], [[1.0], [3.0]], node_ids=["ann", "bob"])
    >>> weights = {"theta": np.array([[1.0, 2.0]])}
    >>> model = TrainedModel(ModelConfig("sgc", hops=1), weights, 1, ("cat", "dog"))
    >>> answers = Answers(model, graph)
    >>> [round(one.logit, 4) for one in answers.node("ann").prediction.outputs]
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
        progress: Report | None = None,
    ) -> None:
        report = progress or (lambda what, share: None)
        self._model, self._task = model, model.task
        border = model.task.chosen_threshold
        self._threshold = border and Threshold(model.class_names[border[0]], border[1])
        self._graph: Graph | None = None
        if data.stored is None:
            data = self._graph = aligned_graph(
                data.in_memory(),
                model.num_features,
                model.feature_names,
                model.loop_weight,
                model.relations,
            )
        self._ids = _node_names(data)
        parts = []
        for first, part in model.logit_rows(data, memory=memory):
            parts.append(part)
            report("predictions", 0.9 * (first + len(part)) / max(data.num_nodes, 1))
        self._logits = np.concatenate(parts)
        self._every_prediction = self._task.columns(self._logits, model.class_names)["predicted"]
        self._examples = find_examples(self._task, self._logits, model.class_names)
        self._data = data
        self._explainer: Explainer | None = None
        self._no_explanation = None
        try:
            self._explainer = Explainer(model, data, memory=memory)
            self._explainer.explain_at(0).summary(brief=True)  # sets up what all of them share
        except HopliteError as error:
            self._explainer, self._no_explanation = None, str(error)
        self._columns: np.ndarray | None = None  # of a store whose rows are read here
        if self._graph is None and self._explainer is None:
            self._columns = aligned_columns(data, model.num_features, model.feature_names)
        names = data.feature_names and (model.feature_names or data.feature_names)
        self._cells = find_cells(model, names, range(model.num_features))
        unique = _unique_names(self._cells)
        self._cell_names = Names(unique)
        self._features = [
            _feature(cell, name) for cell, name in zip(self._cells, unique, strict=True)
        ]
        self._cell_of = np.full(model.num_features, -1)  # each feature's
        for place, cell in enumerate(self._cells):
            alone = cell.column.width == 1  # all features of its column are of this one cell
            self._cell_of[cell.features if alone else cell.feature] = place
        report("ready", 1.0)

    def model(self) -> ModelAnswer:
        """What is served."""
        model, data, config = self._model, self._data, self._model.config
        return ModelAnswer(
            dataset=data.name,
            model=config.model,
            settings=config.size(),
            task=self._task.labels.task,
            classes=list(model.class_names),
            nodes=data.num_nodes,
            features=model.num_features,
            changeable=len(self._cells),
            explained=self._no_explanation,
            changed=self._no_change(),
            hoplite=VERSION,
            threshold=self._threshold,
        )

    def examples(self) -> FoundExamples:
        """Nodes to begin with."""
        return FoundExamples(
            [Examples(about, self._found(nodes)) for about, nodes in self._examples]
        )

    def nodes(self, prefix: str, limit: int) -> FoundNodes:
        """Nodes by how their ids begin."""
        return FoundNodes(self._found(self._ids.search(prefix, limit)))

    def _found(self, nodes: Iterable[int]) -> list[FoundNode]:
        return [FoundNode(self._ids[v], self._predicted(v)) for v in nodes]

    def features(self, prefix: str, limit: int, node: str | None = None) -> FoundFeatures:
        """What can be changed, by how its name begins, with its values at a node."""
        found = self._cell_names.search(prefix, limit)
        if node is None:
            return FoundFeatures([self._features[place] for place in found])
        own = self._row(self._index(node))
        return FoundFeatures([self._feature_at(place, own) for place in found])

    def node(self, node: str) -> NodeAnswer:
        """What the model says of a node, its own values and its nearest."""
        v = self._index(node)
        return NodeAnswer(
            id=self._ids[v],
            index=v,
            label=label_text(self._data, v),
            prediction=self._prediction(self._logits[v]),
            features=self._own(v),
            neighbours=self._neighbours(v),
        )

    def explanation(
        self, node: str, class_: str | None = None, against: str | None = None, top: int = 10
    ) -> Summary:
        """Why: exact sums over hops, nodes and features, and the neighbourhood to draw."""
        v, explainer = self._index(node), self._known_explainer()
        told = explainer.explain_at(v, class_, against=against).summary(top, brief=True)
        return with_text_ids(told)

    def flips(self, node: str) -> Changes:
        """Which value of the node itself, changed alone, would change its class."""
        v, explainer = self._index(node), self._known_explainer()
        told = explainer.explain_at(v).changes() or Changes(0, ())
        places = [int(self._cell_of[one.index]) for one in told.found]
        named = [
            structs.replace(one, name=self._features[place].name)
            for one, place in zip(told.found, places, strict=True)
        ]
        return Changes(told.checked, tuple(named))

    def change(self, node: str, features: Mapping[str, CellValue]) -> ChangeAnswer:
        """What the model would say if some values of the node were others."""
        v = self._index(node)
        before = own = self._row(v)
        told = []
        for name, value in features.items():
            place = self._cell_names.index(name)
            if place is None:
                raise ConfigError(
                    f"{name!r} is no feature that can be changed; /api/features lists those."
                )
            cell = self._cells[place]
            own = cell.changed(own, value)
            told.append(ChangedFeature(name, cell.value(before), cell.value(own)))
        logits = self._logits[v]
        if (own != before).any():
            logits = self._changed_logits(v, before, own)
        if not np.isfinite(logits).all():
            raise ConfigError("these values are so large that the model's outputs are not finite.")
        return ChangeAnswer(
            self._ids[v], told, self._prediction(self._logits[v]), self._prediction(logits)
        )

    def _changed_logits(self, v: int, before: np.ndarray, own: np.ndarray) -> np.ndarray:
        if self._explainer is not None:
            exact = self._explainer.exact
            slopes = own_slopes(exact, v, exact.rows.reach(v))
            if slopes is not None:
                return self._logits[v] + (own - before) @ slopes
        if self._graph is None:
            raise ConfigError(self._no_change() or "")
        graph = self._graph
        made = _with_row(graph.features, v, own)
        other = graph.with_features(made, graph.feature_names, preparation=graph.preparation)
        return self._model.logits(other)[v]

    def _no_change(self) -> str | None:
        """Why no value can be changed; None if it can."""
        linear = self._explainer is not None and not self._model.config.standardize
        if linear or self._graph is not None:
            return None
        return (
            "the model's outputs are not linear in a node's features, and a hop store has no edges "
            "to compute them again; serve the dataset itself."
        )

    def _known_explainer(self) -> Explainer:
        if self._explainer is None:
            raise ConfigError(self._no_explanation or "")
        return self._explainer

    def _index(self, node: str) -> int:
        found = self._ids.index(node)
        if found is None:
            raise UnknownNode(
                f"{node!r} is not the id of a node; type how one begins to see those that there "
                "are."
            )
        return found

    def _row(self, v: int) -> np.ndarray:
        """X[v] in float64, in the model's order: (d,)."""
        if self._explainer is not None:
            return own_features(self._explainer.exact, v)
        graph = self._graph
        rows: Any = self._data.feature_rows(v, v + 1) if graph is None else graph.features[[v]]
        own = sp.csr_array(rows).toarray()[0].astype(np.float64)
        return own if self._columns is None else in_columns(own, self._columns)

    def _own(self, v: int) -> NodeFeatures:
        own, cells = self._row(v), self._cells
        shown: Iterable[int] = range(len(cells))
        if len(cells) > MOST_FEATURES:  # words of a text, say: those that it has
            there = self._cell_of[np.flatnonzero(own)]
            shown = dict.fromkeys(there[there >= 0].tolist())
        told = [self._feature_at(place, own) for place in [*shown][:MOST_FEATURES]]
        return NodeFeatures(told, len(cells))

    def _feature_at(self, place: int, own: np.ndarray) -> Feature:
        return structs.replace(self._features[place], value=self._cells[place].value(own))

    def _neighbours(self, v: int) -> Neighbours:
        if self._explainer is not None:
            row = sp.csr_array(self._explainer.exact.rows.edges(np.array([v])))
        elif self._graph is not None:
            row = self._graph.adjacency[[v]]
        else:
            return Neighbours([], 0)
        others = row.indices != v
        near, weights = row.indices[others], row.data[others]
        order = np.argsort(-np.abs(weights), kind="stable")[:MOST_NEIGHBOURS]
        known = self._data.adjacency_rows is not None
        told = [
            Neighbour(
                self._ids[u],
                plain_float(weight) if known else None,
                label_text(self._data, u),
                self._predicted(u),
            )
            for u, weight in zip(near[order].tolist(), weights[order], strict=True)
        ]
        return Neighbours(told, len(near))

    def _predicted(self, v: int) -> str | float:
        return self._told(self._every_prediction[v])

    def _told(self, predicted: Any) -> str | float:
        return str(predicted) if self._task.has_classes else float(predicted)

    def _prediction(self, logits: np.ndarray) -> Prediction:
        names = self._model.class_names
        values = self._task.link(logits[None])[0].tolist()
        outputs = zip(names, logits.tolist(), values, strict=True)
        predicted = self._task.columns(logits[None], names)["predicted"][0]
        told = [Output(*one) for one in outputs]
        return Prediction(self._told(predicted), told, self._threshold)


def _node_names(data: NodeData) -> Names:
    """The ids as texts; ConfigError if two nodes have the same, such as 1 and "1"."""
    names = Names(range(data.num_nodes) if data.node_ids is None else data.node_ids)
    if names.repeated is not None:
        raise ConfigError(
            f"two nodes of {data.name} have ids with the text {names.repeated!r}, so that no "
            "request can tell them apart; give each another one."
        )
    return names


def _unique_names(cells: Sequence[Cell]) -> list[str]:
    """Names of the cells; those that repeat tell their feature, too."""
    often, found = Counter(cell.name for cell in cells), []
    for cell in cells:
        name = cell.name
        while often[name] > (name == cell.name):  # the longer name may be that of another
            name = f"{name} (feature {cell.feature})"
        found.append(name)
    return found


def _feature(cell: Cell, name: str) -> Feature:
    column = cell.column
    kind = "date" if column.kind == DATE else "truth" if column.truth else "number"
    kind = "text" if column.categories else kind
    return Feature(name, kind, list(column.categories), cell.may_miss)


def _with_row(features: Any, v: int, row: np.ndarray) -> Any:
    """X with another row v, of the same type."""
    row = row.astype(features.dtype)[None]
    if sp.issparse(features):
        return sp.vstack([features[:v], sp.csr_array(row), features[v + 1 :]], "csr")
    made = np.array(features)
    made[v] = row
    return made
