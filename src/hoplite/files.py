"""Files that are written completely or not at all, and read only if they are what they should be.

A user may name a pipe that never answers, a device without end, or a file larger than memory; so
every file is opened by :func:`open_regular`.

JSON files have a schema and a checksum. The schema is a type, for example a dataclass with fields
such as ``Annotated[int, Meta(ge=0, le=10)]``, which msgspec checks. The key ``checksum`` is the
CRC-32 of the other keys, sorted and without white space: a file may be formatted again, but not
edited. NaN and infinity are not valid JSON and are neither written nor read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np

from hoplite.errors import ConfigError, DatasetError, first_line

LEFTOVER = re.compile(r"\..+\.(json|npy|npz|parquet)(\.[0-9a-f]{16})?\.tmp")  # temporary files
CHECKSUM = "checksum"
MAX_JSON = 1 << 28  # 256 MB: far more than any of these files needs
MAX_NAME = 200  # bytes of a file's name that fit into the name of its temporary file
PIECE = 1 << 20
_NONBLOCK, _NOFOLLOW = (getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW"))
Schema = TypeVar("Schema")


def open_regular(path: str | os.PathLike[str], max_bytes: int | None = None) -> io.FileIO:
    """Open a regular file of at most ``max_bytes`` to read its bytes, without a buffer.

    OSError, with the reason as ``strerror``, for a folder, a pipe, a device or a socket.

    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
    OSError: [Errno 22] it is not a regular file: '/dev/zero'
    """
    handle = os.open(path, os.O_RDONLY | _NONBLOCK)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if max_bytes is not None and status.st_size > max_bytes:
            size = f"it has {status.st_size:,} bytes, more than the limit of {max_bytes:,}"
            raise OSError(errno.EFBIG, size, str(path))
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


@contextlib.contextmanager
def reading(
    path: str | os.PathLike[str],
    what: str,
    advice: str = "",
    damage: tuple[type[Exception], ...] = (ValueError,),
) -> Iterator[None]:
    """Within the block, a file that cannot be read, or its ``damage``, is a DatasetError.

    >>> with reading("a.mtx", "Matrix Market file"):
    ...     raise ValueError("it is empty")
    Traceback (most recent call last):
    hoplite.errors.DatasetError: a.mtx is not a valid Matrix Market file (it is empty).
    """
    end = f"; {advice}." if advice else "."
    try:
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"{error.filename or path} does not exist{end}") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ConfigError:
        raise
    except damage as error:
        raise DatasetError(f"{path} is not a valid {what} ({first_line(error)}){end}") from error


def read_regular(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """All bytes of a regular file; OSError as in :func:`open_regular`, also if it has more."""
    pieces, size = [], 0
    with open_regular(path, max_bytes) as file:  # it may grow meanwhile, or have reported size 0
        while size <= max_bytes and (piece := file.read(PIECE)):
            pieces.append(piece)
            size += len(piece)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes", str(path))
    return b"".join(pieces)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` when the block ends without an error.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the
    name ``path``; so a reader, or a crash, sees the old file or the new one and never half of one.
    If the block raises, the temporary file is removed and ``path`` is as it was.

    The temporary file is ``.NAME.tmp``, so the next writer of ``path`` takes over what a killed
    process left. Its writer holds a lock on it; another writer of the same ``path`` meanwhile takes
    a random name, and the last to finish wins.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "a.txt").read_bytes()
    b'whole'
    """
    target = Path(os.path.realpath(path))  # a link stays a link: its target is replaced
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if target.exists() and not target.is_file():  # a pipe, or /dev/null
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    temporary, file = _open_temporary(target)
    with file:  # the lock ends with it, after the file has its name
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(path)  # a full disk does not name what it had no room for
            raise
    sync_folder(target.parent)


def _open_temporary(target: Path) -> tuple[Path, BinaryIO]:
    """An empty temporary file for ``target`` that no other process writes.

    Not by tempfile: its files are private (0600), and this one needs the default permissions.
    """
    name = target.name
    if len(os.fsencode(name)) > MAX_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    path = target.with_name(f".{name}.tmp")
    with contextlib.suppress(OSError):  # another user's file, a link or a pipe
        file = os.fdopen(open_lock(path), "w+b")
        ours, status = lock(file.fileno()), os.fstat(file.fileno())
        # a second name: somebody's file; another file: its last owner has just renamed it
        if ours and status.st_nlink == 1 and os.path.samestat(status, os.lstat(path)):
            file.truncate(0)
            return path, file
        file.close()
        if ours is None:  # there are no locks here
            path.unlink(missing_ok=True)
    path = target.with_name(f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        return path, path.open("x+b")
    except OSError as error:
        error.filename = str(target)
        raise


def open_lock(path: Path) -> int:
    """A handle of the regular file ``path``, created if missing, to lock or to write."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW | _NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return handle


def lock(handle: int) -> bool | None:
    """Try to lock an open file or folder until it is closed, or this process ends or is killed.

    False if another process has it; None where the system, or its disk, has no such locks.
    """
    from filelock import lock_descriptor  # only now: its import takes 0.05 s

    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[tuple[int, bool | None]]:
    """Within the block: a handle of the lock file ``path``, and whether it is :func:`lock`-ed."""
    handle = open_lock(path)
    try:
        yield handle, lock(handle)
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
    """Remove the temporary files of killed writers; none may be at work in ``folder``."""
    for path in folder.glob(".*.tmp"):
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a new name in ``folder`` durable, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write a dict or dataclass of plain values atomically, with its checksum."""
    atomic_write_text(path, to_json(content, indent))


def to_json(content: Any, indent: int | None = 1) -> str:
    """``content``, a dict or dataclass of plain values, as JSON with its checksum.

    ValueError if it could not be read again: numbers that are not finite, half a surrogate pair.
    """
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        content = dataclasses.asdict(content)
    # keys become text, tuples lists
    plain = json.loads(json.dumps(content, allow_nan=False, default=_number))
    json.dumps(plain, ensure_ascii=False).encode("utf-8")
    return json.dumps({**plain, CHECKSUM: _checksum(plain)}, indent=indent) + "\n"


def read_json(path: str | os.PathLike[str], schema: type[Schema]) -> Schema:
    """The file ``path`` as a ``schema``; OSError if it cannot be read, ValueError if damaged.

    The ValueError says what is wrong, such as ``Expected `int`, got `float` - at `$.nodes` ``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(f"{folder}/a.json", {"nodes": 3})
    ...     read_json(f"{folder}/a.json", dict[str, int])
    {'nodes': 3}
    """
    return parse_json(read_regular(path, MAX_JSON), schema)


def parse_json(text: bytes, schema: type[Schema]) -> Schema:
    """The bytes of such a file as a ``schema``; ValueError if they are damaged."""
    try:
        content = msgspec.json.decode(text)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        checksum = content.pop(CHECKSUM, None)
        value = msgspec.convert(content, schema)
        if checksum is not None and checksum != _checksum(content):
            raise ValueError("its checksum does not match its content")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def without_nan(value: Any) -> Any:
    """Plain values with None for the numbers that JSON does not have, tuples as lists.

    >>> without_nan({"loss": (1.0, float("inf"))})
    {'loss': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise ValueError(f"{type(value).__name__} is not a JSON value")


def _checksum(content: dict[str, Any]) -> int:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return zlib.crc32(plain.encode("ascii"))
