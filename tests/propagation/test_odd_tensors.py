"""Tensors of odd layout, type or shape: the right result or a sentence, with either backend."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from hoplite.bases import EXAMPLES
from hoplite.config import TrainingConfig
from hoplite.errors import ConfigError, GraphError, HopliteError
from hoplite.propagation import backend
from hoplite.propagation.backend import use_backend
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.features import Features
from hoplite.propagation.polynomial import (
    combine,
    gather_hops,
    hop_stack,
    scatter_hops,
    weighted_sum,
    weighted_sum_adjoint,
)
from hoplite.propagation.spmm import SparseMatrix, matmul, spmm
from hoplite.training.optimizers import Adam

N, WIDTH = 9, 4
BACKENDS = ["torch"] + ["native"] * backend.has_native()

# The same numbers in memory in another way.
LAYOUTS = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "part of more": lambda x: torch.cat([x, x, x], dim=0)[len(x) : 2 * len(x)],
    "inner part": lambda x: torch.cat([x, x], dim=-1)[..., : x.shape[-1]],
    "negated": lambda x: torch.complex(x, -x).conj().imag,
}


@pytest.fixture(params=BACKENDS, autouse=True)
def chosen(request):
    with use_backend(request.param):
        yield request.param


@pytest.fixture
def S():
    half = sp.random_array((N, N), density=0.3, rng=1)
    return SparseMatrix.from_scipy(sp.csr_array(half + half.T), symmetric=True)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


CALLS = {
    "spmm": (lambda S, x: spmm(S, x), (N, WIDTH)),
    "matmul": (lambda S, x: matmul(S, x), (N, 2, WIDTH)),
    "weighted_sum": (
        lambda S, x: weighted_sum(S, "chebyshev", x, random(3, WIDTH)),
        (N, WIDTH),
    ),
    "scales": (lambda S, x: weighted_sum(S, "monomial", random(N, WIDTH), x), (3, WIDTH)),
    "adjoint": (
        lambda S, x: weighted_sum_adjoint(S, "monomial", x, random(N, WIDTH), random(3, WIDTH))[0],
        (N, WIDTH),
    ),
    "gather_hops": (lambda S, x: gather_hops(S, "monomial", x, 2, torch.tensor([8, 0])), (N, 3)),
    "scatter_hops": (
        lambda S, x: scatter_hops(S, "chebyshev", x, torch.tensor([8, 0, 8])),
        (4, 3, WIDTH),
    ),
    "combine": (lambda S, x: combine(S, "monomial", x, random(2, 4)), (N, 2, 3)),
    "hop_stack": (lambda S, x: hop_stack(S, "monomial", x, 2), (N, 2, 3)),
    "dense features": (
        lambda S, x: Features(x).dense(Dropout((0.5,), (3,))),
        (N, WIDTH),
    ),
    "features times": (
        lambda S, x: Features(random(N, 5)).times(x, Dropout((0.5, 0.1), (3, 4))),
        (2, 5, WIDTH),
    ),
    "sparse features times": (
        lambda S, x: Features(S).times(x, Dropout((0.5, 0.1), (3, 4))),
        (2, N, WIDTH),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", CALLS)
def test_the_layout_does_not_matter(S, call, layout):
    function, shape = CALLS[call]
    x = random(*shape, seed=5)
    odd = LAYOUTS[layout](x)
    assert torch.equal(odd, x)
    torch.testing.assert_close(function(S, odd), function(S, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("call", CALLS)
def test_other_types_and_shapes_are_refused(S, call):
    function, shape = CALLS[call]
    x = random(*shape)
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.complex128):
        if call == "dense features" and kind.is_floating_point:
            continue  # these may have any type of their own
        with pytest.raises(HopliteError):
            function(S, x.to(kind))
    if call == "dense features":
        return
    wrong = [x[:-1], torch.cat([x, x]), x[0], x.unsqueeze(0), x[:0]]
    for odd in wrong if call not in ("scales", "scatter_hops") else [x[:, :-1], x[0], x[:0]]:
        with pytest.raises(HopliteError):
            function(S, odd)


@pytest.mark.parametrize("call", CALLS)
def test_no_columns(S, call):
    function, shape = CALLS[call]
    if call not in ("scales", "adjoint", "weighted_sum"):
        found = function(S, torch.empty(*shape[:-1], 0, dtype=torch.float64))
        assert found.shape[-1] == 0


@pytest.mark.parametrize("basis", EXAMPLES)
def test_no_nodes(basis):
    S = SparseMatrix.from_scipy(sp.csr_array((0, 0)), symmetric=True)
    signal = torch.empty(0, 2, 3, dtype=torch.float64, requires_grad=True)
    coefficients = random(2, 4).requires_grad_()
    total = combine(S, basis, signal, coefficients)
    total.sum().backward()
    assert total.shape == (0, 2, 3)
    assert coefficients.grad is not None
    assert not coefficients.grad.any()
    assert hop_stack(S, basis, signal, 3).shape == (4, 0, 2, 3)


def test_rows_and_hops_and_names_are_checked(S):
    signal = random(N, 2, 3)
    for rows in ([N], [-1], [0, 10**9]):
        with pytest.raises(GraphError, match="rows go from"):
            hop_stack(S, "monomial", signal, 2, torch.tensor(rows))
        with pytest.raises(GraphError, match="rows go from"):
            scatter_hops(S, "monomial", random(3, len(rows), 2), torch.tensor(rows))
    for rows in (torch.tensor([1], dtype=torch.int32), torch.tensor([[1]]), torch.arange(6)[::2]):
        with pytest.raises(GraphError, match="pass int64 indices"):
            hop_stack(S, "monomial", signal, 2, rows)
    with pytest.raises(ConfigError, match="hops is -1"):
        hop_stack(S, "monomial", signal, -1)
    with pytest.raises(ConfigError, match="basis is 'monomials'"):
        combine(S, "monomials", signal, random(2, 3))
    with pytest.raises(GraphError, match=r"the coefficients \(3, 3\)"):
        combine(S, "monomial", signal, random(3, 3))
    with pytest.raises(ConfigError, match=r"the coefficients are torch\.float32"):
        combine(S, "monomial", signal, random(2, 3).float())
    with pytest.raises(GraphError, match="it must be square"):
        combine(SparseMatrix.from_scipy(sp.csr_array((N, 5))), "monomial", signal, random(2, 3))


def test_an_output_never_shares_memory_with_what_is_still_read(S):
    memory = random(3 * N * WIDTH)

    def at(start):
        return memory[start : start + N * WIDTH].view(N, WIDTH)

    for start in (0, 1, WIDTH, N * WIDTH - 1):
        with pytest.raises(ConfigError, match=r"out is (X itself|a part of the memory of X)"):
            spmm(S, at(0), out=at(start))
    for name in ("Z", "W"):
        with pytest.raises(ConfigError, match=f"part of the memory of {name}"):
            spmm(S, random(N, WIDTH), out=at(2), **{name: at(0)})
    X = at(0).clone()
    wanted = spmm(S, X, W=at(N * WIDTH), w_scale=2.0)
    assert torch.equal(spmm(S, X, W=at(N * WIDTH), w_scale=2.0, out=at(N * WIDTH)), wanted)
    assert torch.equal(spmm(S, at(0), out=at(N * WIDTH)), spmm(S, X))  # side by side


def test_features_of_odd_kinds():
    for wrong in ([["a"], ["b"]], [[1j]], np.array([[None]]), [[1], [2, 3]]):
        with pytest.raises(GraphError):
            Features.from_graph_array(wrong)
    for kind in (np.float16, np.int8, np.bool_, np.longdouble, ">f4", ">i2"):
        array = np.array([[1, 0], [0, 1]], kind)
        assert Features.from_graph_array(array).dtype == torch.float32
    backwards = np.arange(6.0).reshape(3, 2)[::-1, ::-1]
    assert Features.from_graph_array(backwards).dense().tolist() == backwards.tolist()
    for numbers in (torch.arange(2), torch.arange(3).int(), torch.arange(3)[:, None]):
        with pytest.raises(GraphError, match="one int64 number per row"):
            Features(torch.ones(3, 2), numbers)
    spread = torch.arange(6)[::2]
    dropout = Dropout((0.5,), (1,))
    left, right = (Features(torch.ones(3, 40), n) for n in (spread, spread.clone()))
    assert torch.equal(left.dense(dropout), right.dense(dropout))


def test_adam_with_weights_of_odd_layout():
    plain = random(3, 4, 5).requires_grad_()
    odd = plain.detach().clone().mT.contiguous().mT.requires_grad_()
    assert not odd.is_contiguous()
    for weight in (plain, odd):
        adam = Adam({"theta": weight}, [TrainingConfig(lr=0.1)] * 3)
        for _ in range(3):
            adam.step(lambda weight=weight: (weight**3).sum(dim=(1, 2)))
    torch.testing.assert_close(odd, plain, rtol=1e-10, atol=1e-10)
    nothing = torch.empty(0, 4, requires_grad=True)
    Adam({"theta": nothing}, []).step(lambda: nothing.sum(dim=1))
