"""SGC: S^k X Theta, the last hop alone."""

from __future__ import annotations

import numpy as np

from hoplite.models.base import FIXED_FILTER_DEFAULTS, OF_FILTERS, Weights
from hoplite.models.linear import LinearModel
from hoplite.models.settings import ModelConfig


class SGC(LinearModel):
    """c_k = 1, the others 0.

    >>> SGC.largest(5.0, SGC.Settings(hops=2)).tolist()
    [0.0, 0.0, 1.0]
    """

    name = "sgc"
    title = "SGC"
    idle = OF_FILTERS
    defaults = FIXED_FILTER_DEFAULTS

    def coefficients(self, weights: Weights) -> np.ndarray:
        return self.constants(self.config)

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        return np.append(np.zeros(config.hops), 1.0)
