"""`command`: the wall time of `hoplite train cora --seeds 1`, from start to end of its process, and
the size of the core installation, which `make wheel` measured.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hoplite.json_files import read_json
from hoplite.lab.bench.child import completed
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed

TRAIN = "hoplite train cora --seeds 1"
IMPORTS = "its imports alone"
WHEEL = Path("results") / "wheel.json"  # below the current folder, that of the repository


@dataclass(frozen=True)
class CommandSize:
    """The effort, and the goals: seconds of the command, and megabytes of the installation."""

    effort: Effort
    seconds: float = 1.5
    megabytes: float = 600.0
    wheel: Path = WHEEL


QUICK = CommandSize(Effort(3, 10))
FULL = CommandSize(Effort(9, 60))


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel and what it needs."""

    bytes: int


@dataclass(frozen=True)
class Wheel:
    """What the benchmark reads of the file that `make wheel` writes."""

    core: Installation
    hoplite: str = ""


def run(context: Context, size: CommandSize) -> Outcome:
    """Time the command and its imports in turn, and read the sizes."""
    samples = context.race(
        [
            Contestant(TRAIN, _process("-m", *TRAIN.split())),
            Contestant(IMPORTS, _process("-c", "import hoplite.training")),
        ],
        size.effort,
    )
    figures = [
        Figure(
            f"`{TRAIN}`", samples.median(TRAIN), "s", goal=Goal.at_most(size.seconds, "s"),
            rounds=samples.rounds,
        ),
        Figure(IMPORTS, samples.median(IMPORTS), "s", rounds=samples.rounds),
    ]  # fmt: skip
    try:
        wheel = read_json(size.wheel, Wheel)
    except (OSError, ValueError):
        return Outcome(figures, [f"no {size.wheel} here: `make wheel` measures the installation."])
    goal = Goal.at_most(size.megabytes, "MB")
    figures.append(Figure("core installation", wheel.core.bytes / 1e6, "MB", goal=goal))
    return Outcome(figures, [f"the installation is that of {size.wheel}, hoplite {wheel.hoplite}."])


def _process(*words: str) -> Callable[[], float]:
    """A sample: the seconds of a process of this Python."""
    return timed(lambda: completed([sys.executable, *words]))
