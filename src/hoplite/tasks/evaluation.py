"""All figures of one set of nodes, computed once from the outputs of a chosen model.

They equal those of scikit-learn, whose import takes longer than a training on Cora.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hoplite.errors import HopliteWarning, plural

BINS = 15  # bins of the calibration error
TEMPERATURES = (0.05, 20.0)  # least and most
TINY = np.finfo(np.float64).eps  # probabilities are clipped by it in a log loss


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of a set of nodes by name; of classes also those of each class, and who is taken
    for whom: ``confusion[t, p]`` nodes of class t were predicted as class p; and how honest the
    probabilities are, see :func:`reliability`.

    A figure is NaN where it means nothing, such as a ROC AUC where all nodes have one class.
    """

    figures: dict[str, float]
    classes: dict[str, dict[str, float]] = field(default_factory=dict)
    confusion: np.ndarray | None = None
    reliability: list[list[float]] = field(default_factory=list)

    def __getitem__(self, figure: str) -> float:
        return self.figures[figure]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, NaN as None."""
        plain: dict[str, Any] = dict(_plain(self.figures))
        if self.classes:
            plain["classes"] = {name: _plain(values) for name, values in self.classes.items()}
        if self.confusion is not None:
            plain["confusion"] = self.confusion.tolist()
        return plain


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
    m = len(names)
    confusion = np.bincount(labels * m + predicted, minlength=m * m).reshape(m, m)
    hits, support, guesses = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    per_class = _precision_recall_f1(hits, support, guesses)
    per_class |= _areas(labels[:, None] == np.arange(m), probabilities)
    p_true = probabilities[np.arange(len(labels)), labels] / probabilities.sum(axis=1, dtype=float)
    figures = {
        "accuracy": hits.sum() / len(labels),
        "balanced_accuracy": per_class["recall"][support > 0].mean(),
        "macro_f1": per_class["f1"][support + guesses > 0].mean(),
        "log_loss": -np.log(np.clip(p_true, TINY, 1)).mean(),
    }
    for name in CURVES:
        values = per_class[name]
        figures[name] = _mean_of_known(values) if positive is None else values[positive]
    figures["calibration_error"] = calibration_error(labels, probabilities)
    return Evaluation(
        {name: float(value) for name, value in figures.items()},
        _by_name(per_class, names),
        confusion,
        reliability(labels, probabilities),
    )


def _by_name(figures: dict[str, np.ndarray], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The figures (m,) of each of m classes."""
    return {
        name: {figure: values[c].item() for figure, values in figures.items()}
        for c, name in enumerate(names)
    }


def _precision_recall_f1(
    hits: np.ndarray, support: np.ndarray, guesses: np.ndarray
) -> dict[str, np.ndarray]:
    """These metrics of each class, 0 where the denominator is 0, and its support."""
    return {
        "precision": hits / np.maximum(guesses, 1),
        "recall": hits / np.maximum(support, 1),
        "f1": 2 * hits / np.maximum(support + guesses, 1),
        "support": support,
    }


def evaluate_values(values: np.ndarray, predicted: np.ndarray) -> Evaluation:
    """``r2``, ``mae`` and ``rmse`` of ``predicted`` (n,) for ``values`` (n,).

    R^2 is NaN where all values are equal.

    >>> found = evaluate_values(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]))
    >>> found["r2"], round(found["mae"], 6)
    (0.5, 0.333333)
    """
    errors, variance = predicted - values, np.var(values)
    return Evaluation(
        {
            "r2": float(1 - np.mean(errors**2) / variance) if np.ptp(values) > 0 else np.nan,
            "mae": float(np.abs(errors).mean()),
            "rmse": float(np.mean(errors**2)) ** 0.5,
        }
    )


def evaluate_labels(
    labels: np.ndarray, probabilities: np.ndarray, predicted: np.ndarray, names: Sequence[str]
) -> Evaluation:
    """How well ``predicted`` (n, m) of 0 and 1 and ``probabilities`` (n, m) meet ``labels`` (n, m).

    - ``micro_f1``, of all labels of all nodes together; ``macro_f1``, the mean F1 of the labels.
    - ``subset_accuracy``: share of the nodes whose labels are all right; ``label_accuracy``: share
      of right answers.
    - ``log_loss``: mean binary cross-entropy over nodes and labels.
    - ``roc_auc``, ``average_precision``: the mean over the labels that some nodes have and some
      have not; NaN if there is none.

    >>> t = np.array([[1, 0], [1, 1], [0, 0]])
    >>> found = evaluate_labels(t, 0.2 + 0.6 * t, np.array([[1, 0], [1, 0], [0, 0]]), ["a", "b"])
    >>> found["micro_f1"], found["macro_f1"], found["roc_auc"], found.classes["b"]["recall"]
    (0.8, 0.5, 1.0, 0.0)
    """
    hits = (labels * predicted).sum(axis=0)
    per_label = _precision_recall_f1(hits, labels.sum(axis=0), predicted.sum(axis=0))
    per_label |= _areas(labels == 1, probabilities)
    chances = np.where(labels, probabilities, 1 - probabilities.astype(np.float64))
    figures = {
        "micro_f1": 2 * hits.sum() / max(labels.sum() + predicted.sum(), 1),
        "macro_f1": per_label["f1"].mean(),
        "subset_accuracy": (labels == predicted).all(axis=1).mean(),
        "label_accuracy": (labels == predicted).mean(),
        "log_loss": -np.log(np.clip(chances, TINY, 1)).mean(),
    }
    for name in CURVES:
        figures[name] = _mean_of_known(per_label[name])
    return Evaluation(
        {name: float(value) for name, value in figures.items()}, _by_name(per_label, names)
    )


def _areas(inside: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """The area under each curve for each column, by the curve's name: (n, m) -> (m,)."""
    columns = [curve_areas(*column) for column in zip(inside.T, scores.T, strict=True)]
    return dict(zip(CURVES, np.array(columns).T, strict=True))


def curve_areas(inside: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The area under the ROC curve, and the average precision, of ``scores`` (n,).

    With the distinct scores t, falling, h_t nodes inside and o_t outside that have score t, p nodes
    inside in all and q outside, they are

        sum_t h_t (o_t / 2 + sum_{s < t} o_s) / (p q)
        sum_t (recall_t - recall_{t-1}) precision_t

    The first is the chance that a node inside has a higher score than one outside, ties counting
    half. Both are NaN if all or none are ``inside`` (n,).

    >>> curve_areas(np.array([False, True, True]), np.array([0.3, 0.4, 0.1]))
    (0.5, 0.8333333333333333)
    """
    p, n = int(inside.sum()), len(inside)
    if p in (0, n):
        return np.nan, np.nan
    order = np.argsort(-scores)
    falling = scores[order]
    ends = np.append(np.flatnonzero(falling[1:] != falling[:-1]) + 1, n)  # with score >= t
    inside_above = inside[order].cumsum()[ends - 1]
    hits = np.diff(inside_above, prepend=0)
    others = np.diff(ends, prepend=0) - hits
    below = (n - p) - (ends - inside_above)
    roc = (hits * (others / 2 + below)).sum() / (p * (n - p))
    return float(roc), float((hits * inside_above / ends).sum() / p)


def mean_area(name: str, inside: np.ndarray, scores: np.ndarray) -> float:
    """The mean over columns (n, m) of the area under a curve; NaN if none has one."""
    return _mean_of_known(_areas(inside, scores)[name])


CURVES = ("roc_auc", "average_precision")


def _mean_of_known(values: np.ndarray) -> float:
    """Their mean without NaN; NaN if nothing is left."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if defined.size else np.nan


def best_threshold(by: str, inside: np.ndarray, probabilities: np.ndarray) -> float:
    """The t for which ``probabilities >= t`` (n,) best predicts which nodes are ``inside``.

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
    distinct = np.unique(probabilities.astype(np.float64))
    lower = np.append(0.0, distinct)[np.searchsorted(distinct, cuts.astype(np.float64))]
    thresholds = (cuts + lower) / 2
    equal = thresholds[values >= values.max() - 1e-12]
    best = equal[np.abs(equal - 0.5).argmin()]
    return float(np.clip(best, 1e-12, 1 - 1e-12))


def best_temperature(labels: np.ndarray, logits: np.ndarray) -> float:
    """The T for which softmax(z / T) has the least log loss, of logits (n, m) and classes (n,).

    In b = 1 / T the loss is convex: its slope, the mean of E_p[z] - z_y over p = softmax(b z),
    never falls. So log T is where that is 0, found by Brent's method between the logarithms of
    0.05 and 20; HopliteWarning if it is at neither side of 0 there, as where all nodes are
    predicted rightly. 1 where all outputs of every node are equal.

    >>> z = np.array([[2.0, 0.0]] * 4)  # sure by e^2 : 1, and right for 3 of 4: 3 : 1
    >>> round(best_temperature(np.array([0, 0, 0, 1]), z), 6), round(float(2 / np.log(3)), 6)
    (1.820478, 1.820478)
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    z = logits.astype(np.float64)
    z -= np.take_along_axis(z, labels[:, None], axis=1)
    if not z.any():
        return 1.0

    def slope(log_temperature: float) -> float:
        chances = softmax(z / np.exp(log_temperature), axis=1)
        return float((chances * z).sum(axis=1).mean())

    least, most = np.log(TEMPERATURES)
    for end, sign in ((least, 1), (most, -1)):
        if sign * slope(end) <= 0:
            warnings.warn(
                f"no temperature from {TEMPERATURES[0]:g} to {TEMPERATURES[1]:g} minimises the "
                f"log loss on the {plural(len(z), 'held-out node')}, so it is {np.exp(end):g} "
                "and the probabilities are hardly calibrated; label more nodes.",
                HopliteWarning,
                stacklevel=2,
            )
            return float(np.exp(end))
    log_temperature: Any = brentq(slope, least, most, xtol=1e-12)
    return float(np.exp(log_temperature))


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """How far the probabilities of the most probable classes are from their share of right ones.

        ECE = sum_b |B_b| / n |share right in B_b - mean probability in B_b|

    B_b are the nodes whose largest probability lies in the b-th of 15 equal parts of (0, 1].

    >>> p = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]])
    >>> round(calibration_error(np.array([0, 1, 1]), p), 6)  # 2/3 |1/2 - 0.8| + 1/3 |1 - 0.6|
    0.333333
    """
    bins = reliability(labels, probabilities)
    return sum(count * abs(right - sure) for sure, right, count in bins) / len(labels)


def reliability(labels: np.ndarray, probabilities: np.ndarray) -> list[list[float]]:
    """Of every B_b of :func:`calibration_error` that has nodes: the mean of their largest
    probabilities, the share of them that is right, and how many they are.

    >>> p = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]])
    >>> reliability(np.array([0, 1, 1]), p)
    [[0.6, 1.0, 1.0], [0.8, 0.5, 2.0]]
    """
    return binned(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)


def binned(sure: np.ndarray, right: np.ndarray) -> list[list[float]]:
    """The same as :func:`reliability` for probabilities (n,) and whether each came true (n,).

    >>> binned(np.array([0.1, 0.1, 0.9]), np.array([False, True, True]))
    [[0.1, 0.5, 2.0], [0.9, 1.0, 1.0]]
    """
    sure = sure.astype(np.float64)
    place = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    sums = np.bincount(place, sure, BINS), np.bincount(place, right, BINS)
    filled = counts > 0
    means = [total[filled] / counts[filled] for total in sums]
    return np.column_stack([*means, counts[filled]]).tolist()
