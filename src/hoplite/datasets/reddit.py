"""Reddit's posts (Hamilton et al., 2017) in the two public files that graph libraries share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.formats import Format
from hoplite.datasets.npz import NpzFile
from hoplite.errors import DatasetError, GraphError
from hoplite.graph import Graph, Split

NODES_FILE = "reddit_data.npz"
GRAPH_FILE = "reddit_graph.npz"
FILES = (NODES_FILE, GRAPH_FILE)
NODE_TYPES = {1: "train", 2: "val", 3: "test"}
SPLIT_NOTE = "public Reddit split (by day)"
_ADVICE = "get it with `hoplite datasets --fetch reddit`"


def load_reddit(folder: str | Path) -> Graph:
    """Read Reddit, or any graph in its format, from a folder.

    - ``reddit_data.npz``: ``feature`` (n x d numbers), ``label`` (n integers) and ``node_types``
      (n integers: 1 train, 2 validation, 3 test);
    - ``reddit_graph.npz``: a SciPy sparse matrix in COO form, n x n, as ``save_npz`` writes it.
      Every stored pair is an edge of weight 1: values and direction are ignored, repeated pairs
      count once, the diagonal is dropped.

    The features stay as they are in the file, as float32; in the public file each column already
    has mean 0 and standard deviation 1 over the training nodes. Nothing is unpickled.

    The arrays are converted while they are read, so that the wide types of the file are never in
    memory as a whole. With e stored pairs the peak is about 30 e + 4 n d bytes, most of it while
    the Graph checks its symmetry: 4.0 GB at Reddit's size, whose Graph itself has 1.5 GB.
    """
    folder = Path(folder)
    features, labels, kinds = _read_nodes(folder / NODES_FILE)
    adjacency = _read_adjacency(folder / GRAPH_FILE, len(features))
    split = Split(*(np.flatnonzero(kinds == kind) for kind in NODE_TYPES), note=SPLIT_NOTE)
    try:
        return Graph(adjacency, features, labels, split=split, name="reddit")
    except GraphError as error:
        raise DatasetError(f"{folder} holds no valid graph: {error}") from error


def has_reddit(folder: Path) -> bool:
    """Whether the folder holds one of the two files."""
    return any((folder / name).is_file() for name in FILES)


REDDIT = Format(
    f"Reddit's {NODES_FILE} and {GRAPH_FILE}",
    has_reddit,
    lambda path, *_: load_reddit(path),
    is_folder=True,
)


def reddit_folders() -> list[Path]:
    """Where ``load("reddit")`` looks: ``$HOPLITE_DATA/reddit``, then the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    roots = [os.environ.get("HOPLITE_DATA"), str(Path(cache) / "hoplite")]
    return [Path(root).expanduser() / "reddit" for root in roots if root]


def find_reddit() -> Path | None:
    """The first of :func:`reddit_folders` that holds Reddit."""
    return next((folder for folder in reddit_folders() if has_reddit(folder)), None)


def _read_nodes(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with NpzFile.opened(path, _ADVICE) as file:
        labels = file.read("label", np.int64, kinds="iu", ndim=1)
        kinds = file.read("node_types", np.int64, kinds="iu", ndim=1)
        features = file.read("feature", np.float32, kinds="fiu", ndim=2)
    for name, values in (("label", labels), ("node_types", kinds)):
        if values.size != len(features):
            raise DatasetError(
                f"{name!r} in {path} has {values.size:,} values but 'feature' has "
                f"{len(features):,} rows; they must be as many."
            )
    odd = np.setdiff1d(kinds, list(NODE_TYPES))
    if odd.size:
        raise DatasetError(
            f"'node_types' in {path} holds {odd[0]}; it must hold 1 (train), 2 (validation) "
            "and 3 (test)."
        )
    return features, labels, kinds


def _read_adjacency(path: Path, n: int) -> sp.csr_array:
    """The pairs as a symmetric matrix of booleans, a fourth of what float32 would need."""
    with NpzFile.opened(path, _ADVICE) as file:
        form = file.read_text("format")
        if form != "coo":
            raise DatasetError(
                f"{path} holds a sparse matrix in {form!r} form; save it in COO form "
                "(scipy.sparse.save_npz(path, matrix.tocoo()))."
            )
        shape = tuple(file.read("shape", np.int64, kinds="iu", ndim=1).tolist())
        if shape != (n, n):
            raise DatasetError(
                f"{path} holds a matrix of shape {shape} but {NODES_FILE} has {n:,} nodes; "
                "use files that belong together."
            )
        index = np.int32 if n <= np.iinfo(np.int32).max else np.int64
        row = file.read("row", index, kinds="iu", ndim=1, limit=n)
        col = file.read("col", index, kinds="iu", ndim=1, limit=n)
    if row.size != col.size:
        raise DatasetError(
            f"'row' in {path} has {row.size:,} entries but 'col' has {col.size:,}; "
            "they must be as many."
        )
    directed = sp.coo_array((np.ones(row.size, bool), (row, col)), shape=(n, n))
    del row, col
    directed = directed.tocsr()
    return sp.csr_array(directed.maximum(directed.T))
