"""From what the user names, ``tcp://HOST:PORT`` or ``local:N``, to a cluster that can work."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hoplite
from hoplite.cluster import tasks
from hoplite.cluster.local import local_size, renew, started
from hoplite.cluster.tasks import Cluster, no_workers
from hoplite.cluster.worker import Sign, complaint, installed
from hoplite.errors import ClusterError, ConfigError
from hoplite.files import atomic_write_text

CONNECT_SECONDS = 10.0


@contextlib.contextmanager
def connect(where: str, folder: str | os.PathLike[str], memory: int) -> Iterator[Cluster]:
    """The cluster ``where``, after a check that its workers can work in ``folder``.

    ``tcp://HOST:PORT`` (or ``tls://``) is a running Dask scheduler; ``local:N`` starts N processes
    of one thread here, and ends them. ``memory`` is what a task may take on a worker, in bytes. In
    a script, ``local:N`` needs the usual ``if __name__ == "__main__":``.
    """
    count = local_size(where)
    try:
        import distributed
    except ImportError as error:
        raise ConfigError(
            "cluster needs Dask, which is not installed; pip install 'hoplite[cluster]'."
        ) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        local = stack.enter_context(started(count)) if count else None
        try:
            # by its address: a client of the object itself would wait for all workers
            address = local.scheduler_address if local else where
            client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {where} ({error}); check the address, or start "
                "one with `dask scheduler`; what is finished stays."
            ) from error
        stack.enter_context(client)
        sign = stack.enter_context(_signed(Path(folder).absolute(), memory))
        if local is None:
            yield Cluster(client, where, _checked_workers(client, where, sign), sign, None)
        else:
            yield Cluster(client, where, count, sign, functools.partial(renew, local, count))


@contextlib.contextmanager
def _signed(folder: Path, memory: int) -> Iterator[Sign]:
    """A small file in ``folder``: workers that see it share the folder; when it goes, they stop."""
    name = f".cluster.{secrets.token_hex(8)}.tmp"  # as a leftover of a killed process looks
    atomic_write_text(folder / name, "")
    try:
        yield {
            "version": hoplite.__version__,
            "folder": str(folder),
            "name": name,
            "memory": memory,
        }
    finally:
        (folder / name).unlink(missing_ok=True)


def _checked_workers(client: Any, where: str, sign: Sign) -> int:
    """The number of workers, at least one; ClusterError if one of them cannot do the work."""
    try:
        client.run_on_scheduler(installed)
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
            raise ClusterError(
                f"worker {address} cannot import Hoplite ({answer}); install version "
                f"{sign['version']} on all machines."
            ) from answer
        if answer is not None:
            raise ClusterError(answer)
    return max(1, len(answers))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask's log off the terminal: workers that come and go are no news to the user."""
    handlers = logging.getLogger("distributed").handlers
    before = [(handler, handler.level) for handler in handlers]
    try:
        for handler in handlers:
            handler.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for handler, level in before:
            handler.setLevel(level)
