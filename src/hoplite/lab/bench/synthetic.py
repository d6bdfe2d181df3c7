"""Random graphs with power-law degrees, made fast enough for a hundred million edges."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def power_law_matrix(nodes: int, nonzeros: int, *, seed: int = 0) -> sp.csr_array:
    """A symmetric n x n float32 operator D^-1/2 A D^-1/2 with about ``nonzeros`` entries.

    Both ends of nonzeros / 2 edges are drawn with probability ~ rank^-1/2 (Chung and Lu), so that
    degrees follow a power law with exponent 3; ranks are shuffled over the node numbers, weights
    are uniform in (0, 1), repeated edges are summed. An isolated node has D^-1/2 = 0.

    >>> S = power_law_matrix(100, 1000)
    >>> S.shape, S.dtype == np.float32, S.nnz <= 1000, bool(abs(S - S.T).max() < 1e-6)
    ((100, 100), True, True, True)
    """
    rng = np.random.default_rng(seed)
    pairs = nonzeros // 2
    number = rng.permutation(nodes).astype(np.int32)

    def ends() -> np.ndarray:
        # P(rank < r) = sqrt(r / n), hence rank = n u^2
        draws = rng.random(pairs, dtype=np.float32)
        ranks = (np.float32(nodes) * draws * draws).astype(np.int32)
        return number[np.minimum(ranks, nodes - 1, out=ranks)]

    sources, targets = ends(), ends()
    weights = 1 - rng.random(pairs, dtype=np.float32)  # never 0
    places = (np.concatenate([sources, targets]), np.concatenate([targets, sources]))
    del sources, targets
    matrix = sp.coo_array((np.tile(weights, 2), places), shape=(nodes, nodes)).tocsr()
    del places, weights
    degrees = matrix.sum(axis=1, dtype=np.float64)
    roots = np.zeros(nodes, np.float32)
    np.power(degrees, -0.5, where=degrees > 0, out=roots, casting="same_kind")
    matrix.data *= roots[matrix.indices]
    matrix.data *= np.repeat(roots, np.diff(matrix.indptr))
    return sp.csr_array(matrix)
