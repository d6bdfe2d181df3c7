"""This machine and this process: libraries, versions, cores, memory, and amounts of it as text.

Containers limit cores and memory below what the machine has, so both are reported. ``torch``,
``sparse`` and ``special`` here are imported at first use, as they take long or may be missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import multiprocessing
import os
import platform
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil

from hoplite.errors import ConfigError

DISTRIBUTION = "hoplite-graph"
VERSION = version(DISTRIBUTION)
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
UNITS = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
RESERVE = 96 * 10**6  # bytes of threads, files and the allocator's own
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

stop_event: Any = None  # in a worker's process: the event that ends its work


def begin_worker(stop: Any) -> None:
    """Run first in a worker's process, which ends with its parent from then on.

    It is here because this module imports so little: a worker's slow imports come later.
    """
    global stop_event
    stop_event = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def without_signals(*names: str) -> Iterator[None]:
    """Block these signals, such as ``SIGINT``, in threads and processes that start within.

    This process receives them at the end of the block: another thread may get them during it, and
    Python would then interrupt the block and leave what it started behind.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # it unblocks signals, so it is first
    received: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda number, _: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [getattr(signal, name) for name in names])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import scipy.sparse as sparse
    import scipy.special as special
    import torch as torch
else:
    torch, sparse, special = _Lazy("torch"), _Lazy("scipy.sparse"), _Lazy("scipy.special")


@contextlib.contextmanager
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


@functools.cache
def source_hash() -> str:
    """12 hexadecimal digits of this package's Python files, in which two checkouts differ.

    >>> len(source_hash())
    12
    """
    digest, folder = hashlib.sha256(), Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def build() -> str:
    """Version and source in one text: equal where the same code runs."""
    return f"{VERSION} (build {source_hash()})"


def parse_bytes(value: str | int) -> int:
    """The number of bytes that ``"4GB"`` (10^9 each), ``"512MiB"`` (2^20 each) or an int means.

    >>> parse_bytes("1.5GB"), parse_bytes("1KiB"), parse_bytes(7)
    (1500000000, 1024, 7)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    amount = float(match[1]) * UNITS.get(match[2].upper() or "B", 0) if match else 0
    if not 1 <= amount < 2**63:
        raise ConfigError(
            f"is {value!r}; it must be a positive amount, e.g. 600MB, 4GB or 1.5GiB.", "memory"
        )
    return int(amount)


def format_bytes(count: float) -> str:
    """A number of bytes for people, in units of 10^3.

    >>> format_bytes(1234), format_bytes(5.6e9)
    ('1.23 kB', '5.6 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:  # which would be formatted as 1e+03
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def used_memory() -> int:
    """Bytes of physical memory that this process holds now."""
    return psutil.Process().memory_info().rss


def available_memory() -> int:
    """Bytes of physical memory that can be had now, including what the system caches of files.

    Without these, a plan would depend on how much was read before.
    """
    return psutil.virtual_memory().available


def release_memory() -> None:
    """Give freed memory that libraries keep back to the system."""
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # of the GNU C library only
        ctypes.CDLL(None).malloc_trim(0)


def free_memory(limit: str | int, needed: int, what: str) -> int:
    """Bytes of ``limit`` besides those in use and those ``needed``; ConfigError if too few.

    ``limit`` is the peak of the whole process; ``what`` is named in the error.
    """
    release_memory()
    total, held = parse_bytes(limit), used_memory() + RESERVE
    check_memory(total, held + needed, held, what)
    return total - held - needed


def check_memory(limit: int, least: int, held: int, what: str) -> None:
    """ConfigError if ``limit`` is below the ``least`` for ``what``; ``held`` bytes are in use."""
    if limit < least:
        # a little more than the least, for what the next start may hold besides
        enough = -(-int(1.05 * least) // 10**7) * 10
        raise ConfigError(
            f"is {format_bytes(limit)} but {what} needs at least {enough} MB, including "
            f"{format_bytes(held)} already in use; use {enough}MB or more.",
            "memory",
        )


def peak_memory() -> int:
    """The most physical memory that this process ever held, in bytes."""
    if match := _PEAK.search(_read(Path("/proc/self/status"))):  # without the parent's peak
        return 1024 * int(match[1])
    try:
        import resource
    except ImportError:  # Windows
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def cpu_model() -> str:
    """The name of the processor."""
    match = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def system() -> str:
    """The operating system and the type of processor."""
    return f"{platform.system()} {platform.machine()}"


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python, Hoplite and the packages that are installed."""
    known = {name: installed(name) for name in packages}
    own = {"python": platform.python_version(), "hoplite": VERSION}
    return own | {name: number for name, number in known.items() if number}


def installed(package: str) -> str | None:
    """The version of a package, None if it is not installed.

    >>> installed("no-such-package") is None
    True
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def missing_packages() -> dict[str, list[str]]:
    """The extras of Hoplite, and of each the packages that are not installed."""
    missing: dict[str, list[str]] = {}
    for text in requires(DISTRIBUTION) or []:
        match = re.match(r'([\w.-]+)(\[.*?\])?[^;]*;.*extra == "([\w-]+)"', text)
        if match and not match[2]:  # an extra that names others has none of its own
            names = missing.setdefault(match[3], [])
            names += [match[1]] if installed(match[1]) is None else []
    return missing


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_limit(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Cores' worth of time that a container allows, None if there is no limit."""
    limits = []
    for folder in _control_groups(root, own):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def memory_limit(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int | None:
    """Bytes of memory that a container allows, None if there is no limit below the machine's."""
    texts = [_read(folder / "memory.max") for folder in _control_groups(root, own)]
    limit = min((int(text) for text in texts if text.isdigit()), default=None)
    return limit if limit is not None and limit < psutil.virtual_memory().total else None


def _control_groups(root: Path, own: Path) -> list[Path]:
    """The folders of this process's control group (version 2) and of those above it."""
    match = re.search("^0::/(.*)$", _read(own), re.MULTILINE)
    place = root / match[1] if match else root
    return [folder for folder in (place, *place.parents) if folder.is_relative_to(root)]


def _read(path: Path) -> str:
    """The text of a file of the system; empty if it does not exist."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
