"""Arrays in .npy files that are larger than memory: written row by row, read a range at a time.

Reading goes through plain reads, not memory maps: pages of a map count as the process's memory, and
what a plain read leaves in the system's cache does not.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO, Self

import numpy as np

from hoplite.files import atomic_write, open_regular

MAGIC = b"\x93NUMPY\x01\x00"
MOST_HEADER = 4096  # bytes; NumPy's own have 128
# The header as NumPy writes it. It is a Python literal, but nothing here evaluates Python.
HEADER = re.compile(
    rb"\{'descr': '([<|][biuf][1248])', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,18}, )*[0-9]{1,18},?)?\), \} *\n"
)


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """``array`` as the whole file ``path``, or nothing.

    Unlike ``np.save``, a full disk is told as such.
    """
    with growing_npy(path, array.dtype, array.shape[1:]) as append:
        append(array)


@contextlib.contextmanager
def growing_npy(
    path: str | os.PathLike[str], dtype: Any, row: tuple[int, ...] = ()
) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that appends rows of shape ``row``; ``path`` appears when all went well.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with growing_npy(f"{folder}/a.npy", np.int32) as append:
    ...         append(np.array([1, 2]))
    ...         append(np.array([3]))
    ...     np.load(f"{folder}/a.npy").tolist()
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


def read_header(file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...]]:
    """Type and shape from the header of a .npy file of numbers, row by row; ValueError if not.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((2, 3), np.float32))
    >>> _ = file.seek(0)
    >>> read_header(file)
    (dtype('float32'), (2, 3))
    """
    start = file.read(len(MAGIC) + 2)
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if not start.startswith(MAGIC) or length > MOST_HEADER:
        raise ValueError("it is no .npy file of version 1.0")
    found = HEADER.fullmatch(file.read(length))
    if found is None:
        raise ValueError("it holds no rows of numbers")
    sizes = (found[2] or b"").decode("ascii").replace(",", " ").split()
    return np.dtype(found[1].decode("ascii")), tuple(int(size) for size in sizes)


class Closing(ABC):
    """What is closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NpyRows(Closing):
    """The rows of a .npy file, read when they are asked for.

    ``ValueError`` if it is no such file or has another length than its header says.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open_regular(path)
        try:
            self.dtype, self.shape = read_header(self._file)
            if not self.shape:
                raise ValueError("it holds one number, not rows of them")
            self._start = self._file.tell()
            self._row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
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
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"it has {len(self):,} rows, but {start:,} to {stop:,} are asked for")
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

    def pick(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, through a map of the file, which brings in only their pages."""
        mapped = np.memmap(self._file, self.dtype, "r", self._start, self.shape)
        return np.asarray(mapped[rows])

    def close(self) -> None:
        self._file.close()


def _write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> int:
    np.lib.format.write_array_header_1_0(
        file,
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
    )
    return file.tell()
