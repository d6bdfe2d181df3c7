"""Numbers of nodes: the task by scikit-learn, and the regressors inside its machinery."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from hoplite import (
    EGCRegressor,
    Graph,
    HopFeatures,
    HyperLGCRegressor,
    LGCRegressor,
    SGCRegressor,
    Split,
    TrainedModel,
    train,
)
from hoplite.errors import GraphError
from hoplite.explain import explain
from hoplite.predictions import predict_table

REGRESSORS = [SGCRegressor, EGCRegressor, LGCRegressor, HyperLGCRegressor]


@pytest.fixture(scope="module")
def valued():
    """A graph without labels, and values far from 0 that one hop can nearly tell."""
    rng = np.random.default_rng(7)
    edges = rng.integers(0, 85, (160, 2))  # the last nodes are isolated
    graph = Graph.from_edges(
        edges, rng.standard_normal((90, 5)), node_ids=[f"n{i}" for i in range(90)]
    )
    hops = HopFeatures(graph, hops=1).fit_transform(np.arange(90))
    values = 5000 + 300 * hops @ rng.standard_normal(5) + 20 * rng.standard_normal(90)
    order = rng.permutation(90)
    return graph, values, order[:50], order[50:70], order[70:]


def test_without_a_penalty_it_is_linear_regression(valued):
    graph, values, train, _val, test = valued
    ours = SGCRegressor(
        graph, 1, bias=True, dropout=0, weight_decay=0, optimizer="lbfgs", lr=1, epochs=60
    ).fit(train, values[train])
    hops = HopFeatures(graph, hops=1).fit_transform(np.arange(90))
    theirs = LinearRegression().fit(hops[train], values[train])
    np.testing.assert_allclose(ours.predict(test), theirs.predict(hops[test]), rtol=1e-3)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-2)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-2)
    assert ours.score(test, values[test]) > 0.9


def test_values_of_extreme_size_are_refused_with_a_true_sentence(valued):
    graph, values, train, val, test = valued
    model = SGCRegressor(graph, 1, epochs=2)
    with pytest.raises(GraphError, match=r"a number of size 5\.\d+e\+303; rescale the labels"):
        model.fit(train, values[train] * 1e300)
    with pytest.raises(GraphError, match="a number of size 1e\\+300"):
        model.fit(train, values[train], validation=(val, np.full(len(val), 1e300)))
    with pytest.raises(GraphError, match=r"differ by at most [\d.]+e-198, .* rescale the labels"):
        model.fit(train, values[train] * 1e-201)
    with pytest.raises(GraphError, match=r"all training nodes have the value 0\.1, so"):
        model.fit(train, np.full(len(train), 0.1))  # their standard deviation is not 0
    with pytest.raises(GraphError, match="a number of size 1e\\+300"):
        Graph.from_edges([(0, 1)], np.eye(3), [0.5, np.nan, -1e300])
    scores = [
        model.fit(train, values[train] * size).score(test, values[test] * size)
        for size in (1e-95, 1.0, 1e95)
    ]
    np.testing.assert_allclose(scores, scores[1], rtol=1e-6)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_fit_predict_clone_and_search(valued, kind):
    graph, values, train, val, test = valued
    model = kind(graph, hops=1, epochs=8, lr=0.05, dropout=0)
    assert is_regressor(model)
    assert clone(model).graph is graph
    assert not {"class_weight", "threshold"} & set(model.get_params())
    assert model.fit(train, values[train], validation=(val, values[val])) is model
    assert model.predict(test).shape == (20,)
    if kind is not HyperLGCRegressor:  # a network
        assert model.coef_.shape == (5,)
    losses = model.history_["train_loss"]
    assert losses[-1] < losses[0]
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(test), model.predict(test))
    assert cross_val_score(model, train, values[train], cv=3).shape == (3,)
    search = GridSearchCV(model, {"hops": [0, 1], "loss": ["squared", "huber"]}, cv=2)
    assert search.fit(train, values[train]).best_params_["hops"] in (0, 1)


def test_weights_masks_and_a_saved_model(valued, tmp_path):
    graph, values, train, _val, test = valued
    times = np.random.default_rng(1).integers(1, 4, len(train))
    options = {"hops": 1, "dropout": 0, "epochs": 20}
    # repeated nodes have another mean and deviation, so values that have those of the weights
    y = np.random.default_rng(2).standard_normal(len(train))
    weighted = SGCRegressor(graph, **options).fit(train, y, sample_weight=times)
    plain = SGCRegressor(graph, **options).fit(train, y)
    assert np.abs(weighted.coef_ - plain.coef_).max() > 1e-3
    mask = np.isin(np.arange(90), train)
    model = LGCRegressor(graph, **options).fit(np.sort(train), values[np.sort(train)])
    masked = LGCRegressor(graph, **options).fit(mask, values)
    np.testing.assert_array_equal(model.coef_, masked.coef_)
    folder = model.model_.save(tmp_path / "model")
    read = TrainedModel.load(folder)
    np.testing.assert_array_equal(read.predict(graph)[test], model.predict(test))
    table = predict_table(read, graph)
    assert list(table) == ["id", "predicted", "neighbours"]
    np.testing.assert_allclose(table["predicted"], read.predict(graph))
    labelled = graph.with_labels(np.arange(90) % 3, class_names=["a", "b", "c"])
    np.testing.assert_array_equal(read.predict(labelled), read.predict(graph))
    place = list(graph.node_ids).index("n3")
    assert explain(read, graph, "n3").margin == pytest.approx(read.predict(graph)[place])


def test_scores_are_named_for_every_task(valued):
    graph, values, train_nodes, val, test = valued
    graph = Graph(graph.adjacency, graph.features, values, split=Split(train_nodes, val, test))
    result = train(graph, "lgc", hops=1, epochs=20)
    assert result.test_score == pytest.approx(result.metrics("test")["r2"].mean)
    assert result.val_score == result.runs[0].val_score
    for scored in (result, result.runs[0]):
        with pytest.raises(AttributeError, match="regression has no test_accuracy; use test_score"):
            _ = scored.test_accuracy
    classes = train("cora", "sgc", hops=1, epochs=3)
    assert classes.test_score == classes.test_accuracy


def test_random_state_is_the_seed(valued):
    graph, values, nodes, *_ = valued
    options = {"hops": 1, "epochs": 5, "dropout": 0.5}
    seeded = LGCRegressor(graph, seed=3, **options).fit(nodes, values[nodes])
    stated = LGCRegressor(graph, random_state=3, **options).fit(nodes, values[nodes])
    np.testing.assert_array_equal(seeded.predict(nodes), stated.predict(nodes))
    drawn = clone(stated).set_params(random_state=np.random.RandomState(0))
    assert np.isfinite(drawn.fit(nodes, values[nodes]).predict(nodes)).all()
