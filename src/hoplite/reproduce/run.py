"""reproduce: everything in order, each step kept, the results file written as it grows."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hoplite.bench.machine import describe
from hoplite.datasets import load
from hoplite.errors import HopliteError
from hoplite.files import atomic_write_text
from hoplite.filters import frequency_response
from hoplite.graph import Graph
from hoplite.predictions import write_table
from hoplite.propagation.backend import get_num_threads
from hoplite.report import write_markdown, write_report
from hoplite.reproduce import timing
from hoplite.reproduce.chosen import examine
from hoplite.reproduce.jobs import Job, check_datasets, full_jobs, quick_jobs
from hoplite.selection import Ledger, choose, rank, read_space, runs_table
from hoplite.selection.runner import full_options, run_search
from hoplite.selection.select import train_command
from hoplite.spectrum import spectral_density
from hoplite.training.train import as_seeds

SPECTRUM_POINTS = 201
CURVES_ON = "cora"

Report = Callable[[str, float], None]


@dataclass
class _Found:
    """What is known of one job: its chosen options, what they gave, its entries of the table."""

    job: Job
    options: dict[str, Any]
    seen: dict[str, Any]
    entries: list[dict[str, Any]]
    ledger: Ledger | None = None


def reproduce(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    datasets: Sequence[str] | None = None,
    seeds: int = 5,
    workers: int | None = None,
    notes: str = "",
    progress: Report | None = None,
) -> dict[str, Any]:
    """Run the paper's experiments into ``out`` and return the results (``results.json``).

    ``out`` also gets ``report.html``, ``RESULTS.md``, ``runs.parquet`` and the ledgers of the
    searches. A call that was interrupted, in whatever way, is continued by the same call.

    Parameters
    ----------
    quick : train one given configuration of each model, without a search
    datasets : some of cora, citeseer and pubmed; all if None
    seeds : runs of each configuration
    workers : processes of a search; one per core if None
    notes : Markdown for RESULTS.md, the explanations that no program can give
    progress : called with what is being done and how far all of it is, 0 to 1
    """
    folder = Path(out)
    chosen_data = check_datasets(datasets)
    jobs = quick_jobs(chosen_data) if quick else full_jobs(chosen_data)
    report = progress or (lambda what, share: None)
    graphs = {name: load(name) for name in chosen_data}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    results: dict[str, Any] = {
        "format": 1,
        "kind": "quick" if quick else "full",
        "command": _command(folder, quick, datasets, seeds),
        "provenance": _provenance(),
    }
    found: list[_Found] = []
    for index, job in enumerate(jobs):
        begin, size = 0.8 * index / len(jobs), 0.8 / len(jobs)

        def share(part: float, job: Job = job, begin: float = begin, size: float = size) -> None:
            report(job.name, begin + size * part)

        share(0.0)
        graph = graphs[job.dataset]
        if quick:
            found.append(_quick_job(graph, job, folder, seeds))
        else:
            found.append(_full_job(graph, job, folder, seeds, workers, share))
        results["accuracy"] = [entry for one in found for entry in one.entries]
        results |= _learned(found)
        _write(folder, results)
    results["timing"] = []
    effort = timing.QUICK if quick else timing.FULL
    for index, (name, graph) in enumerate(graphs.items()):
        of_graph = [(one.job, one.options) for one in found if one.job.dataset == name]
        results["timing"] += timing.time_jobs(
            graph,
            of_graph,
            effort,
            lambda what, part, i=index, n=name: report(
                f"{n}: time of {what}", 0.8 + 0.15 * (i + part) / len(graphs)
            ),
        )
        _write(folder, results)
    results["spectrum"] = []
    for index, (name, graph) in enumerate(graphs.items()):
        report(f"{name}: spectrum", 0.95 + 0.04 * index / len(graphs))
        results["spectrum"].append(_spectrum(name, graph, found))
    _write(folder, results)
    report("report", 0.99)
    try:
        if not quick:
            write_table(_all_runs(found), folder / "runs.parquet")
        write_report(results, folder / "report.html")
        write_markdown(results, folder / "RESULTS.md", notes=notes)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    report("done", 1.0)
    return results


def _quick_job(graph: Graph, job: Job, folder: Path, seeds: int) -> _Found:
    """Train the one configuration that the quick grid has."""
    configuration = read_space(job.grid).configurations(job.dataset, job.model, job.fixed)[0]
    options = full_options(job.model, configuration)
    seen = examine(graph, job, options, as_seeds(seeds), folder / "chosen")
    sizes = {"configurations": 1, "runs": len(seen["seeds"])}
    entry = _entry(job, "validation", options, seen["seeds"], seen["val"], seen["test"], sizes)
    return _Found(job, options, seen, [entry])


def _full_job(
    graph: Graph,
    job: Job,
    folder: Path,
    seeds: int,
    workers: int | None,
    share: Callable[[float], None],
) -> _Found:
    """Search, choose on validation, train the chosen one; then, apart, the biased twin."""
    space = read_space(job.grid)
    ledger = run_search(
        graph,
        job.model,
        space.configurations(job.dataset, job.model, job.fixed),
        folder / "searches" / job.name,
        seeds=seeds,
        protocol="test",
        workers=workers or os.cpu_count() or 1,
        progress=lambda state: share(0.9 * state.share),
    )
    settings = ledger.settings
    sizes = {
        "cut": space.cut(job.dataset, job.model, job.fixed),
        "configurations": len(settings["configurations"]),
        "runs": len(settings["configurations"]) * len(settings["seeds"]),
        "minutes": ledger.cpu_seconds() / 60,
    }
    options = rank(ledger, "validation")[0].options
    seen = examine(graph, job, options, settings["seeds"], folder / "chosen")
    best = choose(graph, ledger, "test").best
    return _Found(
        job,
        options,
        seen,
        [
            _entry(job, "validation", options, seen["seeds"], seen["val"], seen["test"], sizes),
            _entry(job, "test", best.options, seen["seeds"], best.val, best.test, sizes),
        ],
        ledger,
    )


def _entry(
    job: Job,
    protocol: str,
    options: dict[str, Any],
    seeds: list[int],
    val: Sequence[float],
    test: Sequence[float],
    sizes: dict[str, Any],
) -> dict[str, Any]:
    return {
        "protocol": protocol,
        "dataset": job.dataset,
        "model": job.model,
        "gate": job.gate,
        "grid": job.grid,
        "cut": None,
        **sizes,
        "config": options,
        "seeds": seeds,
        "val_mean": float(np.mean(val)),
        "val_std": float(np.std(val)),
        "test_mean": float(np.mean(test)),
        "test_std": float(np.std(test)),
        "val": list(val),
        "test": list(test),
        "command": train_command(job.dataset, job.model, options, seeds),
    }


def _learned(found: list[_Found]) -> dict[str, list[dict[str, Any]]]:
    """The sections ``curves`` and ``coefficients``."""
    curves, coefficients = [], []
    for one in found:
        about = {key: getattr(one.job, key) for key in ("dataset", "model", "gate")}
        about["config"] = one.options
        learned = one.seen["coefficients"]
        if learned is None:
            continue
        if one.job.dataset == CURVES_ON:
            first = {"seed": one.seen["seeds"][0], "best_epoch": one.seen["best_epoch"]}
            curves.append({**about, **first, **one.seen["curves"]})
        if one.job.model != "sgc":  # its only coefficient is 1
            runs = _floats(learned["runs"])
            coefficients.append(
                {
                    **about,
                    "seeds": one.seen["seeds"],
                    "mean": runs.mean(axis=0).tolist(),
                    "std": runs.std(axis=0).tolist(),
                    **learned,
                }
            )
    return {"curves": curves, "coefficients": coefficients}


def _spectrum(name: str, graph: Graph, found: list[_Found]) -> dict[str, Any]:
    """Density of the operator's eigenvalues, and each learned filter over them."""
    points, density = spectral_density(graph, "renormalized", SPECTRUM_POINTS)
    responses = []
    for one in found:
        learned = one.seen["coefficients"]
        if one.job.dataset != name or learned is None:
            continue
        basis, operator = one.options["basis"], one.options["operator"]
        each = np.array(
            [
                frequency_response(c, points, basis=basis, operator=operator)
                for c in _floats(learned["runs"])
            ]
        )
        each /= np.abs(each).max(axis=1, keepdims=True)  # only the shape can be compared
        responses.append(
            {
                "model": one.job.model,
                "gate": one.job.gate,
                "config": one.options,
                "mean": each.mean(axis=0).tolist(),
                "std": each.std(axis=0).tolist(),
            }
        )
    return {
        "dataset": name,
        "operator": "renormalized",
        "points": points.tolist(),
        "density": density.tolist(),
        "responses": responses,
    }


def _all_runs(found: list[_Found]) -> pa.Table:
    """Every run of every search; test accuracies are not among them."""
    tables = []
    for one in found:
        if one.ledger is None:
            continue
        table = runs_table(one.ledger)
        for position, (key, value) in enumerate(
            (("dataset", one.job.dataset), ("model", one.job.model))
        ):
            table = table.add_column(position, key, pa.array([value] * len(table)))
        tables.append(table)
    return pa.concat_tables(tables, promote_options="default")


def _floats(runs: Any) -> np.ndarray:
    return np.array(runs, dtype=np.float64)  # None, a value that was not finite, becomes NaN


def _write(folder: Path, results: dict[str, Any]) -> None:
    try:
        atomic_write_text(folder / "results.json", json.dumps(results, allow_nan=False) + "\n")
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def _provenance() -> dict[str, Any]:
    machine = describe(os.cpu_count() or get_num_threads())
    return {"date": datetime.date.today().isoformat(), "machine": machine}


def _command(folder: Path, quick: bool, datasets: Sequence[str] | None, seeds: int) -> str:
    """The command that repeats this; a folder outside the current one is left out of it."""
    name = folder.name if folder.is_absolute() or ".." in folder.parts else folder.as_posix()
    words = ["hoplite", "reproduce", *["--quick"] * quick]
    for dataset in datasets or ():
        words += ["--dataset", dataset]
    words += ["--seeds", str(seeds)] if seeds != 5 else []
    return " ".join([*words, "--out", name])
