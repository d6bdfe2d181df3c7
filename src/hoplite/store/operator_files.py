"""The operator S as CSR files, made from the adjacency a range of rows at a time.

The numbers are those of :mod:`hoplite.operators`, to the bit.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hoplite.datasets.csr_rows import (
    PARTS,
    CsrFiles,
    CsrRows,
    growing_csr,
    index_type,
)
from hoplite.files import atomic_write_text
from hoplite.operators import in_basis, operator_rows

FOLDER = "operator"
RECORD = "crc32.json"  # written last: checksums of the three files
PIECE = 1 << 22  # bytes


def has_operator(folder: Path, nodes: int, *, contents: bool = True) -> bool:
    """Whether the store in ``folder`` holds its operator, whole and (``contents``) unchanged."""
    try:
        record = json.loads((folder / FOLDER / RECORD).read_text(encoding="ascii"))
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

    See :func:`hoplite.operators.operator_rows` for the memory that it takes.
    """
    n = adjacency.rows
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with growing_csr(folder / FOLDER, index_type(n), np.float32) as append:
        for start, rows in operator_rows(adjacency, operator, np.float32, most_entries):
            append(in_basis(rows, operator, basis, start))
            note((start + rows.shape[0]) / n)
    atomic_write_text(folder / FOLDER / RECORD, json.dumps(_checksums(folder)) + "\n")


def _checksums(folder: Path) -> dict[str, int]:
    """CRC-32 of each file of the operator."""
    found = {}
    for part in PARTS:
        checksum = 0
        with (folder / FOLDER / f"{part}.npy").open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                checksum = zlib.crc32(piece, checksum)
        found[part] = checksum
    return found
