"""LGC: sum_i alpha_i p_i(S) X Theta, one learned coefficient per hop."""

from __future__ import annotations

import numpy as np

from hoplite.bases import Basis
from hoplite.models.base import Weights
from hoplite.models.linear import BasisSettings, FilterFacts, LinearModel, start_coefficients
from hoplite.models.settings import ModelConfig


class LGC(LinearModel):
    """c_i = alpha_i; with relations alpha has 1 + R k values, see :mod:`hoplite.relations`.

    >>> LGC.largest(2.0, LGC.Settings(hops=2)).tolist()
    [2.0, 2.0, 2.0]
    """

    name = "lgc"
    title = "LGC"
    facts = FilterFacts(learned="alpha", homogeneous=True, theorem=1)
    takes_relations = True
    Settings = BasisSettings

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        return {"alpha": start_coefficients(self.config, rng, self.relations)}

    def coefficients(self, weights: Weights) -> np.ndarray:
        return weights["alpha"]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        return {"alpha": gradient}

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.full(config.hops + 1, float(bound))

    @classmethod
    def paper_growth(cls, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """a sum_i ||S||_1^i."""
        with np.errstate(over="ignore"):
            return bound * float(basis.growth(norm, hops).sum())
