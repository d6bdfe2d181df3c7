"""The training loop: together equals alone, the best epoch is kept, the seed decides everything."""

import warnings

import numpy as np
import pytest
import torch
from tests import pyg

from hoplite import ConfigError, GraphError, HopliteWarning
from hoplite.bases import EXAMPLES as BASES
from hoplite.config import TrainingConfig
from hoplite.models import ModelConfig, build_model
from hoplite.models.hlgc import GATES
from hoplite.propagation.engine import Propagation
from hoplite.training import NodeSet, Run, fit_runs

MODELS = [
    ("sgc", "class", "monomial"),
    ("egc", "class", "monomial"),
    *[(model, "class", "monomial") for model in ("s2gc", "ppr", "heat")],
    ("gcn", "class", "monomial"),
    ("gat", "class", "monomial"),
    *[("lgc", "class", basis) for basis in BASES],
    *[("jacobiconv", "class", basis) for basis in (BASES[0], BASES[-1])],
    *[("blocks", "class", basis) for basis in (BASES[0], BASES[-1])],
    *[("hlgc", gate, basis) for gate in GATES for basis in (BASES[0], BASES[-1])],
]


def node_set(graph, part):
    nodes = getattr(graph.split, part)
    return NodeSet(nodes, graph.labels[nodes])


def fit(graph, runs, model="lgc", gate="class", basis="monomial", val=True, **options):
    if model == "gat":
        pyg.layers()
    standardize = options.pop("standardize", False)
    own = {} if model in ("gcn", "gat") else {"hops": 3}
    config = ModelConfig(model, basis=basis, gate=gate, standardize=standardize, **own)
    built = build_model(config, graph.num_features, graph.num_classes)
    return fit_runs(
        built,
        Propagation(graph, config.operator, config.basis, config.hops),
        runs,
        node_set(graph, "train"),
        node_set(graph, "val") if val else None,
        **options,
    )


def settings(**options):
    return TrainingConfig(**({"lr": 0.1, "epochs": 30, "patience": 8, "tie": "first"} | options))


@pytest.mark.parametrize(("model", "gate", "basis"), MODELS)
@pytest.mark.parametrize("sparse", [False, True])
def test_together_equals_alone(graphs, model, gate, basis, sparse):
    graph = graphs(n=40, d=8, dtype=np.float32, sparse=sparse)
    runs = [
        Run(settings(lr=0.1, dropout=0.5), 0),
        Run(settings(lr=0.02, weight_decay=0.01, dropout=0.2), 1),
        Run(settings(lr=0.2, dropout=0.0), 2),
        Run(settings(lr=0.1, dropout=0.5), 3),
    ]
    together = fit(graph, runs, model, gate, basis)
    assert len({result.epochs for result in together}) > 1  # some left the batch before others
    for run, shared in zip(runs, together, strict=True):
        (alone,) = fit(graph, [run], model, gate, basis)
        assert (alone.epochs, alone.best_epoch) == (shared.epochs, shared.best_epoch)
        assert alone.best("val_accuracy") == pytest.approx(shared.best("val_accuracy"))
        np.testing.assert_allclose(
            alone.history["train_loss"], shared.history["train_loss"], rtol=1e-3, atol=1e-5
        )
        for name, value in alone.weights.items():
            torch.testing.assert_close(value, shared.weights[name], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(("model", "gate", "basis"), MODELS)
def test_orders_agree(graphs, model, gate, basis):
    graph = graphs(n=40, d=8, dtype=np.float32, sparse=True)
    results = [
        fit(graph, [Run(settings(dropout=0, order=order), 0)], model, gate, basis)[0]
        for order in ("weights-first", "hops-first", "auto")
    ]
    for other in results[1:]:
        np.testing.assert_allclose(
            results[0].history["train_loss"], other.history["train_loss"], rtol=1e-3, atol=1e-5
        )


def test_same_seed_same_bits_and_other_seed_other_bits(graphs):
    graph = graphs(n=40, dtype=np.float32)
    first, again = (fit(graph, [Run(settings(), 5)])[0] for _ in range(2))
    other = fit(graph, [Run(settings(), 6)])[0]
    for name, value in first.weights.items():
        assert torch.equal(value, again.weights[name])
        assert not torch.equal(value, other.weights[name])
    np.testing.assert_array_equal(first.history["val_loss"], again.history["val_loss"])


def test_best_weights_are_those_of_the_first_best_epoch(graphs):
    graph = graphs(n=60, dtype=np.float32)
    (result,) = fit(graph, [Run(settings(epochs=60, patience=20), 1)])
    curve = result.history["val_accuracy"]
    assert result.best_epoch == int(np.argmax(curve)) + 1
    assert result.best("val_accuracy") == curve.max()
    assert result.epochs == min(60, result.best_epoch + 20)
    assert len(curve) == result.epochs
    # Training exactly up to the best epoch gives those very weights.
    short = settings(epochs=result.best_epoch, patience=100)
    (stopped,) = fit(graph, [Run(short, 1)], val=False)
    for name, value in result.weights.items():
        torch.testing.assert_close(value, stopped.weights[name])


def test_without_validation_the_last_epoch_counts(graphs):
    graph = graphs(n=30, dtype=np.float32)
    (result,) = fit(graph, [Run(settings(epochs=12, patience=1), 0)], val=False)
    assert result.epochs == result.best_epoch == 12
    assert np.isnan(result.best("val_accuracy"))
    assert set(result.history) == {"train_loss", "train_accuracy"}


def test_watching_the_test_set_changes_nothing(graphs):
    graph = graphs(n=40, dtype=np.float32)
    (plain,) = fit(graph, [Run(settings(), 0)])
    (watched,) = fit(graph, [Run(settings(), 0)], watch=node_set(graph, "test"))
    assert "test_accuracy" in watched.history
    assert "test_accuracy" not in plain.history
    np.testing.assert_array_equal(plain.history["val_loss"], watched.history["val_loss"])
    for name, value in plain.weights.items():
        assert torch.equal(value, watched.weights[name])


def test_lbfgs_fits_better_than_its_start_and_reports_all_runs(graphs):
    graph = graphs(n=40, dtype=np.float32)
    seen = []
    runs = [Run(settings(lr=1, optimizer="lbfgs", dropout=0, epochs=5), seed) for seed in (0, 1)]
    results = fit(graph, runs, "sgc", progress=seen.append)
    for result in results:
        losses = result.history["train_loss"]
        assert losses[-1] < losses[0] - 0.05
    assert [state.done for state in seen] == sorted(state.done for state in seen)
    assert seen[-1].done == seen[-1].total == 10


def test_standardized_training_runs_and_learns(graphs):
    graph = graphs(n=60, dtype=np.float32)
    (result,) = fit(graph, [Run(settings(dropout=0), 0)], standardize=True)
    assert result.history["train_loss"][-1] < result.history["train_loss"][0]


def test_progress_counts_runs_that_left(graphs):
    seen = []
    runs = [Run(settings(patience=3, lr=lr), 0) for lr in (0.1, 1e-5)]
    fit(graphs(n=40, dtype=np.float32), runs, progress=seen.append)
    assert all(0 < state.done <= state.total == 60 for state in seen)
    assert seen[-1].done == 60


def test_diverging_run_is_told_and_keeps_its_best(graphs):
    graph = graphs(n=30, dtype=np.float32)
    wild = Run(settings(lr=1e30, dropout=0), 0)
    with pytest.warns(HopliteWarning, match="diverged"):
        results = fit(graph, [wild, Run(settings(), 1)])
    assert results[0].epochs < results[1].epochs
    assert [result.diverged for result in results] == [True, False]
    assert all(value.isfinite().all() for value in results[0].weights.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (alone,) = fit(graph, [Run(settings(), 1)])
    assert alone.best_epoch == results[1].best_epoch


@pytest.mark.parametrize("model", ["egc", "lgc"])
@pytest.mark.parametrize("validated", [True, False])
def test_a_first_step_too_far_leaves_finite_weights(graphs, model, validated):
    graph = graphs(n=30, dtype=np.float32)
    wild = Run(settings(lr=3e38, dropout=0), 0)
    with pytest.warns(HopliteWarning, match="diverged at epoch 1"):
        (result,) = fit(graph, [wild], model, val=validated)
    assert (result.diverged, result.best_epoch) == (True, 0)
    assert np.isnan(result.best("val_accuracy"))
    assert all(value.isfinite().all() for value in result.weights.values())


def test_bad_batches(graphs):
    graph = graphs(dtype=np.float32)
    with pytest.raises(ConfigError, match="at least one run"):
        fit(graph, [])
    with pytest.raises(ConfigError, match="must share"):
        fit(graph, [Run(settings(), 0), Run(settings(epochs=3), 0)])
    empty = NodeSet(np.empty(0, np.int64), np.empty(0, np.int64))
    model, run = build_model(ModelConfig(), graph.num_features, 3), Run(settings(), 0)
    propagation = Propagation(graph, hops=10)
    with pytest.raises(GraphError, match="training set is empty"):
        fit_runs(model, propagation, [run], empty)
    for nodes, labels, sentence in [
        ([0, 99], [0, 1], "node 99 is not in"),
        ([0, 1], [0, 3], "label 3 is not in"),
        ([0, 1], [0], "pass one each"),
    ]:
        with pytest.raises(GraphError, match=sentence):
            fit_runs(model, propagation, [run], NodeSet(np.array(nodes), np.array(labels)))
    with pytest.raises(ConfigError, match="seed is -1"):
        fit(graph, [Run(settings(), -1)])
    with pytest.raises(ConfigError, match="for 5 hops"):
        fit_runs(model, Propagation(graph, hops=5), [run], node_set(graph, "train"))
    (result,) = fit_runs(model, propagation, [run], node_set(graph, "train"), empty)
    assert np.isnan(result.best("val_accuracy"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lr": 0}, "lr is 0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"weight_decay": -1}, "weight_decay is -1"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"patience": 0}, "patience is 0"),
        ({"optimizer": "adm"}, "Did you mean 'adam'"),
        ({"order": "hops"}, "order is 'hops'"),
        ({"lr": "0.1"}, "lr is '0.1'"),
        ({"dropout": None}, "dropout is None"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"patience": True}, "patience is True"),
    ],
)
def test_bad_settings(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        TrainingConfig(**options)
