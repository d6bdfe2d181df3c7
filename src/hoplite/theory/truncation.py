"""What is lost when EGC's exponential series is cut after k hops."""

from __future__ import annotations

import math

from hoplite.config import MAX_HOPS, check_hops, check_number
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.operators import find_operator

ROUNDING = 1e-9  # relative, to stay above the formula's value however it is rounded


def truncation_error(beta: float, norm: float, hops: int, signal_norm: float = 1.0) -> float:
    """An upper bound of ``||exp(beta S) Z - sum_{i<=k} beta^i/i! S^i Z||_2`` (the paper's):

        x^(k+1) / (k+1)! * ||Z||_2 / (1 - x / (k+2)),    x = |beta| norm < k + 2

    Parameters
    ----------
    beta : float
        The diffusion rate.
    norm : float
        ``||S||_2`` or more, see :func:`spectral_norm`.
    hops : int
        k.
    signal_norm : float
        ``||Z||_2`` or more, Z = X Theta.

    >>> round(truncation_error(1.0, 1.0, 3), 4)  # 1/4! / (1 - 1/5)
    0.0521
    """
    check_number("beta", beta, -math.inf)
    check_number("norm", norm, 0)
    check_number("signal_norm", signal_norm, 0)
    hops = check_hops(hops)
    x = abs(float(beta)) * float(norm)
    if hops + 2 <= x:
        raise ConfigError(
            f"hops is {hops} but the bound needs hops + 2 > |beta| norm = {x:g}; "
            f"use at least {max(math.floor(x) - 1, 0):.6g} hops."
        )
    if x == 0 or signal_norm == 0:
        return 0.0
    logarithm = (hops + 1) * math.log(x) - math.lgamma(hops + 2) - math.log1p(-x / (hops + 2))
    logarithm += math.log(signal_norm)
    return math.exp(logarithm) * (1 + ROUNDING) if logarithm < 709 else math.inf


def hops_for(tolerance: float, beta: float, norm: float = 1.0, signal_norm: float = 1.0) -> int:
    """The fewest hops k for which :func:`truncation_error` is at most ``tolerance``.

    >>> hops_for(1e-6, beta=1.0), hops_for(1e-6, beta=1.0, norm=2.0)
    (9, 13)
    """
    check_number("tolerance", tolerance, 0, open_ends="l")
    check_number("beta", beta, -math.inf)
    check_number("norm", norm, 0)
    x = abs(float(beta)) * float(norm)
    # From x - 2 on the error falls with every hop, so the first that fits can be bisected.
    if x >= MAX_HOPS or truncation_error(beta, norm, MAX_HOPS, signal_norm) > tolerance:
        raise ConfigError(
            f"|beta| norm is {x:g}, for which {MAX_HOPS:,} hops do not reach the tolerance "
            f"{tolerance:g}; use a smaller beta."
        )
    low, high = max(0, math.floor(x) - 1), MAX_HOPS
    while low < high:
        middle = (low + high) // 2
        if truncation_error(beta, norm, middle, signal_norm) <= tolerance:
            high = middle
        else:
            low = middle + 1
    return low


def spectral_norm(graph: Graph, operator: str = "renormalized") -> float:
    """``||S||_2`` or more, never less: 1 for renormalized and adjacency, 2 for laplacian.

    With D the degrees, D^-1/2 A D^-1/2 is similar to D^-1 A, whose absolute row sums are 1 (or 0
    at an isolated node), so no eigenvalue exceeds 1 in absolute value; one that belongs to the
    vector sqrt(d) is 1. The same holds for A + I. L = I - D^-1/2 A D^-1/2 then has its eigenvalues
    in [0, 2]; 2 is one exactly if some component with an edge is bipartite. Without any edge
    adjacency is 0 and laplacian is the identity.

    >>> path = Graph.from_edges([(0, 1)], features=[[1.0], [2.0]])
    >>> spectral_norm(path), spectral_norm(path, "laplacian")
    (1.0, 2.0)
    """
    return find_operator(operator).norm(graph)
