"""Amounts of memory: as people write them, and as this process uses them."""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from pathlib import Path

import psutil
import pyarrow as pa

from hoplite.errors import ConfigError

UNITS = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
RESERVE = 96 * 10**6  # bytes of threads, files and the allocator's own
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: str | int, argument: str = "memory") -> int:
    """The number of bytes that ``"4GB"`` (10^9 each), ``"512MiB"`` (2^20 each) or an int means.

    >>> parse_bytes("1.5GB"), parse_bytes("1KiB"), parse_bytes(7)
    (1500000000, 1024, 7)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    unit = (found[2].upper() or "B") if found else ""
    amount = float(found[1]) * UNITS.get(unit, 0) if found else 0
    if not 1 <= amount < 2**63:
        raise ConfigError(
            f"{argument} is {value!r}; give an amount such as 600MB, 4GB or 1.5GiB, above 0."
        )
    return int(amount)


def show_bytes(count: float) -> str:
    """A number of bytes for people, in units of 10^3.

    >>> show_bytes(1234), show_bytes(5.6e9)
    ('1.23 kB', '5.6 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:  # which would be shown as 1e+03
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def used_memory() -> int:
    """Bytes of physical memory that this process holds now."""
    return psutil.Process().memory_info().rss


def release_memory() -> None:
    """Give back to the system what this process has freed, where its libraries keep it."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # of the GNU C library only
        ctypes.CDLL(None).malloc_trim(0)


def free_memory(limit: str | int, needed: int, what: str) -> int:
    """Bytes of ``limit`` besides those in use and those ``needed``; ConfigError if too few.

    ``limit`` is the peak of the whole process; ``what`` is named in the error.
    """
    release_memory()
    total, held = parse_bytes(limit), used_memory() + RESERVE
    if total < held + needed:
        enough = -(-int(1.05 * (held + needed)) // 10**7) * 10
        raise ConfigError(
            f"memory is {show_bytes(total)} but {what} needs {enough} MB at least, and "
            f"{show_bytes(held)} of it are in use already; give --memory {enough}MB or more."
        )
    return total - held - needed


def peak_memory() -> int:
    """The most physical memory that this process ever held, in bytes."""
    with contextlib.suppress(OSError):  # where it exists, the parent's peak is not in it
        found = _PEAK.search(Path("/proc/self/status").read_text(encoding="ascii"))
        if found:
            return 1024 * int(found[1])
    try:
        import resource
    except ImportError:  # Windows tells it of itself, other systems not at all
        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
