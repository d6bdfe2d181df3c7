"""hoplite report: the results of `hoplite reproduce` as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hoplite.cli.console import JsonOption, print_json, print_line, print_table
from hoplite.cli.outputs import OverwriteOption, check_page, mark, seal
from hoplite.errors import HopliteError, plural


def report(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The folder that `hoplite reproduce` or `hoplite search` wrote."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write: FILE.html.")] = Path("report.html"),
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Turn the results in DIR into one HTML page that needs no network, and print its tables."""
    check_page(out, overwrite=overwrite)
    from hoplite.lab.report import check_libraries, terminal_tables, write_report
    from hoplite.lab.report.findings import busy_line, findings, headline, missing
    from hoplite.lab.results import FILE, load_results

    check_libraries()
    if (folder / "linear.json").exists() and not (folder / FILE).exists():
        _linear(folder, out, json)
        return
    results = load_results(folder)
    try:
        write_report(results, out, mark=mark())
        seal(out)
    except OSError as error:
        raise HopliteError(f"cannot write {out}: {error.strerror}.") from None
    if json:
        facts = {"headline": headline(results), "findings": findings(results)}
        print_json({"out": str(out), **facts, "missing": missing(results)})
        return
    for title, columns, rows in terminal_tables(results):
        print_table(title, columns, rows)
    if results.timing and busy_line(results):
        print_line(busy_line(results))
    print_line(headline(results))
    for line in missing(results):
        print_line(f"Not in this run: {line}")
    print_line(f"Page: {out}")


def _linear(folder: Path, out: Path, json: bool) -> None:
    """The page of the second table."""
    from hoplite.lab.linear import read_linear, terminal_tables, write_page

    table = read_linear(folder)
    try:
        write_page(table, out, mark=mark())
        seal(out)
    except OSError as error:
        raise HopliteError(f"cannot write {out}: {error.strerror}.") from None
    if json:
        print_json({"out": str(out), "figures": len(table.figures), "missing": table.missing})
        return
    for title, columns, rows in terminal_tables(table):
        print_table(title, columns, rows)
    if table.missing:
        print_line(f"Still to come: {plural(table.missing, 'figure')}. Continue: {table.command}")
    print_line(f"Page: {out}")
