"""Fixed filters: their numbers are those of the definitions, wherever they are evaluated."""

import numpy as np
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import Graph
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config

FIXED = ["s2gc", "ppr", "heat", "dgc"]


def filter_matrix(config, S):
    """The filter as its authors write it, (n, n), none of it as a sum of powers."""
    n, k = len(S), config.hops
    eye = np.eye(n)
    if config.model == "s2gc":
        power, total = eye, np.zeros((n, n))
        for _ in range(k):
            power = S @ power
            total += (1 - config.alpha) * power + config.alpha * eye
        return total / k if k else eye
    if config.model == "ppr":
        walk = eye
        for _ in range(k):
            walk = (1 - config.alpha) * S @ walk + config.alpha * eye
        return walk
    if config.model == "heat":
        assert k > 6 * config.time + 20  # so that nothing is cut
        return scipy.linalg.expm(-config.time * (eye - S))
    step = config.time / k if k else 0.0
    return np.linalg.matrix_power((1 - step) * eye + step * S, k)


@st.composite
def problems(draw):
    """A fixed filter with drawn settings on an untidy graph, and scattered rows."""
    n, d = draw(st.integers(2, 24)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = rng.integers(0, n, (draw(st.integers(0, 3 * n)), 2))  # loops and doubles, too
    graph = Graph.from_edges(
        edges, rng.normal(size=(n, d)), weights=rng.uniform(0.01, 30, len(edges))
    )
    model = draw(st.sampled_from(FIXED))
    own = {"operator": draw(st.sampled_from(["renormalized", "adjacency"]))}
    if model in ("s2gc", "ppr"):
        own |= {"hops": draw(st.integers(0, 9)), "alpha": draw(st.floats(0, 1))}
    elif model == "heat":
        own |= {"hops": 80, "time": draw(st.floats(0, 9))}
    else:
        hops = draw(st.integers(0, 300))
        own |= {"hops": hops, "time": draw(st.floats(0, min(hops, 9))) if hops else 3.0}
    rows = rng.permutation(n)[: draw(st.integers(1, n))]
    return graph, model_config(model, **own), rows, rng


@examples(150)
@given(problem=problems())
def test_equal_to_their_definitions(dense, problem):
    graph, config, rows, rng = problem
    S = dense.basis(graph, config.operator, "monomial", 1)[1]
    wanted = filter_matrix(config, S)
    built = build_model(config, graph.num_features, 3)
    weights = {"theta": rng.normal(size=(graph.num_features, 3))}
    source = Propagation(graph, config.operator, hops=config.hops, dtype=np.float64)
    signal = wanted @ dense.features(graph)
    found = built.logits(weights, source)
    np.testing.assert_allclose(found, signal @ weights["theta"], atol=1e-9)
    kept = source.filtered_features(built.coefficients(weights), rows)
    np.testing.assert_allclose(kept, signal[rows], atol=1e-9)
    read = source.hop_features(rows)[built.hops_read]  # as of a store
    np.testing.assert_allclose(built.signal_from_hops(weights, read), found[rows], atol=1e-9)
    powers = dense.basis(graph, config.operator, "monomial", config.hops)
    every = built.all_coefficients(weights)
    total = sum(c * power for c, power in zip(every, powers, strict=True))
    np.testing.assert_allclose(total, wanted, atol=1e-9)


def test_many_steps_cost_few_hops():
    def hops(model, **settings):
        built = build_model(model_config(model, **settings), 3, 2)
        assert len(built.all_coefficients({})) == settings["hops"] + 1
        return len(built.coefficients({})) - 1

    assert hops("dgc", hops=900, time=6.0) < 60
    assert hops("ppr", hops=10, alpha=1.0) == 0
    assert hops("dgc", hops=7, time=7.0) == 7  # SGC
