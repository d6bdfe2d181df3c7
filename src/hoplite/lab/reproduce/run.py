"""reproduce: everything in order, each step kept, the results file written as it grows.

A search per model and dataset, of the paper's grid or of the part of it that we can afford; then
the chosen models, their times and their filters.
"""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hoplite.datasets import load
from hoplite.errors import ConfigError, HopliteError, check_choice
from hoplite.graph import Graph
from hoplite.lab.machine import describe
from hoplite.lab.report import write_markdown, write_report
from hoplite.lab.reproduce import sections
from hoplite.lab.reproduce.chosen import Examination, Job, result_of, train_all
from hoplite.lab.reproduce.comparison import BASE, compare
from hoplite.lab.reproduce.sections import Found, accuracy_entry
from hoplite.lab.results import FILE, Provenance, Results, load_results, write_results
from hoplite.predictions import write_table
from hoplite.selection import Ledger, choose, full_options, rank, read_space, run_search
from hoplite.training.results import as_seeds

DATASETS = ("cora", "citeseer", "pubmed")
LINEAR = ("sgc", "egc", "lgc")  # searched over the paper's whole grid, as is gcn
CORES = os.cpu_count() or 1
MODELS_SHARE = 0.8  # of all progress; then comparison, times, spectra and the report
COMPARED, TIMED = 0.88, 0.95

Report = Callable[[str, float], None]


def full_jobs(datasets: Sequence[str]) -> list[Job]:
    """The cheap grids first, so that an interrupted run has something to show."""
    whole = [Job(data, model, "paper") for data in datasets for model in (*LINEAR, "gcn")]
    cut = [Job(data, "hlgc", "reduced", "class") for data in datasets]
    cut += [Job(data, "gat", "reduced") for data in datasets]
    cut += [Job(data, "hlgc", "reduced", gate) for data in datasets for gate in ("node", "feature")]
    return whole + cut


def quick_jobs(datasets: Sequence[str]) -> list[Job]:
    """One configuration each, of hLGC with the gate that the grid names."""
    models = (*LINEAR, "gcn", "gat")
    jobs = [Job(data, model, "quick") for data in datasets for model in models]
    gates = {data: read_space("quick").configurations(data, "hlgc")[0]["gate"] for data in datasets}
    return jobs + [Job(data, "hlgc", "quick", gate) for data, gate in gates.items()]


def check_datasets(datasets: Sequence[str] | None) -> tuple[str, ...]:
    """All three, or those of them that are asked for."""
    chosen = DATASETS if datasets is None else tuple(datasets)
    for name in chosen:
        check_choice("datasets", name, DATASETS)
    return tuple(name for name in DATASETS if name in chosen)


def reproduce(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seeds: int = 5,
    workers: int | None = None,
    notes: str = "",
    progress: Report | None = None,
) -> Results:
    """Run the paper's experiments into ``out`` and return the results (``results.json``).

    ``out`` also gets ``report.html``, ``RESULTS.md``, ``runs.parquet`` and the ledgers of the
    searches. A call that was interrupted, in whatever way, is continued by the same call;
    until then ``hoplite report`` shows what there is.

    Parameters
    ----------
    quick : train one given configuration of each model, without a search
    datasets : some of cora, citeseer and pubmed; all if None
    models : run these alone, and keep what ``out`` has of the others; all if None. Times per epoch
        are measured again for all
    seeds : runs of each configuration
    workers : processes; one per core if None. In a script, more than one need the usual
        ``if __name__ == "__main__":``
    notes : Markdown for RESULTS.md, the explanations that no program can give
    progress : called with what is being done and how far all of it is, 0 to 1
    """
    folder = Path(out)
    chosen_data = check_datasets(datasets)
    jobs = quick_jobs(chosen_data) if quick else full_jobs(chosen_data)
    for model in models or ():
        check_choice("models", model, list(dict.fromkeys(job.model for job in jobs)))
    jobs = [job for job in jobs if models is None or job.model in models]
    report = progress or (lambda what, share: None)
    graphs = {name: load(name) for name in chosen_data}
    results = Results(
        kind="quick" if quick else "full",
        command=_command(folder, quick, datasets, models, seeds),
        datasets=list(chosen_data),
        seeds=seeds,
        provenance=Provenance(datetime.date.today().isoformat(), describe(CORES)),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error
    old = _found(folder, results)
    finished = bool(old.spectrum)
    kept = Results() if models is None else _kept(old, models)
    results = replace(
        results,
        command=old.command if kept.accuracy else results.command,
        accuracy=kept.accuracy,
        curves=kept.curves,
        coefficients=kept.coefficients,
    )

    def keep() -> None:
        if not finished:  # an interrupted repetition must not leave less than there was
            write_results(results, folder)

    keep()
    run_jobs = _quick_jobs if quick else _full_jobs
    found: list[Found] = []
    for one in run_jobs(graphs, jobs, folder, as_seeds(seeds), workers or CORES, report):
        found.append(one)
        results = replace(
            results,
            accuracy=[*kept.accuracy, *(entry for each in found for entry in each.entries)],
            curves=[*kept.curves, *sections.loss_curves(found)],
            coefficients=[*kept.coefficients, *sections.coefficients(found)],
        )
        keep()
    if not quick:
        results = _compared(results, graphs, folder, workers or CORES, report)
        keep()
    effort = sections.QUICK if quick else sections.FULL
    for index, (name, graph) in enumerate(graphs.items()):
        times = sections.time_jobs(
            graph,
            [entry for entry in results.of("validation") if entry.dataset == name],
            effort,
            lambda what, part, i=index, n=name: report(
                f"{n}: time of {what}", COMPARED + (TIMED - COMPARED) * (i + part) / len(graphs)
            ),
        )
        results = replace(results, timing=results.timing + times)
        keep()
    for index, (name, graph) in enumerate(graphs.items()):
        report(f"{name}: spectrum", TIMED + 0.04 * index / len(graphs))
        before = next((one for one in kept.spectrum if one.dataset == name), None)
        shown = sections.spectrum(name, graph, found, before)
        results = replace(results, spectrum=[*results.spectrum, shown])
    report("report", 0.99)
    if not quick:
        runs = folder / "runs.parquet"
        write_table(sections.all_runs(found, runs if kept.accuracy else None), runs)
    _write(results, folder, notes)
    report("done", 1.0)
    return results


def compare_again(
    out: str | os.PathLike[str],
    *,
    workers: int | None = None,
    notes: str = "",
    progress: Report | None = None,
) -> Results:
    """The comparison on random splits alone, of the settings that the full run in ``out`` chose.

    Everything else there stays; see :func:`reproduce` for the parameters.
    """
    folder, report = Path(out), progress or (lambda what, share: None)
    results = load_results(folder)
    if results.quick or not any(entry.model == BASE for entry in results.of("validation")):
        raise HopliteError(f"{folder} holds no full run whose settings could be compared.")
    graphs = {name: load(name) for name in DATASETS if name in (results.datasets or DATASETS)}
    results = _compared(results, graphs, folder, workers or CORES, report)
    _write(results, folder, notes)
    report("done", 1.0)
    return results


def _compared(
    results: Results, graphs: dict[str, Graph], folder: Path, workers: int, report: Report
) -> Results:
    def share(name: str, part: float) -> None:
        report(f"{name}: random split", MODELS_SHARE + (COMPARED - MODELS_SHARE) * part)

    command = f"hoplite reproduce --comparison --out {shlex.quote(_name(folder))}"
    chosen = results.of("validation")
    found = compare(graphs, chosen, folder / "comparison", workers, command, share)
    return replace(results, comparison=found)


def _write(results: Results, folder: Path, notes: str) -> None:
    write_results(results, folder)
    try:
        write_report(results, folder / "report.html")
        write_markdown(results, folder / "RESULTS.md", notes=notes)
    except OSError as error:
        raise HopliteError(f"cannot write to {folder}: {error.strerror}.") from error


def _found(folder: Path, new: Results) -> Results:
    """What ``folder`` holds of this very run, or nothing; another run is refused."""
    if not (folder / FILE).exists():
        return Results()
    old = load_results(folder)
    for name in ("kind", "datasets", "seeds"):
        there, here = getattr(old, name), getattr(new, name)
        if there not in (None, here):
            raise ConfigError(
                f"{folder} holds a run with {name} {there!r}, and this one has {here!r}; "
                "give another folder."
            )
    return old


def _kept(old: Results, models: Sequence[str]) -> Results:
    """What there is of other models than these, with the date and version that it is of."""
    made = {
        "date": old.provenance.date,
        "hoplite": old.provenance.machine.versions.get("hoplite"),
    }
    known = [
        replace(entry, **{name: getattr(entry, name) or value for name, value in made.items()})
        for entry in old.accuracy
    ]

    def others(entries: list[Any]) -> list[Any]:
        return [entry for entry in entries if entry.model not in models]

    return Results(
        accuracy=others(known),
        curves=others(old.curves),
        coefficients=others(old.coefficients),
        spectrum=[replace(one, responses=others(one.responses)) for one in old.spectrum],
    )


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
    tasks = [Examination(graphs[job.dataset], job, options[job], seeds) for job in jobs]

    def share(name: str, part: float) -> None:
        report(name, MODELS_SHARE * part)

    for job, seen in zip(jobs, train_all(tasks, folder / "chosen", workers, share), strict=True):
        entry = accuracy_entry(
            job, "validation", options[job], seeds, seen.val, seen.test,
            configurations=1, runs=len(seeds), figures=seen.figures,
        )  # fmt: skip
        yield Found(job, options[job], seen, [entry])


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
        graph = graphs[job.dataset]
        ledger = search_job(graph, job, folder, seeds, workers, lambda part: share(0.9 * part))
        options = rank(ledger, "validation")[0].options
        seen = result_of(Examination(graph, job, options, seeds), folder / "chosen")
        biased = choose(graph, ledger, "test")
        best, searched = biased.best, biased.summary()
        sizes = {
            "cut": read_space(job.grid).cut(job.dataset, job.model, job.fixed),
            "configurations": searched.configurations,
            "runs": searched.runs,
            "minutes": searched.cpu_minutes,
        }
        entries = [
            accuracy_entry(
                job,
                "validation",
                options,
                seeds,
                seen.val,
                seen.test,
                **sizes,
                figures=seen.figures,
            ),
            accuracy_entry(job, "test", best.options, seeds, best.val, best.test, **sizes),
        ]
        yield Found(job, options, seen, entries, ledger)


def search_job(
    graph: Graph,
    job: Job,
    folder: Path,
    seeds: list[int],
    workers: int,
    share: Callable[[float], None] = lambda part: None,
) -> Ledger:
    """The search of a job, in its place below ``folder``; it tells how far it is, and no figure."""
    space = read_space(job.grid)
    return run_search(
        graph,
        job.model,
        space.configurations(job.dataset, job.model, job.fixed),
        folder / "searches" / job.name,
        seeds=seeds,
        screen=space.screen(job.dataset, job.model, job.fixed),
        protocol="test",
        workers=workers,
        progress=lambda state: share(state.share),
    )


def _command(
    folder: Path,
    quick: bool,
    datasets: Sequence[str] | None,
    models: Sequence[str] | None,
    seeds: int,
) -> str:
    """The command that repeats this."""
    words = ["hoplite", "reproduce", *["--quick"] * quick]
    for dataset in datasets or ():
        words += ["--dataset", dataset]
    for model in models or ():
        words += ["--model", model]
    words += ["--seeds", str(seeds)] if seeds != 5 else []
    return shlex.join([*words, "--out", _name(folder)])


def _name(folder: Path) -> str:
    """A folder as a command names it, without what is outside of the current one."""
    name = folder.name if folder.is_absolute() or ".." in folder.parts else folder.as_posix()
    # it may hold bytes that are no UTF-8, which no results file can
    return name.encode("utf-8", "replace").decode("utf-8")
