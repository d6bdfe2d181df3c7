"""From what the user names, ``tcp://HOST:PORT`` or ``local:N``, to a cluster that can work.

``local:N`` is N worker processes on this machine, for as long as they are needed. Other users of
the machine can reach a port of it, too, and whoever reaches a scheduler can run code: so everyone
needs a key that is made anew each time and stays in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import re
import secrets
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from hoplite import processes
from hoplite.cluster import tasks
from hoplite.cluster.tasks import Cluster, cannot_import, no_workers
from hoplite.cluster.worker import Sign, complaint
from hoplite.errors import ClusterError, ConfigError
from hoplite.files import atomic_write_text
from hoplite.version import build

CONNECT_SECONDS = 10.0  # for a scheduler to say its first word, and then to take us in
MOST_GREETING = 1 << 20  # bytes that a scheduler's first message may have; it has a few hundred
MOST_LOCAL = 1024  # processes
DEATHS = 8  # of workers that never got as far as to ask for work, one after the other
_ADDRESS = re.compile(r"(?:tcp|tls)://([^\s/]+):(\d{1,5})")
# No pages over HTTP, whose routes ask for no key.
_SETTINGS = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def _local_size(where: str) -> int:
    """N of ``local:N``, 0 of an address; ConfigError if it is neither.

    >>> _local_size("local:2"), _local_size("tcp://10.0.0.1:8786")
    (2, 0)
    """
    kind, _, count = str(where).partition(":")
    if kind == "local" and count.isdecimal() and 1 <= int(count) <= MOST_LOCAL:
        return int(count)
    _host_and_port(where)
    return 0


def _host_and_port(where: str) -> tuple[str, int]:
    """HOST and PORT of an address; ConfigError if it is none."""
    found = _ADDRESS.fullmatch(str(where))
    if found is None or not 0 < int(found[2]) < 2**16:
        raise ConfigError(
            f"cluster is {where!r}; give tcp://HOST:PORT or tls://HOST:PORT of a running Dask "
            f"scheduler, or local:N for N processes on this machine, N from 1 to {MOST_LOCAL:,}."
        )
    return found[1].strip("[]"), int(found[2])


def warm_up(where: str) -> None:
    """Begin what ``local:N`` needs to import; call it before this process imports much itself."""
    if _local_size(where):
        processes.warm_up("distributed")


@contextlib.contextmanager
def connect(where: str, folder: str | os.PathLike[str], memory: int) -> Iterator[Cluster]:
    """The cluster ``where``, after a check that its workers can work in ``folder``.

    ``tcp://HOST:PORT`` is a running Dask scheduler, ``tls://HOST:PORT`` one that asks for the
    certificates of Dask's configuration; ``local:N`` starts N processes of one thread here, and
    ends them. ``memory`` is what a task may take on a worker, in bytes. In a script, ``local:N``
    needs the usual ``if __name__ == "__main__":``.
    """
    count = _local_size(where)
    if importlib.util.find_spec("distributed") is None:
        raise ConfigError(
            "cluster needs Dask, which is not installed; pip install 'hoplite-graph[cluster]'."
        )
    with contextlib.ExitStack() as stack:
        warm_up(where)
        stack.enter_context(_quiet())
        if count:
            local = stack.enter_context(_started(count))
            client = stack.enter_context(_client(local.address, local.security))
            renew = local.renew
        else:
            client = stack.enter_context(_client_of(where))
            renew = None
        sign = stack.enter_context(_signed(Path(folder).absolute(), memory))
        size = count or _checked_workers(client, where, sign)
        yield Cluster(client, where, size, sign, renew)


def _client(address: str, security: Any) -> Any:
    import distributed

    with _dask_begins():
        return distributed.Client(
            address, security=security, timeout=CONNECT_SECONDS, set_as_default=False
        )


def _client_of(where: str) -> Any:
    """A client of a scheduler that runs elsewhere; ClusterError if none answers there in time."""
    from distributed.security import Security

    try:
        security = Security()  # as Dask's configuration says
        _check_greeting(where, security.get_connection_args("client").get("ssl_context"))
        return _client(where, security)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        # TypeError: the answer of a Dask worker, which does not understand the question
        raise ClusterError(
            f"no Dask scheduler answers at {where} ({error or type(error).__name__}); check the "
            "address, or start one with `dask scheduler`; what is finished stays."
        ) from error


def _check_greeting(where: str, context: ssl.SSLContext | None) -> None:
    """OSError unless what listens at ``where`` speaks as a Dask scheduler does.

    That speaks first, and begins with the length of its greeting in 8 bytes. Dask itself would wait
    without end for one who is silent, and take any bytes for a length.
    """
    with_tls = where.startswith("tls:")
    if with_tls and context is None:
        raise OSError("tls:// needs certificates; see distributed.comm.tls in Dask's configuration")
    deadline = time.monotonic() + CONNECT_SECONDS
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(
            socket.create_connection(_host_and_port(where), timeout=CONNECT_SECONDS)
        )
        if with_tls and context is not None:
            stream = stack.enter_context(context.wrap_socket(stream))
        length = b""
        while len(length) < 8:
            stream.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = stream.recv(8 - len(length))
            except TimeoutError as error:
                raise TimeoutError(
                    f"something listens there but has said nothing for {CONNECT_SECONDS:g} s"
                ) from error
            if not more:
                raise OSError("something listens there but hangs up")
            length += more
        if int.from_bytes(length, sys.byteorder) > MOST_GREETING:
            raise OSError(f"what listens there is something else, it begins with {length!r}")


@contextlib.contextmanager
def _signed(folder: Path, memory: int) -> Iterator[Sign]:
    """A small file in ``folder``: workers that see it share the folder; when it goes, they stop."""
    name = f".cluster.{secrets.token_hex(8)}.tmp"  # as a leftover of a killed process looks
    atomic_write_text(folder / name, "")
    try:
        yield {
            "version": build(),
            "folder": str(folder),
            "name": name,
            "memory": memory,
        }
    finally:
        for path in folder.glob(f"{name}*"):  # with what was shared
            path.unlink(missing_ok=True)


def _checked_workers(client: Any, where: str, sign: Sign) -> int:
    """The number of workers, at least one; ClusterError if one of them cannot do the work."""
    try:
        client.run_on_scheduler(build)
    except Exception as error:  # whatever reading the function raises there
        raise ClusterError(
            f"the scheduler {where} cannot import Hoplite ({error}); install version "
            f"{sign['version']} there, too: it reads the tasks."
        ) from error
    try:
        client.wait_for_workers(1, timeout=tasks.PATIENCE)
    except TimeoutError as error:
        raise no_workers(where) from error
    answers = client.run(complaint, sign, on_error="return")
    for address, answer in answers.items():
        if isinstance(answer, OSError):  # it has just died, and does not matter
            continue
        if isinstance(answer, Exception):
            raise ClusterError(cannot_import(address, answer, sign)) from answer
        if answer is not None:
            raise ClusterError(answer)
    return max(1, len(answers))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: workers that come and go are no news to the user."""
    import distributed  # noqa: F401 - its handlers exist from now on

    handlers = logging.getLogger("distributed").handlers
    before = [(handler, handler.level) for handler in handlers]
    try:
        for handler in handlers:
            handler.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for handler, level in before:
            handler.setLevel(level)


class _LocalWorkers:
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
def _dask_begins() -> Iterator[None]:
    """What Dask raises when its own thread has not begun after 10 s, in a sentence."""
    try:
        yield
    except AssertionError as error:
        raise ClusterError(
            "this machine is so busy that Dask could not begin; run the same command again."
        ) from error


@contextlib.contextmanager
def _started(count: int) -> Iterator[_LocalWorkers]:
    """A scheduler in this process and ``count`` workers, which start while the caller goes on."""
    import dask.config
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError as error:
        raise ConfigError(
            "cluster local:N needs cryptography, which is not installed; "
            "pip install 'hoplite-graph[cluster]'."
        ) from error
    with (
        tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True) as scratch,
        dask.config.set(_SETTINGS | {"temporary-directory": scratch}),
        contextlib.ExitStack() as stack,
    ):
        with _dask_begins():
            cluster: Any = LocalCluster(
                n_workers=0,
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",  # with None it is a fixed port, and all share it
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        stack.enter_context(cluster)
        workers = _LocalWorkers(cluster.scheduler_address, security, count, scratch)
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
