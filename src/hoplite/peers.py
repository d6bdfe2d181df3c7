"""The peers, where they are installed, and the one place that silences their warnings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block peers may warn of their own future: it is not ours to change.

    PyTorch Geometric still calls torch.jit.script, which torch calls deprecated, and uses CSR
    tensors, which torch calls beta.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def find(module: str) -> ModuleType | None:
    """The imported module, or None if it is not installed or does not load with this torch."""
    try:
        with quiet():
            return import_module(module)
    except (ImportError, OSError):  # OSError: its compiled part was built for another torch
        return None
