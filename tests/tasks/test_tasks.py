"""Every task as the training loop uses it, and one that is no classification, end to end."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.metrics import r2_score
from tests.training.scattered import parts_of, scattered_graph

from hoplite import ConfigError, ModelFileError, TrainedModel, train
from hoplite.config import TrainingConfig
from hoplite.engine.propagation import Propagation
from hoplite.labels import SETS
from hoplite.models import model_config
from hoplite.predictions import predict_table
from hoplite.tasks import LOSS, TASKS, Evaluation, Metric, Task, find_task
from hoplite.tasks.losses import squared_error
from hoplite.training import NodeSet, Run, fit
from hoplite.training.results import TrainingResult


class Regression(Task):
    """l(z, t) = (z - t)^2 of one output; R^2 and the mean squared error are recorded."""

    name = "regression"
    metrics = (Metric("r2"), Metric("mse", larger_is_better=False))
    monitors: ClassVar = {"loss": LOSS}

    def outputs(self, labels, names):
        return 1

    def known(self, labels):
        return ~np.isnan(labels)

    def targets(self, labels, outputs):
        return np.array(labels, np.float64)

    @property
    def loss_function(self):
        return squared_error

    def tally(self, logits, targets):
        errors = logits[:, 0] - targets
        sums = targets.sum(), np.square(targets).sum(), np.square(errors).sum()
        return np.array([len(logits), *sums])

    def measured(self, tally):
        rows, total, squares, errors = tally
        return float(1 - errors / (squares - total**2 / rows)), float(errors / rows)

    def link(self, logits):
        return logits

    def predict(self, logits):
        return logits[:, 0]

    def columns(self, logits, names):
        return {names[0]: logits[:, 0]}

    def evaluate(self, labels, logits, names):
        return Evaluation({"r2": r2_score(labels, logits[:, 0])})

    def baseline(self, labels, names):
        return Evaluation({"r2": 0.0})


@pytest.fixture
def valued():
    """A graph, values of its nodes that two hops of SGC can nearly give, and its split."""
    graph = scattered_graph()
    rng = np.random.default_rng(3)
    hops = Propagation(graph, hops=2).hop_features()[-1]
    values = hops @ rng.standard_normal(hops.shape[1]) + 0.05 * rng.standard_normal(len(hops))
    return graph, values, [NodeSet(part.nodes, values[part.nodes]) for part in parts_of(graph)]


def test_a_regression_trains_by_its_loss(valued):
    graph, values, (train_set, val, test) = valued
    config = model_config("sgc", hops=2)
    runs = [
        Run(TrainingConfig(lr=lr, weight_decay=0, dropout=0, epochs=300, patience=30), seed)
        for lr, seed in ((0.05, 0), (0.2, 1))
    ]
    states, sets = [], {"train": train_set, "val": val, "test": test}
    scored = fit(
        graph, config, runs, sets, Regression(), names=["value"], record_test=True, score=["test"],
        progress=states.append,
    )  # fmt: skip
    names = [f"{part}_{what}" for part in ("train", "val", "test") for what in ("loss", "r2")]
    for run in scored:
        assert set(names) < set(run.history)
        losses = run.history["val_loss"]
        assert run.best_epoch == int(losses.argmin()) + 1
        assert run.epochs == min(300, run.best_epoch + 30)
        assert losses.min() < 0.1 * losses[0]
        logits = run.model.logits_from(Propagation(graph, hops=2))[test.nodes]
        assert run.scores["test_r2"] == pytest.approx(r2_score(values[test.nodes], logits[:, 0]))
        assert run.scores["val_r2"] == pytest.approx(run.history["val_r2"][run.best_epoch - 1])
        assert run.test_metrics["r2"] == pytest.approx(run.scores["test_r2"])
        assert run.summary()["test_mse"] == pytest.approx(
            np.square(values[test.nodes] - logits[:, 0]).mean()
        )
        with pytest.raises(KeyError):
            run.test_accuracy  # noqa: B018 - a regression has none
    best = np.mean([run.best("val_loss") for run in scored])
    assert states[-1].val_score == pytest.approx(best)
    result = TrainingResult(graph, config, runs[0].config, tuple(scored), Regression())
    losses = [run.best("val_loss") for run in scored]
    assert result.model is scored[int(np.argmin(losses))].model
    scores = [run.scores["val_r2"] for run in scored]
    assert result.summary()["val_r2_mean"] == pytest.approx(np.mean(scores))


@pytest.mark.parametrize("task", [*TASKS.values(), Regression()], ids=lambda task: task.name)
def test_what_every_task_promises(task):
    """Sums over rows, float64 metrics, and one value for each node."""
    generator = np.random.default_rng(1)
    labels, names = generator.integers(0, 3, 20), ["a", "b", "c"]
    if task.labels is SETS:
        labels = generator.integers(0, 2, (20, 3))
    m = task.outputs(labels, names)
    outputs = generator.standard_normal((20, m))
    targets = task.targets(labels, m)
    assert len(targets) == 20
    assert task.known(labels).all()
    loss, gradient = task.loss_and_gradient(outputs, targets)
    assert task.loss(outputs, targets) == loss
    assert gradient.shape == (20, m)
    values = task.measured(task.tally(outputs, targets))
    assert len(values) == len(task.metrics) == len(task.curves) - 1
    assert all(type(value) is float for value in (loss, *values))
    assert task.monitor() in (LOSS, *task.metrics)
    for name, metric in task.monitors.items():
        assert task.monitor(name) is metric
        if metric.name not in task.curves:
            one = task.figure(metric.name, labels, outputs)
            assert one == task.evaluate(labels, outputs, names)[metric.name]
    with pytest.raises(ConfigError, match=f"monitor of {task.name} is 'luck'"):
        task.monitor("luck")
    parts = [(outputs[half], targets[half]) for half in (slice(0, 7), slice(7, 20))]
    assert sum(task.loss(*part, count=20) for part in parts) == pytest.approx(loss)
    added = task.measured(sum(task.tally(*part) for part in parts))
    assert added == pytest.approx(values)
    assert task.link(outputs).shape == (20, m)
    assert len(task.predict(outputs)) == 20
    assert all(len(column) == 20 for column in task.columns(outputs, names[:m]).values())
    assert find_task(task) is task


def test_a_saved_model_knows_its_task(tmp_path):
    """One that names none, as those of earlier versions, has classes; a strange one is told of."""
    graph = scattered_graph()
    model = train(graph, "sgc", hops=1, epochs=2).model
    assert model.training["task"] == "multiclass"
    read = TrainedModel.load(model.save(tmp_path / "model"))
    assert read.task == model.task
    shares = np.bincount(graph.labels[graph.split.train], minlength=graph.num_classes)
    assert read.task.shares == pytest.approx(shares / shares.sum())
    assert predict_table(read, graph).column_names == ["id", "predicted", "probability", "split"]
    read.training["task_state"] = {"shares": "many"}
    with pytest.raises(ModelFileError, match="the model's task is damaged"):
        read.predict(graph)
    read.training.pop("task_state")
    read.training.pop("task")
    assert read.task is find_task("multiclass")
    read.training["task"] = ["x"]
    with pytest.raises(ConfigError, match="task is"):
        read.predict(graph)
