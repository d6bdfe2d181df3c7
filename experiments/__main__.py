"""``python -m experiments``: the paper's experiments and the comparison table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from experiments import defaults, graphs, imbalanced, linear, reproduce
from experiments.linear_report import linear_report
from experiments.paper_report import paper_report
from experiments.report import Report, show, write
from experiments.results import LINEAR, LinearTable, load_results
from experiments.trainings import CORES
from hoplite import HopliteError


def main(words: list[str] | None = None) -> int:
    """0 if it worked, 1 if it failed, with one sentence on standard error."""
    options = parser().parse_args(words)
    console = Console(stderr=True)
    try:
        options.run(options, console)
    except (HopliteError, OSError) as error:
        console.print(f"Error: {error}", markup=False, highlight=False)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    found = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = found.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[Any, Console], None], about: str) -> Any:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(run=run)
        return added

    paper = command("reproduce", _reproduce, "Run the paper's experiments, beside its figures.")
    paper.add_argument("--quick", action="store_true", help="given settings, without a search")
    paper.add_argument("--seeds", type=int, default=5, help="runs of each configuration")
    paper.add_argument("--gate", action="append", metavar="NAME", help="only this gate of hLGC")
    table = command("linear", _linear, "Compare linear models, and some others, on many graphs.")
    table.add_argument("--graphs", type=Path, help="folder of .npz files; see docs/report.md")
    table.add_argument("--methods", type=Path, help="a file of methods and grids")
    for one in (paper, table):
        one.add_argument("--out", type=Path, required=True, help="folder; continued if it exists")
        one.add_argument(
            "--dataset", action="append", metavar="NAME", help="only this (repeatable)"
        )
        one.add_argument("--model", action="append", metavar="NAME", help="only this (repeatable)")
        one.add_argument("--workers", type=int, default=CORES, help="processes")
    report = command("report", _report, "Write the report of a folder of results again.")
    report.add_argument("folder", type=Path)
    auc = command("imbalanced", _imbalanced, "ROC AUC of hop blocks on two imbalanced graphs.")
    auc.add_argument("graphs", type=Path, help="folder with tolokers.npz and minesweeper.npz")
    auc.add_argument("--out", type=Path, default=Path("runs/imbalanced"), help="of the trainings")
    auc.add_argument("--workers", type=int, default=CORES, help="processes")
    whole = command("graphs", _graphs, "Classify whole graphs, on folds with published figures.")
    whole.add_argument("--data", type=Path, required=True, help="folder of NAME.npz with splits")
    whole.add_argument("--out", type=Path, default=Path("runs/graphs"), help="of the folds")
    whole.add_argument("--set", action="append", metavar="NAME", help="only this (repeatable)")
    whole.add_argument("--nets", action="store_true", help="networks, for hours, instead")
    whole.add_argument("--workers", type=int, default=CORES, help="processes")
    plain = command("defaults", _defaults, "The defaults against scikit-learn on the features.")
    plain.add_argument("--graphs", type=Path, help="folder of .npz files; see docs/report.md")
    plain.add_argument("--dataset", action="append", metavar="NAME", help="only this (repeatable)")
    return found


def _defaults(options: argparse.Namespace, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        print(defaults.run(options.graphs, options.dataset, _reporter(progress)))


def _reproduce(options: argparse.Namespace, console: Console) -> None:
    more = {"quick": options.quick, "seeds": options.seeds, "gates": options.gate}
    results = _run(reproduce.reproduce, options, console, **more)
    _finish(paper_report(results, _notes(options.out)), options.out, "RESULTS.md")


def _linear(options: argparse.Namespace, console: Console) -> None:
    more = {"graphs": options.graphs, "methods": options.methods}
    table = _run(linear.linear_table, options, console, **more)
    _finish(linear_report(table), options.out, "LINEAR.md")


def _run(work: Any, options: argparse.Namespace, console: Console, **more: Any) -> Any:
    """Run an experiment with the options that all have, and show how far it is."""
    shared = {"datasets": options.dataset, "models": options.model, "workers": options.workers}
    with Progress(console=console, transient=True) as progress:
        return work(options.out, report=_reporter(progress), **shared, **more)


def _report(options: argparse.Namespace, console: Console) -> None:
    if (options.folder / LINEAR).exists():
        table = load_results(options.folder, LinearTable)
        _finish(linear_report(table), options.folder, "LINEAR.md")
    else:
        results = load_results(options.folder)
        _finish(paper_report(results, _notes(options.folder)), options.folder, "RESULTS.md")


def _imbalanced(options: argparse.Namespace, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        page = imbalanced.run(options.graphs, options.out, options.workers, _reporter(progress))
    print(page)


def _graphs(options: argparse.Namespace, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        report = _reporter(progress)
        if options.nets:
            from experiments import graph_nets

            sets = options.set or graph_nets.SETS
            print(graph_nets.run(options.data, options.out / "nets", sets, report))
            return
        sets = options.set or graphs.DEFAULT
        print(graphs.run(options.data, options.out, sets, options.workers, report))


def _notes(folder: Path) -> str:
    """Explanations written by hand, for the Markdown page."""
    path = folder / "notes.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _finish(report: Report, out: Path, name: str) -> None:
    write(report, out, name)
    show(report)
    print(f"Results: {out / name}\nReport: {out / 'report.html'}")


def _reporter(progress: Progress) -> Callable[[str, float], None]:
    task = progress.add_task("", total=1.0)
    return lambda what, share: progress.update(task, description=what, completed=share)


if __name__ == "__main__":
    sys.exit(main())
