"""TrainingConfig: how a model is fitted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hoplite.errors import ConfigError, check_choice
from hoplite.propagation.plan import ORDERS

OPTIMIZERS = ("adam", "lbfgs")


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of one training run, checked once; the defaults suit the citation graphs.

    Parameters
    ----------
    lr, weight_decay : float
        Learning rate, and the factor of the penalty ``weight_decay / 2 * ||weights||^2``.
    dropout : float
        Probability in [0, 1) that an entry of X is set to 0 in a training step.
    optimizer : {"adam", "lbfgs"}
        Adam as in the paper, or full-batch L-BFGS (one epoch is one call of up to 20 iterations).
    epochs, patience : int
        At most ``epochs``; stop when validation accuracy has not risen for ``patience`` of them.
    order : {"auto", "weights-first", "hops-first"}
        Evaluation order; "auto" takes the cheaper one.
    """

    lr: float = 0.05
    weight_decay: float = 5e-4
    dropout: float = 0.5
    optimizer: str = "adam"
    epochs: int = 500
    patience: int = 100
    order: str = "auto"

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("order", self.order, ORDERS)
        _check_number("lr", self.lr, self.lr > 0, "larger than 0")
        _check_number("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or larger")
        _check_number("dropout", self.dropout, 0 <= self.dropout < 1, "in [0, 1)")
        _check_number("epochs", self.epochs, self.epochs >= 1, "1 or larger")
        _check_number("patience", self.patience, self.patience >= 1, "1 or larger")


def _check_number(argument: str, value: float, fits: bool, allowed: str) -> None:
    if not (fits and math.isfinite(value)):
        raise ConfigError(f"{argument} is {value!r}; it must be a number {allowed}.")
