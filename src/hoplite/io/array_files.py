"""Arrays in .npy and .npz files; those larger than memory are written and read by rows.

Reading goes through plain reads, not memory maps: pages of a map count as the process's memory, and
what a plain read leaves in the system's cache does not.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np
import psutil

from hoplite.csr import check_csr, csr_of
from hoplite.files import atomic_write, open_regular

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    from hoplite.machine import sparse as sp

MAX_HEADER = 4096  # bytes; NumPy's own have 128
MAX_EMPTY = 10**7  # rows or columns of an array without numbers
CSR_TYPES = {
    "indptr": (np.int64,),
    "indices": (np.int32, np.int64),
    "values": (np.float32, np.float64),
}
CSR_ARRAYS = tuple(CSR_TYPES)
PIECE = 1 << 22  # bytes


def write_npy(path: str | os.PathLike[str], array: np.ndarray) -> None:
    """Write ``array`` to the file ``path``, completely or not at all.

    Unlike ``np.save``, a full disk raises an error that says so.
    """
    with growing_npy(path, array.dtype, array.shape[1:]) as append:
        append(array)


def file_crc32(path: Path) -> int:
    """CRC-32 of a file."""
    checksum = 0
    with open_regular(path) as file:
        while piece := file.read(PIECE):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def all_crc32(folder: Path, *names: str) -> dict[str, int]:
    """CRC-32 of those files that exist, by their names."""
    return {name: file_crc32(folder / name) for name in names if (folder / name).exists()}


def check_crc32(folder: Path, expected: Mapping[str, int], *names: str) -> None:
    """ValueError or OSError unless files have the ``expected`` checksums."""
    for name in names:
        if file_crc32(folder / name) != expected.get(name):
            raise ValueError(f"{name} does not contain the data that was written to it")


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


def read_header(file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Read the type, the shape and whether it is in Fortran order from the start of a .npy file.

    ValueError if it is not such a file, or holds Python objects.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((2, 3), np.float32))
    >>> _ = file.seek(0)
    >>> read_header(file)
    (dtype('float32'), (2, 3), False)
    """
    try:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, fortran, dtype = readers[version](file, max_header_size=MAX_HEADER)
    except Exception as error:  # NumPy's parser raises TokenError, RecursionError and others, too
        raise ValueError("it is not a .npy file") from error
    if dtype.hasobject or dtype.names or dtype.subdtype or any(size < 0 for size in shape):
        raise ValueError(f"it has type {dtype} and shape {shape}")
    return dtype, shape, fortran


class NpyRows:
    """The rows of a .npy file, which is open only while some are read, so threads may share it.

    ``ValueError`` if it is not a .npy file, or its length differs from that in its header.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        with open_regular(path) as file:
            self.dtype, self.shape, fortran = read_header(file)
            self._identity = _identity(file)
            if not self.shape or fortran or self.dtype.kind not in "biuf":
                raise ValueError("it does not contain rows of numbers")
            self._start = file.tell()
            size = os.fstat(file.fileno()).st_size
            expected = self._start + math.prod(self.shape) * self.dtype.itemsize
            if size != expected:
                raise ValueError(f"it has {size:,} bytes, not {expected:,}")

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` (excluded) in an array of their own."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"it has {len(self):,} rows, but {start:,} to {stop:,} were requested")
        row = math.prod(self.shape[1:])
        with open_regular(self._path) as file:
            if _identity(file) != self._identity:
                raise ValueError("it was replaced")
            file.seek(self._start + start * row * self.dtype.itemsize)
            numbers = np.fromfile(file, self.dtype, (stop - start) * row)
        if numbers.size < (stop - start) * row:
            raise ValueError("it is truncated")
        return numbers.reshape(stop - start, *self.shape[1:])

    def pick(self, rows: np.ndarray) -> np.ndarray:
        """Some rows, through a map of the file, which brings in only their pages."""
        return np.asarray(np.memmap(self._path, self.dtype, "r", self._start, self.shape)[rows])


def _identity(file: BinaryIO) -> tuple[int, ...]:
    """What identifies a file: another one at the same path differs in it."""
    facts = os.fstat(file.fileno())
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns


def _write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> int:
    np.lib.format.write_array_header_1_0(
        file,
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
    )
    return file.tell()


class NpzFile:
    """The arrays of a ``.npz`` file; each is checked before it is read, and none is unpickled."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._archive.NameToInfo

    def read(self, name: str, kinds: str, *ndims: int) -> np.ndarray:
        """Read an array whose dtype has one of ``kinds``, and which has one of ``ndims`` axes.

        ValueError for anything else, and for integers beyond 64 bits with a sign.
        """
        if name not in self:
            names = ", ".join(sorted(self._archive.namelist()))
            raise ValueError(f"it has no array {name!r}, only {names or 'none'}")
        info = self._archive.getinfo(f"{name}.npy")
        with self._archive.open(info) as stream:
            dtype, shape, _ = read_header(stream)
            size = info.file_size - stream.tell()
            if dtype.kind not in kinds or len(shape) not in ndims:
                raise ValueError(f"{name!r} has type {dtype} and shape {shape}")
            if math.prod(shape) * dtype.itemsize != size:
                raise ValueError(f"{name!r} has {size:,} bytes for shape {shape} of {dtype}")
            if not size and max(shape, default=0) > MAX_EMPTY:
                raise ValueError(f"{name!r} has shape {shape}")
            stream.seek(0)
            array = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # reaches the end, where zipfile compares the checksum
        if dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
            raise ValueError(f"{name!r} has numbers outside the range of int64")
        return array.astype(dtype.newbyteorder("="), copy=False)


@contextlib.contextmanager
def npz_arrays(path: str | os.PathLike[str], max_bytes: int | None = None) -> Iterator[NpzFile]:
    """Open a ``.npz`` file; OSError or, within the block too, ValueError if it is damaged.

    zipfile never unpacks more than the sizes that a file declares, and these must be at most
    ``max_bytes`` together: by default what this machine has of memory.
    """
    limit = psutil.virtual_memory().total if max_bytes is None else max_bytes
    with io.BufferedReader(open_regular(path)) as file:  # pyright: ignore[reportArgumentType]
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                if len(archive.NameToInfo) < len(members) or any(m.flag_bits & 1 for m in members):
                    raise ValueError("it has duplicate arrays or is encrypted")
                size = sum(member.file_size for member in members)
                if size > limit:
                    raise ValueError(f"it unpacks to {size:,} bytes, more than {limit:,}")
                yield NpzFile(Path(path), archive)
        except (
            zipfile.BadZipFile,
            zlib.error,
            struct.error,
            EOFError,
            NotImplementedError,
        ) as error:
            raise ValueError(str(error) or type(error).__name__) from error


class CsrFiles:
    """The rows of a square matrix in ``indptr.npy``, ``indices.npy`` and ``values.npy``.

    ``ValueError`` or ``OSError`` if they are not there or do not fit together. Every range of rows
    is checked when it is read, since what computes with it trusts it; if it is damaged, or cannot
    be read, ``damaged`` turns what was wrong into the error that is raised.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        damaged: Callable[[Exception], Exception] = lambda error: ValueError(str(error)),
    ) -> None:
        self.damaged = damaged
        files = {part: NpyRows(Path(folder) / f"{part}.npy") for part in CSR_ARRAYS}
        for part, file in files.items():
            if len(file.shape) != 1 or file.dtype not in CSR_TYPES[part]:
                raise ValueError(f"{part}.npy has type {file.dtype} and shape {file.shape}")
        self._indptr, self._indices, self._values = files.values()
        self.rows, self.entries = len(self._indptr) - 1, len(self._indices)
        last = self._indptr.read(self.rows, self.rows + 1) if self.rows >= 0 else [-1]
        if last[0] != self.entries or len(self._values) != self.entries:
            raise ValueError("indptr, indices and values do not match")

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start`` to ``stop`` (excluded) begin, and where the last of them ends."""
        try:
            indptr = self._indptr.read(start, stop + 1)
            if indptr[0] < 0 or indptr[-1] > self.entries or (indptr[1:] < indptr[:-1]).any():
                raise ValueError("indptr decreases or exceeds the number of entries")
            if start == 0 and indptr[0] != 0:
                raise ValueError("indptr does not start at 0")
        except (OSError, ValueError) as error:
            raise self.damaged(error) from error
        return indptr

    def read(self, start: int, stop: int) -> sp.csr_array:
        indptr, shape = self.indptr(start, stop), (stop - start, self.rows)
        first, last = int(indptr[0]), int(indptr[-1])
        indptr -= first
        try:
            indices, values = self._indices.read(first, last), self._values.read(first, last)
            check_csr(indptr, indices, values, shape)
        except (OSError, ValueError) as error:
            raise self.damaged(error) from error
        return csr_of(values, indices, indptr, self.rows)


@contextlib.contextmanager
def growing_csr(
    folder: Path, index_type: type[np.integer], value_type: type[np.floating]
) -> Iterator[Callable[[sp.csr_array], None]]:
    """Yield a function that appends rows (sorted CSR); the three files appear at the end."""
    with (
        growing_npy(folder / "indptr.npy", np.int64) as ends,
        growing_npy(folder / "indices.npy", index_type) as indices,
        growing_npy(folder / "values.npy", value_type) as values,
    ):
        entries = 0
        ends(np.zeros(1, np.int64))

        def append(rows: sp.csr_array) -> None:
            nonlocal entries
            ends(rows.indptr[1:].astype(np.int64) + entries)
            entries += int(rows.indptr[-1])
            indices(rows.indices)
            values(rows.data)

        yield append
