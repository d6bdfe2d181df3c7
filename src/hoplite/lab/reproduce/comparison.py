"""hLGC against LGC on random splits of each graph, which no setting was chosen on.

The chosen settings of LGC and of every gate are trained on the same splits, split s with seed s;
training stops by the validation nodes of the split, and its test nodes are read once. With d_s the
test accuracy of a gate minus LGC's on split s, mean m and sample deviation sd over n splits,

    m +- t(1 - a/2; n - 1) sd / sqrt(n),    a = 0.05, and a = 0.05 / p for all p pairs at once

(Bonferroni). Every training is kept in a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hoplite.datasets.splits import random_split
from hoplite.graph import Graph
from hoplite.json_files import read_json, write_json
from hoplite.lab.reproduce.chosen import Job, train_all
from hoplite.lab.results import Accuracy, Count, Difference, OnSplits, Share
from hoplite.models import without_idle
from hoplite.training.results import number, train
from hoplite.version import VERSION, build

SPLITS = 20
SIZES = {"per_class": 20, "val": 500, "test": 1000}  # those of the public splits
LEVEL = 0.95
BASE = "lgc"


@dataclass(frozen=True)
class OneSplit:
    """What the training on a split gave, and all that decides it; a file."""

    hoplite: str
    config: dict[str, Any]
    split: Count
    val: Share | None
    test: Share | None


@dataclass(frozen=True)
class SplitTraining:
    """A job's options on random split number ``split``."""

    graph: Graph
    job: Job
    options: dict[str, Any]
    split: int
    sizes: dict[str, int]

    @property
    def name(self) -> str:
        return f"{self.job.name}-{self.split:02d}"

    def kept(self, folder: Path) -> OneSplit | None:
        """What an earlier run kept for the same settings."""
        try:
            found = read_json(folder / f"{self.name}.json", OneSplit)
        except (OSError, ValueError):
            return None
        same = (found.hoplite, found.config, found.split) == (VERSION, self.options, self.split)
        return found if same else None

    def run(self, folder: Path) -> OneSplit:
        graph = self.graph.with_split(random_split(self.graph.labels, self.split, **self.sizes))
        (run,) = train(graph, self.job.model, seeds=[self.split], **self.options).runs
        found = OneSplit(
            VERSION,
            self.options,
            self.split,
            number(run.val_accuracy),
            number(run.test_accuracy),
        )
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{self.name}.json", found, indent=None)
        return found


def compare(
    graphs: dict[str, Graph],
    chosen: Sequence[Accuracy],
    folder: Path,
    workers: int,
    command: str,
    report: Callable[[str, float], None],
) -> list[OnSplits]:
    """Train what was chosen of LGC and of each gate on all splits, and compare.

    Graphs of which LGC, or every gate, is missing are left out.
    """
    entries = []
    for name in graphs:
        own = [one for one in chosen if one.dataset == name]
        base, gates = [e for e in own if e.model == BASE], [e for e in own if e.gate is not None]
        entries += [*base, *gates] if base and gates else []
    tasks = []
    for one in entries:
        job = Job(one.dataset, one.model, one.grid or "", one.gate)
        options = without_idle(one.model, one.config)
        tasks += [SplitTraining(graphs[one.dataset], job, options, s, SIZES) for s in range(SPLITS)]
    found: list[OneSplit] = list(train_all(tasks, folder, workers, report))
    pairs = sum(entry.model != BASE for entry in entries)
    compared, base = [], []
    for i, entry in enumerate(entries):
        own = found[i * SPLITS : (i + 1) * SPLITS]
        test = [one.test for one in own]
        if entry.model == BASE:
            base = test
        known = [value for value in test if value is not None]
        compared.append(
            OnSplits(
                dataset=entry.dataset,
                model=entry.model,
                gate=entry.gate,
                config=own[0].config,
                val=[one.val for one in own],
                test=test,
                test_mean=float(np.mean(known)) if known else None,
                test_std=float(np.std(known)) if known else None,
                difference=None if entry.model == BASE else paired(test, base, pairs),
                command=command,
                hoplite=build(),
            )
        )
    return compared


def paired(
    ours: Sequence[float | None], base: Sequence[float | None], pairs: int, to: str = BASE
) -> Difference | None:
    """The mean of ``ours - base`` over the splits that have both, with its intervals.

    >>> found = paired([0.5, 0.6, 0.7], [0.4, 0.4, 0.4], pairs=1)
    >>> [round(value, 4) for value in (found.mean, found.low, found.high)]
    [0.2, -0.0484, 0.4484]
    """
    both = zip(ours, base, strict=True)
    values = np.array([a - b for a, b in both if a is not None and b is not None])
    if len(values) < 2:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
    half, wide = (
        error * float(stats.t.ppf(1 - (1 - LEVEL) / (2 * count), len(values) - 1))
        for count in (1, pairs)
    )
    return Difference(
        to=to, splits=len(values), pairs=pairs, mean=mean,
        low=mean - half, high=mean + half, low_all=mean - wide, high_all=mean + wide,
    )  # fmt: skip
