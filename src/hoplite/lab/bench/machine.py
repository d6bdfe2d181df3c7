"""The machine that a benchmark ran on: its CPU, memory bandwidth and the versions at work."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from hoplite.lab.bench.measure import Contestant, Effort, interleave, timed, using_threads
from hoplite.propagation.backend import native

PACKAGES = ("hoplite", "torch", "numpy", "scipy", "torch_geometric", "dgl")
TRIAD_FLOATS = 2**25  # 128 MiB an array: far larger than the caches


def describe(threads: int, floats: int = TRIAD_FLOATS) -> dict[str, Any]:
    """CPU, cores, threads, memory, measured bandwidth, kernels and versions; nothing personal."""
    busy = busy_share()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gb": _round(_meminfo("MemTotal")),
        "busy_before": None if busy is None else round(busy, 3),
        "bandwidth_gb_s": triad_bandwidth(threads, floats) / 1e9,
        "kernels": "torch" if native is None else f"native, {native.architecture()}",
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **_versions()},
    }


def triad_bandwidth(threads: int, floats: int = TRIAD_FLOATS) -> float:
    """Bytes per second of ``a = b + s * c`` on float32, as STREAM counts: 12 bytes an element.

    The best of five, again as STREAM: interruptions only ever make it slower.
    """
    a, b, c = (torch.ones(floats) for _ in range(3))
    triad = Contestant("triad", timed(lambda: torch.add(b, c, alpha=3.0, out=a)))
    with using_threads(threads):
        samples = interleave([triad], Effort(5), lambda what, share: None)
    return 12 * floats / min(samples.seconds["triad"])


def busy_share(seconds: float = 0.5) -> float | None:
    """The share of all cores that others use right now, 0 to 1; None where nobody tells."""
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def available_memory() -> int | None:
    """Bytes that can still be allocated; None where the system does not say."""
    return _meminfo("MemAvailable")


def _versions() -> dict[str, str]:
    found = {package: _version(package) for package in PACKAGES}
    return {package: number for package, number in found.items() if number is not None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _cpu_ticks() -> tuple[int, int] | None:
    """Idle and total time of all cores since the start of the system."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    ticks = [int(field) for field in first.split()[1:9]]  # the rest is counted in these already
    return ticks[3] + ticks[4], sum(ticks)


def _meminfo(name: str) -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 1024 * int(found.group(1)) if found else None


def _round(size: int | None) -> float | None:
    return None if size is None else round(size / 1e9, 1)
