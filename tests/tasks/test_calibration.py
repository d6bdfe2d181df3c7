"""Temperature: as scikit-learn finds it, kept with the model, and no prediction changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from tests.examples import examples
from tests.training.scattered import scattered_graph
from tests.untidy import SEEDS

from hoplite import HopFeatures, train
from hoplite.models.trained import TrainedModel
from hoplite.predictions import predict_table
from hoplite.tasks import find_task
from hoplite.tasks.evaluation import best_temperature, calibration_error

OPTIONS = {"hops": 2, "dropout": 0, "lr": 0.5, "weight_decay": 0, "epochs": 60, "bias": True}


class Given(ClassifierMixin, BaseEstimator):
    """Whose outputs are what it is given."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def drawn(rng, n, m, sharpness):
    """Logits that are too sure by ``sharpness``, and labels of the right probabilities."""
    z = rng.standard_normal((n, m)) * 2
    labels = np.array([rng.choice(m, p=p) for p in softmax(z, axis=1)])
    return (z * sharpness).astype(np.float32), labels


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 6.0])
def test_as_scikit_learn_finds_it(sharpness):
    z, labels = drawn(np.random.default_rng(3), 800, 4, sharpness)
    found = best_temperature(labels, z)
    assert found == pytest.approx(sharpness, rel=0.15)
    judge = FrozenEstimator(Given().fit(z, labels))
    judge = CalibratedClassifierCV(judge, method="temperature").fit(z, labels)
    mine = softmax(z / found, axis=1)
    np.testing.assert_allclose(mine, judge.predict_proba(z), atol=2e-4)

    def loss(temperature):
        return -log_softmax(z.astype(float) / temperature, axis=1)[np.arange(800), labels].mean()

    for other in (0.999, 1.001):
        assert loss(found) < loss(found * other)


@examples(25)
@given(SEEDS, st.sampled_from([0.5, "balanced", "f1"]), st.floats(0.3, 8), st.floats(0.02, 0.5))
def test_no_prediction_changes(seed, by, sharpness, share):
    rng = np.random.default_rng(seed)
    labels = (rng.random(300) < share).astype(int)
    labels[:2] = 0, 1
    z = (rng.standard_normal((300, 2)) + np.eye(2)[labels]) * sharpness
    z[2, 1] = z[2, 0]  # a tie
    task = find_task().fitted(labels, 2).tuned(by, labels, z)
    after = task.calibrated(labels, z)
    np.testing.assert_array_equal(after.predict(z), task.predict(z))
    other = rng.standard_normal((5000, 2)) * 3 * sharpness
    np.testing.assert_array_equal(after.predict(other), task.predict(other))
    before = after.uncalibrated() or task
    assert before.temperature == 1
    assert before.threshold == pytest.approx(task.threshold, rel=1e-9)
    chance = after.link(other)[:, after.positive]
    clear = np.abs(chance - after.threshold) > 1e-9
    report = np.where(chance >= after.threshold, after.positive, 1 - after.positive)
    np.testing.assert_array_equal(after.predict(other)[clear], report[clear])
    assert after.figure("log_loss", labels, z) <= task.figure("log_loss", labels, z) + 1e-12


def test_a_calibrated_model(tmp_path):
    graph = scattered_graph()
    plain = train(graph, "lgc", **OPTIONS)
    result = train(graph, "lgc", calibrate=True, **OPTIONS)
    model = TrainedModel.load(result.model.save(tmp_path / "model"))
    temperature = model.task.temperature
    assert temperature != 1
    logits = plain.model.logits(graph)
    np.testing.assert_array_equal(model.logits(graph), logits)
    np.testing.assert_array_equal(model.predict(graph), plain.model.predict(graph))
    expected = softmax(logits / temperature, axis=1)
    np.testing.assert_allclose(model.predict_proba(graph), expected, atol=1e-6)
    table = predict_table(model, graph, proba=True)
    np.testing.assert_allclose(table["probability"], expected.max(axis=1), atol=1e-6)
    np.testing.assert_allclose(table[f"p_{graph.class_names[1]}"], expected[:, 1], atol=1e-6)
    run, val = result.best_run, graph.split.val
    assert run.val_metrics["log_loss"] < plain.best_run.val_metrics["log_loss"]
    report = run.calibration
    assert report["temperature"] == temperature
    assert report["val"]["before"] == plain.best_run.val_metrics["calibration_error"]
    assert report["val"]["after"] == pytest.approx(
        calibration_error(graph.labels[val], model.predict_proba(graph)[val]), abs=1e-6
    )
    assert plain.best_run.calibration is None
    hops = HopFeatures(graph, hops=2, stack=True).fit_transform(np.arange(graph.num_nodes))
    arrays = model.to_arrays()
    exported = hops @ arrays["weight"] + arrays["bias"]
    np.testing.assert_allclose(softmax(exported, axis=1), expected, atol=1e-5)
