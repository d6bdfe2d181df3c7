"""Libraries that may be missing, or that take long to import.

``torch``, ``sparse`` and ``special`` here are imported at first use::

    if TYPE_CHECKING:
        import torch
    else:
        from hoplite.optional_deps import torch
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


torch = _Lazy("torch")
sparse = _Lazy("scipy.sparse")
special = _Lazy("scipy.special")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of other libraries about their own future.

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
