"""From the shell.

`command`  the wall time of `hoplite train cora --seeds 1`, from start to end of its process, and
           the size of the core installation, which `make wheel` measured
`grid`     the paper's whole grid of LGC on Cora by `hoplite search`: 27 configurations x 7 degrees
           x 5 seeds, with early stopping
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.child import completed
from benchmarks.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed

TRAIN = "hoplite train cora --seeds 1"
IMPORTS = "its imports alone"
WHEEL = Path(__file__).parents[1] / "results" / "wheel.json"


def run(context: Context, wheel: Path = WHEEL) -> Outcome:
    """Time the command and its imports in turn, and read the size of the installation."""
    samples = context.race(
        [
            Contestant(TRAIN, _process("-m", *TRAIN.split())),
            Contestant(IMPORTS, _process("-c", "import hoplite.training")),
        ],
        Effort(3, 10) if context.quick else Effort(9, 60),
    )
    figures = [
        Figure(f"`{TRAIN}`", samples.median(TRAIN), "s", goal=Goal.at_most(1.5, "s")),
        Figure(IMPORTS, samples.median(IMPORTS), "s"),
    ]
    if not wheel.exists():
        return Outcome(figures, [f"no {wheel.name} here: `make wheel` measures the installation."])
    measured = json.loads(wheel.read_text(encoding="utf-8"))
    size = measured["core"]["bytes"] / 1e6
    figures.append(Figure("core installation", size, "MB", goal=Goal.at_most(600, "MB")))
    return Outcome(figures, [f"the installation is that of hoplite {measured['hoplite']}."])


def _process(*words: str) -> Callable[[], float]:
    """A sample: the seconds of a process of this Python."""
    return timed(lambda: completed([sys.executable, *words]))


def grid(context: Context) -> Outcome:
    """The wall time of the search, from the start of its process to its end."""
    context.report("hoplite search")
    words = ["search", "cora", "--model", "lgc", "--grid", "paper", "--seeds", "5", "--json"]
    words += ["--workers", str(context.threads), "--out", str(context.folder / "grid")]
    started = time.perf_counter()
    found = json.loads(completed([sys.executable, "-m", "hoplite", *words]).stdout)
    seconds, trials = time.perf_counter() - started, found["trials"]
    case, goal = f"{trials} trials of lgc by `hoplite search`", Goal.at_most(140.0, "s")
    note = f"with {context.threads} workers; best mean validation accuracy {found['val_mean']:.1%}."
    return Outcome(
        [
            Figure(case, seconds, "s", goal=goal),
            Figure("per trial", 1e3 * seconds / trials, "ms"),
        ],
        [note],
    )
