"""The results as text: the Markdown page RESULTS.md, and compact tables for the terminal."""

from __future__ import annotations

import html
import os
import re

from hoplite.files import atomic_write_text
from hoplite.lab import paper
from hoplite.lab.report.findings import (
    BEFOREHAND,
    BIASED,
    COMPARED,
    QUICK,
    busy_line,
    chosen,
    claim,
    command,
    cuts,
    differences,
    findings,
    headline,
    machine_line,
    measure,
    missing,
    origins,
    when,
)
from hoplite.lab.report.view import (
    TOLERANCE,
    Cell,
    TimeCell,
    accuracy_table,
    interval,
    milliseconds,
    on_splits,
    score,
    searched,
    setting,
    size,
    splits_table,
    timing_table,
)
from hoplite.lab.results import OnSplits, Results
from hoplite.words import NOTHING, dataset_name, plural, signed

TITLES = {
    "validation": "Test accuracy in %, {}",
    "test": "BIASED, an upper bound: test accuracy in %, {}",
}


def write_markdown(results: Results, out: str | os.PathLike[str], *, notes: str = "") -> None:
    """Write :func:`markdown` as the file ``out``, completely or not at all."""
    atomic_write_text(out, markdown(results, notes=notes))


def markdown(results: Results, *, notes: str = "") -> str:
    """The page; ``notes`` is Markdown written by hand, put below the differences as it is."""
    versions = results.provenance.machine.versions.items()
    known = ", ".join(f"{name} {value}" for name, value in versions) or "unknown"
    parts = [
        "# Results",
        f"Written by {code_span(command(results))} on {plain_text(when(results))}; do not edit.",
        "\n".join(
            [
                *[f"- {QUICK}"] * results.quick,
                f"- Machine: {plain_text(machine_line(results))}",
                f"- Versions: {plain_text(known)}",
                *[f"- {plain_text(line)}" for line in [origins(results)] if line],
            ]
        ),
        f"**{plain_text(headline(results))}**",
        "\n".join(f"- {plain_text(line)}" for line in findings(results)),
        *_accuracy(results, "validation"),
        *_differences(results, "validation"),
        *(["### Notes", notes.strip()] if notes.strip() else []),
        *_comparison(results),
        *_accuracy(results, "test"),
        *_differences(results, "test"),
        *_cuts(results),
        *_timing(results),
        *_missing(results),
        *_every_number(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _accuracy(results: Results, protocol: str) -> list[str]:
    table = accuracy_table(results, protocol)
    if not table.cells:
        return []
    title, text = (
        (
            f"## Accuracy, {chosen(results, protocol)}",
            f"{measure(table)}; in brackets the paper's, and ours minus the paper's in points. The "
            "paper's Reddit column is left out.",
        )
        if protocol == "validation"
        else (
            f"## BIASED, an upper bound: accuracy, {chosen(results, protocol)}",
            f"**{BIASED}**\n\n{measure(table)}.",
        )
    )
    rows = [
        [f"{'↳ ' if row.part else ''}{plain_text(row.label)}", *map(_cell, row.cells)]
        for row in table.rows
        if any(row.cells)
    ]
    gates = {row.model for row in table.rows if row.part}
    note = f"The hLGC row is, on each dataset, the gate with the best {protocol} accuracy."
    columns = ["model", *[plain_text(dataset_name(d)) for d in table.datasets]]
    return [title, text, grid(columns, rows), note if "hlgc" in gates else ""]


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    gate = f", {plain_text(cell.gate)}" if cell.gate else ""
    if cell.paper is None:
        return f"**{score(cell.ours)}**{gate}"
    mark = " ▼" if cell.verdict == "below" else ""
    return f"**{score(cell.ours)}** ({score(cell.paper)}; {signed(cell.difference)}{mark}){gate}"


def _differences(results: Results, protocol: str) -> list[str]:
    cells = [c for c in accuracy_table(results, protocol).every_cell if c.paper]
    if not cells:
        return []
    lines = [
        f"- **{plain_text(cell.entry.name)}: {signed(cell.difference)} points** "
        f"({score(cell.ours)}; paper {score(cell.paper)}). {plain_text(' '.join(reasons))}"
        for cell, reasons in differences(results, protocol)
    ]
    limit = f"more than {TOLERANCE:.1f} point below the paper"
    return [
        "### Differences from the paper",
        f"{len(lines)} of {plural(len(cells), 'result')} (each gate counted) "
        f"{'is' if len(lines) == 1 else 'are'} {limit}." + (" The facts:" if lines else ""),
        "\n".join(lines),
    ]


def _comparison(results: Results) -> list[str]:
    if not results.comparison:
        return []
    table, first = splits_table(results), results.comparison[0]
    rows = [[plain_text(row.label), *map(_on_splits, row.cells)] for row in table.rows]
    again = f"Made, and continued, by {code_span(first.command)}." if first.command else ""
    return [
        "## hLGC against LGC on random splits",
        f"**{plain_text(claim(results))}**" if claim(results) else "",
        f"{COMPARED} {again}",
        f"Test accuracy in percent, mean ± population standard deviation over {len(first.test)} "
        "splits; below it the mean of the difference from LGC, split by split, in points, with its "
        "95 % t-interval, and the interval that holds for all pairs at once (Bonferroni).",
        grid(["model", *[plain_text(dataset_name(d)) for d in table.datasets]], rows),
    ]


def _on_splits(entry: OnSplits | None) -> str:
    if entry is None:
        return NOTHING
    lines, d = [f"**{score(on_splits(entry))}**"], entry.difference
    if d is not None:
        lines.append(f"{signed(100 * d.mean, 2)} ({interval(d)}; all: {interval(d, every=True)})")
    return "<br>".join(lines)


def _cuts(results: Results) -> list[str]:
    found = cuts(results)
    if not found:
        return []
    lines = [f"- {plain_text(names)}: {plain_text(reason)}" for names, reason in found]
    return ["## Searches smaller than the paper's grid", "\n".join(lines)]


def _timing(results: Results) -> list[str]:
    if not results.timing:
        return []
    table = timing_table(results)
    rows = [[plain_text(row.label), *map(_time, row.cells)] for row in table.rows if any(row.cells)]
    return [
        "## Milliseconds per epoch",
        plain_text(busy_line(results)),
        "Median (quartiles) on the machine above, against the paper's mean on a "
        f"{paper.figures()['machine'].split(',')[0]}; each with the setting it was measured for. "
        "Below stands the same model by others, in turn with ours, the strongest first; their "
        "set-up does not count, a share of ours does.",
        grid(["model", *[plain_text(dataset_name(d)) for d in table.datasets]], rows),
    ]


def _time(cell: TimeCell | None) -> str:
    if cell is None:
        return NOTHING
    entry = cell.entry
    ours = f"**{milliseconds(entry.ms_median)}**"
    if entry.ms_low is not None and entry.ms_high is not None:
        ours += f" ({milliseconds(entry.ms_low)} to {milliseconds(entry.ms_high)})"
    lines = [f"{ours}, {plain_text(size(entry))}"]
    if cell.paper is not None:
        settings = ", ".join(setting(name, value) for name, value in cell.paper.setting.items())
        lines.append(_than(f"paper {milliseconds(cell.paper.ms)}, {settings}", cell.faster))
    for peer, faster in cell.peers:
        lines.append(_than(f"{plain_text(peer.name)} {milliseconds(peer.ms_median)}", faster))
    return "<br>".join(lines)


def _than(theirs: str, faster: str) -> str:
    return f"{theirs}: {faster}" if faster else theirs


def _missing(results: Results) -> list[str]:
    lines = [f"- {plain_text(line)}" for line in missing(results)]
    return ["## Not in this run", "\n".join(lines)] if lines else []


def _every_number(results: Results) -> list[str]:
    columns = ["model", "validation", "test", "grid", "searched", "seeds", "command"]
    parts = []
    for protocol in paper.PROTOCOLS:
        cells = accuracy_table(results, protocol).every_cell
        if cells:
            label = chosen(results, protocol) + (" (BIASED)" if protocol == "test" else "")
            parts += [
                f"### {label[0].upper()}{label[1:]}",
                grid(columns, [_number(cell) for cell in cells]),
            ]
    known = any(entry.minutes is not None for entry in results.accuracy)
    note = (
        "Processor minutes are those of the whole search, all cores together; one search serves "
        "both protocols."
    )
    title = "## Every number, and the command that repeats it"
    return [title, note if known else "", *parts] if parts else []


def _number(cell: Cell) -> list[str]:
    entry = cell.entry
    return [
        plain_text(cell.entry.name),
        score(cell.validation),
        score(cell.ours),
        plain_text(entry.grid or NOTHING),
        ", ".join(searched(entry)) or NOTHING,
        " ".join(map(str, entry.seeds)),
        code_span(entry.command) if entry.command else NOTHING,
    ]


def grid(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain_text(value: str) -> str:
    """Text that Markdown shows as it is.

    >>> plain_text("<b>a|b</b>")
    '&lt;b&gt;a\\\\|b&lt;/b&gt;'
    """
    value = html.escape(" ".join(value.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", value)


def code_span(value: str) -> str:
    """A code span around any text, also in a cell of a table.

    >>> code_span("a ` b | c")
    '`` a ` b \\\\| c ``'
    """
    value = " ".join(value.split()).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", value)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{value}{pad}{fence}"


def terminal_tables(results: Results) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of every table that the results have something for."""
    tables = []
    for protocol, title in TITLES.items():
        table = accuracy_table(results, protocol)
        how = chosen(results, protocol)
        if how == BEFOREHAND:
            how += " (quick run, no search)"
        if table.cells:
            columns = ["model", *map(dataset_name, table.datasets)]
            rows = [
                [f"  {row.label}" if row.part else row.label, *map(_short, row.cells)]
                for row in table.rows
                if any(row.cells)
            ]
            tables.append((title.format(how), columns, rows))
    if results.comparison:
        splits = splits_table(results)
        columns = ["model", *map(dataset_name, splits.datasets)]
        rows = [[row.label, *map(_short_splits, row.cells)] for row in splits.rows]
        title = "Test accuracy in % on random splits (minus LGC's, with the interval of all pairs)"
        tables.append((title, columns, rows))
    if results.timing:
        times = timing_table(results)
        columns = ["model", *map(dataset_name, times.datasets)]
        rows = [[row.label, *map(_short_time, row.cells)] for row in times.rows if any(row.cells)]
        tables.append(("Milliseconds per epoch (against the paper's V100)", columns, rows))
    return tables


def _short(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    ours = score(cell.ours, digits=1)
    ours += f", {cell.gate}" if cell.gate else ""
    if cell.paper is None:
        return ours
    return f"{ours} (paper {cell.paper.mean:.1f}, {signed(cell.difference)})"


def _short_splits(entry: OnSplits | None) -> str:
    if entry is None:
        return NOTHING
    ours, d = score(on_splits(entry), digits=1), entry.difference
    return ours if d is None else f"{ours} ({signed(100 * d.mean, 2)}, {interval(d, every=True)})"


def _short_time(cell: TimeCell | None) -> str:
    if cell is None:
        return NOTHING
    ours = milliseconds(cell.entry.ms_median)
    if cell.paper is None:
        return ours
    than = ", ".join(filter(None, [f"paper {milliseconds(cell.paper.ms)}", cell.faster]))
    return f"{ours} ({than})"
