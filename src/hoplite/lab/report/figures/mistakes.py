"""Where the model that is best on validation errs, of every dataset, and how honest it is."""

from __future__ import annotations

from hoplite.lab.report.figures.base import Figure
from hoplite.lab.report.view import accuracy_table, confusion_rows
from hoplite.lab.results import Accuracy, Results
from hoplite.plots.confusion import confusion
from hoplite.plots.reliability import reliability
from hoplite.training.results import Figures
from hoplite.words import dataset_name, number, plural


def mistake_figures(results: Results) -> list[Figure]:
    """Two figures per dataset: who is taken for whom, and the reliability of probabilities.

    Of the model with the best validation accuracy among those that keep such figures, so that the
    test nodes choose nothing here either.
    """
    best: dict[str, Accuracy] = {}
    for cell in accuracy_table(results, "validation").every_cell:
        entry = cell.entry
        if entry.figures is not None and _rank(entry) > _rank(best.get(entry.dataset)):
            best[entry.dataset] = entry
    return [
        figure
        for index, entry in enumerate(best.values())
        if entry.figures is not None
        for figure in (
            *_confusion(index, entry, entry.figures),
            *_reliability(index, entry, entry.figures),
        )
    ]


def _rank(entry: Accuracy | None) -> float:
    return -1.0 if entry is None else entry.val_mean or 0.0


def _confusion(index: int, entry: Accuracy, figures: Figures) -> list[Figure]:
    rows, counts = confusion_rows(figures), figures.confusion or []
    if not rows or any(len(row) != len(counts) for row in counts):
        return []
    names = list(figures.classes)
    drawn = confusion(counts, names)
    right, total = sum(counts[c][c] for c in range(len(counts))), sum(map(sum, counts))
    summary = f"{right:,} of {plural(total, 'node')} are taken for what they are. "
    wrong = [
        (counts[t][p], names[t], names[p])
        for t in range(len(counts))
        for p in range(len(counts))
        if t != p and counts[t][p]
    ]
    if wrong:
        count, true, told = max(wrong)
        summary += f"Most often wrong: {plural(count, 'node')} of {true}, taken for {told}."
    heading = f"{entry.label} on {dataset_name(entry.dataset)}: who is taken for whom"
    return [
        Figure(
            f"confusion-{index}", heading, summary, drawn.data, drawn.layout,
            ["class", *names], rows,
        )
    ]  # fmt: skip


def _reliability(index: int, entry: Accuracy, figures: Figures) -> list[Figure]:
    # of one seed, and so is the error: the mean over all seeds would be another
    bins = [one for one in figures.reliability if len(one) == 3 and one[2] > 0]
    if not bins:
        return []
    drawn = reliability(bins)
    error = sum(n * abs(right - sure) for sure, right, n in bins) / sum(n for *_, n in bins)
    above = sum(right < sure for sure, right, _ in bins)
    summary = (
        f"In {above} of {plural(len(bins), 'bin')} the model is surer than it is right; the "
        f"calibration error is {number(error)}."
    )
    rows = [[number(sure), number(right), f"{count:,.0f}"] for sure, right, count in bins]
    heading = f"{entry.label} on {dataset_name(entry.dataset)}: reliability"
    return [
        Figure(
            f"reliability-{index}", heading, summary, drawn.data, drawn.layout,
            ["probability", "share right", "nodes"], rows,
        )
    ]  # fmt: skip
