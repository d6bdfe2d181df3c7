"""reproduce: everything in order, each step kept, the results file written as it grows."""

from __future__ import annotations

import datetime
import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hoplite.datasets import load
from hoplite.errors import ConfigError, HopliteError
from hoplite.files import atomic_write_text
from hoplite.graph import Graph
from hoplite.lab.bench.machine import describe
from hoplite.lab.report import load_results, write_markdown, write_report
from hoplite.lab.reproduce import timing
from hoplite.lab.reproduce.chosen import examine, examine_many
from hoplite.lab.reproduce.jobs import MODELS_SHARE, Job, check_datasets, full_jobs, quick_jobs
from hoplite.lab.reproduce.sections import (
    Found,
    accuracy_entry,
    all_runs,
    learned_sections,
    spectrum_entry,
)
from hoplite.predictions import write_table
from hoplite.selection import choose, rank, read_space
from hoplite.selection.runner import run_search
from hoplite.selection.settings import full_options
from hoplite.training.train import as_seeds

CORES = os.cpu_count() or 1

Report = Callable[[str, float], None]


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
    workers : processes; one per core if None. In a script, more than one need the usual
        ``if __name__ == "__main__":``
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
    finished = _finished(folder, "quick" if quick else "full", chosen_data, seeds)
    results: dict[str, Any] = {
        "format": 1,
        "kind": "quick" if quick else "full",
        "command": _command(folder, quick, datasets, seeds),
        "datasets": list(chosen_data),
        "seeds": seeds,
        "provenance": _provenance(),
    }

    def keep() -> None:
        if not finished:  # an interrupted repetition must not leave less than there was
            _write(folder, results)

    run_jobs = _quick_jobs if quick else _full_jobs
    found: list[Found] = []
    for one in run_jobs(graphs, jobs, folder, as_seeds(seeds), workers or CORES, report):
        found.append(one)
        results["accuracy"] = [entry for each in found for entry in each.entries]
        results |= learned_sections(found)
        keep()
    results["timing"] = []
    effort = timing.QUICK if quick else timing.FULL
    for index, (name, graph) in enumerate(graphs.items()):
        of_graph = [(one.job, one.options) for one in found if one.job.dataset == name]
        results["timing"] += timing.time_jobs(
            graph,
            of_graph,
            effort,
            lambda what, part, i=index, n=name: report(
                f"{n}: time of {what}", MODELS_SHARE + 0.15 * (i + part) / len(graphs)
            ),
        )
        keep()
    results["spectrum"] = []
    for index, (name, graph) in enumerate(graphs.items()):
        report(f"{name}: spectrum", 0.95 + 0.04 * index / len(graphs))
        results["spectrum"].append(spectrum_entry(name, graph, found))
    _write(folder, results)
    report("report", 0.99)
    try:
        if not quick:
            write_table(all_runs(found), folder / "runs.parquet")
        write_report(results, folder / "report.html")
        write_markdown(results, folder / "RESULTS.md", notes=notes)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    report("done", 1.0)
    return results


def _finished(folder: Path, kind: str, datasets: Sequence[str], seeds: int) -> bool:
    """Whether ``folder`` holds this very run, and all of it; another run is refused."""
    if not (folder / "results.json").exists():
        return False
    old = load_results(folder)
    here = {"kind": kind, "datasets": list(datasets), "seeds": seeds}
    for name, value in here.items():
        if old.get(name, value) != value:
            raise ConfigError(
                f"{folder} holds a run with {name} {old[name]!r}, and this one has {value!r}; "
                "give another folder."
            )
    return bool(old.get("spectrum"))


def _quick_jobs(
    graphs: dict[str, Graph],
    jobs: list[Job],
    folder: Path,
    seeds: list[int],
    workers: int,
    report: Report,
) -> Iterator[Found]:
    """Train the one configuration that the quick grid has, jobs side by side."""
    options = {}
    for job in jobs:
        configuration = read_space(job.grid).configurations(job.dataset, job.model, job.fixed)[0]
        options[job] = full_options(job.model, configuration)
    tasks = [(job, options[job]) for job in jobs]
    for job, seen in examine_many(graphs, tasks, seeds, folder / "chosen", workers, report):
        sizes = {"configurations": 1, "runs": len(seeds)}
        yield Found(
            job, options[job], seen, [accuracy_entry(job, "validation", options[job], seen, sizes)]
        )


def _full_jobs(
    graphs: dict[str, Graph],
    jobs: list[Job],
    folder: Path,
    seeds: list[int],
    workers: int,
    report: Report,
) -> Iterator[Found]:
    """Search, choose on validation, train the chosen one; then, apart, the biased twin."""
    for index, job in enumerate(jobs):

        def share(part: float, name: str = job.name, index: int = index) -> None:
            report(name, MODELS_SHARE * (index + part) / len(jobs))

        share(0.0)
        graph, space = graphs[job.dataset], read_space(job.grid)
        ledger = run_search(
            graph,
            job.model,
            space.configurations(job.dataset, job.model, job.fixed),
            folder / "searches" / job.name,
            seeds=seeds,
            protocol="test",
            workers=workers,
            progress=lambda state, share=share: share(0.9 * state.share),
        )
        count = len(ledger.settings["configurations"])
        sizes = {
            "cut": space.cut(job.dataset, job.model, job.fixed),
            "configurations": count,
            "runs": count * len(seeds),
            "minutes": ledger.cpu_seconds() / 60,
        }
        options = rank(ledger, "validation")[0].options
        seen = examine(graph, job, options, seeds, folder / "chosen")
        best = choose(graph, ledger, "test").best
        biased = {"val": best.val, "test": best.test, "seeds": seeds}
        entries = [
            accuracy_entry(job, "validation", options, seen, sizes),
            accuracy_entry(job, "test", best.options, biased, sizes),
        ]
        yield Found(job, options, seen, entries, ledger)


def _write(folder: Path, results: dict[str, Any]) -> None:
    try:
        atomic_write_text(folder / "results.json", json.dumps(results, allow_nan=False) + "\n")
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def _provenance() -> dict[str, Any]:
    machine = describe(CORES)
    return {"date": datetime.date.today().isoformat(), "machine": machine}


def _command(folder: Path, quick: bool, datasets: Sequence[str] | None, seeds: int) -> str:
    """The command that repeats this; a folder outside the current one is left out of it."""
    name = folder.name if folder.is_absolute() or ".." in folder.parts else folder.as_posix()
    words = ["hoplite", "reproduce", *["--quick"] * quick]
    for dataset in datasets or ():
        words += ["--dataset", dataset]
    words += ["--seeds", str(seeds)] if seeds != 5 else []
    # a name may hold bytes that are no UTF-8, which no results file can
    return shlex.join([*words, "--out", name]).encode("utf-8", "replace").decode("utf-8")
