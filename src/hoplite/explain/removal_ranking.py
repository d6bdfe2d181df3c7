"""The effect of every removal on one number, to first order: which are worth computing exactly.

With F = sum_i z_i . l_i a function of the rows l_i = p_i(S) e_v, the basis (a_i, b_i, g_i) and the
adjoint (:mod:`hoplite.bases.base`)

    y_k = z_k,  y_i = z_i + (a_i S + b_i) y_{i+1} - g_{i+1} y_{i+2}

a change dS of the operator changes F by sum_{i < k} a_i l_i . dS y_{i+1} = <G, dS>. The dS of a
removed edge is known exactly: its entries vanish, and those of the ends that stay are scaled by
their E. So is that of a removed node, but for an edge between two of its neighbours x and y: it is
scaled by E_x E_y, and E_x + E_y - 1 is taken instead.
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
    steps, adjoint = field.basis.steps(field.hops), _adjoint(field, reach, best, second)
    for (a, _, _), hop, ahead in zip(steps, reach[:-1], adjoint[1:], strict=True):
        left, right = a * hop[:, 0].numpy(), ahead[:, 0].numpy()
        shared[both] += left[x[both]] * right[y[both]] + left[y[both]] * right[x[both]]
        loops[field.place >= 0] += left * right
    shared *= field.scale * edges.entry
    loops[field.place >= 0] *= field.scale * field.matrix.to_scipy().diagonal()
    return _combined(field, shared, loops)


def _adjoint(field: Field, reach: list[Tensor], best: int, second: int) -> list[Tensor]:
    """y_0 .. y_k, each (nodes, 1), for F the difference of two logits."""
    hops = torch.stack([field.collect(hop) for hop in reach]).requires_grad_()
    logits = field.outputs(hops)[0]
    (slope,) = torch.autograd.grad(logits[best] - logits[second], hops)
    terms = field.spread(slope[:, 0]).split(1, dim=1)
    found, next_g = [terms[-1].contiguous()], 0.0
    steps = list(field.basis.steps(field.hops))
    for term, (a, b, g) in zip(terms[-2::-1], steps[::-1], strict=True):
        ahead = term + field.step(found[-1], a, b)
        found.append(ahead - next_g * found[-2] if next_g else ahead)
        next_g = g
    return found[::-1]


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
