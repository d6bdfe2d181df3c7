"""What is run: a search per model and dataset, of the paper's grid or of the part we can afford."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hoplite.errors import check_choice

DATASETS = ("cora", "citeseer", "pubmed")
LINEAR = ("sgc", "egc", "lgc")  # searched over the paper's whole grid, as is gcn
CURVES_ON = "cora"  # the dataset whose loss curves are shown, as in the paper
MODELS_SHARE = 0.8  # of all progress; the rest is timing, spectra and the report


@dataclass(frozen=True)
class Job:
    """One model on one dataset with the grid that it is searched over."""

    dataset: str
    model: str
    grid: str
    gate: str | None = None

    @property
    def name(self) -> str:
        """Of the job's files."""
        return "-".join(part for part in (self.dataset, self.model, self.gate) if part)

    @property
    def fixed(self) -> dict[str, Any]:
        """Options that all of the job's configurations share."""
        return {} if self.gate is None else {"gate": self.gate}


def full_jobs(datasets: Sequence[str]) -> list[Job]:
    """The cheap grids first, so that an interrupted run has something to show."""
    whole = [Job(data, model, "paper") for data in datasets for model in (*LINEAR, "gcn")]
    cut = [Job(data, "hlgc", "reduced", "class") for data in datasets]
    cut += [Job(data, "gat", "reduced") for data in datasets]
    # d x d/2 weights, or d x d products, for every hop: too slow where d is above a thousand
    for gate in ("node", "feature"):
        cut += [Job(data, "hlgc", "reduced", gate) for data in datasets if data == "pubmed"]
    return whole + cut


def quick_jobs(datasets: Sequence[str]) -> list[Job]:
    """One configuration each: what the full run chose."""
    models = (*LINEAR, "gcn", "gat")
    jobs = [Job(data, model, "quick") for data in datasets for model in models]
    return jobs + [Job(data, "hlgc", "quick", "class") for data in datasets]


def check_datasets(datasets: Sequence[str] | None) -> tuple[str, ...]:
    """All three, or those of them that are asked for."""
    chosen = DATASETS if datasets is None else tuple(datasets)
    for name in chosen:
        check_choice("datasets", name, DATASETS)
    return tuple(name for name in DATASETS if name in chosen)
