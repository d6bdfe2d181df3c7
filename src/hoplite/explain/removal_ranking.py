"""The effect of every removal on one number, to first order: which are worth computing exactly.

With F = sum_i z_i . l_i a function of the rows l_i = p_i(S) e_v, and the adjoint

    monomial    a_k = z_k,  a_i = z_i + S a_{i+1}
    chebyshev   a_k = z_k,  a_i = z_i + 2 S a_{i+1} - a_{i+2}          (Clenshaw)

a change dS of the operator changes F by sum_{i < k} phi_i l_i . dS a_{i+1} = <G, dS>, where phi_i
is 1, and 2 for Chebyshev polynomials from i = 1 on. The dS of a removed edge is known exactly: its
entries vanish, and those of the ends that stay are scaled by their E. So is that of a removed node,
but for an edge between two of its neighbours x and y: it is scaled by E_x E_y, and E_x + E_y - 1 is
taken instead.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hoplite.explain.removal_effects import Field


def first_order_effects(field: Field, best: int, second: int) -> tuple[np.ndarray, np.ndarray]:
    """Estimated change of logit(best) - logit(second) without each edge and each node.

    In the order of ``field.edges`` and ``field.nodes``. Gates change with the hop features, so F
    is linearised around those of the whole graph.
    """
    reach = list(field.reach())
    edges = field.edges
    x, y = field.place[edges.source], field.place[edges.target]
    both = (x >= 0) & (y >= 0)
    shared = np.zeros(len(x))  # (G_xy + G_yx) N_xy
    loops = np.zeros(len(field.place))  # G_xx N_xx
    for i, ahead in enumerate(_adjoint(field, reach, best, second)[1:]):
        phi = 2.0 if i and field.basis == "chebyshev" else 1.0
        left, right = phi * reach[i][:, 0].numpy(), ahead[:, 0].numpy()
        shared[both] += left[x[both]] * right[y[both]] + left[y[both]] * right[x[both]]
        loops[field.place >= 0] += left * right
    shared *= field.sign * edges.entry
    loops[field.place >= 0] *= field.sign * field.matrix.to_scipy().diagonal()
    return _combined(field, shared, loops)


def _adjoint(field: Field, reach: list[Tensor], best: int, second: int) -> list[Tensor]:
    """a_0 .. a_k, each (nodes, 1), for F the difference of two logits."""
    hops = torch.stack([field.collect(hop) for hop in reach]).requires_grad_()
    logits = field.outputs(hops)[0]
    (slope,) = torch.autograd.grad(logits[best] - logits[second], hops)
    terms = field.spread(slope[:, 0]).split(1, dim=1)
    ahead = [terms[-1].contiguous()]
    for term in reversed(terms[:-1]):
        if field.basis == "monomial":
            ahead.append(term + field.step(ahead[-1]))
        else:
            before = ahead[-2] if len(ahead) > 1 else 0.0
            ahead.append(term + 2 * field.step(ahead[-1]) - before)
    return ahead[::-1]


def _combined(field: Field, shared: np.ndarray, loops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """<G, dS> of every edge and node from the parts of <G, S> that belong to edges and loops."""
    edges, n = field.edges, len(field.place)
    every = np.bincount(edges.source, shared, n) + np.bincount(edges.target, shared, n)

    def scaled(end: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """The other entries of an end that stays, times its E - 1 (its loop: E^2 - 1)."""
        return (factor - 1) * (every[end] - shared) + (factor**2 - 1) * loops[end]

    of_source = scaled(edges.source, edges.source_factor)
    of_target = scaled(edges.target, edges.target_factor)
    of_nodes = np.bincount(edges.source, of_target, n) + np.bincount(edges.target, of_source, n)
    return of_source + of_target - shared, (of_nodes - every - loops)[field.nodes]
