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
        return getattr(import_module(self.__name__), name)


torch = _Lazy("torch")
