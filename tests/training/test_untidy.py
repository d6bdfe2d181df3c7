"""Training on untidy graphs: from a store, in company or on several processes, as alone in memory.

Few epochs with small tolerances: wrong rows or weights show at once, rounding does not grow.
"""

import dataclasses
import json
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import untidy
from tests.commands import Process
from tests.examples import examples

import hoplite
from hoplite.models import build_model, split_options
from hoplite.propagation.engine import Propagation
from hoplite.store import propagate
from hoplite.training import Run, fit_runs, streamed
from hoplite.training.runs import node_sets
from hoplite.training.stored_rows import Shelf, StoredRows

pytestmark = pytest.mark.filterwarnings(untidy.UNTRAINED)
SIZES = st.tuples(st.integers(1, 64), st.integers(1, 9))  # rows of a block, columns of a panel


def make_store(graph, folder, sizes, options):
    settings = {name: options[name] for name in ("hops", "operator", "basis") if name in options}
    untidy.cut_store(graph, Path(folder, "store"), *sizes, **settings)
    return propagate(graph, Path(folder, "store"), **settings)


@given(untidy.graphs(least=20), SIZES, st.integers(1, 30), st.integers(0, 5000), st.data())
@examples(20)
def test_rows_of_a_store_are_those_of_the_nodes(graph, sizes, chunk_rows, room, data):
    rng, share = np.random.default_rng(data.draw(untidy.SEEDS)), data.draw(st.floats(0, 1))
    nodes = np.flatnonzero(rng.random(graph.num_nodes) < share)
    hops = data.draw(st.sampled_from([[0, 1, 2], [2]]))
    with untidy.folder() as folder:
        store = make_store(graph, folder, sizes, {"hops": 2})
        check_rows(StoredRows(Shelf(store, hops, chunk_rows, room), nodes), store, nodes, rng)


def test_rows_of_a_scattered_split_in_chunks_of_every_size(graphs, tmp_path):
    graph, rng = graphs(n=130, d=3), np.random.default_rng(0)
    store = propagate(graph, tmp_path, hops=1)
    few, most = np.array([0, 2, 100]), np.sort(rng.permutation(130)[:86])
    for nodes in (few, most):
        for chunk_rows in range(1, 131):
            shelf = Shelf(store, [0, 1], chunk_rows, room=0)
            check_rows(StoredRows(shelf, nodes), store, nodes, rng)


def check_rows(rows, store, nodes, rng):
    """All chunks, and some rows that are picked, twice: what is kept must be right, too."""
    hops = rows._shelf.hops
    expected = store.read(0, store.num_nodes, hops)[:, nodes]
    for _ in range(2):
        wanted = np.flatnonzero(rng.random(len(nodes)) < 0.7)
        np.testing.assert_array_equal(rows.pick(torch.from_numpy(wanted)), expected[:, wanted])
        place = 0
        for start, chunk in rows.chunks():
            assert start == place
            place += chunk.shape[1]
            np.testing.assert_array_equal(chunk, expected[:, start:place])
        assert place == len(rows) == len(nodes)


@given(untidy.graphs(), untidy.options(), SIZES, st.integers(1, 16), st.integers(0, 3000))
@examples(6)
def test_from_a_store_as_in_memory(graph, options, sizes, tile_rows, extra):
    """At the least memory that works and ``extra`` bytes more, with tiles of any size."""
    with untidy.folder() as folder, pytest.MonkeyPatch.context() as patch:
        store = make_store(graph, folder, sizes, options)
        hops = 1 if options["model"] == "sgc" else options["hops"] + 1
        patch.setattr(streamed, "TILE_BYTES", 4 * hops * graph.num_features * tile_rows)
        patch.setattr(streamed, "_room", lambda memory, least: least + extra)
        stored = hoplite.train(store, seeds=2, **options)
        order = {} if options["batch"] else {"order": "hops-first"}
        assert_same(hoplite.train(graph, seeds=2, **options, **order).runs, stored.runs)


@given(untidy.graphs(), untidy.options(("sgc", "egc", "lgc", "hlgc", "gcn")), st.data())
@examples(6)
def test_many_runs_together_as_each_alone(graph, options, data):
    if options["model"] == "gcn":
        options |= {"batch": 0}
        options.pop("hops", None)
    config, training = split_options(options.pop("model"), options)
    rates = st.sampled_from([0.0] if training.batch else [0.0, 0.0, 0.3, 0.7])
    kinds = st.tuples(st.floats(0.001, 0.2), st.floats(0, 0.1), rates, st.integers(0, 2**40))
    runs = [
        Run(dataclasses.replace(training, lr=lr, weight_decay=decay, dropout=dropout), seed)
        for lr, decay, dropout, seed in data.draw(st.lists(kinds, min_size=2, max_size=6))
    ]
    model = build_model(config, graph.num_features, graph.num_classes)
    source = Propagation(graph, config.operator, config.basis, config.hops)
    sets = node_sets(graph)
    together = fit_runs(model, source, runs, sets["train"], sets["val"])
    alone = [fit_runs(model, source, [run], sets["train"], sets["val"])[0] for run in runs]
    assert_same(alone, together)


def assert_same(expected, found):
    """The same curves, and the same weights of the best epochs where these are the same.

    Equal validation accuracies may differ in the last digit of a logit: then in one of few rows.
    """
    for one, other in zip(expected, found, strict=True):
        for name, curve in one.history.items():
            both = min(len(curve), len(other.history[name]))
            if name.endswith("loss"):
                np.testing.assert_allclose(
                    curve[:both], other.history[name][:both], rtol=2e-3, atol=2e-4, err_msg=name
                )
        if (one.best_epoch, one.epochs) == (other.best_epoch, other.epochs):
            for name, value in weights_of(one).items():
                torch.testing.assert_close(
                    value, weights_of(other)[name], rtol=2e-2, atol=2e-3, msg=name
                )


def weights_of(run):
    return run.model.weights if hasattr(run, "model") else run.weights


WORKER = """
import json, sys
import numpy as np
from hoplite.training import connected, streamed, train
from hoplite.training.distributed import ProcessTeam
with connected(timeout=600) as team:
    for line in sys.stdin:
        case = json.loads(line)
        streamed.TILE_BYTES = case["tile_bytes"]
        result = train(case["store"], team=ProcessTeam(case["shares"]), **case["options"])
        found = {}
        for run in result.runs:
            found |= {f"{run.seed}/weights/{w}": v.numpy() for w, v in run.model.weights.items()}
            found |= {f"{run.seed}/history/{name}": c for name, c in run.history.items()}
            found[f"{run.seed}/test"] = np.array(run.test_accuracy)
            found[f"{run.seed}/best"] = np.array([run.best_epoch, run.epochs])
        np.savez(f"{case['store']}.{team.rank}.npz", **found)
        print("done", flush=True)
"""


class Processes:
    """Processes that wait for cases and train them together; started anew after an error."""

    def __init__(self, size):
        self.size, self._running = size, []

    def train(self, **case):
        """What every process gave, as dicts of arrays."""
        if not self._running:
            self._start()
        for process in self._running:
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in self._running]
        if answers != ["done\n"] * self.size:
            self.stop()
            raise AssertionError(f"processes failed at {case}; their messages are above")
        return [dict(np.load(f"{case['store']}.{rank}.npz")) for rank in range(self.size)]

    def stop(self):
        for process in self._running:
            process.kill()
            process.wait()
            process.close()
        self._running = []

    def _start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        shared |= {"WORLD_SIZE": str(self.size)}
        self._running = [
            Process(WORKER, env=shared | {"RANK": str(rank)}, talk=True)
            for rank in range(self.size)
        ]


@pytest.fixture(scope="module", params=[2, 3])
def processes(request):
    team = Processes(request.param)
    yield team
    team.stop()


@given(
    graph=untidy.graphs(),
    options=untidy.options(),
    standardize=st.booleans(),
    sizes=SIZES,
    tile_rows=st.integers(1, 40),
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
@examples(3)
def test_several_processes_as_one(processes, graph, options, standardize, sizes, tile_rows, shares):
    shares = [*shares[: processes.size - 1], 1.0]  # none or one of them may have everything
    # a standardised multiple of one column does not depend on its factor: gradients are noise
    standardize = standardize and not options["batch"] and graph.num_features > 1
    options = options | {"seeds": 2, "standardize": standardize}
    with untidy.folder() as folder:
        store = make_store(graph, folder, sizes, options)
        tile_bytes = 4 * (options["hops"] + 1) * graph.num_features * tile_rows
        case = {"store": str(store.folder), "shares": shares, "tile_bytes": tile_bytes}
        ranks = processes.train(options=options, **case)
        for other in ranks[1:]:
            for name, value in ranks[0].items():
                np.testing.assert_array_equal(value, other[name], err_msg=name)
        alone = hoplite.train(store, **options)
    for run in alone.runs:
        found = {
            name.removeprefix(f"{run.seed}/"): value
            for name, value in ranks[0].items()
            if name.startswith(f"{run.seed}/")
        }
        for name, curve in run.history.items():
            together = found[f"history/{name}"]
            both = min(len(curve), len(together))
            if name.endswith("loss"):
                np.testing.assert_allclose(curve[:both], together[:both], rtol=2e-3, atol=2e-4)
        if found["best"].tolist() == [run.best_epoch, run.epochs]:
            for name, value in run.model.weights.items():
                np.testing.assert_allclose(
                    found[f"weights/{name}"], value, rtol=2e-2, atol=2e-3, err_msg=name
                )
