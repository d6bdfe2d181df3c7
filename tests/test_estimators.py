"""The estimators inside scikit-learn's own machinery."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from hoplite import (
    ConfigError,
    EGCClassifier,
    GraphError,
    HopFeatures,
    HyperLGCClassifier,
    LGCClassifier,
    SGCClassifier,
    train,
)

CLASSIFIERS = [SGCClassifier, EGCClassifier, LGCClassifier, HyperLGCClassifier]


@pytest.fixture
def task(graphs):
    graph = graphs(n=60, d=8, dtype=np.float32)
    return graph, np.arange(60), graph.labels


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_fit_predict_and_clone(task, kind):
    graph, nodes, y = task
    names = np.array(["ape", "bee", "cat"])[y]
    model = kind(graph, hops=2, epochs=5)
    copy = clone(model)
    assert copy.graph is graph
    assert copy.get_params() == model.get_params()
    assert model.fit(nodes[:40], names[:40]) is model
    assert set(model.predict(nodes[40:])) <= set(names)
    probabilities = model.predict_proba(nodes[40:])
    assert probabilities.shape == (20, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(
        model.predict(nodes), model.classes_[model.decision_function(nodes).argmax(axis=1)]
    )
    before = model.predict_proba(nodes)
    model.set_params(hops=9, operator="laplacian")  # for the next fit, not for this one
    np.testing.assert_array_equal(model.predict_proba(nodes), before)
    assert 0 <= model.score(nodes[40:], names[40:]) <= 1
    assert model.coefficients_.shape == (3,)
    assert model.coef_.shape == (3, 8)
    assert model.n_iter_ == 5


def test_cross_validation_and_grid_search(task):
    graph, nodes, y = task
    model = LGCClassifier(graph, epochs=5)
    assert cross_val_score(model, nodes, y, cv=3).shape == (3,)
    grid = {"hops": [1, 3], "operator": ["renormalized", "laplacian"]}
    search = GridSearchCV(model, grid, cv=3).fit(nodes, y)
    assert search.best_params_["hops"] in (1, 3)
    assert search.best_estimator_.graph is graph


def test_two_classes_follow_scikit_learns_convention(task):
    graph, nodes, y = task
    model = SGCClassifier(graph, hops=2, epochs=5).fit(nodes, y == 1)
    assert model.decision_function(nodes).shape == (60,)
    np.testing.assert_array_equal(model.decision_function(nodes) > 0, model.predict(nodes))
    scores = cross_val_score(model, nodes, y == 1, scoring="roc_auc", error_score="raise", cv=3)
    assert np.isfinite(scores).all()


def test_samples_may_be_a_column(task):
    graph, nodes, y = task
    flat = SGCClassifier(graph, epochs=3).fit(nodes, y).predict_proba(nodes)
    column = SGCClassifier(graph, epochs=3).fit(nodes[:, None], y).predict_proba(nodes[:, None])
    np.testing.assert_array_equal(flat, column)


def test_validation_stops_early_and_equals_train(task):
    graph, _, _ = task
    split, labels = graph.split, graph.labels
    options = {"hops": 2, "epochs": 40, "patience": 5}
    model = LGCClassifier(graph, seed=3, **options).fit(
        split.train, labels[split.train], validation=(split.val, labels[split.val])
    )
    result = train(graph, "lgc", seeds=[3], **options)
    assert model.n_iter_ == result.runs[0].epochs < 40
    np.testing.assert_array_equal(model.predict(np.arange(60)), result.model.predict(graph))


def test_hop_features_with_logistic_regression_is_sgc(cora):
    train_nodes, test_nodes = cora.split.train, cora.split.test
    pipeline = make_pipeline(HopFeatures(cora, hops=2), LogisticRegression(C=100, max_iter=500))
    pipeline.fit(train_nodes, cora.labels[train_nodes])
    ours = SGCClassifier(
        cora, hops=2, bias=True, dropout=0, weight_decay=1e-4, optimizer="lbfgs", lr=1, epochs=20
    ).fit(train_nodes, cora.labels[train_nodes])
    theirs = pipeline.predict(test_nodes)
    assert np.mean(theirs == cora.labels[test_nodes]) > 0.78
    assert np.mean(theirs == ours.predict(test_nodes)) > 0.97


@pytest.mark.parametrize("basis", ["monomial", "chebyshev"])
def test_hop_features_equal_dense(graphs, dense, basis):
    graph = graphs(sparse=True)
    powers = dense.basis(graph, "laplacian", basis, 3)
    features = dense.features(graph)
    nodes = [5, 1, 5]
    last = HopFeatures(graph, hops=3, operator="laplacian", basis=basis)
    np.testing.assert_allclose(last.fit_transform(nodes), (powers[3] @ features)[nodes], atol=1e-10)
    stacked = HopFeatures(graph, hops=3, operator="laplacian", basis=basis, stack=True)
    expected = np.hstack([p @ features for p in powers])[nodes]
    np.testing.assert_allclose(stacked.fit_transform(nodes), expected, atol=1e-10)
    assert len(stacked.get_feature_names_out()) == expected.shape[1]
    assert last.get_feature_names_out()[0] == "hop3:x0"


def test_fitted_model_survives_pickling(task):
    graph, nodes, y = task
    model = LGCClassifier(graph, hops=2, epochs=3).fit(nodes, y)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(nodes), model.predict(nodes))


def test_bad_samples(task):
    graph, nodes, y = task
    model = LGCClassifier(graph, epochs=2)
    with pytest.raises(NotFittedError):
        model.predict(nodes)
    with pytest.raises(NotFittedError):
        HopFeatures(graph).transform(nodes)
    with pytest.raises(GraphError, match="nodes holds 60"):
        model.fit([0, 60], [0, 1])
    with pytest.raises(GraphError, match="nodes holds -1"):
        model.fit([0, -1], [0, 1])
    with pytest.raises(GraphError, match="integer node indices"):
        model.fit([0.5, 1.0], [0, 1])
    with pytest.raises(GraphError, match="y has shape"):
        model.fit([0, 1], [0])
    with pytest.raises(GraphError, match="validation has class"):
        model.fit(nodes, y, validation=([0], [9]))
    with pytest.raises(GraphError, match="validation y has shape"):
        model.fit(nodes, y, validation=(nodes, y[:5]))
    with pytest.raises(GraphError, match="pass validation="):
        model.fit(nodes, y, validation=nodes)
    with pytest.raises(GraphError, match="graph is a str"):
        LGCClassifier("cora").fit(nodes, y)
    with pytest.raises(ConfigError, match="seed is None"):
        LGCClassifier(graph, seed=None).fit(nodes, y)
    with pytest.raises(ConfigError, match="hops is '2'"):
        HopFeatures(graph, hops="2").fit(nodes)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit([1, 2, 3], [0.1, 0.2, 0.3])
