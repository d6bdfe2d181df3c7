"""What a search and ``auto`` show of themselves in notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hoplite.errors import plural
from hoplite.formatting import Description, Table
from hoplite.tasks.base import title_of

if TYPE_CHECKING:
    from hoplite.selection.halving import AutoResult
    from hoplite.selection.ranking import SearchResult

TOP = 5  # settings that are listed


def search_repr(result: SearchResult) -> str:
    settings, metric = result.ledger.settings, result.monitor
    return (
        f"SearchResult({settings.model} on {settings.dataset}, "
        f"{plural(len(result.ranking), 'configuration')}, {result.protocol}: "
        f"{'biased, ' if result.summary().biased else 'best '}validation "
        f"{metric.name.replace('_', ' ')} {metric.shown(result.monitored(result.best))})"
    )


def search_shown(result: SearchResult) -> Description:
    """The chosen settings, what validation and, once, the test nodes say, and the next best."""
    settings, score, metric = result.ledger.settings, result.task.score, result.monitor
    summary = result.summary()
    varied = result.varied or list(result.best.options)[:4]
    facts = {
        "model": f"{settings.model} on {settings.dataset}",
        "searched": f"{plural(summary.configurations, 'configuration')}, "
        f"{plural(summary.runs, 'run')}, {summary.cpu_minutes:.3g} processor minutes",
        "chosen": ", ".join(f"{name} {result.best.options.get(name)}" for name in varied),
        f"validation {title_of(score.name)}": _told(result.val),
        f"test {title_of(score.name)}": _told(result.test),
    }
    if summary.diverged:
        facts["diverged"] = plural(summary.diverged, "run")
    shown = result.ranking[:TOP]
    rows = [
        [str(place), *[str(one.options.get(name)) for name in varied],
         metric.shown(result.monitored(one))]
        for place, one in enumerate(shown, 1)
    ]  # fmt: skip
    table = Table(["place", *varied, f"validation {metric.title}"], rows, "The best settings")
    notes = [f"The choice is {summary.biased}."] if summary.biased else []
    return Description("SearchResult", facts, [table], notes)


def auto_shown(result: AutoResult) -> Description:
    """What was chosen and why, with the candidates that came furthest."""
    score = result.trained.task.score
    facts = {
        "chosen": str(result.chosen),
        f"validation {title_of(score.name)}": _told(
            [run.scores[f"val_{score.name}"] for run in result.trained.runs]
        ),
        f"test {title_of(score.name)}": _told(
            [run.scores[f"test_{score.name}"] for run in result.trained.runs]
        ),
        "tried": f"{plural(result.sizes[0], 'candidate')} in {result.seconds:.3g} s",
    }
    rows = [
        [one.candidate, str(one.rung), result.monitor.shown(one.val)] for one in result.tried[:TOP]
    ]
    table = Table(["candidate", "rung", f"validation {result.monitor.title}"], rows)
    return Description("AutoResult", facts, [table], [result.why, *result.shortened])


def _told(values: tuple[float, ...] | list[float]) -> str:
    if np.isnan(values).all():
        return "there are no such nodes"
    mean, several = float(np.mean(values)), len(values) > 1
    return f"{mean:z.3f}" + (f" ± {float(np.std(values)):.3f} over {len(values)} seeds" * several)
