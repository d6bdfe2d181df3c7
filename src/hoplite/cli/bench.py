"""hoplite bench: Hoplite beside its peers, in one run, on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hoplite.cli.completion import BENCHMARKS, offered
from hoplite.cli.console import (
    JsonOption,
    print_json,
    print_line,
    print_table,
    report_and_fail,
    steps_bar,
)
from hoplite.cli.outputs import OverwriteOption, again, check_file, is_marked, mark, seal
from hoplite.errors import HopliteError
from hoplite.files import atomic_write_text

if TYPE_CHECKING:  # importing it takes time
    from hoplite.lab.bench.suite import SuiteResult


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes, within a minute; else many minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Run this one (repeatable): {', '.join(BENCHMARKS)}.",
            autocompletion=offered(BENCHMARKS),
        ),
    ] = None,
    large: Annotated[
        bool,
        typer.Option(
            "--large",
            help="Graphs of Reddit's size instead: 20 minutes, 7 GB of memory, and 10 GB of "
            "disk in the temporary folder (TMPDIR).",
        ),
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; all cores if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the tables as FILE.md, too.")] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Measure Hoplite and its peers in turn and compare them with the goals.

    Peers: torch's CSR product, SciPy and DGL; the same models in plain torch, written with care,
    and PyTorch Geometric's layers.
    """
    command = _command(large, quick, only or [], threads, out)
    if out is not None:
        check_file("--out", out, [".md"], overwrite=overwrite, own=is_marked)
    # only now, as importing it takes time
    from hoplite.lab.bench.suite import BENCHMARKS as USUAL
    from hoplite.lab.bench.suite import LARGE, markdown, run_suite

    available = LARGE if large else (*USUAL, *LARGE) if only else USUAL
    with steps_bar("bench") as progress:
        result = run_suite(quick, only or (), threads, progress, available)
    failure: HopliteError | None = None
    if out is not None:
        try:
            atomic_write_text(out, markdown(result, command, mark()))
            seal(out)
        except OSError as error:  # a full disk must not take the figures with it
            failure = HopliteError(f"cannot write {out}: {error.strerror}.")
    if json:
        wrong = {} if failure is None else {"error": str(failure)}
        print_json({"command": command, **result.as_dict(), **wrong})
    else:
        _print(result)
        if out is not None and failure is None:
            print_line(f"Tables: {out}")
    report_and_fail(failure)


def _command(
    large: bool, quick: bool, only: list[str], threads: int | None, out: Path | None
) -> str:
    """The command that repeats this run; a folder outside the current one is left out of it."""
    words = ["bench", *["--large"] * large, *["--quick"] * quick]
    for name in only:
        words += ["--only", name]
    if threads is not None:
        words += ["--threads", str(threads)]
    if out is not None:
        words += ["--out", out.name if out.is_absolute() or ".." in out.parts else out.as_posix()]
    told = shlex.join(["hoplite", *words]) if out is None else again(words)
    return told.encode("utf-8", "replace").decode("utf-8")  # names may be any bytes


def _print(result: SuiteResult) -> None:
    from hoplite.lab.bench.suite import (
        COLUMNS,
        RATIO_NOTE,
        busy_line,
        machine_line,
        summary_line,
        table_rows,
        versions_line,
    )

    print_line(machine_line(result.machine))
    print_line(versions_line(result.machine))
    for benchmark, outcome in result.outcomes:
        if outcome.figures:
            print_table(f"{benchmark.name}: {benchmark.title}", COLUMNS, table_rows(outcome))
        for note in outcome.notes:
            print_line(f"  {benchmark.name}: {note}")
    print_line(RATIO_NOTE)
    print_line(busy_line(result))
    print_line(summary_line(result))
