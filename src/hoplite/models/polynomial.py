"""What SGC, EGC and LGC share: sum_i c_i p_i(S) X Theta (+ b), with c_i the same for all nodes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hoplite.bases import basis_choices, basis_words, find_basis
from hoplite.config import MOST_HOPS, choice_setting, flag_setting, number_setting, setting
from hoplite.models.base import Model, Weights, uniform
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS, find_operator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch

STARTS = ("random", "lowpass")
LOWPASS_DECAY = 0.8


@dataclass(frozen=True)
class OperatorSettings(ModelConfig):
    """Of models that propagate by an operator."""

    operator: str = choice_setting(
        "renormalized",
        f"{', '.join([*OPERATORS][:-1])} or {[*OPERATORS][-1]}.",
        OPERATORS,
        store="a store's own",
    )


@dataclass(frozen=True)
class PolynomialSettings(OperatorSettings):
    """Of polynomials of an operator."""

    hops: int = number_setting(
        10, "Degree k of the polynomial.", 0, MOST_HOPS, store="a store's own"
    )
    bias: bool = flag_setting(False, "Add a bias.")

    def __post_init__(self) -> None:
        super().__post_init__()
        find_basis(self.basis).check_hops(self.hops)


@dataclass(frozen=True)
class StartSettings(PolynomialSettings):
    """Of polynomials that learn their coefficients."""

    start: str = choice_setting(
        "random", "First coefficients: random (the paper's) or lowpass.", STARTS
    )


def basis_setting(usual: str = "monomial") -> Any:
    """Of polynomials in any basis."""
    return setting(
        usual,
        f"{basis_choices()}.",
        lambda name, value: str(find_basis(value, name)),
        store="a store's own",
        choices=basis_words(),
    )


@dataclass(frozen=True)
class BasisSettings(StartSettings):
    """Of polynomials in any basis that learn their coefficients."""

    basis: str = basis_setting()


class Polynomial(Model):
    """A model whose coefficients do not depend on the node."""

    Settings = PolynomialSettings
    size = "{0.hops} hops, {0.operator}, {0.basis_title}"
    growth = "hops"
    linear = True
    rows_alone = True
    input_weights = ("theta",)

    @abstractmethod
    def coefficients(self, weights: Weights) -> Tensor | None:
        """c_0 .. c_k per run, (R, k + 1); None means one-hot at k."""

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        return view.combine(weights["theta"], self.coefficients(weights), dropout)


def start_coefficients(
    config: ModelConfig, generator: torch.Generator | None, relations: int = 1
) -> Tensor:
    """First values of alpha_0 .. alpha_k, shape (k + 1,); of R relations (1 + R k,).

    ``random`` is the paper's U(-1/sqrt(k), 1/sqrt(k)); ``lowpass`` is (0.8 s)^i with s = -1 for
    the Laplacian, whose smooth signals have eigenvalues near 0, and s = 1 otherwise. Relations
    share it: each has an R-th of it, but for alpha_0.
    """
    drawn = uniform((1 + relations * config.hops,), max(config.hops, 1), generator)
    if config.start == "random" or generator is None:
        return drawn
    ratio = LOWPASS_DECAY * find_operator(config.operator).sign
    own = ratio ** torch.arange(config.hops + 1, dtype=torch.float32)
    return torch.cat([own[:1], (own[1:] / relations).repeat(relations)])
