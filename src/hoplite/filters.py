"""Filters: polynomials p(S) = sum_i c_i p_i(S) of an operator: first values, and their response.

The p_i are those of a basis (:mod:`hoplite.bases`), with the spectrum mapped to its domain.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoplite.bases import Basis, find_basis
from hoplite.config import STARTS
from hoplite.errors import check_choice
from hoplite.operators import Operator, find_operator

LOWPASS_DECAY = 0.8
RESPONSE_POINTS = 200


def start_coefficients(
    start: str, hops: int, lowpass_sign: float, generator: torch.Generator | None
) -> Tensor:
    """First values of alpha_0 .. alpha_k, shape (k + 1,).

    ``random`` is the paper's U(-1/sqrt(k), 1/sqrt(k)); ``lowpass`` is (0.8 s)^i with s = -1 for
    the Laplacian, whose smooth signals have eigenvalues near 0, and s = 1 otherwise.
    """
    check_choice("start", start, STARTS)
    drawn = uniform((hops + 1,), max(hops, 1), generator)
    if start == "random" or generator is None:
        return drawn
    return (LOWPASS_DECAY * lowpass_sign) ** torch.arange(hops + 1, dtype=torch.float32)


def start_rate(
    start: str, hops: int, lowpass_sign: float, generator: torch.Generator | None
) -> Tensor:
    """First value of EGC's diffusion rate beta, a scalar: random as for alpha, or +-1."""
    check_choice("start", start, STARTS)
    drawn = uniform((), max(hops, 1), generator)
    return drawn if start == "random" else torch.tensor(float(lowpass_sign))


def uniform(shape: tuple[int, ...], size: int, generator: torch.Generator | None) -> Tensor:
    """Draw from U(-1/sqrt(size), 1/sqrt(size)); without a generator there is only the shape."""
    if generator is None:  # torch computes on the device "meta" only with a compiler, seconds away
        return torch.empty(shape)
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(size)


def exponential_coefficients(rate: Tensor, hops: int) -> Tensor:
    """beta^i / i! for i = 0 .. hops: shape (...) -> (..., hops + 1), differentiable.

    >>> exponential_coefficients(torch.tensor(2.0), 3)
    tensor([1.0000, 2.0000, 2.0000, 1.3333])
    """
    one = torch.ones_like(rate).unsqueeze(-1)
    if hops == 0:
        return one
    steps = torch.arange(1, hops + 1, dtype=rate.dtype, device=rate.device)
    return torch.cat([one, torch.cumprod(rate.unsqueeze(-1) / steps, dim=-1)], dim=-1)


def basis_values(
    basis: str | Basis, operator: str | Operator, points: np.ndarray, hops: int
) -> np.ndarray:
    """p_i at eigenvalues ``points``: shape (len(points), hops + 1).

    >>> basis_values("chebyshev", "laplacian", np.array([0.0, 1.0, 2.0]), 2).tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0]]
    """
    chosen = find_basis(basis)
    middle, half = chosen.mapping(*find_operator(operator).spectrum)
    return chosen.values((np.asarray(points, dtype=np.float64) - middle) / half, hops)


def frequency_response(
    source: Any,
    points: np.ndarray | None = None,
    *,
    basis: str | Basis = "monomial",
    operator: str = "renormalized",
) -> np.ndarray:
    """The factor p(lambda) = sum_i c_i p_i(lambda) by which the filter scales each eigenvalue.

    Parameters
    ----------
    source : TrainedModel, or coefficients c_0 .. c_k
        A model brings its own basis and operator; hLGC counts without its gates.
    points : (p,) eigenvalues, optional
        200 of them over the operator's spectrum if not given, the grid of ``spectral_density``.
    basis, operator : str
        What the coefficients belong to.

    >>> frequency_response([0, 0, 1], [-1, 0.5]).tolist()
    [1.0, 0.25]
    """
    coefficients = source
    if hasattr(source, "coefficients_"):
        coefficients, basis, operator = (
            source.coefficients_,
            source.config.basis,
            source.config.operator,
        )
    if points is None:
        points = np.linspace(*find_operator(operator).spectrum, RESPONSE_POINTS)
    coefficients = np.asarray(coefficients, dtype=np.float64)
    return basis_values(basis, operator, np.asarray(points), len(coefficients) - 1) @ coefficients
