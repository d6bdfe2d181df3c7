"""Sets of graphs on disk, larger than memory: a folder of arrays, read a range at a time.

``graphs.json`` has the names, and next to it are ``sizes.npy``, ``labels.npy`` and ``split.npy``
(G,; 0 training, 1 validation, 2 test, 3 none of them),
``indptr.npy`` (n + 1,), ``indices.npy`` and ``weights.npy`` (arcs,), and ``features.npy`` (n, d).
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

from hoplite.errors import DatasetError, GraphError
from hoplite.files import MAX_JSON, atomic_write_text, parse_json, read_regular, to_json
from hoplite.graph import PARTS, Split
from hoplite.graphs.graph_set import GraphSet
from hoplite.io.array_files import growing_npy
from hoplite.preparation import Preparation

FILE = "graphs.json"
ARRAYS = {  # types; None for those of the labels
    "sizes": np.int64,
    "labels": None,
    "split": np.uint8,
    "indptr": np.int64,
    "indices": np.int64,
    "weights": np.float32,
    "features": np.float32,
}
DIMENSIONS = {"labels": (1, 2), "features": (2,)}  # of the others 1


@dataclass(frozen=True)
class GraphFiles:
    """graphs.json."""

    name: str
    class_names: list[str] | None = None
    feature_names: list[str] | None = None
    format: int = 1


class RowFile:
    """A ``.npy`` file that is read in ranges of rows; nothing of it stays in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.shape, self.dtype = self._opened().shape, self._opened().dtype

    def _opened(self) -> np.ndarray:
        return np.lib.format.open_memmap(self._path, mode="r")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.array(self._opened()[rows])


@dataclass(frozen=True)
class ArcFiles:
    """The arcs of a block-diagonal matrix, read in ranges of rows like a CSR matrix."""

    indptr: RowFile
    indices: RowFile
    data: RowFile

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        return len(self.indices)


def refuse_loss(graphs: GraphSet, *names: str) -> None:
    """GraphError if the set has one of these fields, which a file does not keep."""
    for name in names:
        value = getattr(graphs, name)
        if value.fitted if isinstance(value, Preparation) else value is not None:
            raise GraphError(
                f"{graphs.name} has {name}, which cannot be stored in the file; to write it "
                f"without, pass dataclasses.replace(graphs, {name}=None)."
            )


def write_graph_files(folder: str | Path, parts: Iterable[GraphSet]) -> None:
    """Write graphs that come in several sets, such as one per file, into one folder.

    Parameters
    ----------
    folder : path
        The folder, created if it does not exist; ``graphs.json`` is written last.
    parts : iterable of GraphSet
        Sets with the same features and class names; only one is in memory at a time. Their splits
        are kept; if none has a split, all labelled graphs are training graphs. Sets with
        ``graph_ids``, ``node_ids`` or a fitted ``preparation`` are rejected, because these would be
        lost.

    Examples
    --------
    >>> import tempfile
    >>> from hoplite import Graph, load_graphs
    >>> pair = load_graphs([Graph.from_edges([(0, 1)], [[1.0], [2.0]])] * 2, labels=["a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_graph_files(folder, [pair, pair])
    ...     len(load_graphs(folder))
    4
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).unlink(missing_ok=True)
    first: GraphSet | None = None
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        start = arcs = 0
        for part in parts:
            refuse_loss(part, "graph_ids", "node_ids", "preparation")
            labels = part.table.labels
            places = np.full(len(part), len(PARTS), np.uint8)
            for number, name in enumerate(PARTS):
                places[getattr(part.table.split, name)] = number
            if first is None:
                first = part
                rows = {"labels": labels.shape[1:], "features": (part.num_features,)}
                for name, dtype in ARRAYS.items():
                    path, row = folder / f"{name}.npy", rows.get(name, ())
                    writer = growing_npy(path, dtype or labels.dtype, row)
                    files[name] = stack.enter_context(writer)
                files["indptr"](np.zeros(1))
            for _, block in part.blocks(part.num_features):
                features: Any = block.features
                dense = features.toarray() if hasattr(features, "toarray") else features
                files["features"](dense)
                files["indptr"](block.adjacency.indptr[1:].astype(np.int64) + arcs)
                files["indices"](block.adjacency.indices.astype(np.int64) + start)
                files["weights"](block.adjacency.data)
                start, arcs = start + block.num_nodes, arcs + block.adjacency.nnz
            files["sizes"](part.sizes)
            files["labels"](labels)
            files["split"](places)
    if first is None:
        raise DatasetError("there are no graph sets to write; pass at least one.")
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
        files = {name: RowFile(folder / f"{name}.npy") for name in ARRAYS}
        for name, file in files.items():
            sound = file.dtype == ARRAYS[name] or (name == "labels" and file.dtype.kind in "biuf")
            if not sound or len(file.shape) not in DIMENSIONS.get(name, (1,)):
                raise ValueError(f"{name}.npy has the wrong type or shape")
        if len(files["indices"]) != len(files["weights"]):
            raise ValueError("the number of edges does not match")
        if not len(files["sizes"]) == len(files["labels"]) == len(files["split"]):
            raise ValueError("the number of graphs does not match")
        sizes, labels, places = (files[name][:] for name in ("sizes", "labels", "split"))
        if sizes.min(initial=0) < 0 or sizes.sum(dtype=np.float64) != len(files["indptr"]) - 1:
            raise ValueError("the number of nodes does not match")
        parts = [np.flatnonzero(places == number) for number in range(len(PARTS))]
        split = Split(*parts, note=f"split of {content.name}")
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        adjacency = ArcFiles(files["indptr"], files["indices"], files["weights"])
        return GraphSet(
            adjacency,
            files["features"],
            offsets,
            labels,
            split if any(map(len, parts)) else None,
            class_names=content.class_names,
            feature_names=content.feature_names,
            name=content.name,
        )
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read: {error.strerror or error}.") from None
    except (ValueError, TypeError, msgspec.ValidationError) as error:
        raise DatasetError(f"{folder} is damaged ({error}); write it again.") from None
