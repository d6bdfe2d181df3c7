"""hoplite reproduce: the paper's Results section again, beside the paper's own figures."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hoplite.cli.completion import PROBLEMS, offered
from hoplite.cli.console import JsonOption, print_json, print_line, print_table, steps_bar
from hoplite.cli.outputs import refuse_others
from hoplite.errors import HopliteError, check_choice, plural, require_extra
from hoplite.files import read_regular

TABLES = ("paper", "linear")
PAPER_FILES = ("report.html", "RESULTS.md", "runs.parquet")
LINEAR_FILES = ("report.html", "LINEAR.md")
MOST_NOTES = 1 << 24  # bytes


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the results; continued if it has some.")],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Train given settings without a search, within 3 minutes."),
    ] = False,
    table: Annotated[
        str,
        typer.Option(
            metavar="paper|linear",
            help="The paper's experiments, or every linear model on many graphs.",
            autocompletion=offered(TABLES),
        ),
    ] = "paper",
    graphs: Annotated[
        Path | None,
        typer.Option(
            help="For --table linear: folder of .npz files of graphs; see docs/report.md."
        ),
    ] = None,
    methods: Annotated[
        Path | None,
        typer.Option(help="For --table linear: a file of methods and grids instead of our own."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only cora, citeseer or pubmed, or another dataset, problem or group of --table "
            "linear (repeatable).",
            autocompletion=offered(PROBLEMS),
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this model's, or method's, part; the others' results stay (repeatable).",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each configuration.")] = 5,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core if not given.")
    ] = None,
    notes: Annotated[
        Path | None, typer.Option(help="A Markdown file of explanations for RESULTS.md.")
    ] = None,
    comparison: Annotated[
        bool,
        typer.Option(
            "--comparison", help="Only hLGC against LGC on random splits, of a run in --out."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run the paper's experiments and show every figure beside the paper's.

    Writes results.json, report.html, RESULTS.md and runs.parquet to --out. The full run takes
    hours of processor time and may be interrupted: the same command goes on. So does --table
    linear, which writes linear.json, LINEAR.md and report.html.
    """
    check_choice("table", table, TABLES)
    if table == "linear":
        if quick or comparison or seeds != 5 or notes is not None:
            raise HopliteError(
                "--table linear has no --quick, --comparison, --seeds or --notes; leave them out."
            )
        _linear(out, graphs, methods, dataset, model, workers, json)
        return
    if graphs is not None or methods is not None:
        raise HopliteError(
            "--graphs and --methods are for --table linear; add it, or leave them out."
        )
    if comparison and (quick or dataset or model or seeds != 5):
        raise HopliteError(
            "--comparison takes its models and datasets from --out; leave the others out."
        )
    explained = ""
    if notes is not None:
        try:
            explained = read_regular(notes, MOST_NOTES).decode("utf-8")
        except OSError as error:
            raise HopliteError(f"cannot read {notes}: {error.strerror}.") from None
        except UnicodeDecodeError as error:
            raise HopliteError(f"cannot read {notes}: {error}.") from None
    refuse_others(out, "results.json", PAPER_FILES)
    require_extra("lab", "hoplite reproduce", "jinja2", "plotly", "torch_geometric")
    from hoplite.lab.report import terminal_tables  # only now, as importing it takes time
    from hoplite.lab.reproduce import compare_again
    from hoplite.lab.reproduce import reproduce as run

    started = time.monotonic()
    with steps_bar("reproduce") as progress:
        if comparison:
            results = compare_again(out, workers=workers, notes=explained, progress=progress)
        else:
            results = run(
                out,
                quick=quick,
                datasets=dataset,
                models=model,
                seeds=seeds,
                workers=workers,
                notes=explained,
                progress=progress,
            )
    page = out / "report.html"
    if json:
        minutes = (time.monotonic() - started) / 60
        print_json({**results.as_dict(), "report": str(page), "minutes": minutes})
        return
    for title, columns, rows in terminal_tables(results):
        print_table(title, columns, rows)
    print_line(f"Took {(time.monotonic() - started) / 60:.1f} minutes")
    print_line(f"Results: {out / 'RESULTS.md'}")
    print_line(f"Report: {page}")


def _linear(
    out: Path,
    graphs: Path | None,
    methods: Path | None,
    dataset: list[str] | None,
    model: list[str] | None,
    workers: int | None,
    json: bool,
) -> None:
    """The second table."""
    refuse_others(out, "linear.json", LINEAR_FILES)
    require_extra("lab", "hoplite reproduce", "jinja2", "plotly")
    from hoplite.lab.linear import (
        linear_table,
        terminal_tables,
    )  # only now, as importing it takes time

    with steps_bar("reproduce") as progress:
        found = linear_table(
            out,
            graphs=graphs,
            methods=methods,
            datasets=dataset,
            models=model,
            workers=workers,
            progress=progress,
        )
    page = out / "report.html"
    if json:
        print_json({**asdict(found), "report": str(page)})
        return
    for title, columns, rows in terminal_tables(found):
        print_table(title, columns, rows)
    if found.left_out:
        left = ", ".join(found.left_out)
        print_line(f"Left out, as no file of their graph was given: {left}")
    if found.missing:
        print_line(f"Still to come: {plural(found.missing, 'figure')}. Continue: {found.command}")
    print_line(f"Results: {out / 'LINEAR.md'}")
    print_line(f"Report: {page}")
