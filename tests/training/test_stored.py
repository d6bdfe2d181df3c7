"""Training from a hop store: the same as in memory, within the memory that was given."""

import json
import subprocess
import sys

import numpy as np
import pytest

import hoplite
from hoplite import ConfigError, TrainingConfig, machine, model_config
from hoplite.engine import backend
from hoplite.engine.backend import use_threads
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model
from hoplite.store import HopStore, propagate
from hoplite.tasks import find_task
from hoplite.training import NodeSet, Run, stored, train_runs
from hoplite.training.sets import weighted_sets
from hoplite.training.stored import HopRows

MODELS = ["sgc", "ppr", "egc", "lgc", "blocks", "jacobiconv"]
STANDARDIZED = {"standardize": True, "bias": True}
ROW = 4 * 4 * 7  # bytes of a row of the store: 4 hops of 7 features


@pytest.fixture(scope="module")
def graph(graphs):
    return graphs(n=90, d=7, dtype=np.float32, density=0.1)


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return propagate(graph, tmp_path_factory.mktemp("store"), hops=3)


@pytest.fixture(scope="module")
def untidy(graphs, tmp_path_factory):
    """A graph with sparse features and more isolated nodes; its store."""
    graph = graphs(n=90, d=7, seed=4, dtype=np.float32, sparse=True, isolated=10, density=0.05)
    return graph, propagate(graph, tmp_path_factory.mktemp("untidy"), hops=3)


@pytest.fixture
def short_ranges(monkeypatch):
    """Ranges of about 3 rows of 4 hops."""
    for module in (backend, stored):
        monkeypatch.setattr(module, "RANGE_NUMBERS", 3 * ROW // 4)


def build(graph, model="lgc", hops=3, **options):
    if model in ("lgc", "blocks", "jacobiconv", "hlgc"):
        options["basis"] = "monomial"  # the store's
    config = model_config(model, hops=hops, **options)
    return build_model(config, graph.num_features, graph.num_classes)


def shuffled_sets(graph, seed=0):
    """Training and validation nodes in no order."""
    rng, sets = np.random.default_rng(seed), {}
    for name in ("train", "val"):
        nodes = rng.permutation(getattr(graph.split, name))
        sets[name] = NodeSet(nodes, graph.labels[nodes])
    return sets


def in_memory(graph, model, training, sets, **options):
    source = Propagation.of(graph, model.config, np.float32)
    return train_runs(model, source, [Run(training, 0)], sets, **options)[0]


def from_store(store, model, training, sets, memory="4GB", **options):
    source = HopRows(store, model, training, memory=memory)
    return train_runs(model, source, [Run(training, 0)], sets, **options)[0]


def assert_same(one, other, atol=1e-6):
    assert (one.epochs, one.best_epoch) == (other.epochs, other.best_epoch)
    for name, curve in one.history.items():
        np.testing.assert_allclose(curve, other.history[name], rtol=atol, atol=atol, err_msg=name)
    for name, value in one.weights.items():
        np.testing.assert_allclose(value, other.weights[name], rtol=1e-3, atol=20 * atol)


def least_memory(store, model, training, monkeypatch):
    """The smallest limit of memory with which a training starts."""
    monkeypatch.setattr(machine, "used_memory", lambda: 10**8)
    needed = stored.run_bytes(store, model, training, stored.max_rows(store, model))
    ranges = 9 * stored.range_bytes(store, len(model.hops_read))
    return 10**8 + machine.RESERVE + needed + ranges


def bits(result):
    return [value.tobytes() for value in (*result.history.values(), *result.weights.values())]


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", [{}, STANDARDIZED])
def test_equals_training_in_memory(graph, store, model, options):
    training = TrainingConfig(dropout=0, epochs=20, lr=0.05, weight_decay=1e-2)
    built, sets = build(graph, model, **options), shuffled_sets(graph)
    one = in_memory(graph, built, training, sets)
    assert_same(one, from_store(store, built, training, sets))


@pytest.mark.parametrize(
    ("model", "options"), [*((model, {"bias": True}) for model in MODELS), ("lgc", STANDARDIZED)]
)
def test_lbfgs_takes_the_same_steps_in_memory_and_from_a_store(untidy, model, options, monkeypatch):
    """Whole trajectories: line searches amplify rounding, so sums are the same to the bit."""
    graph, store = untidy
    for module in (backend, stored):
        monkeypatch.setattr(module, "RANGE_NUMBERS", 12 * ROW // 4)
    training = TrainingConfig(optimizer="lbfgs", dropout=0, epochs=8, lr=1, weight_decay=1e-3)
    built, sets = build(graph, model, **options), shuffled_sets(graph)
    least = least_memory(store, built, training, monkeypatch)
    results = []
    for threads in (1, 8):
        with use_threads(threads):
            results.append(in_memory(graph, built, training, sets))
            results += [from_store(store, built, training, sets, least + n) for n in (0, 10**9)]
    losses = results[0].history["train_loss"]
    assert len(losses) > 3
    assert losses[-1] < losses[0]
    assert all(bits(one) == bits(results[0]) for one in results)
    logits = built.logits(results[0].weights, Propagation.of(graph, built.config, np.float32))
    source = HopRows(store, built, TrainingConfig(dropout=0))
    np.testing.assert_allclose(source.logits(built, results[1].weights), logits, atol=1e-5)


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize(
    ("task", "loss"),
    [
        ("multiclass", "auto"),
        ("multilabel", "auto"),
        ("regression", "squared"),
        ("regression", "huber"),
    ],
)
def test_every_task_with_weights(graph, store, task, loss):
    rng, sets = np.random.default_rng(3), shuffled_sets(graph)
    training = TrainingConfig(dropout=0, epochs=15, lr=0.05)
    outputs = {"multiclass": 3, "multilabel": 4, "regression": 1}[task]
    task = find_task(task).with_loss(loss)
    if task.name == "multiclass":
        training = TrainingConfig(dropout=0, epochs=15, lr=0.05, class_weight="balanced")
    for name, part in sets.items():
        labels, count = part.labels, len(part)
        if task.name == "multilabel":
            labels = rng.integers(0, 2, (count, 4))
        elif task.name == "regression":
            labels = rng.normal(size=count)
        sets[name] = NodeSet(part.nodes, labels, rng.uniform(0.1, 3, count))
    task = task.fitted(sets["train"].labels, outputs)
    sets = weighted_sets(sets, task, training, [str(i) for i in range(outputs)])
    assert all(part.weights is not None for part in sets.values())
    model = build_model(model_config("lgc", hops=3, bias=True), graph.num_features, outputs)
    one = in_memory(graph, model, training, sets, task=task)
    assert_same(one, from_store(store, model, training, sets, task=task))


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kept", [False, True])
def test_mini_batches(graph, store, model, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(stored.Shelf, "fits", lambda self, size: False)
    built, sets = build(graph, model, bias=True), shuffled_sets(graph)
    for batch in (1, 4, 29, 10**9):
        training = TrainingConfig(dropout=0, epochs=4, lr=0.05, batch=batch)
        one = in_memory(graph, built, training, sets)
        assert_same(one, from_store(store, built, training, sets), 3e-6)


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [0, 4])
def test_memory_and_threads_change_no_bit(graph, store, model, batch, monkeypatch):
    built, sets = build(graph, model, bias=True), shuffled_sets(graph)
    training = TrainingConfig(dropout=0, epochs=3, lr=0.05, batch=batch)
    found, least = [], least_memory(store, built, training, monkeypatch)
    for threads in (1, 2, 5):
        for limit in (least, least + 3 * ROW, least + 30 * ROW, 10**10):
            with use_threads(threads):
                found.append(bits(from_store(store, built, training, sets, limit)))
    assert all(one == found[0] for one in found)
    with pytest.raises(ConfigError, match="this training needs"):
        from_store(store, built, training, sets, least - 1)


def test_only_needed_hops_and_rows_are_read(graph, store, monkeypatch):
    read, original = [], HopStore.rows

    def watched(self, nodes, hops=None):
        read.append(tuple(hops))
        return original(self, nodes, hops)

    monkeypatch.setattr(HopStore, "rows", watched)
    training = TrainingConfig(dropout=0, epochs=6)
    from_store(store, build(graph, "sgc"), training, shuffled_sets(graph))
    assert set(read) == {(3,)}
    assert len(read) == 2  # training and validation nodes, which stay in memory
    read.clear()
    monkeypatch.setattr(stored.Shelf, "fits", lambda self, size: False)
    from_store(store, build(graph, "sgc"), training, shuffled_sets(graph))
    assert len(read) >= 12


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("model", [*MODELS, "hlgc"])
def test_logits_of_a_trained_model(graph, store, model, standardize):
    if model == "hlgc":
        pytest.importorskip("torch")
    built = build(graph, model, bias=True, standardize=standardize)
    weights = built.initial(np.random.default_rng(1))
    weights["bias"] = np.float32([0.5, -1, 2])
    source = HopRows(store, built, TrainingConfig(dropout=0))
    expected = built.logits(weights, Propagation.of(graph, built.config))
    np.testing.assert_allclose(source.logits(built, weights), expected, atol=2e-5)
    for nodes in (graph.split.test, np.array([80, 3, 3, 41])):
        found = source.logits(built, weights, nodes)
        np.testing.assert_allclose(found, expected[nodes], atol=2e-5)


@pytest.mark.usefixtures("short_ranges")
@pytest.mark.parametrize("kept", [False, True])
def test_rows_and_chunks_in_any_order(graph, store, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(stored.Shelf, "fits", lambda self, size: False)
    source, whole = HopRows(store, build(graph), TrainingConfig(dropout=0)), store.read(0, 90)
    some = [np.arange(90), np.arange(20, 71), np.arange(0, 90, 40), np.array([5, 5, 2])]
    some += [np.random.default_rng(0).permutation(90), np.array([0, 0, 2])]
    for nodes in some:
        for hops in ([0, 1, 2, 3], [2], [3, 1]):
            expected = whole[hops][:, nodes]
            np.testing.assert_array_equal(source.rows(nodes, hops), expected)
            for _ in range(2):
                end = 0
                for part, found in source.chunks(nodes, hops):
                    assert part.start == end
                    np.testing.assert_array_equal(found, expected[:, part])
                    end = part.stop
                assert end == len(nodes)
    assert sum(found.shape[1] for _, found in source.chunks(None, [0])) == 90
    assert next(iter(source.chunks(None, [0])))[1].shape[1] < 90


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"dropout": 0.5}, "set dropout to 0"),
        ({"hops": 4}, "hops is 4 but .* has only 3"),
        ({"operator": "laplacian"}, "operator is 'laplacian' but .* 'renormalized'"),
        ({"basis": "chebyshev"}, "basis is 'chebyshev' but"),
        ({"order": "weights-first"}, "a hop store contains hop features"),
        ({"memory": "100MB"}, "use [0-9]+MB or more"),
        ({"memory": "much"}, "memory is 'much'"),
        ({"batch": 8, "standardize": True}, "standardize needs all nodes"),
        ({"batch": 8, "optimizer": "lbfgs"}, "optimizer='adam' instead"),
        ({"batch": -1}, "batch is -1"),
        ({"batch": 8, "cluster": "local:1"}, "batch is 8 but a cluster uses all rows"),
    ],
)
def test_what_a_store_cannot_do(store, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        hoplite.train(store, "lgc", epochs=1, **options)


MEASURE = r"""
import json, re, sys
from pathlib import Path
from hoplite.training import optimizers, train
optimizers.LBFGS_ITERATIONS = 1
result = train(sys.argv[1], "lgc", memory=sys.argv[2], epochs=1, **json.loads(sys.argv[3]))
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
    """Hop features of 300 MB, all of which must be read, in 400 MB with all libraries."""
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, str(large_store.folder), "400MB", json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert np.isfinite(found["loss"]).all()
    assert found["peak"] <= 400 * 10**6


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
