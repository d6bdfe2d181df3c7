"""Fixed filters: sum_i c_i S^i X Theta (+ b), the c_i known numbers of one or two settings.

Nothing but Theta is learned. So without dropout the filtered features sum_i c_i S^i X, (rows, d),
are computed once, and a step is that of logistic regression on them.

All but SGC are written for an S whose smooth signals have eigenvalues near 1, so their operator is
``renormalized`` or ``adjacency``: with L = I - S, the Laplacian's filters are the same functions.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hoplite.config import MAX_HOPS, number_setting
from hoplite.errors import ConfigError
from hoplite.machine import special
from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.linear import SOLVED, LinearModel, PolynomialSettings, operator_setting
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS

MAX_TIME = 600.0  # e^-t is a float64 that is not 0
MIN_SHARE = 1e-3  # least share of the diffusion that the hops must hold
NEGLIGIBLE = 2.0**-60  # share of the largest coefficient: below float64's rounding
SMOOTH_AT_ONE = tuple(name for name, operator in OPERATORS.items() if operator.sign > 0)


@dataclass(frozen=True)
class FixedSettings(PolynomialSettings):
    """Settings of fixed filters."""

    operator: str = operator_setting("renormalized", SMOOTH_AT_ONE)


class FixedFilter(LinearModel):
    """What they share; a filter is its ``constants``."""

    Settings = FixedSettings
    idle = OF_FILTERS
    defaults = SOLVED
    # chosen on the validation nodes of Cora, on its public split and a random one of 60/20/20 %
    paper: ClassVar[dict[str, Any]] = {"lr": 0.2, "weight_decay": 5e-6}

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
        numbers = self.constants(self.config)
        matters = np.flatnonzero(np.abs(numbers) > NEGLIGIBLE * np.abs(numbers).max())
        return numbers[: matters[-1] + 1]

    @property
    def hops_read(self) -> list[int]:
        return np.flatnonzero(self._used).tolist()


class SGC(FixedFilter):
    """S^k X Theta, the last hop alone: c_k = 1, the others 0. It takes any operator.

    >>> SGC.largest(5.0, SGC.Settings(hops=2)).tolist()
    [0.0, 0.0, 1.0]
    """

    name = "sgc"
    title = "SGC"
    Settings = PolynomialSettings
    defaults: ClassVar[dict[str, Any]] = {**SOLVED, "hops": 2}

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        return np.append(np.zeros(config.hops), 1.0)


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
        hops: int = number_setting(16, "Number of hops.", 0, MAX_HOPS)
        alpha: float = number_setting(0.05, "Weight of a node's own features in every hop.", 0, 1)

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        if config.hops == 0:
            return np.ones(1)
        rest = np.full(config.hops, (1 - config.alpha) / config.hops)
        return np.concatenate([[config.alpha], rest])


class PPR(FixedFilter):
    """Personalised PageRank, which is APPNP without a network: a walk that returns to its start.

    H_0 = X, H_{t+1} = (1 - a) S H_t + a X for t = 0 .. k - 1, a = ``alpha``:

        c_i = a (1 - a)^i for i < k,    c_k = (1 - a)^k

    >>> PPR.constants(PPR.Settings(hops=2, alpha=0.5)).tolist()
    [0.5, 0.25, 0.25]
    """

    name = "ppr"
    title = "PPR"
    size = "{0.hops} hops, alpha {0.alpha}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        alpha: float = number_setting(0.1, "Weight of a node's own features in every hop.", 0, 1)

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        numbers = (1 - config.alpha) ** np.arange(config.hops + 1.0)
        numbers[:-1] *= config.alpha
        return numbers


class Heat(FixedFilter):
    """The diffusion of heat, cut after k hops:

    exp(-t (I - S)) = sum_i e^-t t^i / i! S^i for i up to k, t = ``time``.

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
        time: float = number_setting(5.0, "Diffusion time.", 0, MAX_TIME)

        def __post_init__(self) -> None:
            super().__post_init__()
            share = float(Heat.constants(self).sum())
            if share < MIN_SHARE:
                raise ConfigError(
                    f"is {self.time:g} and hops {self.hops}, which cover only {share:.1g} of "
                    f"the diffusion; use about {math.ceil(self.time + 3 * math.sqrt(self.time))} "
                    "hops, or a shorter time.",
                    "time",
                )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        i = np.arange(config.hops + 1.0)
        return np.exp(special.xlogy(i, config.time) - config.time - special.gammaln(i + 1))


class DGC(FixedFilter):
    """Decoupled graph convolution: ((1 - T/k) I + (T/k) S)^k, T = ``time``.

        c_i = binomial(k, i) (T/k)^i (1 - T/k)^(k - i);    without hops c_0 = 1

    T is any number from 0 to k: T = k is SGC, and with many hops it is heat; the default 2 is the
    time of SGC's two hops. Many steps cost little, as the coefficients far above T vanish.

    >>> DGC.constants(DGC.Settings(hops=2, time=1.0)).round(4).tolist()
    [0.25, 0.5, 0.25]
    """

    name = "dgc"
    title = "DGC"
    size = "{0.hops} hops, time {0.time}, {0.operator}"

    @dataclass(frozen=True)
    class Settings(FixedSettings):
        hops: int = number_setting(100, "Number of hops.", 0, MAX_HOPS)
        time: float = number_setting(2.0, "Diffusion time.", 0, MAX_HOPS)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.hops and self.time > self.hops:
                raise ConfigError(
                    f"is {self.time:g} and hops {self.hops}, but time must not exceed hops; "
                    f"use at least {int(np.ceil(self.time))} hops, or a shorter time.",
                    "time",
                )

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray:
        k, i = config.hops, np.arange(config.hops + 1.0)
        step = config.time / k if k else 0.0
        ways = special.gammaln(k + 1) - special.gammaln(i + 1) - special.gammaln(k - i + 1)
        return np.exp(ways + special.xlogy(i, step) + special.xlog1py(k - i, -step))
