"""Graphs of Reddit's size: hop features in memory, on disk, in little memory and on a cluster,
training from a store, new edges in a store, and the cost model of docs/scale.md.

Everything that is measured runs in a process of its own and starts from the graph's files. "The
disk alone" is what plain writes (synced) and reads of as many bytes take in the same round.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.child import ask, completed
from benchmarks.measure import Contestant, Context, Effort, Figure, Goal, Outcome
from hoplite import Graph, HopStore, propagate, update_store
from hoplite.io import DiskGraph, extend, write_disk_graph
from hoplite.store.cost import cost

MEMORY, DISK, CLUSTER, ALONE = "in memory", "on disk", "local:2", "the disk alone"
HOPS, PIECE = 2, 1 << 25
QUICK_SCALE, QUICK_MODELS = 0.01, ("sgc", "egc", "lgc", "hlgc")
SETTING = ("--optimizer", "lbfgs", "--bias", "--standardize", "--lr", "1", "--weight-decay", "0")


def graph_folder(context: Context, scale: float | None = None) -> Path:
    """The graph's files, made by the first benchmark that needs them."""
    scale = scale or (QUICK_SCALE if context.quick else 1.0)
    folder = context.folder / f"reddit-like-{scale:g}"
    if not folder.exists():
        context.report("making the graph")
        ask("write_graph", scale=scale, folder=str(folder))
    return folder


def _budget(context: Context) -> int:
    return 10**9 if context.quick else 4 * 10**9


def _goal(context: Context, goal: Goal) -> Goal | None:
    """The goal, which is for the full size only."""
    return None if context.quick else goal


def _store(
    context: Context, folder: Path, hops: int, memory: int, cluster: str | None = None
) -> dict[str, Any]:
    """Make a store in ``context.folder / "store"``."""
    task = {"hops": hops, "memory": memory, "threads": context.threads, "cluster": cluster}
    return ask("store", folder=str(folder), out=str(context.folder / "store"), **task)


def _store_and_remove(context: Context, *arguments: Any, **options: Any) -> dict[str, Any]:
    try:
        return _store(context, *arguments, **options)
    finally:
        shutil.rmtree(context.folder / "store", ignore_errors=True)


def hops(context: Context) -> Outcome:
    """In memory: S, k products, and the peak of the whole process; spmm-reddit has the peers."""
    task = {"hops": HOPS, "threads": context.threads}
    found = ask("hops", folder=str(graph_folder(context)), **task)
    beyond, limit = (found["peak"] - found["own"]) / 1e9, _goal(context, Goal.at_most(4, "GB"))
    return Outcome(
        [
            Figure(f"{HOPS} hops", 1e3 * found["hops"], "ms"),
            Figure("making S of the graph", 1e3 * found["operator"], "ms"),
            Figure("peak beyond features and hops", beyond, "GB", goal=limit),
        ],
        [
            f"the peak is of the whole process, from the files to all hops: "
            f"{found['peak'] / 1e9:.2f} GB; X and its hops are {found['own'] / 1e9:.2f} GB."
        ],
    )


def store(context: Context) -> Outcome:
    """On disk: one process and ``local:2`` in turn with the work in memory and the disk alone."""
    folder, memory = graph_folder(context), _budget(context)
    found: dict[str, list[dict[str, Any]]] = {DISK: [], CLUSTER: []}

    def in_memory() -> float:
        seen = ask("hops", folder=str(folder), hops=HOPS, threads=context.threads)
        return seen["operator"] + seen["hops"]

    def on_disk(name: str) -> Callable[[], float]:
        def sample() -> float:
            cluster = None if name == DISK else name
            found[name].append(_store_and_remove(context, folder, HOPS, memory, cluster))
            return found[name][-1]["seconds"]

        return sample

    def disk_alone() -> float:
        last = found[DISK][-1]
        return disk_seconds(context.folder, folder, last["read"], last["written"])

    work = {
        MEMORY: in_memory,
        DISK: on_disk(DISK),
        ALONE: disk_alone,
        CLUSTER: on_disk(CLUSTER),
    }
    contestants = [Contestant(name, sample, lambda: None) for name, sample in work.items()]
    samples = context.race(contestants, Effort(1) if context.quick else Effort(3, 300))
    rounds = zip(*(samples.seconds[name] for name in (MEMORY, DISK, ALONE)), strict=True)
    beyond = median((disk - alone) / inside for inside, disk, alone in rounds)
    peak = max(one["peak"] for one in found[DISK]) / 1e9
    slower, within = 1 / samples.ratio(CLUSTER, DISK), f"{memory / 1e9:g} GB"
    last = found[DISK][-1]
    times = [
        samples.figure(f"{MEMORY}: S and {HOPS} hops", MEMORY),
        samples.figure(f"{DISK}, within {within}: the same from and to files", DISK),
        samples.figure(f"{ALONE}: as many bytes", ALONE),
        samples.figure(f"{DISK}, --cluster {CLUSTER}, {within} each", CLUSTER),
    ]
    compared = [
        (f"({DISK} - {ALONE}) / {MEMORY}", beyond, "x", Goal.at_most(2, "x")),
        (f"{DISK}: peak memory", peak, "GB", Goal.at_most(memory / 1e9, "GB")),
        (f"{CLUSTER} / one process", slower, "x", Goal.at_most(1.5, "x")),
    ]
    return Outcome(
        times
        + [Figure(case, x, unit, goal=_goal(context, goal)) for case, x, unit, goal in compared],
        [
            f"one process reads {last['read'] / 1e9:.2f} GB and writes "
            f"{last['written'] / 1e9:.2f} GB, most of it through the page cache; written files "
            "are synced."
        ],
    )


def budget(context: Context) -> Outcome:
    """A graph three times larger than the memory."""
    folder = graph_folder(context)
    parts = ("indptr", "indices", "values", "features")
    stored = sum((folder / f"{name}.npy").stat().st_size for name in parts)
    memory = max(stored // 3, 450 * 10**6)  # Python and its libraries take a share
    found = _store_and_remove(context, folder, HOPS, memory)
    peak, goal = found["peak"] / memory, Goal.at_most(1, "x")
    return Outcome(
        [
            Figure("the graph (CSR and features) / the budget", stored / memory, "x"),
            Figure(f"peak / the budget of {memory / 1e6:.0f} MB", peak, "x", goal=goal),
            Figure(f"{HOPS} hops in {found['panels']} panels", 1e3 * found["seconds"], "ms"),
        ],
        [f"it reads {found['read'] / 1e9:.2f} GB and writes {found['written'] / 1e9:.2f} GB."],
    )


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


def training(context: Context, hops: int = 4) -> Outcome:
    """A store, then complete trainings by the command."""
    models, epochs = (QUICK_MODELS, 3) if context.quick else (("lgc",), 25)
    folder, out, memory = graph_folder(context), context.folder / "store", _budget(context)
    made = _store(context, folder, hops, memory)
    figures, notes = [Figure(f"{hops} hops on disk", made["seconds"] / 60, "min")], []
    for model in models:
        context.report(f"training {model}")
        words = ["train", str(out), "--model", model, *SETTING, "--epochs", str(epochs)]
        words += ["--patience", str(epochs), "--seeds", "1", "--memory", f"{memory}B"]
        words += ["--threads", str(context.threads), "--json"]
        started = time.perf_counter()
        found = json.loads(completed([sys.executable, "-m", "hoplite", *words]).stdout)
        minutes = (time.perf_counter() - started) / 60
        case = f"{model} with L-BFGS, {hops} hops, {found['runs'][0]['epochs']} epochs"
        goal = _goal(context, Goal.at_most(15, "min"))
        figures.append(Figure(case, minutes, "min", goal=goal))
        notes.append(
            f"{model}: {found['ms_per_epoch'] / 1e3:.1f} s an epoch, test accuracy "
            f"{found['test_accuracy_mean']:.1%} (the graph's misfits allow about 94 %), within "
            f"{memory / 1e9:g} GB."
        )
    shutil.rmtree(out)
    return Outcome(figures, notes)


SCALES = ((1 / 16, 500 * 10**6), (1 / 4, 10**9), (1.0, 10**9))  # with a budget each
QUICK_SCALES = ((0.005, 10**9), (0.01, 10**9), (0.02, 10**9))


def cost_model(context: Context) -> Outcome:
    """Bytes and seconds, measured / expected, for a store of each size."""
    figures, hops = [], 2 if context.quick else 4
    for scale, memory in QUICK_SCALES if context.quick else SCALES:
        folder, out = graph_folder(context, scale), context.folder / "store"
        graph = DiskGraph(folder)
        nodes, rows = graph.num_nodes, graph.adjacency_rows
        entries = rows.entries
        longest = int(np.diff(rows.indptr(0, nodes)).max())
        expected = cost(nodes, entries, graph.num_features, hops, memory, longest_row=longest)
        found = _store(context, folder, hops, memory)
        files = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        shutil.rmtree(out)
        case = f"{nodes:,} nodes, {entries / 1e6:.3g}M entries, {memory / 1e9:g} GB:"
        moved = {
            "files": (files, expected.files),
            "read": (found["read"], expected.read),
            "written": (found["written"], expected.written),
        }
        goal = Goal.between(0.95, 1.05)
        figures += [
            Figure(f"{case} {what}, {size / 1e9:.2f} GB", size / wanted, "x", goal=goal)
            for what, (size, wanted) in moved.items()
        ]
        seconds, limit = found["seconds"], expected.gathered / context.bandwidth
        what = f"{seconds:.1f} s / (gathered bytes / bandwidth)"
        figures += [
            Figure(f"{case} peak memory / budget", found["peak"] / memory, "x"),
            Figure(f"{case} {what}", seconds / limit, "x"),
        ]
    return Outcome(
        figures,
        [
            f"{hops} hops; x is measured / expected. The time is compared with the bytes of X that "
            "the products would gather without any cache, at the bandwidth above: below 1 the "
            "caches help more than the disk, making S and the checksums cost."
        ],
    )


def update(context: Context, degree: int = 10, hops: int = 4) -> Outcome:
    """1 % new edges in a hop store, against computing the grown graph anew.

    The graph is local: n nodes on a ring, each joined to the nearest ``degree``. The new nodes
    arrive in one region of it, each with ``degree`` edges to random old nodes of that region. Both
    start from files and end with a complete store; the new tables are in memory.
    """
    nodes, features = (100_000, 32) if context.quick else (500_000, 128)
    effort, new = Effort(2, 10) if context.quick else Effort(3, 300), nodes // 200
    place = context.folder / "update"
    context.report("making the graph")
    tables = _write_graphs(place, nodes, degree, features, new)
    propagate(place / "old", place / "store", hops=hops)

    def updated() -> float:
        """A store whose files are links to those of the old one."""
        shutil.rmtree(place / "update", ignore_errors=True)
        shutil.copytree(place / "store", place / "update", copy_function=os.link)
        started = time.perf_counter()
        update_store(tables, place / "update")
        return time.perf_counter() - started

    def anew() -> float:
        shutil.rmtree(place / "anew", ignore_errors=True)
        started = time.perf_counter()
        propagate(place / "grown", place / "anew", hops=hops)
        return time.perf_counter() - started

    contestants = [Contestant("update", updated), Contestant("anew", anew)]
    samples = context.race(contestants, effort)
    grown, made = (HopStore.open(place / name) for name in ("update", "anew"))
    gap = max(np.abs(grown.read(*rows) - made.read(*rows)).max() for rows in made.row_blocks())
    before = HopStore.open(place / "store").data
    blocks = list((before / "hops").rglob("*.npy"))
    kept = [block.samefile(grown.data / block.relative_to(before)) for block in blocks]
    shutil.rmtree(place)
    goal = _goal(context, Goal.ratio_at_least(5))
    case = f"{nodes:,} nodes, {features} features, {hops} hops, 1 % new edges"
    return Outcome(
        [
            samples.figure(case, "update", "anew", goal),
            Figure("largest difference", float(gap), "", goal=Goal.at_most(1e-6)),
        ],
        [
            f"a ring of near neighbours, degree {degree}; {new:,} new nodes with {degree} edges "
            f"each in a region of {2 * new:,} nodes.",
            f"{kept.count(False):,} of {len(kept):,} old blocks were written again.",
        ],
    )


def _write_graphs(
    place: Path, n: int, degree: int, features: int, new: int
) -> tuple[pa.Table, pa.Table]:
    """The old and the grown graph on disk; the tables that are new."""
    rng, half = np.random.default_rng(0), degree // 2
    left = np.repeat(np.arange(n), half)
    right = (left + np.tile(np.arange(1, half + 1), n)) % n
    names = [f"x{j}" for j in range(features)]
    graph = Graph.from_edges(
        np.column_stack([left, right]),
        rng.standard_normal((n, features), np.float32),
        feature_names=names,
        node_ids=range(n),
    )
    ids, cells = np.arange(n, n + new), rng.standard_normal((new, features))
    nodes = pa.table({"id": ids} | {name: cells[:, j] for j, name in enumerate(names)})
    sources = np.repeat(ids, degree)
    targets = n // 2 + rng.integers(0, 2 * new, len(sources))
    edges = pa.table({"source": sources, "target": targets})
    write_disk_graph(graph, place / "old")
    write_disk_graph(extend(graph, (nodes, edges)), place / "grown")
    return nodes, edges
