"""Each node has a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from hoplite.errors import GraphError
from hoplite.labels import NUMBERS
from hoplite.tasks.base import LOSS, Metric, Task
from hoplite.tasks.evaluation import Evaluation, evaluate_values
from hoplite.tasks.losses import huber, squared_error

ROUNDING = 64 * np.finfo(np.float64).eps  # share of a sum below which a value is taken for 0
MIN_SCALE = 1e-100  # squares of smaller numbers lose digits or vanish


@dataclass(frozen=True)
class Regression(Task):
    """One output, for the value less the ``mean`` of the training nodes, over their ``scale``.

        t = (y - mean) / scale,    l(z, t) = (z - t)^2    or Huber's,    f(z) = mean + scale z

    Huber's is (z - t)^2 / 2 up to a distance of 1, one standard deviation of the training nodes,
    and the distance less 1/2 beyond. NaN stands for an unknown value. The loss chooses the epoch;
    R^2 and the mean absolute error, in units of y, are recorded.

    >>> task = Regression().fitted(np.array([1.0, 3.0]), 1)
    >>> task.predict(np.array([[0.0], [2.0]])).tolist()
    [2.0, 4.0]
    """

    name = "regression"
    metrics = (Metric("r2"), Metric("mae", larger_is_better=False))
    monitors: ClassVar[dict[str, Metric]] = {"loss": LOSS, "r2": metrics[0], "mae": metrics[1]}
    labels = NUMBERS
    has_classes = False
    has_sets = True
    pictures = ("plot_predicted",)
    baseline_name = "always predicting the mean"
    mean: float = 0.0
    scale: float = 1.0
    kind: Literal["squared", "huber"] = "squared"

    def with_loss(self, loss: str) -> Self:
        return self if loss == "auto" else dataclasses.replace(self, kind=loss)

    def fitted(self, labels: np.ndarray, outputs: int) -> Self:
        if np.ptp(labels) == 0:
            raise GraphError(
                f"all training nodes have the value {labels[0]:g}, so there is nothing to learn; "
                "use training nodes with different values."
            )
        mean, scale = float(labels.mean()), float(labels.std())
        if scale < MIN_SCALE:
            raise GraphError(
                f"the values of the training nodes differ by at most {np.ptp(labels):g}, which is "
                "too little to compute with; rescale the labels."
            )
        return dataclasses.replace(self, mean=mean, scale=scale)

    def outputs(self, labels: np.ndarray, names: Sequence[str] | None) -> int:
        return 1

    def output_names(self, names: Sequence[str]) -> tuple[str, ...]:
        return ("value",)

    def targets(self, labels: np.ndarray, outputs: int) -> np.ndarray:
        if labels.ndim != 1 or outputs != 1:
            raise GraphError(f"labels have shape {labels.shape}; pass one number per node.")
        return (np.asarray(labels, np.float64) - self.mean) / self.scale

    def target_text(self, target: Any, names: Sequence[str]) -> str:
        return f"{self.mean + self.scale * target:.6g}"

    @property
    def loss_function(self) -> Callable[..., float]:
        return squared_error if self.kind == "squared" else huber

    def tally(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """``[rows, sum t, sum t^2, sum (z - t)^2, sum |z - t|]``."""
        with np.errstate(all="ignore"):
            errors = logits[:, 0] - targets  # float64, as the targets are
            sums = targets.sum(), np.square(targets).sum(), np.square(errors).sum()
            return np.array([len(logits), *sums, np.abs(errors).sum()], np.float64)

    def measured(self, tally: np.ndarray) -> tuple[float, ...]:
        """R^2 = 1 - sum (z - t)^2 / (sum t^2 - (sum t)^2 / rows), and scale * mean ``|z - t|``.

        R^2 is -infinity where all targets are equal, or NaN if all outputs equal them too.
        """
        rows, total, squares, squared_errors, distances = tally
        with np.errstate(all="ignore"):
            spread = squares - total * total / rows
            if abs(spread) <= ROUNDING * squares:
                spread = np.float64(0)
            return float(1 - squared_errors / spread), float(self.scale * distances / rows)

    def link(self, logits: np.ndarray) -> np.ndarray:
        return self.mean + self.scale * logits.astype(np.float64)

    def rescaled(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.scale * weight, self.link(bias)

    def predict(self, logits: np.ndarray) -> np.ndarray:
        return self.link(logits)[:, 0]

    def nonconformity(self, labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """The distance ``|y - f(z)|``, in units of y."""
        return np.abs(labels - self.predict(logits))

    def sets(self, logits: np.ndarray, max_score: Any) -> np.ndarray:
        """f(z) - most and f(z) + most: (n, 2)."""
        return self.link(logits) + np.array([-max_score, max_score])

    def set_columns(self, sets: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``low`` and ``high``, the ends of the interval."""
        low, high = sets.T
        return {"low": low, "high": high}

    def columns(self, logits: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
        """``predicted``, the value."""
        return {"predicted": self.predict(logits)}

    def evaluate(self, labels: np.ndarray, logits: np.ndarray, names: Sequence[str]) -> Evaluation:
        """See :func:`~hoplite.tasks.evaluation.evaluate_values`."""
        return evaluate_values(labels, self.predict(logits))

    def baseline(self, labels: np.ndarray, names: Sequence[str]) -> Evaluation:
        """The mean of the training nodes for every node."""
        return evaluate_values(labels, np.full(len(labels), self.mean))
