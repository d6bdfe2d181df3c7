"""Every evaluation order equals dense algebra, and its gradient equals torch's autograd."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.conftest import make_graph

from hoplite.bases import find_basis
from hoplite.engine.backend import has_native, use_backend
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import (
    FeaturesFirst,
    Filter,
    FilterRows,
    KeptHops,
    KeptRows,
    WeightsFirst,
)
from hoplite.engine.propagation import Propagation

BACKENDS = ["numpy", *(["native"] if has_native() else [])]
CLOSE = {np.float32: 1e-5, np.float64: 1e-10}
KINDS = ("learned", "by class", "map per hop", "fixed")
DROPOUTS = {
    "none": None,
    "entries": Dropout(0.4, 3, 5),
    "nodes": Dropout(0.0, 3, 5, nodes=0.3),
    "outputs": Dropout(0.0, 3, 5, outputs=0.3),
    "all": Dropout(0.4, 3, 5, 0.3, 0.2),
}


def make_source(seed: int, dtype: type, parts: int, sparse: bool, basis: str) -> Propagation:
    graph = make_graph(23, 6, 3, seed=seed, dtype=dtype, sparse=sparse)
    operators = ["random_walk", "adjacency", "renormalized"][:parts]
    return Propagation(graph, operators, basis, 3)


def make_filter(source: Propagation, kind: str, m: int, rng: np.random.Generator) -> Filter:
    d, k = source.features.shape[1], source.slices
    draw = lambda *shape: rng.standard_normal(shape).astype(source.dtype)  # noqa: E731
    if kind == "map per hop":
        return Filter(draw(k, d, m), None)
    coefficients = draw(k, m) if kind == "by class" else draw(k)
    return Filter(draw(d, m), coefficients, kind == "fixed")


def dense_hops(source: Propagation) -> torch.Tensor:
    """p_i(M) of every hop as dense matrices: (slices, n, n), in float64."""
    eye = np.eye(source.num_nodes)
    found = [eye]
    for matrix in source.matrices:
        dense = matrix.to_scipy().toarray().astype(np.float64)
        before, now = np.zeros_like(eye), eye
        for a, b, g in find_basis(source.basis).steps(source.hops):
            before, now = now, (a * dense + b * eye) @ now - g * before
            found.append(now)
    return torch.from_numpy(np.stack(found))


def dense_outputs(source, filter, dropout, maps, coefficients):
    """sum_i c_i p_i(M) X~ Theta_i by autograd, in float64."""
    x = torch.from_numpy(np.array(source.features.dense(), np.float64))
    n, d = x.shape
    rows = torch.arange(n).numpy() if source.nodes is None else source.nodes
    keep = lambda mask, e: torch.from_numpy(mask.keeps(e) * mask.scale)  # noqa: E731
    if dropout is not None and dropout.of_entries() is not None:
        x = x * keep(dropout.of_entries(), rows[:, None] * d + np.arange(d))
    if dropout is not None and dropout.of_nodes is not None:
        x = x * keep(dropout.of_nodes, rows)[:, None]
    hops = dense_hops(source)
    if filter.coefficients is None:
        signals = torch.einsum("nd,kdm->knm", x, maps)
        if dropout is not None and dropout.of_outputs is not None:
            k, m = len(maps), maps.shape[2]
            numbers = rows[:, None] * (k * m) + np.arange(k * m)
            mask = keep(dropout.of_outputs, numbers).reshape(n, k, m).transpose(0, 1)
            signals = signals * mask
        return torch.einsum("kuv,kvm->um", hops, signals)
    signal = x @ maps
    if dropout is not None and dropout.of_outputs is not None:
        m = maps.shape[1]
        signal = signal * keep(dropout.of_outputs, rows[:, None] * m + np.arange(m))
    wide = coefficients if coefficients.ndim == 2 else coefficients[:, None]
    return torch.einsum("kuv,vm,km->um", hops, signal, wide.expand(-1, signal.shape[1]))


def check(source, order, filter, dropout, rows, rng, dtype):
    count = len(rows) // 2 + 1  # the gradient is of the first rows
    outer = rng.standard_normal((count, filter.maps.shape[-1])).astype(dtype)
    found = order.evaluate(filter, dropout)
    gradient = found.gradient(outer)
    maps = torch.tensor(filter.maps.astype(np.float64), requires_grad=True)
    coefficients = filter.coefficients
    if coefficients is not None:
        coefficients = torch.tensor(coefficients.astype(np.float64), requires_grad=True)
    wanted = dense_outputs(source, filter, dropout, maps, coefficients)[rows]
    (wanted[:count] * torch.from_numpy(outer.astype(np.float64))).sum().backward()

    def close(given, expected):
        expected = expected.detach().numpy()
        assert np.abs(given - expected).max() <= CLOSE[dtype] * max(1.0, np.abs(expected).max())

    close(found.values, wanted)
    close(gradient.maps, maps.grad)
    if filter.fixed or coefficients is None:
        assert gradient.coefficients is None
    else:
        close(gradient.coefficients, coefficients.grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_weights_and_features_first_equal_autograd(backend, dtype, kind, dropout):
    rng = np.random.default_rng(7)
    for parts, sparse, basis in (
        (1, False, "monomial"),
        (1, True, "jacobi:1,0.5"),
        (3, True, "chebyshev"),
    ):
        source = make_source(parts, dtype, parts, sparse, basis)
        rows = rng.permutation(source.num_nodes)[:11]
        with use_backend(backend):
            for outputs in (2, 9):
                filter = make_filter(source, kind, outputs, rng)
                for order in (WeightsFirst(source, rows), FeaturesFirst(source, rows)):
                    check(source, order, filter, DROPOUTS[dropout], rows, rng, dtype)
            whole = np.arange(source.num_nodes)
            check(source, WeightsFirst(source), filter, DROPOUTS[dropout], whole, rng, dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_kept_rows_equal_autograd(backend, dtype, kind):
    rng = np.random.default_rng(1)
    for parts, sparse in ((1, True), (2, False)):
        source = make_source(5, dtype, parts, sparse, "monomial")
        rows = rng.permutation(source.num_nodes)[:11]
        filter = make_filter(source, kind, 3, rng)
        with use_backend(backend):
            orders = [KeptHops.of(source, rows)]
            if kind == "map per hop":
                orders.append(KeptRows.of_hops(source, rows))
            if kind == "fixed":
                orders.append(KeptRows.of_filter(source, rows, filter.coefficients))
            for order in orders:
                check(source, order, filter, None, rows, rng, dtype)
                part = np.array([4, 0, 7])
                some = order.part(part).evaluate(filter).values
                whole = order.evaluate(filter).values
                assert np.allclose(some, whole[part], rtol=1e-5, atol=1e-5)
                assert np.allclose(order.evaluate(filter, None, 5).values, whole[:5], atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dropout", DROPOUTS)
def test_rows_of_a_fixed_filter_equal_autograd(backend, dropout):
    rng = np.random.default_rng(2)
    source = make_source(6, np.float64, 1, True, "monomial")
    rows = rng.permutation(source.num_nodes)[:9]
    filter = make_filter(source, "fixed", 3, rng)
    with use_backend(backend):
        order = FilterRows(source, rows, filter.coefficients)
        check(source, order, filter, DROPOUTS[dropout], rows, rng, np.float64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["learned", "by class", "fixed"])
def test_one_pass_for_training_and_validation_equals_two(backend, kind):
    rng = np.random.default_rng(3)
    source = make_source(8, np.float64, 2, True, "monomial")
    rows = rng.permutation(source.num_nodes)[:12]
    filter, dropout = make_filter(source, kind, 3, rng), DROPOUTS["all"]
    with use_backend(backend):
        order = WeightsFirst(source, rows)
        dropped, clean = order.evaluate_twice(filter, dropout)
        alone = order.evaluate(filter, dropout)
        assert np.array_equal(dropped.values, alone.values)
        assert np.array_equal(clean, order.evaluate(filter).values)
        outer = rng.standard_normal((5, 3))
        both = dropped.gradient(outer), alone.gradient(outer)
        assert np.array_equal(both[0].maps, both[1].maps)
        if kind != "fixed":
            assert np.array_equal(both[0].coefficients, both[1].coefficients)


def test_a_node_that_is_listed_twice_counts_twice():
    rng = np.random.default_rng(4)
    source = make_source(9, np.float64, 1, False, "monomial")
    rows = np.array([3, 8, 3])
    filter = make_filter(source, "learned", 2, rng)
    outer = rng.standard_normal((3, 2))
    twice = WeightsFirst(source, rows).evaluate(filter).gradient(outer)
    once = (
        WeightsFirst(source, rows[:2])
        .evaluate(filter)
        .gradient(np.stack([outer[0] + outer[2], outer[1]]))
    )
    assert np.allclose(twice.maps, once.maps, rtol=1e-12)
    assert np.allclose(twice.coefficients, once.coefficients, rtol=1e-12)


def test_coefficients_that_are_left_out_are_zero():
    rng = np.random.default_rng(5)
    source = make_source(10, np.float64, 1, False, "monomial")
    rows = np.array([1, 5, 9, 20])
    filter = make_filter(source, "learned", 2, rng)
    short = dataclasses.replace(filter, coefficients=filter.coefficients[:2])
    padded = np.concatenate([short.coefficients, np.zeros(2)])
    full = dataclasses.replace(filter, coefficients=padded)
    for order in (WeightsFirst(source, rows), KeptHops.of(source, rows)):
        assert np.allclose(order.evaluate(short).values, order.evaluate(full).values)
        found = order.evaluate(short).gradient(np.ones((4, 2)))
        assert found.coefficients.shape == (2,)
