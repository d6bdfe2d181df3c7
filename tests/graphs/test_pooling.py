"""Families of features against dense algebra, and that nothing is fitted to test graphs."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from tests.graphs.conftest import random_set

from hoplite.graph import Graph, Split
from hoplite.graphs import GraphSet, load_graphs, train_graphs
from hoplite.graphs.pooling import FAMILIES, colours_of, degree_profile, find_family

SETTINGS = {
    "hops": {"hops": 2, "structure": "add"},
    "pool": {"hops": 1},
    "colours": {"depth": 2},
    "fourier": {"hops": 1, "count": 16},
}


def fitted(graphs: GraphSet, name: str, **settings):
    family = find_family(name)
    return family.fit(graphs, graphs.table.split.train, family.Settings(**settings))


@pytest.mark.parametrize("operator", ["random_walk", "renormalized", "adjacency"])
def test_hops_and_pool_are_those_of_dense_algebra(small: GraphSet, operator: str) -> None:
    found = fitted(small, "pool", hops=2, operator=operator).features(small)
    for g in (0, 7, 33):
        graph = small.graph(g)
        dense = graph.adjacency.toarray().astype(float)
        n = len(dense)
        if operator != "adjacency":
            dense += np.eye(n) if operator == "renormalized" else 0
        degree = dense.sum(axis=1)
        inverse = np.divide(1, degree, out=np.zeros(n), where=degree > 0)
        if operator == "random_walk":
            matrix = inverse[:, None] * dense
        else:
            matrix = np.sqrt(inverse)[:, None] * dense * np.sqrt(inverse)
        hops = [np.linalg.matrix_power(matrix, i) @ graph.features for i in range(3)]
        expected = [hop.sum(axis=0) for hop in hops] + [hop.mean(axis=0) for hop in hops]
        expected += [[np.log(n)]]
        expected += [hop.max(axis=0) for hop in hops] + [hop.std(axis=0) for hop in hops]
        np.testing.assert_allclose(found[g], np.concatenate(expected), atol=1e-5)


def test_ranges_of_graphs_give_the_same(small: GraphSet, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {name: fitted(small, name, **own).features(small) for name, own in SETTINGS.items()}
    monkeypatch.setattr("hoplite.graphs.graph_set.BLOCK", 64)
    pieces = dataclasses.replace(small)  # nothing is cached
    assert len([*pieces.blocks()]) > 3
    for name, own in SETTINGS.items():
        found = fitted(pieces, name, **own).features(pieces)
        gap = abs(found - whole[name]).max()
        assert gap < 1e-6, name


def test_a_graph_without_nodes_is_a_row_of_zeros(small: GraphSet) -> None:
    offsets = np.insert(small.offsets, 1, small.offsets[1])
    labels = np.insert(np.asarray(small.labels), 1, 0)
    more = dataclasses.replace(
        small, offsets=offsets, labels=labels, split=Split(np.array([0, 2, 3]))
    )
    for name, own in SETTINGS.items():
        found = fitted(more, name, **own).features(more)
        assert abs(found[[1]]).max() == 0, name
        assert abs(found[[0]]).max() > 0, name


def test_degree_profile_by_hand() -> None:
    star = Graph.from_edges([(0, 1), (0, 2), (1, 2), (0, 3)], np.zeros((5, 0), np.float32))
    profile = np.expm1(degree_profile(star))
    near = [2, 2, 1]
    np.testing.assert_allclose(
        profile[0], [3.0, 1.0, 2.0, float(np.mean(near)), float(np.std(near))], rtol=1e-5
    )
    np.testing.assert_allclose(profile[3], [1, 3, 3, 3, 0], atol=1e-6)
    np.testing.assert_allclose(profile[4], 0)


def test_colours_are_those_of_a_dictionary(small: GraphSet) -> None:
    """Two nodes have the same colour exactly if Weisfeiler and Lehman give them the same."""
    block = small.block(0, len(small))
    names = [tuple(row) for row in np.asarray(block.features)[:, :3].tolist()]
    near = [block.adjacency.indices[a:b] for a, b in np.stack(
        [block.adjacency.indptr[:-1], block.adjacency.indptr[1:]], axis=1
    )]  # fmt: skip
    for colour in colours_of(block, 3, np.arange(3)):
        pairs = {(name, hashed) for name, hashed in zip(names, colour.tolist(), strict=True)}
        assert len(pairs) == len({name for name, _ in pairs}) == len({one for _, one in pairs})
        names = [
            (name, tuple(sorted(names[u] for u in nodes)))
            for name, nodes in zip(names, near, strict=True)
        ]


def test_colours_count_nodes_of_colours_that_two_training_graphs_have(small: GraphSet) -> None:
    pooling = fitted(small, "colours", depth=1)
    found, train = sp.csr_array(pooling.features(small)).toarray(), small.table.split.train
    counts = []
    for g in range(len(small)):
        graph = small.graph(g)
        counts.append(Counter(np.concatenate([*colours_of(graph, 1, pooling.state["tags"])])))
    seen = Counter(colour for g in train for colour in counts[g])
    known = sorted(colour for colour, times in seen.items() if times >= 2)
    assert known == pooling.state["colours"].tolist()
    for g, own in enumerate(counts):
        row = np.log1p([own.get(colour, 0) for colour in known])
        np.testing.assert_allclose(found[g], row / (np.linalg.norm(row) or 1), atol=1e-6)


def test_tags_are_columns_of_0_and_1_else_degrees(small: GraphSet) -> None:
    assert fitted(small, "colours").state["tags"].tolist() == [0, 1, 2]
    bare = dataclasses.replace(small, features=np.empty((small.num_nodes, 0)), feature_names=None)
    pooling = fitted(bare, "colours", depth=0)
    assert not pooling.state["tags"].size
    assert len(pooling.state["colours"]) <= len(np.unique(np.diff(small.adjacency.indptr)))


@pytest.mark.parametrize("name", FAMILIES)
def test_test_graphs_do_not_change_a_model(name: str) -> None:
    """The trained model is the same without test graphs, and with others in their place.

    To the bit, but for random features: these are a product of all nodes, whose sums BLAS may order
    by the number of rows. Anything learned from test graphs would differ by far more.
    """
    rtol, atol = (1e-5, 1e-6) if name == "fourier" else (0, 0)
    graphs = random_set(3)
    split = graphs.table.split
    kept = np.sort(np.concatenate([split.train, split.val]))
    place = {int(g): i for i, g in enumerate(kept)}
    train, val = (np.array([place[int(g)] for g in part]) for part in (split.train, split.val))
    without = graphs.select(kept).with_split(Split(train, val))
    other = random_set(4).select(split.test)
    wild = dataclasses.replace(other, features=other.features * 100 + 7)
    both = [graphs.graph(int(g)) for g in kept] + [wild.graph(i) for i in range(len(wild))]
    labels = [*without.labels, *(1 - wild.labels)]
    swapped = GraphSet.from_graphs(both, labels, split=Split(train, val, np.arange(len(kept), 60)))
    models = [
        train_graphs(one, name, refit=True, **SETTINGS[name]).model
        for one in (graphs, without, swapped)
    ]
    for model in models[1:]:
        for key, value in models[0].head.weights.items():
            np.testing.assert_allclose(model.head.weights[key], value, rtol, atol)
        for key, value in models[0].pooling.state.items():
            np.testing.assert_allclose(model.pooling.state[key], value, rtol, atol)


def test_folds_fit_the_vocabulary_anew(small: GraphSet) -> None:
    """Out-of-fold outputs do not depend on the colours of the fold that they judge."""
    calls = []
    family = find_family("colours")

    class Recorded(family):
        @classmethod
        def fit(cls, graphs, train, settings):
            calls.append(np.sort(train))
            return family.fit.__func__(cls, graphs, train, settings)

    FAMILIES["colours"] = Recorded
    try:
        result = train_graphs(small.with_split(Split(train=np.arange(60))), "colours", folds=3)
    finally:
        FAMILIES["colours"] = family
    assert result.out_of_fold
    assert sorted(map(len, calls)) == [40, 40, 40, 60]
    left = [np.setdiff1d(np.arange(60), train) for train in calls if len(train) == 40]
    assert np.array_equal(np.sort(np.concatenate(left)), np.arange(60))


def test_lists_of_frames_and_graphs_agree(small: GraphSet) -> None:
    again = load_graphs([small.graph(g) for g in range(len(small))], labels=small.labels)
    assert (again.adjacency != small.adjacency).nnz == 0
    np.testing.assert_array_equal(again.features, small.features)
