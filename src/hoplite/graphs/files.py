"""Sets of graphs on disk, larger than memory: a folder of arrays, read a range at a time.

``graphs.json`` has the names, and next to it are ``sizes.npy`` (G,), ``labels.npy``,
``degrees.npy`` (n,), ``indices.npy`` and ``weights.npy`` (arcs,), and ``features.npy`` (n, d).
A range is checked when it is read, as every :class:`hoplite.Graph` is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hoplite.errors import DatasetError
from hoplite.files import MAX_JSON, atomic_write_text, parse_json, read_regular, to_json
from hoplite.graphs.graph_set import GraphSet
from hoplite.io.array_files import growing_npy

FILE = "graphs.json"


@dataclass(frozen=True)
class GraphFiles:
    """graphs.json."""

    name: str
    class_names: list[str] | None = None
    feature_names: list[str] | None = None
    format: int = 1


@dataclass(frozen=True)
class ArcFiles:
    """The arcs of a block-diagonal matrix, of which ranges of rows are read: as a CSR matrix."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)


def write_graph_files(folder: str | Path, parts: Iterable[GraphSet]) -> None:
    """Write graphs that come in several sets, such as one for each file, into one folder.

    Parameters
    ----------
    folder : path
        It is made if it does not exist; ``graphs.json`` is written last.
    parts : iterable of GraphSet
        With the same features and class names; only one is in memory at a time.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    first: GraphSet | None = None
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        start = 0
        for part in parts:
            labels = part.table.labels
            if first is None:
                first = part
                rows: dict[str, Any] = {
                    "labels": (labels.dtype, labels.shape[1:]),
                    "features": (np.float32, (part.num_features,)),
                    "sizes": (np.int64, ()),
                    "degrees": (np.int32, ()),
                    "indices": (np.int64, ()),
                    "weights": (np.float32, ()),
                }
                for name, (dtype, row) in rows.items():
                    writer = growing_npy(folder / f"{name}.npy", dtype, row)
                    files[name] = stack.enter_context(writer)
            for block in (one for _, one in part.blocks(part.num_features)):
                features: Any = block.features
                dense = features.toarray() if hasattr(features, "toarray") else features
                files["features"](dense)
                files["degrees"](np.diff(block.adjacency.indptr))
                files["indices"](block.adjacency.indices.astype(np.int64) + start)
                files["weights"](block.adjacency.data)
                start += block.num_nodes
            files["sizes"](part.sizes)
            files["labels"](labels)
    if first is None:
        raise DatasetError("there is no set of graphs to write; give at least one.")
    names = first.feature_names
    content = GraphFiles(
        first.name, [*(first.class_names or ())] or None, None if names is None else [*names]
    )
    atomic_write_text(folder / FILE, to_json(content))


def open_graph_files(folder: str | Path) -> GraphSet:
    """The set in a folder of :func:`write_graph_files`; features and edges stay on disk."""
    folder = Path(folder)
    try:
        content = parse_json(read_regular(folder / FILE, MAX_JSON), GraphFiles)
        arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("sizes", "labels", "degrees", "indices", "weights", "features")
        }
        indptr = np.concatenate([[0], np.cumsum(arrays["degrees"], dtype=np.int64)])
        if not indptr[-1] == len(arrays["indices"]) == len(arrays["weights"]):
            raise ValueError("the degrees do not fit the edges")
        if arrays["indices"].dtype.kind != "i" or arrays["features"].dtype.kind != "f":
            raise ValueError("an array has another type")
        return GraphSet(
            ArcFiles(indptr, arrays["indices"], arrays["weights"]),
            arrays["features"],
            np.concatenate([[0], np.cumsum(arrays["sizes"], dtype=np.int64)]),
            np.array(arrays["labels"]),
            class_names=content.class_names,
            feature_names=content.feature_names,
            name=content.name,
        )
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, msgspec.ValidationError) as error:
        raise DatasetError(f"{folder} is damaged ({error}); write it again.") from None
