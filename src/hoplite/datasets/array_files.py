"""Arrays in .npy files that are larger than memory: written row by row, read a range at a time.

Reading goes through plain reads, not memory maps: pages of a map count as the process's memory, and
what a plain read leaves in the system's cache does not.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hoplite.files import atomic_write

LEFTOVER = re.compile(r"\..*\.[0-9a-f]{16}\.tmp")  # the names that atomic_write gives


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """``array`` as the whole file ``path``, or nothing.

    Unlike ``np.save``, a full disk is told as such.
    """
    with growing_npy(path, array.dtype, array.shape[1:]) as append:
        append(array)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of writers that were killed; none may be at work in ``folder``."""
    for path in folder.glob(".*.tmp"):
        if LEFTOVER.fullmatch(path.name):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def growing_npy(
    path: str | os.PathLike[str], dtype: Any, row: tuple[int, ...] = ()
) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that appends rows of shape ``row``; ``path`` appears when all went well.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with growing_npy(Path(folder) / "a.npy", np.int32) as append:
    ...         append(np.array([1, 2]))
    ...         append(np.array([3]))
    ...     np.load(Path(folder) / "a.npy").tolist()
    [1, 2, 3]
    """
    dtype, rows = np.dtype(dtype), 0
    with atomic_write(path) as file:
        length = _write_header(file, dtype, (0, *row))

        def append(values: np.ndarray) -> None:
            nonlocal rows
            values = np.ascontiguousarray(values, dtype)
            if values.shape[1:] != row:
                raise ValueError(f"rows have shape {values.shape[1:]}, not {row}")
            rows += len(values)
            if values.size:  # an empty view cannot be cast
                file.write(values.data.cast("B"))

        yield append
        file.seek(0)
        # NumPy leaves room in a header for any number of rows
        assert _write_header(file, dtype, (rows, *row)) == length


def read_npz(path: str | os.PathLike[str], names: Sequence[str]) -> list[np.ndarray]:
    """The arrays ``names`` of a small .npz file; ``ValueError`` or ``OSError`` if it is damaged."""
    try:
        # NumPy leaves a file that it cannot read open, so it is opened here
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return [arrays[name] for name in names]
    except (KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"it is no such file ({error})") from error


class NpyRows:
    """The rows of a .npy file, read when they are asked for.

    ``ValueError`` if it is no such file or has another length than its header says.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed with the object
        try:
            version = np.lib.format.read_magic(self._file)
            if version != (1, 0):
                raise ValueError(f"its format is {version}")
            shape, by_column, self.dtype = np.lib.format.read_array_header_1_0(self._file)
            if by_column or self.dtype.hasobject or not shape:
                raise ValueError("it holds no rows of numbers")
            self.shape: tuple[int, ...] = tuple(shape)
            self._start = self._file.tell()
            self._row_bytes = self.dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
            size, wanted = os.fstat(self._file.fileno()).st_size, len(self) * self._row_bytes
            if size != self._start + wanted:
                raise ValueError(f"it has {size:,} bytes, not {self._start + wanted:,}")
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) in an array of their own."""
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        self.read_into(start, out)
        return out

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill ``out``, contiguous and of the file's type, with the rows from ``start`` on."""
        if not out.size:
            return
        view = out.data.cast("B")
        self._file.seek(self._start + start * self._row_bytes)
        while view:  # one read gives at most 2 GB
            count = self._file.readinto(view)
            if not count:
                raise ValueError("it ended too early")
            view = view[count:]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> NpyRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> int:
    np.lib.format.write_array_header_1_0(
        file,
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
    )
    return file.tell()
