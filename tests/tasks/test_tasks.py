"""Every task as the training loop uses it, and in a file."""

import numpy as np
import pytest
from tests.training.scattered import scattered_graph

from hoplite import ConfigError, ModelFileError, TrainedModel, train
from hoplite.labels import SETS
from hoplite.predictions import predict_table
from hoplite.tasks import LOSS, TASKS, find_task


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
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
    assert task.labels.is_known(labels).all()
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
    with pytest.raises(ConfigError, match="monitor is 'luck'"):
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
    """Without one, as in earlier versions, it has classes; an unknown task is an error."""
    graph = scattered_graph()
    model = train(graph, "sgc", hops=1, epochs=2).model
    assert model.training["task"] == "multiclass"
    read = TrainedModel.load(model.save(tmp_path / "model"))
    assert read.task == model.task
    shares = np.bincount(graph.labels[graph.split.train], minlength=graph.num_classes)
    assert read.task.shares == pytest.approx(shares / shares.sum())
    classes = ["predicted", "probability", "runner_up", "margin"]
    assert list(predict_table(read, graph)) == ["id", *classes, "neighbours", "split"]
    read.training["task_state"] = {"shares": "many"}
    with pytest.raises(ModelFileError, match="the model's task is damaged"):
        read.predict(graph)
    read.training.pop("task_state")
    read.training.pop("task")
    assert read.task is find_task("multiclass")
    read.training["task"] = ["x"]
    with pytest.raises(ConfigError, match="task is"):
        read.predict(graph)
