"""Does the graph help? The baseline, the features alone and the model with the graph, compared.

All three are judged on the same nodes, by outputs of models that have not seen their labels:
out-of-fold ones, or those of validation nodes. Test nodes are not read. The figure is the average
precision of two classes, otherwise the task's score. The difference d of the two models varies with
the nodes; its standard error is the deviation of d over samples of the nodes, with replacement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.tasks.base import title_of
from hoplite.training.scoring import ScoredRun, number

RESAMPLES = 50


@dataclass(frozen=True)
class GraphGain:
    """What the graph adds to the features.

    Parameters
    ----------
    metric : str
        The name of the figure.
    baseline, features, graph : float
        The figure without any model, of the features alone, and with the graph.
    error : float
        The standard error of ``graph - features``.
    """

    metric: str
    baseline: float
    features: float
    graph: float
    error: float

    @classmethod
    def of(cls, features: ScoredRun, graph: ScoredRun) -> GraphGain | None:
        """Of two runs that were judged on the same nodes; None if one has no result there."""
        if "val" not in features.outputs or "val" not in graph.outputs:
            return None
        labels, task = graph.outputs["val"][0], graph.task
        if not np.array_equal(labels, features.outputs["val"][0]):
            return None
        metric = task.headline[-1] if task.exclusive and task.headline else task.score.name

        def figure(run: ScoredRun, rows: Any = slice(None)) -> float:
            return run.task.figure(metric, labels[rows], run.outputs["val"][1][rows])

        rng = np.random.default_rng(0)
        samples = rng.integers(0, len(labels), (RESAMPLES, len(labels)))
        differences = [figure(graph, rows) - figure(features, rows) for rows in samples]
        known = np.array(differences)[np.isfinite(differences)]
        return cls(
            metric,
            task.baseline(labels, graph.model.class_names)[metric],
            figure(features),
            figure(graph),
            float(known.std(ddof=1)) if len(known) > 1 else np.nan,
        )

    def summary(self) -> dict[str, Any]:
        """The figures as plain JSON values."""
        figures = {name: number(getattr(self, name)) for name in ("baseline", "features", "graph")}
        return {"metric": self.metric, **figures, "error": number(self.error)}

    def describe(self) -> str:
        """One line with all figures."""
        gain = f"{self.graph - self.features:+z.3f} ± {self.error:.3f}"
        return (
            f"{title_of(self.metric)}: baseline {self.baseline:z.3f}, features alone "
            f"{self.features:z.3f}, with the graph {self.graph:z.3f} ({gain})"
        )
