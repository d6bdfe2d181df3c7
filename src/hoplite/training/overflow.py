"""Whether the powers of an operator times the features stay within the range of their numbers."""

from __future__ import annotations

import math
import warnings

import torch

from hoplite.config import ModelConfig
from hoplite.errors import HopliteWarning
from hoplite.operators import SPECTRUM
from hoplite.propagation.engine import Propagation


def warn_of_overflow(config: ModelConfig, source: Propagation) -> None:
    """HopliteWarning if the hop features may be too large to learn from.

        bound = ||S||^k max |X|

    ||S|| is at most 1 for ``renormalized`` and ``adjacency`` and 2 for ``laplacian``; Chebyshev
    polynomials are at most 1 on the spectrum, whatever k. A training takes squares of what it
    finds there, so the bound must be below the root of the largest number: 1.8e19 for float32,
    1.3e154 for float64. It is an upper bound: what exceeds it may still train well.
    """
    norm = max(abs(end) for end in SPECTRUM[config.operator]) if config.basis == "monomial" else 1.0
    largest = source.features.largest()
    bound = math.log10(largest) + config.hops * math.log10(norm) if largest else -math.inf
    limit = math.log10(torch.finfo(source.dtype).max) / 2
    if bound > limit:
        powers = f"{norm:g}^{config.hops} times " if norm > 1 else ""
        warnings.warn(
            f"hop features may be as large as {powers}{largest:.3g}, and beyond 1e{limit:.0f} "
            f"{str(source.dtype).removeprefix('torch.')} overflows in training; scale the "
            "features, or take fewer hops, another operator, or basis 'chebyshev'.",
            HopliteWarning,
            stacklevel=3,
        )
