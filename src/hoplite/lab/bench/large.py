"""Hop features of a graph of Reddit's size: in memory, on disk, in little memory, on a cluster.

Everything that is measured runs in a process of its own and starts from the graph's files. "The
disk's own time" is what plain writes (synced) and reads of as many bytes take in the same round.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hoplite.lab.bench.child import ask
from hoplite.lab.bench.context import Context
from hoplite.lab.bench.measure import Contestant, Effort, Samples, interleave
from hoplite.lab.bench.records import Figure, Goal, Outcome

MEMORY, DISK, CLUSTER, ALONE = "in memory", "on disk", "local:2", "the disk alone"
PIECE = 1 << 25


@dataclass(frozen=True)
class LargeSize:
    """``reddit-like`` at a scale, the hops, the budget on disk, and what is asked there."""

    scale: float
    hops: int
    memory: int
    effort: Effort
    goals: bool = True

    def goal(self, goal: Goal) -> Goal | None:
        return goal if self.goals else None


QUICK = LargeSize(0.01, 2, 10**9, Effort(1), goals=False)
FULL = LargeSize(1.0, 2, 4 * 10**9, Effort(3, 300))


def graph_folder(context: Context, scale: float) -> Path:
    """The graph's files, made by the first benchmark that needs them."""
    folder = context.folder / f"reddit-like-{scale:g}"
    if not folder.exists():
        context.report("making the graph", 0.0)
        ask("write_graph", scale=scale, folder=str(folder))
    return folder


def run_hops(context: Context, size: LargeSize) -> Outcome:
    """In memory: k products in turn with torch's, and the peak of the whole process."""
    folder = graph_folder(context, size.scale)
    context.report("products in turn with torch", 0.2)
    found = ask(
        "hops", folder=str(folder), hops=size.hops, threads=context.threads,
        rounds=size.effort.rounds, seconds=size.effort.seconds,
    )  # fmt: skip
    samples = Samples(found["seconds"])
    race = samples.figure(
        f"{size.hops} hops, products alone", "hoplite", "torch",
        goal=size.goal(Goal.ratio_at_least(4)),
    )  # fmt: skip
    beyond = (found["peak"] - found["own"]) / 1e9
    return Outcome(
        [
            race,
            Figure("making S of the graph", 1e3 * found["operator"], "ms"),
            Figure(
                "peak beyond features and hops",
                beyond,
                "GB",
                goal=size.goal(Goal.at_most(4, "GB")),
            ),
        ],
        [
            f"the peak is of the whole process, from the files to all hops: "
            f"{found['peak'] / 1e9:.2f} GB, of which X and hops 0 to {size.hops} are "
            f"{found['own'] / 1e9:.2f} GB.",
            f"the last hops of both differ by {found['difference']:.1e} of the largest value.",
        ],
    )


def run_store(context: Context, size: LargeSize) -> Outcome:
    """On disk: one process and ``local:2`` in turn with the work in memory and the disk alone."""
    folder, out = graph_folder(context, size.scale), context.folder / "store"
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in (MEMORY, DISK, CLUSTER)}

    def in_memory() -> float:
        task = {"hops": size.hops, "threads": context.threads, "rounds": 0, "seconds": 0.0}
        found = ask("hops", folder=str(folder), **task)
        seen[MEMORY].append(found)
        return found["operator"] + found["hops"]

    def on_disk(name: str) -> Callable[[], float]:
        def sample() -> float:
            cluster = None if name == DISK else name
            found = _store(context, folder, out, size.hops, size.memory, cluster)
            seen[name].append(found)
            return found["seconds"]

        return sample

    def disk_alone() -> float:
        last = seen[DISK][-1]
        return disk_seconds(context.folder, folder, last["read"], last["written"])

    samples = interleave(
        [
            Contestant(name, sample, warm_up=lambda: None)
            for name, sample in (
                (MEMORY, in_memory),
                (DISK, on_disk(DISK)),
                (ALONE, disk_alone),
                (CLUSTER, on_disk(CLUSTER)),
            )
        ],
        size.effort,
        context.report,
    )
    rounds = zip(*(samples.seconds[name] for name in (MEMORY, DISK, ALONE)), strict=True)
    beyond = median((disk - alone) / memory for memory, disk, alone in rounds)
    slower = 1 / samples.ratio(CLUSTER, DISK)
    budget = f"{size.memory / 1e9:g} GB"
    last = seen[DISK][-1]
    return Outcome(
        [
            samples.figure(f"{MEMORY}: S and {size.hops} hops", MEMORY),
            samples.figure(f"{DISK}, within {budget}: the same from and to files", DISK),
            samples.figure(f"{ALONE}: as many bytes", ALONE),
            Figure(
                f"({DISK} - {ALONE}) / {MEMORY}",
                beyond,
                "x",
                goal=size.goal(Goal.at_most(2, "x")),
                rounds=samples.rounds,
            ),
            Figure(
                f"{DISK}: peak memory",
                max(found["peak"] for found in seen[DISK]) / 1e9,
                "GB",
                goal=size.goal(Goal.at_most(size.memory / 1e9, "GB")),
            ),
            samples.figure(f"{DISK}, --cluster {CLUSTER}, {budget} each", CLUSTER),
            Figure(
                f"{CLUSTER} / one process",
                slower,
                "x",
                goal=size.goal(Goal.at_most(1.5, "x")),
                rounds=samples.rounds,
            ),
        ],
        [
            f"one process reads {last['read'] / 1e9:.2f} GB and writes "
            f"{last['written'] / 1e9:.2f} GB, most of it through the page cache; written files "
            "are synced."
        ],
    )


def run_budget(context: Context, size: LargeSize) -> Outcome:
    """A graph three times larger than the memory."""
    folder = graph_folder(context, size.scale)
    stored = sum(
        (folder / f"{name}.npy").stat().st_size
        for name in ("indptr", "indices", "values", "features")
    )
    memory = max(stored // 3, 450 * 10**6)  # Python and torch alone take 0.3 GB
    context.report("a store in little memory", 0.3)
    found = _store(context, folder, context.folder / "store", size.hops, memory, None)
    return Outcome(
        [
            Figure("the graph (CSR and features) / the budget", stored / memory, "x"),
            Figure(
                f"peak / the budget of {memory / 1e6:.0f} MB",
                found["peak"] / memory,
                "x",
                goal=Goal.at_most(1, "x"),
            ),
            Figure(f"{size.hops} hops in {found['panels']} panels", 1e3 * found["seconds"], "ms"),
        ],
        [f"it reads {found['read'] / 1e9:.2f} GB and writes {found['written'] / 1e9:.2f} GB."],
    )


def _store(
    context: Context, folder: Path, out: Path, hops: int, memory: int, cluster: str | None
) -> dict[str, Any]:
    """Make a store and remove it."""
    try:
        return ask(
            "store", folder=str(folder), out=str(out), hops=hops, memory=memory,
            threads=context.threads, cluster=cluster,
        )  # fmt: skip
    finally:
        shutil.rmtree(out, ignore_errors=True)


def disk_seconds(place: Path, source: Path, read: int, written: int) -> float:
    """Seconds to read so many bytes of the files in ``source``, and to write as many to ``place``.

    Files of 32 MB, each of them synced, as a store's blocks are.
    """
    data, target = os.urandom(PIECE), place / "disk-alone"
    sources = [path for path in source.iterdir() if path.stat().st_size]
    started = time.perf_counter()
    while read > 0:
        for path in sources:
            with path.open("rb", buffering=0) as file:
                while read > 0 and (piece := file.read(PIECE)):
                    read -= len(piece)
    target.mkdir()
    for number, start in enumerate(range(0, written, PIECE)):
        with (target / str(number)).open("wb", buffering=0) as file:
            file.write(data[: written - start])
            os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds
