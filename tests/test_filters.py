"""Filters: starts, the exponential, and the frequency response against the eigenbasis."""

import math

import numpy as np
import pytest

from hoplite import ConfigError, TrainedModel, frequency_response, model_config, spectral_density
from hoplite.bases import EXAMPLES
from hoplite.models import build_model
from hoplite.models.learned import exponential_coefficients
from hoplite.operators import OPERATORS


def generator(seed=0):
    return np.random.default_rng(seed)


def first_values(start, hops, operator, source):
    config = model_config("lgc", hops, operator, start=start)
    return build_model(config, 1, 1).initial_filter(source)["alpha"]


def first_rate(start, hops, operator, source):
    config = model_config("egc", hops, operator, start=start)
    return build_model(config, 1, 1).initial_filter(source)["beta"]


def test_random_start_is_the_papers():
    values = np.array([first_values("random", 16, "adjacency", generator(s)) for s in range(200)])
    assert np.abs(values).max() <= 1 / 4
    assert np.abs(values).max() > 0.24
    assert abs(values.mean()) < 0.01
    np.testing.assert_array_equal(
        first_values("random", 16, "adjacency", generator(7)),
        first_values("random", 16, "adjacency", generator(7)),
    )


@pytest.mark.parametrize("operator", OPERATORS)
def test_lowpass_start(operator):
    sign = -1 if operator == "laplacian" else 1
    values = first_values("lowpass", 2, operator, generator())
    np.testing.assert_allclose(values, [1, sign * 0.8, 0.64], rtol=1e-6)
    rate = first_rate("lowpass", 2, operator, generator())
    assert (rate, rate.dtype) == (sign, np.float32)


@pytest.mark.parametrize("rate", [-1.5, 0.0, 0.3, 2.0])
def test_exponential_coefficients(rate):
    values = exponential_coefficients(np.array(rate), 12)
    expected = [rate**i / math.factorial(i) for i in range(13)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert values.dtype == np.float64
    assert exponential_coefficients(np.array(rate, np.float32), 0).tolist() == [1.0]


@pytest.mark.parametrize("rate", [0.0, 0.7])
def test_exponential_gradient_at_zero_rate(rate):
    model = build_model(model_config("egc", 5), 1, 1)
    gradient = np.random.default_rng(0).normal(size=6)
    (slope,) = model.coefficients_vjp({"beta": np.array(rate)}, gradient).values()
    step = 1e-6
    ends = [exponential_coefficients(np.array(rate + sign * step), 5) for sign in (1, -1)]
    assert slope == pytest.approx(gradient @ (ends[0] - ends[1]) / (2 * step), rel=1e-8)


@pytest.mark.parametrize("basis", EXAMPLES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_frequency_response_is_the_filter_in_the_eigenbasis(graphs, dense, basis, operator):
    graph = graphs()
    coefficients = np.random.default_rng(1).normal(size=5)
    matrix = sum(
        c * p for c, p in zip(coefficients, dense.basis(graph, operator, basis, 4), strict=True)
    )
    values, vectors = np.linalg.eig(dense.operator(graph, operator))  # real for all of them
    response = frequency_response(coefficients, values, basis=basis, operator=operator)
    np.testing.assert_allclose(matrix @ vectors, vectors * response, atol=1e-10)


@pytest.mark.parametrize("model", ["sgc", "egc", "lgc"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_response_of_a_model_is_that_of_its_coefficients(graphs, model, operator):
    graph, config = graphs(), model_config(model, 3, operator)
    weights = build_model(config, 5, 3).initial(generator(1))
    trained = TrainedModel(config, weights, 5, ("a", "b", "c"))
    grid, _ = spectral_density(graph, operator)
    powers = grid[:, None] ** np.arange(4)
    np.testing.assert_allclose(frequency_response(trained), powers @ trained.coefficients_)
    np.testing.assert_array_equal(frequency_response(trained), frequency_response(trained, grid))


def test_hop_blocks_have_no_single_response():
    model = TrainedModel(
        model_config("blocks", hops=1), {"theta": np.ones((2, 3, 2))}, 3, ("a", "b")
    )
    with pytest.raises(ConfigError, match="has a filter of its own for every class"):
        frequency_response(model)
    assert frequency_response(model.maps_[:, 0, 1], [0.5]).tolist() == [1.5]


@pytest.mark.parametrize("start", [first_values, first_rate])
def test_either_start_leaves_the_generator_alike(start):
    """So that what is drawn afterwards does not depend on the start."""
    after = []
    for name in ("random", "lowpass"):
        source = generator(5)
        start(name, 6, "adjacency", source)
        after.append(source.random())
    assert after[0] == after[1]
    with pytest.raises(ConfigError, match="start is 'randon'"):
        start("randon", 6, "adjacency", generator())
