"""The results arranged as the paper arranges its tables: a row a model, a column a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hoplite.lab.report import paper
from hoplite.lab.report.paper import EpochTime, Score
from hoplite.lab.report.text import one_seed
from hoplite.words import dataset_name, model_name

TOLERANCE = 1.0  # points below the paper's mean that still count as reproduced
PEER = "PyTorch Geometric's GCN"  # of hoplite reproduce: two layers, and always
PEER_HIDDEN = 16


@dataclass(frozen=True)
class Cell:
    """One accuracy of ours, and the paper's if it has one."""

    protocol: str
    entry: dict[str, Any]
    paper: Score | None

    @property
    def ours(self) -> Score:
        """Test accuracy in percent."""
        std = None if one_seed(self.entry) else 100 * self.entry["test_std"]
        return Score(100 * self.entry["test_mean"], std)

    @property
    def validation(self) -> Score | None:
        """Validation accuracy in percent, if it is known."""
        mean, std = self.entry.get("val_mean"), self.entry.get("val_std")
        if mean is None:
            return None
        return Score(100 * mean, None if std is None or one_seed(self.entry) else 100 * std)

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

    @property
    def name(self) -> str:
        """
        >>> entry = {"model": "lgc", "dataset": "cora"}
        >>> Cell("validation", entry, None).name
        'LGC on Cora'
        """
        model = model_name(self.entry["model"], self.entry.get("gate"))
        return f"{model} on {dataset_name(self.entry['dataset'])}"


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
class TimeCell:
    """One time per epoch of ours, and the paper's if it has one."""

    entry: dict[str, Any]
    paper: EpochTime | None

    @property
    def peer(self) -> dict[str, Any] | None:
        """The peer where it is the same model of the same size: the only fair ratio to it."""
        peer, hidden = self.entry.get("peer"), (self.entry.get("config") or {}).get("hidden")
        same = self.entry["model"] == "gcn" and hidden == PEER_HIDDEN
        return peer if peer and same and peer["name"] == PEER else None


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


def accuracy_table(results: dict[str, Any], protocol: str) -> Table:
    """The accuracies of one protocol; the two protocols never share a table.

    A model with several gates gets a row for the gate that the protocol itself would choose (the
    best validation accuracy, or test accuracy for the biased protocol), then a row per gate.
    """
    entries = [e for e in results.get("accuracy") or [] if e["protocol"] == protocol]
    datasets = order(paper.DATASETS, [e["dataset"] for e in entries])
    table = Table(datasets)
    for model in order(paper.MODELS, [e["model"] for e in entries]):
        own = [e for e in entries if e["model"] == model]
        gates = list(dict.fromkeys(e.get("gate") for e in own))
        published = [paper.accuracy(protocol, model, dataset) for dataset in datasets]

        def cells(
            group: list[dict[str, Any]], published: list[Score | None] = published
        ) -> list[Cell | None]:
            chosen = [_choose([e for e in group if e["dataset"] == d], protocol) for d in datasets]
            return [
                None if e is None else Cell(protocol, e, p)
                for e, p in zip(chosen, published, strict=True)
            ]

        note = f"{gates[0]} gate" if gates and gates[0] else ""
        if len(gates) > 1:
            note = f"best gate by {protocol} accuracy"
        table.rows.append(Row(model_name(model), model, cells(own), published, note=note))
        for gate in gates if len(gates) > 1 else []:
            part = [e for e in own if e.get("gate") == gate]
            label = f"{gate} gate" if gate else "no gate"
            table.rows.append(Row(label, model, cells(part), published, part=True))
    return table


def timing_table(results: dict[str, Any]) -> tuple[list[str], list[tuple[str, str, list]]]:
    """Datasets, and per model and gate its label, its name and a TimeCell or None per dataset."""
    entries = results.get("timing") or []
    datasets = order(paper.DATASETS, [e["dataset"] for e in entries])
    rows = []
    for model in order(paper.MODELS, [e["model"] for e in entries]):
        own = [e for e in entries if e["model"] == model]
        for gate in dict.fromkeys(e.get("gate") for e in own) or [None]:
            found = {e["dataset"]: e for e in own if e.get("gate") == gate}
            cells = [
                TimeCell(found[d], paper.epoch_time(model, d)) if d in found else None
                for d in datasets
            ]
            rows.append((model_name(model, gate), model, cells))
    return datasets, rows


def peer_rows(results: dict[str, Any]) -> list[tuple[str, list[float | None]]]:
    """The label of each peer, and its milliseconds per epoch on each dataset of the time table."""
    found: dict[str, dict[str, float]] = {}
    for entry in results.get("timing") or []:
        if entry.get("peer"):
            times = found.setdefault(entry["peer"]["name"], {})
            times.setdefault(entry["dataset"], entry["peer"]["ms_median"])
    datasets = timing_table(results)[0]
    size = {PEER: f", {PEER_HIDDEN} hidden units"}
    return [
        (f"{name}{size.get(name, '')}, here", [times.get(dataset) for dataset in datasets])
        for name, times in found.items()
    ]


def order(first: tuple[str, ...], found: list[str]) -> list[str]:
    """The paper's names first, then any others in the order in which they came."""
    return list(dict.fromkeys([*first, *found]))


def _choose(entries: list[dict[str, Any]], protocol: str) -> dict[str, Any] | None:
    key = "val_mean" if protocol == "validation" else "test_mean"
    return max(entries, key=lambda e: e.get(key) or 0.0, default=None)
