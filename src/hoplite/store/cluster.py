"""A Dask cluster: functions of Hoplite on its workers, which share a folder and may die.

Dask runs the tasks, starts ``local:N`` workers again and gives the tasks of a lost worker to
another. What is here decides who may work: a worker that has the same version of Hoplite, sees the
folder and may use the memory gets a Dask resource from a plugin, one of it, and every task needs
one. So other workers get no tasks, also those that join later, and a worker has one at a time.

``local:N`` is N worker processes on this machine, for as long as they are needed. Other users of
the machine can reach a port of it, too, and whoever reaches a scheduler can run code: so everyone
needs a key, which is new each time and stays in memory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import os
import re
import secrets
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hoplite.errors import ClusterError, ConfigError, HopliteError
from hoplite.files import atomic_write_text
from hoplite.machine import build, without_signals

CONNECT_SECONDS = 10.0
PATIENCE = 120.0  # seconds without a worker that can do the work, until it is given up
POLL_SECONDS = 0.5
SHARED_SECONDS = 5.0  # time for a worker to see the folder
MAX_LOSSES = 10  # how often Dask may give a task up because its workers died
MAX_LOCAL = 1024  # processes
MAX_GREETING = 1 << 20  # bytes of a scheduler's first message; it has a few hundred
PAUSED_SHARE = 0.8  # share of its limit at which Dask pauses a worker, and kills it soon after
ADDRESS = re.compile(r"(?:tcp|tls)://[^\s/]+:\d{1,5}")
SETTINGS: dict[str, Any] = {
    # no pages over HTTP, whose routes ask for no key
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.pre-spawn-environ": {},  # which would be set in this process, too
}


@dataclass(frozen=True)
class Sign:
    """What a worker must fit: the version, and a small file in a folder that it must see."""

    version: str
    folder: str
    name: str
    memory: int

    @property
    def path(self) -> Path:
        return Path(self.folder, self.name)


@contextlib.contextmanager
def connect(where: str, folder: str | os.PathLike[str], memory: int) -> Iterator[Cluster]:
    """The cluster ``where``, after a check that its workers can work in ``folder``.

    Parameters
    ----------
    where : str
        ``tcp://HOST:PORT`` of a running Dask scheduler, ``tls://HOST:PORT`` of one that asks for
        the certificates of Dask's configuration, or ``local:N`` to start N processes of one thread
        here, and end them. In a script, these need ``if __name__ == "__main__":``.
    folder : path
        A folder that all workers see under the same path.
    memory : int
        Bytes that a task may take on a worker.
    """
    scheme, _, count = str(where).partition(":")
    local = int(count) if scheme == "local" and count.isdecimal() else 0
    if not 1 <= local <= MAX_LOCAL and not ADDRESS.fullmatch(str(where)):
        raise ConfigError(
            f"is {where!r}; use tcp://HOST:PORT or tls://HOST:PORT of a running Dask "
            f"scheduler, or local:N for N processes on this machine, N from 1 to {MAX_LOCAL:,}.",
            "cluster",
        )
    if importlib.util.find_spec("distributed") is None:
        raise ConfigError(
            "cluster needs Dask, which is not installed; run `pip install '.[cluster]'` in a clone."
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        if local:
            client = stack.enter_context(_local(local))
        else:
            client = stack.enter_context(_client(where))
        sign = stack.enter_context(_signed(Path(folder).absolute(), memory))
        size = _check_workers(client, where, sign)
        client.register_plugin(_fit_workers(sign), name=sign.name)
        stack.callback(_unregister, client, sign)
        yield Cluster(client, where, size, sign)


class Cluster:
    """A connection to a scheduler, see :func:`connect`; ``size`` is the number of its workers.

    A function that it runs must be one of a module, and may run more than once, even at the same
    time, because its worker may die, or seem to.
    """

    def __init__(self, client: Any, where: str, size: int, sign: Sign) -> None:
        self.client, self.where, self.size = client, where, size
        self._sign, self._count = sign, itertools.count()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A Dask future of ``function(*arguments)``; arguments may be futures, too."""
        return self.client.submit(
            _run,
            self._sign,
            function,
            *arguments,
            key=f"{self._sign.name}-{next(self._count)}",
            resources={self._sign.name: 1},
        )

    def map(
        self,
        function: Callable[..., Any],
        arguments: Iterable[Sequence[Any]],
        look: Callable[[], Any] = lambda: None,
    ) -> Iterator[tuple[int, Any]]:
        """The number and the result of ``function(*own)`` for each of ``arguments``, as they end.

        ``look`` is called about twice a second meanwhile.
        """
        return self.results([self.submit(function, *args) for args in arguments], look)

    def results(
        self, futures: Sequence[Any], look: Callable[[], Any] = lambda: None
    ) -> Iterator[tuple[int, Any]]:
        """The number and the result of each future, as they end; as in :meth:`map`."""
        from distributed import KilledWorker, wait

        waiting, losses = dict(enumerate(futures)), Counter[int]()
        changed = time.monotonic()
        try:
            while waiting:
                left = list(waiting.values())
                self._ask(partial(wait, left, POLL_SECONDS, "FIRST_COMPLETED"))
                look()
                done = [n for n, future in waiting.items() if future.status == "finished"]
                for number, future in waiting.items():
                    if future.status == "error":
                        losses[number] += 1
                        self._retry(future, losses[number])
                if done:
                    changed, ended = time.monotonic(), [waiting[number] for number in done]
                    try:
                        results = self._ask(partial(self.client.gather, ended))
                    except KilledWorker:  # with the result, and then at the task again
                        continue
                    for number, result in zip(done, results, strict=True):
                        del waiting[number]
                        yield number, result
                elif time.monotonic() - changed > PATIENCE:
                    _check_workers(self.client, self.where, self._sign, any_one=True)
                    changed = time.monotonic()
        finally:
            if waiting and self.client.status == "running":
                self.client.cancel(list(waiting.values()), force=True)

    def new_file(self) -> Path:
        """Where to write what all workers are to read; it is removed with the connection."""
        return Path(self._sign.folder, f"{self._sign.name}-{next(self._count)}.tmp")

    def _ask(self, question: Callable[[], Any]) -> Any:
        """What the client answers, None if it takes long; ClusterError if its scheduler is gone."""
        from distributed.client import FutureCancelledError, FuturesCancelledError

        try:
            with self.client.as_current():
                answer = question()
            if self.client.status == "running":
                return answer
        except TimeoutError:
            if self.client.status == "running":
                return None
        except (FutureCancelledError, FuturesCancelledError, OSError):
            pass
        raise ClusterError(
            f"the connection to the scheduler {self.where} was lost; finished work is kept, so "
            "restart the scheduler and run the same command again."
        )

    def _retry(self, future: Any, losses: int) -> None:
        """Run a task again whose workers died; raise its error if it has another."""
        from distributed import KilledWorker

        error = future.exception()
        if isinstance(error, HopliteError):
            raise error
        if not isinstance(error, KilledWorker):
            raise ClusterError(
                f"a task failed on {self.where} ({type(error).__name__}: {error}); finished work "
                "is kept, so run the same command again to resume."
            ) from error
        if losses > MAX_LOSSES:
            raise ClusterError(
                f"workers of {self.where} keep dying at the same task, perhaps because they have "
                "less memory than the limit of Hoplite; see their logs. Finished work is kept."
            )
        future.retry()


_task: Sign | None = None  # sign of the task that this worker is doing


def _run(sign: Sign, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run on a worker."""
    global _task
    from distributed import get_worker

    from hoplite.engine.backend import set_num_threads

    set_num_threads(get_worker().state.nthreads)
    _task = sign
    return function(*arguments)


def check_wanted() -> None:
    """Within a task on a worker: ClusterError if the process that leads the work has ended."""
    if _task is not None and not _task.path.exists():
        raise ClusterError("the process that coordinates this work has ended.")


def wait_until(condition: Callable[[], Any], seconds: float) -> bool:
    """Whether ``condition`` is met in time: a shared folder shows files elsewhere with a delay."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def problem(sign: Sign, dask_worker: Any) -> str | None:
    """Why this worker cannot do the work that ``sign`` stands for, None if it can."""
    name = f"worker {dask_worker.address} on {socket.gethostname()}"
    if build() != sign.version:
        return (
            f"{name} has Hoplite {build()}, but this machine has {sign.version}; install the same "
            "version everywhere."
        )
    if not wait_until(sign.path.exists, SHARED_SECONDS):
        return (
            f"{name} cannot access the folder {sign.folder}; use a folder that all machines share "
            "under the same path."
        )
    limit = dask_worker.memory_manager.memory_limit
    if limit and sign.memory > PAUSED_SHARE * limit:
        return (
            f"{name} may use {limit / 1e9:.3g} GB (its --memory-limit), so Dask stops it before "
            f"it reaches Hoplite's limit of {sign.memory / 1e9:.3g} GB; start workers with "
            f"--memory-limit 0, or lower Hoplite's limit to {int(PAUSED_SHARE * limit / 1e6)}MB."
        )
    return None


def _fit_workers(sign: Sign) -> Any:
    """A plugin that gives every worker that fits the resource that the tasks need.

    It is sent as a value and knows no class of Hoplite, so that it does no harm where that is not
    installed.
    """
    from distributed import WorkerPlugin

    fields = (sign.version, sign.folder, sign.name, sign.memory)

    class FitWorkers(WorkerPlugin):
        async def setup(self, worker: Any) -> None:
            import asyncio

            from distributed.core import Status

            try:
                from hoplite.store.cluster import Sign, problem

                if await asyncio.to_thread(problem, Sign(*fields), worker) is not None:
                    return
            except ImportError:
                return
            await worker.set_resources(**{fields[2]: 1})
            # a scheduler looks for waiting tasks when a worker comes back, not when it gains
            worker.status = Status.paused
            worker.status = Status.running

    return FitWorkers()


def _unregister(client: Any, sign: Sign) -> None:
    with contextlib.suppress(Exception):  # the scheduler may be gone
        client.unregister_worker_plugin(sign.name)


@contextlib.contextmanager
def _signed(folder: Path, memory: int) -> Iterator[Sign]:
    """A small file in ``folder``: workers that see it share the folder; when it goes, they stop."""
    name = f".cluster.json.{secrets.token_hex(8)}.tmp"  # so that it is tidied up after a kill
    atomic_write_text(folder / name, "")
    try:
        yield Sign(build(), str(folder), name, memory)
    finally:
        for path in folder.glob(f"{name}*"):  # with what was shared
            path.unlink(missing_ok=True)


def _check_workers(client: Any, where: str, sign: Sign, *, any_one: bool = False) -> int:
    """The number of workers; ClusterError if one of them, or with ``any_one`` all, do not fit."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise ClusterError(
            f"{where} has had no workers for {PATIENCE:.0f} s; finished work is kept, so start "
            "some (`dask worker ADDRESS`) and run the same command again."
        ) from error
    answers = client.run(problem, sign, on_error="return")
    problems = []
    for address, answer in answers.items():
        if isinstance(answer, Exception) and not isinstance(answer, OSError):  # which has just died
            answer = (
                f"worker {address} cannot import Hoplite ({answer}); install version "
                f"{sign.version} on all machines."
            )
        problems += [answer] if isinstance(answer, str) else []
    if problems and (not any_one or len(problems) == len(answers)):
        raise ClusterError(problems[0])
    return max(1, len(answers))


def _client(where: str, security: Any = None) -> Any:
    """A client of a scheduler; ClusterError if none answers there in time."""
    from distributed import Client
    from distributed.security import Security

    try:
        security = security or Security()  # as Dask's configuration says
        _check_greeting(where, security.get_connection_args("client").get("ssl_context"))
        return Client(where, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, RuntimeError, TypeError, AssertionError) as error:
        # TypeError: the answer of a Dask worker; AssertionError: a machine too busy to start Dask
        raise ClusterError(
            f"no Dask scheduler answers at {where} ({error or type(error).__name__}); check the "
            "address, or start one with `dask scheduler`; finished work is kept."
        ) from error


def _check_greeting(where: str, context: ssl.SSLContext | None) -> None:
    """OSError unless what listens at ``where`` speaks first, as a Dask scheduler does.

    It begins with the length of its greeting in 8 bytes. Dask itself would wait without end for one
    who is silent, and take any bytes for a length.
    """
    host, _, port = where.partition("://")[2].rpartition(":")
    with contextlib.ExitStack() as stack:
        address = (host.strip("[]"), int(port))
        stream = stack.enter_context(socket.create_connection(address, CONNECT_SECONDS))
        if where.startswith("tls:"):
            if context is None:
                raise OSError("tls:// needs certificates, distributed.comm.tls in Dask's settings")
            stream = stack.enter_context(context.wrap_socket(stream))
        greeting = stream.makefile("rb").read(8)
        if not 0 < int.from_bytes(greeting, sys.byteorder) <= MAX_GREETING:
            raise OSError(
                f"another program, not Dask, listens there; its answer begins with {greeting!r}"
            )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: workers that come and go are no news to the user."""
    import distributed  # noqa: F401 - its handlers exist from now on

    logging.getLogger("asyncio").addFilter(_no_lost_connection)  # it logs late, so keep it
    handlers = logging.getLogger("distributed").handlers
    before = [(handler, handler.level) for handler in handlers]
    try:
        for handler in handlers:
            handler.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for handler, level in before:
            handler.setLevel(level)


def _no_lost_connection(record: logging.LogRecord) -> bool:
    """False for an error that nobody waited for: a connection of Dask that was lost, or never made.

    >>> error = OSError("Timed out trying to connect to tls://127.0.0.1:1 after 30 s")
    >>> _no_lost_connection(logging.makeLogRecord({"exc_info": (OSError, error, None)}))
    False
    """
    from distributed.comm.core import CommClosedError

    error = record.exc_info[1] if record.exc_info else None
    timed_out = isinstance(error, OSError) and "Timed out trying to connect" in str(error)
    return not (timed_out or isinstance(error, CommClosedError))


@contextlib.contextmanager
def _local(count: int) -> Iterator[Any]:
    """A scheduler in this process and ``count`` workers, which Dask starts again when they die."""
    import dask.config
    from distributed import LocalCluster
    from distributed.security import Security

    try:
        security = Security.temporary()
    except ImportError as error:
        raise ConfigError(
            "cluster local:N needs cryptography, which is not installed; "
            "run `pip install '.[cluster]'` in a clone."
        ) from error
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True)
        )
        stack.enter_context(dask.config.set(SETTINGS | {"temporary-directory": scratch}))
        try:
            with without_signals("SIGINT", "SIGHUP"):
                cluster = LocalCluster(
                    n_workers=count,
                    threads_per_worker=1,
                    memory_limit=0,  # the tasks keep to their own
                    protocol="tls://",
                    security=security,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # None is a fixed port, and all share it
                    worker_dashboard_address=None,
                    scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                )
                local: Any = stack.enter_context(cluster)  # before a signal is heard
        except (RuntimeError, TimeoutError, AssertionError) as error:
            raise ClusterError(
                f"the {count} processes of local:{count} did not start ({error}), perhaps because "
                "there is too little memory or the machine is too busy."
            ) from error
        yield stack.enter_context(_client(local.scheduler_address, security))
