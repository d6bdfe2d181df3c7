"""A graph as one compact ``.npz`` file without pickles, the same bytes for the same graph."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.normalize import row_normalized
from hoplite.datasets.packing import narrow, pack_indices, unpack_indices
from hoplite.errors import DatasetError, GraphError
from hoplite.files import atomic_write
from hoplite.graph import Graph, Split

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
    path = Path(path)
    with _opened(path) as archive:
        return _graph(_read_meta(path, archive), archive)


def read_meta(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts stored about a graph (counts, names, split sizes), without reading its arrays."""
    path = Path(path)
    with _opened(path) as archive:
        return _read_meta(path, archive)


# What NumPy, zipfile and zlib raise on damaged or hostile bytes, and Graph on contradictions.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    MemoryError,
    RuntimeError,  # encrypted members, unknown compression
    SyntaxError,  # a damaged array header
    UnicodeError,
    GraphError,
)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    """The archive; whatever goes wrong while it is read is reported as damage of the file."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    # The file is opened here because np.load forgets to close one that is no archive.
    with file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            with archive:
                yield archive
        except _DAMAGE as error:
            reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
            raise DatasetError(
                f"{path} is damaged or was not written by Hoplite ({reason}); write it again."
            ) from error


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
        if not isinstance(value, (str, int)):
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


def _read_meta(path: Path, archive: Any) -> dict[str, Any]:
    if "meta" not in archive:
        raise ValueError("it has no description")
    meta = json.loads(archive["meta"].tobytes())
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise ValueError("its description is not a graph's")
    if meta["version"] != VERSION:
        raise DatasetError(
            f"{path} has format version {meta['version']} but this Hoplite reads version "
            f"{VERSION}; upgrade Hoplite or write the file again."
        )
    return meta


def _graph(meta: dict[str, Any], archive: Any) -> Graph:
    n, d = int(meta["nodes"]), int(meta["features"])
    features = _features(archive, n, d)
    if meta["row_normalize"]:
        features = row_normalized(features)
    split = Split(*(archive[part] for part in PARTS), note=meta["split_note"])
    return Graph(
        _adjacency(archive, n),
        features,
        archive["labels"],
        split=split,
        class_names=tuple(meta["class_names"]),
        feature_names=_tuple(meta["feature_names"]),
        node_ids=_tuple(meta["node_ids"]),
        name=meta["name"],
    )


def _tuple(names: list[Any] | None) -> tuple[Any, ...] | None:
    return None if names is None else tuple(names)


def _adjacency(archive: Any, n: int) -> sp.csr_array:
    indptr, indices = unpack_indices(archive["edge_counts"], archive["edge_skips"], limit=n)
    if indptr.size != n + 1:
        raise ValueError("it has another number of nodes than it says")
    values = _spread(archive["edge_weights"], indices.size)
    upper = sp.csr_array((values, indices, indptr), shape=(n, n))
    return sp.csr_array(upper + upper.T)


def _features(archive: Any, n: int, d: int) -> np.ndarray | sp.csr_array:
    if "features" in archive:
        return archive["features"]
    indptr, indices = unpack_indices(archive["feature_counts"], archive["feature_skips"], limit=n)
    if indptr.size != d + 1:
        raise ValueError("it has another number of features than it says")
    values = _spread(archive["feature_values"], indices.size)
    return sp.csr_array(sp.csc_array((values, indices, indptr), shape=(n, d)))


def _spread(values: np.ndarray, size: int) -> np.ndarray:
    """Undo :func:`_once_if_equal`."""
    if values.dtype not in (np.float32, np.float64):
        raise ValueError(f"its numbers have type {values.dtype}")
    values = np.full(size, values) if values.ndim == 0 else values
    if values.shape != (size,):
        raise ValueError("it has another number of values than of entries")
    return values
