"""Datasets: a name or a path becomes a :class:`hoplite.graph.Graph`."""

from hoplite.datasets.load import available, load
from hoplite.datasets.npz import read_npz, write_npz
from hoplite.datasets.planetoid import read_planetoid
from hoplite.datasets.splits import stratified_split
from hoplite.datasets.tables import read_tables

__all__ = [
    "available",
    "load",
    "read_npz",
    "read_planetoid",
    "read_tables",
    "stratified_split",
    "write_npz",
]
