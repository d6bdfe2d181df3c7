"""Whether the polynomials of an operator times the features stay in the range of their numbers."""

from __future__ import annotations

import math
import warnings

import torch

from hoplite.bases import find_basis
from hoplite.errors import HopliteWarning
from hoplite.models import ModelConfig
from hoplite.operators import find_operator
from hoplite.propagation.engine import Propagation


def warn_of_overflow(config: ModelConfig, source: Propagation) -> None:
    """HopliteWarning if the hop features may be too large to learn from.

        bound = max_i max |p_i| max |X|        max |p_i| over the spectrum of S

    For powers it is ||S||^k: 1 for ``renormalized`` and ``adjacency`` and 2^k for ``laplacian``;
    Chebyshev polynomials are at most 1, whatever k. A training takes squares of what it
    finds there, so the bound must be below the root of the largest number: 1.8e19 for float32,
    1.3e154 for float64. It is an upper bound: what exceeds it may still train well.
    """
    basis = find_basis(config.basis)
    ends = basis.mapped(*find_operator(config.operator).spectrum)
    growth, largest = float(basis.largest(*ends, config.hops).max()), source.features.largest()
    bound = math.log10(largest) + math.log10(growth) if largest else -math.inf
    limit = math.log10(torch.finfo(source.dtype).max) / 2
    if bound > limit:
        powers = f"{basis.largest_text(*ends, config.hops)} times " if growth > 1 else ""
        warnings.warn(
            f"hop features may be as large as {powers}{largest:.3g}, and beyond 1e{limit:.0f} "
            f"{str(source.dtype).removeprefix('torch.')} overflows in training; scale the "
            "features, or take fewer hops, another operator, or basis 'chebyshev'.",
            HopliteWarning,
            stacklevel=3,
        )
