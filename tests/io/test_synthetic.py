"""Synthetic graphs: what must hold of every one, and what they look like on average."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.io.test_npz import same_graph

from hoplite.io import load, reddit_like, synthetic

PINNED = (
    [1, 20, 32, 36, 38, 39, 41, 0],
    [0, 0, 2, 2, 0, 1, 2, 2],
    [-0.316463, 1.638604, 0.8512681],
)


def homophily(graph):
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.adjacency.indptr))
    return (graph.labels[rows] == graph.labels[graph.adjacency.indices]).mean()


@st.composite
def arguments(draw: st.DrawFn) -> dict:
    nodes = draw(st.integers(1, 60))
    return {
        "nodes": nodes,
        "edges": draw(st.integers(0, nodes * (nodes - 1) // 4)),
        "features": draw(st.integers(1, 4)),
        "classes": draw(st.integers(1, min(nodes, 6))),
        "homophily": draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])),
        "exponent": draw(st.sampled_from([2.01, 2.5, 3.0, 10.0])),
        "max_degree": draw(st.none() | st.integers(1, 80)),
        "separation": draw(st.sampled_from([0.0, 3.0])),
        "misfits": draw(st.sampled_from([0.0, 0.2, 1.0])),
        "skew": draw(st.sampled_from([0.0, 0.5, 3.0])),
        "split": draw(st.sampled_from([(0.6, 0.2), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)])),
        "seed": draw(st.integers(0, 2**40)),
    }


@given(given=arguments())
@examples(60)
def test_every_graph_is_simple_and_of_the_size_asked_for(given):
    graph = synthetic(**given)
    adjacency = graph.adjacency.toarray()
    assert adjacency.shape == (given["nodes"], given["nodes"])
    assert set(np.unique(adjacency)) <= {0, 1}
    assert (adjacency == adjacency.T).all()
    assert not adjacency.diagonal().any()
    assert adjacency.sum() == 2 * given["edges"]
    assert graph.num_edges == given["edges"]
    assert graph.adjacency.indices.dtype == graph.adjacency.indptr.dtype == np.int32
    assert graph.features.shape == (given["nodes"], given["features"])
    assert graph.features.dtype == np.float32
    assert np.unique(graph.labels).tolist() == list(range(given["classes"]))
    assert graph.num_classes == given["classes"]
    parts = np.concatenate([graph.split.train, graph.split.val, graph.split.test])
    assert np.sort(parts).tolist() == list(range(given["nodes"]))
    assert np.unique(graph.labels[graph.split.train]).size == given["classes"]
    same_graph(graph, synthetic(**given))


@given(seed=st.integers(0, 2**32), asked=st.floats(0, 1))
@examples(20)
def test_homophily_is_what_was_asked_for(seed, asked):
    graph = synthetic(1500, 9000, 1, 4, homophily=asked, exponent=3.5, seed=seed)
    assert homophily(graph) == pytest.approx(asked, abs=1e-3)


def test_the_bits_are_those_of_the_day_it_was_written():
    """A graph that others have used must not silently become another one."""
    graph = synthetic(50, 120, 3, 4, misfits=0.1, skew=0.5, seed=7)
    ends = graph.adjacency.indices[:8].tolist()
    assert (ends, graph.labels[:8].tolist()) == PINNED[:2]
    np.testing.assert_allclose(graph.features[0], PINNED[2], rtol=1e-5)


def test_reddit_like_by_name():
    graph = load("Reddit-Like:0.005", seed=1)
    same_graph(graph, reddit_like(0.005, seed=1))
    assert graph.name == "reddit-like:0.005"
    sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert sizes == (1165, 286_540, 602, 41)
    assert graph.split.sizes() == {"train": 767, "val": 119, "test": 279}
