"""All figures of one set of nodes, computed once from the outputs of a chosen model.

scikit-learn computes them; it is imported at the first use, as it takes a second. What it has not,
the calibration error, is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

BINS = 15  # of the calibration error
CURVES = ("roc_auc", "average_precision")  # what scikit-learn calls them, with _score
ROWS = 1 << 13  # whose logarithms are taken at a time


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of a set of nodes by name; of classes also those of each class, and who is taken
    for whom: ``confusion[t, p]`` nodes of class t were predicted as class p.

    A figure is NaN where it means nothing, such as a ROC AUC where all nodes have one class.
    """

    figures: dict[str, float]
    classes: dict[str, dict[str, float]] = field(default_factory=dict)
    confusion: np.ndarray | None = None

    def __getitem__(self, figure: str) -> float:
        return self.figures[figure]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, NaN as None."""
        found: dict[str, Any] = dict(_plain(self.figures))
        if self.classes:
            found["classes"] = {name: _plain(values) for name, values in self.classes.items()}
        if self.confusion is not None:
            found["confusion"] = self.confusion.tolist()
        return found


def _plain(values: dict[str, float]) -> dict[str, float | None]:
    return {name: float(v) if np.isfinite(v) else None for name, v in values.items()}


def evaluate_classes(
    labels: np.ndarray,
    probabilities: np.ndarray,
    predicted: np.ndarray,
    names: Sequence[str],
    positive: int | None = None,
) -> Evaluation:
    """How well ``predicted`` (n,) and ``probabilities`` (n, m) meet the classes ``labels`` (n,).

    - ``accuracy``; ``balanced_accuracy``, the mean recall of the classes that are among the labels;
      ``macro_f1``, the mean F1 of those that are among the labels or the predictions.
    - ``log_loss``: mean -log p of the own class.
    - ``roc_auc``, ``average_precision``: those of class ``positive`` against the rest, or without
      one the mean over the classes of each against the rest. A class that no node has, or every
      node, has none of its own and is left out of the mean; if there is no other, it is NaN.
    - ``calibration_error``: see :func:`calibration_error`.

    >>> p = np.array([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.7, 0.3]])
    >>> found = evaluate_classes(np.array([0, 0, 1, 1]), p, p.argmax(axis=1), ["no", "yes"], 1)
    >>> found["accuracy"], found["roc_auc"], found.confusion.tolist()
    (0.75, 0.75, [[2, 0], [1, 1]])
    >>> found.classes["yes"]["recall"], found.classes["yes"]["support"]
    (0.5, 2)
    """
    from sklearn import metrics

    every = np.arange(len(names))
    parts = metrics.precision_recall_fscore_support(
        labels, predicted, labels=every, zero_division=0
    )
    names_of_parts: list[str] = ["precision", "recall", "f1", "support"]
    per_class = {what: np.asarray(part) for what, part in zip(names_of_parts, parts, strict=True)}
    for name in CURVES:
        per_class[name] = np.array(
            [_curve(name, labels, probabilities, c) for c in range(len(names))]
        )
    figures = {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "balanced_accuracy": per_class["recall"][per_class["support"] > 0].mean(),
        "macro_f1": metrics.f1_score(labels, predicted, average="macro", zero_division=0),
        "log_loss": _log_loss(labels, probabilities),
    }
    for name in CURVES:
        figures[name] = _told(per_class[name]) if positive is None else per_class[name][positive]
    figures["calibration_error"] = calibration_error(labels, probabilities)
    return Evaluation(
        {name: float(value) for name, value in figures.items()},
        {
            name: {what: values[c].item() for what, values in per_class.items()}
            for c, name in enumerate(names)
        },
        metrics.confusion_matrix(labels, predicted, labels=every),
    )


def evaluate_values(values: np.ndarray, predicted: np.ndarray) -> Evaluation:
    """``r2``, ``mae`` and ``rmse`` of ``predicted`` (n,) for ``values`` (n,).

    R^2 is NaN where all values are equal.

    >>> found = evaluate_values(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    >>> found["r2"], round(found["mae"], 6)
    (0.5, 0.333333)
    """
    from sklearn import metrics

    differ = np.ptp(values) > 0
    return Evaluation(
        {
            "r2": float(metrics.r2_score(values, predicted)) if differ else np.nan,
            "mae": float(metrics.mean_absolute_error(values, predicted)),
            "rmse": float(metrics.mean_squared_error(values, predicted)) ** 0.5,
        }
    )


def class_figure(
    name: str,
    labels: np.ndarray,
    probabilities: np.ndarray,
    predicted: np.ndarray,
    positive: int | None = None,
) -> float:
    """The one figure of :func:`evaluate_classes`, without the others where they would cost much."""
    if name in CURVES:
        classes = range(probabilities.shape[1]) if positive is None else [positive]
        return _told(np.array([_curve(name, labels, probabilities, c) for c in classes]))
    if name == "macro_f1":
        from sklearn.metrics import f1_score

        return float(f1_score(labels, predicted, average="macro", zero_division=0))
    names = [str(c) for c in range(probabilities.shape[1])]
    return evaluate_classes(labels, probabilities, predicted, names, positive)[name]


def _curve(name: str, labels: np.ndarray, probabilities: np.ndarray, class_: int) -> float:
    """The area under a curve of a class against the rest; NaN if one of them is empty."""
    from sklearn import metrics

    inside = labels == class_
    if inside.all() or not inside.any():
        return np.nan
    return float(getattr(metrics, f"{name}_score")(inside, probabilities[:, class_]))


def _told(values: np.ndarray) -> float:
    """Their mean without NaN; NaN if nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else np.nan


def _log_loss(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """As scikit-learn's, which makes several copies of the probabilities: some rows at a time."""
    from sklearn.metrics import log_loss

    if probabilities.shape[1] == 1:
        return 0.0
    total, sums = 0.0, partial(log_loss, normalize=False, labels=np.arange(probabilities.shape[1]))
    for start in range(0, len(labels), ROWS):
        rows = probabilities[start : start + ROWS].astype(np.float64)
        total += sums(labels[start : start + ROWS], rows / rows.sum(axis=1, keepdims=True))
    return total / len(labels)


def best_threshold(by: str, inside: np.ndarray, probabilities: np.ndarray) -> float:
    """The t for which ``probabilities >= t`` (n,) tells best which nodes are ``inside``.

    ``by`` is "balanced", the balanced accuracy, or "f1". Of equal ones that nearest to 1/2. It is
    half way between the probability of a node and the next lower one, or 0.

    >>> best_threshold("balanced", np.array([False, True, True]), np.array([0.1, 0.2, 0.3]))
    0.15000000000000002
    """
    from sklearn.metrics import precision_recall_curve, roc_curve

    if by == "balanced":
        wrong, right, cuts = roc_curve(inside, probabilities, drop_intermediate=False)
        values, cuts = right[1:] - wrong[1:], cuts[1:]  # the first cut is above all
    else:
        precision, recall, cuts = precision_recall_curve(inside, probabilities)
        values = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
        values = values[:-1]
    known = np.unique(probabilities.astype(np.float64))
    lower = np.append(0.0, known)[np.searchsorted(known, cuts.astype(np.float64))]
    found = (cuts + lower) / 2
    equal = np.flatnonzero(values >= values.max() - 1e-12)
    best = found[equal[np.abs(found[equal] - 0.5).argmin()]]
    return float(np.clip(best, 1e-12, 1 - 1e-12))


def calibration_error(labels: np.ndarray, probabilities: np.ndarray, bins: int = BINS) -> float:
    """How far the probabilities of the most probable classes are from their share of right ones.

        ECE = sum_b |B_b| / n |share right in B_b - mean probability in B_b|

    B_b are the nodes whose largest probability lies in the b-th of ``bins`` equal parts of (0, 1].

    >>> p = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]])
    >>> round(calibration_error(np.array([0, 1, 1]), p), 6)  # 2/3 |1/2 - 0.8| + 1/3 |1 - 0.6|
    0.333333
    """
    sure = probabilities.max(axis=1).astype(np.float64)
    right = probabilities.argmax(axis=1) == labels
    place = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(place, right - sure, bins)
    return float(np.abs(gaps).sum() / len(labels))
