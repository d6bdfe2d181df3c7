"""torch and SciPy, imported at first use: models are listed, and settings checked, without them.

if TYPE_CHECKING:
    import torch
else:
    from hoplite.lazy import torch
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)  # at hand from now on
        return found


torch = _Lazy("torch")
sparse = _Lazy("scipy.sparse")
special = _Lazy("scipy.special")
