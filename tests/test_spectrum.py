"""The spectral density, exact and estimated, against the eigenvalues of the dense operator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import norm
from tests.examples import examples

from hoplite import Graph, spectral_density
from hoplite.operators import OPERATORS


def smoothed(values, grid, ends, width):
    """The definition: a Gaussian at every eigenvalue, and one at its image beyond each end."""
    centres = np.concatenate([values, 2 * ends[0] - values, 2 * ends[1] - values])
    return norm.pdf(grid[:, None], centres, width).sum(axis=1) / len(values)


@pytest.fixture(scope="module")
def medium(graphs):
    return graphs(300, 2, isolated=20, density=0.03)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exact_is_the_smoothed_eigenvalues(graphs, dense, operator, dtype):
    graph = graphs(60, 2, dtype=dtype)
    grid, density = spectral_density(graph, operator, points=101, moments=120)
    assert np.array_equal(grid, np.linspace(*OPERATORS[operator].spectrum, 101))
    values = np.linalg.eigvals(dense.operator(graph, operator)).real
    expected = smoothed(values, grid, OPERATORS[operator].spectrum, 6 / 120)
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(density, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("operator", OPERATORS)
def test_estimate_is_close_to_exact(medium, operator):
    grid, exact = spectral_density(medium, operator)
    _, estimate = spectral_density(medium, operator, probes=400)
    # n r = 120,000 entries; the distance falls like 1 / sqrt(n r)
    assert trapezoid(abs(exact - estimate), grid) < 0.03
    _, rough = spectral_density(medium, operator, probes=4)
    assert trapezoid(abs(exact - rough), grid) > 3 * trapezoid(abs(exact - estimate), grid)


@given(
    n=st.integers(1, 25),
    density=st.floats(0, 1),
    operator=st.sampled_from(sorted(OPERATORS)),
    probes=st.sampled_from([None, 1, 3]),
    moments=st.integers(16, 300),
    seed=st.integers(0, 99),
)
@examples(60)
def test_density_is_a_density(n, density, operator, probes, moments, seed):
    rng = np.random.default_rng(seed)
    edges = np.argwhere(np.triu(rng.random((n, n)) < density, 1))
    graph = Graph.from_edges(edges, np.ones((n, 1)), weights=rng.uniform(0.1, 9, len(edges)))
    grid, values = spectral_density(
        graph, operator, moments, moments=moments, probes=probes, seed=seed
    )
    assert np.all(np.diff(grid) > 0)
    assert np.isfinite(values).all()
    assert values.min() >= 0
    # a single random vector gives the moments of a density too: that of its own frequencies
    assert trapezoid(values, grid) == pytest.approx(1, abs=1e-6)


def test_large_graphs_are_estimated(monkeypatch, medium):
    _, exact = spectral_density(medium)
    monkeypatch.setattr("hoplite.engine.spectrum.DENSE_NODES", 100)
    monkeypatch.setattr("hoplite.engine.spectrum.PROBED_ENTRIES", 100_000)
    grid, estimate = spectral_density(medium)
    assert 0 < trapezoid(abs(exact - estimate), grid) < 0.03
