"""The fast path equals dense algebra on untidy graphs, entry by entry from what was given.

Isolated nodes, loops, stored zeros, entries that come twice and out of order, any format and type
of numbers, for A and for X; rows in any order and more than once.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import Graph
from hoplite.bases import EXAMPLES as BASES
from hoplite.operators import OPERATORS
from hoplite.propagation import backend
from hoplite.propagation.backend import use_backend
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import Propagation

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok", "dense")
KINDS = (np.float32, np.float64, np.int32, np.uint8, np.bool_)


def untidy(rng, rows, columns, entries, kind, form, *, symmetric=False):
    """A matrix of that format from entries, some of them zero and some twice, and it dense."""
    row, column = rng.integers(0, rows, entries), rng.integers(0, columns, entries)
    values = rng.choice([0, 1, 2, 3], entries) / (2 if np.dtype(kind).kind == "f" else 1)
    if symmetric:
        row, column = np.concatenate([row, column]), np.concatenate([column, row])
        values = np.tile(values, 2)
    dense = np.zeros((rows, columns))
    np.add.at(dense, (row, column), values.astype(kind).astype(np.float64))
    values = values.astype(kind)
    if kind == np.bool_:
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
        return dense.astype(kind), dense
    return getattr(sp, f"{form}_array")(dense.astype(kind)), dense


@examples(60)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 14),
    d=st.integers(1, 6),
    edges=st.integers(0, 40),
    forms=st.tuples(st.sampled_from(FORMATS), st.sampled_from(FORMATS)),
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    operator=st.sampled_from(sorted(OPERATORS)),
    basis=st.sampled_from(BASES),
    hops=st.integers(0, 5),
)
def test_the_fast_path_equals_dense_algebra(
    dense, seed, n, d, edges, forms, kinds, operator, basis, hops
):
    rng = np.random.default_rng(seed)
    linked = int(rng.integers(1, n + 1))  # the nodes from there on are isolated
    adjacency, A = untidy(rng, linked, linked, edges, kinds[0], forms[0], symmetric=True)
    if linked < n:
        nothing = sp.coo_array((n - linked, n - linked), dtype=kinds[0])
        adjacency = sp.block_diag([adjacency, nothing], "coo")
        A = np.pad(A, (0, n - linked))
    features, X = untidy(rng, n, d, 3 * n, kinds[1], forms[1])
    np.fill_diagonal(A, 0)
    graph = Graph(adjacency, features)
    close = {"rtol": 1e-12, "atol": 1e-12} if graph.features.dtype == np.float64 else {
        "rtol": 2e-4, "atol": 2e-4}  # fmt: skip
    np.testing.assert_array_equal(graph.adjacency.toarray(), A)
    np.testing.assert_array_equal(dense.features(graph), X)
    assert graph.adjacency.has_canonical_format
    assert graph.num_edges == np.count_nonzero(A) // 2

    powers = dense.basis(graph, operator, basis, hops)
    terms = np.stack([p @ X for p in powers])
    nodes = rng.integers(0, n, int(rng.integers(0, 2 * n)))
    theta, coefficients = rng.normal(size=(2, d, 3)), rng.normal(size=(2, hops + 1))
    wanted = np.einsum("rk,knd,rdm->nrm", coefficients, terms[:, nodes], theta)
    weights = [torch.from_numpy(w.astype(graph.features.dtype)) for w in (theta, coefficients)]
    dropout = Dropout((0.5, 0.0), (seed % 1000, 1), 3)
    dropped = []
    for name in ["torch"] + ["native"] * backend.has_native():
        with use_backend(name):
            propagation = Propagation(graph, operator, basis, hops)
            found = propagation.view(nodes).hop_features().squeeze(2)
            np.testing.assert_allclose(found.numpy(), terms[:, nodes], **close)
            for hops_first in (False, True):
                view = propagation.view(nodes, hops_first=hops_first)
                np.testing.assert_allclose(view.combine(*weights).numpy(), wanted, **close)
                np.testing.assert_allclose(
                    view.combine(weights[0], None).numpy(),
                    np.einsum("nd,rdm->nrm", terms[-1][nodes], theta),
                    **close,
                )
            dropped.append(propagation.view(nodes).combine(*weights, dropout).numpy())
    kept = np.stack(
        [propagation.features.dense(dropout, run).numpy().astype(float) for run in range(2)]
    )
    wanted = np.einsum("rk,kni,rid,rdm->nrm", coefficients, np.stack(powers)[:, nodes], kept, theta)
    for found in dropped:
        np.testing.assert_allclose(found, wanted, **close)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_graph_of_one_node(operator, dense):
    graph = Graph([[5.0]], [[2.0, 3.0]])  # its only edge is a loop
    view = Propagation(graph, operator, "monomial", 3).view()
    wanted = [p @ graph.features for p in dense.basis(graph, operator, "monomial", 3)]
    np.testing.assert_allclose(view.hop_features().squeeze(2).numpy(), wanted, atol=1e-15)
