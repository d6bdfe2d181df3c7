"""Processes that this one starts: they end when it ends, and leave the signals to it.

They come from a server process that imports what they need once and is forked for each, before it
has any thread of OpenMP. What they are given must be small, since it goes through a pipe that
nobody may be left to read.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from hoplite.stopping import ENDING, HANGUP

# which send them to all processes of a command
FROM_TERMINALS = tuple(n for n in (signal.SIGINT, HANGUP) if n is not None)
PRELOAD = ["hoplite.engine.backend", "scipy.sparse"]
MOST_FOLDER = 70  # bytes of the folder for temporary files: a socket's path has 107 at most


def _method() -> str:
    """How processes start: "spawn" where a fork server's socket would be too long, or open to all.

    The latter is so before Python 3.11.1 (CVE-2022-42919).
    """
    there = "forkserver" in multiprocessing.get_all_start_methods()
    short = len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER
    return "forkserver" if there and short and sys.version_info >= (3, 11, 1) else "spawn"


def warm_up(*modules: str) -> None:
    """Begin to import what processes will need; call it before this one imports much itself."""
    if _method() == "forkserver":
        from multiprocessing import forkserver  # only where there is one

        multiprocessing.get_context("forkserver").set_forkserver_preload([*modules, *PRELOAD])
        with births():
            forkserver.ensure_running()


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that runs ``target(*arguments)``, and ends at once when this one does."""
    context: Any = multiprocessing.get_context(_method())
    process = context.Process(target=_run, args=(target, arguments), daemon=True)
    with births():
        process.start()
    return process


def end(processes: list[BaseProcess]) -> None:
    """Kill those that are alive, and wait until all are gone."""
    for process in processes:
        process.kill()  # all of them before waiting for any; the finished do not mind
    for process in processes:
        process.join()


@contextlib.contextmanager
def births() -> Iterator[None]:
    """Processes that start within do not hear a terminal's signals, and none is half started."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        with held():
            yield
        return
    from multiprocessing import resource_tracker

    with held():
        resource_tracker.ensure_running()  # of multiprocessing; it unblocks signals, so it is first
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FROM_TERMINALS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that end this process wait until the block is over."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python gives signals to the main thread, and only that one may change it
        return
    heard: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in ENDING:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                before[number] = handler
                signal.signal(number, lambda number, _: heard.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def _run(target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
