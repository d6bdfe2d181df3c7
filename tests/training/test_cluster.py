"""Training on a Dask cluster: the bits of one process, whatever happens to the workers."""

from contextlib import closing

import numpy as np
import pytest
from tests.dask_processes import dask, local_workers, running_workers  # noqa: F401 - a fixture

from hoplite import ConfigError, Graph, Split, TrainingConfig, model_config
from hoplite.engine import backend
from hoplite.models import build_model
from hoplite.store import propagate
from hoplite.training import NodeSet, Run, stored, train_runs
from hoplite.training.cluster import ClusterRows
from hoplite.training.stored import HopRows

pytest.importorskip("distributed")

CASES = {
    "sgc": ("sgc", {}, {}),
    "lgc": ("lgc", {"bias": True}, {}),
    "blocks": ("blocks", {}, {}),
    "standardized": ("lgc", {"standardize": True, "bias": True}, {}),
    "lbfgs": ("egc", {}, {"optimizer": "lbfgs", "lr": 1.0, "epochs": 2}),
}


@pytest.fixture(scope="module")
def graph():
    """Of about ten ranges of rows, of 5 hops each, with a split in no order."""
    rng = np.random.default_rng(0)
    n, d = 30_000, 70
    parts = np.split(rng.permutation(n), [20_000, 25_000])
    labels = rng.integers(0, 3, n)
    features = (rng.normal(size=(n, d)) + np.eye(3, d)[labels]).astype(np.float32)
    return Graph.from_edges(rng.integers(0, n, (50_000, 2)), features, labels, split=Split(*parts))


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return propagate(graph, tmp_path_factory.mktemp("store"), hops=4)


def setting(graph, case="lgc"):
    name, options, own = CASES[case]
    training = TrainingConfig(**{"dropout": 0, "epochs": 8, "patience": 8, "lr": 0.1} | own)
    model = build_model(model_config(name, hops=4, **options), graph.num_features, 3)
    rng, sets = np.random.default_rng(1), {}
    for part in ("train", "val"):
        nodes = rng.permutation(getattr(graph.split, part))
        sets[part] = NodeSet(nodes, graph.labels[nodes])
    return model, training, sets


def fit(model, source, training, sets, progress=None):
    return train_runs(model, source, [Run(training, 0)], sets, progress=progress)[0]


def assert_same_bits(one, other):
    for values, others in ((one.history, other.history), (one.weights, other.weights)):
        for name, value in values.items():
            np.testing.assert_array_equal(value, others[name], err_msg=name)


@pytest.mark.parametrize("workers", [1, 3])
def test_equals_one_process_to_the_bit(graph, store, dask, workers):  # noqa: F811
    for _ in range(workers):
        dask.worker()
    dask.wait_for(workers)
    for case in CASES:
        model, training, sets = setting(graph, case)
        alone = HopRows(store, model, training)
        expected = fit(model, alone, training, sets)
        with closing(ClusterRows(store, model, training, dask.address)) as source:
            assert source._cluster.size == workers
            found = fit(model, source, training, sets)
            assert_same_bits(found, expected)
            for nodes in (None, graph.split.test):
                np.testing.assert_allclose(
                    source.logits(model, found.weights, nodes),
                    alone.logits(model, found.weights, nodes),
                    atol=2e-5,
                )
        assert not list(store.folder.glob(".cluster*"))


def test_a_worker_that_dies_in_the_middle(graph, store, dask):  # noqa: F811
    """Its rows go to the other one; the bits stay, also when a new one comes."""
    model, training, sets = setting(graph)
    expected = fit(model, HopRows(store, model, training), training, sets)
    workers = [dask.worker(), dask.worker()]
    dask.wait_for(2)
    seen = []

    def progress(state):
        seen.append({k: w[0] for k, w in source._cluster.client.who_has().items() if w})
        if state.epoch == 3:
            workers[0].kill()
        if state.epoch == 5 and len(workers) == 2:
            workers.append(dask.worker())
            dask.wait_for(2)

    with closing(ClusterRows(store, model, training, dask.address)) as source:
        found = fit(model, source, training, sets, progress)
    assert workers[0].poll() == -9
    assert_same_bits(found, expected)
    shares = dict(seen[0].items() & seen[1].items() & seen[2].items())
    assert len(set(shares.values())) == 2  # workers keep their rows
    assert min(len({one[key] for key in shares if key in one}) for one in seen) == 1


def test_local_workers_that_are_killed(graph, store):
    model, training, sets = setting(graph)
    expected = fit(model, HopRows(store, model, training), training, sets)
    killed = []

    def progress(state):
        if state.epoch in (2, 5):
            victims = running_workers()[: state.epoch // 2]  # one, then both
            for worker in victims:
                worker.kill()
                killed.append(worker.pid)

    with closing(ClusterRows(store, model, training, "local:2")) as source:
        found = fit(model, source, training, sets, progress)
    assert len(killed) >= 2
    assert_same_bits(found, expected)
    assert not local_workers()


def test_refusals(graph, store):
    model, training, _ = setting(graph)
    with pytest.raises(ConfigError, match="batch is 9 but a cluster uses all rows"):
        ClusterRows(store, model, TrainingConfig(dropout=0, batch=9), "local:1")
    with pytest.raises(ConfigError, match="cluster is 'nowhere'"):
        ClusterRows(store, model, training, "nowhere")
    with pytest.raises(ConfigError, match="this training needs"):
        ClusterRows(store, model, training, "local:1", memory="50MB")
    gated = build_model(model_config("hlgc", hops=4), graph.num_features, 3)
    with pytest.raises(ConfigError, match="a cluster only trains linear models"):
        ClusterRows(store, gated, training, "local:1")


def test_more_workers_than_groups(graph, store, dask, monkeypatch):  # noqa: F811
    monkeypatch.setattr(backend, "RANGE_NUMBERS", 1 << 30)
    monkeypatch.setattr(stored, "RANGE_NUMBERS", 1 << 30)
    model, training, _ = setting(graph)
    for _ in range(2):
        dask.worker()
    dask.wait_for(2)
    with closing(ClusterRows(store, model, training, dask.address)) as source:
        order = source.order(model, np.arange(5))
        weights = model.initial(np.random.default_rng(0))
        values = order.evaluate(model.filter(weights)).values
    alone = HopRows(store, model, training).order(model, np.arange(5))
    np.testing.assert_array_equal(values, alone.evaluate(model.filter(weights)).values)
