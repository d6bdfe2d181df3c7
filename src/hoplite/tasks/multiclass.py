"""Each node has one of m classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from msgspec import Meta

from hoplite.errors import ConfigError, GraphError
from hoplite.labels import JOINT
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.conformal import NEAR, set_names
from hoplite.tasks.evaluation import (
    CURVES,
    Evaluation,
    best_temperature,
    best_threshold,
    evaluate_classes,
    mean_area,
)
from hoplite.tasks.losses import count_right, softmax, softmax_cross_entropy

MIN_THRESHOLD = 1e-12  # and as much below 1


@dataclass(frozen=True)
class Multiclass(Task):
    """Softmax and cross-entropy; accuracy is the metric and usually chooses the epoch.

        l(z, t) = -log softmax(z)_t,    f(z) = softmax(z / T),    prediction argmax(z)

    Labels are class indices, and a negative one stands for unknown. Of equal outputs the first
    is predicted.

    ``shares`` are the classes' shares of the training nodes. The baseline has them as its
    probabilities for every node, so it always predicts the largest class. Of two classes the rarer
    one is ``positive``: ROC AUC and average precision are of it (of equals, of the second). Two
    classes have two outputs, as others have: softmax of them is the sigmoid of their difference,
    and whatever reads a model finds one column for each class. The positive one is predicted where
    its probability is ``threshold`` or more (at 1/2, more than that, if it is the second). T is the
    ``temperature``, 1 unless the probabilities were calibrated.

    >>> task, z = Multiclass(), np.array([[2.0, 0.0], [3.0, 1.0]])
    >>> task.measured(task.tally(z, np.array([0, 1])))
    (0.5,)
    """

    name = "multiclass"
    exclusive = True
    pictures = ("plot_confusion", "plot_reliability")
    metrics = (Metric("accuracy", percent=True),)
    monitors: ClassVar[dict[str, Metric]] = {
        "accuracy": metrics[0],
        "loss": LOSS,
        "auc": Metric("roc_auc"),
        "ap": Metric("average_precision"),
        "f1": Metric("macro_f1"),
    }
    has_sets = True
    baseline_name = "always predicting the largest class"
    shares: tuple[float, ...] = ()
    threshold: float = 0.5
    temperature: Annotated[float, Meta(ge=0.01, le=100)] = 1.0  # best_temperature's are within

    @property
    def positive(self) -> int | None:
        """The rarer of two classes; None if there are more, or their shares are not known."""
        return None if len(self.shares) != 2 else int(self.shares[1] <= self.shares[0])

    @property
    def headline(self) -> tuple[str, ...]:
        return () if self.positive is None else ("roc_auc", "average_precision")

    def fitted(self, labels: np.ndarray, outputs: int) -> Self:
        counts = np.bincount(labels, minlength=outputs)
        return dataclasses.replace(self, shares=tuple((counts / counts.sum()).tolist()))

    def outputs(self, labels: np.ndarray, names: Sequence[str] | None) -> int:
        names = names or ()
        self.check_names(names)
        labelled = labels[labels >= 0]
        if len(labelled) > 2 and np.bincount(labelled).max() < 2:
            raise GraphError(
                f"all {len(labelled):,} labels are different, e.g. {names[int(labelled[0])]!r}, so "
                "there is nothing to learn; choose a label column with repeated values."
            )
        return len(names)

    def check_names(self, names: Sequence[str]) -> None:
        if len(names) == 1:
            raise GraphError(
                f"all labels are {names[0]!r}, so there is nothing to learn; label nodes of at "
                "least two classes."
            )

    def targets(self, labels: np.ndarray, outputs: int) -> np.ndarray:
        if labels.ndim != 1:
            raise GraphError(f"labels have shape {labels.shape}; pass one class per node.")
        if labels.size and (labels.min() < 0 or labels.max() >= outputs):
            outside = labels.min() if labels.min() < 0 else labels.max()
            raise GraphError(f"label {outside} is out of range; labels go from 0 to {outputs - 1}.")
        return np.array(labels, np.int64)

    def balanced_weights(self, train: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
        """n / (m n_c) for n_c of n training nodes."""
        weights = np.ones(classes)
        present, counts = np.unique(train, return_counts=True)
        weights[present] = len(train) / (len(present) * counts)
        return weights[labels]

    def named_weights(self, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return weights[labels]

    def tuned(self, threshold: str | float, labels: np.ndarray, logits: np.ndarray) -> Self:
        """A given threshold, or that of the highest balanced accuracy, or F1 of the positive class.

        Of equal ones the nearest to 1/2 is taken; it lies half way to the next probability.
        """
        if threshold == 0.5:
            return self
        if self.positive is None:
            raise ConfigError(
                f"is {threshold!r} but there are {len(self.shares)} classes; it requires two, so "
                "leave it out.",
                "threshold",
            )
        if not isinstance(threshold, str):
            return dataclasses.replace(self, threshold=threshold)
        inside = labels == self.positive
        if inside.all() or not inside.any():
            return self
        return dataclasses.replace(
            self, threshold=best_threshold(threshold, inside, self.link(logits)[:, self.positive])
        )

    def calibrated(self, labels: np.ndarray, logits: np.ndarray) -> Self:
        """T by :func:`~hoplite.tasks.evaluation.best_temperature`.

        A threshold t becomes the probability that t is then, so every prediction stays.
        """
        temperature, threshold = best_temperature(labels, logits), self.threshold
        if threshold != 0.5:
            threshold = 1 / (1 + ((1 - threshold) / threshold) ** (1 / temperature))
            threshold = float(np.clip(threshold, MIN_THRESHOLD, 1 - MIN_THRESHOLD))
        return dataclasses.replace(self, temperature=temperature, threshold=threshold)

    def uncalibrated(self) -> Self | None:
        if self.temperature == 1.0:
            return None
        odds = ((1 - self.threshold) / self.threshold) ** self.temperature
        return dataclasses.replace(self, temperature=1.0, threshold=1 / (1 + odds))

    def nonconformity(self, labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """1 - p_y, p_y the probability of the node's own class y."""
        return 1 - self.link(logits)[np.arange(len(labels)), labels].astype(np.float64)

    def sets(self, logits: np.ndarray, max_score: Any) -> np.ndarray:
        """The classes c with 1 - p_c <= most, those that are equal to it among them.

        >>> Multiclass().sets(np.log([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]]), 0.7).tolist()
        [[True, True, False], [True, False, False]]
        """
        return self.link(logits) >= 1 - max_score - NEAR

    def set_columns(self, sets: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``set``, the names as ``a|b``, with ``\\|`` for a | in one, and its ``set_size``."""
        escaped = np.array(set_names(names), object)
        distinct, which = np.unique(sets, axis=0, return_inverse=True)
        texts = np.array([JOINT.join(escaped[members]) for members in distinct], object)
        return {"set": texts[which.ravel()], "set_size": sets.sum(axis=1)}

    @property
    def chosen_threshold(self) -> tuple[int, float] | None:
        """
        >>> Multiclass(shares=(0.9, 0.1), threshold=0.06).chosen_threshold
        (1, 0.06)
        >>> Multiclass(shares=(0.9, 0.1)).chosen_threshold is None
        True
        """
        if self.threshold == 0.5 or self.positive is None:
            return None
        return self.positive, self.threshold

    def decisions(self, logits: np.ndarray) -> np.ndarray:
        """As they are, with T log(t / (1 - t)) taken from the positive class's.

        t is the threshold and T the temperature: p >= t is (z_1 - z_0) / T >= log(t / (1 - t)).
        """
        if self.chosen_threshold is None:
            return logits
        shift = np.zeros(2, logits.dtype)
        shift[self.positive] = self.temperature * np.log(self.threshold / (1 - self.threshold))
        return logits - shift

    def rescaled(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return weight / self.temperature, bias / self.temperature

    @property
    def loss_function(self) -> Callable[..., float]:
        return softmax_cross_entropy

    def tally(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """[rows, rows with the right class]."""
        if self.threshold != 0.5:
            logits = self.decisions(logits)
        return np.array([len(logits), count_right(logits, targets)], np.float64)

    def measured(self, tally: np.ndarray) -> tuple[float, ...]:
        rows, right = tally
        return (float(right / rows) if rows else np.nan,)

    def link(self, logits: np.ndarray) -> np.ndarray:
        return softmax(logits if self.temperature == 1.0 else logits / self.temperature)

    def predict(self, logits: np.ndarray) -> np.ndarray:
        return self.decisions(logits).argmax(axis=1)

    def columns(self, logits: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``predicted``, the name of the class, and its ``probability``."""
        probabilities = self.link(logits)
        winners = self.predict(logits)
        return {
            "predicted": np.array(names, object)[winners],
            "probability": probabilities[np.arange(len(winners)), winners],
        }

    def evaluate(self, labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> Evaluation:
        """See :func:`~hoplite.tasks.evaluation.evaluate_classes`."""
        predicted = self.predict(logits)
        return evaluate_classes(labels, self.link(logits), predicted, names, self.positive)

    def figure(self, name: str, labels: np.ndarray, logits: np.ndarray) -> float:
        if name == "accuracy":  # far quicker than an evaluation, as are curves
            return float(np.mean(labels == self.predict(logits)))
        if name in CURVES:
            classes = np.arange(logits.shape[1]) if self.positive is None else [self.positive]
            return mean_area(name, labels[:, None] == classes, self.link(logits)[:, classes])
        return super().figure(name, labels, logits)

    def baseline(self, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """The training nodes' largest class for every node, their shares as probabilities."""
        scores = np.tile(self.shares, (len(labels), 1))
        return evaluate_classes(labels, scores, scores.argmax(axis=1), names, self.positive)
