"""Explanations from a hop store: equal to those from the graph, and to dense algebra."""

import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.explain.test_explain import CASES, check_neighbourhood
from tests.explain.test_explain import untrained as random_model
from tests.untidy import UNTRAINED, cut_store, folder
from tests.untidy import graphs as untidy_graphs

from hoplite import StoreError, propagate
from hoplite.explain import explain, flips
from hoplite.models import model_config
from hoplite.operators import SYMMETRIC


def untrained(config, graph, seed=0, names=None):
    return random_model(config, graph, seed, graph.class_names, names)


def check_equal(stored, whole):
    """All parts of two explanations of one node, to the rounding of float32."""
    scale = 1e-5 * (abs(whole.margin) + np.abs(whole.hop_node).sum() + abs(whole.constant) + 1e-3)
    for part in ("logits", "margin", "constant", "by_hop", "by_node", "by_feature"):
        np.testing.assert_allclose(getattr(stored, part), getattr(whole, part), atol=scale)
    for part in ("reach", "hop_node", "hop_feature", "coefficients"):
        np.testing.assert_allclose(getattr(stored, part), getattr(whole, part), atol=1e-5 + scale)
    gap = abs(stored.node_feature - whole.node_feature)
    assert gap.nnz == 0 or gap.max() < scale
    one, two = stored.to_dict(), whole.to_dict()
    clear = np.abs(whole.by_node)[[part["index"] for part in two["nodes"]["top"]]]
    if clear.size and np.all(np.diff(-clear) > 3 * scale):  # none that rounding could exchange
        assert [n["index"] for n in one["nodes"]["top"]] == [
            n["index"] for n in two["nodes"]["top"]
        ]
        assert [n["distance"] for n in one["nodes"]["top"]] == [
            n["distance"] for n in two["nodes"]["top"]
        ]
    check_neighbourhood(whole.exact.data, one)
    assert one["node"]["label"] == two["node"]["label"]


@pytest.mark.filterwarnings(UNTRAINED)
@given(
    graph=untidy_graphs(),
    case=st.sampled_from(CASES),
    operator=st.sampled_from(tuple(SYMMETRIC)),
    hops=st.integers(0, 4),
    rows=st.integers(1, 20),
    columns=st.integers(1, 9),
    standardize=st.booleans(),
)
@examples(25)
def test_any_store_explains_as_its_graph(graph, case, operator, hops, rows, columns, standardize):
    """Whatever its blocks are, for standardised models too, with fewer hops than it has."""
    model, basis = case
    config = model_config(model, hops, operator, basis, bias=True, standardize=standardize)
    trained = untrained(config, graph, seed=hops)
    with folder() as place:
        cut = Path(place) / "store"
        cut_store(graph, cut, rows, columns, hops=hops + 1, operator=operator, basis=basis)
        store = propagate(graph, cut, hops=hops + 1, operator=operator, basis=basis)
        node = graph.num_nodes // 2
        wanted = explain(trained, graph, node)
        classes = {"class_": wanted.class_, "against": wanted.against}
        check_equal(explain(trained, store, node, **classes), wanted)
        with patch.multiple("hoplite.explain.exact", BLOCK_ENTRIES=9, MIN_NUMBERS=9):
            check_equal(explain(trained, store, node, **classes), wanted)


def test_flips_of_a_store(graphs, tmp_path):
    """The same as of its graph, on the nodes within reach alone."""
    seen = 0
    for seed in range(5):
        graph = graphs(n=30, seed=seed, density=0.08, isolated=2, dtype=np.float32)
        store = propagate(graph, tmp_path / f"{seed}", hops=2)
        trained = untrained(model_config("lgc", 2), graph, seed)
        for node in range(0, 30, 7):
            found = flips(trained, store, graph.node_ids[node], budget=20)
            wanted = flips(trained, graph, graph.node_ids[node], budget=20)
            one, two = found.to_dict(), wanted.to_dict()
            for kind in ("edges", "nodes"):
                assert one[kind]["of"] == two[kind]["of"]
                seen += len(two[kind]["found"])
                assert [strip(flip) for flip in one[kind]["found"]] == [
                    strip(flip) for flip in two[kind]["found"]
                ]
            json.dumps(one, allow_nan=False)
    assert seen > 4
    with pytest.raises(StoreError, match="increase memory="):
        flips(trained, store, graph.node_ids[0], memory="1MB")


def strip(flip):
    return {name: value for name, value in flip.items() if name != "margin"}
