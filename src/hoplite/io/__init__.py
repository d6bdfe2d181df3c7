"""Reading, converting and writing graphs: a name, a path or an object becomes a Graph."""

from hoplite.io.convert import (
    from_dgl,
    from_frames,
    from_igraph,
    from_networkx,
    from_pyg,
    from_scipy,
    read_graphml,
    to_networkx,
    to_pyg,
)
from hoplite.io.datasets import available, fetch, load_reddit, obtainable, reddit_like, synthetic
from hoplite.io.disk_graph import DiskGraph, write_disk_graph
from hoplite.io.edge_list import read_edge_list, read_matrix_market
from hoplite.io.extend import extend
from hoplite.io.load import load
from hoplite.io.npz import read_npz, write_npz
from hoplite.io.splits import even_split, random_split, stratified_split
from hoplite.io.tables import import_tables, read_tables

__all__ = [
    "DiskGraph",
    "available",
    "even_split",
    "extend",
    "fetch",
    "from_dgl",
    "from_frames",
    "from_igraph",
    "from_networkx",
    "from_pyg",
    "from_scipy",
    "import_tables",
    "load",
    "load_reddit",
    "obtainable",
    "random_split",
    "read_edge_list",
    "read_graphml",
    "read_matrix_market",
    "read_npz",
    "read_tables",
    "reddit_like",
    "stratified_split",
    "synthetic",
    "to_networkx",
    "to_pyg",
    "write_disk_graph",
    "write_npz",
]
