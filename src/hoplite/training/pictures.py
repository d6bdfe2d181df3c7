"""The picture of a training: losses and scores by epoch, and the epochs whose weights are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.plots.base import figure, finite, stroke_of
from hoplite.plots.drawings import PARTS, curve, epochs, panels
from hoplite.tasks import LOSS
from hoplite.tasks.base import title_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from hoplite.training.results import TrainingResult
    from hoplite.training.scoring import ScoredRun


def history_figure(result: TrainingResult) -> Figure:
    """Two panels, the losses and the score, with a colour for every run.

    The score is what chose the epoch, or the task's where that was the loss. A diamond is the epoch
    whose weights are kept, a cross the last one where the training stopped before all were done.
    """
    monitor = result.task.monitor(result.training_config.monitor)
    score = (result.task.score if monitor is LOSS else monitor).name
    drawings = []
    longest = max(run.epochs for run in result.runs)
    for figure_name in (LOSS.name, score):
        data: list[dict[str, Any]] = []
        for index, run in enumerate(result.runs):
            for part, (told, dash) in PARTS.items():
                values = finite(np.asarray(run.history.get(f"{part}_{figure_name}", ())).tolist())
                if not any(value is not None for value in values):
                    continue
                stroke = {**stroke_of(index), "dash": dash}
                name = f"{told}, seed {run.seed}" if len(result.runs) > 1 else told
                hidden = figure_name != LOSS.name
                drawn = curve(name, values, stroke, f"seed {run.seed}", legendgroup=name)
                shown = not hidden or f"{part}_{LOSS.name}" not in run.history
                data.append(drawn | {"showlegend": shown})
                if part == ("val" if "val_loss" in run.history else "train"):
                    data += _marks(run, values, stroke["color"], figure_name)
        best = result.runs[0].best_epoch if len(result.runs) == 1 else 0
        title = title_of(figure_name)
        drawings.append(epochs(data, title, longest=longest, best=best or None))
    drawn = panels(drawings, ["Loss", title_of(score).capitalize()])
    title = f"{result.model_config.kind.title} on {result.graph.name}: training by epoch"
    return figure(drawn, title, showlegend=True, hovermode="closest")


def _marks(
    run: ScoredRun, values: list[float | None], colour: str, what: str
) -> list[dict[str, Any]]:
    """The kept epoch, and the last one if the run stopped early; of a curve of the history."""
    found = []
    if run.best_epoch:
        found.append(("diamond", run.best_epoch, f"best epoch {run.best_epoch}"))
    if run.stopped_early:
        found.append(("x", run.epochs, f"stopped after epoch {run.epochs}"))
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": told,
            "x": [epoch],
            "y": [values[epoch - 1]],
            "marker": {"symbol": symbol, "size": 9, "color": colour},
            "showlegend": False,
            "hovertemplate": f"{told}, seed {run.seed}: %{{y:.3f}}<extra></extra>",
            "meta": {"role": what},
        }
        for symbol, epoch, told in found
    ]
