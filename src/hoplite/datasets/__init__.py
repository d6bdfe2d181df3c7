"""Datasets: a name or a path becomes a :class:`hoplite.graph.Graph`."""

from hoplite.datasets.disk_graph import DiskGraph, write_disk_graph
from hoplite.datasets.edge_list import read_edge_list
from hoplite.datasets.fetch import fetch
from hoplite.datasets.graphml import read_graphml
from hoplite.datasets.load import available, load, obtainable
from hoplite.datasets.masks_npz import read_masks_npz
from hoplite.datasets.matrix_market import read_matrix_market
from hoplite.datasets.npz import read_npz, write_npz
from hoplite.datasets.planetoid import read_planetoid
from hoplite.datasets.reddit import load_reddit
from hoplite.datasets.splits import stratified_split
from hoplite.datasets.synthetic import reddit_like, synthetic
from hoplite.datasets.table_import import import_tables
from hoplite.datasets.tables import read_tables

__all__ = [
    "DiskGraph",
    "available",
    "fetch",
    "import_tables",
    "load",
    "load_reddit",
    "obtainable",
    "read_edge_list",
    "read_graphml",
    "read_masks_npz",
    "read_matrix_market",
    "read_npz",
    "read_planetoid",
    "read_tables",
    "reddit_like",
    "stratified_split",
    "synthetic",
    "write_disk_graph",
    "write_npz",
]
