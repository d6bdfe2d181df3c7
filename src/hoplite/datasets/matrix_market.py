"""Matrix Market: an adjacency in a ``.mtx`` file, and the node table that may lie beside it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil
import pyarrow as pa

from hoplite.datasets.edge_list import graph_with_nodes
from hoplite.datasets.formats import Format
from hoplite.datasets.tables import own_edges
from hoplite.errors import DatasetError
from hoplite.files import open_regular
from hoplite.graph import Graph

MOST_LINE = 1 << 10
NODE_BYTES = 64  # of memory that a node costs, with or without edges
ENTRY_BYTES = 4  # of a file that an entry has at least: two digits and what ends them
FIELDS = {"real": 3, "double": 3, "integer": 3, "pattern": 2}  # numbers per entry
SYMMETRIES = ("general", "symmetric")


def read_matrix_market(path: str | Path, *, seed: int = 0, **preparing: Any) -> Graph:
    """Read an (n, n) matrix of edge weights, or a pattern of edges, in coordinate form.

    Direction is ignored, so that symmetric and general matrices mean the same. Nodes are numbered
    from 1, as in the file. A table ``NAME.nodes.csv`` beside ``NAME.mtx`` has their features and
    labels, see :func:`hoplite.datasets.edge_list.graph_with_nodes`.
    """
    path = Path(path)
    try:
        with open_regular(path) as raw, io.BufferedReader(raw) as file:  # pyright: ignore[reportArgumentType]
            n, entries, width = _checked_head(file, path)
            edges = _edges(file, n, entries, width)
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ValueError as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DatasetError(
            f"{path} is no Matrix Market file ({reason}); write it again."
        ) from error
    ids, named = lambda: pa.array(np.arange(1, n + 1)), own_edges(preparing)
    return graph_with_nodes(path, edges, ids, seed, **named)


def _checked_head(file: BinaryIO, path: Path) -> tuple[int, int, int]:
    """Nodes, entries and numbers per entry; what cannot be true is refused."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    words = file.readline(MOST_LINE).decode("latin-1").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError("it does not start with %%MatrixMarket matrix")
    if words[2] != "coordinate":
        raise ValueError(f"it is in the form {words[2]!r}, and an adjacency is in 'coordinate'")
    if words[3] not in FIELDS or words[4] not in SYMMETRIES:
        raise ValueError(f"it is {words[3]} and {words[4]}, and edge weights are real")
    line = b"%"
    while line.startswith(b"%") or (line and not line.strip()):
        line = file.readline(MOST_LINE)
    sizes = [int(word) for word in line.split()]
    if len(sizes) != 3:
        raise ValueError("it does not say its size")
    n, columns, entries = sizes
    if n != columns:
        raise DatasetError(f"{path} holds a matrix of {n:,} x {columns:,}; an adjacency is square.")
    if n < 1 or entries < 0 or entries * ENTRY_BYTES > size:
        raise ValueError(f"it says that it has {entries:,} entries but has {size:,} bytes")
    if n * NODE_BYTES > psutil.virtual_memory().total:
        raise DatasetError(
            f"{path} says that it has {n:,} nodes, more than fit into this machine's memory; "
            "read it on a larger one."
        )
    return n, entries, FIELDS[words[3]]


def _edges(file: BinaryIO, n: int, entries: int, width: int) -> pa.Table:
    """The entries behind the head. SciPy's own reader does not survive some damaged files."""
    found = np.empty((0, width))
    if entries:
        text = io.TextIOWrapper(file, "latin-1")
        found = np.loadtxt(text, comments="%", ndmin=2, max_rows=entries + 1)
        text.detach()
    if found.shape != (entries, width):
        raise ValueError(f"its entries have the shape {found.shape} and not {(entries, width)}")
    places = found[:, :2]
    if (places != np.round(places)).any() or (places < 1).any() or (places > n).any():
        raise ValueError(f"an entry lies outside of 1 to {n:,}")
    edges = {"source": places[:, 0].astype(np.int64), "target": places[:, 1].astype(np.int64)}
    return pa.table(edges | ({"weight": found[:, 2]} if width == 3 else {}))


MATRIX_MARKET = Format(
    ".mtx",
    lambda path: path.suffix == ".mtx" and path.is_file(),
    lambda path, seed, _, **preparing: read_matrix_market(path, seed=seed, **preparing),
    columns=True,
)
