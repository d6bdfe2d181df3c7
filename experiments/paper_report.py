"""The paper's experiments as a report; every sentence about them is computed from the data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from experiments import figures, paper
from experiments.linear_report import difference
from experiments.paper import DATASETS, MODELS, NAMES, Score
from experiments.report import NOTHING, Report, Section, Table
from experiments.results import CHECK, Accuracy, Results, Timing

COLUMNS = ["model", *[NAMES[name] for name in DATASETS]]
EVERY = ["model", "validation", "test", "grid", "configurations", "runs", "minutes", "command"]
TOLERANCE = 1.0  # points below the paper's mean that still count as reproduced
CHOSEN = {
    "validation": "settings chosen on the validation set",
    "test": "settings chosen on the test set",
}
BIASED = (
    "Optimistic: these settings were chosen by looking at the test set itself, as the paper's "
    "appendix does, so the figures do not estimate accuracy on new nodes."
)
QUICK = (
    "Quick run, no search: it trains settings that were chosen beforehand, so it checks the code, "
    "not the paper's model selection."
)
COMPARED = (
    "The settings chosen on the validation set, trained on random splits with the sizes of the "
    "public one (20 labels a class, 500 validation and 1,000 test nodes), the same for all models. "
    "They were chosen on the public split, and random splits share nodes with it and with each "
    "other: an interval is about the split that is drawn, not about new graphs."
)

CURVES = (
    "curves",
    "Loss while training",
    "The vertical line is the epoch with the best validation accuracy, whose weights are kept. "
    "Solid: training, dashed: validation, dotted: test.",
)
COEFFICIENTS = (
    "coefficients",
    "A coefficient per hop",
    "The weight of S^i X, with the sign that makes a run's weights add up to more than 0: a filter "
    "and its negative are one model. Bands are one standard deviation over the seeds; thin bars, "
    "where there is a gate, one over the nodes.",
)
SPECTRUM = (
    "spectrum",
    "Response over the spectrum",
    "Each response is divided by its own largest absolute value. The grey area is the density of "
    "the operator's eigenvalues (right axis).",
)
FIGURES = {
    CURVES: figures.curve_figures,
    COEFFICIENTS: figures.coefficient_figures,
    SPECTRUM: figures.spectrum_figures,
}


@dataclass(frozen=True)
class Cell:
    """One accuracy of ours, and the paper's if it has one."""

    entry: Accuracy

    @property
    def paper(self) -> Score | None:
        return paper.accuracy(self.entry.protocol, self.entry.model, self.entry.dataset)

    @property
    def ours(self) -> Score:
        """Test accuracy in percent; one seed has no deviation."""
        one = len(self.entry.seeds or self.entry.test) == 1
        return Score(100 * self.entry.test_mean, None if one else 100 * self.entry.test_std)

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, of the figures as they are shown (one decimal)."""
        if self.paper is None:
            return None
        return round(round(self.ours.mean, 1) - self.paper.mean, 1) + 0.0

    @property
    def below(self) -> bool:
        """Whether it is more than the tolerance below the paper's."""
        return self.difference is not None and self.difference < -TOLERANCE

    def text(self, *, gate: bool = False) -> str:
        mark = " ▼" if self.below else ""
        lines = [str(self.ours)]
        if self.paper is not None:
            lines.append(f"paper {self.paper}; {self.difference:+.1f}{mark}")
        return "\n".join([*lines, *[f"{self.entry.gate} gate"] * gate])


def best_gates(results: Results, protocol: str) -> dict[tuple[str, str], Cell]:
    """By model and dataset the entry that stands for the model: of hLGC the gate that the protocol
    itself would choose, by validation or, biased, by test accuracy."""

    def reached(entry: Accuracy) -> float:
        return (entry.val_mean or 0.0) if protocol == "validation" else entry.test_mean

    best: dict[tuple[str, str], Accuracy] = {}
    for entry in results.of(protocol):
        place = entry.model, entry.dataset
        if place not in best or reached(entry) > reached(best[place]):
            best[place] = entry
    return {place: Cell(entry) for place, entry in best.items()}


def accuracy_table(results: Results, protocol: str) -> Table:
    """A row for every model of the paper, then one for each gate of a model with several."""
    best, entries, rows = best_gates(results, protocol), results.of(protocol), []
    for model in MODELS:
        gates = list(dict.fromkeys(entry.gate for entry in entries if entry.model == model))
        cells = [best.get((model, data)) for data in DATASETS]
        several = len(gates) > 1
        checks = [entry for entry in results.of(CHECK) if entry.model == model]
        if any(cells):
            texts = [NOTHING if cell is None else cell.text(gate=several) for cell in cells]
            rows.append([NAMES[model] + ", figures of the full run" * bool(checks), *texts])
        for gate in gates if several else ():
            own = {e.dataset: Cell(e) for e in entries if (e.model, e.gate) == (model, gate)}
            texts = [own[data].text() if data in own else NOTHING for data in DATASETS]
            rows.append([f"↳ {gate} gate", *texts])
        for entry in checks:
            texts = [Cell(entry).text() if data == entry.dataset else "" for data in DATASETS]
            rows.append([f"↳ quick check, {entry.gate} gate, one seed", *texts])
    caption = (
        "Test accuracy in percent, mean ± population standard deviation over the seeds; below it "
        "the paper's, and ours minus the paper's in points (▼: more than 1.0 below). The hLGC row "
        f"is the gate with the best {protocol} accuracy. The paper's Reddit column is left out."
    )
    return Table(caption, COLUMNS, rows)


def paper_report(results: Results, notes: str = "", more: Sequence[Section] = ()) -> Report:
    """The whole report; ``notes`` is Markdown written by hand, ``more`` are other experiments."""
    compared = [_comparison(results)] if results.comparison else []
    biased = [accuracy_table(results, "test"), _every(results, "test")]
    times = [_timing(results)] if results.timing else []
    sections = [
        *_accuracy(results, notes),
        Section("comparison", "hLGC against LGC on random splits", COMPARED, tables=compared),
        Section("biased", f"Optimistic: {CHOSEN['test']}", warning=BIASED, tables=biased),
        Section("time", "Milliseconds per epoch", _busy(results), tables=times),
    ]
    for (name, title, text), draw in FIGURES.items():
        sections.append(Section(name, title, text, figures=draw(results)))
    sections += more
    complete = [one for one in sections if one.lines or one.figures or one.tables or one.markdown]
    complete = [one for one in complete if one.id != "biased" or results.of("test")]
    return Report(
        title=paper.figures()["title"],
        headline=headline(results),
        findings=[*[QUICK] * results.quick, *findings(results)],
        sections=complete,
        command=results.command,
        date=results.provenance.date or "an unknown date",
        machine=results.provenance.machine,
    )


def _accuracy(results: Results, notes: str) -> list[Section]:
    how = "settings chosen beforehand" if results.quick else CHOSEN["validation"]
    cells = [Cell(entry) for entry in results.of("validation")]
    below = [f"{one.entry.name}: {one.difference:+.1f} points" for one in cells if one.below]
    cuts: dict[str, list[str]] = {}
    for entry in results.of("validation"):
        if entry.cut:
            cuts.setdefault(entry.cut, []).append(entry.name)
    smaller = [f"{', '.join(names)}: {reason}" for reason, names in cuts.items()]
    tables = [accuracy_table(results, "validation"), _every(results, "validation")]
    drawn = figures.accuracy_figures(best_gates(results, "validation"))
    return [
        Section("accuracy", f"Accuracy, {how}", figures=drawn, tables=tables),
        Section("below", "More than 1.0 point below the paper", lines=below, markdown=notes),
        Section("cuts", "Searches smaller than the paper's grid", lines=smaller),
    ]


def _every(results: Results, protocol: str) -> Table:
    """Every number, and the command that repeats it."""
    rows = []
    for entry in results.of(protocol):
        val = entry.val_mean and Score.of_shares(entry.val_mean, entry.val_std)
        counts = (entry.configurations, entry.runs, entry.minutes)
        sizes = [NOTHING if count is None else f"{count:,.3g}" for count in counts]
        rows.append(
            [entry.name, str(val or NOTHING), str(Cell(entry).ours), entry.grid or NOTHING, *sizes,
             entry.command or NOTHING]
        )  # fmt: skip
    return Table(f"Every number, {CHOSEN[protocol]}", EVERY, rows, folded=True)


def _comparison(results: Results) -> Table:
    found = {(e.model, e.gate, e.dataset): e for e in results.comparison}
    rows = []
    for model, gate in dict.fromkeys((e.model, e.gate) for e in results.comparison):
        row = [NAMES[model] + (f", {gate} gate" if gate else "")]
        for dataset in DATASETS:
            entry = found.get((model, gate, dataset))
            if entry is None or entry.test_mean is None:
                row.append(NOTHING)
                continue
            lines = [str(Score.of_shares(entry.test_mean, entry.test_std))]
            if entry.difference is not None:
                lines.append(difference(entry.difference))
                lines.append(f"all pairs: {difference(entry.difference, every=True)}")
            row.append("\n".join(lines))
        rows.append(row)
    caption = (
        "Test accuracy in percent, mean ± population standard deviation over the splits; below it "
        "ours minus LGC's, split by split, in points, with its 95 % t-interval, and the one for "
        "all pairs at once (Bonferroni)."
    )
    return Table(caption, COLUMNS, rows)


def _timing(results: Results) -> Table:
    rows = []
    for model in MODELS:
        own = {entry.dataset: entry for entry in results.timing if entry.model == model}
        if own:
            texts = [_time(own[name]) if name in own else NOTHING for name in DATASETS]
            rows.append([next(iter(own.values())).label, *texts])
    caption = (
        "Median (quartiles) here, with the degree or hidden units; then the paper's mean on a "
        f"{paper.figures()['machine'].split(',')[0]}."
    )
    return Table(caption, COLUMNS, rows)


def _time(entry: Timing) -> str:
    theirs = paper.epoch_ms(entry.model, entry.dataset)
    name = "hidden" if "hidden" in entry.config else "hops"
    lines = [f"{entry.ms_median:.3g} ms", f"{name} = {entry.config.get(name)}"]
    if entry.ms_low is not None and entry.ms_high is not None:
        lines[1] = f"{entry.ms_low:.3g} to {entry.ms_high:.3g}; {lines[1]}"
    if theirs is not None:
        ratio = "" if entry.busy else f", {theirs / entry.ms_median:.2g}x ours"
        lines.append(f"paper {theirs:.3g}{ratio}")
    return "\n".join(lines)


def _busy(results: Results) -> str:
    """That other programs used the machine, if they did, and what follows."""
    busy = [entry for entry in results.timing if entry.busy]
    if not busy:
        return ""
    return (
        f"Other programs used up to {100 * max(entry.others for entry in busy):.0f} % of the CPU, "
        "so the times may be far too long and are compared with nothing; measure them again on an "
        "idle machine."
    )


def headline(results: Results) -> str:
    """The one sentence that the report opens with."""
    cells = [cell for cell in best_gates(results, "validation").values() if cell.paper]
    if not cells:
        return "This run has no accuracy that could be compared with the paper."
    good = sum(not cell.below for cell in cells)
    what = "accuracy is" if len(cells) == 1 else "accuracies are"
    return f"{good} of {len(cells)} {what} at most {TOLERANCE:.1f} point below the paper's."


def findings(results: Results) -> list[str]:
    """What else the data say, a sentence each."""
    return [text for say in (claim, _speed, _bias, _effort) if (text := say(results))]


def claim(results: Results) -> str:
    """What the random splits say of the paper's claim that hLGC is the best model.

    A difference counts if the interval for all pairs at once is on one side of 0.
    """
    parts, held, pairs = [], [], 0
    for dataset in DATASETS:
        own = [e for e in results.comparison if e.dataset == dataset]
        found = [(str(e.gate), e.difference) for e in own if e.difference is not None]
        above = [gate for gate, one in found if one.low_all > 0]
        below = [gate for gate, one in found if one.high_all < 0]
        if found:
            pairs = found[0][1].pairs
            text = f"on {NAMES[dataset]} {_are(above)} better than LGC"
            parts.append(text + (f" and {_are(below)} worse" if below else ""))
            held.append(NAMES[dataset] if above else "")
    if not parts:
        return ""
    verdict = "holds" if all(held) else f"holds on {', '.join(filter(None, held))} alone"
    verdict = verdict if any(held) else "is not borne out"
    return (
        f'"hLGC is the best model", tested against LGC on random splits, {verdict}: '
        f"{'; '.join(parts)} (intervals of 95 % for {pairs} pairs at once)."
    )


def _are(gates: Sequence[str]) -> str:
    if len(gates) < 2:
        return f"the {gates[0]} gate is" if gates else "no gate is"
    return f"the {' and '.join(gates)} gates are"


def _speed(results: Results) -> str:
    """Against the paper's GPU, of the times that may be compared."""
    pairs = [(e, paper.epoch_ms(e.model, e.dataset)) for e in results.timing if not e.busy]
    ratios = [theirs / ours.ms_median for ours, theirs in pairs if theirs and ours.ms_median > 0]
    if not ratios:
        return ""
    return (
        f"An epoch on {results.timing[0].threads} CPU threads takes less time than on the paper's "
        f"V100 in {sum(r > 1 for r in ratios)} of {len(ratios)} cases; the median ratio is "
        f"{statistics.median(ratios):.2g}x. Both sides have the same k or hidden units."
    )


def _bias(results: Results) -> str:
    """By how much choosing on the test set flatters, over the cells that both protocols have."""
    validation, test = (best_gates(results, protocol) for protocol in paper.PROTOCOLS)
    gains = [test[at].ours.mean - validation[at].ours.mean for at in validation if at in test]
    if not gains:
        return ""
    return (
        f"Choosing settings on the test set instead would show {statistics.mean(gains):+.1f} "
        f"points on average over {len(gains)} cases: so optimistic is the protocol of the appendix."
    )


def _effort(results: Results) -> str:
    """What the searches cost; each serves both protocols and is counted once."""
    entries = [entry for entry in results.of("validation") if entry.minutes is not None]
    if not entries:
        return ""
    runs, minutes = sum(e.runs or 0 for e in entries), sum(e.minutes or 0.0 for e in entries)
    return f"Searches, each counted once: {runs:,} runs, {minutes:,.0f} processor minutes."
