"""A graph as one compact ``.npz`` file without pickles, the same bytes for the same graph."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np
import psutil
import scipy.sparse as sp

from hoplite.datasets.formats import Format
from hoplite.datasets.splits import PARTS
from hoplite.errors import DatasetError
from hoplite.files import atomic_write, open_regular, parse_json
from hoplite.graph import Graph, Split
from hoplite.labels import CLASSES, NUMBERS, SETS, kind_of
from hoplite.preparation import Preparation
from hoplite.sparse_checks import check_csr

FORMAT = "hoplite-graph"
VERSION = 1
# The array of the labels; other names than that of classes are unknown to earlier versions.
LABELS = {CLASSES.task: "labels", NUMBERS.task: "label_values", SETS.task: "label_sets"}
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


def write_npz(path: str | os.PathLike[str], graph: Graph, *, row_normalize: bool = False) -> None:
    """Write ``graph`` to ``path``, atomically.

    With ``row_normalize`` the features are stored as they are and each row is divided by its sum
    when the file is read; raw counts take far less room than their quotients.
    """
    graph.refuse_relations("a .npz file")
    with atomic_write(path) as file:
        _write_members(file, _arrays(graph, row_normalize))


def read_npz(path: str | os.PathLike[str]) -> Graph:
    """Read the graph that :func:`write_npz` wrote."""
    with _opened(path) as file:
        return _graph(_read_meta(file), file)


NPZ = Format(
    ".npz", lambda path: path.is_file() and path.suffix == ".npz", lambda path, *_: read_npz(path)
)


def read_meta(path: str | os.PathLike[str]) -> Meta:
    """The facts stored about a graph (counts, names, split sizes), without reading its arrays."""
    with _opened(path) as file:
        return _read_meta(file)


Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


@dataclass(frozen=True)
class _Head:
    """What every version of the format has."""

    format: str
    version: int


@dataclass(frozen=True)
class Meta(_Head):
    """What a file says about its graph."""

    name: str
    nodes: Count
    edges: Count
    features: Count
    classes: Count
    split: dict[Literal["train", "val", "test"], Count]
    split_note: str
    row_normalize: bool
    class_names: list[str]
    feature_names: list[str | int] | None
    node_ids: list[str | int] | None
    preparation: Preparation | None = None


def _opened(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[NpzFile]:
    """The file; what contradicts itself while it is read is reported as damage."""
    damage = "is damaged or was not written by Hoplite"
    return NpzFile.opened(Path(path), "write it again", damage)


def _arrays(graph: Graph, row_normalize: bool) -> dict[str, np.ndarray]:
    upper = sp.csr_array(sp.triu(graph.adjacency, k=1, format="csr"))
    upper.sort_indices()
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": int(upper.nnz),
        "features": graph.num_features,
        "classes": graph.num_classes,
        "split": graph.split.sizes(),
        "split_note": graph.split.note,
        "row_normalize": bool(row_normalize),
        "class_names": [str(name) for name in graph.class_names or ()],
        "feature_names": _plain("feature_names", graph.feature_names),
        "node_ids": _plain("node_ids", graph.node_ids),
    }
    if graph.preparation is not None and not row_normalize:  # which makes other features
        meta["preparation"] = dataclasses.asdict(graph.preparation)
    if len(set(meta["class_names"])) < len(meta["class_names"]):
        raise DatasetError("class_names holds a name twice; give every class its own.")
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    arrays = {"meta": np.frombuffer(text.encode("ascii"), np.uint8)}
    arrays["edge_counts"], arrays["edge_skips"] = pack_indices(upper.indptr, upper.indices)
    arrays["edge_weights"] = _once_if_equal(upper.data)
    if isinstance(graph.features, np.ndarray):
        arrays["features"] = graph.features
    else:
        # By columns: values of one feature resemble each other, so they compress much better
        # side by side (Pubmed's go from 3.4 MB to 2.0 MB).
        columns = sp.csc_array(graph.features)
        columns.sort_indices()
        counts, skips = pack_indices(columns.indptr, columns.indices)
        arrays["feature_counts"], arrays["feature_skips"] = counts, skips
        arrays["feature_values"] = _once_if_equal(columns.data)
    kind = kind_of(graph.labels)
    arrays[LABELS[kind.task]] = graph.labels if kind is NUMBERS else narrow(graph.labels)
    for part in PARTS:
        arrays[part] = narrow(getattr(graph.split, part))
    return arrays


def _plain(argument: str, names: Any) -> list[Any] | None:
    """Names as JSON values, integers as integers."""
    if names is None:
        return None
    values = [name.item() if isinstance(name, np.generic) else name for name in names]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise DatasetError(
                f"{argument} holds {value!r}, which is neither text nor an integer; "
                "only those can be stored."
            )
    return values


def _once_if_equal(values: np.ndarray) -> np.ndarray:
    """A single number if all values have the same bits, else the values."""
    bits = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return values[0] if bits.size and (bits == bits[0]).all() else values


def _write_members(file: BinaryIO, arrays: dict[str, np.ndarray]) -> None:
    """What ``np.savez_compressed`` does, without the clock and the system in the bytes."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3
            member.external_attr = 0o644 << 16
            # level 9: these files are written once and shipped
            member._compresslevel = 9  # pyright: ignore[reportAttributeAccessIssue]
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)


def _read_meta(file: NpzFile) -> Meta:
    if "meta" not in file:
        raise ValueError("it has no description")
    text = file.read("meta", np.uint8, kinds="u", ndim=1).tobytes()
    head = parse_json(text, _Head)
    if head.format != FORMAT:
        raise ValueError("its description is not a graph's")
    if head.version != VERSION:
        raise DatasetError(
            f"{file.path} has format version {head.version} but this Hoplite reads version "
            f"{VERSION}; upgrade Hoplite or write the file again."
        )
    return parse_json(text, Meta)


def _graph(meta: Meta, file: NpzFile) -> Graph:
    if len(set(meta.class_names)) < len(meta.class_names):
        raise ValueError("it holds a class name twice")
    features = _features(file, meta.nodes, meta.features)
    if meta.row_normalize:
        features = row_normalized(features)
    parts = (file.read(part, np.int64, kinds="iu", ndim=1) for part in PARTS)
    return Graph(
        _adjacency(file, meta.nodes),
        features,
        _labels(file),
        split=Split(*parts, note=meta.split_note),
        class_names=tuple(meta.class_names),
        feature_names=_tuple(meta.feature_names),
        node_ids=_tuple(meta.node_ids),
        name=meta.name,
        preparation=meta.preparation,
    )


def _labels(file: NpzFile) -> np.ndarray:
    if LABELS[NUMBERS.task] in file:
        return file.read(LABELS[NUMBERS.task], np.float64, kinds="f", ndim=1)
    if LABELS[SETS.task] in file:
        return file.read(LABELS[SETS.task], np.int64, kinds="iu", ndim=2)
    return file.read(LABELS[CLASSES.task], np.int64, kinds="iu", ndim=1)


def _tuple(names: list[Any] | None) -> tuple[Any, ...] | None:
    return None if names is None else tuple(names)


def _adjacency(file: NpzFile, n: int) -> sp.csr_array:
    indptr, indices = _indices(file, "edge", n)
    if indptr.size != n + 1:
        raise ValueError("it has another number of nodes than it says")
    values = _values(file, "edge_weights", indices.size)
    upper = sp.csr_array((values, indices, indptr), shape=(n, n))
    return sp.csr_array(upper + upper.T)


def _features(file: NpzFile, n: int, d: int) -> np.ndarray | sp.csr_array:
    if "features" in file:
        dense = file.read("features", None, kinds="f", ndim=2)
        if dense.shape != (n, d):
            raise ValueError(f"its features have shape {dense.shape}")
        return dense
    indptr, indices = _indices(file, "feature", n)
    if indptr.size != d + 1:
        raise ValueError("it has another number of features than it says")
    values = _values(file, "feature_values", indices.size)
    return sp.csr_array(sp.csc_array((values, indices, indptr), shape=(n, d)))


def _indices(file: NpzFile, what: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
    counts, skips = (
        file.read(f"{what}_{part}", None, kinds="iu", ndim=1) for part in ("counts", "skips")
    )
    return unpack_indices(counts, skips, limit)


def _values(file: NpzFile, name: str, size: int) -> np.ndarray:
    """Undo :func:`_once_if_equal`."""
    values = file.read(name, None, kinds="f", ndim=None)
    if values.dtype not in (np.float32, np.float64):
        raise ValueError(f"its numbers have type {values.dtype}")
    values = np.full(size, values) if values.ndim == 0 else values
    if values.shape != (size,):
        raise ValueError("it has another number of values than of entries")
    return values


def row_normalized(features: np.ndarray | sp.csr_array) -> np.ndarray | sp.csr_array:
    """Divide each row by its sum, so that it sums to 1; a row that sums to 0 stays as it is.

    Sums are taken in float64 and in column order, so equal input gives equal bits, whatever file
    it came from. The type of the values is kept.

    >>> row_normalized(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    if isinstance(features, np.ndarray):
        sums = features.sum(axis=1, dtype=np.float64, keepdims=True)
        return (features / np.where(sums == 0, 1, sums)).astype(features.dtype)
    matrix = sp.csr_array(features, copy=True)
    matrix.sort_indices()
    n = matrix.indptr.size - 1
    rows = np.repeat(np.arange(n), np.diff(matrix.indptr))
    sums = np.bincount(rows, weights=matrix.data, minlength=n)
    values = matrix.data / np.where(sums == 0, 1, sums)[rows]
    parts = (values.astype(matrix.dtype), matrix.indices, matrix.indptr)
    return sp.csr_array(parts, shape=matrix.shape)


# Sparse matrices as small integers that compress well: a compressed row (or column) holds
# increasing indices. Stored are the number of entries per row and, entry by entry, how many
# positions were skipped since the entry before it: mostly small numbers, so one or two bytes each.


def narrow(values: np.ndarray) -> np.ndarray:
    """The same integers in the smallest type that holds them all; unsigned if none is negative.

    >>> narrow(np.array([0, 300])).dtype, narrow(np.array([-1, 6])).dtype
    (dtype('uint16'), dtype('int8'))
    """
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    kind = "u" if low >= 0 else "i"
    for size in (1, 2, 4):
        dtype = np.dtype(f"{kind}{size}")
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values.astype(f"{kind}8")


def pack_indices(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts per row and skips per entry, of a compressed matrix with sorted, unique indices.

    >>> pack_indices(np.array([0, 2, 3]), np.array([1, 4, 0]))
    (array([2, 1], dtype=uint8), array([1, 2, 0], dtype=uint8))
    """
    indices = indices.astype(np.int64)
    counts = np.diff(indptr)
    before = np.concatenate([[-1], indices[:-1]])
    before[indptr[:-1][counts > 0]] = -1
    return narrow(counts), narrow(indices - before - 1)


def unpack_indices(
    counts: np.ndarray, skips: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Undo :func:`pack_indices`; ``ValueError`` unless every index is below ``limit``.

    >>> unpack_indices(np.array([2, 1]), np.array([1, 2, 0]), limit=5)
    (array([0, 2, 3]), array([1, 4, 0]))
    """
    _check_naturals(counts)
    _check_naturals(skips)
    # Bounds before sums, so that the sums cannot overflow.
    if counts.max(initial=0) > skips.size or skips.max(initial=0) >= max(limit, 1):
        raise ValueError("an index is out of range")
    counts, steps = counts.astype(np.int64), skips.astype(np.int64) + 1
    indptr = np.concatenate([[0], np.cumsum(counts)])
    if indptr[-1] != skips.size:
        raise ValueError("the counts do not add up to the number of entries")
    running = np.concatenate([[0], np.cumsum(steps)])
    indices = running[1:] - 1 - np.repeat(running[indptr[:-1]], counts)
    check_csr(indptr, indices, indices, (counts.size, limit))
    return indptr, indices


def _check_naturals(values: np.ndarray) -> None:
    if values.ndim != 1 or values.dtype.kind not in "iu" or values.min(initial=0) < 0:
        raise ValueError("indices are not a list of natural numbers")


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

    def axes(self, name: str) -> int:
        """How many axes member ``name`` has."""
        with self._member(name) as (_, _, shape, _, _):
            return len(shape)

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
