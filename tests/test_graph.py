"""Graph and Split: what they keep, what they refuse, and that nobody can change them."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hoplite.errors import GraphError, HopliteWarning
from hoplite.graph import Graph, Split

EYE = np.eye(3, dtype=np.float32)
PATH = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]], np.float32)


def test_the_diagonal_and_stored_zeros_are_dropped():
    loops = sp.csr_array(PATH + 5 * EYE)
    loops.data[1] = loops.data[2] = 0
    graph = Graph(loops, EYE)
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 0, 0], [0, 0, 2], [0, 2, 0]])
    assert graph.num_edges == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)), EYE), r"adjacency has shape \(2, 3\); it must be square"),
        ((-PATH, EYE), "the smallest edge weight is -2; weights must not be negative"),
        (([[0, np.inf], [np.inf, 0]], EYE[:2]), "edge weights contain NaN or infinity"),
        (([[0, np.nan], [np.nan, 0]], EYE[:2]), "edge weights contain NaN or infinity"),
        (([[0, 1], [0, 0]], EYE[:2]), "adjacency is not symmetric .*use Graph.from_edges"),
        ((PATH, EYE[:2]), "features has 2 rows but the graph has 3 nodes; pass one row per node"),
        ((PATH, EYE[0]), r"features has shape \(3,\); pass one row of numbers per node"),
        ((PATH, [["a"], ["b"], ["c"]]), "features has type .*; pass numbers"),
        ((PATH, EYE * 1j), "features has type complex"),
        (
            (PATH, np.array([[1], [np.nan], [2]])),
            r"NaN or infinity in 1 place \(first: node 1, feature 0\)",
        ),
        ((PATH, EYE.astype(object)), r"features has dtype object.*features.astype\(float\)"),
        (
            (PATH, sp.csr_array([[0, 1], [np.inf, np.nan], [2, 0]])),
            r"NaN or infinity in 2 places \(first: node 1, feature 0\)",
        ),
        ((PATH, EYE, [0, 1]), r"labels has shape \(2,\) but the graph has 3 nodes"),
        ((PATH, EYE, [[0, 1, 2]]), r"labels has shape \(1, 3\) but the graph has 3 nodes"),
        ((PATH, EYE, ["a", "b", "c"]), "labels have type <U1 .*; pass an integer class"),
        ((PATH, EYE, [0.5, 1.0, np.inf]), "labels contain infinity; pass finite numbers, and NaN"),
        ((PATH, EYE, [0.5, 1, 2], None, ["a"]), "class_names cannot be used for regression"),
        ((PATH, EYE, [[0], [1], [2]]), r"labels has shape \(3, 1\); .*labels.ravel\(\)"),
        ((PATH, EYE, [[0, 1], [1, 2], [1, 1]]), "labels contain 2; multi-label columns must"),
        ((PATH, EYE, [[0, 1], [1, 1], [-1, 1]]), r"unknown in some columns of 1 node \(first: 2"),
        ((PATH, EYE, np.ones((3, 2)), None, ["a"]), "labels have 2 columns but there are 1 class"),
        ((PATH, EYE, np.ones((3, 0))), "labels have no column"),
        ((PATH, EYE, [0, 1, -2]), "labels contain -2; use -1 for an unknown label"),
    ],
)
def test_contradictions(arguments, message):
    with pytest.raises(GraphError, match=message):
        Graph(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ["a"]}, "labels contain 1 but there are 1 class name"),
        ({"feature_names": ["x"]}, "feature_names has length 1 but there are 3 feature columns"),
        ({"node_ids": [1, 2]}, "node_ids has length 2 but there are 3 nodes"),
        ({"split": Split(train=[3])}, "split.train contains node 3 but the graph has 3 nodes"),
        ({"split": Split(test=[-1])}, "split.test contains node -1 but the graph has 3 nodes"),
        ({"split": Split(val=[2])}, r"split.val contains 1 node without a label \(first: 2\)"),
    ],
)
def test_contradicting_options(options, message):
    with pytest.raises(GraphError, match=message):
        Graph(PATH, EYE, [0, 1, -1], **options)


def test_a_class_without_training_node_is_a_warning():
    with pytest.warns(
        HopliteWarning,
        match="class 'dog' cannot be predicted, because no training node is of this class",
    ):
        Graph(PATH, EYE, [0, 1, 0], split=Split(train=[0]), class_names=["cat", "dog"])


class TestSplit:
    def test_parts_are_sorted(self):
        split = Split(train=[2, 0], val=(1,), test=np.array([9, 8], np.uint8), note="mine")
        assert split.train.tolist() == [0, 2]
        assert split.test.tolist() == [8, 9]
        assert split.test.dtype == np.int64
        assert split.sizes() == {"train": 2, "val": 1, "test": 2}

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ({"train": [0, 1], "val": [1]}, r"split.val shares 1 node \(first: 1\)"),
            ({"val": [3, 4], "test": [4, 3]}, r"split.test shares 2 nodes \(first: 3\)"),
            ({"train": [1, 1]}, "split.train has 1 duplicate node;"),
            ({"train": [0.5]}, "split.train has type float64"),
            ({"train": [[1, 2]]}, r"split.train has type int64 and shape \(1, 2\)"),
        ],
    )
    def test_contradictions(self, parts, message):
        with pytest.raises(GraphError, match=message):
            Split(**parts)


class TestImmutability:
    def test_arrays_are_read_only(self):
        graph = Graph(PATH, sp.csr_array(EYE), [0, 1, 0])
        for array in (
            graph.labels,
            graph.adjacency.data,
            graph.adjacency.indices,
            graph.adjacency.indptr,
            graph.features.data,
        ):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7
        with pytest.raises(ValueError, match="read-only"):
            Graph(PATH, EYE).features[0, 0] = 7
        with pytest.raises(dataclasses.FrozenInstanceError):
            graph.labels = np.zeros(3)  # pyright: ignore[reportAttributeAccessIssue]

    def test_what_the_caller_does_afterwards_changes_nothing(self):
        adjacency, features = sp.csr_array(PATH), EYE.copy()
        labels, names, ids = np.array([0, 1, 0]), ["a", "b", "c"], [7, 8, 9]
        graph = Graph(adjacency, features, labels, feature_names=names, node_ids=ids)
        adjacency.data[:], features[:], labels[:], names[0], ids[0] = 9, 9, 9, "z", 0
        np.testing.assert_array_equal(graph.adjacency.toarray(), PATH)
        np.testing.assert_array_equal(graph.features, EYE)
        assert graph.labels.tolist() == [0, 1, 0]
        assert graph.feature_names == ("a", "b", "c")
        assert graph.node_ids == (7, 8, 9)
        assert repr(Graph(PATH, EYE, node_ids=np.array(ids)).node_ids) == "(0, 8, 9)"

    def test_other_splits_and_labels_make_other_graphs(self):
        graph = Graph(PATH, EYE, [0, 1, 0], class_names=["a", "b"], node_ids=[7, 8, 9])
        other = graph.with_split(Split(train=[0, 1]))
        assert other is not graph
        assert other.split.train.tolist() == [0, 1]
        assert graph.split.train.size == 0
        assert other.class_names == ("a", "b")
        relabelled = other.with_labels([2, -1, -1])
        assert relabelled.num_classes == 3
        assert relabelled.split.train.size == 0
        assert list(relabelled.node_ids or ()) == [7, 8, 9]


class TestFromEdges:
    def test_weights_are_summed_in_one_direction_and_the_larger_direction_counts(self):
        edges = [(0, 1), (0, 1), (1, 0), (1, 2), (2, 1)]
        graph = Graph.from_edges(edges, EYE, weights=[1, 2, 2.5, 4, 4])
        np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 3, 0], [3, 0, 4], [0, 4, 0]])

    @pytest.mark.parametrize(
        ("edges", "weights", "message"),
        [
            ([0, 1], None, r"edges has shape \(2,\); pass one \(source, target\) per row"),
            ([(0, 1, 2)], None, r"edges has shape \(1, 3\)"),
            ([(0, 1, 2), (1, 2, 0)], None, r"PyTorch Geometric edge_index; pass edge_index.T"),
            ([(0.0, 1.0)], None, "edges has type float64; pass integer node indices"),
            ([(0, 1), (1, 3)], None, r"edge 1 is \(1, 3\) but the graph has 3 nodes; .* 0 to 2"),
            ([(-1, 0)], None, r"edge 0 is \(-1, 0\)"),
            ([(0, 1)], [1, 2], r"weights has shape \(2,\) for 1 edge"),
            ([(0, 1)], [-1.5], "the smallest edge weight is -1.5"),
            ([(0, 1), (1, 0)], [3, -1], "the smallest edge weight is -1"),
            ([(0, 1)], [np.nan], "edge weights contain NaN or infinity"),
        ],
    )
    def test_contradictions(self, edges, weights, message):
        with pytest.raises(GraphError, match=message):
            Graph.from_edges(edges, EYE, weights=weights)

    @given(
        edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20),
        seed=st.integers(0, 1000),
    )
    def test_the_result_is_symmetric_hollow_and_independent_of_order(self, edges, seed):
        features = np.eye(6)
        matrix = Graph.from_edges(edges, features).adjacency.toarray()
        np.testing.assert_array_equal(matrix, matrix.T)
        assert not matrix.diagonal().any()
        pairs = {frozenset(edge) for edge in edges if edge[0] != edge[1]}
        assert matrix.sum() == 2 * len(pairs)
        rng = np.random.default_rng(seed)
        shuffled = [edges[i][:: rng.choice([-1, 1])] for i in rng.permutation(len(edges))]
        np.testing.assert_array_equal(
            Graph.from_edges(shuffled, features).adjacency.toarray(), matrix
        )


def test_a_pickled_graph_is_as_immutable_as_the_first(graphs):
    back = pickle.loads(pickle.dumps(graphs(sparse=True)))
    for array in (back.adjacency.data, back.features.data, back.labels):
        assert not array.flags.writeable
    assert (back.adjacency != graphs(sparse=True).adjacency).nnz == 0


def test_masks_count_as_indices_and_must_fit():
    masks = Split(train=np.array([True, False, True]), val=np.array([False, True, False]))
    assert masks.train.tolist() == [0, 2]
    graph = Graph.from_edges([(0, 1)], np.eye(3), [0, 1, 1], split=masks)
    assert graph.split.val.tolist() == [1]
    with pytest.raises(GraphError, match="split has a mask of 3 nodes but the graph has 4"):
        Graph.from_edges([(0, 1)], np.eye(4), [0, 1, 1, 0], split=masks)


def test_node_ids_are_different():
    with pytest.raises(GraphError, match="node_ids has 'a' more than once"):
        Graph.from_edges([(0, 1)], np.eye(2), node_ids=["a", "a"])
