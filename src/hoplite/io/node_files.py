"""Labels, split and ids of nodes in files, next to the edges of a graph or the hops of a store.

labels.npy   as :mod:`hoplite.labels` says
split.npz    the nodes of each part, and the seed
ids.npy      integers as int64, or text in UTF-8, one after the other;
id_ends.npy  then where each of the texts ends
"""

from __future__ import annotations

import contextlib
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from hoplite.errors import plural
from hoplite.files import atomic_write
from hoplite.graph import PARTS, Split, cached_property, check_split
from hoplite.io.array_files import NpyRows, check_crc32, growing_npy, npz_arrays, write_npy
from hoplite.labels import CLASSES, NUMBERS, label_type
from hoplite.preparation import Preparation

LABELS, SPLIT, IDS, ID_ENDS = FILES = ("labels.npy", "split.npz", "ids.npy", "id_ends.npy")
MAX_HEADERS = 1 << 14  # bytes of a split.npz besides its numbers
ROWS = 1 << 16  # ids worked on at a time
Count = Annotated[int, Meta(ge=0, le=2**48)]
Checksum = Annotated[int, Meta(ge=0, lt=2**32)]


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What the description of a graph on disk and that of a hop store say about the nodes."""

    name: str
    nodes: Count
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    split_note: str = ""
    preparation: Preparation | None = None


class NodeFiles(ABC):
    """The nodes of a graph on disk or of a hop store: their labels, their split and their ids.

    Every file is compared with its checksum before its first use.
    """

    def __init__(self, data: Path, facts: NodeFacts) -> None:
        self.data, self._split_note = data, facts.split_note
        self.name, self.num_nodes, self.preparation = facts.name, facts.nodes, facts.preparation
        self.class_names, self.feature_names = facts.class_names, facts.feature_names
        self.num_classes = len(facts.class_names)

    @property
    @abstractmethod
    def _crc32(self) -> Mapping[str, int]:
        """The checksums of all files, by their names."""

    @abstractmethod
    def _damaged(self, name: str, error: Exception) -> Exception:
        """The error for the file ``name``, in which ``error`` was found."""

    @contextlib.contextmanager
    def _checked(self, name: str, *files: str) -> Iterator[None]:
        """Compare files with their checksums; there, and within the block, damage is an error."""
        try:
            check_crc32(self.data, self._crc32, *files)
            yield
        except (OSError, ValueError) as error:
            raise self._damaged(name, error) from error

    @property
    def relation_weights(self) -> dict[str, float]:
        """None: directions and types of edges are not kept here."""
        return {}

    @cached_property
    def labels(self) -> np.ndarray:
        """The class of every node, -1 where unknown."""
        with self._checked(LABELS, LABELS):
            return read_labels(self.data / LABELS, self.num_nodes, self.num_classes)

    @cached_property
    def split(self) -> Split:
        """The nodes of training, validation and test."""
        labels = self.labels
        with self._checked(SPLIT, SPLIT):
            return read_split(self.data / SPLIT, labels, self._split_note)

    @cached_property
    def node_ids(self) -> StoredIds | None:
        """The ids of the nodes, read when they are asked for; None if they have none."""
        names = [name for name in (IDS, ID_ENDS) if name in self._crc32]
        if not names:
            return None
        with self._checked(IDS, *names):
            damaged = partial(self._damaged, IDS)
            return StoredIds(
                self.data, self.num_nodes, integers=ID_ENDS not in names, damaged=damaged
            )


def write_nodes(
    folder: Path, labels: np.ndarray, split: Split, ids: Iterable[Any] | None, *, integers: bool
) -> None:
    """Write labels, split and, if there are some, ids: as numbers if all are ``integers``."""
    write_npy(folder / LABELS, labels)
    write_split(folder / SPLIT, split)
    if ids is None:
        (folder / IDS).unlink(missing_ok=True)
    else:
        _write_ids(folder, ids, integers=integers)
    if ids is None or integers:
        (folder / ID_ENDS).unlink(missing_ok=True)


def write_split(path: str | os.PathLike[str], split: Split) -> None:
    """Write ``split``, without its note, as the whole file ``path``."""
    seeds = [] if split.seed is None else [split.seed]
    with atomic_write(path) as file:
        np.savez(file, seed=np.array(seeds, np.int64), **{p: getattr(split, p) for p in PARTS})


def read_labels(path: str | os.PathLike[str], nodes: int, classes: int) -> np.ndarray:
    """The labels of every node.

    As :mod:`hoplite.labels` says: int64 or float64 (nodes,), or int8 (nodes, classes).
    """
    file = NpyRows(path)
    types = {(nodes,): (np.int64, np.float64), (nodes, classes): (np.int8,)}
    if file.dtype not in types.get(file.shape, ()):
        raise ValueError(
            f"{file.dtype} of shape {file.shape} is not an array of labels for "
            f"{plural(nodes, 'node')}"
        )
    labels = file.read(0, nodes)
    type_ = label_type(labels)
    if type_ is CLASSES and (labels.min(initial=-1) < -1 or labels.max(initial=-1) >= classes):
        raise ValueError(f"it contains a class that is not one of {classes:,}")
    if type_ is NUMBERS and classes:
        raise ValueError("it contains numbers, but there are class names")
    return type_.checked(labels, ("",) * classes)


def read_split(path: str | os.PathLike[str], labels: np.ndarray, note: str) -> Split:
    """The split of a graph with these labels."""
    with npz_arrays(path, 8 * len(labels) + MAX_HEADERS) as file:
        seeds = file.read("seed", "i", 1).tolist()
        parts = [file.read(part, "i", 1) for part in PARTS]
    split = Split(*parts, note=note, seed=seeds[0] if seeds else None)
    check_split(split, labels)
    return split


class StoredIds(Sequence[Any]):
    """The ids of ``nodes`` nodes in ``folder``, read when they are asked for, a range at a time.

    What is wrong with the files, ``damaged`` turns into the error that is raised.
    """

    def __init__(
        self, folder: Path, nodes: int, *, integers: bool, damaged: Callable[[Exception], Exception]
    ) -> None:
        self._folder, self._nodes, self._damaged = folder, nodes, damaged
        self.integers = integers

    def __len__(self) -> int:
        return self._nodes

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            node = range(self._nodes)[place]
            return self[node : node + 1][0]
        start, stop, step = place.indices(self._nodes)
        if step != 1:
            return [self[node] for node in range(start, stop, step)]
        try:
            return self._read(start, max(start, stop))
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._nodes, ROWS):
            yield from self[start : start + ROWS]

    def _read(self, start: int, stop: int) -> list[Any]:
        dtype, shape = (np.int64, (self._nodes,)) if self.integers else (np.uint8, None)
        ids = NpyRows(self._folder / IDS)
        if ids.dtype != dtype or (shape or ids.shape) != ids.shape:
            raise ValueError(f"{IDS} has type {ids.dtype} and shape {ids.shape}")
        if self.integers:
            return ids.read(start, stop).tolist()
        file = NpyRows(self._folder / ID_ENDS)
        if (file.dtype, file.shape) != (np.int64, (self._nodes + 1,)):
            raise ValueError(f"{ID_ENDS} has type {file.dtype} and shape {file.shape}")
        ends = file.read(start, stop + 1)
        if (np.diff(ends) < 0).any():
            raise ValueError(f"{ID_ENDS} decreases")
        content = ids.read(int(ends[0]), int(ends[-1])).tobytes()
        cuts = (ends - ends[0]).tolist()
        return [content[a:b].decode() for a, b in itertools.pairwise(cuts)]


def _write_ids(folder: Path, ids: Iterable[Any], *, integers: bool) -> None:
    """Write ``ids``, as numbers or as text."""
    if integers:
        with growing_npy(folder / IDS, np.int64) as append:
            numbers = map(int, ids)
            while piece := list(itertools.islice(numbers, ROWS)):
                append(np.array(piece))
        return
    with (
        growing_npy(folder / IDS, np.uint8) as append,
        growing_npy(folder / ID_ENDS, np.int64) as append_ends,
    ):
        append_ends(np.zeros(1, np.int64))
        end, names = 0, map(str, ids)
        while piece := [name.encode() for name in itertools.islice(names, ROWS)]:
            append(np.frombuffer(b"".join(piece), np.uint8))
            append_ends(end + np.cumsum([len(name) for name in piece]))
            end += sum(map(len, piece))


def all_integers(ids: Iterable[Any]) -> bool:
    """Whether the ids are whole numbers that fit 64 bits."""
    if isinstance(ids, StoredIds):
        return ids.integers
    return all(
        isinstance(name, int | np.integer)
        and not isinstance(name, bool)
        and -(2**63) <= name < 2**63
        for name in ids
    )
