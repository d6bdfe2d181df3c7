"""Training where a small mistake would go unnoticed elsewhere: against a loop written out by hand,
on graphs with scattered splits; patience, batches, shares and sums counted one by one."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from tests.training.scattered import parts_of, scattered_graph
from torch.nn.functional import cross_entropy

from hoplite import ConfigError, GraphError, train
from hoplite.config import TrainingConfig
from hoplite.models import ModelConfig, build_model
from hoplite.propagation.engine import Propagation
from hoplite.tasks import find_task
from hoplite.training import runs as runs_module
from hoplite.training.loop import ScoredRows, fit_runs
from hoplite.training.results import as_seeds, plan
from hoplite.training.runs import (
    NodeSet,
    Run,
    TrainingProgress,
    batches_of,
    plan_runs,
    run_bytes,
    signal_size,
)
from hoplite.training.stored_rows import shuffled_windows
from hoplite.training.streamed import std_mean

CONFIG = TrainingConfig(lr=0.2, weight_decay=0.01, dropout=0.0, epochs=60, patience=7, tie="first")


@pytest.fixture
def scattered():
    return scattered_graph()


def by_hand(graph, config, training, seed):
    """LGC with torch's own Adam on dense matrices; early stopping as it is documented."""
    model = build_model(config, graph.num_features, graph.num_classes)
    first = model.initial(torch.Generator().manual_seed(seed))
    weights = {name: value.double().requires_grad_() for name, value in first.items()}
    hops = Propagation(graph, config.operator, config.basis, config.hops).view().hop_features()
    adam = torch.optim.Adam(
        list(weights.values()), lr=training.lr, weight_decay=training.weight_decay
    )

    def score(nodes):
        logits = torch.einsum("k,knd,dm->nm", weights["alpha"], hops[:, :, 0], weights["theta"])
        if config.standardize:
            logits = (logits - logits.mean(0)) / logits.std(0, correction=0)
        labels = torch.from_numpy(np.array(graph.labels[nodes], np.int64))
        picked = logits[torch.from_numpy(np.array(nodes, np.int64))]
        return cross_entropy(picked, labels), (picked.argmax(1) == labels).double().mean().item()

    history, best, best_epoch, kept = [], -1.0, 0, None
    for epoch in range(training.epochs):
        adam.zero_grad()
        loss, accuracy = score(graph.split.train)
        loss.backward()
        adam.step()
        with torch.no_grad():
            val_loss, val_accuracy = score(graph.split.val)
        history.append((loss.item(), accuracy, val_loss.item(), val_accuracy))
        if val_accuracy > best:
            best, best_epoch = val_accuracy, epoch
            kept = {name: value.detach().clone() for name, value in weights.items()}
        if epoch - best_epoch >= training.patience:
            break
    return np.array(history), best, best_epoch + 1, kept


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("order", ["weights-first", "hops-first"])
def test_the_loop_is_the_one_by_hand(scattered, order, standardize):
    config = ModelConfig("lgc", 3, "laplacian", "chebyshev", standardize=standardize)
    model = build_model(config, 6, 3)
    training = dataclasses.replace(CONFIG, order=order)
    found = fit_runs(
        model,
        Propagation(scattered, "laplacian", "chebyshev", 3),
        [Run(training, 4), Run(dataclasses.replace(training, lr=0.01), 9)],
        *parts_of(scattered)[:2],
    )
    for result in found:
        history, best, best_epoch, kept = by_hand(
            scattered, config, result.run.config, result.run.seed
        )
        assert (result.epochs, result.best_epoch) == (len(history), best_epoch)
        assert result.best("val_accuracy") == pytest.approx(best)
        names = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
        assert list(result.history) == list(names)
        for column, name in enumerate(names):
            np.testing.assert_allclose(result.history[name], history[:, column], atol=1e-8)
        for name, value in kept.items():
            torch.testing.assert_close(result.weights[name], value, atol=1e-8, rtol=1e-7)
        assert not result.diverged
        assert result.seconds > 0
    assert {result.epochs for result in found} != {60}  # someone stopped early


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_patience_counts_epochs_after_the_best(scattered, patience):
    training = dataclasses.replace(CONFIG, patience=patience, epochs=40)
    (result,) = fit_runs(
        build_model(ModelConfig("sgc", 2), 6, 3),
        Propagation(scattered, hops=2),
        [Run(training, 0)],
        *parts_of(scattered)[:2],
    )
    assert result.epochs == result.best_epoch + patience
    curve = result.history["val_accuracy"]
    assert curve[result.best_epoch - 1] == curve.max() == result.best("val_accuracy")
    assert (curve[: result.best_epoch - 1] < curve.max()).all()


def test_without_validation_every_epoch_is_run_and_the_last_counts(scattered):
    training = dataclasses.replace(CONFIG, patience=1, epochs=9)
    (result,) = fit_runs(
        build_model(ModelConfig("sgc", 2), 6, 3),
        Propagation(scattered, hops=2),
        [Run(training, 0)],
        parts_of(scattered)[0],
        NodeSet(np.array([], int), np.array([], int)),
    )
    assert (result.epochs, result.best_epoch) == (9, 9)
    assert math.isnan(result.best("val_accuracy"))
    assert set(result.history) == {"train_loss", "train_accuracy"}


def test_watched_curves_are_those_of_the_test_nodes(scattered):
    model, source = build_model(ModelConfig("lgc", 2), 6, 3), Propagation(scattered, hops=2)
    nodes, val, test = parts_of(scattered)
    runs = [Run(dataclasses.replace(CONFIG, epochs=5), 3)]
    (result,) = fit_runs(model, source, runs, nodes, val, watch=test)
    (twin,) = fit_runs(model, source, runs, nodes, test)
    np.testing.assert_array_equal(result.history["test_loss"], twin.history["val_loss"])
    np.testing.assert_array_equal(result.history["test_accuracy"], twin.history["val_accuracy"])


def test_progress_is_told_after_every_epoch(scattered):
    states = []
    fit_runs(
        build_model(ModelConfig("sgc", 1), 6, 3),
        Propagation(scattered, hops=1),
        [
            Run(dataclasses.replace(CONFIG, epochs=3, dropout=dropout), seed)
            for dropout, seed in ((0.0, 0), (0.5, 1), (0.0, 2))
        ],
        *parts_of(scattered)[:2],
        progress=states.append,
    )
    # the run with dropout is a batch of its own, and the first
    assert [(s.done, s.total, s.epoch, s.epochs, s.running) for s in states] == [
        (1, 9, 1, 3, 3),
        (2, 9, 2, 3, 3),
        (3, 9, 3, 3, 3),
        (5, 9, 1, 3, 2),
        (7, 9, 2, 3, 2),
        (9, 9, 3, 3, 2),
    ]
    alone = TrainingProgress(4, 12, 2, 6, 2, 0.5).among(1, 3)
    assert alone == TrainingProgress(10, 36, 2, 6, 5, 0.5)


# ---- what is refused


def test_sets_and_runs_that_do_not_fit_are_refused(scattered):
    model, source = build_model(ModelConfig("sgc", 2), 6, 3), Propagation(scattered, hops=2)
    nodes = parts_of(scattered)[0]
    run = Run(CONFIG, 0)
    with pytest.raises(ConfigError, match="runs is empty"):
        fit_runs(model, source, [], nodes)
    with pytest.raises(GraphError, match="training set is empty"):
        fit_runs(model, source, [run], NodeSet(np.array([], int), np.array([], int)))
    with pytest.raises(ConfigError, match="propagation is for 3 hops"):
        fit_runs(model, Propagation(scattered, hops=3), [run], nodes)
    with pytest.raises(ConfigError, match="chebyshev"):
        fit_runs(model, Propagation(scattered, basis="chebyshev", hops=2), [run], nodes)
    for change in ({"epochs": 3}, {"patience": 3}, {"order": "hops-first"}, {"batch": 4}):
        other = Run(dataclasses.replace(CONFIG, **change), 1)
        with pytest.raises(ConfigError, match="runs trained together must share"):
            fit_runs(model, source, [run, other], nodes)
    for seed in (-1, 2**80, 1.5):
        with pytest.raises(ConfigError, match="seed is"):
            fit_runs(model, source, [Run(CONFIG, seed)], nodes)


def checked(nodes, labels):
    NodeSet(nodes, labels).check(60)
    find_task().targets(labels, 3)


@pytest.mark.parametrize(
    ("nodes", "labels", "sentence"),
    [
        ([0, 60], [0, 1], r"node 60 is not in 0 \.\. 59"),
        ([5, 61, 60], [0, 1, 1], r"node 61 is not in 0 \.\. 59"),
        ([-2, 61], [0, 1], r"node -2 is not in 0 \.\. 59"),
        ([-1, 4], [0, 1], r"node -1 is not in 0 \.\. 59"),
        ([0, 4], [0, 3], r"label 3 is not in 0 \.\. 2"),
        ([0, 4], [-1, 2], r"label -1 is not in 0 \.\. 2"),
        ([0, 4], [1], "pass one each"),
        ([[0], [4]], [[1], [1]], "pass one each"),
    ],
)
def test_nodes_and_labels_out_of_range(nodes, labels, sentence):
    with pytest.raises(GraphError, match=sentence):
        checked(np.array(nodes), np.array(labels))


def test_nodes_and_labels_at_the_ends_of_their_range():
    checked(np.array([0, 59]), np.array([0, 2]))
    checked(np.array([], int), np.array([], int))


def test_seeds():
    assert as_seeds(3) == [0, 1, 2]
    assert as_seeds(1) == [0]
    assert as_seeds(np.array([7, 2])) == [7, 2]
    assert as_seeds(range(2, 5)) == [2, 3, 4]
    for bad in (0, -2, [], [1, 1], [0, -1], 100_001, 1.5, "3"):
        with pytest.raises(ConfigError, match="seeds is"):
            as_seeds(bad)


# ---- batches and plans


def test_runs_that_train_together(scattered, monkeypatch):
    source = Propagation(scattered, hops=2)
    sgc, gat = (build_model(ModelConfig(name), 6, 3) for name in ("sgc", "gat"))

    def runs(*rates, **more):
        return [Run(TrainingConfig(dropout=rate, **more), r) for r, rate in enumerate(rates)]

    assert batches_of(sgc, source, runs(0, 0.5, 0, 0.1)) == [[1, 3], [0, 2]]
    assert batches_of(sgc, source, runs(0, 0)) == [[0, 1]]
    assert batches_of(gat, source, runs(0, 0)) == [[0], [1]]
    assert batches_of(sgc, source, runs(0, 0, optimizer="lbfgs")) == [[0], [1]]
    assert batches_of(sgc, source, runs(0, 0, batch=4)) == [[0], [1]]
    size = run_bytes(sgc, source)
    for free, expected in (
        (4 * 2 * size, [[0, 1], [2, 3], [4]]),
        (4 * 2 * size - 4, [[0], [1], [2], [3], [4]]),
        (0, [[0], [1], [2], [3], [4]]),
    ):
        monkeypatch.setattr(runs_module, "free_memory", lambda free=free: free)
        assert batches_of(sgc, source, runs(0, 0, 0, 0, 0)) == expected


def test_sizes_of_a_run(scattered):
    source = Propagation(scattered, hops=4)
    lgc = build_model(ModelConfig("lgc", 4), 6, 3)
    assert signal_size(lgc, source) == 60 * 3
    wide = build_model(ModelConfig("hlgc", 4, gate="feature"), 6, 3)
    assert signal_size(wide, source) == 60 * 6
    lgc_weights, wide_weights = 6 * 3 + 5, 6 * 3 + 9 * 6 + 6
    ratio = run_bytes(lgc, source) / (6 * lgc_weights + 12 * 180)
    assert ratio in (4, 8)  # bytes of a number
    assert run_bytes(wide, source) == ratio * (6 * wide_weights + 16 * 360)


def test_the_sizes_that_a_plan_goes_by(scattered):
    source = Propagation(scattered, hops=3)
    runs = [Run(CONFIG, 0), Run(CONFIG, 1)]
    for model, kept in (("sgc", 1), ("lgc", 4)):
        built = build_model(ModelConfig(model, 3), 6, 3)
        problem = plan_runs(built, source, runs, 33).problem
        assert (problem.nodes, problem.features, problem.classes) == (60, 6, 3)
        assert problem.operator_nonzeros == source.matrix.nnz
        assert problem.feature_nonzeros == 360
        assert (problem.hops, problem.kept_hops, problem.rows) == (3, kept, 33)
        assert (problem.epochs, problem.runs, problem.dropout) == (60, 2, False)
    dropped = [Run(CONFIG, 0), Run(dataclasses.replace(CONFIG, dropout=0.5), 1)]
    assert plan_runs(built, source, dropped, 33).problem.dropout
    scoring = plan_runs(built, source, dropped, 33, learns=False).problem
    assert (scoring.dropout, scoring.passes, problem.passes) == (False, 1, 2)
    batched = [Run(dataclasses.replace(CONFIG, batch=5), 0)]
    chosen = plan_runs(built, source, batched, 33)
    assert (chosen.order, chosen.reason) == ("hops-first", "as asked")
    split = scattered.split
    assert plan(scattered, "sgc", dropout=0).problem.rows == len(split.train)
    assert plan(scattered, "lgc", standardize=True).problem.rows == 60
    assert plan(scattered, "sgc", seeds=[4, 8, 1]).problem.runs == 3


# ---- rows and mini-batches


@pytest.mark.parametrize(("count", "batch"), [(5, 2), (100, 7), (64, 8), (129, 8), (3, 10), (1, 1)])
def test_windows_hold_every_position_once(count, batch):
    windows = list(shuffled_windows(count, batch, 3, 4))
    size = min(batch, count)
    seen = np.concatenate([part for _, parts in windows for part in parts])
    assert sorted(seen) == list(range(count))
    for window, parts in windows:
        assert (np.diff(window) > 0).all()
        assert sorted(np.concatenate(parts)) == window.tolist()
        assert len(window) <= 8 * size
        assert all(len(part) == size for part in parts[:-1])
    segments = math.ceil(count / size)
    assert len(windows) == math.ceil(segments / 8)
    short = [part for _, parts in windows for part in parts if len(part) < size]
    assert len(short) == (1 if count % size else 0)
    if count > 20:
        for seed, epoch in ((3, 5), (4, 4)):
            other = [
                part for _, parts in shuffled_windows(count, batch, seed, epoch) for part in parts
            ]
            assert np.concatenate(other).tolist() != seen.tolist()


@pytest.mark.parametrize("model", ["sgc", "lgc"])
def test_a_mini_batch_is_its_rows(scattered, model):
    """Loss and accuracy of every batch, from the logits of the whole graph."""
    built = build_model(ModelConfig(model, 2), 6, 3)
    weights = {
        name: value.double().unsqueeze(0)
        for name, value in built.initial(torch.Generator().manual_seed(5)).items()
    }
    source, nodes = Propagation(scattered, hops=2), parts_of(scattered)[0]
    logits = built.logits(weights, source.view())[:, 0]
    rows = ScoredRows.of(built, source, find_task(), nodes, "hops-first")
    assert rows.total == 15
    order = [part for _, parts in shuffled_windows(15, 4, 2, 1) for part in parts]
    found = list(rows.batches(4, 2, 1))
    assert [one.total for one in found] == [len(part) for part in order]
    for one, part in zip(found, order, strict=True):
        labels = torch.from_numpy(np.array(nodes.labels[part], np.int64))
        picked = logits[torch.from_numpy(np.array(nodes.nodes[part], np.int64))]
        loss, accuracy = one.measure(weights)
        torch.testing.assert_close(loss, cross_entropy(picked, labels)[None])
        right = (picked.argmax(1) == labels).double().mean()[None]
        torch.testing.assert_close(accuracy, right)
    assert list(rows.batches(0, 2, 1)) == [rows]


@pytest.mark.parametrize("batch", [4, 15, 99])
def test_the_curve_of_mini_batches_is_the_mean_over_rows(scattered, batch):
    """With a learning rate of almost nothing, every batch sees the first weights."""
    training = TrainingConfig(lr=1e-12, weight_decay=0, dropout=0, epochs=1, batch=batch)
    result = train(scattered, "sgc", hops=2, **dataclasses.asdict(training))
    whole = train(scattered, "sgc", hops=2, **dataclasses.asdict(training) | {"batch": 0})
    for name in ("train_loss", "train_accuracy"):
        mine, twin = (one.runs[0].history[name] for one in (result, whole))
        np.testing.assert_allclose(mine, twin, rtol=1e-6)


# ---- means and deviations


@pytest.mark.parametrize("rows", [1, 5, 9000])
def test_deviation_and_mean_and_their_gradients(rows):
    generator = torch.Generator().manual_seed(rows)
    values = torch.randn(rows, 2, 3, dtype=torch.float64, generator=generator) + 4
    values[:, 1, 2] = 7.0
    values.requires_grad_()
    std, mean = std_mean(values, rows, lambda part: part)
    twin_std, twin_mean = torch.std_mean(values, dim=0, keepdim=True, correction=0)
    torch.testing.assert_close(mean, twin_mean)
    torch.testing.assert_close(std, twin_std)
    if rows == 5:
        spread = values.detach()[:, :1].requires_grad_()
        assert torch.autograd.gradcheck(lambda v: std_mean(v, 5, lambda part: part), spread)
    (slope,) = torch.autograd.grad(std.sum() + 3 * mean.sum(), values)
    torch.testing.assert_close(slope[:, 1, 2], torch.full((rows,), 3 / rows, dtype=torch.float64))


def test_figures_over_runs(scattered):
    result = train(scattered, "sgc", seeds=[3, 1, 2], epochs=4, dropout=0, tie="first")
    tests = [run.test_accuracy for run in result.runs]
    assert [run.seed for run in result.runs] == [3, 1, 2]
    assert result.test_accuracy == pytest.approx(np.mean(tests))
    summary = result.summary()
    assert summary["test_accuracy_std"] == pytest.approx(np.std(tests))
    assert summary["epochs_mean"] == 4
    seconds = sum(run.seconds for run in result.runs)
    assert result.ms_per_epoch == pytest.approx(1000 * seconds / 12)
    best = max(result.runs, key=lambda run: run.val_accuracy)
    assert result.model is best.model
    nodes = scattered.split.test
    predicted = best.model.predict(scattered)[nodes]
    assert best.test_accuracy == pytest.approx(np.mean(predicted == scattered.labels[nodes]))
    assert repr(best) == f"ScoredRun(seed={best.seed}, test_accuracy={best.test_accuracy:.3f})"
    assert "3 runs, accuracy: validation" in repr(result)
