"""SGC: S^k X Theta, the last hop alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.polynomial import Polynomial
from hoplite.models.settings import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor


class SGC(Polynomial):
    """c_k = 1, the others 0.

    >>> SGC.largest(5.0, SGC.Settings(hops=2)).tolist()
    [0.0, 0.0, 1.0]
    """

    name = "sgc"
    title = "SGC"
    kept_hops = "last"
    idle = OF_FILTERS

    def coefficients(self, weights: Weights) -> Tensor | None:
        return None

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.eye(config.hops + 1)[-1]
