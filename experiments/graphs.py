"""Classification of whole graphs on the folds of "A Fair Comparison of GNNs" (ICLR 2020).

For each of ten outer folds every candidate of graphs.toml is trained on the inner training graphs,
and the one with the lowest loss on the inner validation graphs is chosen; it is fitted again with
both, and then, once, scored on the test graphs. A fold that was scored is not run again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from experiments.trainings import Report
from hoplite import DatasetError, set_num_threads
from hoplite.files import atomic_write_text
from hoplite.graphs import GraphSet, load_graphs, train_graphs

FILE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "results" / "graphs.md"
FOLDS = 10
DEFAULT = ("NCI1", "PROTEINS", "DD", "ENZYMES", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY",
           "COLLAB")  # fmt: skip


def plan() -> dict[str, Any]:
    """The contents of graphs.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def load_fold(data: Path, name: str, fold: int) -> GraphSet:
    """A set with the split of a fold; columns of attributes only where the grid is for them."""
    graphs = load_graphs(data / f"{name}.npz", split=fold)
    if name in plan()["sets"]["attributes"] or not graphs.num_features:
        return graphs
    names = graphs.feature_names or ()
    tags = [j for j, title in enumerate(names) if not title.startswith("attribute")]
    columns = {"features": graphs.features[:, tags], "feature_names": [names[j] for j in tags]}
    return dataclasses.replace(graphs, **columns)


def grid_of(name: str) -> list[dict[str, Any]]:
    """What is tried on a set."""
    content = plan()
    for kind, names in content["sets"].items():
        if name in names:
            return content["grid"][kind]
    raise DatasetError(f"{name} is not in {FILE.name}; add it to one of the sets.")


def run_set(data: Path, name: str, out: Path) -> None:
    """All folds of a set that are not in ``out`` yet, a file each."""
    set_num_threads(1)
    grid, training, graphs = grid_of(name), plan()["training"], None
    for fold in range(FOLDS):
        path = out / f"{name}-{fold}.json"
        if path.exists():
            continue
        own = load_fold(data, name, fold)
        graphs = own if graphs is None else graphs.with_split(own.table.split)
        start, used = time.perf_counter(), time.process_time()
        result = train_graphs(graphs, grid=grid, **training)
        chosen = result.candidates[0]
        record = {
            "set": name,
            "fold": fold,
            "grid": digest(name),
            "chosen": chosen.title,
            "val_loss": chosen.loss,
            "val_accuracy": chosen.accuracy,
            "test_accuracy": result.test_accuracy,
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - used,
            "candidates": {one.title: [one.loss, one.accuracy] for one in result.candidates},
        }
        atomic_write_text(path, json.dumps(record, indent=1))


def digest(name: str) -> str:
    """By which results of another grid are known."""
    text = json.dumps([grid_of(name), plan()["training"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(
    data: Path, out: Path, sets: Sequence[str], workers: int, report: Report, page: Path = PAGE
) -> str:
    """Run what is missing, write the page and the figures next to it, and return its text."""
    out.mkdir(parents=True, exist_ok=True)
    for name in sets:
        for path in out.glob(f"{name}-*.json"):
            if json.loads(path.read_text(encoding="utf-8"))["grid"] != digest(name):
                raise DatasetError(f"{path} is of another grid; give another folder.")
    slowest = sorted(sets, key=lambda name: -(data / f"{name}.npz").stat().st_size)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        jobs = {pool.submit(run_set, data, name, out): name for name in slowest}
        for number, job in enumerate(as_completed(jobs)):
            job.result()
            report(jobs[job], (number + 1) / len(jobs))
    records = [
        json.loads((out / f"{name}-{fold}.json").read_text(encoding="utf-8"))
        for name in sets
        for fold in range(FOLDS)
    ]
    text = table(records, sets)
    atomic_write_text(page, text)
    atomic_write_text(page.with_suffix(".json"), json.dumps(records, indent=1) + "\n")
    return text


def table(records: Sequence[dict[str, Any]], sets: Sequence[str]) -> str:
    """The page: a row for each set, next to the published figures, and what was chosen."""
    published = plan()["published"]
    rows, chosen = [], []
    for name in sets:
        own = [record for record in records if record["set"] == name]
        scores = 100 * np.array([record["test_accuracy"] for record in own])
        known = published.get(name, [float("nan")] * len(published["names"]))
        error, best = scores.std(ddof=1) / np.sqrt(len(scores)), known[2]
        verdict = "above" if scores.mean() > best + error else "below"
        verdict = "within a standard error" if abs(scores.mean() - best) <= error else verdict
        seconds = sum(record["processor_seconds"] for record in own)
        figures = " | ".join(f"{figure:.1f}" for figure in known)
        rows.append(
            f"| {name} | **{scores.mean():.1f} ± {scores.std():.1f}** | {figures} | {verdict} | "
            f"{seconds:.0f} |"
        )
        counts: dict[str, int] = {}
        for record in own:
            counts[record["chosen"]] = counts.get(record["chosen"], 0) + 1
        most = sorted(counts.items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{title} ({count})" for title, count in most)
        chosen.append(f"| {name} | {listed} |")
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        names=" | ".join(published["names"]), rows="\n".join(rows), chosen="\n".join(chosen)
    )
