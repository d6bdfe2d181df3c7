"""Reddit's posts (Hamilton et al., 2017) in the two public files that graph libraries share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.graph import Graph, Split
from hoplite.io.formats import Format
from hoplite.io.npz import open_npz

NODES_FILE = "reddit_data.npz"
GRAPH_FILE = "reddit_graph.npz"
FILES = (NODES_FILE, GRAPH_FILE)
_ADVICE = "get it with `hoplite datasets --fetch reddit`"


def load_reddit(folder: str | Path) -> Graph:
    """Read Reddit, or any graph in its format, from a folder.

    - ``reddit_data.npz``: ``feature`` (n x d numbers), ``label`` (n integers) and ``node_types``
      (n integers: 1 train, 2 validation, 3 test);
    - ``reddit_graph.npz``: a SciPy sparse matrix in COO form, n x n, as ``save_npz`` writes it.
      Every stored pair is an edge of weight 1: values and direction are ignored, repeated pairs
      count once, the diagonal is dropped.

    The features stay as they are in the file, as float32; in the public file each column already
    has mean 0 and standard deviation 1 over the training nodes. With e stored pairs the peak of
    memory is about 30 e + 4 n d bytes, most of it while the Graph checks its symmetry: 4.0 GB at
    Reddit's size, whose Graph itself has 1.5 GB.
    """
    folder = Path(folder)
    with open_npz(folder / NODES_FILE, _ADVICE) as file:
        labels, parts = file.read("label", "iu", 1), file.read("node_types", "iu", 1)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
            features = file.read("feature", "fiu", 2).astype(np.float32, copy=False)
        n = len(features)
        if not n == len(labels) == len(parts):
            raise ValueError(f"there are {len(labels):,} labels, {len(parts):,} types, {n:,} rows")
        if not np.isin(parts, (1, 2, 3)).all():
            raise ValueError("node_types are not 1 (train), 2 (validation) and 3 (test)")
        split = Split(*(parts == part for part in (1, 2, 3)), note="public Reddit split (by day)")
    with open_npz(folder / GRAPH_FILE, _ADVICE) as file:
        form, shape = file.read("format", "SU", 0).item(), file.read("shape", "iu", 1).tolist()
        if form not in ("coo", b"coo") or shape != [n, n]:
            raise ValueError(f"it is a {form} matrix of {shape}, not a coo matrix of {[n, n]}")
        ends = (file.read("row", "iu", 1), file.read("col", "iu", 1))
        # booleans: a fourth of what float32 would need; SciPy checks the range of both ends
        arcs = sp.coo_array((np.ones(ends[0].size, bool), ends), shape=(n, n))
        del ends
        arcs = arcs.tocsr()
        return Graph(arcs.maximum(arcs.T), features, labels, split=split, name="reddit")


def has_reddit(folder: Path) -> bool:
    """Whether the folder holds one of the two files."""
    return any((folder / name).is_file() for name in FILES)


REDDIT_FILES = Format(
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
