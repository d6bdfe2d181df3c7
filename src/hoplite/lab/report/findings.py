"""Sentences about the results, each of them computed from the data and from nothing else."""

from __future__ import annotations

import math
import statistics

from hoplite.lab import paper
from hoplite.lab.report.view import (
    TOLERANCE,
    Cell,
    Table,
    accuracy_table,
    order,
    setting,
    splits_table,
    timing_table,
)
from hoplite.lab.results import Accuracy, Results
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
COMPARED = (
    "The settings chosen on the validation set, trained on random splits with the sizes of the "
    "public one (20 labels a class, 500 validation and 1,000 test nodes), the same for all models. "
    "They were chosen on the public split, and random splits share nodes with it and with each "
    "other: an interval tells of the split that is drawn, not of new graphs."
)
BEFOREHAND = "settings chosen beforehand"
LINEAR = ("sgc", "egc", "lgc")
GRIDS: dict[str | None, str] = {"paper": " (whole grids)", "reduced": " (cut grids)"}
SECTION_NAMES = {
    "timing": "Time per epoch",
    "curves": "Loss curves",
    "coefficients": "Learned coefficients",
    "spectrum": "Frequency responses",
    "comparison": "hLGC against LGC on random splits",
}


def chosen(results: Results, protocol: str) -> str:
    """How the settings of a protocol's table came about; a quick run chooses nothing.

    >>> chosen(Results(kind="quick"), "validation")
    'settings chosen beforehand'
    """
    return BEFOREHAND if results.quick and protocol == "validation" else CHOSEN[protocol]


def outcome(results: Results) -> str:
    """The last word of the title: no more than what the run shows."""
    if results.quick or results.searched:
        return "checked" if results.quick else "searched"
    cells = [c for c in accuracy_table(results, "validation").cells if c.paper]
    whole = len(cells) == len(paper.MODELS) * len(paper.DATASETS)
    good = whole and all(cell.verdict != "below" for cell in cells)
    return "reproduced" if results.kind == "full" and good else "run again"


def measure(table: Table) -> str:
    """What the figures of an accuracy table are."""
    single = [cell.ours.std is None for cell in table.every_cell]
    if single and all(single):
        return "Test accuracy in percent, of one seed, which has no standard deviation"
    return "Test accuracy in percent, mean ± population standard deviation over the seeds" + (
        " (none where there is one seed)" if any(single) else ""
    )


def headline(results: Results) -> str:
    """The one sentence that the page opens with."""
    cells = [c for c in accuracy_table(results, "validation").cells if c.paper]
    if not cells:
        return "This run has no accuracy that could be compared with the paper."
    good = sum(cell.verdict != "below" for cell in cells)
    return (
        f"{good} of {plural(len(cells), 'accuracy').replace('accuracys', 'accuracies')} within "
        f"{TOLERANCE:.1f} point of the paper or above."
    )


def findings(results: Results) -> list[str]:
    """What else the data say, a sentence each."""
    return [
        sentence
        for sentence in (
            _winners(results),
            claim(results),
            _speed(results),
            _bias(results),
            _agreement(results),
            _effort(results),
        )
        if sentence
    ]


def missing(results: Results) -> list[str]:
    """What a complete run would have and this one has not."""
    lines = []
    if results.searched:
        return lines
    for protocol in paper.PROTOCOLS:
        table = accuracy_table(results, protocol)
        gaps: dict[str, list[str]] = {}
        for row in table.rows:
            if not row.part and row.model in paper.MODELS:
                for dataset, cell in zip(table.datasets, row.cells, strict=True):
                    if cell is None and dataset in paper.DATASETS:
                        gaps.setdefault(row.label, []).append(dataset_name(dataset))
        name = f"Accuracy, {chosen(results, protocol)}"
        if not table.cells and protocol == "test" and results.quick:
            lines.append(f"{name} (biased): this needs the full run.")
        elif not table.cells:
            lines.append(f"{name}.")
        elif gaps:
            lines.append(f"{name}: {_joined(gaps)}.")
    for section, name in SECTION_NAMES.items():
        if not getattr(results, section):
            later = section == "comparison" and results.quick
            lines.append(f"{name}: this needs the full run." if later else f"{name}.")
    return lines


def cuts(results: Results) -> list[tuple[str, str]]:
    """Which searches were smaller than the paper's, and the reason given, once a reason."""
    found: dict[str, dict[str, list[str]]] = {}
    for entry in results.accuracy:
        if entry.cut:
            names = found.setdefault(entry.cut, {}).setdefault(entry.label, [])
            if dataset_name(entry.dataset) not in names:
                names.append(dataset_name(entry.dataset))
    return [(_joined(names), reason) for reason, names in found.items()]


def differences(results: Results, protocol: str) -> list[tuple[Cell, list[str]]]:
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
    if entry.grid == "quick":
        lines.append("The setting was given beforehand; nothing was searched.")
    if entry.cut:
        lines.append(f"The grid was cut: {entry.cut}")
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


def edges(entry: Accuracy) -> list[str]:
    """Which chosen values lie on the edge of the paper's grid (a searched entry only)."""
    if entry.grid not in ("paper", "reduced"):
        return []
    found = []
    for name, values in paper.grid(entry.dataset, entry.model).items():
        value = entry.config.get(name)
        if value in (min(values), max(values)) and (name, value) != ("dropout", 0.0):
            end = "largest" if value == max(values) else "smallest"
            found.append(f"{setting(name, value)} is the {end} value of the paper's grid")
    return [f"On the edge of the grid: {'; '.join(found)}."] if found else []


def _joined(names: dict[str, list[str]]) -> str:
    """
    >>> _joined({"LGC": ["Cora", "Pubmed"], "SGC": ["Cora"]})
    'LGC on Cora and Pubmed; SGC on Cora'
    """
    return "; ".join(f"{model} on {listing(datasets)}" for model, datasets in names.items())


def _winners(results: Results) -> str:
    """The best model per dataset."""
    table = accuracy_table(results, "validation")
    parts: dict[str, list[str]] = {}
    for index, dataset in enumerate(table.datasets):
        column = [row.cells[index] for row in table.rows if not row.part]
        cells = [cell for cell in column if cell is not None]
        if len(cells) > 1:
            best = max(cells, key=lambda cell: cell.ours.mean)
            name = f"{dataset_name(dataset)} ({best.ours.mean:.1f} %)"
            parts.setdefault(model_name(best.entry.model), []).append(name)
    return f"Most accurate here: {_joined(parts)}." if parts else ""


def claim(results: Results) -> str:
    """What the random splits say of the paper's claim that hLGC is the best model.

    A difference counts if the interval for all pairs at once is on one side of 0.
    """
    table = splits_table(results)
    parts, held, pairs, datasets = [], [], 0, 0
    for index, dataset in enumerate(table.datasets):
        cells = [row.cells[index] for row in table.rows]
        found = [(str(c.gate), c.difference) for c in cells if c and c.difference]
        if not found:
            continue
        above = [gate for gate, difference in found if difference.low_all > 0]
        below = [gate for gate, difference in found if difference.high_all < 0]
        text = "no gate above LGC" if not above else f"{_gates(above)} above LGC"
        text += f", {_gates(below)} below" if below else ""
        parts.append(f"{text} on {dataset_name(dataset)}")
        held += [dataset_name(dataset)] * bool(above)
        pairs, datasets = found[0][1].pairs, datasets + 1
    if not parts:
        return ""
    verdict = f"holds on {listing(held)} alone" if held else "is not borne out"
    verdict = "holds" if len(held) == datasets else verdict
    return (
        f'"hLGC is the best model", tested against LGC on random splits, {verdict}: '
        f"{'; '.join(parts)} (intervals of 95 % for {plural(pairs, 'pair')} at once)."
    )


def _gates(names: list[str]) -> str:
    return f"{listing(names)} gate{'s' if len(names) > 1 else ''}"


def _speed(results: Results) -> str:
    """Against the paper's GPU, of the times that may be compared."""
    cells = timing_table(results).cells
    pairs = [(cell.entry, cell.paper) for cell in cells if cell.paper and not cell.busy]
    ratios = [theirs.ms / ours.ms_median for ours, theirs in pairs if ours.ms_median > 0]
    if not ratios:
        return ""
    threads = {ours.threads for ours, _ in pairs if ours.threads}
    where = f"{plural(threads.pop(), 'CPU thread')}" if len(threads) == 1 else "a CPU"
    same = all(
        (ours.config or {}).get(name) == value
        for ours, theirs in pairs
        for name, value in theirs.setting.items()
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


def _bias(results: Results) -> str:
    """By how much choosing on the test set flatters, over the cells that both protocols have."""
    validation, test = (
        {(c.entry.model, c.entry.dataset): c.ours.mean for c in table.cells}
        for table in (accuracy_table(results, protocol) for protocol in paper.PROTOCOLS)
    )
    gains = [test[key] - validation[key] for key in validation if key in test]
    if not gains:
        return ""
    return (
        f"Choosing settings on the test set instead would show {signed(statistics.mean(gains))} "
        f"points on average over {plural(len(gains), 'case')}: that is the bias of the appendix."
    )


def _agreement(results: Results) -> str:
    """How far from the paper on average."""
    cells = accuracy_table(results, "validation").cells
    values = [c.difference for c in cells if c.difference is not None]
    if len(values) < 2:
        return ""
    return (
        f"The mean difference from the paper is {signed(statistics.mean(values), 2)} points "
        f"(from {signed(min(values))} to {signed(max(values))})."
    )


def _effort(results: Results) -> str:
    """What the searches of a full run cost; each serves both protocols and is counted once."""
    if results.kind != "full":
        return ""
    entries = results.of("validation")
    groups = (
        [e for e in entries if e.model in LINEAR],
        [e for e in entries if e.model not in LINEAR],
    )
    parts = [_cost(group) for group in groups if group]
    return f"Searches, each counted once: {'; '.join(parts)}." if parts else ""


def _cost(entries: list[Accuracy]) -> str:
    """Such as 'LGC (whole grids) 945 runs, 5.5 processor minutes'."""
    models = [e.model for e in entries]
    names = [model_name(model) for model in order(paper.MODELS, models) if model in models]
    kinds = {e.grid for e in entries}
    grids = " (some grids cut)" if "reduced" in kinds else ""
    if len(kinds) == 1:
        grids = GRIDS.get(kinds.pop(), "")
    runs = [e.runs for e in entries if e.runs is not None]
    minutes = [e.minutes for e in entries if e.minutes is not None]
    whole = len(entries)
    shown = [
        plural(sum(runs), "run") if len(runs) == whole else "number of runs unknown",
        f"{number(sum(minutes))} processor minutes" if len(minutes) == whole else "time unknown",
    ]
    return f"{listing(names)}{grids} {', '.join(shown)}"


def command(results: Results) -> str:
    """What made the results."""
    return results.command or "hoplite reproduce"


def when(results: Results) -> str:
    return results.provenance.date or "an unknown date"


def machine_line(results: Results) -> str:
    """CPU, cores, threads, memory, kernels and system in one line.

    >>> from hoplite.lab.results import Machine, Provenance
    >>> machine_line(Results(provenance=Provenance(machine=Machine("Xeon", cores=2, threads=1))))
    'Xeon, 2 cores, 1 thread used'
    """
    machine = results.provenance.machine
    known = (
        (machine.cpu, machine.cpu),
        (machine.cores, plural(machine.cores or 0, "core")),
        (machine.threads, f"{plural(machine.threads or 0, 'thread')} used"),
        (machine.memory_gb, f"{machine.memory_gb} GB of memory"),
        (machine.kernels, f"kernels: {machine.kernels}"),
        (machine.system, machine.system),
    )
    return ", ".join(str(text) for value, text in known if value is not None) or "unknown"


def origins(results: Results) -> str:
    """Which models' results are of which day and version, if not all are of the same."""
    models: dict[str, list[str]] = {}
    for entry in results.accuracy:
        version = f", Hoplite {entry.hoplite}" if entry.hoplite else ""
        names = models.setdefault(f"{entry.date or 'an unknown date'}{version}", [])
        if model_name(entry.model) not in names:
            names.append(model_name(entry.model))
    parts = [f"those of {listing(names)} on {made}" for made, names in models.items()]
    if len(parts) < 2:
        return ""
    return f"Accuracies and filters were made at different times: {'; '.join(parts)}."


def busy_line(results: Results) -> str:
    """That others used the machine, if they did, and what follows."""
    busy = [cell for cell in timing_table(results).cells if cell.busy]
    if not busy:
        return ""
    where = listing(list(dict.fromkeys(dataset_name(cell.entry.dataset) for cell in busy)))
    return (
        f"The machine was up to {100 * max(cell.busy for cell in busy):.0f} % busy with other "
        f"work, so the times on {where} may be far too long and are compared with nothing; measure "
        "them again on an idle machine."
    )
