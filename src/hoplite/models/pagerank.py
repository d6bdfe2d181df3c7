"""Personalised PageRank, which is APPNP without a network: a walk that returns to its start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.config import number_setting
from hoplite.models.fixed import FixedFilter, FixedSettings
from hoplite.models.settings import ModelConfig


class PersonalisedPageRank(FixedFilter):
    """H_0 = X, H_{t+1} = (1 - a) S H_t + a X for t = 0 .. k - 1, a = ``alpha``:

        c_i = a (1 - a)^i for i < k,    c_k = (1 - a)^k

    >>> PersonalisedPageRank.constants(PersonalisedPageRank.Settings(hops=2, alpha=0.5)).tolist()
    [0.5, 0.25, 0.25]
    """

    name = "ppr"
    title = "PPR"
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        alpha: float = number_setting(
            0.1, "Share of a node's own features in every hop, 0 to 1.", 0, 1
        )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        found = (1 - config.alpha) ** np.arange(config.hops + 1.0)
        found[:-1] *= config.alpha
        return found
