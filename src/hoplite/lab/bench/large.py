"""Graphs of Reddit's size: hop features in memory, on disk, in little memory and on a cluster,
training from a store, and the cost model of docs/scale.md.

Everything that is measured runs in a process of its own and starts from the graph's files. "The
disk's own time" is what plain writes (synced) and reads of as many bytes take in the same round.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from hoplite.datasets.disk_graph import DiskGraph
from hoplite.lab.bench.child import ask, run
from hoplite.lab.bench.measure import (
    Contestant,
    Context,
    Effort,
    Figure,
    Goal,
    Outcome,
    Samples,
    interleave,
)
from hoplite.store.cost import cost

MEMORY, DISK, CLUSTER, ALONE = "in memory", "on disk", "local:2", "the disk alone"
PIECE = 1 << 25
SETTING = ("--optimizer", "lbfgs", "--bias", "--standardize", "--lr", "1", "--weight-decay", "0")


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
    memory = max(stored // 3, 450 * 10**6)  # Python and its libraries take a share
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


@dataclass(frozen=True)
class TrainSize:
    """``reddit-like`` at a scale, the models, and for the first the minutes that are allowed."""

    scale: float
    hops: int
    epochs: int
    memory: int
    models: tuple[str, ...] = ("lgc",)
    minutes: float | None = None


TRAIN_QUICK = TrainSize(0.01, 4, 3, 10**9, ("sgc", "egc", "lgc", "hlgc"))
TRAIN_FULL = TrainSize(1.0, 4, 25, 4 * 10**9, ("lgc",), minutes=15)


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


@dataclass(frozen=True)
class CostSize:
    """``reddit-like`` at these scales, with a budget each, and the hops."""

    scales: tuple[tuple[float, int], ...]
    hops: int


COST_QUICK = CostSize(((0.005, 10**9), (0.01, 10**9), (0.02, 10**9)), 2)
COST_FULL = CostSize(((1 / 16, 500 * 10**6), (1 / 4, 10**9), (1.0, 10**9)), 4)


def run_cost(context: Context, size: CostSize) -> Outcome:
    """Bytes and seconds, measured / expected, for a store of each size."""
    figures, facts = [], {}
    for number, (scale, memory) in enumerate(size.scales):
        context.report(f"a store of scale {scale:g}", number / len(size.scales))
        folder, out = graph_folder(context, scale), context.folder / "store"
        with DiskGraph(folder) as graph:
            nodes, entries = graph.num_nodes, graph.adjacency_rows.entries
            columns = graph.num_features
            longest = graph.longest_row
        expected = cost(nodes, entries, columns, size.hops, memory, longest_row=longest)
        task: dict[str, Any] = {"hops": size.hops, "memory": memory, "threads": context.threads}
        found = ask("store", folder=str(folder), out=str(out), **task)
        files = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        shutil.rmtree(out)
        what = f"{nodes:,} nodes, {entries / 1e6:.3g}M entries, {memory / 1e9:g} GB:"
        exact = Goal.between(0.95, 1.05)
        seconds = expected.gathered / context.bandwidth
        figures += [
            Figure(f"{what} files, {files / 1e9:.2f} GB", files / expected.files, "x", goal=exact),
            Figure(
                f"{what} read, {found['read'] / 1e9:.2f} GB",
                found["read"] / expected.read,
                "x",
                goal=exact,
            ),
            Figure(
                f"{what} written, {found['written'] / 1e9:.2f} GB",
                found["written"] / expected.written,
                "x",
                goal=exact,
            ),
            Figure(f"{what} peak memory / budget", found["peak"] / memory, "x"),
            Figure(
                f"{what} {found['seconds']:.1f} s / (gathered bytes / bandwidth)",
                found["seconds"] / seconds,
                "x",
            ),
        ]
        facts |= {f"{scale:g}_{name}": float(value) for name, value in asdict(expected).items()}
        facts |= {f"{scale:g}_measured_{name}": float(value) for name, value in found.items()}
    notes = [
        f"{size.hops} hops; x is measured / expected. The time is beside the bytes of X that the "
        "products would gather without any cache, at the bandwidth above: below 1 the caches help "
        "more than the disk, the making of S and the checksums cost."
    ]
    return Outcome(figures, notes, facts)
