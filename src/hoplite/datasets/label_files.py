"""labels.npy and split.npz, beside a graph or hops on disk: ValueError if they are damaged."""

from __future__ import annotations

import os
import zipfile
import zlib

import numpy as np

from hoplite.datasets.array_files import NpyRows, read_header
from hoplite.files import atomic_write, open_regular
from hoplite.graph import Split
from hoplite.graph_checks import check_split_part

PARTS = ("train", "val", "test")
ZIP_BYTES = 1 << 14  # more than the names, headers and directory of three arrays need


def write_split(path: str | os.PathLike[str], split: Split) -> None:
    """Write ``split`` as the whole file ``path``."""
    with atomic_write(path) as file:
        np.savez(file, **{part: getattr(split, part) for part in PARTS})


def read_labels(
    path: str | os.PathLike[str], nodes: int, classes: int, crc32: int | None
) -> np.ndarray:
    """The class of every node, -1 where unknown; ``crc32`` is None if nobody noted it."""
    with NpyRows(path) as file:
        if file.shape != (nodes,) or file.dtype != np.int64:
            raise ValueError(f"{file.dtype} of shape {file.shape} are no labels of {nodes:,} nodes")
        labels = file.read(0, nodes)
    if crc32 is not None and zlib.crc32(labels.data) != crc32:
        raise ValueError("its content does not fit its checksum")
    if labels.min(initial=-1) < -1 or labels.max(initial=-1) >= classes:
        raise ValueError(f"it names a class that is not one of {classes:,}")
    return labels


def read_split(
    path: str | os.PathLike[str], labels: np.ndarray, note: str, crc32: int | None
) -> Split:
    """The split of a graph with these labels, compared with its :func:`split_crc32`."""
    nodes = len(labels)
    try:
        with (
            open_regular(path, 8 * nodes + ZIP_BYTES) as file,
            zipfile.ZipFile(file) as archive,
        ):
            split = Split(*[_part(archive, part, nodes) for part in PARTS], note=note)
    except (KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"it is no such file ({error})") from error
    if crc32 is not None and split_crc32(split) != crc32:
        raise ValueError("its content does not fit its checksum")
    for part in PARTS:
        check_split_part(part, getattr(split, part), labels, nodes)
    return split


def split_crc32(split: Split) -> int:
    """CRC-32 of the numbers of the three parts and of how many there are.

    >>> split_crc32(Split([0], [1])) == split_crc32(Split([0, 1]))
    False
    """
    parts = [getattr(split, part) for part in PARTS]
    checksum = zlib.crc32(repr([len(part) for part in parts]).encode())
    for part in parts:
        checksum = zlib.crc32(np.ascontiguousarray(part, np.int64).data, checksum)
    return checksum


def _part(archive: zipfile.ZipFile, name: str, nodes: int) -> np.ndarray:
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with archive.open(info) as file:
        dtype, shape = read_header(file)
        if dtype != np.int64 or len(shape) != 1 or shape[0] > nodes:
            raise ValueError(f"{name} holds no node numbers")
        found = np.frombuffer(file.read(8 * shape[0] + 1), np.uint8)  # the end has a checksum
        if found.size != 8 * shape[0]:
            raise ValueError(f"{name} has another length than its header says")
    return found.view(np.int64)
