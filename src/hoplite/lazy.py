"""torch, imported at its first use: models are listed, and settings checked, without it.

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
