"""The files of a hop store: what it contains, of which graph, and how it is cut into blocks.

    STORE/manifest.json     replaced in one step: it decides which version of the data is valid
    STORE/v0/...            the data; an update builds the next version next to it
    STORE/graph/...         tables that were imported
    STORE/.lock             whoever writes to the store holds it

A kill at any moment leaves a manifest and the data that it names. The next writer removes all other
versions. The data are

    operator/{indptr,indices,values}.npy    S in the form that the basis needs; its numbers are
                                            those of :mod:`hoplite.operators`, bit for bit
    operator/weights.npy                    the adjacency's, unless all of them are 1
    labels.npy  split.npz
    ids.npy  id_ends.npy                    see :mod:`hoplite.io.node_files`
    files.json                              written last: the CRC-32 of each of these files
    hops/h{hop}/r{row block:06d}-c{panel:04d}.npy    a block: a range of rows times a panel of
                                            columns of one hop; bfloat16 as the bits in uint16
    hops/h{hop}/c{panel:04d}.json           written after all blocks of the panel: their CRC-32,
                                            and for half precision their error

A and S have the same pattern except for the diagonal, which is full or empty in S: A is read from
both. Hop 0 is X and always float32. A panel with its record is finished.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

import ml_dtypes
import numpy as np
import scipy.sparse as sp
from msgspec import Meta

from hoplite.bases import find_basis
from hoplite.config import MAX_HOPS
from hoplite.csr import PIECE, CsrRows, csr_of, index_type, row_ranges
from hoplite.errors import StoreError, by_interface, check_choice, option_name
from hoplite.files import read_json, write_json
from hoplite.io import array_files, node_files
from hoplite.io.node_files import Checksum, Count, NodeFacts
from hoplite.operators import SYMMETRIC, find_operator

FILE, LOCK, GRAPH = "manifest.json", ".lock", "graph"
MAX_BLOCKS = 4_000_000
Size = Annotated[float, Meta(ge=0)]
OPERATOR, FILES = "operator", "files.json"
WEIGHTS = f"{OPERATOR}/weights.npy"
S_FILES = tuple(f"{OPERATOR}/{part}.npy" for part in array_files.CSR_ARRAYS)

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}  # in files
HEADER = 128  # bytes of a .npy header of two dimensions
FEW_ROWS = 16  # if at least one row in 16 is read, reading the whole block is faster
NUMBERS = 1 << 18  # numbers at a time, so that copies stay small


@dataclass(frozen=True, kw_only=True)
class Manifest(NodeFacts):
    """The description of a store; two runs of the same work write the same one.

    ``graph`` and ``features`` are SHA-256 of the adjacency and of X, ``panels`` the column ranges,
    ``loop_weight`` is that of the self-loops in S, and ``added`` has the SHA-256 of the tables
    whose nodes and edges came later.
    """

    graph: str
    features: str
    entries: Count  # entries of the adjacency
    longest_row: Count
    columns: Count
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    operator: str
    basis: str
    dtype: str
    rows_per_block: Annotated[int, Meta(ge=1, le=2**48)]
    panels: tuple[tuple[Count, Count], ...]
    loop_weight: Annotated[float, Meta(gt=0)] = 1.0
    added: tuple[str, ...] = ()
    version: Count = 0
    format: Literal["hoplite hop store"] = "hoplite hop store"

    def __post_init__(self) -> None:
        """ValueError, which reading takes for damage, if the values contradict each other."""
        check_choice("operator", self.operator, SYMMETRIC)
        check_choice("dtype", self.dtype, TYPES)
        basis = find_basis(self.basis)
        basis.check_hops(self.hops)
        object.__setattr__(self, "basis", str(basis))
        ends = [0, *(stop for _, stop in self.panels)]
        rising = all(first < last for first, last in self.panels)
        if [*itertools.pairwise(ends)] != [*self.panels] or ends[-1] != self.columns or not rising:
            raise ValueError(f"the panels do not cover {self.columns:,} columns")
        if self.feature_names is not None and len(self.feature_names) != self.columns:
            raise ValueError(f"{len(self.feature_names):,} names for {self.columns:,} columns")
        blocks = -(-self.nodes // self.rows_per_block) * (self.hops + 1) * len(self.panels)
        if blocks > MAX_BLOCKS:
            raise ValueError(f"{blocks:,} blocks are more than the maximum of {MAX_BLOCKS:,}")

    @cached_property
    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges of the blocks."""
        step = self.rows_per_block
        return [(row, min(row + step, self.nodes)) for row in range(0, self.nodes, step)]

    @property
    def data(self) -> str:
        """The name of the folder with the data."""
        return f"v{self.version}"

    def write(self, folder: Path) -> None:
        """Make this the manifest of the store in ``folder``, in one step."""
        write_json(folder / FILE, self)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in ``folder``; StoreError if there is none, or it is damaged."""
    path = folder / FILE
    try:
        return read_json(path, Manifest)
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder} is not a hop store; build one with "
            f"{by_interface('hoplite.propagate(...)', '`hoplite propagate`')}."
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged or not a manifest ({error}); remove {folder} and build the store "
            "again."
        ) from error


@dataclass(frozen=True)
class FileRecord:
    """files.json: the checksum of every file, by its name in the data folder.

    ``edges`` are the adjacency's entries, None where S has lost some that became 0.
    """

    crc32: dict[str, Checksum]
    edges: Count | None

    @property
    def operator_files(self) -> list[str]:
        """The files of S and, if not all of them are 1, of the edge weights."""
        return [*S_FILES, *([WEIGHTS] if WEIGHTS in self.crc32 else [])]


def read_record(data: Path) -> FileRecord:
    """files.json; ValueError or OSError if it is missing or damaged."""
    return read_json(data / FILES, FileRecord)


def write_record(data: Path, edges: int | None) -> None:
    """Write files.json, with the checksums of all files that exist."""
    crc32 = array_files.all_crc32(data, *S_FILES, WEIGHTS, *node_files.FILES)
    write_json(data / FILES, FileRecord(crc32, edges))


def write_operator(
    data: Path,
    adjacency: CsrRows,
    manifest: Manifest,
    max_entries: int,
    note: Callable[[float], None],
) -> int | None:
    """Write S of ``adjacency``, and its weights; the number of edges, see :class:`FileRecord`.

    ``note`` is called with the finished share. See :meth:`hoplite.operators.Operator.rows` for the
    memory that it takes.
    """
    operator, n = find_operator(manifest.operator), adjacency.rows
    loop, entries, diagonal = operator.loop * manifest.loop_weight, 0, 0
    (data / OPERATOR).mkdir(parents=True, exist_ok=True)
    with array_files.growing_csr(data / OPERATOR, index_type(n), np.float32) as append:
        for start, plain in operator.rows(adjacency, np.float32, loop, max_entries):
            rows = operator.in_basis(plain, manifest.basis, start)
            append(rows)
            entries += rows.nnz
            nodes = np.repeat(np.arange(start, start + rows.shape[0]), np.diff(rows.indptr))
            diagonal += int(np.count_nonzero(rows.indices == nodes))
            note((start + rows.shape[0]) / n)
    ranges = partial(row_ranges, adjacency, PIECE)
    if all((adjacency.read(*ends).data == 1).all() for ends in ranges()):
        (data / WEIGHTS).unlink(missing_ok=True)
    else:
        with array_files.growing_npy(data / WEIGHTS, adjacency.read(0, 0).dtype) as append:
            for ends in ranges():
                append(adjacency.read(*ends).data)
    same = diagonal in (0, n) and entries - diagonal == adjacency.entries
    return adjacency.entries if same else None


def stored_operator(data: Path, nodes: int) -> array_files.CsrFiles:
    """S, a range of rows at a time; StoreError if its files are missing or damaged."""
    path = data / OPERATOR
    try:
        rows = array_files.CsrFiles(path, partial(damaged, path))
        if rows.rows != nodes:
            raise ValueError(f"it has {rows.rows:,} rows, not {nodes:,}")
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    return rows


class StoredAdjacency:
    """The adjacency: the places of S without the diagonal, with the edge weights."""

    def __init__(
        self, operator: array_files.CsrFiles, edges: int, weights: array_files.NpyRows | None
    ) -> None:
        self._operator, self._weights = operator, weights
        self.rows, self.entries, self.weighted = operator.rows, edges, weights is not None
        self._diagonal = int(operator.entries > edges)  # entries a row

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self._operator.indptr(start, stop) - self._diagonal * np.arange(start, stop + 1)

    def read(self, start: int, stop: int) -> sp.csr_array:
        rows, indptr = self._operator.read(start, stop), self.indptr(start, stop)
        nodes = np.repeat(np.arange(start, stop), np.diff(rows.indptr))
        indices = rows.indices[rows.indices != nodes]
        values = np.ones(len(indices), np.float32)
        try:
            if self._weights is not None:
                values = self._weights.read(int(indptr[0]), int(indptr[-1]))
            if len(indices) != indptr[-1] - indptr[0]:
                raise ValueError("the diagonal is incomplete")
        except (OSError, ValueError) as error:
            raise self._operator.damaged(error) from error
        return csr_of(values, indices, indptr - indptr[0], self.rows)


def repeat_propagate() -> str:
    """What completes and repairs a store, for messages."""
    return f"run the same {by_interface('hoplite.propagate(...)', '`hoplite propagate`')} again"


def damaged(path: Path, error: Exception) -> StoreError:
    """The error for a file of the graph that cannot be read, or was not written so."""
    why = getattr(error, "strerror", None) or error
    return StoreError(f"{path} is missing or damaged ({why}); {repeat_propagate()} to repair it.")


class DamagedBlock(StoreError):
    """A file of the hops is missing or does not contain what was written to it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self._sentence = f"{path} {problem}; {repeat_propagate()} to repair it."

    def __str__(self) -> str:
        return self._sentence


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
        for start in range(0, flat.size, NUMBERS):
            piece = slice(start, start + NUMBERS)
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
            record = read_json(path, PanelRecord)
        except (OSError, ValueError) as error:
            raise DamagedBlock(path, "is missing or damaged") from error
        if len(record.crc32) != len(self.manifest.row_blocks):
            raise DamagedBlock(path, "is damaged")
        return record

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
                advice = f"use {option_name('dtype', 'bfloat16')} or float32, or scale the features"
            raise StoreError(
                f"hop {hop} exceeds the range of {dtype} in columns {first} to {last - 1} of "
                f"block {block}; {advice}."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        array_files.write_npy(path, stored)

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
        file = self._file(hop, block, panel)
        if isinstance(rows, slice):
            stored = file.read(rows.start, rows.stop)
        elif FEW_ROWS * len(rows) > len(file):
            stored = file.read(0, len(file))[rows]
        else:
            stored = file.pick(rows)
        return decode(stored, self.dtype(hop))

    def check(self, hop: int, block: int, panel: int, out: np.ndarray | None = None) -> None:
        """DamagedBlock unless a block is what was written; its numbers go to ``out``, if given."""
        record, checksum, path = self.record(hop, panel), 0, self.path(hop, block, panel)
        rows, columns = self.shape(block, panel)
        step = max(1, NUMBERS // columns)
        file = self._file(hop, block, panel)
        for start in range(0, rows, step):
            stored = file.read(start, min(start + step, rows))
            checksum = zlib.crc32(stored.data.cast("B"), checksum)
            values = decode(stored, self.dtype(hop))
            if not np.isfinite(values).all():
                raise DamagedBlock(path, "contains NaN or infinity")
            if out is not None:
                out[start : start + len(values)] = values
        if checksum != record.crc32[block]:
            raise DamagedBlock(path, "does not contain the data that was written to it")

    def load_panel(self, hop: int, panel: int, out: np.ndarray) -> None:
        """Fill ``out``, n x w, with a hop, and check every block of it."""
        for block, (start, stop) in enumerate(self.manifest.row_blocks):
            self.check(hop, block, panel, out[start:stop])

    def positions(self) -> Iterator[tuple[int, int, int]]:
        """Hop, row block and panel of every block of the store."""
        counts = self.manifest.hops + 1, len(self.manifest.panels), len(self.manifest.row_blocks)
        for hop, panel, block in itertools.product(*map(range, counts)):
            yield hop, block, panel

    def _file(self, hop: int, block: int, panel: int) -> array_files.NpyRows:
        path, dtype = self.path(hop, block, panel), np.dtype(TYPES[self.dtype(hop)])
        try:
            file = array_files.NpyRows(path)
        except FileNotFoundError as error:
            raise DamagedBlock(path, "is missing") from error
        except ValueError as error:
            raise DamagedBlock(path, f"is damaged ({error})") from error
        except OSError as error:
            if path.is_file():  # it may be whole
                raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
            raise DamagedBlock(path, f"is damaged ({error.strerror})") from error
        if file.shape != self.shape(block, panel) or file.dtype != dtype:
            raise DamagedBlock(path, f"is damaged ({file.dtype} of shape {file.shape})")
        return file
