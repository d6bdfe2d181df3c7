"""Gradient boosting, a rival that ``auto`` reports and never saves.

It has the features of every hop side by side, [X | R X | R^2 X] with R = D^-1 A, n x 3 d, and the
same validation nodes or folds as the linear models. It may find what no linear model can, such as
thresholds and products of columns.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hoplite.engine.evaluation import side_by_side
from hoplite.engine.propagation import Propagation
from hoplite.graph import Graph
from hoplite.search.sample import most_frequent
from hoplite.tasks import Task
from hoplite.training.fit import fold_numbers

HOPS = 2
MAX_COLUMNS = 100  # columns of X that are used: the most frequent ones
ITERATIONS = 200  # at most
TREES = 20  # between two looks at the validation nodes; an iteration has one for each class
FLOOR = 1e-6  # lowest probability: its logarithm is an output


def boosted_outputs(
    graph: Graph, task: Task, folds: int, seed: int, seconds: float
) -> np.ndarray | None:
    """Outputs of gradient boosting for the validation nodes, or out of fold, as those of a model.

    Parameters
    ----------
    graph : Graph
        With one class, or one number, for each node.
    task : Task
        Fitted to its training labels.
    folds, seed : int
        Those of the cross-validation of linear models, if there are no validation nodes.
    seconds : float
        It ends after about this time, with the iterations that it had time for.

    Returns
    -------
    ndarray or None
        (nodes, m), of the number of iterations with the lowest loss; None if there was no time.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    end, split = time.monotonic() + seconds, graph.split
    reduced = graph.with_features(graph.features[:, most_frequent(graph, MAX_COLUMNS)])
    nodes = np.concatenate([split.train, split.val])
    source = Propagation(reduced, "random_walk", "monomial", HOPS)
    rows, values = side_by_side(source.hop_features(nodes)), np.asarray(graph.labels)[nodes]
    validation = np.arange(len(nodes)) >= len(split.train)
    parts = [validation]
    if not split.val.size:
        validation, numbers = ~validation, fold_numbers(values, folds, seed)
        parts = [numbers == fold for fold in np.unique(numbers)]
    family = HistGradientBoostingClassifier if task.exclusive else HistGradientBoostingRegressor
    settings = {"warm_start": True, "early_stopping": False, "random_state": seed}
    models, width = [family(**settings) for _ in parts], max(len(graph.class_names), 1)
    targets = task.targets(values[validation], width)
    best, lowest, step = None, np.inf, max(1, TREES // width)
    with threadpool_limits(1, user_api="openmp"):  # several wait for each other on a busy machine
        for iterations in range(step, ITERATIONS + 1, step):
            outputs = np.full((len(nodes), width), np.log(FLOOR))
            for model, part in zip(models, parts, strict=True):
                if time.monotonic() > end:
                    return best
                model.set_params(max_iter=iterations).fit(rows[~part], values[~part])
                outputs[part] = _outputs(model, rows[part], outputs[part], task)
            loss = task.loss(outputs[validation], targets)
            if loss >= lowest:
                break
            best, lowest = outputs[validation], loss
    return best


def _outputs(model: Any, rows: np.ndarray, outputs: np.ndarray, task: Task) -> np.ndarray:
    """``outputs`` (rows, m) with those of a fitted ``model``; unseen classes are unchanged."""
    if not task.exclusive:
        return task.targets(model.predict(rows), 1)[:, None]
    # for a single class, predict_proba has two columns
    probabilities = model.predict_proba(rows)[:, : len(model.classes_)]
    outputs[:, model.classes_] = np.log(np.maximum(probabilities, FLOOR))
    return outputs
