"""S2GC: the mean of the hops, and a share of the node's own features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.config import MOST_HOPS, number_setting
from hoplite.models.fixed import FixedFilter, FixedSettings
from hoplite.models.settings import ModelConfig


class S2GC(FixedFilter):
    """Simple spectral graph convolution: (1/k) sum_{i=1..k} ((1 - a) S^i + a I), a = ``alpha``.

        c_0 = a,    c_i = (1 - a) / k for i = 1 .. k;    without hops c_0 = 1

    >>> S2GC.constants(S2GC.Settings(hops=3, alpha=0.1)).round(3).tolist()
    [0.1, 0.3, 0.3, 0.3]
    """

    name = "s2gc"
    title = "S2GC"
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        hops: int = number_setting(
            16, "Degree k of the polynomial.", 0, MOST_HOPS, store="a store's own"
        )
        alpha: float = number_setting(
            0.05, "Share of a node's own features in every hop, 0 to 1.", 0, 1
        )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        if config.hops == 0:
            return np.ones(1)
        rest = np.full(config.hops, (1 - config.alpha) / config.hops)
        return np.concatenate([[config.alpha], rest])
