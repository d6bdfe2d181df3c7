"""What is wrong with a table is said in one sentence, before any work, and nothing is lost."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import fail, succeed

COUNT = 40
FEW = ["--hops", 1, "--epochs", 3, "--seeds", 1]
Rows = list[dict[str, Any]]
Change = Callable[[Rows, Rows], Any]


def tables(folder: Path, change: Change | None = None) -> None:
    """Nodes in any order with text ids, and weighted edges; ``change`` spoils the rows."""
    rng = np.random.default_rng(5)
    names = [f"k{i}" for i in rng.permutation(COUNT)]
    nodes: Rows = [
        {
            "id": name,
            "label": "xy"[i % 2],
            "age": int(rng.integers(20, 60)),
            "kind": "ab"[i % 3 > 0],
        }
        for i, name in enumerate(names)
    ]
    edges: Rows = [
        {"source": one, "target": other, "weight": float(rng.integers(1, 9))}
        for one, other in rng.choice(names, (90, 2)).tolist()
    ]
    if change is not None:
        change(nodes, edges)
    folder.mkdir()
    for stem, rows in (("nodes", nodes), ("edges", edges)):
        with (folder / f"{stem}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def column(name: str, value: Callable[[int], Any]) -> Change:
    """Give the nodes a column, or another one of this name."""

    def change(nodes: Rows, edges: Rows) -> None:
        for i, row in enumerate(nodes):
            row[name] = value(i)

    return change


def edge(name: str, value: str) -> Change:
    """Give the eighth edge another value."""
    return lambda nodes, edges: edges[7].update({name: value})


def without(*names: str) -> Change:
    """Take columns of the nodes away."""
    return lambda nodes, edges: [row.pop(name) for row in nodes for name in names]


def only_key(nodes: Rows, edges: Rows) -> None:
    without("age", "kind")(nodes, edges)
    column("name", lambda i: f"name {i}")(nodes, edges)


TRAINING = {
    "label": (None, ["--label", "lable"], "no column 'lable'", "Did you mean 'label'?"),
    "one class": (column("label", lambda i: "x" if i % 2 else ""), [], "'x'", "two classes"),
    "no label": (column("label", lambda i: ""), [], "no labels to learn from", "--label"),
    "all missing": (
        column("gap", lambda i: ""),
        [],
        "column 'gap'",
        "is empty; fill it or drop it",
    ),
    "only a key": (only_key, [], "no usable feature column", "add numbers"),
    "weight nan": (
        edge("weight", "nan"),
        [],
        "'weight'",
        "'nan' in data row 8",
    ),
}
PREDICTION = {
    "a column less": (without("kind"), "no column 'kind'", "add it"),
    "wrong type": (column("age", lambda i: "old"), "column 'age'", "trained with a number"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    tables(folder / "good")
    succeed("train", "good", *FEW, "--out", "model", cwd=folder)
    return folder / "model"


@pytest.mark.parametrize("what", TRAINING)
def test_training(what: str, model: Path, tmp_path: Path) -> None:
    change, options, *said = TRAINING[what]
    tables(tmp_path / "spoilt", change)
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}
    out = ["--out", model, "--overwrite"]
    report = fail(1, "train", "spoilt", *FEW, *options, *out, cwd=tmp_path)
    assert all(part in report for part in said), report
    assert {path: path.read_bytes() for path in model.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("what", PREDICTION)
def test_prediction(what: str, model: Path, tmp_path: Path) -> None:
    change, *said = PREDICTION[what]
    tables(tmp_path / "spoilt", change)
    (tmp_path / "labels.csv").write_text("mine")
    report = fail(1, "predict", model, "spoilt", "--out", "labels.csv", "--overwrite", cwd=tmp_path)
    assert all(part in report for part in said), report
    assert (tmp_path / "labels.csv").read_text() == "mine"
