"""Self-loops have the mean weight of an edge: the unit of weights decides nothing, and is kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.untidy import UNTRAINED, graphs

import hoplite
from hoplite import Graph
from hoplite.operators import OPERATORS


def times(graph: Graph, factor: float) -> Graph:
    """All weights multiplied."""
    adjacency = graph.adjacency.astype(np.float64) * factor
    return Graph(adjacency, graph.features, graph.labels, graph.split, graph.class_names)


def weighted(seed: int = 0, n: int = 40, unit: float = 1.0) -> Graph:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    edges = rng.integers(0, n, (3 * n, 2))
    return Graph.from_edges(
        edges,
        (rng.standard_normal((n, 4)) + labels[:, None]).astype(np.float32),
        labels,
        weights=unit * rng.uniform(1, 90, len(edges)),
        split=hoplite.Split(np.arange(0, n, 2), np.arange(1, n, 4), np.arange(3, n, 4)),
    )


@pytest.mark.filterwarnings(UNTRAINED)
@examples(15)
@given(
    graph=graphs(),
    factor=st.floats(-9, 9).map(lambda power: 10.0**power),
    name=st.sampled_from(sorted(OPERATORS)),
)
def test_the_unit_of_weights_decides_nothing(graph: Graph, factor: float, name: str) -> None:
    scaled, operator = times(graph, factor), OPERATORS[name]
    assert scaled.loop_weight == pytest.approx(
        graph.loop_weight * (factor if graph.num_edges else 1), rel=1e-12
    )
    ours, theirs = (operator.matrix(one, np.float64).toarray() for one in (graph, scaled))
    np.testing.assert_allclose(theirs, ours, atol=1e-12)
    options = {"hops": 2, "operator": name, "epochs": 3, "seeds": 2, "dropout": 0.0}
    results = [hoplite.train(one, "lgc", **options) for one in (graph, scaled)]
    for one, other in zip(*(result.runs for result in results), strict=True):
        np.testing.assert_allclose(
            one.model.predict_proba(graph), other.model.predict_proba(scaled), atol=2e-3
        )


def test_the_mean_weight_of_every_edge_once() -> None:
    pairs, weights = [(0, 1), (1, 0), (1, 2), (3, 3)], [2.0, 5.0, 3.0, 1000.0]
    graph = Graph.from_edges(pairs, np.eye(4), weights=weights)
    assert graph.loop_weight == 4.0  # 5 and 3: the larger way counts, a loop of one's own does not
    assert Graph.from_edges(pairs, np.eye(4)).loop_weight == 1.0
    assert Graph.from_edges([], np.eye(4)).loop_weight == 1.0
    assert hoplite.load("cora").loop_weight == 1.0
    matrix = OPERATORS["renormalized"].matrix(graph).toarray()
    np.testing.assert_allclose(matrix[0, :2], [4 / 9, 5 / np.sqrt(9 * 12)])
    assert graph.with_split(hoplite.Split()).with_loop_weight(7).with_features(
        np.eye(4)
    ).loop_weight == 7  # fmt: skip


def test_a_model_keeps_its_number(tmp_path: Path) -> None:
    """On another graph, too, and after it was saved; files without it have 1."""
    graph, other = weighted(0), weighted(1, unit=50.0)
    model = hoplite.train(graph, "lgc", hops=2, epochs=3).model
    assert model.loop_weight == graph.loop_weight != other.loop_weight
    wanted = model.logits(other.with_loop_weight(graph.loop_weight))
    np.testing.assert_array_equal(model.logits(other), wanted)
    again = hoplite.TrainedModel.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(again.logits(other), wanted)
    assert not np.allclose(
        wanted, hoplite.train(other, "lgc", hops=2, epochs=3).model.logits(other)
    )
