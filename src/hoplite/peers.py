"""The peers, where they are installed, and the one place that silences their warnings."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block peers may warn of their own future: it is not ours to change.

    PyTorch Geometric still calls torch.jit.script, which torch calls deprecated, and uses CSR
    tensors, which torch calls beta.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def quietly(work: Callable[[], Any]) -> Callable[[], Any]:
    """``work`` without a peer's warnings."""

    def silent() -> Any:
        with quiet():
            return work()

    return silent


def find(module: str) -> ModuleType | None:
    """The imported module, or None if it is not installed or does not load with this torch."""
    try:
        with quiet():
            return import_module(module)
    except (ImportError, OSError):  # OSError: its compiled part was built for another torch
        return None


def missing_note(package: str) -> str:
    """The note that stands for the figures of a peer that could not be asked."""
    return f"{package} is not installed (or does not load), so it was not measured."


def dgl_product(matrix: sp.csr_array, X: Tensor) -> Callable[[], Tensor] | None:
    """S @ X by DGL's sparse product, or None without DGL."""
    sparse = find("dgl.sparse")
    if sparse is None:
        return None
    parts = [torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data)]
    indptr, indices, values = parts
    S = sparse.from_csr(indptr.long(), indices.long(), values, shape=matrix.shape)
    return quietly(lambda: sparse.spmm(S, X))
