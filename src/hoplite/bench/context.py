"""What every benchmark is given besides its size."""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.bench.records import Report


@dataclass(frozen=True)
class Context:
    """Threads to use, the memory bandwidth measured with them (B/s), and where to tell progress."""

    threads: int
    bandwidth: float
    report: Report = lambda what, share: None
