"""JacobiConv: a polynomial filter of its own for every class, by default in Jacobi polynomials.

    logits[:, c] = sum_i a_{i,c} (p_i(S) X Theta)[:, c]  (+ b_c)        c = 1 .. m

It is LGC with (k + 1) m coefficients, and hop blocks with Theta_i = Theta diag(a_i).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoplite.config import number_setting
from hoplite.models.base import Weights
from hoplite.models.polynomial import Polynomial, PolynomialSettings, basis_setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch


class JacobiConv(Polynomial):
    """a_{i,c} = f_{i,c} prod_{j=1..i} gamma tanh(e_j), the paper's product parametrisation.

    Learned are Theta (d, m), ``class_filter`` f (k + 1, m), which starts at 1, and ``decay`` e
    (k,), which starts at min(1 / gamma, 1), so that at first hop i counts (gamma tanh e)^i.

    >>> model = JacobiConv(JacobiConv.Settings(hops=2), 3, 4)
    >>> model.shapes()
    {'theta': (3, 4), 'class_filter': (3, 4), 'decay': (2,)}
    """

    name = "jacobiconv"
    title = "JacobiConv"
    map_per_hop = True

    @dataclass(frozen=True)
    class Settings(PolynomialSettings):
        basis: str = basis_setting("jacobi:1,1")
        gamma: float = number_setting(
            1.0, "Most that a hop's coefficients are of the one before, above 0 to 2.", 0, 2,
            open_ends="l",
        )  # fmt: skip

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        k, gamma = self.config.hops, self.config.gamma
        return {
            "class_filter": torch.ones(k + 1, self.num_classes),
            "decay": torch.full((k,), min(1 / gamma, 1.0)),
        }

    def class_coefficients(self, weights: Weights) -> Tensor:
        """a: (R, k + 1, m)."""
        first = weights["decay"].new_ones(len(weights["decay"]), 1)
        steps = self.config.gamma * torch.tanh(weights["decay"])
        product = torch.cumprod(torch.cat([first, steps], dim=1), dim=1)
        return weights["class_filter"] * product.unsqueeze(2)

    def coefficients(self, weights: Weights) -> Tensor:
        """All 1, as the maps hold the filters."""
        return weights["theta"].new_ones(len(weights["theta"]), self.config.hops + 1)

    def filters(self, weights: Weights) -> Tensor:
        """One for each class: (R, k + 1, m)."""
        return self.class_coefficients(weights)

    def maps(self, weights: Weights) -> Tensor:
        return weights["theta"].unsqueeze(1) * self.class_coefficients(weights).unsqueeze(2)

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        outputs = view.hop_outputs(weights["theta"], dropout)  # (k + 1, rows, R, m)
        return torch.einsum("rkm,knrm->nrm", self.class_coefficients(weights), outputs)
