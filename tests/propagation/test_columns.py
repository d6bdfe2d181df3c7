"""With more classes than features it is the features that are propagated."""

import numpy as np
import pytest
import torch

from hoplite.propagation import engine
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("classes", [2, 40])
@pytest.mark.parametrize("rows", [None, [9, 0, 3]])
def test_few_columns_are_propagated(graphs, dense, monkeypatch, dropped, last, classes, rows):
    graph, hops, runs = graphs(n=15, d=5, sparse=True), 3, 2
    widths = []
    plain = engine.combine

    def combine(matrix, basis, signal, coefficients):
        widths.append(signal.shape[-1])
        return plain(matrix, basis, signal, coefficients)

    monkeypatch.setattr(engine, "combine", combine)
    monkeypatch.setattr(engine.RowView, "_filter_is_cheap", lambda self, hops: False)
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(runs, 5, classes, dtype=torch.float64, generator=generator)
    alpha = torch.randn(runs, hops + 1, dtype=torch.float64, generator=generator)
    theta.requires_grad_(), alpha.requires_grad_()
    owner = Propagation(graph, hops=hops)
    dropout = Dropout((0.5, 0.2), (7, 8), 3) if dropped else None
    found = owner.view(rows).combine(theta, None if last else alpha, dropout)
    powers = np.stack(dense.basis(graph, "renormalized", "monomial", hops))
    powers = torch.from_numpy(powers if rows is None else powers[:, rows])
    inputs = [
        owner.features.dense(dropout, r) if dropped else owner.features.dense() for r in (0, 1)
    ]
    each = torch.einsum("knu,rud,rdm->krnm", powers, torch.stack(inputs), theta)
    expected = (each[-1] if last else torch.einsum("rk,krnm->rnm", alpha, each)).transpose(0, 1)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    assert widths == [min(5, classes)]
    signs = torch.randn(found.shape, dtype=torch.float64, generator=generator)
    learned = [theta] if last else [theta, alpha]
    ours, theirs = (torch.autograd.grad((one * signs).sum(), learned) for one in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
