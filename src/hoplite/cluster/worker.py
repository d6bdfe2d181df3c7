"""What runs on the workers: a function of Hoplite by its name, after a look at who asks for it.

The scheduler reads the tasks, too, so this file imports nothing that takes time, such as torch, and
its arguments are plain values.
"""

from __future__ import annotations

import functools
import pkgutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

from hoplite.errors import ClusterError
from hoplite.version import build

SEEN_SECONDS = 5.0  # a shared folder may show a new file a little later elsewhere
PAUSED_SHARE = 0.8  # of its limit, from which on Dask pauses a worker, and kills it soon after
_one = threading.Lock()  # a worker's memory is for one task, however many threads it has

Sign = dict[str, Any]  # version, folder, name (of a file in the folder), memory


class UnfitWorker(ClusterError):
    """This worker cannot do the work, but another may."""


def complaint(sign: Sign, dask_worker: Any = None) -> str | None:
    """Why this worker cannot do the work that ``sign`` stands for, None if it can."""
    name = f"worker {dask_worker.address} on {socket.gethostname()}"
    if build() != sign["version"]:
        return (
            f"{name} has Hoplite {build()}, and here it is {sign['version']}; install the same "
            "version everywhere."
        )
    if not _sees(sign):
        return (
            f"{name} does not see the folder {sign['folder']}; give a folder that all machines "
            "share under the same path."
        )
    limit = dask_worker.memory_manager.memory_limit
    if limit and sign["memory"] > PAUSED_SHARE * limit:
        return (
            f"{name} may use {limit / 1e9:.3g} GB (its --memory-limit), and Dask stops it before "
            f"the {sign['memory'] / 1e9:.3g} GB of --memory; start workers with "
            f"--memory-limit 0, or give --memory {int(PAUSED_SHARE * limit / 1e6)}MB or less."
        )
    return None


def call(sign: Sign, function: str, arguments: tuple[Any, ...], number: int) -> Any:
    """Run ``function`` ("module:name") as task ``number``; its last argument tells how far it is.

    ``tell(message)`` sends a small message to the process that leads, and ends the task if that
    process does not want it any more: then the file of the sign is gone.
    """
    from distributed import get_worker

    worker = get_worker()
    with _one:
        problem = complaint(sign, worker)
        if problem is not None:
            raise UnfitWorker(problem)
        from hoplite.engine.backend import set_num_threads

        set_num_threads(worker.state.nthreads)
        tell = functools.partial(_tell, worker, sign, number)
        task = pkgutil.resolve_name(function)
        try:
            return task(*arguments, tell)
        except (ImportError, AttributeError) as error:  # which Dask raises for tasks it cannot read
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _tell(worker: Any, sign: Sign, number: int, message: Any) -> None:
    if not _path(sign).exists():
        raise ClusterError("the process that leads this work has stopped it.")
    worker.log_event(sign["name"], [number, message])


def _sees(sign: Sign) -> bool:
    deadline = time.monotonic() + SEEN_SECONDS
    while not _path(sign).exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _path(sign: Sign) -> Path:
    return Path(sign["folder"], sign["name"])
