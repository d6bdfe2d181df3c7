"""The operator S as CSR files, made from the adjacency a range of rows at a time.

The numbers are those of :mod:`hoplite.operators`, to the bit: every entry is computed from the same
float64 values in the same order, and rounded to float32 once.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.csr_rows import (
    PARTS,
    CsrFiles,
    CsrRows,
    growing_csr,
    index_type,
    row_ranges,
)
from hoplite.files import atomic_write_text
from hoplite.operators import SPECTRUM, inverse_roots

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

    It holds two float64 numbers per node and the work on ``most_entries`` entries at a time.
    """
    n = adjacency.rows
    roots = np.zeros(n)
    for start, stop in row_ranges(adjacency, most_entries):
        roots[start:stop] = inverse_roots(_weights(adjacency, operator, start, stop).sum(axis=1))
        note(0.5 * stop / n)
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with growing_csr(folder / FOLDER, index_type(n), np.float32) as append:
        for start, stop in row_ranges(adjacency, most_entries):
            rows = _weights(adjacency, operator, start, stop)
            rows.data *= np.repeat(roots[start:stop], np.diff(rows.indptr))
            rows.data *= roots[rows.indices]
            if operator == "laplacian":
                rows = sp.csr_array(_identity(start, stop, n, np.float64) - rows)
            append(_for_basis(rows.astype(np.float32), operator, basis, start))
            note(0.5 + 0.5 * stop / n)
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


def _weights(adjacency: CsrRows, operator: str, start: int, stop: int) -> sp.csr_array:
    """Rows of A, or of A + I, in float64."""
    n = adjacency.rows
    weights = sp.csr_array(adjacency.read(start, stop).to_scipy(n), dtype=np.float64, copy=True)
    if operator == "renormalized":
        weights = sp.csr_array(weights + _identity(start, stop, n, np.float64))
    return weights


def _for_basis(rows: sp.csr_array, operator: str, basis: str, start: int) -> sp.csr_array:
    """Rows of S for monomials; for Chebyshev polynomials of (S - c I) / h."""
    low, high = SPECTRUM[operator]
    middle, half = (low + high) / 2, (high - low) / 2
    if basis == "chebyshev" and not (middle == 0 and half == 1):
        identity = _identity(start, start + rows.shape[0], rows.shape[1], np.float32)
        rows = sp.csr_array((rows - middle * identity) / half, dtype=np.float32)
        rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _identity(start: int, stop: int, n: int, dtype: type[np.floating]) -> sp.csr_array:
    """Rows ``start`` to ``stop`` of the n x n identity."""
    return sp.eye_array(stop - start, n, k=start, dtype=dtype, format="csr")
