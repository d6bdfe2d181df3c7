"""The blocks of a store: a range of rows times a panel of columns of one hop, a .npy file each.

    hops/h{hop}/r{row block:06d}-c{panel:04d}.npy    rows x columns; bfloat16 as the bits in uint16
    hops/h{hop}/c{panel:04d}.json                    written after all blocks of the panel: their
                                                     CRC-32, and for half precision their error

Hop 0 is X and always float32. A panel with its record is finished.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from hoplite.errors import StoreError
from hoplite.files import read_json, write_json
from hoplite.io.array_files import NpyRows, write_npy
from hoplite.store.manifest import Checksum, Manifest, Size

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
HEADER = 128  # bytes of a .npy header of two dimensions
FEW_ROWS = 16  # from one row in so many on, reading the whole block is faster
PIECE = 1 << 18  # numbers at a time, so that copies stay small


class DamagedBlock(StoreError):
    """A file of the hops is missing or does not contain what was written to it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path} {self.problem}; run the same `hoplite propagate` again to repair it."


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


@dataclass
class PanelRecord:
    """The checksums of a panel's blocks and, for half precision, what storing them costs.

    max_abs = max |H - H'|, error = sum (H - H')^2, norm = sum H^2, with H' what is read back.
    """

    crc32: list[Checksum] = field(default_factory=list)
    max_abs: Size = 0.0
    error: Size = 0.0
    norm: Size = 0.0

    def add(self, values: np.ndarray, stored: np.ndarray, dtype: str) -> bool:
        """Add the next block; False if a stored number is not finite."""
        self.crc32.append(zlib.crc32(stored.data.cast("B")))
        flat, kept = values.reshape(-1), stored.reshape(-1)
        for start in range(0, flat.size, PIECE):
            piece = slice(start, start + PIECE)
            back = decode(kept[piece], dtype)
            if not np.isfinite(back).all():
                return False
            if dtype != "float32":
                gap = flat[piece] - back  # exact: both are close to each other
                self.max_abs = max(self.max_abs, float(np.abs(gap).max(initial=0)))
                # np.sum adds in a fixed order; a product of vectors may use threads
                self.error += float(np.sum(np.square(gap, dtype=np.float64)))
                self.norm += float(np.sum(np.square(flat[piece], dtype=np.float64)))
        return True


class Blocks:
    """The blocks in the data folder of a store that ``manifest`` describes."""

    def __init__(self, data: Path, manifest: Manifest) -> None:
        self.data, self.manifest = data, manifest
        self._checked: set[tuple[int, int, int]] = set()

    def path(self, hop: int, block: int, panel: int) -> Path:
        return self.data / f"hops/h{hop}/r{block:06d}-c{panel:04d}.npy"

    def record_path(self, hop: int, panel: int) -> Path:
        return self.data / f"hops/h{hop}/c{panel:04d}.json"

    def shape(self, block: int, panel: int) -> tuple[int, int]:
        start, stop = self.manifest.row_blocks[block]
        first, last = self.manifest.panels[panel]
        return stop - start, last - first

    def dtype(self, hop: int) -> str:
        """The name of the number type in which this hop is kept."""
        return "float32" if hop == 0 else self.manifest.dtype

    def file_bytes(self, hop: int, block: int, panel: int) -> int:
        """The size of the file of a block."""
        rows, columns = self.shape(block, panel)
        return HEADER + rows * columns * np.dtype(TYPES[self.dtype(hop)]).itemsize

    def has(self, hop: int, block: int, panel: int) -> bool:
        """Whether the block exists with the right size."""
        try:
            size = self.path(hop, block, panel).stat().st_size
        except OSError:
            return False
        return size == self.file_bytes(hop, block, panel)

    def finished(self, hop: int, panel: int) -> bool:
        """Whether the record of the panel exists, and every block of it."""
        try:
            self.record(hop, panel)
        except DamagedBlock:
            return False
        return all(self.has(hop, i, panel) for i in range(len(self.manifest.row_blocks)))

    def record(self, hop: int, panel: int) -> PanelRecord:
        """The record of a panel; DamagedBlock if it is missing or damaged."""
        path = self.record_path(hop, panel)
        try:
            found = read_json(path, PanelRecord)
        except (OSError, ValueError) as error:
            raise DamagedBlock(path, "is missing or damaged") from error
        if len(found.crc32) != len(self.manifest.row_blocks):
            raise DamagedBlock(path, "is damaged")
        return found

    def write_panel(self, hop: int, panel: int, values: np.ndarray) -> None:
        """Write the blocks of ``values``, n x w, and then the record."""
        record = PanelRecord()
        for block, (start, stop) in enumerate(self.manifest.row_blocks):
            self.write(hop, block, panel, values[start:stop], record)
        self.close_panel(hop, panel, record)

    def write(
        self, hop: int, block: int, panel: int, values: np.ndarray, record: PanelRecord
    ) -> None:
        """Write a block and add it to ``record``; StoreError if a number is out of range."""
        dtype, path = self.dtype(hop), self.path(hop, block, panel)
        stored = encode(values, dtype)
        if not record.add(values, stored, dtype):
            first, last = self.manifest.panels[panel]
            advice = "use fewer hops, basis chebyshev, or smaller features"
            if dtype == "float16" and np.isfinite(values).all():
                advice = "use --dtype bfloat16 or float32, or scale the features"
            raise StoreError(
                f"hop {hop} has numbers beyond the range of {dtype} in columns {first} to "
                f"{last - 1} of block {block}; {advice}."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_npy(path, stored)

    def close_panel(self, hop: int, panel: int, record: PanelRecord) -> None:
        """Write the record, with which the panel is finished."""
        path = self.record_path(hop, panel)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record, indent=None)

    def read(self, hop: int, block: int, panel: int, rows: slice | np.ndarray) -> np.ndarray:
        """Some rows of a block, counted within it, in float32.

        The first time that a block is read, all of it is checked. A few scattered rows are read
        through a map of the file, which brings in only their pages.
        """
        if (hop, block, panel) not in self._checked:
            self.check(hop, block, panel)
            self._checked.add((hop, block, panel))
        with self._open(hop, block, panel) as file:
            if isinstance(rows, slice):
                found = file.read(rows.start, rows.stop)
            elif FEW_ROWS * len(rows) > len(file):
                found = file.read(0, len(file))[rows]
            else:
                found = file.pick(rows)
        return decode(found, self.dtype(hop))

    def check(self, hop: int, block: int, panel: int, out: np.ndarray | None = None) -> None:
        """DamagedBlock unless a block is what was written; its numbers go to ``out``, if given."""
        record, checksum, path = self.record(hop, panel), 0, self.path(hop, block, panel)
        rows, columns = self.shape(block, panel)
        step = max(1, PIECE // columns)
        with self._open(hop, block, panel) as file:
            for start in range(0, rows, step):
                stored = file.read(start, min(start + step, rows))
                checksum = zlib.crc32(stored.data.cast("B"), checksum)
                values = decode(stored, self.dtype(hop))
                if not np.isfinite(values).all():
                    raise DamagedBlock(path, "contains NaN or infinity")
                if out is not None:
                    out[start : start + len(values)] = values
        if checksum != record.crc32[block]:
            raise DamagedBlock(path, "does not contain what was written to it")

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

    def _open(self, hop: int, block: int, panel: int) -> NpyRows:
        path, dtype = self.path(hop, block, panel), np.dtype(TYPES[self.dtype(hop)])
        try:
            file = NpyRows(path)
        except FileNotFoundError as error:
            raise DamagedBlock(path, "is missing") from error
        except ValueError as error:
            raise DamagedBlock(path, f"is damaged ({error})") from error
        except OSError as error:
            if path.is_file():  # it may be whole
                raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
            raise DamagedBlock(path, f"is damaged ({error.strerror})") from error
        if file.shape != self.shape(block, panel) or file.dtype != dtype:
            file.close()
            raise DamagedBlock(path, f"is damaged ({file.dtype} of shape {file.shape})")
        return file
