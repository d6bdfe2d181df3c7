"""`paper-times`: the paper's table of milliseconds per epoch, but for hLGC, beside its V100.

Settings are those that were chosen on validation (the grid ``quick``), the degree or the hidden
units the paper's, so that both sides do the same work. An epoch is a training step and a validation
pass by hoplite.train.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hoplite.graph import Graph
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome
from hoplite.lab.paper import DATASETS, MODELS, epoch_time
from hoplite.models import without_idle
from hoplite.selection import full_options, read_space
from hoplite.training import train

LEFT_OUT = "hlgc"
SLOW = "gat"
FASTER = 14  # cells, of 15


@dataclass(frozen=True)
class PaperSize:
    """Epochs of a training, of a slow model's, and the effort per dataset."""

    epochs: int
    slow_epochs: int
    effort: Effort
    datasets: tuple[str, ...] = DATASETS
    goal: int | None = FASTER


QUICK = PaperSize(20, 5, Effort(2, 4))
FULL = PaperSize(200, 50, Effort(7, 300))


def run(context: Context, size: PaperSize) -> Outcome:
    """Time all models on each dataset in turn."""
    figures: list[Figure] = []
    for index, dataset in enumerate(size.datasets):
        part = context.part(index, len(size.datasets), f"{dataset}: ")
        figures += _figures(part, dataset, size)
    faster = sum((figure.ratio or 0.0) > 1 for figure in figures)
    goal = None if size.goal is None else Goal.at_least(size.goal)
    case = f"cells of {len(figures)} that are faster than the V100"
    return Outcome(
        [*figures, Figure(case, float(faster), "", goal=goal)],
        [f"the paper's V100 was not measured here; ours has {context.threads} threads."],
    )


def _figures(context: Context, dataset: str, size: PaperSize) -> list[Figure]:
    graph, models = context.load(dataset), [name for name in MODELS if name != LEFT_OUT]
    contestants = []
    for model in models:
        epochs = size.slow_epochs if model == SLOW else size.epochs
        options = paper_options(dataset, model)
        contestants.append(
            Contestant(
                model, _epoch(graph, model, options, epochs), _epoch(graph, model, options, 2)
            )
        )
    samples = context.race(contestants, size.effort)
    figures = []
    for model in models:
        paper = epoch_time(model, dataset)
        assert paper is not None  # its table has all of these
        sizes = ", ".join(f"{value} {name}" for name, value in paper.setting.items())
        ours = 1e3 * samples.median(model)
        figures.append(
            Figure(
                f"{dataset}, {model}, {sizes}",
                ours,
                "ms",
                "the paper's V100",
                paper.ms,
                paper.ms / ours,
                rounds=samples.rounds,
            )
        )
    return figures


def paper_options(dataset: str, model: str) -> dict[str, Any]:
    """The chosen settings of a model, of the paper's size."""
    chosen = read_space("quick").configurations(dataset, model)[0]
    paper = epoch_time(model, dataset)
    size = {} if paper is None else paper.setting
    return without_idle(model, full_options(model, chosen)) | size


def _epoch(graph: Graph, model: str, options: dict[str, Any], epochs: int) -> Callable[[], float]:
    """A sample: mean seconds of an epoch of a training."""
    fixed = {**options, "epochs": epochs, "patience": epochs}
    return lambda: train(graph, model, **fixed).ms_per_epoch / 1000
