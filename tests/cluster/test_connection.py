"""Who may take part: addresses that are no scheduler, keys, workers of another version."""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest
from tests.dask_processes import Dask

from hoplite.cluster import connect
from hoplite.cluster.worker import version
from hoplite.errors import ClusterError
from hoplite.store import propagate

distributed = pytest.importorskip("distributed")


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


@pytest.fixture
def talker():
    """A port where something else speaks first, as SSH does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            stream, _ = server.accept()
            with stream:
                stream.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("silent", "has said nothing for 0.5 s"),
        ("pages", "has said nothing for 0.5 s|begins with b'HTTP/1"),
        ("talker", "begins with b'SSH-2.0-'"),
    ],
)
def test_what_listens_is_no_scheduler(request, tmp_path, monkeypatch, kind, why):
    monkeypatch.setattr("hoplite.cluster.connection.CONNECT_SECONDS", 0.5)
    where = request.getfixturevalue(kind)
    with (
        pytest.raises(ClusterError, match=rf"no Dask scheduler answers at {where} \(.*({why})"),
        connect(where, tmp_path, memory=0),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_the_address_of_a_worker_is_no_schedulers(tmp_path, dask):
    dask.worker()
    dask.wait_for(1)
    with distributed.Client(dask.address, set_as_default=False) as client:
        (worker,) = client.nthreads()
    with (
        pytest.raises(ClusterError, match="no Dask scheduler answers"),
        connect(worker, tmp_path, 0),
    ):
        pass


def test_another_build_of_the_same_version_differs(tmp_path):
    """Two checkouts may both be called 0.1.0."""
    root = os.path.dirname(os.path.dirname(__import__("hoplite").__file__))
    code = (
        "import shutil, sys\n"
        "shutil.copytree(sys.argv[1] + '/hoplite', sys.argv[2] + '/hoplite')\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from hoplite.cluster.worker import version\n"
        "print(version())\n"
        "version.cache_clear()\n"
        "with open(sys.argv[2] + '/hoplite/graph.py', 'a') as file: file.write('# new')\n"
        "print(version())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, root, str(tmp_path)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    same, other = done.stdout.splitlines()
    assert same == version()
    assert other != same


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("import hoplite; hoplite.__version__ = '0.0.7'", r"has Hoplite 0.0.7 \(build "),
        ("import sys; sys.modules['hoplite'] = None", "cannot import Hoplite"),
    ],
    ids=["another version", "none"],
)
def test_a_late_worker_that_does_not_fit_gets_no_work(
    graphs, tmp_path, monkeypatch, dask, before, why
):
    graph = graphs(60, 8, dtype=np.float32)
    good = dask.worker()
    dask.wait_for(1)
    joined = []

    def join(what, share):
        if not joined:
            joined.append(dask.worker(before=before))
            dask.wait_for(2)

    store = propagate(graph, tmp_path / "s", hops=3, cluster=dask.address, progress=join)
    assert joined[0].poll() is None
    assert store.verify() == []
    # and when no other is left, it is told why nothing happens
    monkeypatch.setattr("hoplite.cluster.tasks.PATIENCE", 2.0)

    def leave(what, share):
        if good.poll() is None:
            good.kill()
            good.wait()
            dask.wait_for(1)

    joined[0].kill()
    dask.wait_for(1)

    def swap(what, share):
        if good.poll() is None:
            dask.worker(before=before)
            dask.wait_for(2)
            good.kill()
            good.wait()
            dask.wait_for(1)

    with pytest.raises(ClusterError, match=why):
        propagate(graph, tmp_path / "t", hops=3, cluster=dask.address, progress=swap)


def test_nobody_without_the_key_commands_a_local_cluster(tmp_path):
    with connect("local:1", tmp_path, memory=0) as cluster:
        cluster.run("tests.cluster.test_connection:nothing", [()], lambda *_: None, lambda *_: None)
        me = [psutil.Process(), *psutil.Process().children(recursive=True)]
        ports = {
            one.laddr.port
            for process in me
            for one in process.net_connections()
            if one.status == psutil.CONN_LISTEN and one.laddr.ip == "127.0.0.1"
        }
        assert len(ports) >= 2  # the scheduler's and the worker's, at least
        for port in ports:
            for address in (f"tcp://127.0.0.1:{port}", f"tls://127.0.0.1:{port}"):
                assert not is_open(address)
        for process in me:
            for one in process.net_connections():
                assert one.status != psutil.CONN_LISTEN or one.laddr.ip == "127.0.0.1"


def nothing(tell):
    """A task."""


def is_open(address) -> bool:
    """Whether a stranger can run something there."""
    code = (
        "import sys; from distributed import Client\n"
        "from distributed.security import Security\n"
        "security = Security()\n"
        "if sys.argv[1].startswith('tls'): security = Security.temporary()\n"  # a key, but not ours
        "import asyncio\n"
        "async def ask():\n"
        "    from distributed.core import rpc\n"
        "    async with rpc(sys.argv[1], connection_args=security.get_connection_args('client')) as there:\n"
        "        return await there.identity()\n"
        "print(asyncio.run(asyncio.wait_for(ask(), 3)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True)
    return done.returncode == 0


@pytest.fixture
def certificates(tmp_path_factory):
    """Dask's settings, as environment variables, for a cluster of ours."""
    from distributed.security import Security

    folder = tmp_path_factory.mktemp("keys")
    security = Security.temporary()
    files = {"KEY": security.tls_client_key, "CERT": security.tls_client_cert}
    found = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    for name, content in files.items():
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_text(content)
        for role in ("CLIENT", "SCHEDULER", "WORKER"):
            found[f"DASK_DISTRIBUTED__COMM__TLS__{role}__{name}"] = str(path)
    found["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(folder / "CERT.pem")
    return found


def test_a_scheduler_with_certificates(graphs, tmp_path, certificates):
    import dask.config

    graph = graphs(60, 8, dtype=np.float32)
    cluster = Dask(tmp_path, "--protocol", "tls", **certificates)
    settings = dask.config.collect_env(certificates)
    try:
        assert cluster.address.startswith("tls://")
        cluster.worker()
        with dask.config.set(settings):
            store = propagate(graph, tmp_path / "s", hops=3, cluster=cluster.address)
        assert store.verify() == []
        with pytest.raises(ClusterError, match="tls:// needs certificates"):
            propagate(graph, tmp_path / "t", hops=3, cluster=cluster.address)
    finally:
        cluster.close()
