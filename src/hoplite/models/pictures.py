"""The pictures of a trained model: its filters, whom it takes for whom, whether it is honest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.errors import ConfigError, GraphError, check_choice
from hoplite.filters import RESPONSE_POINTS, frequency_response
from hoplite.graph import PARTS, Graph
from hoplite.graph_checks import as_node_indices
from hoplite.labels import CLASSES, UNKNOWN_LABEL, kind_of
from hoplite.operators import find_operator
from hoplite.plots.base import Drawing, finite, safe, stroke_of
from hoplite.plots.confusion import confusion
from hoplite.plots.filters import Series, coefficients, responses
from hoplite.plots.panels import beside
from hoplite.plots.reliability import reliability
from hoplite.plots.theme import figure
from hoplite.shown import short
from hoplite.spectrum import spectral_density
from hoplite.tasks import Evaluation, Task

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from hoplite.models.trained import TrainedModel
    from hoplite.node_data import NodeData

ALL = "all"  # every node with a label
WORDS = {"train": "training", "val": "validation"}


def filter_figure(model: TrainedModel, graph: Graph | None = None) -> Figure:
    """p(lambda) over the spectrum, and the coefficients c_0 .. c_k beside it.

    With a ``graph`` the density of its operator's eigenvalues is below the curves.
    """
    config, filters = model.config, model.filters_
    operator = find_operator(config.operator)
    points = np.linspace(*operator.spectrum, RESPONSE_POINTS)
    density = []
    if graph is not None and model.parts_:
        raise ConfigError(
            "graph is given, but the filters are of several matrices, each with a spectrum of its "
            "own; leave it out (density=False)."
        )
    if graph is not None:
        own = graph.in_memory()
        if model.loop_weight is not None:
            own = own.with_loop_weight(model.loop_weight)
        _, found = spectral_density(own, config.operator, RESPONSE_POINTS)
        density = finite(found.tolist())
    strokes = [stroke_of(i) for i in range(len(filters))]
    names = [safe(short(name, 40)) for name in filters]

    def series(values: list[np.ndarray]) -> list[Series]:
        found = zip(names, values, strokes, strict=True)
        return [Series(name, name, finite(v.tolist()), stroke) for name, v, stroke in found]

    curves = [
        frequency_response(c, points, basis=config.basis, operator=config.operator)
        for c in filters.values()
    ]
    response = responses(finite(points.tolist()), series(curves), title="response", density=density)
    hops = coefficients(series(list(filters.values())))
    for trace in hops.data:  # the legend has the names from the other panel
        trace |= {"showlegend": False, "legendgroup": trace["name"]}
    for trace in response.data:
        trace["legendgroup"] = trace["name"]
    drawn = beside([response, hops], ["Response", "Coefficients"])
    gates = ", without its gates" if config.kind.gated else ""
    title = f"{config.kind.title}: {config.size()}{gates}"
    return figure(drawn, title, showlegend=len(filters) > 1 or bool(density))


def evaluated(model: TrainedModel, data: NodeData, nodes: Any) -> tuple[Evaluation, str]:
    """The figures of ``nodes`` of prepared ``data``, and how they are called in a title.

    ``nodes`` is a part of the split, "all" that have a label, or indices or a mask.
    """
    check_exclusive(model.task)
    labels, known = _labels_for(model, data), ""
    if isinstance(nodes, str):
        check_choice("nodes", nodes, (*PARTS, ALL))
        chosen = np.arange(len(labels)) if nodes == ALL else getattr(data.split, nodes)
        known = "labelled" if nodes == ALL else WORDS.get(nodes, nodes)
    else:
        given = np.asarray(nodes)
        if given.dtype == bool and given.shape != (len(labels),):
            raise GraphError(
                f"nodes is a mask of {given.size:,} values but the graph has {len(labels):,} "
                "nodes; give one for each."
            )
        chosen = as_node_indices(nodes, "nodes")
        if chosen.size and not 0 <= chosen.min() <= chosen.max() < len(labels):
            odd = chosen.min() if chosen.min() < 0 else chosen.max()
            raise GraphError(
                f"nodes has {odd} but the graph has {len(labels):,} nodes; indices go from 0 to "
                f"{len(labels) - 1:,}."
            )
    chosen = chosen[labels[chosen] >= 0]
    if not chosen.size:
        what = f"the {known} nodes have" if known else "these nodes have"
        raise GraphError(
            f"{what} no label that the model knows, so nothing can be judged; give nodes that "
            "have one."
        )
    logits = model.logits(data)[chosen]
    found = model.task.evaluate(labels[chosen], logits, model.class_names)
    return found, f"{chosen.size:,} {known} nodes".replace("  ", " ")


def check_exclusive(task: Task) -> None:
    """ConfigError unless every node has one class, so that it can be taken for another."""
    if not task.exclusive:
        raise ConfigError(
            f"the labels are for {task.labels.task}, where a node is not of one class that could "
            "be taken for another; look at run.test_metrics, or predict and plot the values."
        )


def confusion_figure(found: Evaluation, names: tuple[str, ...], who: str) -> Figure:
    """Who is taken for whom among the nodes ``who``."""
    assert found.confusion is not None  # of classes there is one
    drawn = confusion(found.confusion.tolist(), names)
    title = f"Who is taken for whom: accuracy {found['accuracy']:.3f} of {who}"
    return figure(drawn, title, height=max(360, 32 * len(names) + 160))


def reliability_figure(found: Evaluation, who: str) -> Figure:
    """Probabilities beside the share of right predictions among the nodes ``who``."""
    drawn: Drawing = reliability(found.reliability)
    title = f"Reliability: calibration error {found['calibration_error']:.3f} of {who}"
    return figure(drawn, title, height=440, showlegend=True)


def _labels_for(model: TrainedModel, data: NodeData) -> np.ndarray:
    """The classes of the nodes by the model's own numbers; -1 for those that it does not know."""
    names, labels = data.class_names, np.asarray(data.labels)
    if kind_of(labels) is not CLASSES:
        raise GraphError(
            "the graph's labels are no classes, and the model was trained for classes; use its own "
            "graph, or graph.for_task('classification')."
        )
    if names == model.class_names:  # of which one may be there twice
        return labels
    known = {*model.class_names, *model.left_out_classes}
    numbered = names == tuple(map(str, range(len(names))))  # the graph does not name its classes
    if numbered and not {*names} <= known:
        return np.where(labels < model.num_classes, labels, UNKNOWN_LABEL)
    return CLASSES.moved(labels, names, model.class_names)
