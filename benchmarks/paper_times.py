"""`paper-times`: the paper's table of milliseconds per epoch, without hLGC, against its V100.

Settings are those that were chosen on validation (the quick run's), the degree or the hidden units
the paper's, so that both sides do the same work. An epoch is a training step and a validation pass
of hoplite.train.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.measure import Contestant, Context, Effort, Figure, Goal, Outcome
from experiments import paper
from hoplite import Graph, train

MODELS = tuple(name for name in paper.MODELS if name != "hlgc")
SLOW = "gat"
FASTER = 14  # cells, of 15


def run(context: Context, datasets: tuple[str, ...] = paper.DATASETS) -> Outcome:
    """Time all models on each dataset in turn."""
    epochs, slow, effort = (20, 5, Effort(2, 4)) if context.quick else (200, 50, Effort(7, 12))
    figures: list[Figure] = []
    for dataset in datasets:
        context.report(dataset)
        graph, contestants = context.load(dataset), []
        for model in MODELS:
            options = paper.quick_options(dataset, model) | paper.size(model, dataset)
            count = slow if model == SLOW else epochs
            sample = epoch_sample(graph, model, options, count)
            contestants.append(Contestant(model, sample, epoch_sample(graph, model, options, 2)))
        samples = context.race(contestants, effort)
        for model in MODELS:
            theirs, ours = paper.epoch_time(model, dataset), 1e3 * samples.median(model)
            assert theirs is not None  # its table has all of these
            sizes = ", ".join(f"{value} {name}" for name, value in theirs.setting.items())
            case = f"{dataset}, {model}, {sizes}"
            v100 = "the paper's V100"
            figures.append(Figure(case, ours, "ms", v100, theirs.ms, theirs.ms / ours))
    faster = sum((figure.ratio or 0.0) > 1 for figure in figures)
    case = f"cells of {len(figures)} that are faster than the V100"
    goal = Goal.at_least(FASTER) if len(datasets) == len(paper.DATASETS) else None
    return Outcome(
        [*figures, Figure(case, float(faster), "", goal=goal)],
        [f"the paper's V100 was not measured here; ours has {context.threads} threads."],
    )


def epoch_sample(
    graph: Graph, model: str, options: dict[str, Any], epochs: int
) -> Callable[[], float]:
    """A sample: mean seconds of an epoch of a training."""
    fixed = {**options, "epochs": epochs, "patience": epochs}
    return lambda: train(graph, model, **fixed).ms_per_epoch / 1000
