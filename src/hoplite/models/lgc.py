"""LGC: sum_i alpha_i p_i(S) X Theta, one learned coefficient per hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hoplite.models.base import Weights
from hoplite.models.polynomial import BasisSettings, Polynomial, start_coefficients
from hoplite.models.settings import ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.bases import Basis


class LGC(Polynomial):
    """c_i = alpha_i; with relations alpha has 1 + R k values, see :mod:`hoplite.relations`.

    >>> LGC.largest(2.0, LGC.Settings(hops=2)).tolist()
    [2.0, 2.0, 2.0]
    """

    name = "lgc"
    title = "LGC"
    learned = "alpha"
    homogeneous = True
    theorem = 1
    takes_relations = True
    Settings = BasisSettings

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        return {"alpha": start_coefficients(self.config, generator, self.relations)}

    def coefficients(self, weights: Weights) -> Tensor | None:
        return weights["alpha"]

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.full(config.hops + 1, float(bound))

    @classmethod
    def paper_growth(cls, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """a sum_i ||S||_1^i."""
        with np.errstate(over="ignore"):
            return bound * float(basis.growth(norm, hops).sum())
