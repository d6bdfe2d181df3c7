"""Files that are written completely or not at all, and read only if they are what they should be.

Whatever a user names may be a pipe that never answers, a device without end, or larger than
memory; so every file is opened by :func:`open_regular`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# The names of temporary files, of earlier versions too.
LEFTOVER = re.compile(r"\..+\.(json|npy|npz|parquet)(\.[0-9a-f]{16})?\.tmp")
PIECE = 1 << 20
MOST_NAME = 200  # bytes of a name that the temporary file's can hold
RENAMES_OPEN_FILES = os.name != "nt"
_BINARY, _NONBLOCK, _NOFOLLOW = (
    getattr(os, f"O_{name}", 0) for name in ("BINARY", "NONBLOCK", "NOFOLLOW")
)


def open_regular(path: str | os.PathLike[str], most_bytes: int | None = None) -> io.FileIO:
    """Open a regular file of at most ``most_bytes`` to read its bytes, without a buffer.

    OSError, whose ``strerror`` says why, for anything else: a folder, a pipe, a device, a socket.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
    OSError: [Errno 22] it is not a regular file: '/dev/zero'
    """
    handle = os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY)
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if most_bytes is not None and found.st_size > most_bytes:
            size = f"it has {found.st_size:,} bytes, and at most {most_bytes:,} are read"
            raise OSError(errno.EFBIG, size, str(path))
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """All bytes of a regular file; OSError as in :func:`open_regular`, also if it has more."""
    with open_regular(path, most_bytes) as file:
        # one byte more than it tells: it may have grown, and some systems' files tell size 0
        pieces = [file.read(os.fstat(file.fileno()).st_size + 1)]
        while (size := sum(map(len, pieces))) <= most_bytes and (more := file.read(PIECE)):
            pieces.append(more)
    if size > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
    return b"".join(pieces)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` when the block ends without an error.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the
    name ``path``; so a reader, or a crash, sees the old file or the new one and never half of one.
    If the block raises, the temporary file is removed and ``path`` is as it was.

    The temporary file has one name, ``.NAME.tmp``, so that what a killed process leaves is taken
    over by the next one that writes ``path``. Its writer holds a lock on it; whoever writes the
    same ``path`` meanwhile takes a name at random, and the last to finish wins. Windows does not
    rename open files, so there a lock would end too early, and every name is at random.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "a.txt").read_bytes()
    b'whole'
    """
    # A link stays a link: the file it points to is what gets replaced.
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if target.exists() and not target.is_file():  # a pipe, or /dev/null
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    # Not tempfile: its files are private (0600), while this one must get the usual permissions.
    temporary, handle = _own_temporary(target)
    with os.fdopen(handle, "w+b") as file:  # the lock ends with it, after the file has its name
        try:
            yield file
            file.flush()
            os.fsync(handle)
            if not RENAMES_OPEN_FILES:
                file.close()
            temporary.replace(target)
        except BaseException:
            if not RENAMES_OPEN_FILES:
                file.close()
            temporary.unlink(missing_ok=True)
            raise
    sync_folder(target.parent)


def _own_temporary(target: Path) -> tuple[Path, int]:
    """A temporary file for ``target``, empty and of this process alone."""
    name = target.name
    if len(os.fsencode(name)) > MOST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    path = target.with_name(f".{name}.tmp")
    while RENAMES_OPEN_FILES and (handle := _own(path)) is not None:
        # Whoever had the lock before may have renamed or removed the file: then it is another.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                os.ftruncate(handle, 0)
                return path, handle
        os.close(handle)
    path = target.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)


def _own(path: Path) -> int | None:
    """``path`` opened and locked; None if it is not ours alone, or there are no locks."""
    try:
        handle = open_lock(path)
    except OSError:  # another user's, or no file; if nothing can be written here, it will be told
        return None
    ours = lock(handle, wait=False)
    if ours and os.fstat(handle).st_nlink <= 1:  # 2: a file of somebody's by another name
        return handle
    os.close(handle)
    if ours is None:
        path.unlink(missing_ok=True)
    return None


def open_lock(path: Path) -> int:
    """A handle of the regular file ``path``, made if it is not there, to lock or to write."""
    flags = os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK | _BINARY
    handle = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return handle


def lock(handle: int, *, wait: bool) -> bool | None:
    """Lock an open file or folder until it is closed, or this process ends, however that ends.

    False if another process has it; None where the system, or its disk, has no such locks. This is
    filelock's lock of an open file and not its ``FileLock``, which would also lock a pipe, and
    which on a disk without locks takes the file itself for one, so that a kill leaves it locked.
    """
    from filelock import lock_descriptor  # only now: its import takes 0.05 s

    try:
        return lock_descriptor(handle, blocking=wait)
    except OSError:
        return None


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[tuple[int, bool | None]]:
    """Within the block: a handle of the lock file ``path``, and whether it is :func:`lock`-ed."""
    handle = open_lock(path)
    try:
        yield handle, lock(handle, wait=wait)
    finally:
        os.close(handle)


def atomic_write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` as the whole file ``path``, or leave ``path`` as it was."""
    with atomic_write(path) as file:
        file.write(content)


def atomic_write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write ``content`` in UTF-8 as the whole file ``path``, or leave ``path`` as it was."""
    atomic_write_bytes(path, content.encode("utf-8"))


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; none may be at work in ``folder``."""
    for path in folder.glob(".*.tmp"):
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
