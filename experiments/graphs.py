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
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import made_by
from experiments.report import NOTHING, Section, Table, fill_template, grid
from experiments.trainings import Report
from hoplite import DatasetError, set_num_threads
from hoplite.errors import plural
from hoplite.files import atomic_write_text
from hoplite.graphs import GraphSet, load_graphs, train_graphs

FILE = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).parents[1] / "results" / "graphs.md"
FOLDS = 10
TEXT = (
    "Linear models of whole graphs on the folds of a published comparison. The loss on the inner "
    "validation graphs chooses, and the test graphs of a fold are read once, after the choice."
)
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
    candidates, training, graphs = grid_of(name), plan()["training"], None
    for fold in range(FOLDS):
        path = out / f"{name}-{fold}.json"
        if path.exists():
            continue
        own = load_fold(data, name, fold)
        graphs = own if graphs is None else graphs.with_split(own.table.split)
        start, used = time.perf_counter(), time.process_time()
        result = train_graphs(graphs, grid=candidates, **training)
        chosen = result.candidates[0]
        record = {
            "set": name,
            "fold": fold,
            "grid": digest(name),
            "made_by": made_by(),
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
    return write_page(records, page)


def write_page(records: Sequence[dict[str, Any]], page: Path) -> str:
    """Write the page and ``graphs.json`` with these records, and return the page's text.

    The file keeps records of networks if these are of linear models, and the other way round.
    """
    path, nets = page.with_suffix(".json"), "net" in records[0]
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    others = [record for record in known if ("net" in record) != nets]
    both = [*others, *records] if nets else [*records, *others]
    atomic_write_text(path, json.dumps(both, indent=1) + "\n")
    tables = [f"{table.caption}\n\n{grid(table)}" for table in section(both).tables]
    sources = "; ".join(sorted({record.get("made_by", "an older version") for record in both}))
    text = fill_template(__file__, tables="\n\n".join(tables), made_by=sources)
    atomic_write_text(page, text)
    return text


def section(records: Sequence[dict[str, Any]]) -> Section:
    """A section of the report: the linear models, the networks on the same folds, the choices."""
    linear = [record for record in records if "net" not in record]
    nets = [record for record in records if "net" in record]
    tables = [_linear(linear)] if linear else []
    tables += [_networks(linear, nets)] if nets else []
    return Section("graphs", "Whole graphs", TEXT, tables=[*tables, _chosen(linear)])


def _linear(records: Sequence[dict[str, Any]]) -> Table:
    published, rows = plan()["published"], []
    for name, own in _grouped(records, "set").items():
        scores = _percent(own)
        known = published.get(name, [float("nan")] * len(published["names"]))
        error, best = scores.std(ddof=1) / np.sqrt(len(scores)), known[2]
        verdict = "above" if scores.mean() > best + error else "below"
        verdict = "within a standard error" if abs(scores.mean() - best) <= error else verdict
        seconds = sum(record["processor_seconds"] for record in own)
        figures = [f"{figure:.1f}" for figure in known]
        rows.append([name, _spread(scores), *figures, verdict, f"{seconds:.0f}"])
    columns = ["set", "Hoplite", *published["names"], "compared with the best"]
    caption = (
        "Test accuracy in percent, mean and standard deviation over the ten outer folds. baseline: "
        "that paper's, without edges; best: the best result published on these folds; goal: what "
        "this project set out to reach."
    )
    return Table(caption, [*columns, "processor seconds, ten folds"], rows)


def _networks(linear: Sequence[dict[str, Any]], nets: Sequence[dict[str, Any]]) -> Table:
    """A column for each set, with the folds that all networks have."""
    titles, cells = ["network"], [["Hoplite, linear"]]
    by_net = _grouped(nets, "net")
    cells += [[net] for net in by_net]
    for name in _grouped(nets, "set"):
        done = [{one["fold"] for one in own if one["set"] == name} for own in by_net.values()]
        folds = set.intersection(*done)
        if not folds:
            continue
        titles.append(f"{name}, {plural(len(folds), 'fold')}")
        for row, own in zip(cells, [linear, *by_net.values()], strict=True):
            here = [one for one in own if one["set"] == name and one["fold"] in folds]
            row.append(_spread(_percent(here)) if here else NOTHING)
    seconds = [sum(one["processor_seconds"] for one in own) for own in by_net.values()]
    for row, amount in zip(cells, ["", *(f"{amount:.0f}" for amount in seconds)], strict=True):
        row.append(amount)
    caption = "Networks on the same folds: test accuracy in percent."
    return Table(caption, [*titles, "processor seconds"], cells)


def _chosen(records: Sequence[dict[str, Any]]) -> Table:
    rows = []
    for name, own in _grouped(records, "set").items():
        counts = Counter(record["chosen"] for record in own).most_common()
        rows.append([name, ", ".join(f"{title} ({count})" for title, count in counts)])
    caption = "What the validation graphs chose: family and settings (folds)."
    return Table(caption, ["set", "chosen"], rows, folded=True)


def _grouped(records: Sequence[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record[key], []).append(record)
    return found


def _percent(records: Sequence[dict[str, Any]]) -> np.ndarray:
    return 100 * np.array([record["test_accuracy"] for record in records])


def _spread(scores: np.ndarray) -> str:
    return f"{scores.mean():.1f} ± {scores.std():.1f}"
