"""ROC AUC of hop blocks on the two imbalanced public graphs, over their ten splits.

For each split every setting of GRID is trained without the test nodes, and the one with the best
ROC AUC on validation is chosen; then, once, it is scored on the test nodes. Beside it is logistic
regression on the features alone, whose penalty is chosen on validation, too.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.machine import made_by
from experiments.problems import PROBLEMS, SPLITS
from experiments.report import fill_template
from experiments.trainings import Report, Training, by_validation, opened
from hoplite.files import atomic_write_text

PAGE = Path(__file__).parents[1] / "results" / "imbalanced.md"
GRAPHS = ("tolokers", "minesweeper")
READING = {"scale": "standard", "structural": 0}  # and degree and log degree as features
PENALTIES = (1e-4, 1e-2, 1.0, 100.0)  # C of the logistic regression
# Fixed before the first run that read test nodes.
GRID = {"hops": (4, 8), "basis": ("monomial", "chebyshev"), "weight_decay": (1e-6, 1e-5)}
SETTINGS: dict[str, Any] = {
    "operator": "adjacency", "bias": True, "dropout": 0.0, "optimizer": "lbfgs", "lr": 1.0,
    "epochs": 15, "patience": 5, "monitor": "auc",
}  # fmt: skip


def of_features(name: str, graphs: Path, split: int) -> float:
    """Logistic regression on the features alone: its AUC on test."""
    graph = PROBLEMS[name].graph(graphs, {"scale": READING["scale"]}, split)
    features, parts, found = np.asarray(graph.features), graph.split, []
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=2000)
        model.fit(features[parts.train], graph.labels[parts.train])
        val, test = (
            float(roc_auc_score(graph.labels[nodes], model.decision_function(features[nodes])))
            for nodes in (parts.val, parts.test)
        )
        found.append((val, test))
    return max(found)[1]


def run(graphs: Path, out: Path, workers: int, report: Report, page: Path = PAGE) -> str:
    """Train, choose and score; write the page and return its text."""
    grid = [
        SETTINGS | dict(zip(GRID, values, strict=True))
        for values in itertools.product(*GRID.values())
    ]
    summary, details = [], []
    with opened(out / "trainings.sqlite", graphs, workers, report) as trainings:
        for name in GRAPHS:
            rows = []
            tried = [
                Training(name, "blocks", options, (0,), split, READING, test=False)
                for split in range(SPLITS)
                for options in grid
            ]
            scores = trainings.run(tried)
            for split in range(SPLITS):
                own = range(split * len(grid), (split + 1) * len(grid))
                best = replace(tried[min(own, key=lambda i: by_validation([scores[i]]))], test=True)
                (tested,) = trainings.run([best])
                val, test = (100 * (one[0] or 0.0) for one in (tested.val, tested.test))
                rows.append((100 * of_features(name, graphs, split), val, test))
                chosen = ", ".join(f"{key} {best.options[key]}" for key in GRID)
                details.append(f"| {name} | {split} | {chosen} | {val:.2f} | {test:.2f} |")
            means = [f"{np.mean(x):.2f} ± {np.std(x):.2f}" for x in zip(*rows, strict=True)]
            summary.append(f"| {name} | 50 | {means[0]} | {means[1]} | **{means[2]}** |")
    parts = {"summary": "\n".join(summary), "details": "\n".join(details)}
    text = fill_template(__file__, made_by=made_by(), **parts)
    atomic_write_text(page, text)
    return text
