"""What the paper reports: accuracies under both protocols, times, and its grids."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hoplite.search import Space, read_space

DATASETS = ("citeseer", "cora", "pubmed")  # Reddit is in paper.json, and nowhere in our tables
MODELS = ("sgc", "gat", "gcn", "egc", "lgc", "hlgc")
PROTOCOLS = ("validation", "test")
NAMES = {"citeseer": "Citeseer", "cora": "Cora", "pubmed": "Pubmed"}
NAMES |= {"sgc": "SGC", "gat": "GAT", "gcn": "GCN", "egc": "EGC", "lgc": "LGC", "hlgc": "hLGC"}


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation of an accuracy, in percent; one seed has no deviation.

    >>> str(Score(82.04, 0.515)), str(Score(82.04, None))
    ('82.0 ± 0.52', '82.0')
    """

    mean: float
    std: float | None

    @classmethod
    def of_shares(cls, mean: float, std: float | None) -> Score:
        """From shares between 0 and 1; an unknown deviation is 0."""
        return cls(100 * mean, 100 * (std or 0.0))

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.2f}"


@functools.cache
def figures() -> dict[str, Any]:
    """The whole of paper.json."""
    return json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))


def accuracy(protocol: str, model: str, dataset: str) -> Score | None:
    """What the paper reports, or None where it reports nothing (or "OOM", out of memory).

    >>> accuracy("validation", "lgc", "cora")
    Score(mean=82.0, std=0.52)
    >>> accuracy("validation", "gat", "reddit") is None
    True
    """
    cell = figures()["accuracy"].get(protocol, {}).get(model, {}).get(dataset)
    return Score(*cell) if isinstance(cell, list) else None


def epoch_ms(model: str, dataset: str) -> float | None:
    """The paper's milliseconds per epoch on its GPU.

    >>> epoch_ms("lgc", "cora")
    10.1
    """
    return figures()["milliseconds"].get(model, {}).get(dataset, [None])[0]


def size(model: str, dataset: str) -> dict[str, int]:
    """The degree or the hidden units of the paper's table of times."""
    return figures()["milliseconds"].get(model, {}).get(dataset, [{}])[-1]


@functools.cache
def space(name: str) -> Space:
    """A grid: "paper", "reduced" (without what costs most) or "quick" (one setting each)."""
    return read_space(name)


def quick_options(dataset: str, model: str) -> dict[str, Any]:
    """The settings that a full run chose on validation."""
    return {**space("quick").configurations(dataset, model)[0], "tie": "first"}
