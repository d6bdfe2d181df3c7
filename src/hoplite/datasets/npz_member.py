"""One array of a ``.npz`` file, read piece by piece: only the wanted type is in memory."""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from hoplite.errors import DatasetError

PIECE_BYTES = 1 << 24

# What zipfile, zlib and NumPy's header parser raise on damaged bytes.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,  # an unknown compression
    RuntimeError,  # an encrypted member
    SyntaxError,
    TypeError,
    KeyError,
    OverflowError,
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
    def opened(cls, path: Path, advice: str) -> Iterator[NpzFile]:
        """The file; any damage met while it is open is one sentence that ends with ``advice``."""
        try:
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                yield cls(path, archive, advice)
        except FileNotFoundError as error:
            raise DatasetError(f"{path} does not exist; {advice}.") from error
        except PermissionError as error:
            raise DatasetError(f"{path} cannot be opened: {error.strerror}.") from error
        except _DAMAGE as error:
            reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
            raise DatasetError(f"{path} is damaged ({reason}); {advice}.") from error

    def read(
        self, name: str, dtype: Any, *, kinds: str, ndim: int, limit: int | None = None
    ) -> np.ndarray:
        """Member ``name`` as ``dtype``.

        Parameters
        ----------
        kinds : str
            The NumPy kinds that the stored array may have: ``"iu"`` for integers, ``"fiu"``.
        ndim : int
            The number of axes that it must have.
        limit : int, optional
            Every value must be in 0 .. limit - 1.
        """
        with self._member(name) as (stream, stored, shape, fortran, size):
            if stored.kind not in kinds:
                wanted = "numbers" if "f" in kinds else "integers"
                raise DatasetError(
                    f"{name!r} in {self.path} has type {stored}; it must hold {wanted}."
                )
            if len(shape) != ndim:
                raise DatasetError(
                    f"{name!r} in {self.path} has shape {shape}; it must have {ndim} "
                    f"{'axis' if ndim == 1 else 'axes'}."
                )
            count = math.prod(shape)
            if count * stored.itemsize != size:
                raise ValueError(f"{name!r} has {size:,} bytes for shape {shape} of {stored}")
            flat = np.empty(count, dtype)
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
            if version == (1, 0):
                shape, fortran, stored = np.lib.format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran, stored = np.lib.format.read_array_header_2_0(stream)
            else:
                raise ValueError(f"{name!r} has the unknown array format {version}")
            yield stream, stored, shape, fortran, info.file_size - stream.tell()


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError("it ends too early")
    return data
