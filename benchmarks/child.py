"""Work that is measured in a process of its own, so that its peak memory is its own.

``ask("store", folder=..., ...)`` starts ``python -m benchmarks.child``, which runs the function of
that name below and prints what it returns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

from hoplite import HopliteError, propagate, set_num_threads
from hoplite.machine import peak_memory, release_memory, used_memory

_PARTS = ("indptr", "indices", "data")  # of a CSR matrix
ROOT = Path(__file__).parents[1]


def ask(task: str, **arguments: Any) -> dict[str, Any]:
    """What the function ``task`` of this file returns in a new process."""
    command = [sys.executable, "-m", "benchmarks.child", task, json.dumps(arguments)]
    return json.loads(completed(command).stdout)


def completed(command: list[str]) -> subprocess.CompletedProcess[str]:
    """The finished process; HopliteError with its last line if it fails."""
    child = run(command)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise HopliteError(f"a process of the benchmark failed: {last}")
    return child


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """The finished process, whether or not it failed."""
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def peak_share(matrix: sp.csr_array, columns: int, threads: int) -> float | None:
    """(inputs + what the product added at its peak) / (inputs + output); 1.0 is the least possible.

    Inputs are the CSR arrays and X. The product starts from the SciPy matrix, so it includes
    Hoplite's checks of it. None where the system does not report a process's peak.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in _PARTS:
            np.save(Path(folder) / f"{name}.npy", getattr(matrix, name))
        growth = ask("product", folder=folder, columns=columns, threads=threads)["growth"]
    if growth is None:
        return None
    inputs = sum(getattr(matrix, name).nbytes for name in _PARTS) + 4 * matrix.shape[1] * columns
    return (inputs + growth) / (inputs + 4 * matrix.shape[0] * columns)


def product(folder: str, columns: int, threads: int) -> dict[str, Any]:
    """Bytes by which this process grows, at its peak, in a product with the CSR matrix."""
    from hoplite.engine.sparse import SparseMatrix, spmm

    set_num_threads(threads)
    indptr, indices, data = (np.load(Path(folder) / f"{name}.npy") for name in _PARTS)
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, len(indptr) - 1))
    rng = np.random.default_rng(0)
    X = rng.random((matrix.shape[1], columns), np.float32)
    # a first, tiny product starts the threads, whose stacks belong to no product
    tiny = SparseMatrix.from_scipy(sp.eye_array(8, dtype=np.float32).tocsr())
    spmm(tiny, rng.random((8, columns), np.float32))
    release_memory()  # what was freed before could serve the product, and nothing would grow
    try:  # set the high-water mark to the present size; only Linux can
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return {"growth": None}
    before = used_memory()
    Y = spmm(SparseMatrix.from_scipy(matrix), X)
    growth = peak_memory() - before
    del Y
    return {"growth": growth}


def write_graph(scale: float, folder: str) -> dict[str, Any]:
    """Make ``reddit-like`` at ``scale`` and write it to ``folder``."""
    from hoplite.io import reddit_like, write_disk_graph

    write_disk_graph(reddit_like(scale), folder)
    return {}


def hops(folder: str, hops: int, threads: int) -> dict[str, Any]:
    """All hop features in memory: the seconds of S and of the hops, and the peak."""
    from hoplite.engine.propagation import Propagation
    from hoplite.io import DiskGraph

    set_num_threads(threads)
    graph = DiskGraph(folder).in_memory()
    started = time.perf_counter()
    propagation = Propagation(graph, hops=hops)
    prepared = time.perf_counter()
    features = propagation.hop_features()
    return {
        "operator": prepared - started,
        "hops": time.perf_counter() - prepared,
        "peak": peak_memory(),
        "own": graph.features.nbytes + features.nbytes,
    }


def store(
    folder: str, out: str, hops: int, memory: int, threads: int, cluster: str | None = None
) -> dict[str, Any]:
    """A hop store of the graph in ``folder``: seconds, peak, and the bytes read and written."""
    set_num_threads(threads)
    before, started = _moved(), time.perf_counter()
    made = propagate(folder, out, hops=hops, memory=memory, cluster=cluster)
    seconds = time.perf_counter() - started
    moved = {name: count - before[name] for name, count in _moved().items()}
    panels = len(made.manifest.panels)
    return {"seconds": seconds, "peak": peak_memory(), "panels": panels, **moved}


def _moved() -> dict[str, int]:
    """Bytes that this process has read and written through files; zeros where nothing counts."""
    counts = getattr(psutil.Process(), "io_counters", lambda: None)()
    return {
        "read": getattr(counts, "read_chars", 0),
        "written": getattr(counts, "write_chars", 0),
    }


def write_small_graphs(folder: str, count: int) -> dict[str, Any]:
    """A set of small graphs on disk."""
    from benchmarks.graphs import parts
    from hoplite.graphs import write_graph_files

    write_graph_files(folder, parts(count))
    return {}


def pool_small_graphs(folder: str, threads: int) -> dict[str, Any]:
    """Pool the hops of a set on disk, and predict all graphs with a model of 2,000 of them."""
    from hoplite import load_graphs, train_graphs
    from hoplite.graphs.pooling import Hops, HopSettings

    set_num_threads(threads)
    graphs = load_graphs(folder)
    settings = HopSettings(hops=2)
    family = Hops.fit(graphs, np.arange(2000), settings)
    model = train_graphs(graphs.select(np.arange(2000)).with_split(None), "hops", hops=2).model
    release_memory()
    before = used_memory()
    started = time.perf_counter()
    for piece in graphs.pieces(graphs.num_features):
        family.features(piece)
    pooled = time.perf_counter()
    model.logits(graphs)
    ended = time.perf_counter()
    peak = peak_memory() - before
    return {"pool": pooled - started, "predict": ended - pooled, "peak": peak}


TASKS = {
    task.__name__: task
    for task in (product, write_graph, hops, store, write_small_graphs, pool_small_graphs)
}

if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
