"""Operators: against their definition, their invariants, and a graph small enough for paper."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import ConfigError, Graph
from hoplite.csr import CsrMemory
from hoplite.operators import OPERATORS, SYMMETRIC, Operator, find_operator


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_operator_equals_its_definition(graphs, dense, name, dtype, weighted):
    graph = graphs(dtype=dtype, weighted=weighted)
    matrix = find_operator(name).matrix(graph)
    assert matrix.dtype == dtype
    np.testing.assert_allclose(
        matrix.toarray(), dense.operator(graph, name), atol=np.finfo(dtype).eps * 4
    )


def test_a_random_walk(graphs):
    """Rows sum to 1 (0 if isolated); the eigenvalues are those of its symmetric twin."""
    graph = graphs(weighted=True)
    walk = find_operator("random_walk")
    matrix, degrees = walk.matrix(graph).toarray(), graph.adjacency.sum(axis=1)
    assert (degrees == 0).any()
    assert abs(matrix - matrix.T).max() > 0.01
    np.testing.assert_allclose(matrix.sum(axis=1), degrees > 0, atol=1e-12)
    twin = walk.similar.matrix(graph).toarray()
    ours, theirs = np.linalg.eigvals(matrix), np.linalg.eigvalsh(twin)
    np.testing.assert_allclose(np.sort(ours.real), theirs, atol=1e-9)
    assert abs(ours.imag).max() < 1e-9
    with pytest.raises(ConfigError, match=r"is 'random_walk', which is not symmetric.*; use renor"):
        walk.norm(graph)


def test_graph_without_edges():
    graph = Graph.from_edges([], features=np.eye(2))
    assert find_operator("adjacency").matrix(graph).nnz == 0
    np.testing.assert_array_equal(find_operator("laplacian").matrix(graph).toarray(), np.eye(2))


@examples(50)
@given(seed=st.integers(0, 10_000), n=st.integers(4, 20), density=st.floats(0, 1))
def test_invariants(graphs, seed, n, density):
    graph = graphs(n=n, seed=seed, density=density)
    roots = np.sqrt(graph.adjacency.sum(axis=1))
    laplacian = find_operator("laplacian").matrix(graph)
    np.testing.assert_allclose(laplacian @ roots, 0, atol=1e-12)  # L sqrt(d) = 0
    for name in SYMMETRIC:
        operator = find_operator(name)
        matrix = operator.matrix(graph)
        values = np.linalg.eigvalsh(matrix.toarray())
        low, high = operator.spectrum
        assert values.min() >= low - 1e-12
        assert values.max() <= high + 1e-12
        assert np.abs(values).max() <= operator.norm_bound + 1e-12
        assert np.abs(values).max() <= operator.norm(graph) + 1e-12
        assert abs(matrix - matrix.T).max() < 1e-15
        moved = np.linalg.eigvalsh(operator.matrix(graph, basis="chebyshev").toarray())
        assert np.abs(moved).max() <= 1 + 1e-12


@pytest.mark.parametrize("max_entries", [1, 7, 30])
@pytest.mark.parametrize("name", OPERATORS)
def test_in_pieces_as_in_one(graphs, dense, monkeypatch, name, max_entries):
    graph, operator = graphs(n=23, seed=4), find_operator(name)
    pieces = list(
        operator.rows(CsrMemory(graph.adjacency), np.float64, operator.loop_of(graph), max_entries)
    )
    assert len(pieces) > 2
    assert [start for start, _ in pieces] == list(
        np.cumsum([0, *[rows.shape[0] for _, rows in pieces[:-1]]])
    )
    whole = operator.matrix(graph)
    for start, rows in pieces:
        twin = whole[start : start + rows.shape[0]]
        np.testing.assert_array_equal(rows.toarray(), twin.toarray())
        moved = operator.in_basis(rows, "chebyshev", start)
        expected = dense.operator(graph, name) - (np.eye(23) if name == "laplacian" else 0)
        part = expected[start : start + rows.shape[0]]
        np.testing.assert_allclose(moved.toarray(), part, atol=1e-12)
    in_one_go = Operator.rows
    monkeypatch.setattr(
        Operator,
        "rows",
        lambda own, csr, dtype, loop, **more: in_one_go(own, csr, dtype, loop, max_entries, **more),
    )
    again = operator.matrix(graph)
    again.check_format(full_check=True)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(again, part), getattr(whole, part))
        assert getattr(again, part).dtype == getattr(whole, part).dtype
    assert again.indices.dtype == again.indptr.dtype == np.int32


@pytest.mark.parametrize(
    ("interval", "expected"), [((-2.0, 2.0), 0.5), ((-0.5, 0.5), 2.0), ((0.0, 6.0), -2 / 3)]
)
def test_any_interval_is_mapped_to_one(interval, expected):
    class Wide(Operator):
        spectrum = interval

    mapped = Wide("wide").in_basis(sp.csr_array(np.array([[1.0]])), "chebyshev")
    np.testing.assert_allclose(mapped.toarray(), [[expected]])
