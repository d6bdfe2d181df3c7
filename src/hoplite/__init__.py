"""Hoplite: linear graph convolutions, fast on a CPU, whose predictions are exact sums of terms.

The public names are those that ``__init__.pyi`` imports. Each is imported at its first use, so that
``import hoplite`` and ``hoplite --help`` do not wait for SciPy and scikit-learn.

The log has the name ``hoplite``, and is silent unless you configure ``logging``.
"""

# ruff: noqa: E402  (the handler comes before the slower imports)
import os
import signal
import sys

_COMMAND = [name.rpartition(os.sep)[2] for name in sys.argv[:1]]
if (
    _COMMAND == ["hoplite"] or (_COMMAND == ["-m"] and "hoplite" in sys.orig_argv)
) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # The command line: Ctrl-C ends it without a traceback until its main has handlers
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))

import ast
import logging
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

logging.getLogger("hoplite").addHandler(logging.NullHandler())

_MODULES = {
    alias.name: str(node.module)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_bytes()).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("hoplite.machine").VERSION
    if name not in _MODULES:
        raise AttributeError(f"module 'hoplite' has no attribute {name!r}")
    module = _MODULES[name]
    if module == "hoplite":  # a module of the package
        return import_module(f"hoplite.{name}")
    globals()[name] = value = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


class _Package(ModuleType):
    """Keeps ``hoplite.search`` the function when Python imports the package of that name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "search" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
