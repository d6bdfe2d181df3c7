"""Sentences about the results, each of them computed from the data and from nothing else."""

from __future__ import annotations

import math
import statistics
from typing import Any

from hoplite.lab.report import paper
from hoplite.lab.report.text import plain, setting
from hoplite.lab.report.view import TOLERANCE, Cell, Table, accuracy_table, order, timing_table
from hoplite.words import dataset_name, listing, model_name, number, plural, signed

BIASED = (
    "Biased: an upper bound. These settings were chosen by looking at the test set itself, as the "
    "paper's appendix does; they do not estimate accuracy on new nodes."
)
QUICK = (
    "Quick run, no search: it trains settings that were chosen beforehand, so it checks the code, "
    "not the paper's model selection."
)
CHOSEN = {
    "validation": "settings chosen on the validation set",
    "test": "settings chosen on the test set",
}
BEFOREHAND = "settings chosen beforehand"
LINEAR = ("sgc", "egc", "lgc")
GRIDS = {"paper": " (whole grids)", "reduced": " (cut grids)"}
SECTION_NAMES = {
    "timing": "time per epoch",
    "curves": "loss curves",
    "coefficients": "learned coefficients",
    "spectrum": "frequency responses",
}
GRIDDED = {"gcn": ("lr", "weight_decay", "dropout", "hidden")}
GRIDDED["gat"] = GRIDDED["gcn"]


def chosen(results: dict[str, Any], protocol: str) -> str:
    """How the settings of a protocol's table came about; a quick run chooses nothing.

    >>> chosen({"kind": "quick"}, "validation")
    'settings chosen beforehand'
    """
    quick = results.get("kind") == "quick" and protocol == "validation"
    return BEFOREHAND if quick else CHOSEN[protocol]


def outcome(results: dict[str, Any]) -> str:
    """The last word of the title: no more than what the run shows."""
    if results.get("kind") == "quick":
        return "checked"
    cells = [c for c in accuracy_table(results, "validation").cells if c.paper]
    whole = len(cells) == len(paper.MODELS) * len(paper.DATASETS)
    good = whole and all(cell.verdict != "below" for cell in cells)
    return "reproduced" if results.get("kind") == "full" and good else "run again"


def measure(table: Table) -> str:
    """What the figures of an accuracy table are."""
    single = [cell.ours.std is None for cell in table.every_cell]
    if single and all(single):
        return "Test accuracy in percent, of one seed, which has no standard deviation"
    return "Test accuracy in percent, mean ± population standard deviation over the seeds" + (
        " (none where there is one seed)" if any(single) else ""
    )


def headline(results: dict[str, Any]) -> str:
    """The one sentence that the page opens with."""
    cells = [c for c in accuracy_table(results, "validation").cells if c.paper]
    if not cells:
        return "This run has no accuracy that could be compared with the paper."
    good = sum(cell.verdict != "below" for cell in cells)
    return (
        f"{good} of {plural(len(cells), 'accuracy').replace('accuracys', 'accuracies')} within "
        f"{TOLERANCE:.1f} point of the paper or above."
    )


def findings(results: dict[str, Any]) -> list[str]:
    """What else the data say, a sentence each."""
    return [
        sentence
        for sentence in (
            _winners(results),
            _speed(results),
            _bias(results),
            _agreement(results),
            _effort(results),
        )
        if sentence
    ]


def missing(results: dict[str, Any]) -> list[str]:
    """What a complete run would have and this one has not."""
    lines = []
    for protocol in paper.PROTOCOLS:
        table = accuracy_table(results, protocol)
        gaps: dict[str, list[str]] = {}
        for row in table.rows:
            if not row.part and row.model in paper.MODELS:
                for dataset, cell in zip(table.datasets, row.cells, strict=True):
                    if cell is None and dataset in paper.DATASETS:
                        gaps.setdefault(row.label, []).append(dataset_name(dataset))
        name = f"Accuracy, {chosen(results, protocol)}"
        if not table.cells and protocol == "test" and results.get("kind") == "quick":
            lines.append(f"{name} (biased): this needs the full run.")
        elif not table.cells:
            lines.append(f"{name}: nothing.")
        elif gaps:
            lines.append(f"{name}: {_joined(gaps)}.")
    for section, name in SECTION_NAMES.items():
        if not results.get(section):
            lines.append(f"{name[0].upper()}{name[1:]}: nothing.")
    return lines


def cuts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Which searches were smaller than the paper's, and the reason given, once a reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for entry in results.get("accuracy") or []:
        if entry.get("cut"):
            model = model_name(entry["model"], entry.get("gate"))
            names = found.setdefault(plain(entry["cut"]), {}).setdefault(model, [])
            if dataset_name(entry["dataset"]) not in names:
                names.append(dataset_name(entry["dataset"]))
    return [(_joined(names), reason) for reason, names in found.items()]


def differences(results: dict[str, Any], protocol: str) -> list[tuple[Cell, list[str]]]:
    """Every result more than the tolerance below the paper's, with the facts that bear on it."""
    cells = accuracy_table(results, protocol).every_cell
    return [(cell, facts(cell)) for cell in cells if cell.verdict == "below"]


def facts(cell: Cell) -> list[str]:
    """What the data alone say about one cell's difference from the paper."""
    lines = []
    entry, ours, theirs = cell.entry, cell.ours, cell.paper
    if theirs is not None and cell.difference is not None:
        lines.append(_deviations(cell.difference, ours.std, theirs.std or 0.0))
    lines += edges(entry)
    if entry.get("grid") == "quick":
        lines.append("The setting was given beforehand; nothing was searched.")
    if entry.get("cut"):
        lines.append(f"The grid was cut: {plain(entry['cut'])}")
    return lines


def _deviations(difference: float, ours: float | None, theirs: float) -> str:
    if ours is None:
        return f"One seed has no standard deviation; the paper's is {theirs:.2f}."
    text = f"The standard deviations are {ours:.2f} here and {theirs:.2f} in the paper"
    spread = math.hypot(ours, theirs)
    if spread < 0.005:
        return f"{text}."
    ratio = abs(difference) / spread
    return f"{text}; the difference is {ratio:.1f} times their root sum of squares."


def edges(entry: dict[str, Any]) -> list[str]:
    """Which chosen values lie on the edge of the paper's grid (a searched entry only)."""
    if entry.get("grid") not in ("paper", "reduced"):
        return []
    found = []
    grid = paper.grid(entry["dataset"])
    for name in GRIDDED.get(entry["model"], ("lr", "weight_decay", "dropout", "hops")):
        value, values = entry["config"].get(name), grid.get(name)
        if values and value in (min(values), max(values)) and (name, value) != ("dropout", 0.0):
            end = "largest" if value == max(values) else "smallest"
            found.append(f"{setting(name, value)} is the {end} value of the paper's grid")
    return [f"On the edge of the grid: {'; '.join(found)}."] if found else []


def _joined(names: dict[str, list[str]]) -> str:
    """
    >>> _joined({"LGC": ["Cora", "Pubmed"], "SGC": ["Cora"]})
    'LGC on Cora and Pubmed; SGC on Cora'
    """
    return "; ".join(f"{model} on {listing(datasets)}" for model, datasets in names.items())


def _winners(results: dict[str, Any]) -> str:
    """The best model per dataset."""
    table = accuracy_table(results, "validation")
    parts: dict[str, list[str]] = {}
    for index, dataset in enumerate(table.datasets):
        column = [row.cells[index] for row in table.rows if not row.part]
        cells = [cell for cell in column if cell is not None]
        if len(cells) > 1:
            best = max(cells, key=lambda cell: cell.ours.mean)
            name = f"{dataset_name(dataset)} ({best.ours.mean:.1f} %)"
            parts.setdefault(model_name(best.entry["model"]), []).append(name)
    return f"Most accurate here: {_joined(parts)}." if parts else ""


def _speed(results: dict[str, Any]) -> str:
    """Against the paper's GPU."""
    cells = [cell for *_, row in timing_table(results)[1] for cell in row if cell and cell.paper]
    pairs = [(cell.paper.ms, cell.entry["ms_median"], cell.entry.get("threads")) for cell in cells]
    ratios = [theirs / ours for theirs, ours, _ in pairs if ours > 0]
    if not ratios:
        return ""
    threads = {threads for *_, threads in pairs if threads}
    where = f"{plural(threads.pop(), 'CPU thread')}" if len(threads) == 1 else "a CPU"
    same = all(
        (cell.entry.get("config") or {}).get(name) == value
        for cell in cells
        for name, value in cell.paper.setting.items()
    )
    sizes = (
        "Both sides have the same k or hidden units."
        if same
        else "Each side has its own setting (k or hidden units may differ)."
    )
    faster, middle = sum(r > 1 for r in ratios), statistics.median(ratios)
    return (
        f"An epoch on {where} takes less time than on the paper's V100 in {faster} of "
        f"{len(ratios)} cases; the median ratio is {middle:.2g}x. {sizes}"
    )


def _bias(results: dict[str, Any]) -> str:
    """By how much choosing on the test set flatters, over the cells that both protocols have."""
    validation, test = (
        {(c.entry["model"], c.entry["dataset"]): c.ours.mean for c in table.cells}
        for table in (accuracy_table(results, protocol) for protocol in paper.PROTOCOLS)
    )
    gains = [test[key] - validation[key] for key in validation if key in test]
    if not gains:
        return ""
    return (
        f"Choosing settings on the test set instead would show {signed(statistics.mean(gains))} "
        f"points on average over {plural(len(gains), 'case')}: that is the bias of the appendix."
    )


def _agreement(results: dict[str, Any]) -> str:
    """How far from the paper on average."""
    cells = [c for c in accuracy_table(results, "validation").cells if c.difference is not None]
    values = [c.difference for c in cells if c.difference is not None]
    if len(values) < 2:
        return ""
    return (
        f"The mean difference from the paper is {signed(statistics.mean(values), 2)} points "
        f"(from {signed(min(values))} to {signed(max(values))})."
    )


def _effort(results: dict[str, Any]) -> str:
    """What the searches of a full run cost; each serves both protocols and is counted once."""
    if results.get("kind") != "full":
        return ""
    entries = [e for e in results.get("accuracy") or [] if e["protocol"] == "validation"]
    groups = (
        [e for e in entries if e["model"] in LINEAR],
        [e for e in entries if e["model"] not in LINEAR],
    )
    parts = [_cost(group) for group in groups if group]
    return f"Searches, each counted once: {'; '.join(parts)}." if parts else ""


def _cost(entries: list[dict[str, Any]]) -> str:
    """
    >>> _cost([{"model": "lgc", "grid": "paper", "runs": 945, "minutes": 5.5}])
    'LGC (whole grids) 945 runs, 5.5 processor minutes'
    """
    found = {e["model"] for e in entries}
    names = [
        model_name(m) for m in order(paper.MODELS, [e["model"] for e in entries]) if m in found
    ]
    kinds = {plain(e.get("grid")) for e in entries}
    grids = " (some grids cut)" if "reduced" in kinds else ""
    if len(kinds) == 1:
        grids = GRIDS.get(kinds.pop(), "")
    runs = [e["runs"] for e in entries if e.get("runs") is not None]
    minutes = [float(e["minutes"]) for e in entries if e.get("minutes") is not None]
    whole = len(entries)
    shown = [
        plural(sum(runs), "run") if len(runs) == whole else "number of runs unknown",
        f"{number(sum(minutes))} processor minutes" if len(minutes) == whole else "time unknown",
    ]
    return f"{listing(names)}{grids} {', '.join(shown)}"
