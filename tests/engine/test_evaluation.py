"""Evaluation orders among each other; that each equals autograd is in test_gradients.py."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.conftest import make_graph

from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import Filter, KeptHops, Sizes, WeightsFirst, make_plan
from hoplite.engine.propagation import Propagation


def make_source(seed: int, dtype: type, parts: int, sparse: bool, basis: str) -> Propagation:
    graph = make_graph(23, 6, 3, seed=seed, dtype=dtype, sparse=sparse)
    operators = ["random_walk", "adjacency", "renormalized"][:parts]
    return Propagation(graph, operators, basis, 3)


def make_filter(source: Propagation, kind: str, m: int, rng: np.random.Generator) -> Filter:
    d, k = source.features.shape[1], source.slices
    draw = lambda *shape: rng.standard_normal(shape).astype(source.dtype)  # noqa: E731
    coefficients = draw(k, m) if kind == "by class" else draw(k)
    return Filter(draw(d, m), coefficients, kind == "fixed")


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", ["learned", "by class", "fixed"])
def test_one_pass_for_training_and_validation_equals_two(kind):
    rng = np.random.default_rng(3)
    source = make_source(8, np.float64, 2, True, "monomial")
    rows = rng.permutation(source.num_nodes)[:12]
    filter, dropout = make_filter(source, kind, 3, rng), Dropout(0.4, 3, 5, 0.3, 0.2)
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


def test_hop_features_are_kept_only_if_half_of_the_free_memory_holds_them(monkeypatch):
    sizes = Sizes(1000, 5, 3, 9000, 5000, hops=2, kept_hops=3, rows=600)
    for free, order in ((0, "hops-first"), (-1, "weights-first")):
        free += 2 * sizes.hops_first_bytes()
        monkeypatch.setattr("hoplite.engine.evaluation.available_memory", lambda free=free: free)
        assert make_plan(sizes).order == order
