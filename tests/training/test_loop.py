"""The training loop: the best epoch is kept, the seed decides every bit, and what is refused.

That steps are those of autograd, and whole trainings those recorded with it, is in
test_gradients.py and test_reference.py; which epoch a monitor chooses is in test_monitor.py.
"""

import dataclasses
import math
import signal
import threading
import warnings

import numpy as np
import pytest
from tests.training.scattered import scattered_graph

import hoplite
from hoplite import ConfigError, GraphError, HopliteWarning
from hoplite.config import TrainingConfig
from hoplite.engine.backend import set_num_threads
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.training import NodeSet, Run, train_runs
from hoplite.training.sets import node_sets, shuffled_batches

NONE = NodeSet(np.empty(0, np.int64), np.empty(0, np.int64))


def settings(**options):
    own = {"lr": 0.1, "epochs": 30, "patience": 8, "tie": "first", "dropout": 0.0}
    return TrainingConfig(**own | options)


def fit(graph, runs, model="lgc", hops=3, parts=("train", "val"), **options):
    built = build_model(model_config(model, hops), graph.num_features, graph.num_classes)
    sets = {name: node_sets(graph)[name] for name in parts}
    return train_runs(built, Propagation.of(graph, built.config), runs, sets, **options)


def same_bits(one, other):
    weights = [getattr(run, "model", run).weights for run in (one, other)]
    return all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0]) and all(
        np.array_equal(curve, other.history[name]) for name, curve in one.history.items()
    )


# ---- bits


@pytest.mark.usefixtures("threads_as_before", "each_backend")
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("lgc", {"dropout": 0.5, "hops": 4}),
        ("lgc", {"drop_nodes": 0.3, "dropout": 0.2, "draws": 2, "consistency": 1.0, "hops": 2}),
        ("sgc", {"dropout": 0.0, "hops": 2}),
        ("egc", {"dropout": 0.0, "standardize": True, "hops": 3}),
        ("jacobiconv", {"dropout": 0.4, "output_dropout": 0.2, "hops": 3}),
        ("blocks", {"dropout": 0.3, "hops": 2}),
        ("blocks", {"dropout": 0.0, "batch": 16, "hops": 2}),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_a_seed_gives_the_same_bits_alone_and_among_others_on_any_threads(cora, model, options):
    options = options | {"epochs": 4, "lr": 0.1, "weight_decay": 5e-4}
    set_num_threads(1)
    alone = hoplite.train(cora, model, seeds=[5], **options).runs[0]
    other = hoplite.train(cora, model, seeds=[6], **options).runs[0]
    assert not np.array_equal(alone.model.weights["theta"], other.model.weights["theta"])
    for threads in (1, 2, 8):
        set_num_threads(threads)
        again = hoplite.train(cora, model, seeds=[5], **options).runs[0]
        among = hoplite.train(cora, model, seeds=[2, 5, 9, 6], **options).runs
        assert same_bits(alone, again)
        assert same_bits(alone, among[1])
        assert same_bits(other, among[3])


@pytest.mark.usefixtures("threads_as_before")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer")
def test_a_signal_ends_a_training_of_several_seeds(cora):
    set_num_threads(2)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            hoplite.train(cora, "lgc", seeds=4, epochs=10**6, patience=10**6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for one in threading.enumerate():
        if one.name.startswith("hoplite-run"):  # the signal may come while it is started
            one.join(timeout=600)
            assert not one.is_alive()


# ---- epochs


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_the_first_best_epoch_is_kept_and_patience_counts_from_it(patience):
    graph = scattered_graph()
    (result,) = fit(graph, [Run(settings(epochs=60, patience=patience), 1)], "sgc")
    curve = result.history["val_accuracy"]
    assert result.best_epoch == int(np.argmax(curve)) + 1
    assert result.epochs == len(curve) == min(60, result.best_epoch + patience)
    assert result.best("val_accuracy") == curve.max()
    assert result.seconds > 0
    # Training exactly up to the best epoch gives those very weights.
    short = Run(settings(epochs=result.best_epoch), 1)
    (stopped,) = fit(graph, [short], "sgc", parts=("train",))
    np.testing.assert_allclose(result.weights["theta"], stopped.weights["theta"], rtol=1e-9)


def test_the_best_epoch_is_a_validated_one():
    graph = scattered_graph()
    every, some = (
        fit(graph, [Run(settings(epochs=22, patience=22, validate_every=v), 1)], "sgc")[0]
        for v in (1, 4)
    )
    validated = [*range(3, 22, 4), 21]
    curve = some.history["val_accuracy"]
    assert np.flatnonzero(np.isfinite(curve)).tolist() == validated
    np.testing.assert_array_equal(curve[validated], every.history["val_accuracy"][validated])
    np.testing.assert_array_equal(some.history["train_loss"], every.history["train_loss"])
    assert some.best_epoch == validated[int(np.argmax(curve[validated]))] + 1


def test_without_validation_the_last_epoch_counts(graphs):
    graph = graphs(n=30, dtype=np.float32)
    built = build_model(model_config("lgc", 3), graph.num_features, 3)
    sets = {"train": node_sets(graph)["train"], "val": NONE}
    run = Run(settings(epochs=12, patience=1), 0)
    (result,) = train_runs(built, Propagation.of(graph, built.config), [run], sets)
    assert result.epochs == result.best_epoch == 12
    assert math.isnan(result.best("val_accuracy"))
    assert set(result.history) == {"train_loss", "train_accuracy"}
    assert fit(graph, [Run(settings(), 0, last=5)])[0].epochs == 5


@pytest.mark.usefixtures("threads_as_before")
@pytest.mark.parametrize("threads", [1, 2])
def test_progress_counts_all_runs_and_those_that_ended(graphs, threads):
    set_num_threads(threads)
    states, graph = [], graphs(n=40, dtype=np.float32)
    runs = [Run(settings(patience=3, lr=lr), 0) for lr in (0.1, 1e-5, 0.1)]
    fit(graph, runs, progress=states.append)
    done = [state.done for state in states]
    assert done == sorted(done)
    assert all(state.total == 90 and state.epochs == 30 for state in states)
    assert (done[-1], states[-1].running) == (90, 0)
    assert 0 < states[-1].val_score <= 1


def test_a_diverging_run_is_told_and_keeps_its_best(graphs):
    graph = graphs(n=30, dtype=np.float32)
    with pytest.warns(HopliteWarning, match=r"diverged at epoch \d+ for seeds \[0\]"):
        results = fit(graph, [Run(settings(lr=1e30), 0), Run(settings(), 1)])
    assert [result.diverged for result in results] == [True, False]
    assert results[0].epochs < results[1].epochs
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same_bits(fit(graph, [Run(settings(), 1)])[0], results[1])
    for model in ("egc", "lgc"):
        for parts in (("train", "val"), ("train",)):
            with pytest.warns(HopliteWarning, match="diverged at epoch 1"):
                (lost,) = fit(graph, [Run(settings(lr=3e38), 0)], model, parts=parts)
            assert (lost.diverged, lost.best_epoch) == (True, 0)
            assert math.isnan(lost.best("val_accuracy"))
            assert all(np.isfinite(value).all() for value in lost.weights.values())


# ---- mini-batches and plans


@pytest.mark.parametrize(("count", "batch"), [(5, 2), (100, 7), (64, 8), (129, 8), (3, 10), (1, 1)])
def test_batches_hold_every_position_once(count, batch):
    parts = list(shuffled_batches(count, batch, 3, 4))
    size = min(batch, count)
    seen = np.concatenate(parts)
    assert sorted(seen) == list(range(count))
    assert sorted(len(part) for part in parts)[1:] == [size] * (len(parts) - 1)
    for first in range(0, len(parts), 8):  # of 8 long pieces, which files are read in
        rows = np.sort(np.concatenate(parts[first : first + 8]))
        assert np.count_nonzero(np.diff(rows) > 1) < 8
    if count > 20:
        for seed, epoch in ((3, 5), (4, 4)):
            other = np.concatenate(list(shuffled_batches(count, batch, seed, epoch)))
            assert other.tolist() != seen.tolist()
    assert list(shuffled_batches(count, 0, 3, 4)) == [None]


@pytest.mark.parametrize("batch", [4, 15, 99])
def test_the_curve_of_mini_batches_is_the_mean_over_rows(batch):
    """With a learning rate of almost nothing, every batch sees the first weights."""
    options = {"hops": 2, "lr": 1e-12, "weight_decay": 0, "dropout": 0, "epochs": 1}
    parts, whole = (
        hoplite.train(scattered_graph(), "sgc", batch=one, **options).runs[0].history
        for one in (batch, 0)
    )
    for name in ("train_loss", "train_accuracy"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-6)


# ---- what is refused


def test_runs_and_sets_that_do_not_fit_are_refused(graphs):
    graph = graphs(dtype=np.float32)
    model, run = build_model(model_config("lgc", 2), 5, 3), Run(settings(epochs=2), 0)
    source, sets = Propagation(graph, hops=2), node_sets(graph)
    for runs, data, part, error, sentence in [
        ([], source, sets["train"], ConfigError, "at least one run"),
        ([run], source, NONE, GraphError, "training set is empty"),
        ([run], Propagation(graph, hops=3), sets["train"], ConfigError, "has 3 hops"),
        ([run], Propagation(graph, basis="chebyshev"), sets["train"], ConfigError, "chebyshev"),
        *[
            ([dataclasses.replace(run, seed=seed)], source, sets["train"], ConfigError, "seed is")
            for seed in (-1, 2**80, 1.5)
        ],
    ]:
        with pytest.raises(error, match=sentence):
            train_runs(model, data, runs, {"train": part})
    outside = NodeSet(np.array([0, 99]), np.array([0, 1]))
    with pytest.raises(GraphError, match="node 99 is out of range"):
        train_runs(model, source, [run], {"train": sets["train"], "val": outside})
