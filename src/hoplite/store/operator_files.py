"""The operator S as CSR files, made from the adjacency a range of rows at a time.

The numbers are those of :mod:`hoplite.operators`, to the bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hoplite.csr_rows import (
    CSR_ARRAYS,
    CsrFiles,
    CsrRows,
    growing_csr,
    index_type,
)
from hoplite.files import open_regular
from hoplite.json_files import read_json, write_json
from hoplite.operators import find_operator
from hoplite.store.manifest import Checksum

FOLDER = "operator"
RECORD = "crc32.json"  # written last: checksums of the three files
PIECE = 1 << 22  # bytes


@dataclass(frozen=True)
class Checksums:
    """CRC-32 of each file of the operator."""

    indptr: Checksum
    indices: Checksum
    values: Checksum


def has_operator(folder: Path, nodes: int, *, contents: bool = True) -> bool:
    """Whether the store in ``folder`` holds its operator, whole and (``contents``) unchanged."""
    try:
        record = read_json(folder / FOLDER / RECORD, Checksums)
        with CsrFiles(folder / FOLDER) as files:
            whole = files.rows == nodes
        return whole and (not contents or record == _checksums(folder))
    except (OSError, ValueError):
        return False


def write_operator(
    folder: Path,
    adjacency: CsrRows,
    operator: str,
    basis: str,
    most_entries: int,
    note: Callable[[float], None],
) -> None:
    """Write S, in the form that ``basis`` needs, of ``adjacency``; ``note`` hears the share done.

    See :meth:`hoplite.operators.Operator.rows` for the memory that it takes.
    """
    n, kind = adjacency.rows, find_operator(operator)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with growing_csr(folder / FOLDER, index_type(n), np.float32) as append:
        for start, rows in kind.rows(adjacency, np.float32, most_entries):
            append(kind.in_basis(rows, basis, start))
            note((start + rows.shape[0]) / n)
    write_json(folder / FOLDER / RECORD, _checksums(folder), indent=None)


def _checksums(folder: Path) -> Checksums:
    """CRC-32 of each file of the operator."""
    found = {}
    for part in CSR_ARRAYS:
        checksum = 0
        with open_regular(folder / FOLDER / f"{part}.npy") as file:
            while piece := file.read(PIECE):
                checksum = zlib.crc32(piece, checksum)
        found[part] = checksum
    return Checksums(**found)
