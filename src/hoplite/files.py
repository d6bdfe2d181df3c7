"""Files that are written completely or not at all, and read only if they are what they should be.

Whatever a user names may be a pipe that never answers, a device without end, or larger than
memory; so every file is opened by :func:`open_regular`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | os.PathLike[str], most_bytes: int | None = None) -> BinaryIO:
    """Open a regular file of at most ``most_bytes`` to read its bytes, without a buffer.

    OSError, whose ``strerror`` says why, for anything else: a folder, a pipe, a device, a socket.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
    OSError: [Errno 22] it is not a regular file: '/dev/zero'
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
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
        data = file.read(most_bytes + 1)  # it may have grown, and some systems' files tell size 0
        while len(data) <= most_bytes and (more := file.read(most_bytes + 1 - len(data))):
            data += more
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes", str(path))
    return data


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` when the block ends without an error.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the
    name ``path``; so a reader, or a crash, sees the old file or the new one and never half of one.
    If the block raises, the temporary file is removed and ``path`` is as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "a.txt").read_bytes()
    b'whole'
    """
    # A link stays a link: the file it points to is what gets replaced.
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):  # a pipe, or /dev/null
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    # Not tempfile: its files are private (0600), while this one must get the usual permissions.
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    file = temporary.open("xb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def atomic_write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write ``content`` as the whole file ``path``, or leave ``path`` as it was."""
    with atomic_write(path) as file:
        file.write(content)


def atomic_write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write ``content`` in UTF-8 as the whole file ``path``, or leave ``path`` as it was."""
    atomic_write_bytes(path, content.encode("utf-8"))


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
