"""Planetoid's files: ``ind.NAME.{x,tx,allx,y,ty,ally,graph,test.index}`` (Yang et al., 2016)."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.formats import Format
from hoplite.datasets.npz import row_normalized
from hoplite.datasets.pickles import MOST_BYTES, read_pickle
from hoplite.errors import DatasetError
from hoplite.files import read_regular
from hoplite.graph import Graph, Split
from hoplite.labels import UNKNOWN_LABEL

SUFFIXES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION_NODES = 500
MOST_FEATURES, MOST_CLASSES = 10**7, 10**5
SPLIT_NOTE = "public Planetoid split"


def read_planetoid(folder: str | Path, name: str, *, row_normalize: bool = True) -> Graph:
    """Read the graph ``name`` from a folder of Planetoid files.

    Nodes are in Planetoid's order: the rows of ``allx`` first, then row ``i`` of ``tx`` as node
    ``test.index[i]``. A node that ``test.index`` skips (Citeseer has 15) exists without features
    and with label -1. The split is the public one: the rows of ``y`` train, the next 500 nodes
    validate, ``test.index`` tests. With ``row_normalize`` each feature row sums to 1.
    """
    files = _Files(Path(folder), name)
    matrices = {part: files.matrix(part) for part in ("x", "tx", "allx")}
    y, ty, ally = (files.classes(part) for part in ("y", "ty", "ally"))
    files.check_columns(matrices)
    files.check_columns({"y": y, "ty": ty, "ally": ally})
    for rows, classes in (("x", y), ("tx", ty), ("allx", ally)):
        files.check_rows(rows, matrices[rows].indptr.size - 1, len(classes))
    known, train = len(ally), len(y)
    if train > known:
        raise DatasetError(f"{files.path('y')} has {train:,} rows but allx has only {known:,}.")

    neighbours = files.neighbours()
    test = files.test_index(known, len(ty), limit=max(len(neighbours), known + len(ty)))
    n = max(known, int(test.max(initial=-1)) + 1)
    place = np.concatenate([np.arange(known), test])
    features = _scattered(sp.csr_array(sp.vstack([matrices["allx"], matrices["tx"]])), place, n)
    labels = np.full(n, UNKNOWN_LABEL, np.int64)
    labels[place] = _class_indices(np.concatenate([ally, ty]))

    validation = np.arange(train, min(train + VALIDATION_NODES, known))
    # A row of zeros in y, ty or ally is a node without a class: it cannot be trained or scored.
    parts = (part[labels[part] >= 0] for part in (np.arange(train), validation, test))
    return Graph.from_edges(
        files.edges(neighbours, n),
        row_normalized(features) if row_normalize else features,
        labels,
        split=Split(*parts, note=SPLIT_NOTE),
        class_names=tuple(str(c) for c in range(ally.shape[1])),
        name=name,
    )


def planetoid_names(folder: Path) -> list[str]:
    """The names of the Planetoid graphs in a folder, complete or not."""
    pattern = re.compile(rf"ind\.(.+)\.({'|'.join(map(re.escape, SUFFIXES))})")
    matches = (pattern.fullmatch(path.name) for path in folder.iterdir())
    return sorted({match[1] for match in matches if match})


def _recognises(path: Path) -> bool:
    """Whether it is a folder of Planetoid files, or such a folder and the name of a graph in it."""
    if path.is_dir():
        return bool(planetoid_names(path))
    known = path.parent.is_dir() and not path.is_file()
    return known and path.name in planetoid_names(path.parent)


def _read(path: Path, *_: int | None) -> Graph:
    if not path.is_dir():
        return read_planetoid(path.parent, path.name)
    names = planetoid_names(path)
    if len(names) > 1:
        choices = ", ".join(f"{path}{os.sep}{name}" for name in names)
        raise DatasetError(f"{path} holds several Planetoid graphs; give one of {choices}.")
    return read_planetoid(path, names[0])


PLANETOID = Format("Planetoid's files ind.NAME.*", _recognises, _read, is_folder=True)


def _scattered(rows: sp.csr_array, place: np.ndarray, n: int) -> sp.csr_array:
    """Put row ``i`` at ``place[i]`` of a matrix with ``n`` rows; the other rows are empty."""
    where = (np.repeat(place, np.diff(rows.indptr)), rows.indices)
    return sp.csr_array(sp.coo_array((rows.data, where), shape=(n, _columns(rows))))


def _columns(matrix: sp.csr_array | np.ndarray) -> int:
    # SciPy's annotations wrongly allow a matrix without a shape.
    return matrix.shape[1]  # pyright: ignore[reportOptionalSubscript]


def _class_indices(one_hot: np.ndarray) -> np.ndarray:
    """The column of each row's largest entry; -1 for a row of zeros."""
    return np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), UNKNOWN_LABEL)


class _Files:
    """The eight files of one Planetoid graph, each read and checked on its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        missing = [self.path(part).name for part in SUFFIXES if not self.path(part).is_file()]
        if missing:
            raise DatasetError(
                f"{folder} has no {', '.join(missing)}; a Planetoid graph consists of the files "
                f"ind.{name}.{{{','.join(SUFFIXES)}}}."
            )

    def path(self, part: str) -> Path:
        return self.folder / f"ind.{self.name}.{part}"

    def matrix(self, part: str) -> sp.csr_array:
        value = read_pickle(self.path(part))
        if isinstance(value, np.ndarray) and value.ndim == 2:
            value = sp.csr_array(value)
        if not isinstance(value, sp.csr_array):
            raise DatasetError(f"{self.path(part)} holds no matrix; it must hold feature rows.")
        self._refuse_width(part, _columns(value), MOST_FEATURES)
        return value

    def classes(self, part: str) -> np.ndarray:
        value = read_pickle(self.path(part))
        if not isinstance(value, np.ndarray) or value.ndim != 2:
            raise DatasetError(f"{self.path(part)} holds no matrix; it must hold one-hot labels.")
        self._refuse_width(part, value.shape[1], MOST_CLASSES)
        return value

    def _refuse_width(self, part: str, columns: int, most: int) -> None:
        """A matrix without entries may claim any number of columns."""
        if columns > most:
            raise DatasetError(
                f"{self.path(part)} has {columns:,} columns and at most {most:,} are read."
            )

    def neighbours(self) -> dict[int, list[int]]:
        value = read_pickle(self.path("graph"))
        if not isinstance(value, dict) or not all(
            type(node) is int
            and isinstance(others, list)
            and all(type(other) is int for other in others)
            for node, others in value.items()
        ):
            raise DatasetError(
                f"{self.path('graph')} is no graph; it must map each node to its neighbours."
            )
        return value

    def edges(self, neighbours: dict[int, list[int]], n: int) -> np.ndarray:
        ends = [*neighbours, *itertools.chain.from_iterable(neighbours.values())]
        if ends and (min(ends) < 0 or max(ends) >= n):
            outside = min(ends) if min(ends) < 0 else max(ends)
            raise DatasetError(
                f"{self.path('graph')} names node {outside} but the features and test.index "
                f"make {n:,} nodes; node indices go from 0 to {n - 1:,}."
            )
        degrees = [len(others) for others in neighbours.values()]
        sources = np.repeat(np.array(list(neighbours), np.int64), degrees)
        return np.column_stack([sources, np.array(ends[len(neighbours) :], np.int64)])

    def test_index(self, first: int, count: int, limit: int) -> np.ndarray:
        path = self.path("test.index")
        try:
            test = [int(word) for word in read_regular(path, MOST_BYTES).decode("ascii").split()]
        except ValueError as error:
            raise DatasetError(f"{path} is no list of node indices ({error}).") from error
        if len(test) != count:
            raise DatasetError(
                f"{path} has {len(test):,} indices but tx has {count:,} rows; "
                "give one index per row."
            )
        if len(set(test)) != len(test):
            raise DatasetError(f"{path} names a node twice; give each row of tx its own node.")
        if test and (min(test) < first or max(test) >= limit):
            outside = min(test) if min(test) < first else max(test)
            raise DatasetError(
                f"{path} names node {outside} but test nodes go from {first:,} (after allx) "
                f"to {limit - 1:,} (the last node of the graph)."
            )
        return np.array(test, np.int64)

    def check_columns(self, parts: dict[str, sp.csr_array] | dict[str, np.ndarray]) -> None:
        columns = {part: _columns(value) for part, value in parts.items()}
        if len(set(columns.values())) > 1:
            found = ", ".join(f"{part} {count:,}" for part, count in columns.items())
            raise DatasetError(
                f"the files of {self.name} in {self.folder} differ in columns ({found}); "
                "use files that belong together."
            )

    def check_rows(self, part: str, rows: int, classes: int) -> None:
        if rows != classes:
            raise DatasetError(
                f"{self.path(part)} has {rows:,} rows but its labels have {classes:,}; "
                "use files that belong together."
            )
