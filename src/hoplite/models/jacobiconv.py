"""JacobiConv: a polynomial filter of its own for every class, by default in Jacobi polynomials.

    logits[:, c] = sum_i a_{i,c} (p_i(S) X Theta)[:, c]  (+ b_c)        c = 1 .. m

It is LGC with (k + 1) m coefficients, and hop blocks with Theta_i = Theta diag(a_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hoplite.config import number_setting
from hoplite.models.base import Weights
from hoplite.models.linear import LinearModel, PolynomialSettings, basis_setting


class JacobiConv(LinearModel):
    """a_{i,c} = f_{i,c} prod_{j=1..i} gamma tanh(e_j), the paper's product parametrisation.

    Learned are Theta (d, m), ``class_filter`` f (k + 1, m), which starts at 1, and ``decay`` e
    (k,), which starts at min(1 / gamma, 1), so that at first hop i counts (gamma tanh e)^i.

    >>> model = JacobiConv(JacobiConv.Settings(hops=2), 3, 4)
    >>> model.shapes()
    {'theta': (3, 4), 'class_filter': (3, 4), 'decay': (2,)}
    """

    name = "jacobiconv"
    title = "JacobiConv"

    @dataclass(frozen=True)
    class Settings(PolynomialSettings):
        basis: str = basis_setting("jacobi:1,1")
        gamma: float = number_setting(
            1.0, "Most that a hop's coefficients are of the one before, above 0 to 2.", 0, 2,
            open_ends="l",
        )  # fmt: skip

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        k, gamma = self.config.hops, self.config.gamma
        return {
            "class_filter": np.ones((k + 1, self.num_classes), np.float32),
            "decay": np.full(k, min(1 / gamma, 1.0), np.float32),
        }

    def coefficients(self, weights: Weights) -> np.ndarray:
        """a: (k + 1, m)."""
        return weights["class_filter"] * self._products(weights)[1][:, None]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        """With s_j = gamma tanh(e_j), g_0 = 1, g_i = g_{i-1} s_i and dg_i = sum_c da_{i,c} f_{i,c}:

            df_{i,c} = da_{i,c} g_i
            A_k = dg_k,  A_{i-1} = dg_{i-1} + A_i s_i,  de_i = A_i g_{i-1} gamma (1 - tanh(e_i)^2)

        Nothing is divided by tanh(e_j), which may be 0.
        """
        steps, products = self._products(weights)
        by_product = (gradient * weights["class_filter"]).sum(axis=1)
        by_step = np.zeros_like(by_product[1:])
        later = 0.0
        for i in reversed(range(len(steps))):
            later = by_product[i + 1] + (later * steps[i + 1] if i + 1 < len(steps) else 0.0)
            by_step[i] = later * products[i]
        slope = self.config.gamma * (1 - np.tanh(weights["decay"]) ** 2)
        return {"class_filter": gradient * products[:, None], "decay": by_step * slope}

    def _products(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        """s_1 .. s_k and g_0 .. g_k."""
        steps = (self.config.gamma * np.tanh(weights["decay"])).astype(weights["decay"].dtype)
        return steps, np.cumprod(np.concatenate([np.ones(1, steps.dtype), steps]))

    def maps(self, weights: Weights) -> np.ndarray:
        return weights["theta"][None] * self.coefficients(weights)[:, None]

    def hop_coefficients(self, weights: Weights) -> np.ndarray:
        """All 1, as the maps hold the filters."""
        return np.ones(self.config.hops + 1, weights["theta"].dtype)
