"""The truncation error against the exact matrix exponential."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from tests.examples import examples

from hoplite import ConfigError
from hoplite.operators import SYMMETRIC
from hoplite.theory import hops_for, spectral_norm, truncation_error


@examples(100)
@given(
    seed=st.integers(0, 10_000),
    operator=st.sampled_from(sorted(SYMMETRIC)),
    beta=st.floats(-6, 6),
    hops=st.integers(0, 25),
    density=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_it_is_above_the_exact_error(graphs, dense, seed, operator, beta, hops, density):
    graph = graphs(8, 3, seed=seed, isolated=1, density=density)
    matrix = dense.operator(graph, operator)
    signal = np.random.default_rng(seed).normal(size=(8, 2))
    norm = spectral_norm(graph, operator)
    size = float(np.linalg.norm(signal, 2))
    if hops + 2 <= abs(beta) * norm:
        with pytest.raises(ConfigError, match=r"hops \+ 2 >"):
            truncation_error(beta, norm, hops, size)
        return
    term, total = signal, signal
    for i in range(1, hops + 1):
        term = beta / i * (matrix @ term)
        total = total + term
    exact = np.linalg.norm(expm(beta * matrix) @ signal - total, 2)
    # expm itself is good to about 1e-13 of the largest term
    assert exact <= truncation_error(beta, norm, hops, size) + 1e-12 * math.exp(6 * norm)


@examples(60)
@given(
    tolerance=st.floats(1e-300, 10),
    beta=st.floats(-300, 300),
    norm=st.sampled_from([0.5, 1.0, 2.0]),
    size=st.floats(0, 1e6),
)
def test_hops_for_is_the_smallest(tolerance, beta, norm, size):
    hops = hops_for(tolerance, beta, norm, size)
    assert truncation_error(beta, norm, hops, size) <= tolerance
    if hops and hops + 1 > abs(beta) * norm:
        assert truncation_error(beta, norm, hops - 1, size) > tolerance


def test_extremes():
    assert truncation_error(0.0, 1.0, 0) == 0.0
    assert hops_for(1e-6, 0.0) == 0
    assert truncation_error(5000.0, 1.0, 5000) == math.inf
    with pytest.raises(ConfigError, match="use at least 4 hops"):
        truncation_error(5.0, 1.0, 2)
    assert truncation_error(5.0, 1.0, 4) > 0
    with pytest.raises(ConfigError, match="tolerance is 0"):
        hops_for(0, 1.0)
    for beta in (5e4, 1e9, 1e200):
        with pytest.raises(ConfigError, match="100,000 hops do not reach"):
            hops_for(1e-6, beta)


@examples(60)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(3, 12),
    operator=st.sampled_from(sorted(SYMMETRIC)),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    isolated=st.integers(0, 2),
)
def test_the_norm_is_never_too_small(graphs, dense, seed, n, operator, density, isolated):
    graph = graphs(n, 2, seed=seed, density=density, isolated=isolated)
    exact = np.abs(np.linalg.eigvalsh(dense.operator(graph, operator))).max()
    given = spectral_norm(graph, operator)
    assert exact <= given + 1e-12
    if operator != "laplacian" or not graph.num_edges:
        assert exact == pytest.approx(given, abs=1e-12)
