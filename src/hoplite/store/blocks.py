"""The blocks of a store: a range of rows times a panel of columns of one hop, a .npy file each.

    hops/h{hop}/r{row block:06d}-c{panel:04d}.npy    rows x columns; bfloat16 as the bits in uint16
    hops/h{hop}/c{panel:04d}.json                    written after all blocks of the panel: their
                                                     CRC-32, and for half precision their error

Hop 0 is X and always float32. A block that exists with the right size is finished.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hoplite.array_files import NpyRows, write_npy
from hoplite.errors import StoreError
from hoplite.json_files import read_json, write_json
from hoplite.store.errors import DamagedBlock
from hoplite.store.manifest import Checksum, Manifest, Size

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
HEADER = 128  # bytes of a .npy header of two dimensions
FEW_ROWS = 16  # from one row in so many on, reading the whole block is faster
NO_FILE = {errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO}  # of what is no regular file
PIECE = 1 << 18  # numbers compared at a time, so that the copies stay small


def storage(manifest: Manifest, hop: int) -> str:
    """The name of the number type in which this hop is kept."""
    return "float32" if hop == 0 else manifest.dtype


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 numbers as they are stored; beyond the type's range they become infinite.

    >>> encode(np.array([1.0, 1e6], np.float32), "float16").tolist()
    [1.0, inf]
    >>> decode(encode(np.array([1.0, 1 / 3], np.float32), "bfloat16"), "bfloat16").tolist()
    [1.0, 0.333984375]
    """
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return values.astype(ml_dtypes.bfloat16).view(np.uint16)
        return values.astype(TYPES[dtype], copy=False)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """Stored numbers in float32."""
    if dtype == "bfloat16":
        bits = stored.astype(np.uint32)  # the upper half of a float32; NumPy's cast is slower
        bits <<= 16
        return bits.view(np.float32)
    return stored.astype(np.float32, copy=False)


class Blocks:
    """The blocks of the store in ``folder`` that ``manifest`` describes."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._checked: set[tuple[int, int, int]] = set()

    def name(self, hop: int, block: int, panel: int) -> str:
        return f"hops/h{hop}/r{block:06d}-c{panel:04d}.npy"

    def record_path(self, hop: int, panel: int) -> Path:
        return self.folder / f"hops/h{hop}/c{panel:04d}.json"

    def shape(self, block: int, panel: int) -> tuple[int, int]:
        start, stop = self.manifest.row_blocks[block]
        first, last = self.manifest.panels[panel]
        return stop - start, last - first

    def has(self, hop: int, block: int, panel: int) -> bool:
        """Whether the block exists with the right size."""
        rows, columns = self.shape(block, panel)
        wanted = HEADER + rows * columns * np.dtype(TYPES[storage(self.manifest, hop)]).itemsize
        try:
            return (self.folder / self.name(hop, block, panel)).stat().st_size == wanted
        except OSError:
            return False

    def finished(self, hop: int, panel: int) -> bool:
        """Whether every block of the panel is there, and the record that closes it."""
        if self.record(hop, panel) is None:
            return False
        return all(self.has(hop, i, panel) for i in range(len(self.manifest.row_blocks)))

    def record(self, hop: int, panel: int) -> PanelRecord | None:
        """The record that closes a panel, None if it is missing or damaged."""
        try:
            found = read_json(self.record_path(hop, panel), PanelRecord)
        except (OSError, ValueError):
            return None
        whole = len(found.crc32) == len(self.manifest.row_blocks)
        return (
            found
            if whole and found.measured == (storage(self.manifest, hop) != "float32")
            else None
        )

    def closed(self, hop: int, panel: int) -> PanelRecord:
        """The record that closes a panel; DamagedBlock if there is none."""
        found = self.record(hop, panel)
        if found is None:
            name = str(self.record_path(hop, panel).relative_to(self.folder))
            raise DamagedBlock(self.folder, name, "is missing or damaged")
        return found

    def write_panel(self, hop: int, panel: int, values: np.ndarray) -> None:
        """Write the blocks of ``values``, n x w, that are not there yet, and then the record."""
        sums = PanelSums(storage(self.manifest, hop))
        (self.folder / f"hops/h{hop}").mkdir(parents=True, exist_ok=True)
        for block, (start, stop) in enumerate(self.manifest.row_blocks):
            self.write(hop, block, panel, values[start:stop], sums)
        self.close_panel(hop, panel, sums)

    def write(self, hop: int, block: int, panel: int, values: np.ndarray, sums: PanelSums) -> None:
        """Add the block to ``sums`` and write it, unless it is there with the same bytes."""
        stored = encode(values, sums.dtype)
        if not sums.add(values, stored):
            first, last = self.manifest.panels[panel]
            kind, advice = sums.dtype, ""
            if kind == "float16" and np.isfinite(values).all():
                advice = "use --dtype bfloat16 or float32, or scale the features"
            else:
                advice = "use fewer hops, basis chebyshev, or smaller features"
            raise StoreError(
                f"hop {hop} has numbers beyond the range of {kind} in columns {first} to "
                f"{last - 1} of block {block}; {advice}."
            )
        if not self._holds(hop, block, panel, sums.checksums[-1]):
            write_npy(self.folder / self.name(hop, block, panel), stored)

    def close_panel(self, hop: int, panel: int, sums: PanelSums) -> None:
        """Write the record that says that all blocks of the panel are there."""
        write_json(self.record_path(hop, panel), sums.to_json(), indent=None)

    def read(self, hop: int, block: int, panel: int, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop`` of a block, counted within it, in float32.

        The first time that a block is read, all of it is checked, here and in :meth:`pick`.
        """
        self._check_once(hop, block, panel)
        name, kind = self.name(hop, block, panel), storage(self.manifest, hop)
        with self._open(name, kind, self.shape(block, panel)) as file:
            return decode(file.read(start, stop), kind)

    def pick(self, hop: int, block: int, panel: int, rows: np.ndarray) -> np.ndarray:
        """Some rows of a block, counted within it, in float32.

        Few of them are read through a map of the file, which brings in only their pages.
        """
        if FEW_ROWS * len(rows) > self.shape(block, panel)[0]:
            return self.read(hop, block, panel, 0, self.shape(block, panel)[0])[rows]
        self._check_once(hop, block, panel)
        name, kind = self.name(hop, block, panel), storage(self.manifest, hop)
        with self._open(name, kind, self.shape(block, panel)) as file:
            return decode(file.pick(rows), kind)

    def unchecked(self, hop: int, block: int) -> np.ndarray:
        """The rows of a block of all columns, for who has a checksum of its own: float32."""
        parts = []
        for panel in range(len(self.manifest.panels)):
            name, kind = self.name(hop, block, panel), storage(self.manifest, hop)
            with self._open(name, kind, self.shape(block, panel)) as file:
                parts.append(decode(file.read(0, len(file)), kind))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def check(self, hop: int, block: int, panel: int, out: np.ndarray | None = None) -> None:
        """DamagedBlock unless a block is what was written; its numbers go to ``out``, if given."""
        name, kind = self.name(hop, block, panel), storage(self.manifest, hop)
        record, checksum = self.closed(hop, panel), 0
        for start, stored in self._pieces(hop, block, panel):
            values = decode(stored, kind)
            if not np.isfinite(values).all():
                raise DamagedBlock(self.folder, name, "holds numbers that are not finite")
            checksum = crc(stored, checksum)
            if out is not None:
                out[start : start + len(values)] = values
        if checksum != record.crc32[block]:
            raise DamagedBlock(self.folder, name, "does not hold what was written to it")

    def load_panel(self, hop: int, panel: int, out: np.ndarray) -> None:
        """Fill ``out``, n x w, with a hop, and check every block of it."""
        for block, (start, stop) in enumerate(self.manifest.row_blocks):
            self.check(hop, block, panel, out[start:stop])

    def each(self) -> Iterator[tuple[int, int, int]]:
        """Hop, row block and panel of every block of the store."""
        for hop in range(self.manifest.hops + 1):
            for panel in range(len(self.manifest.panels)):
                for block in range(len(self.manifest.row_blocks)):
                    yield hop, block, panel

    def _check_once(self, hop: int, block: int, panel: int) -> None:
        place = (hop, block, panel)
        if place not in self._checked:
            self.check(*place)
            self._checked.add(place)

    def _holds(self, hop: int, block: int, panel: int, checksum: int) -> bool:
        """Whether the block is there with this checksum, though no record tells it yet."""
        found = 0
        try:
            for _, stored in self._pieces(hop, block, panel):
                found = crc(stored, found)
        except DamagedBlock:
            return False
        return self.has(hop, block, panel) and found == checksum

    def _pieces(self, hop: int, block: int, panel: int) -> Iterator[tuple[int, np.ndarray]]:
        """A block as it is stored, some rows at a time, each with the number of the first."""
        name, kind = self.name(hop, block, panel), storage(self.manifest, hop)
        rows, columns = self.shape(block, panel)
        step = max(1, PIECE // columns)
        with self._open(name, kind, (rows, columns)) as file:
            for start in range(0, rows, step):
                yield start, file.read(start, min(start + step, rows))

    def _open(self, name: str, kind: str, shape: tuple[int, int]) -> NpyRows:
        try:
            file = NpyRows(self.folder / name)
        except FileNotFoundError as error:
            raise DamagedBlock(self.folder, name, "is missing") from error
        except ValueError as error:
            raise DamagedBlock(self.folder, name, f"is damaged ({error})") from error
        except OSError as error:
            if error.errno not in NO_FILE:
                raise StoreError(
                    f"block {name} of {self.folder} cannot be read: {error.strerror}."
                ) from error
            raise DamagedBlock(self.folder, name, f"is damaged ({error.strerror})") from error
        if file.shape != shape or file.dtype != TYPES[kind]:
            found = " x ".join(str(size) for size in file.shape)
            file.close()
            raise DamagedBlock(self.folder, name, f"is damaged (it holds {found} {file.dtype})")
        return file


@dataclass(frozen=True)
class PanelRecord:
    """The file that closes a panel: what :class:`PanelSums` found of its blocks."""

    crc32: tuple[Checksum, ...]
    max_abs: Size | None = None
    error: Size | None = None
    norm: Size | None = None

    @property
    def measured(self) -> bool:
        """Whether it tells what half precision costs."""
        return None not in (self.max_abs, self.error, self.norm)


class PanelSums:
    """The checksums of a panel's blocks and, for half precision, what storing them costs.

    max_abs = max |H - H'|, error = sum (H - H')^2, norm = sum H^2, with H' what is read back.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.checksums: list[int] = []
        self.max_abs = self.error = self.norm = 0.0

    def add(self, values: np.ndarray, stored: np.ndarray) -> bool:
        """Add the next block; False if a stored number is not finite."""
        self.checksums.append(crc(stored))
        flat, kept = values.reshape(-1), stored.reshape(-1)
        for start in range(0, flat.size, PIECE):
            piece = slice(start, start + PIECE)
            back = decode(kept[piece], self.dtype)
            if not np.isfinite(back).all():
                return False
            if self.dtype != "float32":
                gap = flat[piece] - back  # exact: both are close to each other
                self.max_abs = max(self.max_abs, float(np.abs(gap).max(initial=0)))
                # np.sum adds in a fixed order; a product of vectors may use threads
                self.error += float(np.sum(np.square(gap, dtype=np.float64)))
                self.norm += float(np.sum(np.square(flat[piece], dtype=np.float64)))
        return True

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"crc32": self.checksums}
        if self.dtype != "float32":
            found |= {"max_abs": self.max_abs, "error": self.error, "norm": self.norm}
        return found


def crc(stored: np.ndarray, before: int = 0) -> int:
    """CRC-32 of the bytes of a contiguous array, going on from ``before``."""
    return zlib.crc32(stored.data.cast("B"), before) if stored.size else before
