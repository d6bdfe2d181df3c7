"""Trainings in processes of this machine, which may die at any moment.

What they train on goes to them by a file without a name: nobody waits for a reader who has died,
and nothing is left behind, whatever happens.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from hoplite.engine.backend import set_num_threads
from hoplite.errors import HopliteError, LedgerError, is_shortage
from hoplite.processes import end, start, warm_up

LOOK_SECONDS = 0.25  # between two looks at the workers
DEATHS = 8  # that are made up for, until the next training is finished


class Work(Protocol):
    """Trainings of which each ends in a file of ``folder``; it travels to the processes."""

    @property
    def folder(self) -> Path: ...

    def waiting(self) -> list[int]:
        """Those that are not finished."""
        ...

    def work(self) -> None:
        """Train until none is left that no other process has."""
        ...

    def tidy(self) -> None:
        """Remove what killed processes left."""
        ...


def train_in_processes(task: Work, workers: int, look: Callable[[], None]) -> None:
    """Train what nobody has finished in ``workers`` processes; ``look`` is called now and then."""
    waiting, deaths = len(task.waiting()), 0
    warm_up(type(task).__module__)
    threads = max(1, (os.cpu_count() or 1) // workers)
    running: list[_Worker] = []
    with tempfile.TemporaryFile(dir=task.folder) as file:
        try:
            pickle.dump(task, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
        except OSError as error:
            raise LedgerError(f"cannot write to {task.folder}: {error.strerror}.") from error
        try:
            while waiting and len(running) < workers:
                running.append(_Worker(file.fileno(), threads))
            while running:
                time.sleep(LOOK_SECONDS)
                look()
                ended = [worker for worker in running if not worker.process.is_alive()]
                running = [worker for worker in running if worker not in ended]
                dead = [worker for worker in ended if worker.died()]
                if not dead:
                    continue
                left = len(task.waiting())
                deaths = (deaths if left == waiting else 0) + len(dead)
                waiting = left
                if deaths > DEATHS:
                    raise LedgerError(
                        f"{deaths} workers died (exit code {dead[0].process.exitcode}) and no run "
                        "was finished in between; is there too little memory for --workers "
                        f"{workers}? What was finished is in {task.folder}, and the same command "
                        "continues."
                    )
                running += [_Worker(file.fileno(), threads) for _ in dead if left]
        finally:
            end([worker.process for worker in running])
            task.tidy()  # they may have died while they wrote


class _Worker:
    """A process that trains until nothing is left to do."""

    def __init__(self, file: int, threads: int) -> None:
        self._error, error = Pipe(duplex=False)
        with error:
            self.process = start(_work, _File(file), threads, error)

    def died(self) -> bool:
        """Of one that has ended: whether it was killed; HopliteError if it failed by itself."""
        if not self.process.exitcode:
            return False
        try:
            raise HopliteError(self._error.recv())
        except (EOFError, OSError):  # OSError: it was killed while it told its error
            return True


class _File:
    """An open file on its way to another process, which gets its handle."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __reduce__(self) -> Any:
        if hasattr(reduction, "DupFd"):
            return _handle, (reduction.DupFd(self._handle),)
        with mmap.mmap(self._handle, 0, access=mmap.ACCESS_READ) as content:
            return _written, (
                bytes(content),
            )  # Windows: handles do not travel, what is in them does


def _handle(copy: Any) -> int:
    return copy.detach()


def _written(content: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return os.dup(file.fileno())


def _work(file: int, threads: int, error: Connection) -> None:
    set_num_threads(threads)
    try:
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content:
            task: Work = pickle.loads(content)  # the process that started this one wrote it
        task.work()
    except HopliteError as found:
        error.send(str(found))
        os._exit(1)
    except Exception as found:
        if is_shortage(found):
            error.send("a worker has too little memory; give fewer --workers.")
        else:  # a bug, which another worker would meet again
            traceback.print_exc()
            error.send(
                f"a worker failed ({type(found).__name__}: {found}); what was finished stays."
            )
        os._exit(1)
