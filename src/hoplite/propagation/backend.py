"""Which code multiplies: the C++ core where it was built, torch elsewhere and for other devices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType

import torch  # before the C++ core, so that both share torch's OpenMP threads
from torch import Tensor

from hoplite.config import check_number
from hoplite.errors import ConfigError, check_choice

native: ModuleType | None
try:
    from hoplite import _native as native
except ImportError:  # built without a compiler (HOPLITE_NO_NATIVE=1)
    native = None

MOST_THREADS = 1024
SHARED_ELEMENTS = 1 << 17  # from this size on a signal is worth a second thread
_chosen: ContextVar[str] = ContextVar("hoplite_backend", default="auto")
_core_threads: ContextVar[int] = ContextVar("hoplite_core_threads", default=0)  # 0: torch's
_forked = False


def _after_fork() -> None:
    """OpenMP waits for ever for threads that a fork has not copied: work on with this one alone."""
    global _forked
    _forked = True
    torch.set_num_threads(1)


def may_use_threads() -> None:
    """Say, in a forked process, that its parent has never had a thread of OpenMP."""
    global _forked
    _forked = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def has_native() -> bool:
    """Whether the C++ core was built and can be used."""
    return native is not None


def kernels() -> str:
    """What multiplies: the C++ core, with the instructions of the processor that it uses, or torch.

    >>> kernels().split(",")[0] in ("native", "torch")
    True
    """
    return "torch" if native is None else f"native, {native.architecture()}"


def set_num_threads(threads: int) -> None:
    """Let the C++ core and torch, which share their threads, use at most ``threads`` of them.

    A process that ``os.fork()`` made, also by way of multiprocessing's "fork", stays with one,
    since the threads of its parent are not in it; one that was spawned is free to choose.
    """
    check_number("threads", threads, 1, MOST_THREADS, whole=True)
    torch.set_num_threads(1 if _forked else int(threads))


def get_num_threads() -> int:
    """Threads of the C++ core and torch: at first ``OMP_NUM_THREADS`` or the number of cores."""
    return 1 if _forked else _core_threads.get() or torch.get_num_threads()


@contextmanager
def threads_for(elements: int) -> Iterator[None]:
    """One thread of torch within the block if its tensors have few elements, else as many as set.

    Training on a small graph is a long chain of short operations. Sharing each with a second
    thread gains nothing, and on a busy machine waiting for that thread takes most of the time.
    The C++ core keeps its threads: it knows the work of a product, and goes on alone where the
    others come late.
    """
    before = torch.get_num_threads()
    if elements >= SHARED_ELEMENTS or before == 1:
        yield
        return
    token = _core_threads.set(get_num_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _core_threads.reset(token)


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
