"""`many`: two runs of LGC on Cora at once, in a thread each, against one run on one thread.

`grid`: the paper's whole grid of LGC on Cora by `hoplite search`: 27 configurations x 7 degrees x
5 seeds, with early stopping.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from hoplite.lab.bench.child import run
from hoplite.lab.bench.measure import Contestant, Context, Effort, Figure, Goal, Outcome, timed
from hoplite.lab.bench.training import Trainer

ONE, TWO = "one run, 1 thread", "two runs"
THROUGHPUT = 1.8


@dataclass(frozen=True)
class ManySize:
    """Hops, the epochs of a sample, and the effort."""

    hops: int
    epochs: int
    effort: Effort


QUICK = ManySize(20, 50, Effort(3, 5))
FULL = ManySize(20, 500, Effort(9, 120))


def run_many(context: Context, size: ManySize) -> Outcome:
    """Time a run alone and two runs at once, per run and epoch."""
    trainer = Trainer(context.load("cora"), "lgc", hops=size.hops)
    alone = timed(lambda: trainer.train(size.epochs))
    together = timed(lambda: trainer.train(size.epochs, seeds=2))
    samples = context.race(
        [
            Contestant(ONE, lambda: alone() / size.epochs, threads=1),
            Contestant(TWO, lambda: together() / (2 * size.epochs), threads=2),
        ],
        size.effort,
    )
    case = f"two runs of lgc at once, {size.hops} hops, 2 threads, per run and epoch"
    return Outcome(
        [samples.figure(case, TWO, ONE, goal=Goal.ratio_at_least(THROUGHPUT))],
        [f"{size.epochs} epochs without early stopping; the first ones set up what runs share."],
    )


@dataclass(frozen=True)
class GridSize:
    """A search of a grid, of which ``samples`` configurations may be drawn."""

    seeds: int = 5
    samples: int | None = None
    epochs: int | None = None
    seconds: float | None = 140.0  # the goal
    grid: str = "paper"


GRID = GridSize()


def run_grid(context: Context, size: GridSize) -> Outcome:
    """The wall time of the command, from the start of its process to its end."""
    context.report("hoplite search", 0.0)
    words = ["search", "cora", "--model", "lgc", "--grid", size.grid, "--seeds", str(size.seeds)]
    words += ["--workers", str(context.threads), "--out", str(context.folder / "grid"), "--json"]
    for name in ("samples", "epochs"):
        value = getattr(size, name)
        words += [] if value is None else [f"--{name}", str(value)]
    started = time.perf_counter()
    found = run([sys.executable, "-m", "hoplite", *words])
    seconds = time.perf_counter() - started
    goal = None if size.seconds is None else Goal.at_most(size.seconds, "s")
    runs, best = found["runs"], found["config"]
    names = ("hops", "lr", "weight_decay", "dropout")
    chosen = ", ".join(f"{name} {best[name]:g}" for name in names)
    return Outcome(
        [
            Figure(f"{runs} runs of lgc by `hoplite search`", seconds, "s", goal=goal),
            Figure("per run", 1e3 * seconds / runs, "ms"),
        ],
        [
            f"with {context.threads} workers, which worked {found['cpu_minutes']:.2f} minutes "
            f"together; best mean validation accuracy {found['val_mean']:.1%}: {chosen}."
        ],
        {"seconds": seconds, "runs": float(runs)},
    )
