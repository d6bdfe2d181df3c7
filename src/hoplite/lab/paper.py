"""The figures that the paper reports, as data: accuracy under both protocols, time.

Its grid is the space ``paper`` of `hoplite search`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from hoplite.selection import read_space

DATASETS = ("citeseer", "cora", "pubmed")  # Reddit is in paper.json, and nowhere in our tables
MODELS = ("sgc", "gat", "gcn", "egc", "lgc", "hlgc")
PROTOCOLS = ("validation", "test")


@dataclass(frozen=True)
class Score:
    """Mean and standard deviation of an accuracy, in percent; one seed has no deviation."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class EpochTime:
    """Milliseconds per epoch with their standard deviation, and the setting they belong to."""

    ms: float
    std: float
    setting: dict[str, int]


@functools.cache
def figures() -> dict[str, Any]:
    """The whole of paper.json."""
    return json.loads(files("hoplite.lab").joinpath("paper.json").read_text(encoding="utf-8"))


def accuracy(protocol: str, model: str, dataset: str) -> Score | None:
    """What the paper reports, or None where it reports nothing (or "OOM", out of memory).

    >>> accuracy("validation", "lgc", "cora")
    Score(mean=82.0, std=0.52)
    >>> accuracy("validation", "gat", "reddit") is None
    True
    """
    cell = figures()["accuracy"].get(protocol, {}).get(model, {}).get(dataset)
    return Score(*cell) if isinstance(cell, list) else None


def epoch_time(model: str, dataset: str) -> EpochTime | None:
    """The paper's time per epoch on its GPU.

    >>> epoch_time("lgc", "cora")
    EpochTime(ms=10.1, std=0.4, setting={'hops': 20})
    """
    cell = figures()["milliseconds"].get(model, {}).get(dataset)
    return None if cell is None else EpochTime(*cell)


@functools.cache
def grid(dataset: str, model: str) -> dict[str, list[float]]:
    """The values of each setting that the paper varied; empty for what it did not use.

    >>> grid("cora", "gcn")["hidden"], grid("cora", "mine")
    ([4, 8, 16, 24], {})
    """
    space = read_space("paper")
    if dataset not in space.sections or model not in MODELS:
        return {}
    found = space.configurations(dataset, model)
    values = {name: list(dict.fromkeys(one[name] for one in found)) for name in found[0]}
    return {name: several for name, several in values.items() if len(several) > 1}
