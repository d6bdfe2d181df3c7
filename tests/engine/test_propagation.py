"""The operators and features of a graph, entry by entry from what was given.

Isolated nodes, loops, stored zeros, entries that come twice and out of order, any format and type
of numbers, for A and for X; rows in any order and more than once.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import Graph
from hoplite.bases import EXAMPLES as BASES
from hoplite.engine import backend, features
from hoplite.engine.backend import use_backend
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import Filter, KeptHops, WeightsFirst
from hoplite.engine.propagation import Propagation
from hoplite.operators import OPERATORS

BACKENDS = ["numpy"] + ["native"] * backend.has_native()
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok", "dense")
TYPES = (np.float32, np.float64, np.int32, np.uint8, np.bool_)


def untidy(rng, rows, columns, entries, dtype, form, *, symmetric=False):
    """A matrix of that format from entries, some of them zero and some twice, and it dense."""
    row, column = rng.integers(0, rows, entries), rng.integers(0, columns, entries)
    values = rng.choice([0, 1, 2, 3], entries) / (2 if np.dtype(dtype).kind == "f" else 1)
    if symmetric:
        row, column = np.concatenate([row, column]), np.concatenate([column, row])
        values = np.tile(values, 2)
    dense = np.zeros((rows, columns))
    np.add.at(dense, (row, column), values.astype(dtype).astype(np.float64))
    values = values.astype(dtype)
    if dtype == np.bool_:
        dense = (dense > 0).astype(np.float64)  # true and true are true
    if form == "coo":
        order = rng.permutation(len(row))
        places = (row[order], column[order])
        return sp.coo_array((values[order], places), shape=dense.shape), dense
    if form in ("csr", "csc"):
        outer, inner, count = (row, column, rows) if form == "csr" else (column, row, columns)
        order = np.lexsort((rng.random(len(row)), outer))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(outer, minlength=count))])
        make = sp.csr_array if form == "csr" else sp.csc_array
        return make((values[order], inner[order], indptr), shape=dense.shape), dense
    if form == "dense":
        return dense.astype(dtype), dense
    return getattr(sp, f"{form}_array")(dense.astype(dtype)), dense


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 14),
    d=st.integers(1, 6),
    edges=st.integers(0, 40),
    forms=st.tuples(st.sampled_from(FORMATS), st.sampled_from(FORMATS)),
    dtypes=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    operator=st.sampled_from(sorted(OPERATORS)),
    basis=st.sampled_from(BASES),
    hops=st.integers(0, 5),
)
def test_outputs_equal_dense_algebra(
    dense, seed, n, d, edges, forms, dtypes, operator, basis, hops
):
    rng = np.random.default_rng(seed)
    linked = int(rng.integers(1, n + 1))  # the nodes from there on are isolated
    adjacency, A = untidy(rng, linked, linked, edges, dtypes[0], forms[0], symmetric=True)
    if linked < n:
        nothing = sp.coo_array((n - linked, n - linked), dtype=dtypes[0])
        adjacency = sp.block_diag([adjacency, nothing], "coo")
        A = np.pad(A, (0, n - linked))
    features, X = untidy(rng, n, d, 3 * n, dtypes[1], forms[1])
    np.fill_diagonal(A, 0)
    graph = Graph(adjacency, features)
    close = {"rtol": 1e-12, "atol": 1e-12} if graph.features.dtype == np.float64 else {
        "rtol": 2e-4, "atol": 2e-4}  # fmt: skip
    np.testing.assert_array_equal(graph.adjacency.toarray(), A)
    np.testing.assert_array_equal(dense.features(graph), X)

    powers = np.stack(dense.basis(graph, operator, basis, hops))
    nodes = rng.integers(0, n, int(rng.integers(0, 2 * n)))
    theta, c = (rng.normal(size=s).astype(graph.features.dtype) for s in ((d, 3), hops + 1))
    dropout = Dropout(0.5, seed % 1000, 3)
    for name in BACKENDS:
        with use_backend(name):
            source = Propagation(graph, operator, basis, hops)
            found = source.hop_features(nodes)
            np.testing.assert_allclose(found, (powers @ X)[:, nodes], **close)
            wanted = np.einsum("k,knd,dm->nm", c, (powers @ X)[:, nodes], theta)
            for order in (WeightsFirst(source, nodes), KeptHops.of(source, nodes)):
                values = order.evaluate(Filter(theta, c)).values
                np.testing.assert_allclose(values, wanted, **close)
            kept = source.features.dense(dropout).astype(np.float64)
            wanted = np.einsum("k,kni,id,dm->nm", c, powers[:, nodes], kept, theta)
            values = WeightsFirst(source, nodes).evaluate(Filter(theta, c), dropout).values
            np.testing.assert_allclose(values, wanted, **close)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("nodes", [None, [11, 16, 0, 3, 3]])
def test_wide_features_in_blocks(graphs, dense, monkeypatch, sparse, nodes):
    graph = graphs(17, 23, sparse=sparse)
    monkeypatch.setattr(features, "BLOCK_COLUMNS", 7)
    source = Propagation(graph, "laplacian", "chebyshev", hops=3)
    blocks = [(part.start, part.stop) for part, _ in source.features.column_blocks()]
    assert blocks == [(0, 7), (7, 14), (14, 21), (21, 23)]
    expected = np.stack(dense.basis(graph, "laplacian", "chebyshev", 3)) @ dense.features(graph)
    rows = None if nodes is None else np.array(nodes)
    some = slice(None) if nodes is None else nodes
    np.testing.assert_allclose(source.hop_features(rows), expected[:, some], atol=1e-10)
    c = np.array([0.5, -1, 0, 2])
    wanted = np.einsum("k,knd->nd", c, expected)[some]
    np.testing.assert_allclose(source.filtered_features(c, rows), wanted, atol=1e-10)


def test_far_nodes_are_left_out_and_change_nothing():
    """Of a path, what two hops of its end read; the other end is dropped as in the whole."""
    n = 30
    graph = Graph.from_edges(
        [(i, i + 1) for i in range(n - 1)], np.random.default_rng(0).random((n, 4))
    )
    whole = Propagation(graph, "renormalized", hops=2)
    part, rows = whole.near(np.array([28, 29, 28]))
    assert part.nodes.tolist() == [26, 27, 28, 29]
    assert part.nodes[rows].tolist() == [28, 29, 28]
    again, rows = part.near(rows[1:2])
    assert again.nodes.tolist() == [27, 28, 29]
    theta, c, dropout = np.ones((4, 2)), np.ones(3), Dropout(0.5, 1, nodes=0.3, outputs=0.2)
    found = WeightsFirst(whole, np.array([28, 29, 28])).evaluate(Filter(theta, c), dropout).values
    everywhere = WeightsFirst(whole).evaluate(Filter(theta, c), dropout).values
    np.testing.assert_allclose(found, everywhere[[28, 29, 28]], rtol=1e-12)
    assert whole.near(np.arange(0, n, 3))[0] is whole
