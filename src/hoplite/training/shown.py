"""What the result of a training shows of itself in notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoplite.errors import plural
from hoplite.formatting import Description, Table
from hoplite.tasks.base import title_of

if TYPE_CHECKING:
    from hoplite.training.results import Spread, TrainingResult

RARE = 0.5  # a class with less than this part of its even share of the nodes is rare
PARTS = {"val": "validation", "test": "test"}


def result_shown(result: TrainingResult) -> Description:
    """Every figure beside the baseline's, over the runs; the classes where one of them is rare."""
    spreads = {part: found for part in PARTS if (found := result.metrics(part))}
    parts = [*spreads]
    last = parts[-1] if parts else "val"  # the test nodes, where there are some
    baseline = result.baseline(last)
    tables = []
    if baseline is not None and parts:
        columns = ["figure", *[PARTS[part] for part in parts], "baseline"]
        rows = [
            [title_of(name), *[_spread(spreads[part][name], len(result.runs)) for part in parts],
             f"{baseline[name]:z.3f}"]
            for name in spreads[last]
        ]  # fmt: skip
        tables = [Table(columns, rows)]
    run = result.best_run
    facts = {
        "model": f"{result.model_config.kind.title}, {result.model_config.size()}",
        "graph": f"{result.graph.name}, {result.graph.num_nodes:,} nodes",
        "runs": f"{plural(len(result.runs), 'seed')}, {result.ms_per_epoch:.3g} ms an epoch",
        "chosen": f"seed {run.seed}, epoch {run.best_epoch} of {run.epochs}",
    }
    diverged = sum(one.diverged for one in result.runs)
    if diverged:
        facts["diverged"] = plural(diverged, "run")
    sentences = filter(None, (result.unvalidated(), result.shortfall()))
    notes = [sentence[0].upper() + sentence[1:] for sentence in sentences]
    return Description("TrainingResult", facts, [*tables, *_classes(result, last)], notes)


def _classes(result: TrainingResult, part: str) -> list[Table]:
    """Those of the chosen run, if one of them has far fewer nodes than the others."""
    found = result.best_run.metrics(part)
    if found is None or not found.classes:
        return []
    support = [one["support"] for one in found.classes.values()]
    if min(support) >= RARE * sum(support) / len(support):
        return []
    figures = ("precision", "recall", "f1")
    rows = [
        [name, *[f"{one[figure]:.3f}" for figure in figures], f"{one['support']:,.0f}"]
        for name, one in sorted(found.classes.items(), key=lambda pair: pair[1]["support"])
    ]
    title = f"Classes of the {PARTS[part]} nodes, the rarest first"
    return [Table(["class", "precision", "recall", "F1", "nodes"], rows, title)]


def _spread(spread: Spread, runs: int) -> str:
    return f"{spread.mean:z.3f}" + (f" ± {spread.std:.3f}" if runs > 1 else "")
