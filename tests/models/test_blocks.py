"""Hop blocks of directions and channels: values, gradients and explanations are dense algebra's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.test_relations import arcs_graph, dense_hops
from tests.untidy import SEEDS

import hoplite
from hoplite import Graph, ModelConfig, model_config
from hoplite.engine import propagation
from hoplite.engine.dropout import Dropout
from hoplite.engine.evaluation import KeptHops, KeptRows, WeightsFirst
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError
from hoplite.explain import Explainer, flips
from hoplite.graph import relations_of
from hoplite.models import build_model

CHANNELS = ("", "random_walk", "renormalized,adjacency,random_walk", "random_walk,laplacian")
GRAPHS = ("plain", "directed", "types")


def untidy_graph(seed: int, kind: str, dtype: Any = np.float64) -> Graph:
    """Weights over magnitudes, doubles, loops, sinks, sources and nodes without any edge."""
    directed = kind == "directed"
    return arcs_graph(np.random.default_rng(seed), directed=directed, types=kind == "types",
                      dtype=dtype)  # fmt: skip


def dense_blocks(graph: Graph, config: ModelConfig) -> np.ndarray:
    """I, then p_1 .. p_k of every matrix, relation by relation: (1 + P k, n, n)."""
    if not graph.relations:  # as the only relation
        (whole,) = relations_of(graph.adjacency, directed=False)
        graph = graph.with_features(graph.features)
        object.__setattr__(
            graph, "relations", (dataclasses.replace(whole, loop_weight=graph.loop_weight),)
        )
    every = [dense_hops(graph, one, config.basis, config.hops) for one in config.operators]
    found, k = [every[0][:1]], config.hops
    for r in range(len(graph.relations)):
        found += [one[1 + r * k : 1 + (r + 1) * k] for one in every]
    return np.concatenate(found)


@examples(40)
@given(
    seed=SEEDS,
    kind=st.sampled_from(GRAPHS),
    channels=st.sampled_from(CHANNELS),
    basis=st.sampled_from(["monomial", "chebyshev", "jacobi:1,0.5"]),
    hops=st.integers(0, 3),
    rows=st.sampled_from([[7], [3, 0, 3, 11, 24]]),
    near=st.booleans(),
    dropped=st.booleans(),
)
def test_values_and_gradients(
    seed: int,
    kind: str,
    channels: str,
    basis: str,
    hops: int,
    rows: list[int],
    near: bool,
    dropped: bool,
) -> None:
    """Weights first, and from kept hops without dropout, of scattered rows."""
    graph, rng = untidy_graph(seed, kind), np.random.default_rng(seed)
    config = model_config("blocks", hops, basis=basis, channels=channels)
    model = build_model(config, 4, 3, graph.relation_weights)
    powers = dense_blocks(graph, config)
    assert model.shapes() == {"theta": (len(powers), 4, 3)}
    theta, gradient = rng.standard_normal((len(powers), 4, 3)), rng.standard_normal((len(rows), 3))
    dropout = Dropout(0.5, seed % 99) if dropped else None
    source, nodes = Propagation.of(graph, config), np.array(rows)
    assert source.slices == len(powers)
    with pytest.MonkeyPatch.context() as patch:  # whether far nodes are left out
        patch.setattr(propagation, "MAX_NEAR", 1.0 if near else 0.0)
        orders = [WeightsFirst(source, nodes)]
    orders += [] if dropped else [KeptHops.of(source, nodes), KeptRows.of_hops(source, nodes)]
    every = powers[:, rows] @ source.features.dense(dropout)
    for order in orders:
        found = order.evaluate(model.filter({"theta": theta}), dropout)
        wanted = np.einsum("knd,kdm->nm", every, theta)
        np.testing.assert_allclose(found.values, wanted, rtol=1e-8, atol=1e-8)
        wanted = np.einsum("knd,nm->kdm", every, gradient)
        np.testing.assert_allclose(found.gradient(gradient).maps, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("standardize", [False, True])
def test_explanations_add_up(kind: str, channels: str, standardize: bool, tmp_path: Path) -> None:
    graph = untidy_graph(6, kind)
    options: dict[str, Any] = {"hops": 2, "channels": channels, "standardize": standardize}
    model = hoplite.train(graph, "blocks", epochs=5, bias=True, **options).model
    again = hoplite.TrainedModel.load(model.save(tmp_path / "m"))
    np.testing.assert_array_equal(again.logits(graph), model.logits(graph))
    powers = dense_blocks(graph, model.config)
    theta, x = again.weights["theta"].astype(np.float64), graph.features
    explainer = Explainer(again, graph)
    logits = again.logits(graph)
    spread = np.einsum("knu,ud,kdm->nm", powers, x, theta).std(axis=0) if standardize else 1.0
    for node in (0, 7, 24):
        found = explainer.explain(graph.node_ids[node], alone=True)
        c = again.class_names.index(found.class_)
        wanted = np.einsum("ku,ud,kd->k", powers[:, node], x, theta[..., c])
        np.testing.assert_allclose(found.by_hop, wanted / np.atleast_1d(spread)[c * standardize],
                                   atol=1e-9)  # fmt: skip
        total = found.constant + found.by_hop.sum()
        np.testing.assert_allclose(total, logits[node, c], atol=1e-6)
        assert abs(found.residual) < 1e-9
        np.testing.assert_allclose(found.by_node.sum(), found.by_hop.sum(), atol=1e-9)
        np.testing.assert_allclose(found.by_feature.sum(), found.by_hop.sum(), atol=1e-9)
        parts = [(part["hop"], part.get("relation")) for part in found.to_dict()["hops"]]
        assert parts == found.hops
        assert len(set(parts)) == len(powers)
    names = {
        ("plain", CHANNELS[2]): ["renormalized", "adjacency", "random_walk"],
        ("directed", ""): ["out", "in"],
        ("directed", CHANNELS[3]): [
            "out random_walk", "out laplacian", "in random_walk", "in laplacian",
        ],
    }  # fmt: skip
    assert again.parts_ == names.get((kind, channels), again.parts_)
    assert again.filter_coefficients_.shape == ((len(again.parts_), 3) if again.parts_ else (3,))
    np.testing.assert_allclose(
        np.ravel(again.filter_coefficients_)[:3],
        np.linalg.norm(again.maps_, axis=(1, 2))[:3],
        rtol=1e-5,
    )
    if again.parts_ or channels == "random_walk":
        with pytest.raises(hoplite.HopliteError, match="if removed, because"):
            flips(again, graph, graph.node_ids[0])


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ("renormalized,walk", "channels is 'walk'; it must be one of"),
        ("adjacency,adjacency", "which has duplicate operators"),
        ("adjacency,,laplacian", "channels is ''; it must be"),
        (3, "channels is 3; it must be a comma-separated list"),
    ],
)
def test_bad_channels(channels: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_config("blocks", channels=channels)
    with pytest.raises(ConfigError, match="channels"):
        hoplite.train("cora", "lgc", channels=channels)
