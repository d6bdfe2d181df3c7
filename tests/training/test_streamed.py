"""Training from a hop store: the same as in memory, within the memory that was given."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.commands import hoplite as command

import hoplite
from hoplite import ConfigError, ModelConfig, TrainingConfig
from hoplite.models import build_model
from hoplite.propagation.engine import Propagation
from hoplite.store import HopStore, propagate
from hoplite.training import (
    NodeSet,
    Run,
    StoredPropagation,
    fit_runs,
    optimizers,
    stored_rows,
    streamed,
)
from hoplite.training.stored_rows import WINDOW, shuffled_windows

MODELS = [
    ("sgc", "class"),
    ("egc", "class"),
    ("heat", "class"),
    ("lgc", "class"),
    ("blocks", "class"),
    ("jacobiconv", "class"),
    ("hlgc", "class"),
    ("hlgc", "node"),
    ("hlgc", "feature"),
]


@pytest.fixture(scope="module")
def graph(graphs):
    return graphs(n=90, d=7, dtype=np.float32, density=0.1)


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return propagate(graph, tmp_path_factory.mktemp("store"), hops=3)


@pytest.fixture
def small_tiles(monkeypatch):
    """Rows in tiles of 3 and chunks of 7, none of which stay in memory."""
    monkeypatch.setattr(streamed, "TILE_BYTES", 3 * 4 * 4 * 7)
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 7 * 4 * 4 * 7)
    monkeypatch.setattr(stored_rows.Shelf, "take", lambda self, rows: False)


def both(graph, store, model, training, seeds=(0,), **options):
    """The results in memory and from the store."""
    options = {"basis": "monomial"} | options  # the store's
    config = ModelConfig(model, options.pop("hops", 3), **options)
    built = build_model(config, graph.num_features, graph.num_classes)
    sets = [NodeSet(n, graph.labels[n]) for n in (graph.split.train, graph.split.val)]
    runs = [Run(training, seed) for seed in seeds]
    memory = Propagation(graph, config.operator, config.basis, config.hops)
    stored = StoredPropagation(store, built, training=training, runs=len(seeds))
    return fit_runs(built, memory, runs, *sets), fit_runs(built, stored, runs, *sets)


def assert_same(first, second, rtol=2e-4):
    for one, other in zip(first, second, strict=True):
        assert (one.epochs, one.best_epoch) == (other.epochs, other.best_epoch)
        for name, curve in one.history.items():
            np.testing.assert_allclose(curve, other.history[name], rtol=rtol, atol=1e-5)
        for name, value in one.weights.items():
            torch.testing.assert_close(value, other.weights[name], rtol=10 * rtol, atol=1e-4)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("model", "gate"), MODELS)
@pytest.mark.parametrize(
    ("optimizer", "standardize"), [("adam", False), ("adam", True), ("lbfgs", True)]
)
def test_equals_training_in_memory(graph, store, model, gate, standardize, optimizer, monkeypatch):
    # few, because a line search can turn a difference in the last digit into another step
    monkeypatch.setattr(optimizers, "LBFGS_ITERATIONS", 2)
    training = TrainingConfig(
        optimizer=optimizer,
        dropout=0,
        epochs=8 if optimizer == "adam" else 3,
        lr=0.1 if optimizer == "adam" else 1,
        weight_decay=1e-2,
        order="hops-first",
    )
    options = {"gate": gate, "standardize": standardize, "bias": True}
    assert_same(*both(graph, store, model, training, **options))


@pytest.mark.usefixtures("small_tiles")
def test_several_runs_and_fewer_hops_than_the_store_has(graph, store):
    training = TrainingConfig(dropout=0, epochs=12, patience=3, lr=0.2, order="hops-first")
    assert_same(*both(graph, store, "lgc", training, seeds=(0, 1, 2), hops=2))


@pytest.mark.parametrize(("model", "gate"), MODELS)
def test_gradient_of_the_streamed_signal(graph, store, model, gate):
    config = ModelConfig(model, 3, basis="monomial", gate=gate)
    built = build_model(config, graph.num_features, graph.num_classes)
    first = built.initial(torch.Generator().manual_seed(0))
    outer = torch.randn(graph.num_nodes, 1, graph.num_classes)
    found = []
    for source in (Propagation(graph, hops=3), StoredPropagation(store, built)):
        weights = {name: value[None].clone().requires_grad_() for name, value in first.items()}
        (built.logits(weights, source.view()) * outer).sum().backward()
        found.append({name: value.grad for name, value in weights.items()})
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_threads_change_nothing_but_rounding_and_repeat_their_bits(graph, store, monkeypatch):
    monkeypatch.setattr(streamed, "TILE_BYTES", 5 * 4 * 4 * 7)
    built = build_model(ModelConfig("lgc", 3), graph.num_features, graph.num_classes)
    weights = {n: v[None] for n, v in built.initial(torch.Generator().manual_seed(1)).items()}
    before, signals = torch.get_num_threads(), []
    try:
        for threads in (1, 3, 3):
            torch.set_num_threads(threads)
            own = {name: value.clone().requires_grad_() for name, value in weights.items()}
            signal = StoredPropagation(store, built).view().evaluate(built, own, None)
            signal.square().sum().backward()
            assert torch.get_num_threads() == threads
            signals.append([signal.detach(), *[value.grad for value in own.values()]])
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(signals[0], signals[1])
    assert all(torch.equal(*pair) for pair in zip(signals[1], signals[2], strict=True))


@pytest.mark.parametrize("kept", [False, True])
def test_mini_batches_are_the_same_in_memory_and_from_a_store(graph, store, kept, monkeypatch):
    monkeypatch.setattr(streamed, "CHUNK_BYTES", 4 * 4 * 4 * 7)
    if not kept:
        monkeypatch.setattr(stored_rows.Shelf, "take", lambda self, rows: False)
    training = TrainingConfig(dropout=0, epochs=6, lr=0.05, batch=4)
    assert_same(*both(graph, store, "lgc", training, seeds=(3, 4), bias=True))
    assert_same(*both(graph, store, "sgc", training))


def test_a_batch_of_all_rows_is_the_full_step(graph, store):
    training = TrainingConfig(dropout=0, epochs=5, order="hops-first")
    for batch in (30, 10**12):
        full = both(graph, store, "lgc", training)[0]
        batched = both(graph, store, "lgc", TrainingConfig(dropout=0, epochs=5, batch=batch))[1]
        assert_same(full, batched)


def test_shuffle_sees_every_row_once_and_goes_by_seed_and_epoch():
    def order(*arguments):
        return [batch for _, batches in shuffled_windows(*arguments) for batch in batches]

    batches = order(103, 4, 0, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(103))
    assert sorted(len(batch) for batch in batches) == [3] + 25 * [4]
    same, epoch, seed = order(103, 4, 0, 0), order(103, 4, 0, 1), order(103, 4, 1, 0)
    assert all(np.array_equal(*pair) for pair in zip(batches, same, strict=True))
    for other in (epoch, seed):
        assert not np.array_equal(np.concatenate(batches), np.concatenate(other))
    for window, parts in shuffled_windows(103, 4, 0, 0):
        assert (np.diff(window) > 0).all()
        assert np.count_nonzero(np.diff(window) > 1) < WINDOW  # long pieces, in disk order
        assert sorted(np.concatenate(parts)) == window.tolist()


def test_only_needed_hops_and_rows_are_read(graph, store, monkeypatch):
    read = []
    original = HopStore.read

    def watched(self, start, stop, hops=None):
        read.append((start, stop, list(hops)))
        return original(self, start, stop, hops)

    monkeypatch.setattr(HopStore, "read", watched)
    hoplite.train(store, "sgc", optimizer="lbfgs", epochs=2, lr=1)
    assert {tuple(hops) for _, _, hops in read} == {(3,)}
    rows = {row for start, stop, _ in read for row in range(start, stop)}
    assert rows == set(range(90))  # training, validation twice, and once the test nodes
    assert len(read) == 4  # the rest stayed in memory


def test_train_takes_a_store_or_its_path(graph, store):
    options = {"optimizer": "lbfgs", "epochs": 3, "lr": 1, "standardize": True, "bias": True}
    stored = hoplite.train(str(store.folder), "lgc", **options)
    memory = hoplite.train(graph, "lgc", hops=3, dropout=0, **options)
    assert (stored.model_config.hops, stored.training_config.dropout) == (3, 0)
    assert stored.test_accuracy == memory.test_accuracy
    assert stored.summary()["split"] == memory.summary()["split"]
    np.testing.assert_allclose(stored.model.logits(graph), memory.model.logits(graph), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dropout": 0.5}, "set dropout to 0"),
        ({"hops": 4}, "hops is 4 but .* has 3"),
        ({"operator": "laplacian"}, "operator is 'laplacian' but .* 'renormalized'"),
        ({"basis": "chebyshev"}, "basis is 'chebyshev' but"),
        ({"order": "weights-first"}, "a store holds hop features"),
        ({"memory": "100MB"}, "give --memory [0-9]+MB or more"),
        ({"memory": "much"}, "memory is 'much'"),
        ({"batch": 8, "standardize": True}, "standardize needs the mean"),
        ({"batch": 8, "optimizer": "lbfgs"}, "optimizer is 'lbfgs'"),
        ({"batch": -1}, "batch is -1"),
    ],
)
def test_what_a_store_cannot_do_is_told(store, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        hoplite.train(store, "lgc", epochs=1, **options)


def test_other_refusals(graph, store):
    for model in ("gcn", "gat"):
        with pytest.raises(ConfigError, match="needs the graph's edges"):
            hoplite.train(store, model, epochs=1)
    with pytest.raises(ConfigError, match="gcn needs the whole graph"):
        hoplite.train(graph, "gcn", epochs=1, batch=5, dropout=0)
    with pytest.raises(ConfigError, match=r"dropout is 0\.5"):
        hoplite.train(graph, "lgc", epochs=1, batch=5)
    with pytest.raises(ConfigError, match="memory is given"):
        hoplite.train(graph, "lgc", epochs=1, memory="4GB")
    built = build_model(ModelConfig("lgc", 3), graph.num_features, graph.num_classes)
    with pytest.raises(ConfigError, match="rising order"):
        StoredPropagation(store, built).view(np.array([2, 1]))


def test_the_command_takes_a_store(graph, store, tmp_path):
    options = ["--model", "sgc", "--hops", 2, "--epochs", 4, "--seeds", 2, "--memory", "1GB"]
    done = command("train", store.folder, *options, "--out", tmp_path / "model", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["config"]["hops"], summary["config"]["dropout"]) == (2, 0)
    model = hoplite.TrainedModel.load(tmp_path / "model")
    expected = hoplite.train(graph, "sgc", hops=2, epochs=4, seeds=2, dropout=0)
    np.testing.assert_allclose(model.logits(graph), expected.model.logits(graph), atol=1e-4)
    for wrong, sentence in [
        (["--dropout", 0.5], "set dropout to 0"),
        (["--hops", 9], "hops is 9 but"),
        (["--batch", 4, "--standardize"], "standardize needs"),
    ]:
        done = command("train", store.folder, *wrong)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


MEASURE = r"""
import json, re, sys
from pathlib import Path
from hoplite.training import optimizers, train
optimizers.LBFGS_ITERATIONS = 2
result = train(sys.argv[1], "lgc", memory="540MB", epochs=1, **json.loads(sys.argv[2]))
# not getrusage, which counts the memory of the process that started this one, too
status = Path("/proc/self/status").read_text()
peak = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])
print(json.dumps({"peak": peak, "loss": result.runs[0].history["train_loss"].tolist()}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak")
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "lbfgs", "standardize": True},
        {"optimizer": "adam", "batch": 500},
    ],
    ids=["lbfgs", "mini-batches"],
)
def test_memory_stays_within_the_budget(large_store, options):
    """Hop features of 300 MB, all of which must be read, in 540 MB with Python and torch."""
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, str(large_store.folder), json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert np.isfinite(found["loss"]).all()
    assert found["peak"] <= 540 * 10**6


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    """Bigger than what the libraries leave of the budget, and cheap to make: no edges."""
    generator = np.random.default_rng(0)
    features = generator.random((75_000, 250), np.float32)
    labels = generator.integers(0, 5, 75_000)
    split = hoplite.Split(*np.split(generator.permutation(75_000), [45_000, 60_000]))
    graph = hoplite.Graph.from_edges([], features, labels, split=split)
    folder = tmp_path_factory.mktemp("large")
    return propagate(graph, folder, hops=3)
