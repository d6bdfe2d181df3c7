"""The estimators inside scikit-learn's own machinery."""

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import hoplite
from hoplite import (
    ConfigError,
    EGCClassifier,
    Graph,
    GraphError,
    HopBlocksClassifier,
    HopFeatures,
    HyperLGCClassifier,
    LGCClassifier,
    ModelFileError,
    SGCClassifier,
    Split,
    TrainedModel,
    train,
)
from hoplite.bases import EXAMPLES
from hoplite.explain import explain
from hoplite.predictions import predict_table

CLASSIFIERS = [
    SGCClassifier,
    EGCClassifier,
    LGCClassifier,
    HyperLGCClassifier,
    HopBlocksClassifier,
]


@pytest.fixture
def task(graphs):
    graph = graphs(n=60, d=8, dtype=np.float32)
    return graph, np.arange(60), np.maximum(graph.labels, 0)


def test_unknown_labels_of_the_graph_are_no_class(task):
    graph, nodes, y = task
    unknown = np.where(nodes < 5, -1, y)
    model = LGCClassifier(graph.with_labels(unknown), hops=1, epochs=2)
    with pytest.raises(GraphError, match="y contains -1 for unknown labels"):
        model.fit(nodes, unknown)
    assert model.fit(nodes, np.where(y == 0, -1, 1)).classes_.tolist() == [-1, 1]  # own values


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
    if kind is HyperLGCClassifier:  # a network
        assert not hasattr(model, "coef_")
    else:
        assert model.filter_coefficients_.shape == ((3, 3) if "Jacobi" in kind.__name__ else (3,))
        assert model.coef_.shape == (3, 24 if kind is HopBlocksClassifier else 8)
        assert model.intercept_.shape == (3,)
    assert 1 <= model.n_iter_ <= 5


def test_the_intercept_is_the_bias(task):
    graph, nodes, y = task
    features = HopFeatures(graph, hops=2).fit_transform(nodes)
    for bias in (True, False):
        model = SGCClassifier(graph, 2, bias=bias).fit(nodes, y)
        logits = features @ model.coef_.T + model.intercept_
        np.testing.assert_allclose(model.decision_function(nodes), logits, atol=1e-5)
        assert bias == model.intercept_.any()


def test_a_grid_in_threads_is_that_of_one_thread(task):
    graph, nodes, y = task
    grid = {"hops": [1, 2, 3], "lr": [0.05, 0.2]}
    search = GridSearchCV(LGCClassifier(graph, epochs=6), grid, cv=3, error_score="raise")
    alone = search.fit(nodes, y).cv_results_["mean_test_score"]
    with joblib.parallel_config("threading", n_jobs=4):
        together = search.fit(nodes, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(together, alone)


def test_a_fitted_estimator_is_sent_without_intermediate_results(task):
    graph, nodes, y = task
    model = SGCClassifier(graph, hops=2, epochs=5)
    before = len(pickle.dumps(model))
    model.fit(nodes, y).predict(nodes)
    assert len(pickle.dumps(model)) < before + 8_000  # its weights are 100 bytes


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


@pytest.mark.parametrize("basis", EXAMPLES)
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


def scattered():
    """Classes of very different size, in the order of no alphabet, at nodes here and there."""
    rng = np.random.default_rng(5)
    names = ["zebra", "ape", "1", "0"]
    labels = rng.choice(4, 50, p=[0.6, 0.2, 0.1, 0.1])
    labels[:4], labels[-6:] = range(4), -1
    order = rng.permutation(50)
    pairs = np.concatenate([rng.integers(0, 47, (90, 2)), np.arange(46).reshape(-1, 2)])
    features = rng.random((50, 6)) + np.eye(6)[labels]
    graph = Graph.from_edges(
        pairs, features[order], labels[order], class_names=names, node_ids=order
    )
    return graph.with_split(Split(np.flatnonzero(graph.labels >= 0)[::2])), rng


@pytest.mark.parametrize("shown", ["numbers", "floats", "names", "objects"])
@pytest.mark.parametrize("classes", [[0, 1, 2, 3], [3, 1], [0, 2, 3]])
def test_a_saved_model_predicts_on_its_own_graph(tmp_path, shown, classes):
    graph, rng = scattered()
    nodes = rng.permutation(np.flatnonzero(np.isin(graph.labels, classes)))
    names = np.array(graph.class_names)
    y = {
        "numbers": graph.labels[nodes],
        "floats": graph.labels[nodes].astype(float),
        "names": names[graph.labels[nodes]],
        "objects": names.astype(object)[graph.labels[nodes]],
    }[shown]
    model = LGCClassifier(graph, hops=1, epochs=40, lr=0.5, dropout=0).fit(nodes, y)
    predicted = model.predict(np.arange(50))
    if shown in ("numbers", "floats"):
        predicted = names[predicted.astype(int)]
    back = TrainedModel.load(model.model_.save(tmp_path / "model"))
    table = predict_table(back, graph)
    assert table["predicted"].tolist() == predicted.tolist()
    assert len(set(predicted)) > 1  # the test could fail
    assert set(back.class_names) == {graph.class_names[c] for c in classes}
    assert explain(back, graph, graph.node_ids[7]).exact.rows.data is graph


def test_other_values_of_y_are_no_classes_of_the_graph(tmp_path):
    graph, rng = scattered()
    nodes = np.flatnonzero(graph.labels >= 0)
    for y in (3 - graph.labels[nodes], rng.integers(0, 4, len(nodes)), nodes % 2 == 0):
        model = SGCClassifier(graph, hops=1, epochs=3).fit(nodes, y).model_
        assert set(model.class_names) <= {"0", "1", "2", "3", "True", "False"}
        assert model.left_out_classes == ()
        with pytest.raises(ModelFileError, match="the model was trained with the classes"):
            TrainedModel.load(model.save(tmp_path / "model", overwrite=True)).predict(graph)
    unknown = np.flatnonzero(graph.labels < 0)
    model = SGCClassifier(graph, hops=1, epochs=3).fit(unknown, [0, 1] * 3).model_
    assert model.class_names == ("0", "1")
    both = np.concatenate([nodes, unknown[:1]])
    model = SGCClassifier(graph, epochs=3).fit(both, [*graph.labels[nodes], 9]).model_
    assert model.class_names == ("0", "1", "2", "3", "9")


def test_bad_samples(task):
    graph, nodes, y = task
    model = LGCClassifier(graph, epochs=2)
    with pytest.raises(NotFittedError):
        model.predict(nodes)
    with pytest.raises(NotFittedError):
        HopFeatures(graph).transform(nodes)
    for given, y_given, message in (
        ([0, 60], [0, 1], "nodes contains 60"),
        ([0, -1], [0, 1], "nodes contains -1"),
        ([0.5, 1.0], [0, 1], "integer node indices"),
        (np.ones((2, 8)), [0, 1], "pass node indices, not features"),
        ([0, 1], [0], "y has shape"),
        (nodes[:3], ["a"] * 3, "all labels are 'a', so there is nothing to learn"),
    ):
        with pytest.raises(GraphError, match=message):
            model.fit(given, y_given)
    for validation, message in (
        (([0], [9]), "validation has class"),
        ((nodes, y[:5]), "validation y has shape"),
        (nodes, "pass validation="),
    ):
        with pytest.raises(GraphError, match=message):
            model.fit(nodes, y, validation=validation)
    with pytest.raises(GraphError, match="predict takes a Graph, not data of type ndarray"):
        model.fit(nodes, y).model_.predict(np.ones((60, 8)))
    with pytest.raises(GraphError, match="graph has type str"):
        LGCClassifier("cora").fit(nodes, y)
    with pytest.raises(ConfigError, match="hops is '2'"):
        HopFeatures(graph, hops="2").fit(nodes)


def test_another_graph_is_prepared_as_that_of_the_fit():
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(3)

    def people(scale):
        made = networkx.gnm_random_graph(30, 60, seed=1)
        for node, (age, pay) in enumerate(scale * rng.normal((40, 3), (9, 1), (30, 2))):
            made.nodes[node].update(age=age, pay=pay)
        return made

    first, second = people(1), people(1.3)
    nodes, y = np.arange(30), rng.integers(0, 2, 30)
    fitted = LGCClassifier(first, hops=2, epochs=20).fit(nodes, y)
    before = fitted.predict_proba(nodes)
    np.testing.assert_array_equal(before, fitted.model_.predict_proba(first))
    fitted.set_params(graph=second)
    found = fitted.predict_proba(nodes)
    np.testing.assert_array_equal(found, fitted.model_.predict_proba(second))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(nodes), found)
    fitted.set_params(graph=hoplite.io.from_networkx(second))  # scaled by itself
    with pytest.raises(ModelFileError, match="was prepared differently"):
        fitted.predict(nodes)
    alone = clone(fitted.set_params(graph=second)).fit(nodes, y).predict_proba(nodes)
    np.testing.assert_array_equal(fitted.fit(nodes, y).predict_proba(nodes), alone)
