"""Who may take part: addresses that are no scheduler, keys, workers of another version."""

from __future__ import annotations

import asyncio
import http.server
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.dask_processes import ANOTHER_VERSION, WITHOUT_HOPLITE, Dask
from tests.untidy import cut_store

import hoplite
from hoplite.errors import ClusterError, ConfigError
from hoplite.machine import build
from hoplite.store import propagate
from hoplite.store.cluster import connect

distributed = pytest.importorskip("distributed")
from dask import config as dask_config  # noqa: E402
from distributed.core import rpc  # noqa: E402
from distributed.security import Security  # noqa: E402


@pytest.fixture
def silent():
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def pages():
    """A web server."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["silent", "pages"])
def test_what_listens_is_no_scheduler(request, tmp_path, monkeypatch, kind):
    monkeypatch.setattr("hoplite.store.cluster.CONNECT_SECONDS", 1.0)
    where = request.getfixturevalue(kind)
    with (
        pytest.raises(ClusterError, match=f"no Dask scheduler answers at {where}"),
        connect(where, tmp_path, memory=0),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_another_build_of_the_same_version_differs(tmp_path):
    """Two checkouts may both be called 0.1.0."""
    root = str(Path(hoplite.__file__).parent.parent)
    code = (
        "import shutil, sys\n"
        "shutil.copytree(sys.argv[1] + '/hoplite', sys.argv[2] + '/hoplite')\n"
        "sys.meta_path = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from hoplite.machine import build, source_hash\n"
        "print(build())\n"
        "source_hash.cache_clear()\n"
        "with open(sys.argv[2] + '/hoplite/graph.py', 'a') as file: file.write('# new')\n"
        "print(build())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, root, str(tmp_path)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    same, other = done.stdout.splitlines()
    assert same == build()
    assert other != same


def test_late_workers_that_do_not_fit_get_no_work(graphs, tmp_path, monkeypatch, dask):
    graph = graphs(60, 8, dtype=np.float32)
    for name in ("s", "t"):  # cut into more tasks than there are workers
        cut_store(graph, tmp_path / name, 16, 1, hops=3)
    good = dask.worker()
    dask.wait_for(1)
    bad = []

    def join(what, share):
        if not bad:  # it has begun, and checked its workers
            bad.extend([dask.worker(before=ANOTHER_VERSION), dask.worker(before=WITHOUT_HOPLITE)])
            dask.wait_for(3)

    store = propagate(graph, tmp_path / "s", hops=3, cluster=dask.address, progress=join)
    assert store.verify() == []
    assert len(store.manifest.panels) == 8
    # when no other is left, the reason is reported
    for worker in bad:
        worker.kill()
    dask.wait_for(1)

    def swap(what, share):
        if good.poll() is None:
            dask.worker(before=ANOTHER_VERSION)
            dask.wait_for(2)
            good.kill()
            good.wait()
            dask.wait_for(1)
            monkeypatch.setattr("hoplite.store.cluster.PATIENCE", 5.0)

    with pytest.raises(ClusterError, match=r"has Hoplite 0.0.7 \(build .*but this machine has"):
        propagate(graph, tmp_path / "t", hops=3, cluster=dask.address, progress=swap)


def test_a_task_that_fails_is_reported(tmp_path):
    with connect("local:1", tmp_path, memory=0) as cluster:
        assert dict(cluster.map(divide, [(6, 2), (6, 3)])) == {0: 3, 1: 2}
        with pytest.raises(ClusterError, match=r"a task failed on local:1 .ZeroDivisionError"):
            list(cluster.map(divide, [(6, 2), (6, 0)]))
        with pytest.raises(ClusterError, match=r"a task failed on local:1 .ModuleNotFoundError"):
            list(cluster.map(import_module, [("no_such_module",)]))
        with pytest.raises(ConfigError, match="as it was raised"):
            list(cluster.map(refuse, [()]))
    assert not list(tmp_path.iterdir())


def divide(a, b):
    return a // b


def refuse():
    raise ConfigError("as it was raised")


def test_nobody_without_the_key_commands_a_local_cluster(tmp_path):
    with connect("local:1", tmp_path, memory=0) as cluster:
        assert dict(cluster.map(divide, [(1, 1)])) == {0: 1}
        me = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = {
            one.laddr.port
            for process in me
            for one in process.net_connections()
            if one.status == psutil.CONN_LISTEN and one.laddr.ip == "127.0.0.1"
        }
        assert len(ports) >= 2  # the scheduler's and the worker's, at least
        addresses = [f"{kind}://127.0.0.1:{port}" for port in ports for kind in ("tcp", "tls")]
        with ThreadPoolExecutor(len(addresses)) as strangers:
            assert not any(strangers.map(is_open, addresses))
        for process in me:
            for one in process.net_connections():
                assert one.status != psutil.CONN_LISTEN or one.laddr.ip == "127.0.0.1"


def is_open(address, seconds=2) -> bool:
    """Whether a stranger, with a key of his own, can ask something there."""
    security = Security.temporary() if address.startswith("tls:") else Security()

    async def ask():
        arguments = security.get_connection_args("client")
        async with rpc(address, connection_args=arguments, timeout=seconds) as there:
            return await there.identity()

    try:
        with ThreadPoolExecutor(1) as apart:  # a browser's event loop may run in this thread
            apart.submit(asyncio.run, asyncio.wait_for(ask(), seconds)).result()
    except OSError:  # TimeoutError is one
        return False
    return True


def test_a_stranger_can_ask_a_scheduler_without_keys(dask):
    """So the test above can fail."""
    assert is_open(dask.address, 600)


@pytest.fixture
def certificates(tmp_path_factory):
    """Dask's settings for a cluster with keys."""
    folder = tmp_path_factory.mktemp("keys")
    security = Security.temporary()
    files = {"key": security.tls_client_key, "cert": security.tls_client_cert}
    found = {"ca-file": str(folder / "cert")}
    for name, content in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_text(content)
        for role in ("client", "scheduler", "worker"):
            found[f"{role}.{name}"] = str(folder / name)
    return {f"distributed.comm.tls.{name}": path for name, path in found.items()}


def test_a_scheduler_with_certificates(graphs, tmp_path, certificates):
    graph = graphs(60, 8, dtype=np.float32)
    environment = {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": path
        for name, path in certificates.items()
    }
    cluster = Dask(tmp_path, "--protocol", "tls", **environment)
    try:
        assert cluster.address.startswith("tls://")
        cluster.worker()
        with dask_config.set(certificates):
            store = propagate(graph, tmp_path / "s", hops=3, cluster=cluster.address)
        assert store.verify() == []
        with pytest.raises(ClusterError, match="tls:// needs certificates"):
            propagate(graph, tmp_path / "t", hops=3, cluster=cluster.address)
    finally:
        cluster.close()
