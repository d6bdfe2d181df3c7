"""Every basis: its recurrence against SciPy, the bounds that it promises, and how it is named."""

from fractions import Fraction

import numpy as np
import pytest

from hoplite import ConfigError, model_config, train
from hoplite.bases import EXAMPLES, Jacobi, find_basis
from hoplite.store import propagate
from hoplite.theory import FunctionClass

ALL = pytest.mark.parametrize("text", EXAMPLES)
GRID = np.cos(np.linspace(0, np.pi, 4001))


@ALL
def test_values_are_the_polynomials(dense, text):
    basis = find_basis(text)
    points = np.linspace(*(basis.domain or (-1.3, 2.0)), 41)
    values = basis.values(points, 12)
    assert values.shape == (41, 13)
    for i in range(13):
        np.testing.assert_allclose(values[:, i], dense.polynomial(text, i, points), atol=1e-11)
    assert basis.values(points, 0).tolist() == [[1.0]] * 41


@pytest.mark.parametrize(
    "basis", ["chebychev", "", "Chebyshev", "chebyshev:", "chebyshev:1", "jacobi:1", None, 3, []]
)
def test_an_unknown_basis_is_refused(graphs, basis):
    for call in (find_basis, lambda basis: train(graphs(), "lgc", basis=basis)):
        with pytest.raises(
            ConfigError, match=r"basis is .*(must be monomial, |it must have the form)"
        ):
            call(basis)


SETTINGS = ["0,0", "-0.5,-0.5", "2,-0.7", "-0.7,3", "-0.4,-0.99", "-0.9,-0.6", "-0.6,-0.95", "10,3"]


@pytest.mark.parametrize("settings", SETTINGS)
def test_jacobi_at_other_settings(dense, settings):
    basis = find_basis(f"jacobi:{settings}")
    values = basis.values(GRID, 30)
    for i in range(31):
        twin = dense.polynomial(f"jacobi:{settings}", i, GRID)
        np.testing.assert_allclose(values[:, i], twin, atol=1e-11 * np.abs(twin).max())


@pytest.mark.parametrize(
    "text", ["jacobi:-1,0", "jacobi:0,-1", "jacobi:nan,0", "jacobi:0,inf", "jacobi:1001,0"]
)
def test_settings_out_of_range_are_refused(text):
    with pytest.raises(ConfigError, match="larger than -1 and at most 1000"):
        find_basis(text)


def test_other_spellings_are_the_same_basis(graphs, tmp_path):
    """A store and a model keep the one text, so they fit together however it was written."""
    assert str(find_basis("jacobi: 1.0,-0")) == "jacobi:1,0"
    assert find_basis("jacobi:1e0,0") == find_basis("jacobi:1,0")
    assert model_config(basis="jacobi:1.0,0.50").basis == "jacobi:1,0.5"
    graph = graphs(n=20, d=4, dtype=np.float32)
    store = propagate(graph, tmp_path / "s", hops=2, basis="jacobi:1.0,0.50")
    assert store.manifest.basis == "jacobi:1,0.5"
    assert propagate(graph, tmp_path / "s", hops=3, basis="jacobi:1,0.5").hops == 3
    model = train(tmp_path / "s", "lgc", basis="jacobi:1,.5", epochs=2).model
    assert model.config.basis == "jacobi:1,0.5"
    assert (
        FunctionClass(graph, model_config("lgc", basis="jacobi:1,.5")).config.basis
        == "jacobi:1,0.5"
    )


@pytest.mark.parametrize("a", [-0.9999999999999999, -0.999999999999999, -0.9, 0.3])
@pytest.mark.parametrize("b", [-0.9999999999999999, -0.99999999999999, 0.25, 7.0])
def test_jacobi_near_its_limit(a, b):
    """Against the recurrence in exact fractions."""
    first, second, x = Fraction(a), Fraction(b), Fraction(1, 3)
    exact = [Fraction(1), ((first + second + 2) * x + first - second) / 2]
    for n in range(2, 7):
        s = 2 * n + first + second
        exact.append(
            (
                (s - 1) * (s * (s - 2) * x + first**2 - second**2) * exact[-1]
                - 2 * (n + first - 1) * (n + second - 1) * s * exact[-2]
            )
            / (2 * n * (n + first + second) * (s - 2))
        )
    found = Jacobi(a, b).values(np.array([1 / 3]), 6)[0]
    np.testing.assert_allclose(found, np.array(exact, dtype=float), rtol=1e-9, atol=1e-12)
