"""What ``train`` does with tables if no model is given: hop blocks, and the degree as a column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from tests.io.test_extend import write

import hoplite
from hoplite import TrainedModel
from hoplite.explain import Explainer, explain
from hoplite.store import StoreError, propagate, update_store
from hoplite.structural import with_log_degree, with_structural

ACCOUNTS = 1500


def tables(seed=0, n=ACCOUNTS, weights=False):
    """Accounts of which 4 % are fraudulent, by the means of columns over their neighbours.

    One column counts at distance 1, another at distance 2 and the third at the account itself.
    """
    rng = np.random.default_rng(seed)
    activity = rng.pareto(2.0, n) + 0.3
    ends = rng.choice(n, (2, 3 * n), p=activity / activity.sum())
    ends = ends[:, ends[0] != ends[1]]
    columns = rng.standard_normal((n, 5))
    adjacency = np.zeros((n, n))
    np.add.at(adjacency, (*ends,), 1)
    adjacency += adjacency.T
    degrees = adjacency.sum(axis=1)
    means = adjacency / np.maximum(degrees, 1)[:, None]
    near = means @ columns
    parts = [near[:, 0], -(means @ near)[:, 1], columns[:, 2] / 2, np.log1p(degrees) / 2]
    score = sum(part / part.std() for part in parts[:2]) + sum(parts[2:])
    fraud = score > np.quantile(score, 0.96)
    ids = np.array([f"A{i}" for i in range(n)])
    nodes = {"id": ids, **{f"x{j}": columns[:, j] for j in range(5)}}
    nodes |= {"label": np.where(fraud, "fraud", "fine")}
    edges = {"source": ids[ends[0]], "target": ids[ends[1]]}
    edges |= {"weight": rng.uniform(5, 15, ends.shape[1])} if weights else {}
    return pa.table(nodes), pa.table(edges)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables") / "accounts", *tables())


@pytest.fixture(scope="module")
def result(folder):
    return hoplite.train(folder)


def test_rare_fraud_is_found_without_any_option(folder, result):
    config, training = result.model_config, result.training_config
    assert (config.model, training.optimizer) == ("blocks", "path")
    assert config == hoplite.model_config("blocks", hops=2, operator="random_walk", bias=True)
    assert training.dropout == 0
    assert result.model.feature_names == (*(f"x{j}" for j in range(5)), "log degree")
    lgc = hoplite.train(folder, "lgc")
    assert lgc.model_config == hoplite.model_config("lgc")
    assert "log degree" not in lgc.model.feature_names
    found, other = (one.metrics("val")["average_precision"].mean for one in (result, lgc))
    assert found > 0.6
    assert found > other + 0.4


def test_prediction_adds_the_column_by_itself(folder, result, tmp_path):
    model = TrainedModel.load(result.model.save(tmp_path / "model"))
    wanted = result.model.logits(result.graph)
    plain, prepared = hoplite.load(folder), hoplite.load(folder, prepare=model)
    assert plain.num_features == 5
    assert prepared.feature_names == model.feature_names
    for graph in (plain, prepared, tables()):
        np.testing.assert_array_equal(model.logits(graph), wanted)
    explained = explain(model, plain, "A5")
    assert {cell.name for cell in explained.summary().features.top} <= {*model.feature_names}


def test_a_store_for_the_model_has_the_column(folder, tmp_path):
    model = hoplite.train(folder, operator="adjacency", epochs=5).model
    store = propagate(folder, tmp_path / "store", hops=2, operator="adjacency", prepare=model)
    assert store.feature_names == model.feature_names
    np.testing.assert_allclose(
        model.logits(store), model.logits(hoplite.load(folder)), rtol=1e-4, atol=1e-4
    )
    new = pa.table({"id": ["new"], **{f"x{j}": [0.5] for j in range(5)}})
    with pytest.raises(StoreError, match="has structural features, which change"):
        update_store((new, None), tmp_path / "store")


def test_a_degree_means_the_same_in_other_tables():
    """The unit of weights is that of the training: half of the weights are half of the degrees."""
    nodes, edges = tables(weights=True, n=400)
    model = hoplite.train((nodes, edges)).model
    half = edges.set_column(2, "weight", pa.array(edges["weight"].to_numpy() / 2))
    graph = hoplite.open_data((nodes, half), prepare=model).in_memory()
    assert model.feature_names[5:] == ("log degree", "log weighted degree")
    rows = graph.adjacency.toarray()
    degrees = np.column_stack([(rows > 0).sum(axis=1), rows.sum(axis=1) / model.loop_weight])
    by_hand = graph.with_features(
        np.hstack([graph.features[:, :5], np.log1p(degrees).astype(np.float32)]),
        model.feature_names,
        preparation=graph.preparation,
    )
    np.testing.assert_allclose(model.logits(graph), model.logits(by_hand), rtol=1e-5, atol=1e-5)
    assert not np.allclose(model.logits(graph), model.logits((nodes, edges)))
    plain = nodes, edges.drop_columns(["weight"])
    prepared = model.aligned(hoplite.open_data(plain, prepare=model).in_memory())
    counts = np.diff(prepared.adjacency.indptr)
    wanted = np.log1p(np.column_stack([counts, counts / model.loop_weight]))
    np.testing.assert_allclose(prepared.features[:, 5:], wanted, rtol=1e-5)
    unweighted = hoplite.train(plain).model
    assert unweighted.feature_names[5:] == ("log degree",)
    assert unweighted.aligned(graph).feature_names[5:] == ("log degree",)


def test_nodes_that_arrive_have_the_column(folder, result):
    new = pa.table({"id": ["new"], **{f"x{j}": [0.5] for j in range(5)}})
    edges = pa.table({"source": ["new", "new"], "target": ["A1", "A2"]})
    grown = hoplite.io.extend(result.graph, (new, edges))
    plain = hoplite.io.extend(hoplite.load(folder), (new, edges))
    assert grown.feature_names == result.model.feature_names
    assert grown.features[-1, -1] == pytest.approx(np.log(3))
    np.testing.assert_allclose(result.model.logits(grown), result.model.logits(plain))


@pytest.mark.parametrize("sparse", [False, True])
def test_log_degrees_are_explained_without_their_mean(sparse):
    graph = hoplite.io.from_frames(*tables(n=300))
    data = with_log_degree(graph.with_features(sp.csr_array(graph.features)) if sparse else graph)
    explainer = Explainer(hoplite.train(data, "blocks", hops=2).model, data)
    exact, column = explainer.exact, np.log1p(np.diff(graph.adjacency.indptr))
    alone = int(column.argmin())
    assert column[alone] == 0
    for node in (alone, int(column.argmax()), 7):
        why = explainer.explain_at(node)
        parts = why.by_hop, why.by_node, why.by_feature, why.node_feature, why.hop_feature
        for part in parts:
            total = why.constant + why.threshold_part + part.sum()
            assert total == pytest.approx(why.margin, abs=1e-5)
        weights = exact.maps[:, -1, why.target] - exact.maps[:, -1, why.rival]
        expected = weights @ why.reach @ (column - column.mean())
        assert why.by_feature[-1] == pytest.approx(expected, abs=1e-6)


def test_structural_features_are_explained_without_their_means():
    data = with_structural(hoplite.io.from_frames(*tables(n=300)), 2)
    explainer = Explainer(hoplite.train(data, "lgc", hops=2, epochs=5).model, data)
    own = np.asarray(data.features, np.float64).mean(axis=0) * (np.arange(data.num_features) > 4)
    np.testing.assert_allclose(explainer.exact.centres, own, atol=1e-9)
    for why in map(explainer.explain_at, (0, 7)):
        for part in (why.by_hop, why.by_node, why.by_feature, why.node_feature):
            assert why.constant + part.sum() == pytest.approx(why.margin, abs=1e-5)
