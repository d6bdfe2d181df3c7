"""Heat: the diffusion exp(-t (I - S)), cut after k hops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hoplite.config import number_setting
from hoplite.errors import ConfigError
from hoplite.lazy import special
from hoplite.models.fixed import FixedFilter, FixedSettings
from hoplite.models.settings import ModelConfig

MOST_TIME = 600.0  # e^-t is a float64 that is not 0
LEAST_SHARE = 1e-3  # of the diffusion that the hops hold


class Heat(FixedFilter):
    """exp(-t (I - S)) = sum_i e^-t t^i / i! S^i for i up to k, t = ``time``.

        c_i = e^-t t^i / i!

    What the cut leaves out is the share of a Poisson variable of mean t above k: 1.4 % for 5 and
    10 hops.

    >>> Heat.constants(Heat.Settings(hops=2, time=1.0)).round(4).tolist()
    [0.3679, 0.3679, 0.1839]
    """

    name = "heat"
    title = "Heat"
    size = "{0.hops} hops, time {0.time}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        time: float = number_setting(5.0, "How long the diffusion lasts, 0 or more.", 0, MOST_TIME)

        def __post_init__(self) -> None:
            super().__post_init__()
            share = float(Heat.constants(self).sum())
            if share < LEAST_SHARE:
                raise ConfigError(
                    f"time is {self.time:g} and hops {self.hops}, which hold {share:.1g} of the "
                    f"diffusion; give about {math.ceil(self.time + 3 * math.sqrt(self.time))} "
                    "hops, or a shorter time."
                )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        i = np.arange(config.hops + 1.0)
        return np.exp(special.xlogy(i, config.time) - config.time - special.gammaln(i + 1))
