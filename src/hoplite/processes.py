"""Processes that this one starts: they end when it ends, and leave Ctrl-C to it.

They come from a server process that imports once what they need and is forked for each, before it
has any thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

PRELOAD = ["hoplite.engine.backend", "scipy.sparse"]
MAX_FOLDER = 70  # bytes of the temporary folder's path: that of a socket has at most 107


def _method() -> str:
    """``spawn`` where there is no fork server, or where its socket would have too long a path."""
    short = len(os.fsencode(tempfile.gettempdir())) <= MAX_FOLDER
    known = multiprocessing.get_all_start_methods()
    return "forkserver" if short and "forkserver" in known else "spawn"


def warm_up(*modules: str) -> None:
    """Begin to import what processes will need; call it before this one imports much itself."""
    if _method() == "forkserver":
        from multiprocessing import forkserver

        multiprocessing.get_context("forkserver").set_forkserver_preload([*modules, *PRELOAD])
        with _signals_blocked():
            forkserver.ensure_running()


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that runs ``target(*arguments)``, and ends at once when this one does."""
    context: Any = multiprocessing.get_context(_method())
    process = context.Process(target=_run, args=(target, arguments), daemon=True)
    with _signals_blocked():
        process.start()
    return process


def end(processes: list[BaseProcess]) -> None:
    """Kill those that are alive, and wait until all are gone."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Processes that start within the block never get a terminal's signals."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it unblocks signals, so it is first
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    target(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
