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

import numpy as np

from hoplite.config import choice_setting
from hoplite.models.base import FIXED_FILTER_DEFAULTS, OF_FILTERS, Weights
from hoplite.models.linear import LinearModel, PolynomialSettings
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS

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


class FixedFilter(LinearModel):
    """What they share; a filter is its ``constants``."""

    Settings = FixedSettings
    idle = OF_FILTERS
    defaults = FIXED_FILTER_DEFAULTS

    @classmethod
    @abstractmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        """c_0 .. c_k: (k + 1,)."""

    def coefficients(self, weights: Weights) -> np.ndarray:
        return self._used

    @cached_property
    def _used(self) -> np.ndarray:
        """c_0, c_1, ... without the last ones that vanish.

        ||S^i X Theta|| is no larger than ||X Theta||, so what is left out is below the rounding of
        the sum.
        """
        found = self.constants(self.config)
        matters = np.flatnonzero(np.abs(found) > NEGLIGIBLE * np.abs(found).max())
        return found[: matters[-1] + 1]

    @property
    def hops_read(self) -> list[int]:
        return np.flatnonzero(self._used).tolist()
