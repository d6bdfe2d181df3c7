"""The two dual loops against dense polynomials, and their gradients."""

import numpy as np
import pytest
import torch

from hoplite.bases import EXAMPLES as BASES
from hoplite.operators import OPERATORS, find_operator
from hoplite.propagation.polynomial import combine, hop_stack
from hoplite.propagation.spmm import SparseMatrix


def matrix_of(graph, operator, basis):
    chosen = find_operator(operator)
    return SparseMatrix.from_scipy(chosen.matrix(graph, basis=basis), symmetric=chosen.symmetric)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("hops", [0, 1, 2, 7])
def test_combine_and_hop_stack_equal_dense(graphs, dense, operator, basis, hops):
    graph = graphs()
    n, runs, columns = graph.num_nodes, 2, 3
    rng = np.random.default_rng(hops)
    signal = rng.normal(size=(n, runs, columns))
    coefficients = rng.normal(size=(runs, hops + 1))
    powers = dense.basis(graph, operator, basis, hops)
    hop_values = np.stack([np.einsum("ij,jrc->irc", p, signal) for p in powers])
    matrix = matrix_of(graph, operator, basis)
    stacked = hop_stack(matrix, basis, torch.from_numpy(signal), hops)
    np.testing.assert_allclose(stacked.numpy(), hop_values, atol=1e-10)
    rows = torch.tensor([4, 0, 11])
    picked = hop_stack(matrix, basis, torch.from_numpy(signal), hops, rows)
    np.testing.assert_allclose(picked.numpy(), hop_values[:, rows.numpy()], atol=1e-10)
    total = combine(matrix, basis, torch.from_numpy(signal), torch.from_numpy(coefficients))
    expected = np.einsum("rk,knrc->nrc", coefficients, hop_values)
    np.testing.assert_allclose(total.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("operator", ["laplacian", "renormalized"])
@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("hops", [0, 1, 4])
def test_gradients(graphs, operator, basis, hops):
    graph = graphs(n=7, isolated=1)
    matrix = matrix_of(graph, operator, basis)
    torch.manual_seed(0)
    signal = torch.randn(7, 2, 2, dtype=torch.float64, requires_grad=True)
    coefficients = torch.randn(2, hops + 1, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([5, 1])
    check = torch.autograd.gradcheck
    assert check(lambda z, c: combine(matrix, basis, z, c), (signal, coefficients))
    fixed = coefficients.detach()
    assert check(lambda z: combine(matrix, basis, z, fixed), (signal,))
    assert check(lambda z: hop_stack(matrix, basis, z, hops), (signal,))
    assert check(lambda z: hop_stack(matrix, basis, z, hops, rows), (signal,))
