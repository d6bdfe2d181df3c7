"""The machine that something was measured on: CPU, memory bandwidth and the versions at work."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import torch

from hoplite.lab.bench.measure import Contestant, Effort, interleave, timed, using_threads
from hoplite.propagation.backend import native

PACKAGES = ("hoplite", "torch", "numpy", "scipy", "torch_geometric", "dgl")
TRIAD_FLOATS = 2**25  # 128 MiB an array: far larger than the caches
QUIET = 0.1  # others may use this share of the CPU without being told of


@dataclass(frozen=True)
class Machine:
    """What is known of it, and nothing personal; None for what nobody told."""

    cpu: str | None = None
    cores: int | None = None
    threads: int | None = None
    memory_gb: float | None = None
    busy_before: float | None = None  # the share of all cores that others used, 0 to 1
    bandwidth_gb_s: float | None = None
    kernels: str | None = None
    system: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """Whether others used so much of it that times mean little."""
        return self.busy_before is not None and self.busy_before > QUIET


def describe(threads: int, floats: int = TRIAD_FLOATS) -> Machine:
    """This machine; measuring it takes a second."""
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count(),
        threads=threads,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        busy_before=round(psutil.cpu_percent(interval=0.5) / 100, 3),
        bandwidth_gb_s=triad_bandwidth(threads, floats) / 1e9,
        kernels="torch" if native is None else f"native, {native.architecture()}",
        system=f"{platform.system()} {platform.machine()}",
        versions={"python": platform.python_version(), **_versions()},
    )


def triad_bandwidth(threads: int, floats: int = TRIAD_FLOATS) -> float:
    """Bytes per second of ``a = b + s * c`` on float32, as STREAM counts: 12 bytes an element.

    The best of five, again as STREAM: interruptions only ever make it slower.
    """
    a, b, c = (torch.ones(floats) for _ in range(3))
    triad = Contestant("triad", timed(lambda: torch.add(b, c, alpha=3.0, out=a)))
    with using_threads(threads):
        samples = interleave([triad], Effort(5), lambda what, share: None)
    return 12 * floats / samples.fastest("triad")


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()
