"""The results arranged as the paper arranges its tables, and the words for what stands in them.

A row is a model, a column a dataset. The page, RESULTS.md and the terminal show the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hoplite.lab import paper
from hoplite.lab.paper import EpochTime, Score
from hoplite.lab.results import Accuracy, Difference, OnSplits, Peer, Results, Timing
from hoplite.models import MODELS, idle_settings
from hoplite.training.results import Figures
from hoplite.words import NOTHING, model_name, number, plural, signed

MOST_CLASSES = 20  # of a confusion matrix that is shown
TOLERANCE = 1.0  # points below the paper's mean that still count as reproduced
SYMBOLS = {
    "hops": "k",
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "hidden": "hidden units",
}


@dataclass(frozen=True)
class Cell:
    """One accuracy of ours, and the paper's if it has one."""

    entry: Accuracy
    paper: Score | None
    gate: str = ""  # that the row chose, if it had a choice

    @property
    def ours(self) -> Score:
        """Test accuracy in percent."""
        return self._score(self.entry.test_mean, self.entry.test_std)

    @property
    def validation(self) -> Score | None:
        """Validation accuracy in percent, if it is known."""
        mean = self.entry.val_mean
        return None if mean is None else self._score(mean, self.entry.val_std)

    def _score(self, mean: float, std: float | None) -> Score:
        return Score(100 * mean, None if std is None or self.entry.one_seed else 100 * std)

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, of the figures as they are shown (one decimal)."""
        if self.paper is None:
            return None
        return round(round(self.ours.mean, 1) - self.paper.mean, 1) + 0.0

    @property
    def verdict(self) -> str:
        """ "above", "near" (less than the tolerance below), "below", or "new" without a paper's."""
        if self.difference is None:
            return "new"
        if self.difference >= 0:
            return "above"
        return "near" if self.difference >= -TOLERANCE else "below"


@dataclass(frozen=True)
class Row:
    """A model's cells, one per dataset; ``part`` rows are the gates that a whole row chose from."""

    label: str
    model: str
    cells: list[Cell | None]
    paper: list[Score | None]
    part: bool = False
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows over ``datasets``."""

    datasets: list[str]
    rows: list[Row] = field(default_factory=list)

    @property
    def cells(self) -> list[Cell]:
        """The cells that stand for a row of the paper: of the gates of hLGC only the chosen."""
        return [cell for row in self.rows if not row.part for cell in row.cells if cell]

    @property
    def every_cell(self) -> list[Cell]:
        """Each result once."""
        split = {row.model for row in self.rows if row.part}
        rows = [row for row in self.rows if row.part or row.model not in split]
        return [cell for row in rows for cell in row.cells if cell]


def accuracy_table(results: Results, protocol: str) -> Table:
    """The accuracies of one protocol; the two protocols never share a table.

    A model with several gates gets a row for the gate that the protocol itself would choose (the
    best validation accuracy, or test accuracy for the biased protocol), then a row per gate.
    """
    entries = results.of(protocol)
    all_datasets, all_models = ((), ()) if results.searched else (paper.DATASETS, paper.MODELS)
    datasets = order(all_datasets, [e.dataset for e in entries])
    table = Table(datasets)
    for model in order(all_models, [e.model for e in entries]):
        own = [e for e in entries if e.model == model]
        gates = list(dict.fromkeys(e.gate for e in own))
        published = [paper.accuracy(protocol, model, dataset) for dataset in datasets]

        def cells(
            group: list[Accuracy], published: list[Score | None] = published
        ) -> list[Cell | None]:
            chosen = [_choose([e for e in group if e.dataset == d], protocol) for d in datasets]
            several = len({e.gate for e in group}) > 1
            return [
                entry and Cell(entry, score, f"{entry.gate or 'no'} gate" if several else "")
                for entry, score in zip(chosen, published, strict=True)
            ]

        note = f"{gates[0]} gate" if gates and gates[0] else ""
        if len(gates) > 1:
            note = f"best gate by {protocol} accuracy"
        table.rows.append(Row(model_name(model), model, cells(own), published, note=note))
        for gate in gates if len(gates) > 1 else []:
            part = [e for e in own if e.gate == gate]
            label = f"{gate} gate" if gate else "no gate"
            table.rows.append(Row(label, model, cells(part), published, part=True))
    return table


def _choose(entries: list[Accuracy], protocol: str) -> Accuracy | None:
    def reached(entry: Accuracy) -> float:
        return (entry.val_mean or 0.0) if protocol == "validation" else entry.test_mean

    return max(entries, key=reached, default=None)


@dataclass(frozen=True)
class TimeCell:
    """One time per epoch of ours, and the paper's if it has one.

    ``busy`` is the share of the CPU that others used, if that was so much that the time is no match
    for any other: then there is no ratio.
    """

    entry: Timing
    paper: EpochTime | None
    busy: float = 0.0

    @property
    def faster(self) -> str:
        """Than the paper's."""
        return "" if self.paper is None else self._ratio(self.paper.ms)

    @property
    def peers(self) -> list[tuple[Peer, str]]:
        """The same model by others, the strongest first, and how much faster ours is."""
        ordered = sorted(self.entry.peers, key=lambda peer: peer.ms_median)
        return [(peer, self._ratio(peer.ms_median)) for peer in ordered]

    def _ratio(self, theirs: float) -> str:
        return "" if self.busy else ratio(theirs, self.entry.ms_median)


Content = TypeVar("Content")


@dataclass(frozen=True)
class ModelRow(Generic[Content]):
    """A model with a gate, and what there is of it on each dataset."""

    label: str
    model: str
    cells: list[Content | None]


@dataclass(frozen=True)
class ModelTable(Generic[Content]):
    """Rows over ``datasets``."""

    datasets: list[str]
    rows: list[ModelRow[Content]]

    @property
    def cells(self) -> list[Content]:
        return [cell for row in self.rows for cell in row.cells if cell]


def timing_table(results: Results) -> ModelTable[TimeCell]:
    """A row per model and gate."""
    entries = results.timing
    datasets = order(paper.DATASETS, [e.dataset for e in entries])
    rows = []
    for model in order(paper.MODELS, [e.model for e in entries]):
        own = [e for e in entries if e.model == model]
        for gate in dict.fromkeys(e.gate for e in own) or [None]:
            found = {
                e.dataset: TimeCell(e, paper.epoch_time(model, e.dataset), results.busy(e))
                for e in own
                if e.gate == gate
            }
            rows.append(ModelRow(model_name(model, gate), model, [found.get(d) for d in datasets]))
    return ModelTable(datasets, rows)


def splits_table(results: Results) -> ModelTable[OnSplits]:
    """The comparison on random splits, a row per model and gate."""
    entries = results.comparison
    datasets = order(paper.DATASETS, [e.dataset for e in entries])
    found = {(e.model, e.gate, e.dataset): e for e in entries}
    rows = [
        ModelRow(model_name(model, gate), model, [found.get((model, gate, d)) for d in datasets])
        for model, gate in dict.fromkeys((e.model, e.gate) for e in entries)
    ]
    return ModelTable(datasets, rows)


def on_splits(entry: OnSplits) -> Score | None:
    """Test accuracy in percent over the splits, if there is one."""
    mean, std = entry.test_mean, entry.test_std
    return None if mean is None else Score(100 * mean, None if std is None else 100 * std)


def interval(difference: Difference, *, every: bool = False) -> str:
    """In points; ``every``: the one for all pairs at once.

    >>> interval(Difference(to="lgc", splits=20, pairs=9, mean=0.0, low=-0.001, high=0.002,
    ...                     low_all=-0.01, high_all=0.02))
    '−0.10 to +0.20'
    """
    ends = (difference.low_all, difference.high_all) if every else (difference.low, difference.high)
    return " to ".join(signed(100 * end, 2) for end in ends)


def order(first: tuple[str, ...], found: list[str]) -> list[str]:
    """The paper's names first, then any others in the order in which they came."""
    return list(dict.fromkeys([*first, *found]))


def score(value: Score | None, digits: int = 2) -> str:
    """Percent with one decimal and its standard deviation, if it has one.

    >>> score(Score(82.04, 0.515)), score(Score(82.04, None))
    ('82.0 ± 0.52', '82.0')
    """
    if value is None:
        return NOTHING
    if value.std is None:
        return f"{value.mean:.1f}"
    return f"{value.mean:.1f} ± {value.std:.{digits}f}"


def milliseconds(value: float | None) -> str:
    """
    >>> milliseconds(2.148), milliseconds(20.44), milliseconds(1234.0)
    ('2.15', '20.4', '1,234')
    """
    if value is None:
        return NOTHING
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(theirs: float, ours: float) -> str:
    """How much faster ours is, in words.

    >>> ratio(10.0, 2.0), ratio(2.0, 10.0), ratio(10.0, 9.9)
    ('5.0x faster', '5.0x slower', 'as fast')
    """
    if not (theirs > 0 and ours > 0):
        return NOTHING
    factor = max(theirs / ours, ours / theirs)
    if factor < 1.05:
        return "as fast"
    shown = f"{factor:.0f}" if factor >= 9.95 else f"{factor:.1f}"
    return f"{shown}x {'faster' if theirs > ours else 'slower'}"


def setting(name: str, value: Any) -> str:
    """
    >>> setting("hops", 20), setting("weight_decay", 5e-06)
    ('k = 20', 'weight decay = 5e-06')
    """
    shown = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{SYMBOLS.get(name, name.replace('_', ' '))} = {shown}"


def settings(model: str, config: Mapping[str, Any]) -> list[str]:
    """A configuration without the settings that its model has not.

    >>> settings("lgc", {"model": "lgc", "hops": 20, "heads": 8})
    ['k = 20']
    """
    hidden = {"model"} | idle_settings(model)
    return [
        setting(name, value)
        for name, value in config.items()
        if value is not None and name not in hidden
    ]


def size(entry: Timing) -> str:
    """The setting that a time depends on most.

    >>> size(Timing(dataset="cora", model="lgc", config={"hops": 20, "hidden": 16}, ms_median=1))
    'k = 20'
    """
    kind = MODELS.get(entry.model)
    name = kind.growth if kind else "hops"
    value = (entry.config or {}).get(name)
    return "" if value is None else setting(name, value)


def figure_rows(figures: Figures) -> list[list[str]]:
    """Name, mean and deviation over the seeds, and the baseline's value."""
    return [
        [name.replace("_", " "), f"{_decimals(mean)} ± {_decimals(figures.std.get(name))}",
         _decimals(figures.baseline.get(name))]
        for name, mean in figures.mean.items()
    ]  # fmt: skip


def class_rows(figures: Figures) -> list[list[str]]:
    """Name, precision, recall and nodes of each class."""
    return [
        [name, *[_decimals(one.get(what)) for what in ("precision", "recall", "f1")],
         number(one.get("support"))]
        for name, one in figures.classes.items()
    ]  # fmt: skip


def confusion_rows(figures: Figures) -> list[list[str]]:
    """For each class, how many of its nodes were taken for each; none if there are too many."""
    matrix = figures.confusion or []
    if len(matrix) > MOST_CLASSES or len(matrix) != len(figures.classes):
        return []
    names = list(figures.classes)
    return [[name, *map(str, row)] for name, row in zip(names, matrix, strict=True)]


def _decimals(value: float | None) -> str:
    return NOTHING if value is None else f"{value:z.3f}"


def searched(entry: Accuracy) -> list[str]:
    """How large the search of a result was, and what it cost: minutes are of all cores together."""
    counts = {"configuration": entry.configurations, "run": entry.runs}
    parts = [plural(count, noun) for noun, count in counts.items() if count is not None]
    if entry.runs is not None and entry.runs < (entry.configurations or 0) * len(entry.seeds):
        parts[-1] += " in two stages"
    cost = entry.minutes
    return parts + ([] if cost is None else [f"{number(cost)} processor minutes"])
