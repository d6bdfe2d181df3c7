"""Sums along edges with weights of their own, against the same sum edge by edge."""

import pytest
import torch

from hoplite.propagation.backend import use_backend
from hoplite.propagation.edge_sums import EdgeSums


@pytest.fixture
def edges():
    """In no order, some twice, with hubs; a loop at each of the 5 targets, and 9 sources."""
    draw = torch.Generator().manual_seed(3)
    ends = torch.stack([torch.randint(9, (40,), generator=draw), torch.randint(2, (40,))])
    loops = torch.arange(5).expand(2, -1)
    ends = torch.cat([ends, loops, ends[:, :3]], dim=1)
    return ends[:, torch.randperm(ends.shape[1], generator=draw)]


def one_by_one(signal, weights, ends):
    out = torch.zeros(5, *signal.shape[1:], dtype=signal.dtype)
    for e, (source, target) in enumerate(ends.T.tolist()):
        row = weights[e, :, None] * signal[source]
        out = out.index_add(0, torch.tensor([target]), row[None])
    return out


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize(("heads", "columns"), [(1, 3), (4, 1), (3, 5)])
def test_values_and_gradients_are_those_of_the_sum_edge_by_edge(edges, heads, columns, backend):
    draw = torch.Generator().manual_seed(heads)
    signal = torch.rand(9, heads, columns, generator=draw, dtype=torch.float64).requires_grad_()
    weights = torch.rand(edges.shape[1], heads, generator=draw).double().requires_grad_()
    sums, factors = EdgeSums(edges), torch.rand(5, heads, columns, generator=draw).double()
    found = []
    with use_backend(backend):
        for make in (sums, lambda *given: one_by_one(*given, edges)):
            out = make(signal, weights)
            found.append([out, *torch.autograd.grad((out * factors).sum(), (signal, weights))])
        torch.testing.assert_close(*found)
        with torch.no_grad():  # other weights on the same edges
            torch.testing.assert_close(
                sums(signal, weights - 2), out - 2 * sums(signal, weights * 0 + 1)
            )
