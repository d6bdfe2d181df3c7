"""Filters: polynomials p(S) = sum_i c_i p_i(S) of an operator, and their response.

The p_i are those of a basis (:mod:`hoplite.bases`), with the spectrum mapped to its domain.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hoplite.bases import Basis, find_basis
from hoplite.errors import ConfigError
from hoplite.operators import Operator, find_operator

RESPONSE_POINTS = 200


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
        A linear model brings its own basis and operator. ConfigError for JacobiConv and hop
        blocks, which have a filter for every class, or for every feature and class.
    points : (p,) eigenvalues, optional
        200 of them over the operator's spectrum if not given, the grid of ``spectral_density``.
    basis, operator : str
        What the coefficients belong to.

    >>> frequency_response([0, 0, 1], [-1, 0.5]).tolist()
    [1.0, 0.25]
    """
    coefficients = source
    if hasattr(source, "coefficients_"):
        if len(source.maps_) > 1:
            raise ConfigError(
                f"a {source.config.model} has a filter of its own for every class, or every "
                "feature and class, whose coefficients are in maps_; give those of one pair."
            )
        coefficients, basis, operator = (
            source.coefficients_,
            source.config.basis,
            source.config.operator,
        )
    if points is None:
        points = np.linspace(*find_operator(operator).spectrum, RESPONSE_POINTS)
    coefficients = np.asarray(coefficients, dtype=np.float64)
    if coefficients.ndim != 1:
        raise ConfigError(
            f"source has coefficients of shape {coefficients.shape}; give those of one polynomial, "
            "such as model.coefficients_[0] of a model with relations."
        )
    return basis_values(basis, operator, np.asarray(points), len(coefficients) - 1) @ coefficients
