"""DGC: the diffusion of heat in k equal steps of Euler's method, its time apart from its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.config import MOST_HOPS, number_setting
from hoplite.errors import ConfigError
from hoplite.lazy import special
from hoplite.models.fixed import FixedFilter, FixedSettings
from hoplite.models.settings import ModelConfig


class DGC(FixedFilter):
    """Decoupled graph convolution: ((1 - T/k) I + (T/k) S)^k, T = ``time``.

        c_i = binomial(k, i) (T/k)^i (1 - T/k)^(k - i);    without hops c_0 = 1

    T is any number from 0 to k: T = k is SGC, and with many hops it is heat; the usual 2 is the
    time of SGC's two hops. Many steps cost little, as the coefficients far above T vanish.

    >>> DGC.constants(DGC.Settings(hops=2, time=1.0)).round(4).tolist()
    [0.25, 0.5, 0.25]
    """

    name = "dgc"
    title = "DGC"
    size = "{0.hops} hops, time {0.time}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        hops: int = number_setting(
            100, "Degree k of the polynomial.", 0, MOST_HOPS, store="a store's own"
        )
        time: float = number_setting(2.0, "How long the diffusion lasts, 0 or more.", 0, MOST_HOPS)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.hops and self.time > self.hops:
                raise ConfigError(
                    f"time is {self.time:g} and hops {self.hops}, but a hop lasts 1 at most; give "
                    f"at least {int(np.ceil(self.time))} hops, or a shorter time."
                )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        k, i = config.hops, np.arange(config.hops + 1.0)
        step = config.time / k if k else 0.0
        ways = special.gammaln(k + 1) - special.gammaln(i + 1) - special.gammaln(k - i + 1)
        return np.exp(ways + special.xlogy(i, step) + special.xlog1py(k - i, -step))
