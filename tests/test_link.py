"""Links as features: [X | A] equals dense algebra, and means the nodes that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from tests import untidy
from tests.examples import examples
from tests.test_relations import arcs_graph, tables

import hoplite
from hoplite import Graph
from hoplite.errors import ConfigError, GraphError, HopliteWarning, ModelFileError
from hoplite.explain import Explainer, flips
from hoplite.structural import links_among, structural_count, with_link


def size_of(x: np.ndarray) -> float:
    lengths = [np.linalg.norm(row.astype(np.float64)) for row in x]
    return float(np.sqrt(np.mean(np.square(lengths)))) or 1.0


def dense_links(adjacency: Any, size: float) -> np.ndarray:
    found = adjacency.toarray().astype(np.float64)
    for row in found:
        length = np.linalg.norm(row)
        if length:
            row *= size / length
    return found


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@examples(15)
@given(untidy.graphs())
def test_they_are_the_rows_of_the_adjacency(graph: Graph) -> None:
    made, d = with_link(graph), graph.num_features
    assert sp.issparse(made.features)
    assert made.features.dtype == graph.features.dtype
    found = made.features.toarray()
    plain = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    np.testing.assert_array_equal(found[:, :d], plain)
    wanted = dense_links(graph.adjacency, size_of(plain))
    np.testing.assert_allclose(found[:, d:], wanted, rtol=1e-5, atol=1e-6)
    assert links_among(made.feature_names) == range(d, d + graph.num_nodes)


def test_weights_of_any_size() -> None:
    graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(4), weights=[1e-30, 3e-30])
    for scale in (1.0, 1e200):  # of the features, too
        found = with_link(graph.with_features(scale * np.eye(4))).features.toarray()[:, 4:]
        np.testing.assert_allclose(found[1, [0, 2]], [scale * 10**-0.5, scale * 0.9**0.5])
        assert not found[3].any()
    none = with_link(graph.with_features(np.zeros((4, 2)))).features.toarray()
    np.testing.assert_allclose(np.linalg.norm(none, axis=1), [1, 1, 1, 0])


def test_directions_and_types_have_links_each() -> None:
    rng = np.random.default_rng(2)
    graph = arcs_graph(rng, types=False)
    made = with_link(graph)
    for r, relation in enumerate(graph.relations):
        own = made.features.toarray()[:, 4 + 25 * r : 29 + 25 * r]
        wanted = dense_links(relation.adjacency, size_of(graph.features))
        np.testing.assert_allclose(own, wanted, atol=1e-12)
    names = made.feature_names or ()
    first, last = graph.node_ids[0], graph.node_ids[-1]
    assert names[3:5] == ("x3", f"link to {first}")
    assert names[-1] == f"link from {last}"
    typed = with_link(arcs_graph(rng)).feature_names or ()
    assert typed[-1].startswith("link to node")
    assert typed[-1].endswith("(pay:in)")


@pytest.mark.parametrize("directed", [False, True])
def test_logits_and_explanations_are_those_of_dense_algebra(directed: bool, tmp_path: Path) -> None:
    """[X | A] Theta_0 + S [X | A] Theta_1: hop 0 of the links is LINK."""
    graph = with_link(arcs_graph(np.random.default_rng(3), directed=directed, types=False))
    model = hoplite.train(graph, "blocks", hops=1, operator="adjacency", epochs=4, bias=True).model
    model = hoplite.TrainedModel.load(model.save(tmp_path / "m"))
    x, theta = graph.features.toarray(), model.weights["theta"].astype(np.float64)
    powers = [np.eye(25)]
    for rows in [r.adjacency for r in graph.relations] or [graph.adjacency]:
        a = rows.toarray().astype(np.float64)
        out, into = a.sum(axis=1), a.sum(axis=0)
        roots = np.sqrt(np.outer(np.where(out, out, 1), np.where(into, into, 1)))
        powers.append(a / roots)
    wanted = sum(p @ x @ t for p, t in zip(powers, theta, strict=True))
    wanted = wanted + model.weights["bias"].astype(np.float64)
    np.testing.assert_allclose(model.logits(graph), wanted, atol=1e-6)
    found = Explainer(model, graph).explain(graph.node_ids[2], alone=True)
    assert abs(found.residual) < 1e-9
    np.testing.assert_allclose(found.by_feature.sum(), found.by_hop.sum(), atol=1e-9)
    assert any(part.name.startswith("link ") for part in found.top("features", 100))
    with pytest.raises(hoplite.HopliteError, match="if removed, because"):
        flips(model, graph, graph.node_ids[2])


def test_tables_links_and_vectors(tmp_path: Path) -> None:
    folder = tables(tmp_path / "t")
    graph = hoplite.load(folder, directed=True, link=True, structural=2)
    assert graph.num_features == 1 + 2 * 40 + 4
    assert structural_count(graph.feature_names) == 2
    assert links_among(graph.feature_names) == range(1, 81)
    model = hoplite.train(graph, "blocks", hops=1, epochs=2).model
    with pytest.warns(HopliteWarning, match="'vector 1' to 'vector 2'"):
        again = hoplite.load(folder, prepare=model)  # ids tell what a link is
    np.testing.assert_array_equal(model.logits(again), model.logits(graph))
    linked = hoplite.load(folder, link=True)
    model = hoplite.train(linked, "blocks", hops=1, epochs=2).model
    np.testing.assert_array_equal(
        model.logits(hoplite.load(folder, prepare=model)), model.logits(linked)
    )
    with pytest.raises(GraphError, match="links as features, which refer to its own nodes"):
        hoplite.io.extend(linked, folder)
    others = linked.with_node_ids([f"b{i}" for i in range(40)])
    names = [name.replace("link to a", "link to b") for name in linked.feature_names or ()]
    others = others.with_features(linked.features, names, preparation=linked.preparation)
    with pytest.raises(ModelFileError, match="the model expects feature 'link to a"):
        model.logits(others)
    with pytest.raises(
        ConfigError, match=r"link is True, but .* already has its split and features"
    ):
        hoplite.open_data(linked, link=True)
    with pytest.raises(ConfigError, match="link is 3; it must be True or False"):
        hoplite.load(folder, link=3)


def test_a_column_that_is_called_like_a_link_is_none(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"n{i},{'ab'[i % 2]},{rng.normal():.3f},{rng.normal():.3f}" for i in range(40)]
    (tmp_path / "nodes.csv").write_text("id,label,link to home,age\n" + "\n".join(rows) + "\n")
    edges = [f"n{a},n{b}" for a, b in rng.integers(0, 40, (60, 2)) if a != b]
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    model = hoplite.train(tmp_path, "lgc", hops=1, epochs=3).model
    assert model.feature_names == ("link to home", "age")
    again = hoplite.open_data(tmp_path, prepare=model).in_memory()
    assert again.num_features == 2
    assert len(model.predict(again)) == 40
