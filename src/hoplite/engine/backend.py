"""Which code computes, the C++ core or NumPy and SciPy, and on how many threads.

Dense products have bits that depend on nothing but their operands: BLAS runs on one thread
(:data:`one_blas_thread`), large operands are cut into ranges of rows that depend on their shape
alone, the engine's threads share the ranges, and sums over them are taken in their order.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from hoplite.config import check_number
from hoplite.errors import ConfigError, check_choice
from hoplite.machine import usable_cores

INTERFACE = 3  # version of the functions in native/module.cpp
native: ModuleType | None
try:
    from hoplite import _native as native
except ImportError:  # built without a compiler (HOPLITE_NO_NATIVE=1)
    native = None
if native is not None and getattr(native, "INTERFACE", 1) != INTERFACE:
    raise ImportError(
        "hoplite._native was built from other sources; rebuild it with `pip install -e .`"
    )

MAX_THREADS = 1024
RANGE_NUMBERS = 1 << 20  # numbers of the left operand of a dense product in a range of rows
Item = TypeVar("Item")
Result = TypeVar("Result")
_backend: ContextVar[str] = ContextVar("hoplite_backend", default="auto")
_threads_here: ContextVar[int] = ContextVar("hoplite_threads", default=0)  # 0: the process's
_threads = 0  # threads of the process; 0: OMP_NUM_THREADS or the number of cores


def has_native() -> bool:
    """Whether the C++ core was built and can be used."""
    return native is not None


def kernels() -> str:
    """The code that computes: the C++ core with its instruction set, or NumPy.

    >>> kernels().split(",")[0] in ("native", "numpy")
    True
    """
    return "numpy" if native is None else f"native, {native.architecture()}"


def set_num_threads(threads: int) -> None:
    """Limit the threads of the kernels; results do not depend on their number.

    Parameters
    ----------
    threads : int
        Maximum number of threads, 1 or more.

    Examples
    --------
    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    global _threads
    check_number("threads", threads, 1, MAX_THREADS, whole=True)
    _threads = int(threads)


def get_num_threads() -> int:
    """Threads of the engine: as set, else ``OMP_NUM_THREADS`` or the number of usable cores."""
    return _threads_here.get() or _threads or _default_threads()


@lru_cache(maxsize=1)
def _default_threads() -> int:
    text = os.environ.get("OMP_NUM_THREADS", "")
    if text.isascii() and text.isdigit() and int(text):
        return min(int(text), MAX_THREADS)
    return usable_cores()


@contextmanager
def _within(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def use_threads(threads: int) -> AbstractContextManager[None]:
    """Within the block, calls from this thread use at most ``threads`` threads; 0 for all."""
    return _within(_threads_here, threads)


def use_backend(name: str) -> AbstractContextManager[None]:
    """Choose ``"native"``, ``"numpy"`` or ``"auto"`` (native where it was built) within a block.

    >>> with use_backend("numpy"):
    ...     uses_native()
    False
    """
    check_choice("backend", name, ["auto", "native", "numpy"])
    if name == "native" and native is None:
        raise ConfigError(
            "backend is 'native' but Hoplite was installed without its C++ core; "
            "reinstall it with a C++ compiler present, or use 'auto'."
        )
    return _within(_backend, name)


def uses_native() -> bool:
    """Whether the C++ core computes."""
    return native is not None and _backend.get() != "numpy"


class _OneBlasThread:
    """Counts the blocks that want BLAS on one thread; the last one to leave restores it."""

    def __init__(self) -> None:
        self._lock, self._blocks, self._limits = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                _let_this_thread_limit_blas()
                self._limits = _controller().limit(limits=1, user_api="blas")
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks and self._limits is not None:
                _let_this_thread_limit_blas()
                self._limits.restore_original_limits()


# ``with one_blas_thread:`` keeps dense products on the calling thread, so that their bits do not
# depend on the number of cores, and runs in several threads do not compete.
one_blas_thread = _OneBlasThread()


@lru_cache(maxsize=1)
def _controller():
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _let_this_thread_limit_blas() -> None:
    """threadpoolctl 3.8 ignores limits of any thread but the first, until that one is cleared."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


@lru_cache(maxsize=4)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """The threads that large products share; a forked process has its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hoplite")


def row_ranges(rows: int, columns: int, numbers: int | None = None) -> list[slice]:
    """Ranges of rows of about so many ``numbers`` each, 2^20 by default.

    >>> row_ranges(3, 1 << 19)
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(1, (numbers or RANGE_NUMBERS) // max(columns, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def each_range(work: Callable[[slice], Result], rows: int, columns: int) -> Iterator[Result]:
    """``work`` of every range of rows, on the engine's threads; the results in order."""
    if rows * columns <= RANGE_NUMBERS:
        with one_blas_thread:
            yield work(slice(0, rows))
        return
    threads = get_num_threads()
    with one_blas_thread:
        yield from in_order(work, row_ranges(rows, columns), threads, 2 * threads)


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int
) -> Iterator[Result]:
    """``work`` of every item on so many threads; the results in order, at most ``ahead`` begun."""
    if threads == 1:
        yield from map(work, items)
        return
    pool, waiting = _pool(threads, os.getpid()), deque[Future[Result]]()
    try:
        for item in items:
            if len(waiting) == ahead:
                yield waiting.popleft().result()
            waiting.append(pool.submit(copy_context().run, work, item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def product(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """``left @ right``: (rows, d) and (d, m) -> (rows, m)."""
    if out is None:
        out = np.empty((left.shape[0], right.shape[1]), left.dtype)

    def work(part: slice) -> None:
        np.matmul(left[part], right, out=out[part])

    for _ in each_range(work, *left.shape):
        pass
    return out


def transposed_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left.T @ right``: (rows, d) and (rows, m) -> (d, m), summed over the ranges in order."""
    total: np.ndarray | None = None
    for part in each_range(lambda rows: left[rows].T @ right[rows], *left.shape):
        total = part if total is None else np.add(total, part, out=total)
    return np.zeros((left.shape[1], right.shape[1]), left.dtype) if total is None else total
