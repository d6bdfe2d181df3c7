"""Fixed filters: sum_i c_i S^i X Theta (+ b), the c_i known numbers of one or two settings.

Nothing but Theta is learned. So without dropout the filtered features sum_i c_i S^i X, (rows, d),
are computed once, and a step is that of logistic regression on them, as SGC's is.

All four are written for an S whose smooth signals have eigenvalues near 1, so their operator is
``renormalized`` or ``adjacency``: with L = I - S, the Laplacian's filters are the same functions.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hoplite.config import choice_setting
from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.polynomial import Polynomial, PolynomialSettings
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

NEGLIGIBLE = 2.0**-60  # of the largest coefficient: below float64's rounding
SMOOTH_AT_ONE = tuple(name for name, one in OPERATORS.items() if one.sign > 0)


def smooth_choices() -> str:
    """Their names for people."""
    return f"{', '.join(SMOOTH_AT_ONE[:-1])} or {SMOOTH_AT_ONE[-1]}."


@dataclass(frozen=True)
class FixedSettings(PolynomialSettings):
    """Of fixed filters."""

    operator: str = choice_setting(
        "renormalized",
        smooth_choices(),
        SMOOTH_AT_ONE,
        store="a store's own",
    )


class FixedFilter(Polynomial):
    """What they share; a filter is its ``numbers``."""

    Settings = FixedSettings
    fixed = True
    idle = OF_FILTERS

    @classmethod
    @abstractmethod
    def numbers(cls, config: ModelConfig) -> np.ndarray:
        """c_0 .. c_k: (k + 1,)."""

    def coefficients(self, weights: Weights) -> Tensor:
        theta = weights["theta"]
        found = torch.tensor(self.numbers(self.config), dtype=theta.dtype)
        return found.expand(len(theta), -1)

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        return view.combine(weights["theta"], self._used, dropout)

    @property
    def last_hop(self) -> int:
        return len(self._used) - 1

    @cached_property
    def _used(self) -> tuple[float, ...]:
        """c_0, c_1, ... without the last ones that vanish: ||S^i X Theta|| is no larger than
        ||X Theta||, so what is left out is below the rounding of the sum."""
        found = self.numbers(self.config)
        matters = np.flatnonzero(np.abs(found) > NEGLIGIBLE * np.abs(found).max())
        return tuple(found[: matters[-1] + 1].tolist())

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.abs(cls.numbers(config))
