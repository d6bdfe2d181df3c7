"""Files that are either written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


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
