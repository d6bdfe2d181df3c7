"""A process that is killed before its N-th change of files, for every N.

``install`` runs in the process: it counts what changes files under a folder (files opened for
writing, written, synced, cut, renamed, removed; folders made and removed) and ends the process with
SIGKILL before change number ``at``. A write is cut in the middle: half of its bytes arrive.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
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


def install(folder: str, at: int, told: str) -> None:
    """Kill this process at change ``at`` under ``folder``; else write their count to ``told``."""
    place, count = os.path.realpath(folder), 0

    def real(path: Any, handle: Any = -1) -> str:
        if isinstance(path, int):
            return os.path.realpath(f"/proc/self/fd/{path}")
        path = os.fsdecode(path)
        if isinstance(handle, int) and handle >= 0:
            path = os.path.join(os.path.realpath(f"/proc/self/fd/{handle}"), path)  # noqa: PTH118
        head, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
        return os.path.join(os.path.realpath(head), name)  # noqa: PTH118

    def inside(path: str) -> bool:
        return path == place or path.startswith(place + os.sep)

    def change(path: str) -> bool:
        """Count a change; whether it is the one before which the process ends."""
        nonlocal count
        if inside(path):
            count += 1
            return count == at
        return False

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(arguments[0], str | bytes) and arguments[2] & WRITING:
                paths = [real(arguments[0])]
            else:
                return
        elif event in CHANGES:
            paths = [
                real(arguments[path], -1 if handle is None else arguments[handle])
                for path, handle in CHANGES[event]
            ]
        else:
            return
        if any(inside(path) for path in paths) and change(next(filter(inside, paths))):
            end()

    class Written:
        """A file whose writes count."""

        def __init__(self, file: Any) -> None:
            self.__dict__["file"] = file

        def write(self, data: Any) -> Any:
            if change(real(self.file.fileno())):
                view = memoryview(data).cast("B")
                self.file.write(view[: len(view) // 2])
                self.file.flush()
                end()
            return self.file.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> Any:
            self.file.__enter__()
            return self

        def __exit__(self, *error: Any) -> Any:
            return self.file.__exit__(*error)

        def __iter__(self) -> Any:
            return iter(self.file)

    def counted(opener: Any) -> Any:
        def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            found = opener(file, mode, *arguments, **options)
            changing = "b" in mode and set(mode) & set("wax+")
            return Written(found) if changing and inside(real(found.fileno())) else found

        return opened

    sync = os.fsync

    def fsync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if change(real(number)):
            end()
        sync(number)

    os.fsync = fsync
    io.open, os.fdopen = counted(io.open), counted(os.fdopen)
    sys.addaudithook(hook)
    atexit.register(lambda: Path(told).write_text(str(count), encoding="ascii"))
