"""Each node has one of m classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from hoplite.errors import GraphError
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.evaluation import Evaluation, class_figure, evaluate_classes


@dataclass(frozen=True)
class Multiclass(Task):
    """Softmax and cross-entropy; accuracy is the metric and usually chooses the epoch.

        l(z, t) = -log softmax(z)_t,    f(z) = softmax(z),    prediction argmax(z)

    Labels are class indices, and a negative one stands for unknown. Of equal outputs the first
    is predicted.

    ``shares`` are the classes' shares of the training nodes. The baseline has them as its
    probabilities for every node, so it always predicts the largest class. Of two classes the rarer
    one is ``positive``: ROC AUC and average precision are of it (of equals, of the second). Two
    classes have two outputs, as others have: softmax of them is the sigmoid of their difference,
    and whatever reads a model finds one column for each class.

    >>> z = torch.tensor([[[2.0, 0.0]], [[3.0, 1.0]]])
    >>> [value.tolist() for value in Multiclass().measure(z, torch.tensor([0, 1]), 2)]
    [[0.5]]
    """

    name = "multiclass"
    metrics = (Metric("accuracy"),)
    monitors: ClassVar[dict[str, Metric]] = {
        "accuracy": metrics[0],
        "loss": LOSS,
        "auc": Metric("roc_auc"),
        "ap": Metric("average_precision"),
        "f1": Metric("macro_f1"),
    }
    compared = ("accuracy", "balanced_accuracy", "roc_auc")
    unknowing = "always predicting the largest class"
    shares: tuple[float, ...] = ()

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
        return len(names or ())

    def known(self, labels: np.ndarray) -> np.ndarray:
        return labels >= 0

    def targets(self, labels: np.ndarray, outputs: int) -> Tensor:
        if labels.ndim != 1:
            raise GraphError(f"labels have shape {labels.shape}; pass one class per node.")
        if labels.size and (labels.min() < 0 or labels.max() >= outputs):
            outside = labels.min() if labels.min() < 0 else labels.max()
            raise GraphError(f"label {outside} is not in 0 .. {outputs - 1}.")
        return torch.from_numpy(np.array(labels, np.int64))

    def loss(self, logits: Tensor, targets: Tensor, count: float) -> Tensor:
        picked = targets.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
        return -log_softmax(logits, dim=2).gather(2, picked).sum(dim=(0, 2)) / count

    def measure(self, logits: Tensor, targets: Tensor, count: float) -> tuple[Tensor, ...]:
        right = logits.argmax(dim=2) == targets.unsqueeze(1)
        return (right.double().sum(dim=0) / count,)

    def link(self, logits: np.ndarray) -> np.ndarray:
        return torch.tensor(logits).softmax(dim=-1).numpy()

    def predict(self, logits: np.ndarray) -> np.ndarray:
        return logits.argmax(axis=1)

    def columns(self, logits: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``predicted``, the name of the class, and its ``probability``."""
        probabilities = self.link(logits)
        winners = probabilities.argmax(axis=1)
        return {
            "predicted": pa.array(names).take(pa.array(winners)),
            "probability": probabilities[np.arange(len(winners)), winners],
        }

    def evaluate(self, labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> Evaluation:
        """See :func:`~hoplite.tasks.evaluation.evaluate_classes`."""
        predicted = self.predict(logits)
        return evaluate_classes(labels, self.link(logits), predicted, names, self.positive)

    def figure(self, name: str, labels: np.ndarray, logits: np.ndarray) -> float:
        predicted = self.predict(logits)
        return class_figure(name, labels, self.link(logits), predicted, self.positive)

    def baseline(self, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """The training nodes' largest class for every node, their shares as probabilities."""
        scores = np.tile(self.shares, (len(labels), 1))
        return evaluate_classes(labels, scores, scores.argmax(axis=1), names, self.positive)
