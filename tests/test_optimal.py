"""The optimal basis: orthonormal on dense algebra, fitted once, the same wherever it is used."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.untidy import UNTRAINED
from tests.untidy import graphs as untidy_graphs

from hoplite import ConfigError, Graph, TrainedModel, model_config, train
from hoplite.bases import Recurrence, find_basis
from hoplite.engine.propagation import Propagation, fitted_basis
from hoplite.operators import OPERATORS, SYMMETRIC
from hoplite.store import propagate

ALL = pytest.mark.parametrize("operator", sorted(SYMMETRIC))


def products(graph, dense, operator, basis, hops):
    """<p_i, p_j> from the eigendecomposition of S: (k + 1, k + 1)."""
    values, vectors = np.linalg.eigh(dense.operator(graph, operator))
    values = values - OPERATORS[operator].shift
    shares = np.square(vectors.T @ dense.features(graph)).sum(axis=1)
    found = basis.values(values, hops)
    return found.T @ (found * (shares / shares.sum())[:, None])


def alive(basis):
    """How many polynomials there are before they are 0."""
    steps = basis.table(len(basis.numbers))
    count = int((steps[:, 0] > 0).sum())
    assert (steps[:count, 0] > 0).all()
    assert not steps[count:].any()
    return count + 1


@ALL
@pytest.mark.parametrize("sparse", [False, True])
def test_forty_hops_are_orthonormal(graphs, dense, operator, sparse):
    graph = graphs(300, 6, seed=3, density=0.02, isolated=40, sparse=sparse)
    basis = fitted_basis(graph, operator, "optimal", 40)
    assert alive(basis) == 41
    found = products(graph, dense, operator, basis, 40)
    np.testing.assert_allclose(found, np.eye(41), atol=1e-9)
    # and so they are for the loop that evaluates them, in float32, too
    for dtype, rounding in ((np.float64, 1e-9), (np.float32, 0.02)):
        hops = Propagation(graph, operator, basis, 40, dtype).hop_features()
        flat = hops.reshape(41, -1).astype(np.float64)
        np.testing.assert_allclose(flat @ flat.T / (flat[0] @ flat[0]), np.eye(41), atol=rounding)


@examples(40)
@given(graph=untidy_graphs(), operator=st.sampled_from(sorted(SYMMETRIC)), hops=st.integers(1, 30))
@pytest.mark.filterwarnings(UNTRAINED)
def test_what_there_is_is_orthonormal_on_any_graph(dense, graph, operator, hops):
    """Of small graphs with more hops than eigenvalues; float32 hops never blow up."""
    if not dense.features(graph).any():
        return
    basis = fitted_basis(graph, operator, "optimal", hops)
    assert len(basis.numbers) == hops
    count = alive(basis)
    found = products(graph, dense, operator, basis, hops)
    np.testing.assert_allclose(found[:count, :count], np.eye(count), atol=1e-6)
    assert not found[count:].any()
    found = Propagation(graph, operator, basis, hops).hop_features()
    sizes = np.linalg.norm(found, axis=(1, 2))
    assert (sizes <= 1.5 * sizes[0]).all()


def test_fewer_hops_are_the_first_ones(graphs):
    graph = graphs(40, 5)
    long = fitted_basis(graph, "laplacian", "optimal", 9)
    assert fitted_basis(graph, "laplacian", "optimal", 4).numbers == long.numbers[:4]
    assert fitted_basis(graph, "laplacian", "optimal", 0).numbers == long.numbers[:1]
    assert fitted_basis(graph, "laplacian", "optimal", 9) is long  # found once
    for scale in (1e-200, 1e200):  # the length of X is no matter, nor that of its squares
        scaled = Graph(graph.adjacency, graph.features * scale)
        found = fitted_basis(scaled, "laplacian", "optimal", 9)
        np.testing.assert_allclose(found.table(9), long.table(9), rtol=1e-9)


@examples(200)
@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 3), min_size=1, max_size=5
    ),
    st.booleans(),
)
def test_a_text_has_every_bit(steps, repeats):
    steps[0] = (*steps[0][:2], 0.0)
    made = Recurrence(tuple(steps), repeats)
    assert find_basis(str(made)) == made
    assert made.table(len(steps)).tobytes() == find_basis(str(made)).table(len(steps)).tobytes()
    np.testing.assert_array_equal(made.table(len(steps)), steps)


def test_as_many_hops_as_steps(graphs, tmp_path):
    basis = "recurrence:1,0,0/2,0,1"
    said = "hops is 3 but basis defines only 2"
    assert model_config(hops=2, basis=basis).basis == basis
    for call in (
        lambda: model_config(hops=3, basis=basis),
        lambda: find_basis(basis).table(3),
        lambda: propagate(graphs(20, 4, dtype=np.float32), tmp_path / "s", hops=3, basis=basis),
    ):
        with pytest.raises(ConfigError, match=said):
            call()
    repeated = find_basis(f"{basis}/...")
    np.testing.assert_array_equal(repeated.table(30), find_basis("chebyshev").table(30))
    assert repeated.title == str(repeated)
    assert find_basis("recurrence:" + "/".join(["1,0,0"] * 9)).title == "recurrence of 9 steps"


@ALL
@pytest.mark.parametrize("model", ["lgc", "jacobiconv", "blocks", "hlgc"])
def test_a_model_keeps_the_numbers(graphs, tmp_path, operator, model):
    """Saved, read and used on a grown graph it evaluates the same polynomials."""
    graph = graphs(50, 6, dtype=np.float32)
    options = {"hops": 4, "operator": operator, "epochs": 3, "dropout": 0.0}
    result = train(graph, model, basis="optimal", **options)
    basis = fitted_basis(graph, operator, "optimal", 4)
    assert result.model.config.basis == str(basis)
    assert "recurrence of 4 steps" in repr(result.model)
    given = train(graph, model, basis=str(basis), **options).model
    for name, value in result.model.weights.items():
        np.testing.assert_array_equal(value, given.weights[name])
    result.model.save(tmp_path / "m")
    read = TrainedModel.load(tmp_path / "m")
    assert read.config == result.model.config
    grown = graphs(70, 6, seed=8, dtype=np.float32)
    assert fitted_basis(grown, operator, "optimal", 4) != basis
    for data in (graph, grown):
        np.testing.assert_array_equal(read.logits(data), result.model.logits(data))
