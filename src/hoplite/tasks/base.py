"""What a model learns about the nodes: targets, loss, link, metrics, and when training stops."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np

from hoplite.config import ClassWeights
from hoplite.errors import ConfigError, ModelFileError, nearest_hint, some_of
from hoplite.formatting import listing
from hoplite.labels import CLASSES, JOINT, LabelType
from hoplite.tasks.evaluation import Evaluation

Restored = TypeVar("Restored")


@dataclass(frozen=True)
class Metric:
    """A figure of one run: its name in curves and results, and which way is better."""

    name: str
    larger_is_better: bool = True
    percent: bool = False  # whether it is shown in percent

    @property
    def title(self) -> str:
        """What follows "val" and "test" above a column of its values.

        >>> Metric("micro_f1", percent=True).title, Metric("roc_auc").title
        ('micro F1 %', 'AUC')
        """
        return title_of(self.name) + " %" * self.percent

    def format(self, value: float | None) -> str:
        """A value in such a column, without unit.

        >>> Metric("accuracy", percent=True).format(0.8125), Metric("r2").format(0.8125)
        ('81.2', '0.812')
        """
        if value is None or value != value:
            return "-"
        return f"{100 * value:z.1f}" if self.percent else f"{value:z.3f}"

    def rank(self, values: Any) -> Any:
        """``values`` such that the larger one is better.

        >>> LOSS.rank(0.25), Metric("accuracy").rank(0.25)
        (-0.25, 0.25)
        """
        return values if self.larger_is_better else -values


TITLES = {
    "r2": "R2",
    "mae": "MAE",
    "rmse": "RMSE",
    "roc_auc": "AUC",
    "average_precision": "AP",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
}


def title_of(figure: str) -> str:
    """What people call a figure of an evaluation."""
    return TITLES.get(figure, figure.replace("_", " "))


LOSS = Metric("loss", larger_is_better=False)


def restore(cls: type[Restored], state: Any, what: str) -> Restored:
    """An object of ``cls`` from its plain values; ModelFileError if they are damaged."""
    try:
        return msgspec.convert(state, cls)
    except msgspec.ValidationError as error:
        raise ModelFileError(
            f"the model's {what} damaged ({error}); train the model again."
        ) from None


@dataclass(frozen=True)
class Task(ABC):
    """How the outputs Z = (z_v) of a model are scored and read, z_v in R^m for node v.

        loss         L = 1/N sum_v w_v l(z_v, t_v)  over the N nodes of a set, t_v their targets
        link         p_v = f(z_v)                   an output as probabilities or as a value
        prediction   z_v -> a class, a value        the answer for a node

    A loss comes with its gradient (:meth:`loss_and_gradient`). A metric comes from a vector of sums
    over the rows: :meth:`tally` computes them for some rows, tallies of several ranges of rows or
    several workers are added, and :meth:`measured` makes the metrics of their sum.

    The fields of a task are what it must know about the training to read and score outputs. They
    are saved with a trained model: :meth:`fitted` computes them, :meth:`state` returns them as
    plain values.
    """

    name: ClassVar[str]
    labels: ClassVar[LabelType] = CLASSES  # what it learns
    metrics: ClassVar[tuple[Metric, ...]]  # recorded every epoch; the first is a run's score
    # What may choose the epoch on validation nodes, by its name in settings; the first one usually
    # does. One that is neither LOSS nor among the metrics is a figure of the evaluation.
    monitors: ClassVar[dict[str, Metric]]
    has_classes: ClassVar[bool] = True  # whether an output is of a class
    exclusive: ClassVar[bool] = False  # whether a node has exactly one of them
    has_sets: ClassVar[bool] = False  # whether there are prediction sets
    pictures: ClassVar[tuple[str, ...]] = ()  # methods of models and results that draw its mistakes
    baseline_name: ClassVar[str] = "the baseline"  # what that does, as in "no better than ..."

    @property
    def score(self) -> Metric:
        """The metric that results tell, and that the best of several runs is chosen by."""
        return self.metrics[0]

    @property
    def headline(self) -> tuple[str, ...]:
        """Metrics to show next to the score, because the score alone may mislead."""
        return ()

    @property
    def curves(self) -> tuple[str, ...]:
        """What is recorded of each set of nodes in every epoch."""
        return (LOSS.name, *[metric.name for metric in self.metrics])

    def fitted(self, labels: np.ndarray, outputs: int) -> Self:
        """The task with what the labels of the training nodes tell it."""
        return self

    def with_loss(self, loss: str) -> Self:
        """The task with the setting ``loss``."""
        if loss != "auto":
            raise ConfigError(
                f"is {loss!r}, but {self.name} has only one loss; leave it out.", "loss"
            )
        return self

    def output_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """What the m outputs of a model are called, of the names of the data's classes."""
        return tuple(names)

    def node_weights(
        self,
        class_weight: str | ClassWeights | None,
        train: np.ndarray,
        labels: np.ndarray,
        names: Sequence[str],
    ) -> np.ndarray | None:
        """The weights in the loss of nodes with these ``labels``; None if all are 1.

        (n,), or (n, m) if each output has its own loss. ``train`` are the labels of the
        training nodes.
        """
        if class_weight is None:
            return None
        if not self.has_classes:
            raise ConfigError(f"is not available for {self.name}; leave it out.", "class_weight")
        if isinstance(class_weight, str):
            return self.balanced_weights(train, labels, len(names))
        weights, places = np.ones(len(names)), {name: c for c, name in enumerate(names)}
        for name, weight in class_weight:
            if name not in places:
                raise ConfigError(
                    f"has a weight for {name!r}, but the classes are {some_of(names, 10)}."
                    f"{nearest_hint(name, names)}",
                    "class_weight",
                )
            weights[places[name]] = weight
        return self.named_weights(weights, labels)

    def balanced_weights(self, train: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
        """:meth:`node_weights` of ``class_weight="balanced"``, if there are classes."""
        raise NotImplementedError

    def named_weights(self, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """:meth:`node_weights` of a weight for each class (m,), if there are classes."""
        raise NotImplementedError

    def tuned(self, threshold: str | float, labels: np.ndarray, logits: np.ndarray) -> Self:
        """The task with what is chosen on validation nodes: where a class begins."""
        if threshold != 0.5:
            raise ConfigError(
                f"is {threshold!r}, which requires two classes; leave it out for {self.name}.",
                "threshold",
            )
        return self

    def calibrated(self, labels: np.ndarray, logits: np.ndarray) -> Self:
        """The task with probabilities that validation nodes made honest; predictions stay."""
        self.check_calibrate(True)
        return self

    def check_consistency(self, consistency: float) -> None:
        """ConfigError if draws cannot agree on such labels."""
        if consistency and not self.exclusive:
            raise ConfigError(
                f"is {consistency:g}, which requires one class per node, but these "
                f"are labels for {self.labels.task}; leave it out.",
                "consistency",
            )

    def check_calibrate(self, calibrate: bool) -> None:
        """ConfigError, before any work, if :meth:`calibrated` is asked for and cannot be done."""
        if calibrate and type(self).calibrated is Task.calibrated:
            raise ConfigError(f"is not available for {self.name}; leave it out.", "calibrate")

    def uncalibrated(self) -> Self | None:
        """The task as it was before :meth:`calibrated`; None if it was not."""
        return None

    def nonconformity(self, labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Nonconformity score of each label, larger for a worse fit: (n,); if the task has sets.

        A prediction set contains every label whose score is at most a quantile of these.
        """
        raise NotImplementedError

    def sets(self, logits: np.ndarray, max_score: Any) -> np.ndarray:
        """The labels with a nonconformity of at most ``max_score``, if the task has sets.

        A boolean matrix (n, m) for classes, where ``max_score`` may be one number per class (m,);
        intervals (n, 2) for numbers.
        """
        raise NotImplementedError

    def set_columns(self, sets: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """What :meth:`sets` gives as columns of a table of predictions, as :meth:`columns` are."""
        return {}

    @property
    def chosen_threshold(self) -> tuple[int, float] | None:
        """The class, and the probability from which it is predicted; None if none was chosen."""
        return None

    def decisions(self, logits: np.ndarray) -> np.ndarray:
        """Outputs (..., m) such that the largest one is the prediction, of classes."""
        return logits

    def rescaled(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The map X weight + bias (m,) to outputs as one to export: of numbers, in their units; of
        classes such that their softmax are the probabilities, calibrated ones too."""
        return weight, bias

    def state(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return dataclasses.asdict(self)

    def monitor(self, name: str = "auto") -> Metric:
        """What the setting ``monitor`` says; ConfigError if this task has no such figure."""
        if name == "auto":
            return next(iter(self.monitors.values()))
        if name not in self.monitors:
            raise ConfigError(
                f"is {name!r}, which is not a score of {self.labels.task}; use "
                f"{listing(['auto', *self.monitors], 'or')}.{nearest_hint(name, self.monitors)}",
                "monitor",
            )
        return self.monitors[name]

    @abstractmethod
    def outputs(self, labels: np.ndarray, names: Sequence[str] | None) -> int:
        """m, of all nodes' labels and the names of the classes, where they have some."""

    def check_names(self, names: Sequence[str]) -> None:
        """GraphError if nothing can be learned of classes with these names."""
        return

    @abstractmethod
    def targets(self, labels: np.ndarray, outputs: int) -> np.ndarray:
        """Targets from the labels of nodes that have one, (rows, ...).

        GraphError if a model with so many outputs cannot predict one of them.
        """

    def target_text(self, target: Any, names: Sequence[str]) -> str:
        """One target, of several labels their numbers, as a label is written."""
        labels = target if isinstance(target, tuple) else (int(target),)
        return JOINT.join(names[label] for label in labels) or JOINT

    def loss(
        self,
        logits: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None = None,
        count: float | None = None,
    ) -> float:
        """sum_v w_v l(z_v, t_v) / count.

        Parameters
        ----------
        logits : ndarray, (rows, m)
            Outputs z_v, float32 or float64.
        targets : ndarray, (rows, ...)
            Targets t_v, of :meth:`targets`.
        weights : ndarray, (rows,) or (rows, m), optional
            Weights w_v, of :meth:`node_weights`; 1 by default.
        count : float, optional
            The number of rows by default. Where the rows are part of a set, the number of nodes of
            the whole set makes losses that add up to the loss of the set.
        """
        count = len(logits) if count is None else count
        return self.loss_function(logits, targets, weights, count)

    def loss_and_gradient(
        self,
        logits: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None = None,
        count: float | None = None,
    ) -> tuple[float, np.ndarray]:
        """:meth:`loss` and its gradient by the logits, (rows, m) in their type."""
        gradient = np.empty(logits.shape, logits.dtype)
        count = len(logits) if count is None else count
        return self.loss_function(logits, targets, weights, count, gradient), gradient

    @property
    @abstractmethod
    def loss_function(self) -> Callable[..., float]:
        """The loss, one of those of :mod:`hoplite.tasks.losses`, with their parameters."""

    @abstractmethod
    def tally(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Sums over the rows, float64 (sums,), that the metrics are computed from."""

    @abstractmethod
    def measured(self, tally: np.ndarray) -> tuple[float, ...]:
        """The metrics in their order, from one tally or the sum of several."""

    def figure(self, name: str, labels: np.ndarray, logits: np.ndarray) -> float:
        """One figure of the evaluation of outputs (n, m); NaN if it means nothing."""
        names = [str(c) for c in range(logits.shape[1])]
        return self.evaluate(labels, logits, names)[name]

    @abstractmethod
    def link(self, logits: np.ndarray) -> np.ndarray:
        """f(z): (n, m) -> (n, m)."""

    @abstractmethod
    def predict(self, logits: np.ndarray) -> np.ndarray:
        """The prediction for every node: (n, m) -> (n,), or (n, labels) where it has several."""

    @abstractmethod
    def columns(self, logits: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """The columns of a table of predictions: names with n values each."""

    def tallied(self, predicted: Sequence[Any]) -> Sequence[Any]:
        """What is counted of the column ``predicted``, where there are classes."""
        return predicted

    @abstractmethod
    def evaluate(self, labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> Evaluation:
        """Every figure of a set of nodes from their labels (n, ...) and outputs (n, m)."""

    @abstractmethod
    def baseline(self, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """The same figures of what knows the training labels and nothing of the nodes."""
