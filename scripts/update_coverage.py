"""Measure how often prediction sets hold the true class, and write it into docs/predict.md.

python scripts/update_coverage.py --graphs FOLDER    # with amazon_photo.npz, amazon_computers.npz
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pages import replaced

import hoplite
from hoplite.files import atomic_write_text
from hoplite.io.splits import random_split

PAGE = Path(__file__).parent.parent / "docs" / "predict.md"
COVERAGE, SPLITS, PER_CLASS, VAL = 0.9, 20, 20, 500
MODEL = {"hops": 2, "lr": 0.2, "weight_decay": 1e-5, "dropout": 0, "epochs": 200, "patience": 50}
GRAPHS = {
    "pubmed": "Pubmed",
    "amazon_photo": "Amazon Photo",
    "amazon_computers": "Amazon Computers",
}


@dataclass(frozen=True)
class Covered:
    """One split: shares of its test nodes, and the mean size of their sets."""

    accuracy: float
    covered: float
    size: float
    empty: float
    before: float  # the calibration error
    after: float


def coverages(graph: hoplite.Graph, splits: int) -> list[Covered]:
    """Train on ``splits`` random splits: 20 nodes a class, 500 that validate, the rest test."""
    found = []
    known = int((graph.labels >= 0).sum())
    rest = known - PER_CLASS * graph.num_classes - VAL
    for seed in range(splits):
        split = random_split(graph.labels, seed, per_class=PER_CLASS, val=VAL, test=rest)
        divided = graph.with_split(split)
        run = hoplite.train(divided, "sgc", seeds=[seed], calibrate=True, **MODEL).best_run
        test, labels = split.test, graph.labels[split.test]
        sets = run.model.prediction_sets(divided, COVERAGE)[test]
        assert run.calibration is not None
        found.append(
            Covered(
                run.test_accuracy,
                float(sets[np.arange(len(test)), labels].mean()),
                float(sets.sum(axis=1).mean()),
                float((~sets.any(axis=1)).mean()),
                **run.calibration["test"],
            )
        )
    return found


def line(name: str, graph: hoplite.Graph, found: list[Covered]) -> str:
    """A row of the table."""
    values = {
        field: np.array([getattr(one, field) for one in found])
        for field in Covered.__dataclass_fields__
    }
    covered = 100 * values["covered"]
    return (
        f"| {name} | {PER_CLASS * graph.num_classes} / {VAL} / the rest "
        f"| {100 * values['accuracy'].mean():.1f} % "
        f"| **{covered.mean():.1f} ± {covered.std():.1f} %** "
        f"| {covered.min():.1f} to {covered.max():.1f} "
        f"| {values['size'].mean():.2f} | {100 * values['empty'].mean():.1f} % "
        f"| {values['before'].mean():.3f} | {values['after'].mean():.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, required=True, help="Folder of the .npz files.")
    folder = parser.parse_args().graphs
    lines = [
        "| graph | train / val / test | accuracy | coverage at 90 % | range of coverage | mean set "
        "size | empty sets | calibration error | calibration error with `--calibrate` |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for file, name in GRAPHS.items():
        graph = hoplite.load(file if file == "pubmed" else folder / f"{file}.npz")
        lines.append(line(name, graph, coverages(graph, SPLITS)))
        print(lines[-1], flush=True)
    atomic_write_text(PAGE, replaced(PAGE.read_text(encoding="utf-8"), "coverage", lines))


if __name__ == "__main__":
    main()
