"""Every task as the training loop uses it, and one that is no classification, end to end."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, r2_score
from tests.training.scattered import parts_of, scattered_graph
from torch import Tensor

from hoplite import ConfigError, GraphError, ModelFileError, TrainedModel, train
from hoplite.config import TrainingConfig
from hoplite.labels import SETS
from hoplite.models import ModelConfig, build_model
from hoplite.predictions import predict_table
from hoplite.propagation.engine import Propagation
from hoplite.store import propagate
from hoplite.tasks import LOSS, TASKS, Evaluation, Metric, Task, find_task
from hoplite.training import NodeSet, Run, StoredPropagation, fit_runs
from hoplite.training.distributed import Team
from hoplite.training.results import TrainingResult, scored_run


class Regression(Task):
    """l(z, t) = (z - t)^2 of one output; R^2 is over all rows at once, and no mean over them."""

    name = "regression"
    metrics = (Metric("r2"), Metric("worst", larger_is_better=False))
    monitors: ClassVar = {"loss": LOSS}
    adds_up = False

    def outputs(self, labels, names):
        return 1

    def known(self, labels):
        return ~np.isnan(labels)

    def targets(self, labels, outputs):
        return torch.from_numpy(np.array(labels, np.float64))

    def loss(self, logits, targets, count, weights=None):
        return (logits[..., 0] - targets.unsqueeze(1)).square().sum(dim=0) / count

    def measure(self, logits, targets, count):
        errors = logits[..., 0].double() - targets.unsqueeze(1)
        spread = (targets - targets.mean()).square().sum()
        return 1 - errors.square().sum(dim=0) / spread, errors.abs().amax(dim=0)

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
    hops = Propagation(graph, hops=2).view().last_hop_features().numpy()
    values = hops @ rng.standard_normal(hops.shape[1]) + 0.05 * rng.standard_normal(len(hops))
    return graph, values, [NodeSet(part.nodes, values[part.nodes]) for part in parts_of(graph)]


def test_a_regression_trains_by_its_loss(valued):
    graph, values, (train_set, val, test) = valued
    config = ModelConfig("sgc", hops=2)
    built = build_model(config, graph.num_features, Regression().outputs(values, None))
    source = Propagation(graph, hops=2)
    runs = [
        Run(TrainingConfig(lr=lr, weight_decay=0, dropout=0, epochs=300, patience=30), seed)
        for lr, seed in ((0.05, 0), (0.2, 1))
    ]
    states = []
    results = fit_runs(
        built, source, runs, train_set, val, watch=test, task=Regression(), progress=states.append
    )
    names = [f"{part}_{what}" for part in ("train", "val", "test") for what in ("loss", "r2")]
    for result in results:
        assert set(names) < set(result.history)
        losses = result.history["val_loss"]
        assert result.best_epoch == int(losses.argmin()) + 1
        assert result.epochs == min(300, result.best_epoch + 30)
        assert result.best("val_loss") == losses.min()
        assert losses.min() < 0.1 * losses[0]
    best = np.mean([result.best("val_loss") for result in results])
    assert states[-1].val_score == pytest.approx(best)

    scored = [scored_run(graph, config, r, source, {"test": test}, Regression()) for r in results]
    for run in scored:
        logits = run.model.logits_from(source)[test.nodes]
        assert run.scores["test_r2"] == pytest.approx(r2_score(values[test.nodes], logits[:, 0]))
        assert run.scores["val_r2"] == pytest.approx(run.history["val_r2"][run.best_epoch - 1])
        assert run.test_metrics["r2"] == pytest.approx(run.scores["test_r2"])
        assert run.val_metrics is None  # no validation nodes were given to scored_run
        assert run.summary()["test_worst"] == pytest.approx(
            np.abs(values[test.nodes] - logits[:, 0]).max()
        )
        with pytest.raises(KeyError):
            run.test_accuracy  # noqa: B018 - a regression has none
    result = TrainingResult(graph, config, runs[0].config, tuple(scored), Regression())
    scores = [run.scores["val_r2"] for run in scored]
    losses = [run.best("val_loss") for run in scored]
    assert result.model is scored[int(np.argmin(losses))].model
    assert result.summary()["val_r2_mean"] == pytest.approx(np.mean(scores))
    for run, value in zip(scored, (np.nan, 1e9), strict=True):  # which is not worse than unknown
        run.history["val_loss"][run.best_epoch - 1] = value
    assert result.model is scored[1].model


def test_a_loss_of_sums_is_the_same_in_batches(valued):
    """The curve is that of the rows: with hardly any step, batches add up to the whole."""
    graph, _, (train_set, val, _) = valued
    built = build_model(ModelConfig("sgc", hops=2), graph.num_features, 1)
    found = [
        fit_runs(
            built,
            Propagation(graph, hops=2),
            [Run(TrainingConfig(lr=1e-12, dropout=0, epochs=1, batch=batch), 0)],
            train_set,
            val,
            task=Regression(),
        )[0].history["train_loss"]
        for batch in (0, 4)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


class Two(Team):
    size = 2


def test_a_metric_that_does_not_add_up_is_for_one_process(valued, tmp_path):
    graph, _, (train_set, val, _) = valued
    built = build_model(ModelConfig("sgc", hops=2), graph.num_features, 1)
    source = StoredPropagation(propagate(graph, tmp_path / "store", hops=2), built, team=Two())
    run = Run(TrainingConfig(dropout=0, epochs=1), 0)
    with pytest.raises(ConfigError, match=r"the metrics of regression, .*need all rows"):
        fit_runs(built, source, [run], train_set, val, task=Regression())


@pytest.mark.parametrize("task", [*TASKS.values(), Regression()], ids=lambda task: task.name)
def test_what_every_task_promises(task):
    """Sums over rows, runs that do not mix, float64 metrics, and one value for each node."""
    generator = np.random.default_rng(1)
    labels, names = generator.integers(0, 3, 20), ["a", "b", "c"]
    if task.labels is SETS:
        labels = generator.integers(0, 2, (20, 3))
    m = task.outputs(labels, names)
    logits = torch.from_numpy(generator.standard_normal((20, 4, m)))
    targets = task.targets(labels, m)
    assert len(targets) == 20
    assert task.known(labels).all()
    loss, values = task.loss(logits, targets, 20), task.measure(logits, targets, 20)
    assert len(values) == len(task.metrics) == len(task.curves) - 1
    assert task.monitor() in (LOSS, *task.metrics)
    for name, metric in task.monitors.items():
        assert task.monitor(name) is metric
        if metric.name not in task.curves:
            one = task.figure(metric.name, labels, logits[:, 0].numpy())
            assert one == task.evaluate(labels, logits[:, 0].numpy(), names)[metric.name]
    with pytest.raises(ConfigError, match=f"monitor of {task.name} is 'luck'"):
        task.monitor("luck")
    for value in (loss, *values):
        assert value.shape == (4,)
    assert all(value.dtype == torch.float64 for value in values)
    halves = (slice(0, 7), slice(7, 20))
    parts = [(logits[half], targets[half]) for half in halves]
    torch.testing.assert_close(sum(task.loss(*part, 20) for part in parts), loss)
    alone = task.measure(logits[:, 2:3], targets, 20)
    assert [float(one) for one in alone] == [float(value[2]) for value in values]
    if task.adds_up:
        for i, value in enumerate(values):
            added = sum((task.measure(*part, 20)[i] for part in parts), torch.zeros(4))
            torch.testing.assert_close(added, value)
    outputs = logits[:, 0].numpy()
    assert task.link(outputs).shape == (20, m)
    assert len(task.predict(outputs)) == 20
    assert all(len(column) == 20 for column in task.columns(outputs, names[:m]).values())
    assert find_task(task) is task


def test_classes_by_scikit_learn():
    rng = np.random.default_rng(2)
    labels, logits = rng.integers(0, 3, 30), rng.standard_normal((30, 3))
    task = find_task("multiclass")
    stacked, targets = torch.from_numpy(logits).unsqueeze(1), task.targets(labels, 3)
    probabilities = softmax(logits, axis=1)
    np.testing.assert_allclose(task.link(logits), probabilities, rtol=1e-12)
    loss: Tensor = task.loss(stacked, targets, 30)
    assert float(loss) == pytest.approx(log_loss(labels, probabilities))
    (accuracy,) = task.measure(stacked, targets, 30)
    assert float(accuracy) == accuracy_score(labels, task.predict(logits))
    told = task.columns(logits, ["x", "y", "z"])
    assert told["predicted"].to_pylist() == ["xyz"[c] for c in logits.argmax(axis=1)]
    np.testing.assert_allclose(told["probability"], probabilities.max(axis=1), rtol=1e-12)
    assert task.known(np.array([-1, 0, 2])).tolist() == [False, True, True]
    with pytest.raises(GraphError, match="one class per node"):
        task.targets(np.zeros((3, 2), int), 3)


def test_a_task_is_found_by_its_name():
    with pytest.raises(ConfigError, match=r"task is 'multiclas'; .* Did you mean 'multiclass'"):
        find_task("multiclas")


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
