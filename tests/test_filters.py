"""Filters: starts, the exponential, and the frequency response against the eigenbasis."""

import numpy as np
import pytest

from hoplite import ConfigError, TrainedModel, frequency_response, model_config
from hoplite.bases import EXAMPLES
from hoplite.models import build_model
from hoplite.operators import OPERATORS


def generator(seed=0):
    return np.random.default_rng(seed)


def first_values(start, hops, operator, source):
    config = model_config("lgc", hops, operator, start=start)
    return build_model(config, 1, 1).initial_filter(source)["alpha"]


def first_rate(start, hops, operator, source):
    config = model_config("egc", hops, operator, start=start)
    return build_model(config, 1, 1).initial_filter(source)["beta"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_lowpass_start(operator):
    sign = -1 if operator == "laplacian" else 1
    values = first_values("lowpass", 2, operator, generator())
    np.testing.assert_allclose(values, [1, sign * 0.8, 0.64], rtol=1e-6)
    rate = first_rate("lowpass", 2, operator, generator())
    assert (rate, rate.dtype) == (sign, np.float32)


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


def test_hop_blocks_have_no_single_response():
    model = TrainedModel(
        model_config("blocks", hops=1), {"theta": np.ones((2, 3, 2))}, 3, ("a", "b")
    )
    with pytest.raises(ConfigError, match="has a filter for each class"):
        frequency_response(model)
    assert frequency_response(model.maps_[:, 0, 1], [0.5]).tolist() == [1.5]
