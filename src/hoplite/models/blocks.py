"""Hop blocks: sum_i p_i(S) X Theta_i, a map of its own for every hop of every matrix.

It is SIGN, or TAGConv, without an activation: logistic regression on all hop features side by
side, with a convex loss, for which L-BFGS is the natural optimizer. With the relations of a graph
and several operators (channels) there are P matrices, and the blocks are those of linear FSGNN:

    [X | p_1(S_1) X .. p_k(S_1) X | p_1(S_2) X .. p_k(S_2) X | ..]        (1 + P k) d columns

The matrices are, for each relation (such as ``out`` and ``in``), all channels; see
:mod:`hoplite.engine.propagation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hoplite.config import setting
from hoplite.engine.evaluation import Filter
from hoplite.errors import ConfigError, check_choice
from hoplite.models.base import OF_FILTERS, Weights, uniform
from hoplite.models.linear import LinearModel, PolynomialSettings, basis_setting
from hoplite.operators import OPERATORS


def check_channels(name: str, value: Any) -> str:
    """Operators with commas between them, none twice; nothing stands for the one ``operator``.

    >>> check_channels("channels", "adjacency, random_walk")
    'adjacency,random_walk'
    """
    if not isinstance(value, str):
        raise ConfigError(
            f"{name} is {value!r}; it must be operators with commas between them, such as "
            "'renormalized,random_walk'."
        )
    operators = [part.strip() for part in value.split(",")] if value.strip() else []
    for operator in operators:
        check_choice(name, operator, OPERATORS)
    if len(set(operators)) < len(operators):
        raise ConfigError(f"{name} is {value!r}, which has an operator twice; name each once.")
    return ",".join(operators)


class HopBlocks(LinearModel):
    """c_i = 1, and ``theta`` is (1 + P k, d, m): Theta of hop 0, then of every hop of every matrix.

    >>> HopBlocks(HopBlocks.Settings(hops=2), 3, 4).shapes()
    {'theta': (3, 3, 4)}
    >>> HopBlocks(HopBlocks.Settings(hops=2, channels="adjacency,random_walk"), 3, 4).shapes()
    {'theta': (5, 3, 4)}
    """

    name = "blocks"
    title = "Hop blocks"
    size = "{0.hops} hops, {0.shown_operators}, {0.basis_title}"
    takes_relations = True
    idle = OF_FILTERS

    @dataclass(frozen=True)
    class Settings(PolynomialSettings):
        basis: str = basis_setting()
        channels: str = setting(
            "",
            "Operators whose hops stand side by side, such as renormalized,random_walk; only "
            "--operator if not given.",
            check_channels,
            choices=OPERATORS,
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.channels and self.operator != PolynomialSettings.operator:
                raise ConfigError(
                    f"operator is {self.operator!r} but channels, {self.channels!r}, says which "
                    "operators count; leave out one of them."
                )
            if self.channels in OPERATORS:  # one channel is the operator
                object.__setattr__(self, "operator", self.channels)
                object.__setattr__(self, "channels", "")

        @property
        def operators(self) -> tuple[str, ...]:
            return tuple(self.channels.split(",")) if self.channels else (self.operator,)

        @property
        def shown_operators(self) -> str:
            return " and ".join(self.operators)

    @property
    def blocks(self) -> int:
        """1 + P k."""
        return 1 + self.num_parts * self.config.hops

    def initial_map(self, rng: np.random.Generator | None) -> np.ndarray:
        """Theta_i ~ U(-1/sqrt(B d), 1/sqrt(B d)) of B blocks, as torch.nn.Linear's of all."""
        shape = (self.blocks, self.num_features, self.num_classes)
        return uniform(shape, max(shape[0] * shape[1], 1), rng)

    def coefficients(self, weights: Weights) -> None:
        return None

    def filter(self, weights: Weights) -> Filter:
        return Filter(weights["theta"], None)

    def hop_coefficients(self, weights: Weights) -> np.ndarray:
        return np.ones(self.blocks, weights["theta"].dtype)

    def filters(self, weights: Weights) -> np.ndarray:
        raise ConfigError(
            f"a {self.name} has a filter for every feature and class, too many to show; their "
            "coefficients are in maps_."
        )

    def maps(self, weights: Weights) -> np.ndarray:
        return weights["theta"]
