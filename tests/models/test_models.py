"""What models start from, which settings they refuse, and what EGC leaves out.

That logits and gradients of every linear model are those of dense algebra is in
tests/training/test_gradients.py.
"""

import math

import numpy as np
import pytest

from hoplite import ConfigError, Graph
from hoplite.engine.evaluation import WeightsFirst
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.operators import OPERATORS


def initial(config, features=6, classes=3, seed=4):
    return build_model(config, features, classes).initial(np.random.default_rng(seed))


@pytest.mark.parametrize("model", ["sgc", "egc", "lgc", "blocks", "jacobiconv"])
@pytest.mark.parametrize("bias", [False, True])
def test_first_weights(model, bias):
    """Theta, then the filter's, from one generator, uniform within 1 / sqrt(size)."""
    rng = np.random.default_rng(4)

    def drawn(shape, size):
        return (2 * rng.random(shape, np.float32) - 1) / math.sqrt(size)

    expected = {"theta": drawn((6, 6, 3), 36) if model == "blocks" else drawn((6, 3), 3)}
    if model == "egc":
        expected["beta"] = drawn((), 5)
    if model == "lgc":
        expected["alpha"] = drawn((6,), 5)
    if model == "jacobiconv":
        expected |= {"class_filter": np.ones((6, 3)), "decay": np.ones(5)}
    if bias:
        expected["bias"] = np.zeros(3)
    config = model_config(model, hops=5, bias=bias)
    found = initial(config)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
    shapes = build_model(config, 6, 3).shapes()
    assert shapes == {name: value.shape for name, value in found.items()}


@pytest.mark.parametrize("model", ["s2gc", "ppr", "labelprop"])
@pytest.mark.parametrize("alpha", [-0.01, 1.01])
def test_alpha_is_a_share(model, alpha):
    with pytest.raises(ConfigError, match=f"alpha is {alpha}"):
        model_config(model, alpha=alpha)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("rate", [0.0, 0.3, -2.5, 9.0])
def test_egc_leaves_out_only_what_rounding_loses(graphs, dense, operator, rate):
    """Eighty hops of EGC equal the full sum, whatever the rate and the operator's norm."""
    graph, rng = graphs(n=15, d=4, classes=3), np.random.default_rng(0)
    model = build_model(model_config("egc", hops=80, operator=operator), 4, 3)
    weights = {"theta": rng.standard_normal((4, 3)), "beta": np.array(rate)}
    found = WeightsFirst(Propagation(graph, operator, hops=80)).evaluate(model.filter(weights))
    powers = dense.basis(graph, operator, "monomial", 80)
    start = dense.features(graph) @ weights["theta"]
    terms = [rate**i / math.factorial(i) * power @ start for i, power in enumerate(powers)]
    np.testing.assert_allclose(found.values, sum(terms), rtol=1e-9, atol=1e-9)
    gradient = model.filter_gradient(weights, found.gradient(np.ones((15, 3))))
    slopes = [rate**i / math.factorial(i) * powers[i + 1] @ start for i in range(80)]
    np.testing.assert_allclose(gradient["beta"], sum(slopes).sum(), rtol=1e-7, atol=1e-7)


def test_a_constant_column_is_standardised_to_zero():
    graph = Graph.from_edges([], np.array([[1.0, 2.0], [1.0, 5.0], [1.0, 11.0]]))
    model = build_model(model_config("sgc", 0, standardize=True), 2, 2)
    logits = model.logits({"theta": np.eye(2)}, Propagation(graph, hops=0))
    assert logits[:, 0].tolist() == [0, 0, 0]
    np.testing.assert_allclose([logits[:, 1].mean(), logits[:, 1].std()], [0, 1], atol=1e-12)
