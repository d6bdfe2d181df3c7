"""Weights in the loss and thresholds: what helps where one class is rare."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.utils.class_weight import compute_sample_weight
from tests.training.scattered import scattered_graph
from tests.training.test_monitor import rare
from tests.untidy import SEEDS

from hoplite import (
    ConfigError,
    GraphError,
    LGCClassifier,
    SGCClassifier,
    Split,
    TrainedModel,
    TrainingConfig,
    train,
)
from hoplite.explain import explain, flips
from hoplite.predictions import predict_table
from hoplite.store import propagate
from hoplite.tasks.evaluation import best_threshold

OPTIONS = {"hops": 1, "dropout": 0, "lr": 0.1, "epochs": 30, "bias": True}


def test_a_weight_of_two_is_the_node_twice():
    graph = scattered_graph()
    nodes = np.union1d(np.arange(0, 60, 2), [59])  # the only one of its class
    y = graph.labels[nodes]
    times = np.random.default_rng(4).integers(0, 4, len(nodes))
    times[np.unique(y, return_index=True)[1]] = 3  # every class stays
    many = LGCClassifier(graph, **OPTIONS).fit(np.repeat(nodes, times), np.repeat(y, times))
    weighted = LGCClassifier(graph, **OPTIONS).fit(nodes, y, sample_weight=times)
    plain = LGCClassifier(graph, **OPTIONS).fit(nodes, y)
    np.testing.assert_allclose(weighted.coef_, many.coef_, atol=1e-8)
    assert np.abs(weighted.coef_ - plain.coef_).max() > 0.01
    mask = np.isin(np.arange(graph.num_nodes), nodes)
    each = np.zeros(graph.num_nodes)
    each[nodes] = times
    masked = LGCClassifier(graph, **OPTIONS).fit(mask, graph.labels, sample_weight=each)
    np.testing.assert_array_equal(masked.coef_, weighted.coef_)
    with_train = train(
        graph.with_split(Split(nodes)), "lgc", **OPTIONS, sample_weight=each, folds=0
    )
    np.testing.assert_allclose(with_train.model.weights["theta"].T, weighted.coef_)


@pytest.mark.parametrize("batch", [0, 4])
def test_balanced_is_scikit_learns_in_memory_and_from_a_store(tmp_path, batch):
    graph = scattered_graph()
    weights = np.ones(graph.num_nodes)
    for part in (graph.split.train, graph.split.val):  # a part has the classes' training weights
        seen = graph.labels[graph.split.train]
        of_class = dict(zip(seen, compute_sample_weight("balanced", seen), strict=True))
        weights[part] = [of_class[c] for c in graph.labels[part]]
    options = OPTIONS | {"batch": batch, "seeds": 2}
    balanced = train(graph, "lgc", class_weight="balanced", **options)
    by_node = train(graph, "lgc", sample_weight=weights, **options)
    named = train(graph, "lgc", class_weight={str(c): w for c, w in of_class.items()}, **options)
    stored = train(
        propagate(graph, tmp_path / "store", hops=1), "lgc", class_weight="balanced", **options
    )
    plain = train(graph, "lgc", **options)
    for other, close in ((by_node, True), (named, True), (stored, True), (plain, False)):
        for run, twin in zip(balanced.runs, other.runs, strict=True):
            for curve in ("train_loss", "val_loss"):
                pair = run.history[curve][:5], twin.history[curve][:5]
                assert np.allclose(*pair, rtol=1e-4) is close
    assert (
        balanced.metrics("val")["balanced_accuracy"].mean
        >= plain.metrics("val")["balanced_accuracy"].mean
    )


@given(SEEDS, st.sampled_from(["balanced", "f1"]), st.integers(1, 6))
def test_the_threshold_is_the_best_there_is(seed, by, digits):
    rng = np.random.default_rng(seed)
    inside = rng.random(30) < 0.2
    inside[:2] = True, False
    probabilities = np.clip(rng.random(30) ** 3 + 0.2 * inside, 0, 1).round(digits)
    found = best_threshold(by, inside, probabilities.astype(np.float32))
    measure = balanced_accuracy_score if by == "balanced" else f1_score
    reached = [measure(inside, probabilities >= cut) for cut in np.unique(probabilities)]
    assert measure(inside, probabilities >= found) == pytest.approx(max(reached))


@pytest.mark.parametrize(("calibrate", "folds"), [(False, 0), (True, 2)])
def test_a_number_is_the_threshold_of_probabilities(tmp_path, calibrate, folds):
    graph = rare(1)
    if not calibrate:  # without validation nodes
        graph = graph.with_split(Split(graph.split.train, test=graph.split.test))
    options = {"hops": 1, "epochs": 20, "calibrate": calibrate, "folds": folds}
    result = train(graph, "lgc", threshold=0.1, **options)
    model = TrainedModel.load(result.model.save(tmp_path / "model"))
    rare_class = int(np.bincount(graph.labels[graph.split.train]).argmin())
    taken = model.predict_proba(graph)[:, rare_class] >= 0.1
    np.testing.assert_array_equal(model.predict(graph) == rare_class, taken)
    assert result.runs[0].threshold == 0.1
    test = graph.split.test
    assert result.test_accuracy == np.mean(model.predict(graph)[test] == graph.labels[test])


@pytest.mark.parametrize("by", ["balanced", "f1"])
def test_a_threshold_is_kept_and_used_everywhere(tmp_path, by):
    graph = rare(1)
    options = {"hops": 1, "dropout": 0, "lr": 0.05, "bias": True, "monitor": "auc"}
    half = train(graph, "lgc", **options)
    result = train(graph, "lgc", threshold=by, **options)
    assert result.model.task.threshold < 0.5  # the class is rare
    assert result.summary()["runs"][0]["threshold"] == result.runs[0].model.task.threshold
    assert "threshold" not in half.summary()["runs"][0]
    val, test = (getattr(graph.split, part) for part in ("val", "test"))
    for part in (val, test):
        np.testing.assert_array_equal(
            result.model.predict_proba(graph)[part], half.model.predict_proba(graph)[part]
        )
    measure = balanced_accuracy_score if by == "balanced" else f1_score
    found, before = (
        measure(graph.labels[val], one.model.predict(graph)[val]) for one in (result, half)
    )
    assert found > before
    model = TrainedModel.load(result.model.save(tmp_path / "model"))
    assert model.task == result.model.task
    predicted = model.predict(graph)
    assert result.runs[0].test_accuracy == np.mean(predicted[test] == graph.labels[test])
    assert result.runs[0].val_accuracy == np.mean(predicted[val] == graph.labels[val])
    assert model.training["val_accuracy"] == result.runs[0].val_accuracy
    report = result.runs[0].val_metrics
    assert report["balanced_accuracy"] == pytest.approx(
        balanced_accuracy_score(graph.labels[val], predicted[val])
    )
    table = predict_table(model, graph)
    names = np.array(graph.class_names)
    assert table["predicted"].tolist() == names[predicted].tolist()
    changed = np.flatnonzero(predicted != model.logits(graph).argmax(axis=1))
    assert changed.size
    node = int(changed[0])
    probability = model.predict_proba(graph)[node, predicted[node]]
    assert table["probability"][node] == pytest.approx(probability)
    why = explain(model, graph, node)
    assert why.class_ == names[predicted[node]]
    assert why.summary().node.predicted == names[predicted[node]]
    assert why.margin == pytest.approx(flips(model, graph, node).margin)
    assert why.margin >= 0  # the lead counts from the threshold
    assert abs(why.residual) < 1e-5
    parts = [(part, graph.labels[part]) for part in (graph.split.train, val)]
    fitted = LGCClassifier(graph, threshold=by, **options).fit(*parts[0], validation=parts[1])
    np.testing.assert_array_equal(fitted.predict(np.arange(graph.num_nodes)), predicted)


def test_what_weights_and_thresholds_must_be():
    graph = scattered_graph()
    with pytest.raises(
        ConfigError, match="threshold is 'half'; it must be 'balanced', 'f1' or a number"
    ):
        TrainingConfig(threshold="half")
    for wrong in ("balance", "a=b", {}, {"a": -1}, {"a": float("nan")}, 3, [["a"]]):
        with pytest.raises(ConfigError, match="class_weight is"):
            TrainingConfig(class_weight=wrong)
    assert TrainingConfig(class_weight="none").class_weight is None
    with pytest.raises(ConfigError, match="class_weight has a weight for 'fraud'"):
        train(graph, "sgc", class_weight={"fraud": 2})
    with pytest.raises(ConfigError, match="there are 3 classes; it requires two"):
        train(graph, "sgc", threshold="f1", epochs=2)
    two = rare()
    alone = two.with_split(Split(two.split.train))
    with pytest.raises(ConfigError, match="requires a validation split"):
        train(alone, "sgc", threshold="f1", epochs=2, folds=0)
    nodes = two.split.train
    with pytest.raises(ConfigError, match="requires a validation split"):
        SGCClassifier(two, threshold="f1", epochs=2, folds=0).fit(nodes, two.labels[nodes])
    for wrong, sentence in (
        (np.ones(3), "shape"),
        (np.full(400, -1.0), "negative"),
        (np.full(400, np.nan), "NaN"),
        (["x"] * 400, "type"),
    ):
        with pytest.raises(GraphError, match=sentence):
            train(two, "sgc", epochs=2, sample_weight=wrong)
    with pytest.raises(GraphError, match="all weights of the training nodes"):
        train(two, "sgc", epochs=2, sample_weight=np.zeros(400))
