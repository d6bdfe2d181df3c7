"""The peak memory of one product, measured in a process of its own.

A process that has worked before keeps freed memory and reuses it, which would hide what the product
needs. So a child loads the matrix, makes X, and only then resets and reads its own high-water mark.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.errors import HopliteError
from hoplite.lab.bench.child import ask

_PARTS = ("indptr", "indices", "data")  # of a CSR matrix


def peak_share(matrix: sp.csr_array, columns: int, threads: int) -> float | None:
    """(inputs + what the product added at its peak) / (inputs + output); 1.0 is the least possible.

    Inputs are the CSR arrays and X. The product starts from the SciPy matrix, so it includes
    Hoplite's checks of it. None where the system does not tell a process's peak.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in _PARTS:
            np.save(Path(folder) / f"{name}.npy", getattr(matrix, name))
        growth = ask("product_growth", folder=folder, columns=columns, threads=threads)["growth"]
    if growth is None:
        return None
    inputs = sum(getattr(matrix, name).nbytes for name in _PARTS) + 4 * matrix.shape[1] * columns
    return (inputs + growth) / (inputs + 4 * matrix.shape[0] * columns)


def product_growth(matrix: sp.csr_array, columns: int) -> int | None:
    """Bytes by which this process grows, at its peak, in a product with ``columns`` columns."""
    import torch

    from hoplite.propagation.spmm import SparseMatrix, spmm

    X = torch.rand(matrix.shape[1], columns)
    # a first, tiny product starts the threads, whose stacks belong to no product
    spmm(SparseMatrix.from_scipy(sp.eye_array(8, dtype=np.float32).tocsr()), torch.rand(8, columns))
    if not _reset_peak():
        return None
    before = _status("VmRSS")
    Y = spmm(SparseMatrix.from_scipy(matrix), X)
    growth = _status("VmHWM") - before
    del Y
    return growth


def _reset_peak() -> bool:
    """Set the high-water mark to the present size; only Linux can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise HopliteError(f"the system does not tell {name} of a process.")
    return 1024 * int(found.group(1))


def read_matrix(folder: str) -> sp.csr_array:
    """The matrix that :func:`peak_share` wrote."""
    indptr, indices, data = (np.load(Path(folder) / f"{name}.npy") for name in _PARTS)
    nodes = len(indptr) - 1
    return sp.csr_array((data, indices, indptr), shape=(nodes, nodes))
