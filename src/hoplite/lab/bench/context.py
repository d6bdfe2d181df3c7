"""What every benchmark is given besides its size."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hoplite.lab.bench.records import Report


@dataclass(frozen=True)
class Context:
    """Threads, the memory bandwidth measured with them (B/s), where to tell progress and to write.

    ``folder`` is for large files, which later benchmarks of the run may use.
    """

    threads: int
    bandwidth: float
    report: Report = lambda what, share: None
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
