"""Each node has some of m labels, or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hoplite.errors import GraphError
from hoplite.labels import JOINT, SETS
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.evaluation import CURVES, Evaluation, evaluate_labels, mean_area
from hoplite.tasks.losses import sigmoid_cross_entropy


@dataclass(frozen=True)
class Multilabel(Task):
    """One sigmoid for each label; the mean binary cross-entropy is the loss and stops a training.

        l(z, t) = -1/m sum_c t_c log s(z_c) + (1 - t_c) log(1 - s(z_c)),    s(z) = 1 / (1 + e^-z)
        f(z) = s(z),    prediction {c : z_c > 0}                            t in {0, 1}^m

    Labels are an (n, m) matrix of 0 and 1, with a row of -1 where they are unknown. With class
    weights the two terms of label c have factors w+_c and w-_c: n / (2 n_c) and n / (2 (n - n_c))
    for "balanced", where n_c of n training nodes have it; a named label has the weight as w+_c.

    ``shares`` are n_c / n. The baseline has them as its probabilities for every node.

    >>> z, t = np.array([[2.0, -1.0], [3.0, 1.0]]), np.array([[1, 0], [0, 1]])
    >>> Multilabel().measured(Multilabel().tally(z, t))  # micro F1, subset accuracy
    (0.8, 0.5)
    """

    name = "multilabel"
    labels = SETS
    metrics = (Metric("micro_f1", percent=True), Metric("subset_accuracy", percent=True))
    monitors: ClassVar[dict[str, Metric]] = {
        "loss": LOSS,
        "auc": Metric("roc_auc"),
        "ap": Metric("average_precision"),
        "f1": Metric("macro_f1"),
        "accuracy": metrics[1],
    }
    pictures = ("plot_reliability",)
    baseline_name = "always predicting the labels that most nodes have"
    shares: tuple[float, ...] = ()

    @property
    def headline(self) -> tuple[str, ...]:
        return ("roc_auc", "average_precision")

    def fitted(self, labels: np.ndarray, outputs: int) -> Self:
        if not (labels == 1).any():
            raise GraphError(
                "no training node has a label, so there is nothing to learn; label some nodes."
            )
        return dataclasses.replace(self, shares=tuple(labels.mean(axis=0).tolist()))

    def outputs(self, labels: np.ndarray, names: Sequence[str] | None) -> int:
        return labels.shape[1]

    def targets(self, labels: np.ndarray, outputs: int) -> np.ndarray:
        if labels.ndim != 2 or labels.shape[1] != outputs:
            raise GraphError(f"labels have shape {labels.shape}; pass a row of {outputs} per node.")
        if ((labels != 0) & (labels != 1)).any():
            raise GraphError("labels contain values other than 0 and 1; remove those nodes.")
        return np.array(labels, np.int64)

    def balanced_weights(self, train: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
        counts = (train == 1).sum(axis=0)
        present = len(train) / (2 * np.maximum(counts, 1))
        absent = len(train) / (2 * np.maximum(len(train) - counts, 1))
        return np.where(labels == 1, present, absent)

    def named_weights(self, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.where(labels == 1, weights, 1.0)

    @property
    def loss_function(self) -> Callable[..., float]:
        return sigmoid_cross_entropy

    def tally(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """[rows, rows with all labels right, labels predicted rightly, labels predicted + true]."""
        predicted, true = logits > 0, targets == 1
        both = np.count_nonzero(predicted & true)
        either = np.count_nonzero(predicted) + np.count_nonzero(true)
        whole = np.count_nonzero((predicted == true).all(axis=1))
        return np.array([len(logits), whole, both, either], np.float64)

    def measured(self, tally: np.ndarray) -> tuple[float, ...]:
        rows, whole, both, either = tally
        return float(2 * both / max(either, 1)), float(whole / rows) if rows else np.nan

    def link(self, logits: np.ndarray) -> np.ndarray:
        from scipy.special import expit  # takes a third of a second to import

        return expit(logits)

    def predict(self, logits: np.ndarray) -> np.ndarray:
        return (logits > 0).astype(np.int8)

    def columns(self, logits: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``predicted``, the labels joined by ``|``, which alone is none, as in a label column."""
        texts = [SETS.text(row, names) for row in self.predict(logits)]
        return {"predicted": np.array(texts, object)}

    def tallied(self, predicted: Sequence[str]) -> list[str]:
        return [name for row in predicted for name in row.split(JOINT) if name]

    def evaluate(self, labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> Evaluation:
        """See :func:`~hoplite.tasks.evaluation.evaluate_labels`."""
        return evaluate_labels(labels, self.link(logits), self.predict(logits), names)

    def figure(self, name: str, labels: np.ndarray, logits: np.ndarray) -> float:
        if name in CURVES:  # far quicker than an evaluation
            return mean_area(name, labels == 1, self.link(logits))
        return super().figure(name, labels, logits)

    def baseline(self, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """The labels that more than half of the training nodes have, and their shares."""
        scores = np.tile(self.shares, (len(labels), 1))
        return evaluate_labels(labels, scores, (scores > 0.5).astype(np.int8), names)
