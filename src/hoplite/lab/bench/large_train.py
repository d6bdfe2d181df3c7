"""`large-train`: the paper's Reddit setting of LGC, from a store: L-BFGS, bias, standardised."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any

from hoplite.lab.bench.child import ask, run
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.large import graph_folder
from hoplite.lab.bench.records import Figure, Goal, Outcome

SETTING = ("--optimizer", "lbfgs", "--bias", "--standardize", "--lr", "1", "--weight-decay", "0")


@dataclass(frozen=True)
class TrainSize:
    """``reddit-like`` at a scale, the models, and for the first the minutes that are allowed."""

    scale: float
    hops: int
    epochs: int
    memory: int
    models: tuple[str, ...] = ("lgc",)
    minutes: float | None = None


QUICK = TrainSize(0.01, 4, 3, 10**9, ("sgc", "egc", "lgc", "hlgc"))
FULL = TrainSize(1.0, 4, 25, 4 * 10**9, ("lgc",), minutes=15)


def run_training(context: Context, size: TrainSize) -> Outcome:
    """A store, then complete trainings by the command."""
    folder, out = graph_folder(context, size.scale), context.folder / "store"
    context.report("the hops", 0.05)
    task: dict[str, Any] = {"hops": size.hops, "memory": size.memory, "threads": context.threads}
    made = ask("store", folder=str(folder), out=str(out), **task)
    figures = [Figure(f"{size.hops} hops on disk", made["seconds"] / 60, "min")]
    notes = []
    for number, model in enumerate(size.models):
        context.report(f"training {model}", 0.1 + 0.9 * number / len(size.models))
        words = ["train", str(out), "--model", model, *SETTING, "--epochs", str(size.epochs)]
        words += ["--patience", str(size.epochs), "--seeds", "1", "--memory", f"{size.memory}B"]
        words += ["--threads", str(context.threads), "--json"]
        started = time.perf_counter()
        found = run([sys.executable, "-m", "hoplite", *words])
        seconds = time.perf_counter() - started
        goal = None if size.minutes is None or number else Goal.at_most(size.minutes, "min")
        epochs = found["runs"][0]["epochs"]
        what = f"{model} with L-BFGS, {size.hops} hops, {epochs} epochs"
        figures.append(Figure(what, seconds / 60, "min", goal=goal))
        notes.append(
            f"{model}: {found['ms_per_epoch'] / 1e3:.1f} s an epoch, test accuracy "
            f"{found['test_accuracy_mean']:.1%} (the graph's misfits allow about 94 %), within "
            f"{size.memory / 1e9:g} GB."
        )
    shutil.rmtree(out)
    return Outcome(figures, notes)
