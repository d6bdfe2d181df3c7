"""``python -m experiments``: the paper's experiments and the comparison table."""

from __future__ import annotations

import argparse
import json
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
from experiments.trainings import Report as Reporter
from hoplite import HopliteError


def main(words: list[str] | None = None) -> int:
    """0 if it worked, 1 if it failed, with one sentence on standard error."""
    options = parser().parse_args(words)
    console = Console(stderr=True)
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("", total=1.0)
            result = options.run(
                options,
                lambda what, share: progress.update(task, description=what, completed=share),
            )
    except (HopliteError, OSError) as error:
        console.print(f"Error: {error}", markup=False, highlight=False)
        return 1
    if isinstance(result, Report):
        show(result)
        print(f"Report: {options.out / 'report.html'}")
    else:
        print(result)
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    found = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    part = argparse.ArgumentParser(add_help=False)
    part.add_argument("--dataset", action="append", metavar="NAME", help="only this (repeatable)")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--workers", type=int, default=CORES, help="processes")
    table = argparse.ArgumentParser(add_help=False, parents=[part, shared])
    table.add_argument("--out", type=Path, required=True, help="folder; continued if it exists")
    table.add_argument("--model", action="append", metavar="NAME", help="only this (repeatable)")

    def command(name: str, run: Callable[[Any, Reporter], Report | str], *parents: Any) -> Any:
        about = run.__doc__
        added = commands.add_parser(name, help=about, description=about, parents=parents)
        added.set_defaults(run=run)
        return added

    paper = command("reproduce", _reproduce, table)
    paper.add_argument("--quick", action="store_true", help="given settings, without a search")
    paper.add_argument("--seeds", type=int, default=5, help="runs of each configuration")
    paper.add_argument("--gate", action="append", metavar="NAME", help="only this gate of hLGC")
    many = command("linear", _linear, table)
    many.add_argument("--graphs", type=Path, help="folder of .npz files; see docs/report.md")
    many.add_argument("--methods", type=Path, help="a file of methods and grids")
    report = command("report", _report)
    report.add_argument("out", type=Path, metavar="FOLDER")
    auc = command("imbalanced", _imbalanced, shared)
    auc.add_argument("graphs", type=Path, help="folder with tolokers.npz and minesweeper.npz")
    auc.add_argument("--out", type=Path, default=Path("runs/imbalanced"), help="of the trainings")
    whole = command("graphs", _graphs, shared)
    whole.add_argument("--data", type=Path, required=True, help="folder of NAME.npz with splits")
    whole.add_argument("--out", type=Path, default=Path("runs/graphs"), help="of the folds")
    whole.add_argument("--set", action="append", metavar="NAME", help="only this (repeatable)")
    whole.add_argument("--nets", action="store_true", help="networks, for hours, instead")
    plain = command("defaults", _defaults, part)
    plain.add_argument("--graphs", type=Path, help="folder of .npz files; see docs/report.md")
    plain.add_argument(
        "--out", type=Path, default=Path("runs/defaults"), help="of the figures; continued"
    )
    return found


def _reproduce(options: argparse.Namespace, report: Reporter) -> Report:
    """Run the paper's experiments, beside its figures."""
    reproduce.reproduce(
        options.out, quick=options.quick, datasets=options.dataset, models=options.model,
        gates=options.gate, seeds=options.seeds, workers=options.workers, report=report,
    )  # fmt: skip
    return _report(options, report)


def _linear(options: argparse.Namespace, report: Reporter) -> Report:
    """Compare linear models, and some others, on many graphs."""
    linear.linear_table(
        options.out, graphs=options.graphs, datasets=options.dataset, models=options.model,
        workers=options.workers, methods=options.methods, report=report,
    )  # fmt: skip
    return _report(options, report)


def _report(options: argparse.Namespace, report: Reporter) -> Report:
    """Write the report of a folder of results again."""
    folder = options.out
    if (folder / LINEAR).exists():
        made, name = linear_report(load_results(folder, LinearTable)), "LINEAR.md"
    else:
        notes = folder / "notes.md"
        text = notes.read_text(encoding="utf-8") if notes.exists() else ""
        path = folder / graphs.PAGE.with_suffix(".json").name
        whole = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        more = [graphs.section(whole)] if whole else []
        made, name = paper_report(load_results(folder), text, more), "RESULTS.md"
    write(made, folder, name)
    return made


def _imbalanced(options: argparse.Namespace, report: Reporter) -> str:
    """ROC AUC of hop blocks on two imbalanced graphs."""
    return imbalanced.run(options.graphs, options.out, options.workers, report)


def _defaults(options: argparse.Namespace, report: Reporter) -> str:
    """The defaults against scikit-learn on the features."""
    return defaults.run(options.graphs, options.out, options.dataset, report)


def _graphs(options: argparse.Namespace, report: Reporter) -> str:
    """Classify whole graphs, on folds with published figures."""
    if options.nets:
        from experiments import graph_nets

        sets = options.set or graph_nets.SETS
        return graph_nets.run(options.data, options.out / "nets", sets, report)
    sets = options.set or graphs.DEFAULT
    return graphs.run(options.data, options.out, sets, options.workers, report)


if __name__ == "__main__":
    sys.exit(main())
