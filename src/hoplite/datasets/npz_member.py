"""One array of a ``.npz`` file, read piece by piece: only the wanted type is in memory."""

from __future__ import annotations

import contextlib
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from hoplite.errors import DatasetError
from hoplite.files import open_regular

PIECE_BYTES = 1 << 24
MOST_EMPTY = 10**7  # columns of a matrix without rows
_HEADER = re.compile(
    rb"\{'descr': '([<>|=][a-zA-Z]\d{0,4})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,18}L?(?:, ?|(?=\))))*)\), ?\} *\n?"
)
_TYPES = re.compile(r"[<>|=]([biu]1|[iuf][248]|c8|c16|O|S\d+|U\d+)")

# What zipfile and zlib raise on damaged bytes; ValueError also for what contradicts itself.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,  # an unknown compression
)


class NpzFile:
    """The members of a ``.npz`` file; nothing in it is ever unpickled.

    Unlike ``np.load``, :meth:`read` converts while it reads: float64 features become float32 and
    int64 indices int32 without both being in memory.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, advice: str) -> None:
        self.path, self._archive, self._advice = path, archive, advice

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, advice: str, what: str = "is damaged") -> Iterator[NpzFile]:
        """The file; any damage met while it is open is one sentence that ends with ``advice``."""
        try:
            file = io.BufferedReader(open_regular(path))  # pyright: ignore[reportArgumentType]
        except FileNotFoundError as error:
            raise DatasetError(f"{path} does not exist; {advice}.") from error
        except OSError as error:
            raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
        try:
            with file, zipfile.ZipFile(file) as archive:
                _check_members(archive, path)
                yield cls(path, archive, advice)
        except _DAMAGE as error:
            reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
            raise DatasetError(f"{path} {what} ({reason}); {advice}.") from error

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._archive.NameToInfo

    def read(
        self, name: str, dtype: Any, *, kinds: str, ndim: int | None, limit: int | None = None
    ) -> np.ndarray:
        """Member ``name`` as ``dtype``, or as the type it has if that is None.

        Parameters
        ----------
        kinds : str
            The NumPy kinds that the stored array may have: ``"iu"`` for integers, ``"fiu"``.
        ndim : int or None
            The number of axes that it must have; None for a single number or a list.
        limit : int, optional
            Every value must be in 0 .. limit - 1.
        """
        with self._member(name) as (stream, stored, shape, fortran, size):
            if stored.kind not in kinds:
                wanted = "numbers" if "f" in kinds else "integers"
                raise DatasetError(
                    f"{name!r} in {self.path} has type {stored}; it must hold {wanted}."
                )
            if len(shape) != ndim and not (ndim is None and len(shape) < 2):
                axes = f"{ndim or 'at most 1'} {'axes' if ndim == 2 else 'axis'}"
                raise DatasetError(
                    f"{name!r} in {self.path} has shape {shape}; it must have {axes}."
                )
            count = math.prod(shape)
            if count * stored.itemsize != size:
                raise ValueError(f"{name!r} has {size:,} bytes for shape {shape} of {stored}")
            if not count and max(shape, default=0) > MOST_EMPTY:
                raise ValueError(f"{name!r} has shape {shape}")
            flat = np.empty(count, stored.newbyteorder("=") if dtype is None else dtype)
            step = max(PIECE_BYTES // stored.itemsize, 1)
            for start in range(0, count, step):
                piece = flat[start : start + step]
                raw = np.frombuffer(_exactly(stream, piece.size * stored.itemsize), stored)
                if limit is not None and not 0 <= raw.min() <= raw.max() < limit:
                    outside = raw.min() if raw.min() < 0 else raw.max()
                    raise DatasetError(
                        f"{name!r} in {self.path} holds {outside:,}; "
                        f"it must hold 0 to {limit - 1:,}."
                    )
                if flat.dtype.kind in "iu":
                    bounds = np.iinfo(flat.dtype)
                    if raw.min() < bounds.min or raw.max() > bounds.max:
                        raise ValueError(f"{name!r} holds numbers beyond {flat.dtype}")
                with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
                    piece[:] = raw
            stream.read(1)  # reaches the end, where zipfile compares the checksum
        return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)

    def read_text(self, name: str) -> str:
        """Member ``name`` as the short text that it holds."""
        with self._member(name) as (stream, stored, shape, _, size):
            if stored.kind not in "SU" or shape not in ((), (1,)) or size != stored.itemsize:
                raise DatasetError(f"{name!r} in {self.path} has type {stored}; it must be text.")
            value = np.frombuffer(_exactly(stream, size), stored)[0]
        return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)

    @contextlib.contextmanager
    def _member(
        self, name: str
    ) -> Iterator[tuple[IO[bytes], np.dtype, tuple[int, ...], bool, int]]:
        """The stream behind the header, and type, shape, order and bytes of what follows."""
        try:
            info = self._archive.getinfo(f"{name}.npy")
        except KeyError:
            found = ", ".join(sorted(n.removesuffix(".npy") for n in self._archive.namelist()))
            raise DatasetError(
                f"{self.path} has no array {name!r} (it has: {found or 'none'}); {self._advice}."
            ) from None
        with self._archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"{name!r} has the unknown array format {version}")
            length = int.from_bytes(_exactly(stream, 2 if version == (1, 0) else 4), "little")
            shape, fortran, stored = _parsed(_exactly(stream, min(length, 1 << 16)), name)
            yield stream, stored, shape, fortran, info.file_size - stream.tell()


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    members = archive.infolist()
    if len(archive.NameToInfo) < len(members):
        raise ValueError("it holds a member twice")
    if any(member.flag_bits & 1 for member in members):
        raise ValueError("it is encrypted")
    unpacked = sum(member.file_size for member in members)
    most = psutil.virtual_memory().total
    if unpacked > most:  # zeros may be packed a thousand times smaller, also in an honest file
        raise DatasetError(
            f"{path} unpacks to {unpacked:,} bytes, and this machine has {most:,} bytes of memory; "
            "read it on a larger one."
        )


def _parsed(header: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array, from the header that NumPy writes and no other."""
    found = _HEADER.fullmatch(header)
    if found is None or not _TYPES.fullmatch(kind := found[1].decode("ascii")):
        raise ValueError(f"{name!r} has an array header that NumPy does not write")
    shape = tuple(
        int(size.rstrip(b"L")) for size in found[3].replace(b" ", b"").split(b",") if size
    )
    return shape, found[2] == b"True", np.dtype(kind)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("it ends too early")
    return data
