"""Hop blocks: sum_i p_i(S) X Theta_i, a map of its own for every hop.

It is SIGN, or TAGConv, without an activation: logistic regression on all hop features side by
side, with (k + 1) d m weights and a convex loss, for which L-BFGS is the natural optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hoplite.models.base import OF_FILTERS, Weights, uniform
from hoplite.models.polynomial import Polynomial, PolynomialSettings, basis_setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch


class HopBlocks(Polynomial):
    """c_i = 1, and ``theta`` is (k + 1, d, m): block i is Theta_i, that of hop i.

    >>> HopBlocks(HopBlocks.Settings(hops=2), 3, 4).shapes()
    {'theta': (3, 3, 4)}
    """

    name = "blocks"
    title = "Hop blocks"
    map_per_hop = True
    input_weights = ()
    idle = OF_FILTERS

    @dataclass(frozen=True)
    class Settings(PolynomialSettings):
        basis: str = basis_setting()

    def initial_map(self, generator: torch.Generator | None) -> Tensor:
        """Theta_i ~ U(-1/sqrt((k + 1) d), 1/sqrt((k + 1) d)), as torch.nn.Linear's of all hops."""
        shape = (self.config.hops + 1, self.num_features, self.num_classes)
        return uniform(shape, max(shape[0] * shape[1], 1), generator)

    def coefficients(self, weights: Weights) -> Tensor:
        return weights["theta"].new_ones(len(weights["theta"]), self.config.hops + 1)

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        return view.sum_of_blocks(weights["theta"], dropout)
