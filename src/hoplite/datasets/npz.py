"""A graph as one compact ``.npz`` file without pickles, the same bytes for the same graph."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np
import scipy.sparse as sp

from hoplite.datasets.normalize import row_normalized
from hoplite.datasets.npz_member import NpzFile
from hoplite.datasets.packing import narrow, pack_indices, unpack_indices
from hoplite.errors import DatasetError
from hoplite.files import atomic_write
from hoplite.graph import Graph, Split
from hoplite.json_files import parse_json

FORMAT = "hoplite-graph"
VERSION = 1
PARTS = ("train", "val", "test")


def write_npz(path: str | os.PathLike[str], graph: Graph, *, row_normalize: bool = False) -> None:
    """Write ``graph`` to ``path``, atomically.

    With ``row_normalize`` the features are stored as they are and each row is divided by its sum
    when the file is read; raw counts take far less room than their quotients.
    """
    with atomic_write(path) as file:
        _write_members(file, _arrays(graph, row_normalize))


def read_npz(path: str | os.PathLike[str]) -> Graph:
    """Read the graph that :func:`write_npz` wrote."""
    with _opened(path) as file:
        return _graph(_read_meta(file), file)


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
    arrays["labels"] = narrow(np.asarray(graph.labels))
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
        file.read("labels", np.int64, kinds="iu", ndim=1),
        split=Split(*parts, note=meta.split_note),
        class_names=tuple(meta.class_names),
        feature_names=_tuple(meta.feature_names),
        node_ids=_tuple(meta.node_ids),
        name=meta.name,
    )


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
