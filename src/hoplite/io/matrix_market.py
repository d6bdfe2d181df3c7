"""Matrix Market: an adjacency in a ``.mtx`` file, and the node table that may lie next to it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil
import pyarrow as pa

from hoplite.errors import DatasetError
from hoplite.files import open_regular
from hoplite.graph import Graph
from hoplite.io.edge_list import graph_with_nodes
from hoplite.io.formats import Format
from hoplite.io.tables import own_edges

MAX_LINE = 1 << 10
NODE_BYTES = 64  # of memory that a node costs, with or without edges
ENTRY_BYTES = 4  # of a file that an entry has at least: two digits and what ends them
FIELDS = {"real": 3, "double": 3, "integer": 3, "pattern": 2}  # numbers per entry


def read_matrix_market(path: str | Path, *, seed: int = 0, **preparing: Any) -> Graph:
    """Read an (n, n) matrix of edge weights, or a pattern of edges, in coordinate form.

    Direction is ignored, so that symmetric and general matrices mean the same. Nodes are numbered
    from 1, as in the file. A table ``NAME.nodes.csv`` next to ``NAME.mtx`` has their features and
    labels, see :func:`hoplite.io.edge_list.graph_with_nodes`.
    """
    path = Path(path)
    try:
        with open_regular(path) as raw, io.BufferedReader(raw) as file:  # pyright: ignore[reportArgumentType]
            n, edges = _read(file)
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except ValueError as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DatasetError(f"{path} is not a valid Matrix Market file ({reason}).") from error
    ids = pa.array(np.arange(1, n + 1))
    return graph_with_nodes(path, edges, lambda: ids, seed, **own_edges(preparing))


def _read(file: BinaryIO) -> tuple[int, pa.Table]:
    """The number of nodes, and the entries. SciPy's reader crashes on some damaged files."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    banner = file.readline(MAX_LINE).decode("latin-1").lower().split()
    if (
        banner[:3] != ["%%matrixmarket", "matrix", "coordinate"]
        or banner[3:4] not in [[field] for field in FIELDS]
        or banner[4:] not in (["general"], ["symmetric"])
    ):
        raise ValueError("its first line is not that of a sparse matrix of real edge weights")
    line = b"%"
    while line.startswith(b"%") or (line and not line.strip()):
        line = file.readline(MAX_LINE)
    sizes = [int(word) for word in line.split()]
    if len(sizes) != 3 or sizes[0] != sizes[1] or sizes[0] < 1:
        raise ValueError(f"its size is {sizes}; an adjacency is square")
    n, _, entries = sizes
    if not 0 <= entries * ENTRY_BYTES <= size:
        raise ValueError(f"it declares {entries:,} entries but has {size:,} bytes")
    if n * NODE_BYTES > psutil.virtual_memory().total:
        raise ValueError(f"it declares {n:,} nodes, more than fit into this machine's memory")
    width = FIELDS[banner[3]]
    numbers = np.empty((0, width))
    if entries:
        numbers = np.loadtxt(file, comments="%", ndmin=2, max_rows=entries + 1, encoding="latin-1")
    if numbers.shape != (entries, width):
        raise ValueError(f"its entries have shape {numbers.shape} and not {(entries, width)}")
    ends = numbers[:, :2]
    if (ends != np.round(ends)).any() or (ends < 1).any() or (ends > n).any():
        raise ValueError(f"an entry lies outside of 1 to {n:,}")
    columns = {"source": ends[:, 0].astype(np.int64), "target": ends[:, 1].astype(np.int64)}
    return n, pa.table(columns | ({"weight": numbers[:, 2]} if width == 3 else {}))


MATRIX_MARKET = Format(
    ".mtx",
    lambda path: path.suffix == ".mtx" and path.is_file(),
    lambda path, seed, _, **preparing: read_matrix_market(path, seed=seed, **preparing),
    columns=True,
)
