"""``local:N``: N worker processes on this machine, for as long as they are needed.

Other users of the machine can reach a port of this machine, too, and whoever reaches a scheduler
can run code: so everyone needs a key that is made anew each time and stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from hoplite import processes
from hoplite.errors import ClusterError, ConfigError

MOST = 1024
DEATHS = 8  # of workers that never got as far as to ask for work, one after the other
_ADDRESS = re.compile(r"(?:tcp|tls)://([^\s/]+):(\d{1,5})")
# No pages over HTTP, whose routes ask for no key.
_SETTINGS = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def local_size(where: str) -> int:
    """N of ``local:N``, 0 of an address; ConfigError if it is neither.

    >>> local_size("local:2"), local_size("tcp://10.0.0.1:8786")
    (2, 0)
    """
    kind, _, count = str(where).partition(":")
    if kind == "local" and count.isdecimal() and 1 <= int(count) <= MOST:
        return int(count)
    host_and_port(where)
    return 0


def host_and_port(where: str) -> tuple[str, int]:
    """HOST and PORT of an address; ConfigError if it is none."""
    found = _ADDRESS.fullmatch(str(where))
    if found is None or not 0 < int(found[2]) < 2**16:
        raise ConfigError(
            f"cluster is {where!r}; give tcp://HOST:PORT or tls://HOST:PORT of a running Dask "
            f"scheduler, or local:N for N processes on this machine, N from 1 to {MOST:,}."
        )
    return found[1].strip("[]"), int(found[2])


def warm_up(where: str) -> None:
    """Begin what ``local:N`` needs to import; call it before this process imports torch itself."""
    if local_size(where):
        processes.warm_up("distributed")


class LocalWorkers:
    """Processes that work for the scheduler at ``address``; :meth:`renew` keeps their number."""

    def __init__(self, address: str, security: Any, count: int, scratch: str) -> None:
        self.address, self.security, self.count = address, security, count
        self._scratch = scratch
        self._running: list[BaseProcess] = []
        self._deaths = 0

    def renew(self, at_work: int) -> None:
        """Have all workers again, of which the scheduler knows ``at_work``."""
        dead = [process for process in self._running if not process.is_alive()]
        self._deaths = 0 if at_work else self._deaths + len(dead)
        if self._deaths > DEATHS:
            raise ClusterError(
                f"the {self.count} processes of local:{self.count} die as soon as they start "
                f"(exit code {dead[0].exitcode}); is there too little memory for them?"
            )
        self._running = [process for process in self._running if process not in dead]
        while len(self._running) < self.count:
            process = processes.start(_work, self.address, self.security, self._scratch)
            self._running.append(process)

    def end(self) -> None:
        """Kill them: what they have not finished is not wanted any more."""
        processes.end(self._running)


@contextlib.contextmanager
def dask_begins() -> Iterator[None]:
    """What Dask raises when its own thread has not begun after 10 s, in a sentence."""
    try:
        yield
    except AssertionError as error:
        raise ClusterError(
            "this machine is so busy that Dask could not begin; run the same command again."
        ) from error


@contextlib.contextmanager
def started(count: int) -> Iterator[LocalWorkers]:
    """A scheduler in this process and ``count`` workers, which start while the caller goes on."""
    import dask.config
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError as error:
        raise ConfigError(
            "cluster local:N needs cryptography, which is not installed; "
            "pip install 'hoplite[cluster]'."
        ) from error
    with (
        tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True) as scratch,
        dask.config.set(_SETTINGS | {"temporary-directory": scratch}),
        contextlib.ExitStack() as stack,
    ):
        with dask_begins():
            cluster: Any = LocalCluster(
                n_workers=0,
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",  # with None it is a fixed port, and all share it
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        stack.enter_context(cluster)
        workers = LocalWorkers(cluster.scheduler_address, security, count, scratch)
        try:
            workers.renew(at_work=0)
            yield workers
        finally:
            workers.end()


def _work(address: str, security: Any, scratch: str) -> None:
    """Run in a process of its own: a worker of one thread."""
    import dask.config
    from distributed import Worker

    async def work() -> None:
        worker = Worker(
            address,
            nthreads=1,
            security=security,
            protocol="tls://",
            host="127.0.0.1",
            memory_limit=0,  # the tasks keep to their own
            dashboard=False,
            dashboard_address="127.0.0.1:0",
        )
        async with worker:
            await worker.finished()

    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    with dask.config.set(_SETTINGS | {"temporary-directory": scratch}):
        asyncio.run(work())
    os._exit(0)
