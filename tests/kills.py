"""A process that is killed before its N-th change of files, for every N.

``install`` runs in the process: it counts what changes files under a folder (files opened for
writing, synced, renamed, removed; folders made and removed; statements that change a SQLite file)
and ends the process with SIGKILL before change number ``at``. Before a sync, half of the file is
cut off: it had not arrived.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SQL = ("BEGIN", "COMMIT", "CREATE", "DELETE", "INSERT", "ROLLBACK", "UPDATE")
# audit event -> where its paths and their folders' handles are among its arguments
CHANGES = {
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.truncate": ((0, None),),
}


def install(folder: str, at: int, report: str) -> None:
    """Kill this process at change ``at`` under ``folder``; else write their count to ``report``."""
    place, count, sync, connect = Path(folder).resolve(), 0, os.fsync, sqlite3.connect

    def is_inside(path: Any, handle: Any = -1) -> bool:
        if isinstance(path, int):
            return Path(f"/proc/self/fd/{path}").resolve().is_relative_to(place)
        path = Path(os.fsdecode(path))
        if isinstance(handle, int) and handle >= 0:
            path = Path(f"/proc/self/fd/{handle}").resolve() / path
        return (path.absolute().parent.resolve() / path.name).is_relative_to(place)

    def change() -> bool:
        nonlocal count
        count += 1
        return count == at

    def statement(sql: str) -> None:
        if sql.startswith(SQL) and change():
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(statement)
        return connection

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            changed = bool(arguments[2] & WRITING) and is_inside(arguments[0])
        else:
            changed = any(
                is_inside(arguments[path], -1 if handle is None else arguments[handle])
                for path, handle in CHANGES.get(event, ())
            )
        if changed and change():
            os.kill(os.getpid(), signal.SIGKILL)

    def fsync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if is_inside(number) and change():
            with contextlib.suppress(OSError):  # a folder
                os.ftruncate(number, os.fstat(number).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        sync(number)

    os.fsync, sqlite3.connect = fsync, traced
    sys.addaudithook(hook)
    atexit.register(lambda: Path(report).write_text(str(count), encoding="ascii"))
