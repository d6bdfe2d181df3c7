"""The same blocks from a Dask cluster as from one process, whatever happens to its workers."""

import json
import os
import random
import signal
import subprocess

import numpy as np
import pytest
from tests.commands import Process, hoplite, start
from tests.dask_processes import ANOTHER_VERSION, WITHOUT_HOPLITE, local_workers, running_workers

from hoplite import Graph
from hoplite.errors import ClusterError
from hoplite.io import write_npz
from hoplite.store import HopStore, StoreError, propagate

SET_BY_DASK = ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
HOPS = 10  # so many that the work does not end while a test looks at it

psutil = pytest.importorskip("psutil")
pytest.importorskip("distributed")


@pytest.fixture
def work(stores, tmp_path):
    """Stores to fill, cut into 20 panels of small blocks, and how they should look."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 900, (4000, 2)), features=rng.standard_normal((900, 40), np.float32)
    )

    def make(*names, **settings):
        for name in ("whole", *names):
            stores.cut(graph, tmp_path / name, 128, 2, **settings)
        propagate(graph, tmp_path / "whole", **settings)
        return graph, stores.all_bytes(tmp_path / "whole"), *(tmp_path / name for name in names)

    return make


def test_local_workers_that_are_killed_again_and_again(work, stores):
    graph, whole, folder = work("killed", hops=2)
    environment = {name: os.environ.get(name) for name in SET_BY_DASK}
    random.seed(0)
    calls, killed = [], []

    def progress(what, share):
        calls.append((what, share))
        if len(killed) < 6 and " of panel " in what and len(calls) % 5 == 0:
            workers = running_workers()
            for worker in workers if len(killed) % 3 == 0 else workers[:1]:
                worker.kill()
                killed.append(worker.pid)

    store = propagate(graph, folder, hops=2, cluster="local:2", progress=progress)
    assert len(set(killed)) >= 2
    assert store.verify() == []
    assert stores.all_bytes(folder) == whole  # nor is anything left behind
    places = [what for what, _ in calls if " of panel " in what]
    assert len(places) == len(set(places)) == 40
    assert calls[-1][1] == pytest.approx(1)
    assert [share for _, share in calls] == sorted(share for _, share in calls)
    assert not local_workers()
    assert environment == {name: os.environ.get(name) for name in SET_BY_DASK}
    assert propagate(graph, folder, hops=2, cluster="local:1").complete  # nothing to do


def test_workers_of_a_scheduler_that_are_lost_for_good(work, stores, dask):
    """Dask would give up a task with its first worker (allowed-failures 0); it is given again."""
    settings = {"hops": 4, "dtype": "float16", "basis": "chebyshev"}
    graph, whole, folder = work("lost", **settings)
    workers = [dask.worker(), dask.worker()]
    dask.wait_for(2)
    seen = 0

    def progress(what, share):
        nonlocal seen
        seen += " of panel " in what
        if seen == 10 and len(workers) == 2:
            workers[0].kill()
            workers.append(dask.worker("--nthreads", "3"))
        if seen == 40 and workers[1].poll() is None:
            workers[1].kill()

    store = propagate(graph, folder, cluster=dask.address, progress=progress, **settings)
    assert seen == 80
    assert store.verify() == []
    assert [worker.poll() for worker in workers] == [-9, -9, None]
    assert stores.all_bytes(folder) == whole
    # damage that a worker meets on its way is repaired, as in one process
    (folder / "v0/hops/h4/c0003.json").unlink()
    block = folder / "v0/hops/h0/r000001-c0003.npy"
    block.write_bytes(block.read_bytes()[:-4] + bytes(4))
    propagate(graph, folder, cluster=dask.address, **settings)
    assert stores.all_bytes(folder) == whole
    large = graph.with_features(np.asarray(graph.features) * 1e6)
    with pytest.raises(StoreError, match="exceeds the range of float16"):
        propagate(large, folder.parent / "large", cluster=dask.address, **settings)


def test_workers_that_cannot_do_the_work(graphs, tmp_path, dask):
    graph = graphs(12, 3, dtype=np.float32)

    def sentence(worker, **options):
        dask.wait_for(1)
        with pytest.raises(ClusterError) as caught:
            propagate(graph, tmp_path / "s", hops=1, cluster=dask.address, **options)
        worker.kill()
        worker.wait()
        dask.wait_for(0)
        return str(caught.value)

    other = dask.worker(before=ANOTHER_VERSION)
    assert "has Hoplite 0.0.7 (build " in sentence(other)
    none = dask.worker(before=WITHOUT_HOPLITE)
    assert "cannot import Hoplite" in sentence(none)
    small = dask.worker("--memory-limit", "1GB")
    found = sentence(small, memory="900MB")
    assert "--memory-limit 0, or lower Hoplite's limit to 800MB" in found
    hide = f"mount -t tmpfs tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-m", "sh", "-c", hide], capture_output=True).returncode == 0:
        blind = dask.worker(prefix=["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh"])
        assert f"cannot access the folder {tmp_path / 's'}" in sentence(blind)
    assert not list((tmp_path / "s").glob("v0"))  # it was noticed before any work


def test_nobody_is_there(graphs, tmp_path, dask, monkeypatch):
    graph = graphs(12, 3, dtype=np.float32)
    monkeypatch.setattr("hoplite.store.cluster.PATIENCE", 1.0)
    with pytest.raises(
        ClusterError, match=r"has had no workers for 1 s; finished work is kept, so start some"
    ):
        propagate(graph, tmp_path / "s", hops=1, cluster=dask.address)
    worker = dask.worker()
    dask.wait_for(1)

    def all_die(what, share):
        if what == "writing the features":
            worker.kill()

    with pytest.raises(
        ClusterError, match=r"has had no workers for 1 s; finished work is kept, so start some"
    ):
        propagate(graph, tmp_path / "s", hops=1, cluster=dask.address, progress=all_die)

    monkeypatch.undo()
    dask.worker()
    dask.wait_for(1)

    def the_end(what, share):
        if what == "writing the features":
            dask.scheduler.kill()

    with pytest.raises(ClusterError, match=r"the scheduler tcp://.* was lost"):
        propagate(graph, tmp_path / "t", hops=1, cluster=dask.address, progress=the_end)
    monkeypatch.setattr("hoplite.store.cluster.CONNECT_SECONDS", 0.5)
    with pytest.raises(ClusterError, match="no Dask scheduler answers at tcp://"):
        propagate(graph, tmp_path / "s", hops=1, cluster=dask.address)
    assert propagate(graph, tmp_path / "s", hops=1).verify() == []


def test_two_processes_write_the_same_blocks(work, stores):
    """As when a worker was thought lost, and its task given to another."""
    _, whole, folder = work("twice", hops=4)
    for name in whole:
        if not name.startswith(tuple(f"v0/hops/h{hop}" for hop in (1, 2, 3, 4))):
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_bytes(whole[name])
    code = (
        "import sys; from hoplite.store.building import compute_panel; sys.stdin.read()\n"
        "for panel in range(20): compute_panel(sys.argv[1], 0, panel, 10**9)"
    )
    both = [Process(code, folder, talk=True) for _ in range(2)]
    for process in both:
        process.close()
    assert [process.wait() for process in both] == [0, 0]
    assert stores.all_bytes(folder) == whole


def test_the_command_is_interrupted_and_goes_on(work, stores, tmp_path):
    graph, whole, folder = work("stopped", hops=HOPS)
    write_npz(tmp_path / "graph.npz", graph)
    words = ["propagate", tmp_path / "graph.npz", "--hops", HOPS, "--out", folder, "--json"]
    words += ["--cluster", "local:2"]
    process = start(*words)
    process.wait_until(lambda: list(folder.glob("v0/hops/h1/*.npy")))
    workers = local_workers(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, errors = process.communicate()
    sentence = "stopped by SIGINT; run the same command again to resume."
    assert (process.returncode, errors) == (130, f"error: {sentence}\n")
    assert json.loads(out) == {"error": sentence}
    assert psutil.wait_procs(workers, timeout=600)[1] == []
    assert not HopStore.open(folder).complete
    done = hoplite(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["cluster"] == "local:2"
    assert stores.all_bytes(folder).keys() == whole.keys()
    assert stores.all_bytes(folder) == whole
