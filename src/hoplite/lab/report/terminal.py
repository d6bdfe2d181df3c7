"""Compact tables for the terminal."""

from __future__ import annotations

from typing import Any

from hoplite.lab.report.check import check_results
from hoplite.lab.report.findings import BEFOREHAND, chosen
from hoplite.lab.report.text import milliseconds, ratio, score
from hoplite.lab.report.view import Cell, TimeCell, accuracy_table, peer_rows, timing_table
from hoplite.words import NOTHING, dataset_name, signed

TITLES = {
    "validation": "Test accuracy in %, {}",
    "test": "BIASED, an upper bound: test accuracy in %, {}",
}


def terminal_tables(results: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of every table that the results have something for."""
    check_results(results)
    tables = []
    for protocol, title in TITLES.items():
        table = accuracy_table(results, protocol)
        how = chosen(results, protocol)
        if how == BEFOREHAND:
            how += " (quick run, no search)"
        if table.cells:
            columns = ["model", *map(dataset_name, table.datasets)]
            rows = [
                [f"  {row.label}" if row.part else row.label, *map(_accuracy, row.cells)]
                for row in table.rows
                if any(row.cells)
            ]
            tables.append((title.format(how), columns, rows))
    datasets, timing = timing_table(results)
    if results.get("timing"):
        columns = ["model", *map(dataset_name, datasets)]
        rows = [[label, *map(_time, cells)] for label, _, cells in timing if any(cells)]
        rows += [[label, *map(_peer_time, times)] for label, times in peer_rows(results)]
        tables.append(("Milliseconds per epoch (against the paper's V100)", columns, rows))
    return tables


def _accuracy(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    ours = score(cell.ours, digits=1)
    if cell.paper is None:
        return ours
    return f"{ours} (paper {cell.paper.mean:.1f}, {signed(cell.difference)})"


def _time(cell: TimeCell | None) -> str:
    if cell is None:
        return NOTHING
    ours = milliseconds(cell.entry["ms_median"])
    if cell.paper is None:
        return ours
    faster = ratio(cell.paper.ms, cell.entry["ms_median"])
    return f"{ours} (paper {milliseconds(cell.paper.ms)}, {faster})"


def _peer_time(value: float | None) -> str:
    return NOTHING if value is None else milliseconds(value)
