"""The pictures of a model: filters, confusion matrix, reliability, numbers, and its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.engine.spectrum import RESPONSE_POINTS, frequency_response, spectral_density
from hoplite.errors import ConfigError, GraphError, check_choice, plural
from hoplite.formatting import short
from hoplite.graph import PARTS, Graph, as_node_indices
from hoplite.io.convert import converted
from hoplite.labels import UNKNOWN_LABEL, distinct, known_labels, label_type
from hoplite.operators import find_operator
from hoplite.plots import drawings, figure, finite, safe, stroke_of
from hoplite.tasks import LOSS, Evaluation, Task
from hoplite.tasks.base import title_of
from hoplite.tasks.evaluation import binned

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from hoplite.graph import NodeData
    from hoplite.models.trained import TrainedModel
    from hoplite.training.results import TrainingResult
    from hoplite.training.scoring import ScoredRun

ALL = "all"  # every node with a label
MAX_CURVES = 12  # maximum number of labels that have a curve each
WORDS = {"train": "training", "val": "validation"}


def filter_figure(model: TrainedModel, graph: Graph | None = None) -> Figure:
    """p(lambda) over the spectrum, and the coefficients c_0 .. c_k next to it.

    With a ``graph`` the density of its operator's eigenvalues is below the curves.
    """
    config, filters = model.config, model.filters_
    operator = find_operator(config.operator)
    points = np.linspace(*operator.spectrum, RESPONSE_POINTS)
    density = []
    if graph is not None and model.parts_:
        raise ConfigError(
            "graph cannot be combined with filters of several matrices, which have different "
            "spectra; leave it out (density=False)."
        )
    if graph is not None:
        own_graph = graph.in_memory()
        if model.loop_weight is not None:
            own_graph = own_graph.with_loop_weight(model.loop_weight)
        _, density = spectral_density(own_graph, config.operator, RESPONSE_POINTS)
        density = finite(density.tolist())
    strokes = [stroke_of(i) for i in range(len(filters))]
    names = [safe(short(name, 40)) for name in filters]

    def series(values: list[np.ndarray]) -> list[drawings.Series]:
        lines = zip(names, values, strokes, strict=True)
        return [
            drawings.Series(name, name, finite(v.tolist()), stroke) for name, v, stroke in lines
        ]

    curves = [
        frequency_response(c, points, basis=config.basis, operator=config.operator)
        for c in filters.values()
    ]
    response = drawings.responses(points.tolist(), series(curves), "response", density)
    hops = drawings.coefficients(series(list(filters.values())))
    for trace in hops.data:  # the legend has the names from the other panel
        trace |= {"showlegend": False, "legendgroup": trace["name"]}
    for trace in response.data:
        trace["legendgroup"] = trace["name"]
    drawn = drawings.panels([response, hops], ["Response", "Coefficients"])
    title = f"{config.kind.title}: {config.size()}"
    return figure(drawn, title, showlegend=len(filters) > 1 or bool(density))


@dataclass(frozen=True)
class PictureData:
    """The outputs (n, m) of some nodes, labels and figures; ``who`` is what a title calls them."""

    task: Task
    labels: np.ndarray
    logits: np.ndarray
    names: tuple[str, ...]
    who: str
    figures: Evaluation


def picture_data(model: TrainedModel, data: NodeData, nodes: Any, picture: str) -> PictureData:
    """The data of a ``picture`` of ``nodes``.

    ``nodes`` is a part of the split, "all" for all labelled nodes, indices, or a mask.
    """
    check_picture(model.task, picture)
    data = converted(data, prepare=model)
    labels, description = _labels_for(model, data), ""
    if isinstance(nodes, str):
        check_choice("nodes", nodes, (*PARTS, ALL))
        chosen = np.arange(len(labels)) if nodes == ALL else getattr(data.split, nodes)
        description = "labelled" if nodes == ALL else WORDS.get(nodes, nodes)
    else:
        mask, chosen = np.asarray(nodes), as_node_indices(nodes, "nodes")
        fits = mask.dtype != bool or mask.shape == (len(labels),)
        if not fits or (chosen.size and not 0 <= chosen.min() <= chosen.max() < len(labels)):
            raise GraphError(
                f"nodes is out of range; pass indices from 0 to {len(labels) - 1:,}, or a "
                f"mask of {len(labels):,} values."
            )
    chosen = chosen[known_labels(labels[chosen])]
    if not chosen.size:
        raise GraphError("the nodes have no label that the model knows; pass labelled nodes.")
    logits = model.logits(data)[chosen]
    who = plural(chosen.size, f"{description} node".strip())
    figures = model.task.evaluate(labels[chosen], logits, model.class_names)
    return PictureData(model.task, labels[chosen], logits, model.class_names, who, figures)


def check_picture(task: Task, picture: str) -> None:
    """Raise ConfigError unless the task has this picture."""
    if picture not in task.pictures:
        others = " and ".join(task.pictures) or "none"
        raise ConfigError(f"{picture} is not available for {task.labels.task}; use {others}.")


def confusion_figure(outputs: PictureData) -> Figure:
    """The confusion matrix."""
    figures, names = outputs.figures, outputs.names
    assert figures.confusion is not None  # of classes there is one
    drawn = drawings.confusion(figures.confusion.tolist(), names)
    title = f"Confusion matrix: accuracy {figures['accuracy']:.3f} of {outputs.who}"
    return figure(drawn, title, height=max(360, 32 * len(names) + 160))


def reliability_figure(outputs: PictureData) -> Figure:
    """Probabilities against the share of correct predictions; one curve per label if several."""
    if outputs.task.exclusive:
        figures = outputs.figures
        names = "probability of the predicted class", "share of correct predictions"
        drawn = drawings.reliability({"model": figures.reliability}, *names)
        title = (
            f"Reliability: calibration error {figures['calibration_error']:.3f} of {outputs.who}"
        )
        return figure(drawn, title, height=440, showlegend=True)
    inside, chance = outputs.labels == 1, outputs.task.link(outputs.logits)
    often = np.argsort(-inside.sum(axis=0), kind="stable")[:MAX_CURVES]
    names = distinct([outputs.names[c] for c in often])
    bins = [binned(chance[:, c], inside[:, c]) for c in often]
    series = dict(zip(names, bins, strict=True))
    drawn = drawings.reliability(series, "probability of the label", "share that has it")
    some = "the most frequent labels" if len(often) < len(outputs.names) else "each label"
    below = {"orientation": "h", "y": -0.2, "yanchor": "top"}  # narrow pages have no room beside it
    high = 440 + 12 * len(names)
    title = f"Reliability of {some}: {outputs.who}"
    return figure(drawn, title, height=high, showlegend=True, legend=below)


def predicted_figure(outputs: PictureData) -> Figure:
    """Predicted numbers against the true ones."""
    figures, values = outputs.figures, outputs.task.predict(outputs.logits).tolist()
    drawn = drawings.predicted(outputs.labels.tolist(), values)
    how = f"R² {figures['r2']:z.3f}, mean error {figures['mae']:.4g}"
    title = f"Predicted and true: {how}, {outputs.who}"
    return figure(drawn, title, height=440)


def _labels_for(model: TrainedModel, data: NodeData) -> np.ndarray:
    """The labels of the nodes as the model's class indices; unknown if it lacks the class."""
    names, labels, type_ = data.class_names, np.asarray(data.labels), model.task.labels
    if label_type(labels) is not type_:
        raise GraphError(
            f"the graph's labels are for {label_type(labels).task}, but the model was trained for "
            f"{type_.task}; use the training graph, or graph.for_task({type_.task!r})."
        )
    if names == model.class_names or not model.task.has_classes:  # of names, one may be there twice
        return labels
    model_names = {*model.class_names, *model.left_out_classes}
    numbered = names == tuple(map(str, range(len(names))))  # the graph does not name its classes
    if numbered and not {*names} <= model_names:
        if model.task.exclusive:
            return np.where(labels < model.num_classes, labels, UNKNOWN_LABEL)
        if labels.shape[1] != model.num_classes:
            raise GraphError(
                f"the graph has {labels.shape[1]} labels without names, but the model has "
                f"{model.num_classes}; pass class_names when building the graph."
            )
        return labels
    return type_.moved(labels, names, model.class_names)


def history_figure(result: TrainingResult) -> Figure:
    """Two panels, the losses and the score, with a colour for every run.

    The score is the monitor, or the task's score if that is the loss. A diamond marks the best
    epoch, and a cross the last one if training stopped early.
    """
    monitor = result.task.monitor(result.training_config.monitor)
    score = (result.task.score if monitor is LOSS else monitor).name
    drawn_parts = []
    longest = max(run.epochs for run in result.runs)
    for figure_name in (LOSS.name, score):
        data: list[dict[str, Any]] = []
        for index, run in enumerate(result.runs):
            for part, (about, dash) in drawings.PARTS.items():
                values = finite(np.asarray(run.history.get(f"{part}_{figure_name}", ())).tolist())
                if not any(value is not None for value in values):
                    continue
                stroke = {**stroke_of(index), "dash": dash}
                name = f"{about}, seed {run.seed}" if len(result.runs) > 1 else about
                drawn = drawings.curve(name, values, stroke, f"seed {run.seed}", legendgroup=name)
                in_legend = figure_name == LOSS.name or f"{part}_{LOSS.name}" not in run.history
                data.append(drawn | {"showlegend": in_legend})
                if part == ("val" if "val_loss" in run.history else "train"):
                    data += _marks(run, values, stroke["color"], figure_name)
        best = result.runs[0].best_epoch if len(result.runs) == 1 else 0
        title = title_of(figure_name)
        drawn_parts.append(drawings.epochs(data, title, longest=longest, best=best or None))
    drawn = drawings.panels(drawn_parts, ["Loss", title_of(score).capitalize()])
    title = f"{result.model_config.kind.title} on {result.graph.name}: training by epoch"
    return figure(drawn, title, showlegend=True, hovermode="closest")


def _marks(
    run: ScoredRun, values: list[float | None], colour: str, what: str
) -> list[dict[str, Any]]:
    """The kept epoch, and the last one if the run stopped early; of a curve of the history."""
    marks = []
    if run.best_epoch:
        marks.append(("diamond", run.best_epoch, f"best epoch {run.best_epoch}"))
    if run.stopped_early:
        marks.append(("x", run.epochs, f"stopped after epoch {run.epochs}"))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [epoch],
            "y": [values[epoch - 1]],
            "marker": {"symbol": symbol, "size": 9, "color": colour},
            "showlegend": False,
            "hovertemplate": f"{name}, seed {run.seed}: %{{y:.3f}}<extra></extra>",
            "meta": {"role": what},
        }
        for symbol, epoch, name in marks
    ]
