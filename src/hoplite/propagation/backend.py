"""Which code multiplies: the C++ core where it was built, torch elsewhere and for other devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch  # before the C++ core, so that both share torch's OpenMP threads
from torch import Tensor

from hoplite.errors import ConfigError, check_choice

native: ModuleType | None
try:
    from hoplite import _native as native
except ImportError:  # built without a compiler (HOPLITE_NO_NATIVE=1)
    native = None

_chosen: ContextVar[str] = ContextVar("hoplite_backend", default="auto")
_threads: int | None = None


def has_native() -> bool:
    """Whether the C++ core was built and can be used."""
    return native is not None


def set_num_threads(threads: int | None) -> None:
    """Let the C++ core use at most ``threads`` threads; ``None`` follows torch again."""
    global _threads
    if threads is not None and (isinstance(threads, bool) or int(threads) != threads):
        raise ConfigError(f"threads is {threads!r}; pass a whole number or None.")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; at least one thread is needed.")
    _threads = None if threads is None else int(threads)


def get_num_threads() -> int:
    """Threads of the C++ core.

    Unless :func:`set_num_threads` was called this is ``torch.get_num_threads()``, which starts
    from ``OMP_NUM_THREADS`` or the number of cores.
    """
    return torch.get_num_threads() if _threads is None else _threads


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose ``"native"``, ``"torch"`` or ``"auto"`` (native where possible) within a block.

    >>> with use_backend("torch"):
    ...     uses_native(torch.zeros(1))
    False
    """
    check_choice("backend", name, ["auto", "native", "torch"])
    if name == "native" and native is None:
        raise ConfigError(
            "backend is 'native' but Hoplite was installed without its C++ core; "
            "reinstall it with a C++ compiler present, or use 'auto'."
        )
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def uses_native(tensor: Tensor) -> bool:
    """Whether the C++ core handles operands like this one: on the CPU, float32 or float64."""
    return (
        native is not None
        and tensor.is_cpu
        and tensor.dtype in (torch.float32, torch.float64)
        and _chosen.get() != "torch"
    )
