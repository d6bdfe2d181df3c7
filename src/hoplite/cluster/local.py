"""``local:N``: N worker processes on this machine, for as long as they are needed."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import forkserver
from typing import Any

from hoplite.errors import ConfigError

MOST = 1024
# Imported once and inherited by the workers, also by those that replace a dead one.
PRELOAD = ["distributed", "hoplite.propagation.backend", "scipy.sparse"]
_METHODS = multiprocessing.get_all_start_methods()
_METHOD = "forkserver" if "forkserver" in _METHODS else "spawn"
_ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/]+:(\d{1,5})")


def local_size(where: str) -> int:
    """N of ``local:N``, 0 of an address; ConfigError if it is neither.

    >>> local_size("local:2"), local_size("tcp://10.0.0.1:8786")
    (2, 0)
    """
    kind, _, count = str(where).partition(":")
    if kind == "local" and count.isdecimal() and 1 <= int(count) <= MOST:
        return int(count)
    found = _ADDRESS.fullmatch(str(where))
    if found is None or not 0 < int(found[1]) < 2**16:
        raise ConfigError(
            f"cluster is {where!r}; give tcp://HOST:PORT of a running Dask scheduler, or local:N "
            f"for N processes on this machine, N from 1 to {MOST:,}."
        )
    return 0


def warm_up(where: str) -> None:
    """Begin what ``local:N`` needs to import; call it before this process imports torch itself."""
    if local_size(where) and _METHOD == "forkserver":
        multiprocessing.get_context(_METHOD).set_forkserver_preload(PRELOAD)
        with _interrupts_ignored():
            forkserver.ensure_running()


@contextlib.contextmanager
def started(count: int) -> Iterator[Any]:
    """A LocalCluster with ``count`` workers of one thread, which start while the caller goes on."""
    import dask.config
    from distributed import LocalCluster

    warm_up(f"local:{count}")  # before Dask names other modules to preload
    with (
        _same_environment(),
        dask.config.set({"distributed.worker.multiprocessing-method": _METHOD}),
        tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True) as scratch,
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # with None it is a fixed port, and all share it
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,  # the tasks keep to their own
            local_directory=scratch,
            silence_logs=logging.CRITICAL,
            preload=PRELOAD,
        ) as found,
    ):
        cluster: Any = found
        cluster.scale(count)
        yield cluster


def renew(cluster: Any, count: int) -> None:
    """Have ``count`` workers again: Dask gives up one that died while it was starting."""
    from distributed import Status

    def replace() -> None:
        for name, worker in list(cluster.workers.items()):
            if worker.status in (Status.closed, Status.failed):
                del cluster.workers[name]
        cluster.scale(count)

    cluster.loop.add_callback(replace)  # only its own thread may change it


@contextlib.contextmanager
def _same_environment() -> Iterator[None]:
    """Undo what Dask sets for its workers in this process: OMP_NUM_THREADS, PYTHONHASHSEED, ..."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """For processes that start within: a terminal interrupts them, too, but this one ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say so
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
