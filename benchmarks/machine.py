"""The machine that something was measured on: CPU, memory bandwidth and versions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import torch

from benchmarks.measure import Contestant, Effort, race, timed
from hoplite.engine.backend import kernels
from hoplite.machine import build, cpu_model, system, versions

PACKAGES = ("torch", "numpy", "scipy", "torch_geometric")
TRIAD_FLOATS = 2**25  # 128 MiB an array: far larger than the caches
QUIET = 0.1  # other programs may use this share of the CPU before times mean little


@dataclass(frozen=True)
class Machine:
    """What is known of it; None where it is unknown."""

    cpu: str | None = None
    cores: int | None = None
    threads: int | None = None
    memory_gb: float | None = None
    busy_before: float | None = None  # the share of all cores that other programs used, 0 to 1
    bandwidth_gb_s: float | None = None
    kernels: str | None = None
    system: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """All but the versions, in one line.

        >>> Machine("Xeon", cores=2, bandwidth_gb_s=32.1).line
        'Xeon, 2 cores, 32.1 GB/s measured (triad)'
        """
        known = (
            (self.cpu, "{}"),
            (self.cores, "{} cores"),
            (self.threads, "{} threads used"),
            (self.memory_gb, "{:g} GB of memory"),
            (self.bandwidth_gb_s, "{:.1f} GB/s measured (triad)"),
            (self.system, "{}"),
            (self.kernels, "kernels: {}"),
        )
        return ", ".join(text.format(value) for value, text in known if value is not None)


class OtherPrograms:
    """How much of the CPU other programs use while something is measured.

    It is what all processors worked, less what this process and its finished children did.
    """

    def __init__(self, read: Callable[[], tuple[float, float, float]] | None = None) -> None:
        self._read = read or _processor_seconds
        self._start = self._read()

    def share(self) -> float:
        """Of all cores, since this object was made: 0 to 1.

        >>> counts = iter([(100.0, 40.0, 10.0), (120.0, 55.0, 20.0)])
        >>> OtherPrograms(lambda: next(counts)).share()  # of 20 s, 15 at work, 10 of them ours
        0.25
        """
        whole, worked, own = (b - a for a, b in zip(self._start, self._read(), strict=True))
        return round(min(max((worked - own) / whole, 0.0), 1.0), 3) if whole > 0 else 0.0


def _processor_seconds() -> tuple[float, float, float]:
    """Seconds of all cores since the start: all, those at work, and those of this process."""
    times = psutil.cpu_times()._asdict()
    whole = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
    resting = times["idle"] + times.get("iowait", 0.0)  # a guest's time is the user's, too
    return whole, whole - resting, sum(psutil.Process().cpu_times()[:4])


def describe(threads: int, floats: int | None = TRIAD_FLOATS) -> Machine:
    """This machine; its bandwidth is measured unless ``floats`` is None."""
    return Machine(
        cpu=cpu_model(),
        cores=os.cpu_count(),
        threads=threads,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        busy_before=round(psutil.cpu_percent(interval=0.5) / 100, 3),
        bandwidth_gb_s=None if floats is None else triad_bandwidth(threads, floats) / 1e9,
        kernels=kernels(),
        system=system(),
        versions=versions(PACKAGES),
    )


def made_by() -> str:
    """The version of Hoplite and this machine, for files of results."""
    return f"Hoplite {build()} on {Machine(cpu_model(), os.cpu_count(), system=system()).line}"


def triad_bandwidth(threads: int, floats: int = TRIAD_FLOATS) -> float:
    """Bytes per second of ``a = b + s * c`` on float32, as STREAM counts: 12 bytes an element.

    The best of five, as STREAM takes it: interruptions only make it slower.
    """
    a, b, c = (torch.ones(floats) for _ in range(3))
    triad = Contestant("triad", timed(lambda: torch.add(b, c, alpha=3.0, out=a)))
    return 12 * floats / race([triad], Effort(5), threads).fastest("triad")
